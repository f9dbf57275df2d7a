//! A port that alone of all between switches drops packets, although it could send more: a cable or a shaper limits it below its
//! speed.
//!
//! Where queues are short, or no packet is marked, what does not fit is dropped. Bursts drop at several ports, and for a short
//! time. A port that its peer pauses drops for what the peer waits for. On InfiniBand, where ports count what they wait for credits, a
//! port drops what has waited for too long, and the cause is further on.

use std::collections::BTreeSet;

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::past::{NEW, Pasts, steady_rise};
use super::standing_queue::{is_to_switch, of_others};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::ecn_marks::{marked_share, packet_size};
use crate::detect::pause_graph::share_in_pause;
use crate::detect::peers::MIN_PEERS;
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, Window};

/// The time in which packets are counted, and parts of it: in each the port must drop, and a burst does in one or two.
const DROP_SECONDS: f64 = 120.0;
const PARTS: usize = 4;
/// Fewest packets that are evaluated, and least share of what the port sends.
const MIN_DROPPED: f64 = 10.0;
const MIN_SHARE: f64 = 1e-6;
/// The same of a port that sends less than before: its senders slow down before they lose more.
const MIN_SHARE_OF_LESS: f64 = 1e-7;
/// A port that sends less is not busy, bytes a second: what it drops is of no job.
const MIN_SENT: f64 = 1e7;
/// Most of its speed that the port sends.
const MAX_SENT: f64 = 0.5;
/// Most that it sends, compared with the median of the switch's other cables to switches.
const MAX_OF_OTHERS: f64 = 1.2;
/// A port may send more, up to this share of its speed, where another of its switch and of its speed sends [`BUSIER`] times as much
/// and drops nothing, or where it sends at most [`FALLEN`] times what it sent before it dropped.
const MAX_SENT_OF_LIMITED: f64 = 0.8;
const BUSIER: f64 = 1.05;
const FALLEN: f64 = 0.75;
/// Most of the time for which it is paused.
const MAX_PAUSED: f64 = 0.01;
/// Most cables at once: where there are more, bursts cause it.
const MOST_AT_ONCE: usize = 2;
/// Age of what the port dropped before, and its least length.
const AGO_SECONDS: [f64; 2] = [130.0, 30.0];

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "the port drops {MIN_DROPPED} packets, and {MIN_SHARE} of what it sends ({MIN_SHARE_OF_LESS} if it sends less than before), in {DROP_SECONDS:.0} s, some in each of {PARTS} parts of it, and {NEW:.0} times as many a second as before, while it sends {:.0} MB/s or more and either less than {:.0} % of its speed and at most {MAX_OF_OTHERS} times the median of its switch's other cables to switches, or less than {:.0} % of its speed and 1/{BUSIER} of what another of these of the same speed sends without dropping, or {FALLEN} of what it sent before, and is paused for less than {:.0} % of the time; at most {MOST_AT_ONCE} cables between switches do; not where ports count what they wait for credits",
        1e-6 * MIN_SENT,
        100.0 * MAX_SENT,
        100.0 * MAX_SENT_OF_LIMITED,
        100.0 * MAX_PAUSED
    )
}

/// Why numbers are as they are.
const CHOICE: &str = "bursts and busy ports also drop (a choice)";

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let thresholds = vec![
        Threshold::new("dropped packets", MIN_DROPPED, "packets", CHOICE),
        Threshold::new(
            "share of the packets that is dropped",
            MIN_SHARE,
            "ratio",
            "fewer slow no job (a choice)",
        ),
        Threshold::new(
            "the same of a port that sends less than before",
            MIN_SHARE_OF_LESS,
            "ratio",
            "its senders slow down before they lose more (a choice)",
        ),
        packet_size(),
        Threshold::new(
            "over",
            DROP_SECONDS,
            "s",
            "several readings of every switch (a choice)",
        ),
        Threshold::new(
            "parts of it, in each of which the port drops",
            PARTS as f64,
            "parts",
            "a burst is short (a choice)",
        ),
    ];
    let of_others = vec![
        Threshold::new(
            "share of the time in pause, at most",
            MAX_PAUSED,
            "ratio",
            "a paused port drops for another reason (a choice)",
        ),
        Threshold::new(
            "cables that drop at once, at most",
            MOST_AT_ONCE as f64,
            "cables",
            "bursts fill many queues (a choice)",
        ),
    ];
    Rule {
        signal: SWITCH_PORT_DISCARDS.name,
        ..Rule::new(
            &PATH_SLOW,
            [thresholds, of_load(), of_others, of_the_past()].concat(),
        )
    }
}

/// The numbers by which a port could send more.
fn of_load() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "bytes that the port sends, at least",
            MIN_SENT,
            "B/s",
            "what an idle port drops is of no job (a choice)",
        ),
        Threshold::new(
            "share of its speed that the port sends, at most",
            MAX_SENT,
            "ratio",
            CHOICE,
        ),
        Threshold::new(
            "bytes sent, compared with the median of the switch's other cables to switches, at most",
            MAX_OF_OTHERS,
            "times",
            "a port that several flows share by chance sends more (a choice)",
        ),
        Threshold::new(
            "or share of its speed, at most, with one of the next two",
            MAX_SENT_OF_LIMITED,
            "ratio",
            CHOICE,
        ),
        Threshold::new(
            "what another cable of the same switch and speed sends without dropping, compared with it, at least",
            BUSIER,
            "times",
            "then its speed is not what limits it (a choice)",
        ),
        Threshold::new(
            "bytes sent, compared with before it dropped, at most",
            FALLEN,
            "times",
            "what it could send before it can no longer (a choice)",
        ),
    ]
}

/// The numbers by which a port is compared with itself.
fn of_the_past() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "compared with the same port before",
            NEW,
            "times",
            "a job may send so that a port always drops (a choice)",
        ),
        Threshold::new(
            "age of what was before, at least",
            AGO_SECONDS[0],
            "s",
            "longer than the window (a choice)",
        ),
        Threshold::new(
            "length of that time, at least",
            AGO_SECONDS[1],
            "s",
            "several readings (a choice)",
        ),
    ]
}

/// A port between switches that drops packets.
struct Port<'a> {
    switch: &'a SwitchName,
    history: &'a NodeHistory,
    name: &'a str,
    cable: Part,
    peer: &'a Part,
    drops: Window<'a>,
    /// Packets a second.
    rate: f64,
}

/// What ports dropped and sent before they dropped more.
#[derive(Default)]
pub(super) struct Drops {
    dropped: Pasts,
    sent: Pasts,
}

impl Drops {
    /// Cables between switches at which one port drops.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.dropped.forget(view.now);
        self.sent.forget(view.now);
        let mut found = Vec::new();
        for (switch, history) in view.history.fresh_switches(view.now) {
            for port in ports(view, switch, history) {
                let lane = (switch.clone(), port.name.to_owned(), String::new());
                let Some((bytes, sent)) = port.sent() else {
                    continue;
                };
                let [ago, span] = AGO_SECONDS;
                let until = view.now.plus_seconds(-ago);
                // Asked when it begins to drop.
                let dropped = || port.drops.rate_until(until, span);
                let times = (self.dropped).times_before(&lane, view.now, port.rate, dropped);
                let sent_before = || bytes.rate_until(until, span);
                let of_before = self.sent.times_before(&lane, view.now, sent, sent_before);
                if times.is_some_and(|times| times >= NEW) && port.is_steady() {
                    found.extend(port.evidence(view, sent, of_before));
                }
            }
        }
        let cables: BTreeSet<&Part> = found.iter().map(|found| &found.part).collect();
        if !found.is_empty() && cables.len() <= MOST_AT_ONCE && many_count(view) {
            out.extend(found);
        }
    }
}

/// Ports of a switch to others that have dropped packets lately.
fn ports<'a>(
    view: &'a View<'a>,
    switch: &'a SwitchName,
    history: &'a NodeHistory,
) -> impl Iterator<Item = Port<'a>> {
    let moving = history.moving(&SWITCH_PORT_DISCARDS);
    moving.filter_map(move |(labels, drops)| {
        let labels: Vec<&str> = labels.values().collect();
        let [name, "transmit"] = labels[..] else {
            return None;
        };
        let rise = drops.newest_increase(DROP_SECONDS)?;
        let rise = (rise.amount > 0.0).then_some(rise)?;
        let near = cable_at(view.fabric, switch, name)?;
        let peer = &view.fabric.vertex(near.peer).part;
        let Part::Switch(_) = peer else { return None };
        Some(Port {
            switch,
            history,
            name,
            cable: view.fabric.cable_part(near.id)?,
            peer,
            drops,
            rate: rise.rate(),
        })
    })
}

/// Whether several ports count what they drop, so that one alone stands out.
fn many_count(view: &View<'_>) -> bool {
    let switches = view.history.fresh_switches(view.now);
    let counted = switches.flat_map(|(_, history)| history.series(&SWITCH_PORT_DISCARDS));
    counted.take(MIN_PEERS + 1).count() > MIN_PEERS
}

impl Port<'_> {
    /// Whether it drops packets in each part of the time.
    fn is_steady(&self) -> bool {
        steady_rise(self.drops, DROP_SECONDS, PARTS).is_some_and(|rise| rise >= MIN_DROPPED)
    }

    /// Bytes that it sends, counted and a second.
    fn sent(&self) -> Option<(Window<'_>, f64)> {
        let bytes = (self.history).window(&SWITCH_PORT_TRANSMIT_BYTES, &[self.name])?;
        let sent = bytes.newest_increase(DROP_SECONDS).map(Increase::rate)?;
        Some((bytes, sent))
    }

    /// Whether it could send more, by its `speed` or by what others send.
    fn could_send_more(&self, view: &View<'_>, sent: f64, speed: f64) -> bool {
        let of_others = of_others(view, (self.switch, self.history), self.name, sent);
        let is_little =
            sent <= MAX_SENT * speed && of_others.is_none_or(|share| share <= MAX_OF_OTHERS);
        is_little || self.is_passed(view, sent, speed)
    }

    /// Whether another port of the switch to others, of the same speed, sends more and drops nothing.
    fn is_passed(&self, view: &View<'_>, sent: f64, speed: f64) -> bool {
        let mut others = self.history.moving(&SWITCH_PORT_TRANSMIT_BYTES);
        others.any(|(labels, window)| {
            let Some(other) = labels.values().next() else {
                return false;
            };
            let rate = window.newest_increase(DROP_SECONDS).map(Increase::rate);
            rate.is_some_and(|rate| rate >= BUSIER * sent)
                && self.history.value(&SWITCH_PORT_SPEED, &[other]) == Some(speed)
                && is_to_switch(view, self.switch, other) == Some(true)
                && self
                    .history
                    .window(&SWITCH_PORT_DISCARDS, &[other, "transmit"])
                    .and_then(|drops| drops.newest_increase(DROP_SECONDS))
                    .is_some_and(|rise| rise.amount == 0.0)
        })
    }

    /// `None` where the port is full or idle, has more to send than others, or waits for others.
    fn evidence(&self, view: &View<'_>, sent: f64, of_before: Option<f64>) -> Option<Evidence> {
        let waits = self
            .history
            .window(&SWITCH_PORT_TRANSMIT_WAIT, &[self.name]);
        let paused = share_in_pause(self.history, self.name, DROP_SECONDS);
        let speed = self.history.value(&SWITCH_PORT_SPEED, &[self.name])?;
        let is_full = sent > MAX_SENT_OF_LIMITED * speed;
        let sends_less = of_before.is_some_and(|times| times <= FALLEN);
        let least = if sends_less {
            MIN_SHARE_OF_LESS
        } else {
            MIN_SHARE
        };
        if waits.is_some()
            || paused > MAX_PAUSED
            || sent < MIN_SENT
            || is_full
            || marked_share(self.rate, sent) < least
            || !(sends_less || self.could_send_more(view, sent, speed))
        {
            return None;
        }
        Some(Evidence {
            detector: "switch-ports",
            signal: SWITCH_PORT_DISCARDS.name,
            class: &PATH_SLOW,
            // What flows lose depends on what else they wait for.
            effect: 0.0,
            statement: format!(
                "Port {} of {} to {} drops {:.1} packets a second, although it sends {:.1} of {:.1} GB/s and is not paused; it did not before, and hardly another port between switches does.",
                self.name,
                self.switch,
                self.peer,
                self.rate,
                sent * 1e-9,
                speed * 1e-9
            ),
            victims: gpus_behind(view.fabric, &self.cable),
            related: Vec::new(),
            alike: Vec::new(),
            part: self.cable.clone(),
        })
    }
}

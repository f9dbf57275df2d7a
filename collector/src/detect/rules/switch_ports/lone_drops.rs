//! A port that alone of all between switches drops packets, although it sends little: a cable or a shaper lets less through than the
//! port's speed.
//!
//! Where queues are short, or no packet is marked, what does not fit is dropped. Bursts drop at several ports, and for a short
//! time. A port that its peer pauses drops for what the peer waits for. On InfiniBand, where ports count what they wait for credits, a
//! port drops what has waited for too long, and the cause is further on.

use std::collections::BTreeSet;

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::past::{self, NEW, Pasts, before};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::pause_graph::share_in_pause;
use crate::detect::peers::MIN_PEERS;
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, Window};

/// The time in which packets are counted, and the newest part of it.
const DROP_SECONDS: [f64; 2] = [120.0, 30.0];
/// Fewest packets that are evaluated.
const MIN_DROPPED: f64 = 10.0;
/// Least that was dropped before the newest part, compared with that: a burst is short.
const STEADY: f64 = 0.5;
/// Most of its speed that the port sends.
const MAX_SENT: f64 = 0.5;
/// Most of the time for which it is paused.
const MAX_PAUSED: f64 = 0.01;
/// Share of what it drops from which another port drops as well.
const ALIKE: f64 = 0.1;
/// Most cables at once: where there are more, bursts cause it.
const MOST_AT_ONCE: usize = 2;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "the port drops {MIN_DROPPED} packets in {:.0} s, of these at least a third before the newest {:.0} s and some since, and {NEW:.0} times as many a second as before, while it sends less than {:.0} % of its speed and is paused for less than {:.0} % of the time; at most {MOST_AT_ONCE} cables between switches drop {:.0} % as many; not where ports count what they wait for credits",
        DROP_SECONDS[0],
        DROP_SECONDS[1],
        100.0 * MAX_SENT,
        100.0 * MAX_PAUSED,
        100.0 * ALIKE
    )
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let choice = "bursts and busy ports also drop (a choice)";
    let thresholds = vec![
        Threshold::new("dropped packets", MIN_DROPPED, "packets", choice),
        Threshold::new(
            "over",
            DROP_SECONDS[0],
            "s",
            "several readings of every switch (a choice)",
        ),
        Threshold::new(
            "and also over the newest",
            DROP_SECONDS[1],
            "s",
            "the port still drops (a choice)",
        ),
        Threshold::new(
            "dropped before that, compared with it, at least",
            STEADY,
            "times",
            "a burst is short (a choice)",
        ),
        Threshold::new(
            "share of its speed that the port sends, at most",
            MAX_SENT,
            "ratio",
            choice,
        ),
        Threshold::new(
            "share of the time in pause, at most",
            MAX_PAUSED,
            "ratio",
            "a paused port drops for another reason (a choice)",
        ),
        Threshold::new(
            "share of what it drops from which another port drops as well",
            ALIKE,
            "ratio",
            "the cables that drop are counted (a choice)",
        ),
        Threshold::new(
            "cables that drop at once, at most",
            MOST_AT_ONCE as f64,
            "cables",
            "bursts fill many queues (a choice)",
        ),
    ];
    let thresholds = thresholds.into_iter().chain(past::numbers());
    Rule {
        signal: SWITCH_PORT_DISCARDS.name,
        ..Rule::new(&PATH_SLOW, thresholds.collect())
    }
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

/// What ports dropped before they dropped more.
#[derive(Default)]
pub(super) struct Drops(Pasts);

impl Drops {
    /// Cables between switches at which one port drops.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.0.forget(view.now);
        let switches = view.history.fresh_switches(view.now);
        let dropping = switches.flat_map(|(switch, history)| ports(view, switch, history));
        let mut dropping: Vec<Port<'_>> = dropping.collect();
        let most = dropping.iter().map(|port| port.rate).fold(0.0, f64::max);
        dropping.retain(|port| port.rate >= ALIKE * most);
        let cables: BTreeSet<&Part> = dropping.iter().map(|port| &port.cable).collect();
        if dropping.is_empty() || cables.len() > MOST_AT_ONCE || !many_count(view) {
            return;
        }
        for port in dropping {
            let lane = (port.switch.clone(), port.name.to_owned(), String::new());
            let ago = || before(port.drops, view.now);
            let times = self.0.times_before(&lane, view.now, port.rate, ago);
            if times.is_some_and(|times| times >= NEW) && port.is_steady() {
                out.extend(port.evidence(view));
            }
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
        let rise = drops.newest_increase(DROP_SECONDS[0])?;
        let near = cable_at(view.fabric, switch, name).filter(|_| rise.amount > 0.0)?;
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
    /// Whether it drops packets all the time.
    fn is_steady(&self) -> bool {
        let [all, lately] = DROP_SECONDS.map(|seconds| self.drops.newest_increase(seconds));
        all.zip(lately).is_some_and(|(all, lately)| {
            let earlier = all.amount - lately.amount;
            all.amount >= MIN_DROPPED && lately.amount > 0.0 && earlier >= STEADY * lately.amount
        })
    }

    /// Bytes a second that it sends, and could.
    fn load(&self) -> Option<(f64, f64)> {
        let sent = self
            .history
            .window(&SWITCH_PORT_TRANSMIT_BYTES, &[self.name])?;
        let sent = sent.newest_increase(DROP_SECONDS[0]).map(Increase::rate)?;
        Some((sent, self.history.value(&SWITCH_PORT_SPEED, &[self.name])?))
    }

    /// `None` where the port is full, or waits for others.
    fn evidence(&self, view: &View<'_>) -> Option<Evidence> {
        let waits = self
            .history
            .window(&SWITCH_PORT_TRANSMIT_WAIT, &[self.name]);
        let paused = share_in_pause(self.history, self.name, DROP_SECONDS[0]);
        let (sent, speed) = self.load()?;
        if waits.is_some() || paused > MAX_PAUSED || sent > MAX_SENT * speed {
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

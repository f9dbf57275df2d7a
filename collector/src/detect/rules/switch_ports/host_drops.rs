//! A port to a host that drops packets, as hardly another port to a host does, although it could send more and its NIC does not pause it: a
//! queue without the limits or the priority of the others.
//!
//! Where hosts are not lossless, bursts of many senders drop at many ports, or for a short time.

use std::collections::BTreeSet;

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::past::{NEW, Pasts, steady_rise};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::EDGE_LOSSY;
use crate::detect::detector::{Evidence, View};
use crate::detect::ecn_marks::{marked_share, packet_size};
use crate::detect::pause_graph::share_in_pause;
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, Window};

/// The time in which packets are counted, and parts of it, in each of which the port must drop.
const DROP_SECONDS: f64 = 60.0;
const PARTS: usize = 3;
/// Least share of what the port sends: what bursts drop in the mean is less.
const MIN_SHARE: f64 = 1e-4;
/// A port that sends less is not busy, bytes a second.
const MIN_SENT: f64 = 1e7;
/// Most of its speed that the port sends.
const MAX_SENT: f64 = 0.5;
/// Most of the time for which it is paused.
const MAX_PAUSED: f64 = 0.01;
/// Fewest ports to hosts that count drops, and most of them that drop at once.
const MIN_COUNTED: usize = 8;
const MOST_AT_ONCE: usize = 2;
/// Age of what the port dropped before, and its least length.
const AGO_SECONDS: [f64; 2] = [70.0, 30.0];

const CHOICE: &str = "bursts of many senders also drop (a choice)";

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "at least {MIN_SHARE} of its packets in {DROP_SECONDS:.0} s, in each of {PARTS} parts of it, {NEW} times as many as before, while it sends at most {:.0} % of its speed and is paused for at most {:.0} % of the time, and at most {MOST_AT_ONCE} ports to hosts drop",
        100.0 * MAX_SENT,
        100.0 * MAX_PAUSED
    )
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let thresholds = vec![
        Threshold::new(
            "share of the packets that is dropped",
            MIN_SHARE,
            "ratio",
            CHOICE,
        ),
        packet_size(),
        Threshold::new("over", DROP_SECONDS, "s", "several readings (a choice)"),
        Threshold::new(
            "parts of it, in each of which the port drops",
            PARTS as f64,
            "parts",
            "a burst is short (a choice)",
        ),
        Threshold::new(
            "bytes that it sends, at least",
            MIN_SENT,
            "B/s",
            "what an idle port drops is of no job (a choice)",
        ),
        Threshold::new(
            "share of its speed that it sends, at most",
            MAX_SENT,
            "ratio",
            CHOICE,
        ),
        Threshold::new(
            "share of the time in pause, at most",
            MAX_PAUSED,
            "ratio",
            "a paused port drops for another reason (a choice)",
        ),
        Threshold::new(
            "ports to hosts that count drops, at least",
            MIN_COUNTED as f64,
            "ports",
            "few cannot show what is usual (a choice)",
        ),
        Threshold::new(
            "ports to hosts that drop at once, at most",
            MOST_AT_ONCE as f64,
            "ports",
            CHOICE,
        ),
        Threshold::new(
            "dropped packets, compared with before",
            NEW,
            "times",
            "what a port always drops slows nothing more (a choice)",
        ),
        Threshold::new(
            "age of the time before",
            AGO_SECONDS[0],
            "s",
            "before the drops began (a choice)",
        ),
        Threshold::new(
            "its length, at least",
            AGO_SECONDS[1],
            "s",
            "several readings (a choice)",
        ),
    ];
    Rule {
        signal: SWITCH_PORT_DISCARDS.name,
        ..Rule::new(&EDGE_LOSSY, thresholds)
    }
}

/// What ports to hosts dropped before they dropped more.
#[derive(Default)]
pub(super) struct HostDrops(Pasts);

/// A port to a host that drops packets.
struct Port<'a> {
    switch: &'a SwitchName,
    history: &'a NodeHistory,
    name: &'a str,
    cable: Part,
    drops: Window<'a>,
    /// Packets a second.
    rate: f64,
}

impl HostDrops {
    /// Cables to hosts at whose switch port packets are dropped.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.0.forget(view.now);
        let (mut counted, mut dropping) = (0, BTreeSet::new());
        let mut found = Vec::new();
        for (switch, history) in view.history.fresh_switches(view.now) {
            for port in ports(view, switch, history) {
                counted += 1;
                if port.rate <= 0.0 {
                    continue;
                }
                dropping.insert(port.cable.clone());
                let lane = (switch.clone(), port.name.to_owned(), String::new());
                let [ago, span] = AGO_SECONDS;
                let until = view.now.plus_seconds(-ago);
                let before = || port.drops.rate_until(until, span);
                let times = self.0.times_before(&lane, view.now, port.rate, before);
                if times.is_some_and(|times| times >= NEW) && port.is_steady() {
                    found.extend(port.evidence(view));
                }
            }
        }
        if counted >= MIN_COUNTED && dropping.len() <= MOST_AT_ONCE {
            out.extend(found);
        }
    }
}

/// Ports of a switch to hosts that count what they drop.
fn ports<'a>(
    view: &'a View<'a>,
    switch: &'a SwitchName,
    history: &'a NodeHistory,
) -> impl Iterator<Item = Port<'a>> {
    let series = history.series(&SWITCH_PORT_DISCARDS);
    series.filter_map(move |(labels, drops)| {
        let labels: Vec<&str> = labels.values().collect();
        let [name, "transmit"] = labels[..] else {
            return None;
        };
        let near = cable_at(view.fabric, switch, name)?;
        let Part::Nic(..) = view.fabric.vertex(near.peer).part else {
            return None;
        };
        Some(Port {
            switch,
            history,
            name,
            cable: view.fabric.cable_part(near.id)?,
            drops,
            rate: drops.newest_increase(DROP_SECONDS).map(Increase::rate)?,
        })
    })
}

impl Port<'_> {
    /// Whether it drops packets in each part of the time.
    fn is_steady(&self) -> bool {
        steady_rise(self.drops, DROP_SECONDS, PARTS).is_some()
    }

    /// `None` where the port is busy or idle, or waits for its NIC.
    fn evidence(&self, view: &View<'_>) -> Option<Evidence> {
        let bytes = (self.history).window(&SWITCH_PORT_TRANSMIT_BYTES, &[self.name])?;
        let sent = bytes.newest_increase(DROP_SECONDS).map(Increase::rate)?;
        let speed = self.history.value(&SWITCH_PORT_SPEED, &[self.name])?;
        // On InfiniBand a port drops what has waited for credits for too long.
        let waits = (self.history).window(&SWITCH_PORT_TRANSMIT_WAIT, &[self.name]);
        let paused = share_in_pause(self.history, self.name, DROP_SECONDS);
        let is_idle_or_full = sent < MIN_SENT || sent > MAX_SENT * speed;
        if waits.is_some()
            || paused > MAX_PAUSED
            || is_idle_or_full
            || marked_share(self.rate, sent) < MIN_SHARE
        {
            return None;
        }
        Some(Evidence {
            detector: "switch-ports",
            signal: SWITCH_PORT_DISCARDS.name,
            class: &EDGE_LOSSY,
            effect: 0.0,
            statement: format!(
                "Port {} of {} drops {:.1} packets a second to its host, although it sends {:.1} of {:.1} GB/s and is not paused; it did not before, and hardly another port to a host does.",
                self.name,
                self.switch,
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

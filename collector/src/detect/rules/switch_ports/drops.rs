//! Packets that a switch drops at many of its ports.
//!
//! A leaf whose lossless priority has no buffers drops where its queues are full. A switch that only joins switches and drops the
//! same share of its packets at every port, or at those of a line card to several switches, whatever their load, loses them
//! inside. So does one of InfiniBand that drops at many whose ports hardly wait for credits: full queues make them wait.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
    SWITCH_PORT_TRANSMIT_WAIT,
};
use railscope_model::reading::Labels;

use super::{WINDOW_SECONDS, evidence, window};
use crate::classes::{Class, SWITCH_QOS, UPLINK_LOSSY};
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::peers::median;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{NodeHistory, Window};

/// Share of its packets that a switch may drop: what lossless traffic bears before collectives
/// feel it.
const MAX_DROPPED: f64 = 1e-5;
/// The same of one that loses them inside: no queue explains that.
const MAX_LOST_INSIDE: f64 = 1e-7;
/// Fewest dropped packets that are evaluated.
const MIN_DROPPED: f64 = 100.0;
/// Bytes of a packet, where only bytes are counted: TCP's are of 800 bytes on average and more, those of RoCE of up to 4,200.
const USUAL_PACKET_BYTES: f64 = 1_000.0;
/// Share of a switch's busy ports that drop, from which it is the switch and not what is behind a port.
const MIN_DROPPING: f64 = 0.3;
/// Most that the largest share of a busy port is of the smallest where a switch drops equally.
const EQUALLY: f64 = 3.0;
/// Fewest packets that a port must have dropped, if it drops as others do, to be compared.
const TELLING: f64 = 30.0;
/// Smallest share of the dropped packets in each half of the window.
const OF_EACH_HALF: f64 = 0.2;
/// Fewest switches that the ports lead to, where not all ports drop: behind fewer a queue may be common to them.
const MIN_PEERS: usize = 3;
/// What every switch does is the load: one must stand out by this factor.
const ABOVE_PEERS: f64 = 10.0;
/// The rule as text.
pub(super) fn explain(class: &Class) -> Explanation {
    Explanation {
        check: if class == &SWITCH_QOS {
            "A switch drops packets at many of its ports."
        } else {
            "A switch that is connected to switches only drops the same share of its packets at all busy ports, or at several next to each other that lead to different switches; or one of InfiniBand drops packets at many of its ports that wait for credits no longer than those of other switches."
        },
        threshold: format!(
            "more than {} and {MIN_DROPPED} in {WINDOW_SECONDS:.0} s, at {:.0} % of its busy ports, and {ABOVE_PEERS} times the median switch",
            if class == &SWITCH_QOS {
                format!("{MAX_DROPPED} of its packets")
            } else {
                format!(
                    "{MAX_LOST_INSIDE} of its packets in both halves of the time, {MAX_DROPPED} where shares differ,"
                )
            },
            100.0 * MIN_DROPPING
        ),
        clears: "It drops no more than other switches.",
    }
}

/// The numbers of both classes.
pub(super) fn rules() -> [Rule; 2] {
    let thresholds = vec![
        Threshold::new(
            "minimum number of dropped packets",
            MIN_DROPPED,
            "packets",
            "fewer are a brief event, not a configuration error (a choice)",
        ),
        Threshold::new(
            "bytes of a packet, where the switch counts no packets",
            USUAL_PACKET_BYTES,
            "bytes",
            "small ones, so that their number is not underestimated (a choice)",
        ),
        Threshold::new(
            "share of its busy ports that drop",
            MIN_DROPPING,
            "ratio",
            "if fewer ports drop, the cause is behind a port (a choice)",
        ),
        Threshold::new(
            "above the median switch",
            ABOVE_PEERS,
            "times",
            "the load affects every switch (a choice)",
        ),
        window(),
    ];
    let of_queues = Threshold::new(
        "share of its packets that a switch drops",
        MAX_DROPPED,
        "ratio",
        "loss that lossless traffic tolerates before collectives slow down (a choice)",
    );
    let unequal = Threshold::new(
        "the same of InfiniBand, where the shares of its ports differ",
        MAX_DROPPED,
        "ratio",
        "as of a switch that drops what it cannot queue",
    );
    [
        Rule::new(&SWITCH_QOS, [vec![of_queues], thresholds.clone()].concat()),
        Rule::new(
            &UPLINK_LOSSY,
            [inside(), vec![unequal], thresholds].concat(),
        ),
    ]
}

/// The numbers of a switch that loses inside.
fn inside() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of its packets that a switch drops",
            MAX_LOST_INSIDE,
            "ratio",
            "no queue explains such drops (a choice)",
        ),
        Threshold::new(
            "largest share of a port that drops, compared with the smallest, at most",
            EQUALLY,
            "times",
            "congestion differs by orders of magnitude between ports (a choice)",
        ),
        Threshold::new(
            "packets that such a port must have dropped",
            TELLING,
            "packets",
            "their standard deviation is 18 %",
        ),
        Threshold::new(
            "share of the drops in each half of the time",
            OF_EACH_HALF,
            "ratio",
            "a switch that loses inside does so all the time (a choice)",
        ),
        Threshold::new(
            "switches that the ports lead to, if not all busy ports drop",
            MIN_PEERS as f64,
            "switches",
            "a queue behind one switch may be common to the ports to it (a choice)",
        ),
    ]
}

/// What a switch has sent and dropped, by port.
struct Drops<'a> {
    switch: &'a SwitchName,
    dropped: BTreeMap<&'a str, f64>,
    /// How many of these in the newer half of the window; none where readings are farther apart than that.
    newer: Option<f64>,
    /// Empty if it has dropped nothing.
    sent: BTreeMap<&'a str, f64>,
}

impl<'a> Drops<'a> {
    fn of(switch: &'a SwitchName, history: &'a NodeHistory) -> Self {
        // A constant counter means no drops.
        let dropped = history.moving(&SWITCH_PORT_DISCARDS);
        let dropped = dropped.filter(|(labels, _)| labels.values().nth(1) == Some("transmit"));
        let windows: Vec<_> = dropped.collect();
        let newer = windows
            .iter()
            .filter_map(|(_, window)| window.increase(WINDOW_SECONDS / 2.0));
        let newer = newer.map(|half| half.amount).reduce(|a, b| a + b);
        let dropped: BTreeMap<_, _> = windows.into_iter().filter_map(rise).collect();
        let drops = dropped.values().any(|packets| *packets > 0.0);
        Self {
            switch,
            dropped,
            newer,
            sent: if drops {
                sent(history)
            } else {
                BTreeMap::new()
            },
        }
    }

    /// Packets that it has dropped, and their share of all.
    fn all(&self) -> (f64, f64) {
        let [dropped, sent]: [f64; 2] = [&self.dropped, &self.sent].map(|of| of.values().sum());
        (dropped, dropped / (sent + dropped).max(1.0))
    }

    /// Whether it dropped in both halves of the window. Traffic that moves here from another switch overflows for a moment.
    fn are_steady(&self) -> bool {
        let (all, _) = self.all();
        self.newer
            .is_none_or(|newer| newer.min(all - newer) >= OF_EACH_HALF * all)
    }

    /// Ports that dropped, of those that sent or dropped.
    fn ports(&self) -> (usize, usize) {
        let some = |of: &'_ BTreeMap<&'a str, f64>| -> BTreeSet<&'a str> {
            let some = of.iter().filter(|(_, packets)| **packets > 0.0);
            some.map(|(port, _)| *port).collect()
        };
        let (dropping, sending) = (some(&self.dropped), some(&self.sent));
        (dropping.len(), dropping.union(&sending).count())
    }

    /// The ports that have dropped about the same share of their packets each, if all that send enough to tell have, or all that
    /// have dropped any.
    fn equal(&self, all: bool) -> Option<Vec<&'a str>> {
        let dropped = |port: &str| self.dropped.get(port).copied().unwrap_or(0.0);
        let mut ports = self.sent.clone();
        ports.retain(|port, sent| *sent > 0.0 && (all || dropped(port) > 0.0));
        let [sum, sent]: [f64; 2] = [
            ports.keys().map(|port| dropped(port)).sum(),
            ports.values().sum(),
        ];
        ports.retain(|_, own| *own * sum >= TELLING * sent);
        let shares = || ports.iter().map(|(port, sent)| dropped(port) / sent);
        let most = shares().fold(0.0, f64::max);
        let are_equal =
            ports.len() > 2 && shares().all(|share| share > 0.0 && most <= EQUALLY * share);
        are_equal.then(|| ports.into_keys().collect())
    }

    /// Whether no port that is busy and drops nothing is between these.
    fn are_adjacent(&self, ports: &[&str]) -> bool {
        let busy = self.sent.iter().filter(|(_, sent)| **sent > 0.0);
        let mut busy: Vec<PortName> = busy.filter_map(|(port, _)| port.parse().ok()).collect();
        busy.sort();
        let is_of_them = |port: &PortName| ports.iter().any(|own| port.to_string() == *own);
        let runs = busy.chunk_by(|a, b| is_of_them(a) == is_of_them(b));
        runs.filter(|run| is_of_them(&run[0])).count() == 1
    }
}

/// Recent increase of a counter of a port.
fn rise<'a>((labels, window): (&'a Labels, Window<'_>)) -> Option<(&'a str, f64)> {
    Some((
        labels.values().next()?,
        window.increase(WINDOW_SECONDS)?.amount,
    ))
}

/// Packets that each port of a switch has sent lately; where it counts only bytes, as many as would be of a usual size.
fn sent(history: &NodeHistory) -> BTreeMap<&str, f64> {
    let packets = history.series(&SWITCH_PORT_TRANSMIT_PACKETS);
    let packets: BTreeMap<_, _> = packets.filter_map(rise).collect();
    if !packets.is_empty() {
        return packets;
    }
    let bytes = history.series(&SWITCH_PORT_TRANSMIT_BYTES).filter_map(rise);
    bytes
        .map(|(port, bytes)| (port, bytes / USUAL_PACKET_BYTES))
        .collect()
}

/// Switches that drop far more than the others.
pub(super) fn find(view: &View<'_>, out: &mut Vec<Evidence>) {
    let switches = view.history.fresh_switches(view.now);
    let all: Vec<_> = switches
        .map(|(switch, history)| Drops::of(switch, history))
        .collect();
    let usual = median(all.iter().map(|drops| drops.all().1)).unwrap_or(0.0);
    for drops in all {
        let (dropping, busy) = drops.ports();
        let many = dropping > 2 && dropping as f64 >= MIN_DROPPING * busy as f64;
        let (dropped, share) = drops.all();
        if !many || dropped < MIN_DROPPED || share <= ABOVE_PEERS * usual {
            continue;
        }
        let equally = share > MAX_LOST_INSIDE && loses_inside(view, &drops);
        if equally && !drops.are_steady() {
            continue;
        }
        if !equally && share <= MAX_DROPPED {
            continue;
        }
        let (class, why) = if equally {
            (
                &UPLINK_LOSSY,
                " The share is the same at all of them, so it is not congestion.",
            )
        } else if hardly_waits(view, drops.switch) {
            (
                &UPLINK_LOSSY,
                " Its ports wait for credits no longer than those of other switches, so it is not congestion.",
            )
        } else {
            (&SWITCH_QOS, "")
        };
        let statement = format!(
            "{} has dropped {dropped:.0} packets in {WINDOW_SECONDS:.0} s, one in {:.0}, at {dropping} of its {busy} busy ports.{why}",
            drops.switch,
            1.0 / share
        );
        let signal = &SWITCH_PORT_DISCARDS;
        out.push(evidence(
            view,
            drops.switch,
            class,
            signal,
            share,
            statement,
        ));
    }
}

/// Whether the ports of a switch of InfiniBand wait for credits no longer than those of the median switch, for what they send:
/// behind a slow receiver packets wait until they are dropped.
fn hardly_waits(view: &View<'_>, switch: &SwitchName) -> bool {
    let waited = |history: &NodeHistory| {
        let ticks = history.series(&SWITCH_PORT_TRANSMIT_WAIT).filter_map(rise);
        let ticks = ticks
            .map(|(_, ticks)| ticks)
            .reduce(|all, ticks| all + ticks)?;
        let packets: f64 = sent(history).into_values().sum();
        (packets > 0.0).then(|| ticks / packets)
    };
    let own = view.history.switch(switch).and_then(waited);
    let switches = view.history.fresh_switches(view.now);
    let usual = median(switches.filter_map(|(_, history)| waited(history)));
    own.zip(usual).is_some_and(|(own, usual)| own <= usual)
}

/// Whether a switch is connected to other switches alone, and drops equally at all ports, or at adjacent ports to several of them.
fn loses_inside(view: &View<'_>, drops: &Drops<'_>) -> bool {
    let Some(id) = view.fabric.find(&Part::Switch(drops.switch.clone())) else {
        return false;
    };
    let peers: BTreeMap<u16, &Part> = view
        .fabric
        .neighbors(id)
        .map(|near| (near.port, &view.fabric.vertex(near.peer).part))
        .collect();
    let mut all = peers.values();
    let joins_switches = !peers.is_empty() && all.all(|peer| matches!(peer, Part::Switch(_)));
    let peer = |port: &str| {
        peers
            .get(&view.fabric.find_port(id, &port.parse().ok()?)?)
            .copied()
    };
    let is_card = |ports: Vec<&str>| {
        let switches: BTreeSet<_> = ports.iter().copied().filter_map(peer).collect();
        switches.len() >= MIN_PEERS && drops.are_adjacent(&ports)
    };
    joins_switches && (drops.equal(true).is_some() || drops.equal(false).is_some_and(is_card))
}

//! Packets that a switch drops at many of its ports.
//!
//! A leaf whose lossless priority has no buffers drops where its queues are full. A switch that only joins switches and drops the
//! same share of its packets at every port, whatever their load, loses them inside.

use std::collections::BTreeMap;

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
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
/// Fewest dropped packets that are evaluated.
const MIN_DROPPED: f64 = 100.0;
/// Bytes of a packet, where only bytes are counted: TCP's are of 800 bytes on average and more, those of RoCE of up to 4,200.
const USUAL_PACKET_BYTES: f64 = 1_000.0;
/// Share of a switch's busy ports that drop, from which it is the switch and not what is behind a port.
const MIN_DROPPING: f64 = 0.3;
/// Most that the largest share of a busy port is of the smallest where a switch drops equally at all.
const EQUALLY: f64 = 3.0;
/// What every switch does is the load: one must stand out by this factor.
const ABOVE_PEERS: f64 = 10.0;
/// The rule as text.
pub(super) fn explain(class: &Class) -> Explanation {
    Explanation {
        check: if class == &SWITCH_QOS {
            "A switch drops packets at many of its ports."
        } else {
            "A switch that is connected to switches only drops the same share of its packets at many ports."
        },
        threshold: format!(
            "more than {MAX_DROPPED} of its packets and {MIN_DROPPED} in {WINDOW_SECONDS:.0} s, at {:.0} % of its busy ports, and {ABOVE_PEERS} times the median switch",
            100.0 * MIN_DROPPING
        ),
        clears: "It drops no more than other switches.",
    }
}

/// The numbers of both classes.
pub(super) fn rules() -> [Rule; 2] {
    let thresholds = vec![
        Threshold::new(
            "share of its packets that a switch drops",
            MAX_DROPPED,
            "ratio",
            "loss that lossless traffic tolerates before collectives slow down (a choice)",
        ),
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
    let equally = Threshold::new(
        "largest share of a port that drops at least 100 packets, compared with the smallest, at most",
        EQUALLY,
        "times",
        "congestion differs by orders of magnitude between ports (a choice)",
    );
    let inside = [thresholds.clone(), vec![equally]].concat();
    [
        Rule::new(&SWITCH_QOS, thresholds),
        Rule::new(&UPLINK_LOSSY, inside),
    ]
}

/// What a switch has sent and dropped, by port.
struct Drops<'a> {
    switch: &'a SwitchName,
    dropped: BTreeMap<&'a str, f64>,
    /// Empty if it has dropped nothing.
    sent: BTreeMap<&'a str, f64>,
}

impl<'a> Drops<'a> {
    fn of(switch: &'a SwitchName, history: &'a NodeHistory) -> Self {
        // A constant counter means no drops.
        let dropped = history.moving(&SWITCH_PORT_DISCARDS);
        let dropped = dropped.filter(|(labels, _)| labels.values().nth(1) == Some("transmit"));
        let dropped: BTreeMap<_, _> = dropped.filter_map(rise).collect();
        let drops = dropped.values().any(|packets| *packets > 0.0);
        Self {
            switch,
            dropped,
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

    /// Ports that dropped, of those that sent.
    fn ports(&self) -> (usize, usize) {
        let some = |of: &BTreeMap<_, f64>| of.values().filter(|packets| **packets > 0.0).count();
        (some(&self.dropped), some(&self.sent))
    }

    /// Whether each port that sends enough to tell has dropped about the same share of its packets.
    fn are_equal(&self) -> bool {
        let (_, usual) = self.all();
        let telling = self
            .sent
            .iter()
            .filter(|(_, sent)| **sent * usual >= MIN_DROPPED);
        let dropped = |port: &&str| self.dropped.get(port).copied().unwrap_or(0.0);
        let shares: Vec<f64> = telling.map(|(port, sent)| dropped(port) / sent).collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        shares.len() > 2 && shares.iter().all(|share| most <= EQUALLY * share)
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
        if !many || dropped < MIN_DROPPED || share <= MAX_DROPPED || share <= ABOVE_PEERS * usual {
            continue;
        }
        let mut statement = format!(
            "{} has dropped {dropped:.0} packets in {WINDOW_SECONDS:.0} s, one in {:.0}, at {dropping} of its {busy} busy ports.",
            drops.switch,
            1.0 / share
        );
        let mut class = &SWITCH_QOS;
        if drops.are_equal() && joins_switches_only(view, drops.switch) {
            class = &UPLINK_LOSSY;
            statement += " The share is the same at all of them, so it is not congestion.";
        }
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

/// Whether a switch is connected to other switches alone.
fn joins_switches_only(view: &View<'_>, switch: &SwitchName) -> bool {
    let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
        return false;
    };
    let mut near = view.fabric.neighbours(id).peekable();
    near.peek().is_some()
        && near.all(|near| matches!(view.fabric.vertex(near.peer).part, Part::Switch(_)))
}

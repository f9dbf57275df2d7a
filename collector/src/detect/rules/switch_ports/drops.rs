//! Packets that a switch drops at many of its ports.

use railscope_model::identity::SwitchName;
use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
};
use railscope_model::reading::Labels;

use super::{WINDOW_SECONDS, evidence, window};
use crate::classes::SWITCH_QOS;
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
/// What every switch does is the load: one must stand out by this factor.
const ABOVE_PEERS: f64 = 10.0;
/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "A switch drops packets at many of its ports.",
        threshold: format!(
            "more than {MAX_DROPPED} of its packets and {MIN_DROPPED} in {WINDOW_SECONDS:.0} s, at {:.0} % of its busy ports, and {ABOVE_PEERS} times the median switch",
            100.0 * MIN_DROPPING
        ),
        clears: "It drops no more than other switches.",
    }
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
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
    Rule::new(&SWITCH_QOS, thresholds)
}

/// What a switch has dropped.
struct Drops<'a> {
    switch: &'a SwitchName,
    dropped: f64,
    sent: f64,
    /// Ports that dropped, of those that sent.
    ports: (usize, usize),
}

impl Drops<'_> {
    fn share(&self) -> f64 {
        self.dropped / (self.sent + self.dropped).max(1.0)
    }
}

/// Recent increase of a counter.
fn rise((_, window): (&Labels, Window<'_>)) -> Option<f64> {
    Some(window.increase(WINDOW_SECONDS)?.amount)
}

/// Packets that each port of a switch has sent lately; where it counts only bytes, as many as would be of a usual size.
fn sent(history: &NodeHistory) -> Vec<f64> {
    let packets = history.series(&SWITCH_PORT_TRANSMIT_PACKETS);
    let packets: Vec<f64> = packets.filter_map(rise).collect();
    if !packets.is_empty() {
        return packets;
    }
    let bytes = history.series(&SWITCH_PORT_TRANSMIT_BYTES).filter_map(rise);
    bytes.map(|bytes| bytes / USUAL_PACKET_BYTES).collect()
}

/// Switches that drop far more than the others.
pub(super) fn find(view: &View<'_>, out: &mut Vec<Evidence>) {
    let all: Vec<_> = view
        .history
        .fresh_switches(view.now)
        .map(|(switch, history)| {
            // A constant counter means no drops.
            let dropped = history.moving(&SWITCH_PORT_DISCARDS);
            let dropped = dropped.filter(|(labels, _)| labels.values().nth(1) == Some("transmit"));
            let dropped: Vec<f64> = dropped.filter_map(rise).collect();
            // A port without drops has a drop share of 0.
            let drops = dropped.iter().any(|packets| *packets > 0.0);
            let sent = if drops { sent(history) } else { Vec::new() };
            let some = |values: &[f64]| values.iter().filter(|value| **value > 0.0).count();
            Drops {
                switch,
                ports: (some(&dropped), some(&sent)),
                dropped: dropped.iter().sum(),
                sent: sent.iter().sum(),
            }
        })
        .collect();
    let usual = median(all.iter().map(Drops::share)).unwrap_or(0.0);
    for drops in all {
        let (dropping, busy) = drops.ports;
        let many = dropping > 2 && dropping as f64 >= MIN_DROPPING * busy as f64;
        let share = drops.share();
        if many
            && drops.dropped >= MIN_DROPPED
            && share > MAX_DROPPED
            && share > ABOVE_PEERS * usual
        {
            let statement = format!(
                "{} has dropped {:.0} packets in {WINDOW_SECONDS:.0} s, one in {:.0}, at {dropping} of its {busy} busy ports.",
                drops.switch,
                drops.dropped,
                1.0 / share
            );
            out.push(evidence(
                view,
                drops.switch,
                &SWITCH_QOS,
                &SWITCH_PORT_DISCARDS,
                share,
                statement,
            ));
        }
    }
}

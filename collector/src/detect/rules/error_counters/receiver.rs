//! Which receiver lacks buffers: one NIC, or the node that does not post them.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use railscope_model::metric::RDMA_RETRANSMITS;
use railscope_model::reading::Labels;

use super::{Rise, WINDOW_SECONDS};
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::Threshold;
use crate::detect::rules::fabric_loss::is_efa;
use crate::store::{Increase, NodeHistory};

/// Share of what all NICs of a node count from which one NIC is named.
const ALONE: f64 = 0.9;

/// What a NIC retransmits itself, as a share of what it drops: from here on packets are lost in both directions, on its link.
const LOSES: f64 = 0.5;

/// These shares as thresholds.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "share of what all NICs of a node count from which one NIC is named",
            ALONE,
            "ratio",
            "a node that posts too few buffers posts too few for all (a choice)",
        ),
        Threshold::new(
            "retransmissions of an EFA device as a share of the packets that it drops, below",
            LOSES,
            "ratio",
            "a receiver without buffers makes others retransmit; one that retransmits as well has a lossy link (a choice)",
        ),
    ]
}

/// Whether an EFA device loses packets in both directions: a missing buffer makes only others retransmit. Labels are device and
/// port.
pub(super) fn loses_both_ways(history: &NodeHistory, labels: &Labels, dropped: &Increase) -> bool {
    let mut labels = labels.values();
    let (Some(device), Some(port)) = (labels.next(), labels.next()) else {
        return false;
    };
    let again = history.window(&RDMA_RETRANSMITS, &[device, port]);
    let again = again.and_then(|window| window.increase(WINDOW_SECONDS));
    is_efa(history, device, port)
        && dropped.amount > 0.0
        && again.is_some_and(|again| again.amount >= LOSES * dropped.amount)
}

/// What the ports of a node count together: of the NIC that has nearly all of it, or of the node.
pub(super) fn of_node(of_ports: Vec<Rise>) -> Option<Rise> {
    let node = of_ports.first()?.part.node().cloned()?;
    let seconds = of_ports.iter().map(|port| port.seconds).fold(0.0, f64::max);
    let mut of_nics: BTreeMap<Part, f64> = BTreeMap::new();
    for port in of_ports {
        *of_nics.entry(port.part).or_default() += port.amount;
    }
    let amount = of_nics.values().sum();
    let has_peers = of_nics.len() >= MIN_PEERS;
    let alone = of_nics
        .into_iter()
        .find(|(_, of_nic)| has_peers && amount > 0.0 && *of_nic >= ALONE * amount);
    Some(Rise {
        part: alone.map_or(Part::Host(node), |(nic, _)| nic),
        amount,
        seconds,
        seen_at: None,
    })
}

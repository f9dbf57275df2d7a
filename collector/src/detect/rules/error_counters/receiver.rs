//! Which receiver lacks buffers: one NIC, or the node that does not post them.

use std::collections::BTreeMap;

use railscope_model::identity::Part;

use super::Rise;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::Threshold;

/// Share of what all NICs of a node count from which one NIC is named.
const ALONE: f64 = 0.9;

/// That share as a threshold.
pub(super) fn threshold() -> Threshold {
    Threshold::new(
        "share of what all NICs of a node count from which one NIC is named",
        ALONE,
        "ratio",
        "a node that posts too few buffers posts too few for all (a choice)",
    )
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

//! Which receiver lacks buffers: one NIC, or the node that does not post them.

use railscope_model::identity::Part;

use super::Rise;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::Threshold;

/// Share of what all NICs of a node count from which it is the one NIC's.
const ALONE: f64 = 0.9;

/// It as a threshold.
pub(super) fn threshold() -> Threshold {
    Threshold::new(
        "share of what all NICs of a node count, from which one NIC is named",
        ALONE,
        "ratio",
        "a node that posts too few buffers posts too few for all (a choice)",
    )
}

/// What the NICs of a node count together: of the one that has nearly all of it, or of the node.
pub(super) fn of_node(of_nics: Vec<Rise>) -> Option<Rise> {
    let amount = of_nics.iter().map(|one| one.amount).sum();
    let seconds = of_nics.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let has_peers = of_nics.len() >= MIN_PEERS;
    let most = of_nics
        .into_iter()
        .max_by(|a, b| a.amount.total_cmp(&b.amount))?;
    let is_alone = has_peers && most.amount >= ALONE * amount;
    let host = most.part.node().cloned().map(Part::Host);
    Some(Rise {
        amount,
        seconds,
        part: host.filter(|_| !is_alone).unwrap_or(most.part),
        seen_at: None,
    })
}

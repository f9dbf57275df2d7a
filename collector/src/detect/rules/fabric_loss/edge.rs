//! Packets that vanish at one NIC, its cable or its switch port, as hosts see it.
//!
//! Each lost packet has a sender, which gets a negative acknowledgment, and a receiver, which finds a gap. A NIC at one
//! end of every lost packet has shares of all acknowledgments and of all gaps that sum up to one; where the loss is in
//! the fabric, each of n NICs has two n-ths. Of a pair of which one sends and the other receives both have one: which of
//! them it is cannot be determined, nor whether it is the path between them. So a NIC must lose in both directions, or
//! miss what several others send. One that only sends without delivery is not named: adaptive routing makes gaps at all
//! receivers, so that those of its own are not known.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::RDMA_TRANSPORT_EVENTS;

use super::{EXPLAINED, LOSS_SECONDS, Loss, Losses, MIN_LOST, MIN_RATE, NAME, errors_of};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::EDGE_LOSSY;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::registry::Threshold;

/// Fewest lost packets a second that are counted at all: what one NIC loses may be lost to many others, a little by each.
pub(super) const COUNTED_RATE: f64 = 0.1;
/// Share of the lost packets, of a possible 1, with this NIC at an end: the other end counts what it loses by itself.
const MIN_SHARE: f64 = 0.8;
/// Most that any other NIC has of that: in a ring each neighbor has half of it.
const MAX_OF_OTHERS: f64 = 0.6;

/// Least share of the lost packets of each direction where a NIC loses in both: half of it in a ring.
const OF_BOTH: f64 = 0.3;
/// Fewest other NICs that send to it, where it only misses packets.
const OTHERS: usize = 2;

/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "Packets that one NIC sends do not arrive, or it misses packets, and its port counts no errors.",
        threshold: format!(
            "negative acknowledgments or gaps for more than {MIN_LOST} of its packets and {MIN_RATE:.0} per second, over {:.0} s and over {:.0} s; the NIC is at one end of {:.0} % of all lost packets, any other of less than {:.0} % of that; it loses at least {:.0} % of each direction, or misses what at least {OTHERS} others send; the node's port errors are below {:.0} % of the loss",
            LOSS_SECONDS[0],
            LOSS_SECONDS[1],
            100.0 * MIN_SHARE,
            100.0 * MAX_OF_OTHERS,
            100.0 * OF_BOTH,
            100.0 * EXPLAINED
        ),
        clears: "Packets arrive without loss.",
    }
}

/// The rule's own numbers.
pub(super) fn numbers() -> [Threshold; 5] {
    [
        Threshold::new(
            "share of the lost packets of each direction, where the NIC loses in both, at least",
            OF_BOTH,
            "ratio",
            "a half in a ring, in which its neighbors count the other half",
        ),
        Threshold::new(
            "other NICs whose packets do not arrive, where it only misses packets, at least",
            OTHERS as f64,
            "NICs",
            "of a pair, either may be the cause",
        ),
        Threshold::new(
            "number of packets per second from which a NIC's loss is counted at all",
            COUNTED_RATE,
            "1/s",
            "less has little weight (a choice)",
        ),
        Threshold::new(
            "share of the lost packets that the NIC sent or should have received",
            MIN_SHARE,
            "ratio",
            "1 if all are lost at it; the rest is loss elsewhere (a choice)",
        ),
        Threshold::new(
            "largest share of another NIC, compared with it",
            MAX_OF_OTHERS,
            "ratio",
            "each neighbor in a ring has half of it",
        ),
    ]
}

/// What a NIC loses.
#[derive(Default)]
struct Lost {
    /// Packets a second that it sends without delivery.
    sent: f64,
    /// Packets a second that it receives behind a gap.
    missed: f64,
    /// Whether a job feels one of them.
    is_felt: bool,
}

/// The NIC at one end of nearly all lost packets, if there is one and its port does not count errors.
pub(super) fn evidence(
    view: &View<'_>,
    senders: &Losses<'_>,
    receivers: &Losses<'_>,
) -> Option<Evidence> {
    let mut by_nic: BTreeMap<(&NodeName, &RdmaPort), Lost> = BTreeMap::new();
    for (losses, is_sender) in [(senders, true), (receivers, false)] {
        for loss in &losses.0 {
            let lost = by_nic.entry((loss.node, &loss.port)).or_default();
            let rate = if is_sender {
                &mut lost.sent
            } else {
                &mut lost.missed
            };
            *rate += loss.rate;
            lost.is_felt |= loss.is_felt;
        }
    }
    let share_of = |rate: f64, all: f64| if all > 0.0 { rate / all } else { 0.0 };
    let both = |lost: &Lost| {
        [
            share_of(lost.sent, senders.rate()),
            share_of(lost.missed, receivers.rate()),
        ]
    };
    let share = |lost: &Lost| both(lost).iter().sum::<f64>();
    let mut shares: Vec<_> = by_nic
        .iter()
        .map(|(nic, lost)| (share(lost), nic))
        .collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (most, &(node, port)) = *shares.first()?;
    let next = shares.get(1).map_or(0.0, |(share, _)| *share);
    let lost = &by_nic[&(node, port)];
    let is_other = |loss: &&Loss<'_>| (loss.node, &loss.port) != (node, port);
    let [sent, missed] = both(lost);
    let is_known = sent.min(missed) >= OF_BOTH
        || missed > sent && senders.0.iter().filter(is_other).count() >= OTHERS;
    if !is_known || !lost.is_felt || most < MIN_SHARE || next > MAX_OF_OTHERS * most {
        return None;
    }
    if errors_of(view.history.node(node)?) >= EXPLAINED * lost.sent.max(lost.missed) {
        return None;
    }
    let part = Part::HostLink(node.clone(), port.clone());
    Some(Evidence {
        detector: NAME,
        signal: RDMA_TRANSPORT_EVENTS.name,
        class: &EDGE_LOSSY,
        // What a flow loses by it depends on how it sends again.
        effect: 0.0,
        statement: format!(
            "{} of {node} sends {:.0} packets per second that do not arrive, and misses packets at {:.0} per second: it is at one end of nearly all lost packets, and its port counts no errors.",
            port.device, lost.sent, lost.missed
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

//! Packets that vanish at one NIC, its cable or its switch port, as hosts see it.
//!
//! Each packet that a job loses has a sender, which gets a negative acknowledgment, and a receiver, which finds a gap. A NIC at one
//! end of every lost packet has shares of all acknowledgments and of all gaps that sum up to one; where the loss is in
//! the fabric, each of n NICs has two n-ths. Of a pair of which one sends and the other receives both have one: which of
//! them it is cannot be determined, nor whether it is the path between them. So a NIC must lose in both directions, or
//! miss what several others send, or send what several others miss. For the last, there must be about as many gaps as
//! acknowledgments: adaptive routing makes gaps at all receivers, so that those of a NIC's own packets are not known.
//! All packets of a job's only NIC on a leaf cross the same switches, which are named as alternatives.
//! A job that loses packets at several NICs may still have one such NIC for each device name: collectives connect equal ones.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::RDMA_TRANSPORT_EVENTS;

use super::{
    EXPLAINED, LOSS_SECONDS, Losses, MIN_LOST, MIN_RATE, NAME, broken, congestion, errors_of,
    leaf_of, on_most_ways,
};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::EDGE_LOSSY;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::registry::Threshold;
use crate::jobs::job::JobName;

/// Fewest lost packets a second that are counted at all: what one NIC loses may be lost to many others, a little by each.
pub(super) const COUNTED_RATE: f64 = 0.1;
/// Share of the lost packets, of a possible 1, with this NIC at an end: the other end counts what it loses by itself.
const MIN_SHARE: f64 = 0.8;
/// Most that any other NIC has of that: in a ring each neighbor has half of it.
const MAX_OF_OTHERS: f64 = 0.6;

/// Least share of the lost packets of each direction where a NIC loses in both: half of it in a ring.
const OF_BOTH: f64 = 0.3;
/// Fewest other NICs that send to it, where it only misses packets, or that miss what it sends, where it only sends.
const OTHERS: usize = 2;
/// Most gaps for each negative acknowledgment of losses without adaptive routing, which adds gaps.
const GAPS_FOR_EACH: f64 = 2.0;

/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "A NIC misses packets, and what it sends does not arrive, or only it misses what several others send, or only what it sends is missed by several others; neither errors of ports nor full queues explain this.",
        threshold: format!(
            "negative acknowledgments or gaps for more than {MIN_LOST} of its packets and {MIN_RATE:.0} per second, over {:.0} s and over {:.0} s, and before the latter; the NIC is at one end of {:.0} % of all packets that its job loses (or all NICs of no known job; or NICs of the same device name, if there is one for each with such a NIC, on different nodes), any other of less than {:.0} % of that; it loses at least {:.0} % of each direction, or misses what at least {OTHERS} others send, or sends what at least {OTHERS} others miss with at most {GAPS_FOR_EACH} gaps for each negative acknowledgment; the node's port errors are below {:.0} % of the loss; {}; {}; the switches on the path are alternatives if it is its job's only NIC on its leaf",
            LOSS_SECONDS[0],
            LOSS_SECONDS[1],
            100.0 * MIN_SHARE,
            100.0 * MAX_OF_OTHERS,
            100.0 * OF_BOTH,
            100.0 * EXPLAINED,
            broken::words(),
            congestion::words()
        ),
        clears: "Packets arrive without loss.",
    }
}

/// The rule's own numbers.
pub(super) fn numbers() -> [Threshold; 6] {
    [
        Threshold::new(
            "share of the lost packets of each direction, where the NIC loses in both, at least",
            OF_BOTH,
            "ratio",
            "a half in a ring, in which its neighbors count the other half",
        ),
        Threshold::new(
            "other NICs at the other end, where the NIC loses in one direction, at least",
            OTHERS as f64,
            "NICs",
            "of a pair, either may be the cause",
        ),
        Threshold::new(
            "gaps for each negative acknowledgment, where the NIC only sends, at most",
            GAPS_FOR_EACH,
            "ratio",
            "each lost packet makes one of both; adaptive routing adds gaps (a choice)",
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
#[derive(Default, Clone, Copy)]
struct Lost {
    /// Packets a second that it sends without delivery.
    sent: f64,
    /// Packets a second that it receives behind a gap.
    missed: f64,
    /// Whether a job feels one of them.
    is_felt: bool,
    /// Whether one of them has lasted: what switches count of it is read a little later.
    has_lasted: bool,
    /// Whether full queues explain one of them.
    is_congested: bool,
}

impl Lost {
    /// Its shares of what all lose, by direction.
    fn shares(&self, of: &Self) -> [f64; 2] {
        let share = |own: f64, all: f64| if all > 0.0 { own / all } else { 0.0 };
        [share(self.sent, of.sent), share(self.missed, of.missed)]
    }
}

/// The NICs of a job that lose packets, or those of no known job.
type OfJob<'a> = BTreeMap<(&'a NodeName, &'a RdmaPort), Lost>;

/// NICs at one end of nearly all packets that their job loses, if their ports do not count errors.
pub(super) fn evidence(
    view: &View<'_>,
    senders: &Losses<'_>,
    receivers: &Losses<'_>,
) -> Vec<Evidence> {
    let mut jobs: BTreeMap<Option<&JobName>, OfJob<'_>> = BTreeMap::new();
    for (losses, is_sender) in [(senders, true), (receivers, false)] {
        for loss in &losses.0 {
            let job = view.jobs.of_nic(loss.node, &loss.port.device);
            let of_job = jobs.entry(job.map(|job| &job.name)).or_default();
            let lost = of_job.entry((loss.node, &loss.port)).or_default();
            if is_sender {
                lost.sent += loss.rate;
            } else {
                lost.missed += loss.rate;
            }
            lost.is_felt |= loss.is_felt;
            lost.has_lasted |= loss.has_lasted;
            lost.is_congested |= loss.is_congested;
        }
    }
    let edges = jobs.values().flat_map(|of_job| {
        let found = at_one_end(of_job);
        let found = found.map_or_else(|| at_one_end_by_device(of_job), |nic| vec![nic]);
        let nics: Vec<_> = of_job.keys().copied().collect();
        let unexplained = found.into_iter().filter(move |(nic, lost)| {
            !broken::explain(view, *nic, &nics, lost.sent.max(lost.missed))
        });
        unexplained.filter_map(|(nic, lost)| {
            let path = || on_most_ways(view, senders, receivers).0;
            edge(view, nic, &lost, path)
        })
    });
    edges.collect()
}

/// The same for the NICs of each device name by themselves, if each has one, all on different nodes: what is lost in the fabric
/// shows on many devices of the same nodes.
fn at_one_end_by_device<'a>(of_job: &OfJob<'a>) -> Vec<Found<'a>> {
    let mut by_device: BTreeMap<_, OfJob<'a>> = BTreeMap::new();
    for (nic, lost) in of_job {
        let of_device = by_device.entry(&nic.1.device).or_default();
        of_device.insert(*nic, *lost);
    }
    by_device.retain(|_, nics| nics.values().any(|lost| lost.is_felt));
    let found: Vec<_> = by_device.values().filter_map(at_one_end).collect();
    let nodes: BTreeSet<_> = found.iter().map(|((node, _), _)| node).collect();
    let are_all = found.len() == by_device.len() && found.len() == nodes.len();
    if are_all { found } else { Vec::new() }
}

/// A NIC, and what it loses.
type Found<'a> = ((&'a NodeName, &'a RdmaPort), Lost);

/// The NIC at one end of nearly all of these lost packets.
fn at_one_end<'a>(of_job: &OfJob<'a>) -> Option<Found<'a>> {
    let all = of_job.values().fold(Lost::default(), |all, lost| Lost {
        sent: all.sent + lost.sent,
        missed: all.missed + lost.missed,
        ..Lost::default()
    });
    let share = |lost: &Lost| lost.shares(&all).iter().sum::<f64>();
    let mut shares: Vec<_> = of_job
        .iter()
        .map(|(nic, lost)| (share(lost), *nic))
        .collect();
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (most, nic) = *shares.first()?;
    let next = shares.get(1).map_or(0.0, |(share, _)| *share);
    let lost = of_job[&nic];
    let [sent, missed] = lost.shares(&all);
    let others = |of: fn(&Lost) -> f64| {
        let losing = of_job
            .iter()
            .filter(|(other, lost)| **other != nic && of(lost) > 0.0);
        losing.count()
    };
    let is_known = sent.min(missed) >= OF_BOTH
        || missed > sent && others(|lost| lost.sent) >= OTHERS
        || sent > missed
            && others(|lost| lost.missed) >= OTHERS
            && all.missed <= GAPS_FOR_EACH * all.sent;
    let stands_out = most >= MIN_SHARE && next <= MAX_OF_OTHERS * most;
    (is_known && stands_out && lost.is_felt && lost.has_lasted).then_some((nic, lost))
}

/// The leaf of a NIC that is its job's only one there: all that it sends and receives crosses the leaf's cables to other switches,
/// which may be where the loss is. None where this is not known.
fn leaf_of_single(view: &View<'_>, (node, port): (&NodeName, &RdmaPort)) -> Option<SwitchName> {
    let leaf_of_node =
        |node: &NodeName| leaf_of(view.fabric, &Part::Nic(node.clone(), port.device.clone()));
    let leaf = leaf_of_node(node)?;
    let nodes = &view.jobs.of_nic(node, &port.device)?.nodes;
    let others = nodes.keys().filter(|other| *other != node);
    let leaves: Vec<_> = others.filter_map(leaf_of_node).collect();
    (!leaves.is_empty() && !leaves.contains(&leaf)).then_some(leaf)
}

/// `None` where errors of the node's ports or full queues explain the loss.
fn edge(
    view: &View<'_>,
    (node, port): (&NodeName, &RdmaPort),
    lost: &Lost,
    path: impl Fn() -> Vec<Part>,
) -> Option<Evidence> {
    let errors = errors_of(view.history.node(node)?, None);
    if lost.is_congested || errors >= EXPLAINED * lost.sent.max(lost.missed) {
        return None;
    }
    let part = Part::HostLink(node.clone(), port.clone());
    let device = &port.device;
    let loses = match (lost.missed > 0.0, lost.sent > 0.0) {
        (true, false) => format!("finds {:.0} packets per second behind a gap", lost.missed),
        (false, _) => format!(
            "sends {:.0} packets per second that do not arrive",
            lost.sent
        ),
        (true, true) => format!(
            "finds {:.0} packets per second behind a gap, and {:.0} per second that it sends do not arrive",
            lost.missed, lost.sent
        ),
    };
    let mut statement = format!(
        "{device} of {node} {loses}: it is at one end of nearly all packets that its job loses, and the node's ports count {errors:.1} errors per second."
    );
    let mut alike = Vec::new();
    if let Some(leaf) = leaf_of_single(view, (node, port)) {
        alike = path();
        if alike.is_empty() {
            alike.push(Part::Switch(leaf.clone()));
        }
        statement += &format!(
            " It is the only NIC of its job on {leaf}, so the path from there may also lose them."
        );
    }
    Some(Evidence {
        detector: NAME,
        signal: RDMA_TRANSPORT_EVENTS.name,
        class: &EDGE_LOSSY,
        // What a flow loses by it depends on how it sends again.
        effect: 0.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike,
        part,
    })
}

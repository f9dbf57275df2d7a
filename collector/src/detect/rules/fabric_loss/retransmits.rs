//! Packets that EFA devices retransmit: their protocol, SRD, counts neither negative acknowledgments nor gaps.
//!
//! A packet that is lost is counted by its sender. So a device whose own link loses packets retransmits, and so does each
//! device that sends to it: with many senders each a little, in a ring one of them as much. Of two that retransmit either may be
//! the cause; of more, the fabric or its load is.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{
    RDMA_NO_BUFFER, RDMA_PORT_TRANSMIT_PACKETS, RDMA_RETRANSMITS, RDMA_TRANSPORT_EVENTS,
};

use super::{EXPLAINED, LOSS_SECONDS, MIN_LOST, MIN_RATE, NAME};
use crate::assemble::netdev::port_named;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::EDGE_LOSSY;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::peers::{self, MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

/// EFA's name of the counter, which no other driver has.
const EVENT: &str = "retrans_pkts";
/// Packets a second from which a device is compared (a choice).
const BUSY: f64 = 1_000.0;
/// How many times the share of the median device of its job a device retransmits: under load all retransmit.
const ABOVE_MEDIAN: f64 = 20.0;
/// Share of the largest rate from which a device of the same name retransmits as much.
const ALIKE: f64 = 0.3;

/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "An EFA device retransmits a far larger share of its packets than the others of its job.",
        threshold: format!(
            "at least {MIN_RATE:.0} packets per second and {MIN_LOST} of all, over {:.0} s and over {:.0} s, and {ABOVE_MEDIAN:.0} times the share of the median device, of at least {MIN_PEERS} of the job that send {BUSY:.0} packets per second (where no job is known, of all; then the median device must retransmit, too, or the device drop {:.0} % as many packets that it receives); if one of the same name on another node retransmits at least {:.0} % as much, it is an alternative; if more do, or if one device of that name on another node retransmits less and drops at least {:.0} % as many packets that it receives, none is reported",
            LOSS_SECONDS[0],
            LOSS_SECONDS[1],
            100.0 * EXPLAINED,
            100.0 * ALIKE,
            100.0 * EXPLAINED
        ),
        clears: "It retransmits no more than the others.",
    }
}

/// The rule's own numbers.
pub(super) fn rule() -> Rule {
    let mut thresholds = peers::thresholds();
    thresholds.truncate(1);
    thresholds.extend(LOSS_SECONDS.map(|seconds| {
        let reason = "several readings, and the loss continues (a choice)";
        Threshold::new("over", seconds, "s", reason)
    }));
    thresholds.extend([
        Threshold::new(
            "packets that a device sends, from which it is compared",
            BUSY,
            "1/s",
            "an idle device has no share (a choice)",
        ),
        Threshold::new(
            "share of its packets that a device retransmits, at least",
            MIN_LOST,
            "ratio",
            "as on networks without retransmission in hardware (a choice)",
        ),
        Threshold::new(
            "minimum number of packets per second",
            MIN_RATE,
            "1/s",
            "a port flap causes a few (a choice)",
        ),
        Threshold::new(
            "share of retransmitted packets, times that of the median device of its job, at least",
            ABOVE_MEDIAN,
            "times",
            "under load all devices retransmit (a choice)",
        ),
        Threshold::new(
            "received packets that it drops as a share of these, where no job is known and most devices retransmit nothing, or that the receiver drops",
            EXPLAINED,
            "ratio",
            "its link loses packets in both directions (a choice)",
        ),
        Threshold::new(
            "share of the largest rate from which another device of the same name is an alternative",
            ALIKE,
            "ratio",
            "in a ring, a device and the one before it retransmit alike (a choice)",
        ),
    ]);
    Rule {
        class: &EDGE_LOSSY,
        signal: RDMA_RETRANSMITS.name,
        thresholds,
    }
}

/// What a device retransmits.
struct Sender<'a> {
    node: &'a NodeName,
    port: RdmaPort,
    /// Packets a second, the fewest in any of [`LOSS_SECONDS`].
    rate: f64,
    /// Of all packets that it sends, the lowest in any of [`LOSS_SECONDS`].
    share: f64,
    /// Packets a second that it receives and drops.
    dropped: f64,
}

impl Sender<'_> {
    /// Whether it drops a good part of so many packets a second.
    fn drops_of(&self, rate: f64) -> bool {
        self.dropped >= EXPLAINED * rate
    }
}

/// Devices that retransmit far more than the others of their job.
pub(super) fn evidence(view: &View<'_>) -> Vec<Evidence> {
    let mut jobs: BTreeMap<_, Vec<Sender<'_>>> = BTreeMap::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        for sender in of_node(node, history) {
            let job = view.jobs.of_nic(node, &sender.port.device);
            if job.is_none_or(|job| job.is_heard) {
                let of_job = jobs.entry(job.map(|job| &job.name)).or_default();
                of_job.push(sender);
            }
        }
    }
    let found = jobs
        .into_iter()
        .filter_map(|(job, senders)| of_job(view, job.is_some(), senders));
    found.collect()
}

/// Whether a port is that of an EFA device.
pub(in crate::detect::rules) fn is_efa(history: &NodeHistory, device: &str, port: &str) -> bool {
    let events = history.window(&RDMA_TRANSPORT_EVENTS, &[device, port, EVENT]);
    events.is_some()
}

/// The busy EFA devices of a node.
fn of_node<'a>(node: &'a NodeName, history: &'a NodeHistory) -> Vec<Sender<'a>> {
    let retransmits = history.series(&RDMA_RETRANSMITS);
    let senders = retransmits.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let (device, port) = (labels.next()?, labels.next()?);
        if !is_efa(history, device, port) {
            return None;
        }
        let sent = history.window(&RDMA_PORT_TRANSMIT_PACKETS, &[device, port])?;
        let (mut rate, mut share) = (f64::MAX, f64::MAX);
        for seconds in LOSS_SECONDS {
            let [again, packets] =
                [window, sent].map(|of| of.newest_increase(seconds).map(Increase::rate));
            let packets = packets.filter(|packets| *packets >= BUSY)?;
            rate = rate.min(again?);
            share = share.min(again? / packets);
        }
        let dropped = history.window(&RDMA_NO_BUFFER, &[device, port]);
        let dropped = dropped.and_then(|of| of.newest_increase(LOSS_SECONDS[0]));
        Some(Sender {
            node,
            port: port_named(device, port)?,
            rate,
            share,
            dropped: dropped.map_or(0.0, Increase::rate),
        })
    });
    senders.collect()
}

/// The device of a job that retransmits most, if at most one other does so alike.
fn of_job(view: &View<'_>, is_known: bool, mut senders: Vec<Sender<'_>>) -> Option<Evidence> {
    let usual = median(senders.iter().map(|sender| sender.share))?;
    senders.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    let (first, others) = senders.split_first()?;
    let is_lossy = first.rate >= MIN_RATE && first.share >= MIN_LOST.max(ABOVE_MEDIAN * usual);
    if !is_lossy
        || senders.len() < MIN_PEERS
        || !(is_known || first.drops_of(first.rate)) && usual == 0.0
    {
        return None;
    }
    let alike = others
        .iter()
        .filter(|other| other.rate >= ALIKE * first.rate);
    let alike: Vec<&Sender<'_>> = alike.collect();
    let is_pair =
        |other: &Sender<'_>| other.node != first.node && other.port.device == first.port.device;
    // What is sent to a receiver without buffers is sent again: it is reported for that. One that drops packets itself has a
    // lossy link.
    let is_receiver = |other: &Sender<'_>| {
        !first.drops_of(first.rate)
            && is_pair(other)
            && other.rate < ALIKE * first.rate
            && other.drops_of(first.rate)
    };
    if alike.len() > 1
        || !alike.iter().all(|other| is_pair(other))
        || others.iter().filter(|other| is_receiver(other)).count() == 1
    {
        return None;
    }
    let link = |sender: &Sender<'_>| Part::HostLink(sender.node.clone(), sender.port.clone());
    let (part, device) = (link(first), &first.port.device);
    let mut statement = format!(
        "{device} of {} retransmits {:.0} packets per second, {:.4} % of what it sends; the median device of its job {:.4} %.",
        first.node,
        first.rate,
        100.0 * first.share,
        100.0 * usual
    );
    for other in &alike {
        statement += &format!(
            " {} of {} retransmits {:.0}: one of the two sends to the other, and either may lose the packets.",
            other.port.device, other.node, other.rate
        );
    }
    Some(Evidence {
        detector: NAME,
        signal: RDMA_RETRANSMITS.name,
        class: &EDGE_LOSSY,
        // SRD sends again at once and over other paths.
        effect: 0.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: alike.into_iter().map(link).collect(),
        part,
    })
}

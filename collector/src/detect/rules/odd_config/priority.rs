//! RoCE in another priority than that of other NICs: switches do not treat it as lossless, and drop it.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::metric::{NIC, NIC_PRIORITY_BYTES, RDMA_PORT_TRANSMIT_BYTES};

use crate::assemble::netdev::fabric_nic_of;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PFC_MISMATCH;
use crate::detect::detector::{Evidence, Explanation, View};
use crate::detect::peers::{self, MAJORITY, MIN_PEERS};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

/// The time over which bytes are counted.
const SECONDS: f64 = 40.0;
/// Share of the bytes that a NIC sends that must be in one priority, and of RDMA.
const MOSTLY: f64 = 0.7;
/// Fewest bytes a second of a NIC that is compared.
const MIN_SENT: f64 = 1e8;

/// The rule as text.
pub(super) fn explain() -> Explanation {
    Explanation {
        check: "A NIC sends its RDMA traffic in another priority than the NICs of other nodes: its DSCP or PCP, or what the NIC trusts, is set otherwise, and switches do not treat its packets as lossless.",
        threshold: format!(
            "{:.0} % of at least {:.0} MB/s in one priority over {SECONDS:.0} s, as much of it RDMA, while {:.0} % of at least {MIN_PEERS} interfaces of the same name that send so much, or of all where fewer nodes have this name (unless several of the name agree), send mostly in one other; if {:.0} % of a node's NICs, and at least {MIN_PEERS}, do so, the node is reported",
            100.0 * MOSTLY,
            1e-6 * MIN_SENT,
            100.0 * MAJORITY,
            100.0 * MAJORITY
        ),
        clears: "The NIC sends in the priority of its peers.",
    }
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let own = [
        Threshold::new("over", SECONDS, "s", "several readings (a choice)"),
        Threshold::new(
            "share of a NIC's bytes in one priority, and of RDMA",
            MOSTLY,
            "ratio",
            "answers and management are in others (a choice)",
        ),
        Threshold::new(
            "fewest bytes that a NIC sends",
            MIN_SENT,
            "B/s",
            "a NIC that is hardly used slows no job (a choice)",
        ),
    ];
    Rule {
        signal: NIC_PRIORITY_BYTES.name,
        ..Rule::new(
            &PFC_MISMATCH,
            own.into_iter().chain(peers::thresholds()).collect(),
        )
    }
}

/// A NIC that sends RDMA mostly in one priority.
struct Sender<'a> {
    node: &'a NodeName,
    netdev: &'a str,
    device: RdmaDevice,
    priority: &'a str,
    share: f64,
}

/// NICs that send in another priority than most, each with its node.
pub(super) fn find<'a>(view: &View<'a>) -> Vec<(&'a NodeName, Evidence)> {
    // By the number of a node's interfaces, and the name of one: how many nodes have it, and those that send.
    let mut cohorts: BTreeMap<(usize, &str), (usize, Vec<Sender<'a>>)> = BTreeMap::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let shape = history.series(&NIC).count();
        for (netdev, sent) in sent(history) {
            let (count, senders) = cohorts.entry((shape, netdev)).or_default();
            *count += 1;
            senders.extend(sender((node, history), netdev, &sent));
        }
    }
    let mut found = Vec::new();
    // Names that few nodes have are those of places.
    let (alike, unlike): (Vec<_>, Vec<_>) = cohorts
        .into_values()
        .partition(|(count, _)| *count >= MIN_PEERS);
    // Several that agree have another purpose, such as storage.
    let agree = |senders: &[Sender<'_>]| {
        let mut priorities = senders.iter().map(|sender| sender.priority);
        let first = priorities.next();
        senders.len() > 1 && priorities.all(|other| Some(other) == first)
    };
    let (agreeing, single): (Vec<_>, Vec<_>) = unlike
        .into_iter()
        .map(|(_, own)| own)
        .partition(|own| agree(own));
    for (_, senders) in alike {
        odd_ones(view, (&senders, &[]), &mut found);
    }
    let single: Vec<_> = single.into_iter().flatten().collect();
    let agreeing: Vec<_> = agreeing.into_iter().flatten().collect();
    odd_ones(view, (&single, &agreeing), &mut found);
    found
}

/// What an interface sends.
#[derive(Default)]
struct Sent<'a> {
    /// Bytes a second, in all and in the priority that has most.
    all: f64,
    most: f64,
    priority: &'a str,
}

/// By interface that carries anything, and counts it by priority, what it sends.
fn sent(history: &NodeHistory) -> BTreeMap<&str, Sent<'_>> {
    let mut sent: BTreeMap<&str, Sent<'_>> = BTreeMap::new();
    for (labels, bytes) in history.moving(&NIC_PRIORITY_BYTES) {
        let mut labels = labels.values();
        let (Some(netdev), Some(priority), Some("transmit")) =
            (labels.next(), labels.next(), labels.next())
        else {
            continue;
        };
        let rate = bytes.newest_increase(SECONDS).map_or(0.0, Increase::rate);
        let of = sent.entry(netdev).or_default();
        of.all += rate;
        if rate > of.most {
            (of.most, of.priority) = (rate, priority);
        }
    }
    sent
}

/// An interface that sends RDMA mostly in one priority.
fn sender<'a>(
    (node, history): (&'a NodeName, &'a NodeHistory),
    netdev: &'a str,
    sent: &Sent<'a>,
) -> Option<Sender<'a>> {
    let is_one = sent.all >= MIN_SENT && sent.most >= MOSTLY * sent.all;
    let device = is_one.then(|| fabric_nic_of(history, netdev))??;
    (of_rdma(history, &device) >= MOSTLY * sent.all).then_some(Sender {
        node,
        netdev,
        device,
        priority: sent.priority,
        share: sent.most / sent.all,
    })
}

/// Bytes a second that the RDMA ports of a device send.
fn of_rdma(history: &NodeHistory, device: &RdmaDevice) -> f64 {
    let ports = history.series(&RDMA_PORT_TRANSMIT_BYTES);
    let ports = ports.filter(|(labels, _)| labels.values().next() == Some(device.as_str()));
    let rates = ports.filter_map(|(_, bytes)| bytes.newest_increase(SECONDS));
    rates.map(Increase::rate).sum()
}

/// Those of the first that send in another priority than most of both.
fn odd_ones<'a>(
    view: &View<'_>,
    (senders, others): (&[Sender<'a>], &[Sender<'a>]),
    found: &mut Vec<(&'a NodeName, Evidence)>,
) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for sender in senders.iter().chain(others) {
        *counts.entry(sender.priority).or_default() += 1;
    }
    let all = senders.len() + others.len();
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let Some((usual, count)) = most else { return };
    if all < MIN_PEERS || (count as f64) < MAJORITY * all as f64 {
        return;
    }
    for odd in senders.iter().filter(|sender| sender.priority != usual) {
        let part = Part::Nic(odd.node.clone(), odd.device.clone());
        let evidence = Evidence {
            detector: "odd-config",
            signal: NIC_PRIORITY_BYTES.name,
            class: &PFC_MISMATCH,
            // What is lost depends on how full the switch's queues are.
            effect: 0.0,
            statement: format!(
                "{} of {} sends {:.0} % of its traffic in priority {}; {count} of {all} such interfaces send theirs in priority {usual}.",
                odd.netdev,
                odd.node,
                100.0 * odd.share,
                odd.priority
            ),
            victims: gpus_behind(view.fabric, &part),
            related: Vec::new(),
            alike: Vec::new(),
            part,
        };
        found.push((odd.node, evidence));
    }
}

//! Packets that vanish inside the fabric, as hosts see it: switches whose counters are not read, or that count nothing.
//!
//! The sender gets negative acknowledgments, the receiver finds gaps. A cable at a host does that to everything that
//! one NIC sends or receives (see [`edge`]); where many NICs of several nodes send what never arrives, and many others
//! miss it, the loss is at a switch that they share. Where switches count bytes, one of them may not send what it receives
//! (see [`inside`]); else hosts cannot determine which of them it is: all that lie on most paths are named.

mod broken;
mod congestion;
mod edge;
mod inside;
mod retransmits;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use railscope_model::fabric::Fabric;
use railscope_model::identity::{NodeName, Part, RdmaDevice, RdmaPort, SwitchName};
use railscope_model::metric::{
    Metric, NIC_PHY_CRC_ERRORS, NIC_PHY_SYMBOL_ERRORS, RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_TRANSMIT_BYTES, RDMA_RETRANSMITS, RDMA_TRANSPORT_EVENTS, SWITCH_PORT_TRANSMIT_BYTES,
    SWITCH_PORT_TRANSMIT_PACKETS,
};
use railscope_model::reading::Labels;

use congestion::Congestion;
use inside::Inside;
pub(super) use retransmits::is_efa;

use super::slow_receiver::pauses::in_parts;
use crate::assemble::netdev::{self, port_named};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, EDGE_LOSSY, UPLINK_LOSSY};
use crate::detect::detector::{Detector, Evidence, Explanation, View, list};
use crate::detect::ecn_marks::PACKET_BYTES;
use crate::detect::peers::{self, MIN_PEERS};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

/// The time in which packets are counted, and the newer part of it in which it must be so as well.
const LOSS_SECONDS: [f64; 2] = [60.0, 20.0];
/// Share of its packets that a NIC sends in vain, or misses, from which it counts (go-back-N at 400 Gb/s
/// costs a quarter of a percent at it).
const MIN_LOST: f64 = 1e-5;
/// Fewest a second: a flap of some other port brings a few.
const MIN_RATE: f64 = 1.0;
/// Largest share of all lost packets that one NIC may send, or miss: beyond it the loss is its own.
const MOST_OF_ONE: f64 = 0.5;
/// Errors that ports of hosts count, as a share of the lost packets: from here on they explain the loss.
const EXPLAINED: f64 = 0.3;
/// Most pairs of a sender and a receiver whose paths are evaluated.
const MOST_PAIRS: usize = 64;
/// Share of the paths of the switch that is on most of them from which another may lose the packets as well.
const ON_MOST: f64 = 0.6;

/// What drivers call negative acknowledgments that a sender gets: mlx5, bnxt_re, rxe.
const SENT_IN_VAIN: [&str; 3] = ["packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"];
/// What they call packets behind a gap: mlx5, bnxt_re, rxe.
const BEHIND_A_GAP: [&str; 3] = ["out_of_sequence", "oos_drop_count", "out_of_seq_request"];
/// What the lost packets of senders and of receivers are compared with, and the events that report them.
const SIDES: [(&Metric, [&str; 3]); 2] = [
    (&RDMA_PORT_TRANSMIT_BYTES, SENT_IN_VAIN),
    (&RDMA_PORT_RECEIVE_BYTES, BEHIND_A_GAP),
];

#[derive(Default)]
struct FabricLoss {
    inside: Inside,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(FabricLoss::default())
}

const NAME: &str = "fabric-loss";

impl Detector for FabricLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        out.extend(retransmits::evidence(view));
        let congestion = Congestion::of(view);
        let mut all = [(); 2].map(|()| Losses(Vec::new()));
        for (node, history) in view.history.fresh_nodes(view.now) {
            let mut of_node = of_node(node, history);
            congestion.mark(history, &mut of_node);
            for loss in of_node {
                all[loss.side].0.push(loss);
            }
        }
        let [all_senders, all_receivers] = all;
        // A NIC that loses as much in both directions has the largest share of a shared loss that one NIC may have.
        let edges = edge::evidence(view, &all_senders, &all_receivers);
        let [senders, receivers] = [&all_senders, &all_receivers].map(Losses::lasting);
        let inside = self.inside.evidence(view, &senders, &receivers);
        if !edges.is_empty() || inside.is_some() {
            out.extend(edges);
            out.extend(inside);
            return;
        }
        let [senders, receivers] = [&all_senders, &all_receivers].map(Losses::felt);
        let are_shared = senders.are_shared() && receivers.are_shared();
        let lost = senders.rate();
        let are_unexplained =
            || host_errors(view) < EXPLAINED * lost && !broken::explain_shared(view, lost);
        if are_shared && are_unexplained() {
            out.extend(evidence(view, &senders, &receivers));
        }
    }

    fn explain(&self, class: &Class, signal: &str) -> Explanation {
        if signal == RDMA_RETRANSMITS.name {
            return retransmits::explain();
        }
        if signal == SWITCH_PORT_TRANSMIT_BYTES.name {
            return inside::explain();
        }
        if class == &EDGE_LOSSY {
            return edge::explain();
        }
        Explanation {
            check: "Many NICs of several nodes send packets that do not arrive, and no host port explains the loss.",
            threshold: format!(
                "at least {MIN_PEERS} NICs of two or more nodes with negative acknowledgments for more than {MIN_LOST} of their packets and {MIN_RATE:.0} per second, over {:.0} s and over {:.0} s, as many NICs that detect gaps, none with more than {:.0} % of the total, and host port errors below {:.0} % of it; {}; {}; no packet counters from the switches on the paths",
                LOSS_SECONDS[0],
                LOSS_SECONDS[1],
                100.0 * MOST_OF_ONE,
                100.0 * EXPLAINED,
                broken::words_shared(),
                congestion::words()
            ),
            clears: "Packets arrive without loss.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut shared = peers::thresholds();
        shared.truncate(1);
        shared.extend(numbers());
        shared.extend(excuses());
        shared.extend(broken::thresholds());
        shared.extend([
            Threshold::new(
                "largest share of one NIC in the loss",
                MOST_OF_ONE,
                "ratio",
                "beyond it the loss is at its own port (a choice)",
            ),
            Threshold::new(
                "pairs whose paths are checked",
                MOST_PAIRS as f64,
                "pairs",
                "more pairs cross the same switches (a choice)",
            ),
            Threshold::new(
                "paths that another switch is on, compared with the one on most of them, from which it may be the cause, too",
                ON_MOST,
                "ratio",
                "which pairs talk is not known: in a fabric of three levels some stay below the cores (a choice)",
            ),
        ]);
        let mut of_edge = numbers();
        of_edge.extend(excuses());
        of_edge.extend(edge::numbers());
        of_edge.extend(broken::thresholds());
        vec![
            Rule::new(&UPLINK_LOSSY, shared),
            Rule::new(&EDGE_LOSSY, of_edge),
            retransmits::rule(),
            inside::rule(numbers().split_off(1)),
        ]
    }

    fn remembers(&self) -> bool {
        true
    }
}

/// The numbers of both rules.
fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of its packets that a NIC sends without delivery, or misses",
            MIN_LOST,
            "ratio",
            "at this loss, go-back-N at 400 Gb/s costs 0.25 %",
        ),
        Threshold::new(
            "minimum number of packets per second",
            MIN_RATE,
            "1/s",
            "a port flap causes a few (a choice)",
        ),
        Threshold::new(
            "over",
            LOSS_SECONDS[0],
            "s",
            "several readings of every node (a choice)",
        ),
        Threshold::new(
            "and also over the newest",
            LOSS_SECONDS[1],
            "s",
            "the loss continues (a choice)",
        ),
        Threshold::new(
            "bytes of a packet",
            PACKET_BYTES,
            "bytes",
            "the largest RDMA MTU; smaller packets lower the share",
        ),
    ]
}

/// The numbers of what explains a loss that hosts alone see.
fn excuses() -> Vec<Threshold> {
    let [congestion, sending] = congestion::thresholds();
    vec![
        Threshold::new(
            "host port errors as a share of the loss",
            EXPLAINED,
            "ratio",
            "from this share, they explain it (a choice)",
        ),
        congestion,
        sending,
    ]
}

/// A NIC that sends in vain, or misses packets.
#[derive(Clone)]
struct Loss<'a> {
    node: &'a NodeName,
    port: RdmaPort,
    /// Which of [`SIDES`] it is.
    side: usize,
    /// Packets a second.
    rate: f64,
    /// Whether it is so many, in all of [`LOSS_SECONDS`], that a job feels them.
    is_felt: bool,
    /// Whether it began before the newer of these times.
    has_lasted: bool,
    /// Whether full queues explain it.
    is_congested: bool,
}

impl Loss<'_> {
    fn nic(&self) -> Part {
        Part::Nic(self.node.clone(), self.port.device.clone())
    }

    fn leaf(&self, fabric: &Fabric) -> Option<SwitchName> {
        leaf_of(fabric, &self.nic())
    }
}

/// The switch that a NIC is plugged into.
pub(super) fn leaf_of(fabric: &Fabric, nic: &Part) -> Option<SwitchName> {
    let mut cables = fabric.cables(fabric.find(nic)?);
    cables.find_map(|near| match &fabric.vertex(near.peer).part {
        Part::Switch(leaf) if near.link.is_present() => Some(leaf.clone()),
        _ => None,
    })
}

/// NICs that lose, on one side.
struct Losses<'a>(Vec<Loss<'a>>);

impl<'a> Losses<'a> {
    /// Those that a job feels.
    fn felt(&self) -> Losses<'a> {
        let felt = self.0.iter().filter(|loss| loss.is_felt);
        Losses(felt.cloned().collect())
    }

    /// Those of at least [`MIN_RATE`], whether a job feels them or not.
    fn lasting(&self) -> Losses<'a> {
        let lasting = self.0.iter().filter(|loss| loss.rate >= MIN_RATE);
        Losses(lasting.cloned().collect())
    }

    /// Whether they are many, and none of them has the majority.
    fn are_shared(&self) -> bool {
        let most = self.0.iter().map(|loss| loss.rate).fold(0.0, f64::max);
        self.are_of_several_nodes() && most <= MOST_OF_ONE * self.rate() && !self.are_congested()
    }

    /// Whether full queues explain much of them.
    fn are_congested(&self) -> bool {
        let congested = self.0.iter().filter(|loss| loss.is_congested);
        congested.map(|loss| loss.rate).sum::<f64>() >= EXPLAINED * self.rate()
    }

    fn are_of_several_nodes(&self) -> bool {
        self.0.len() >= MIN_PEERS && self.nodes() >= 2
    }

    fn nodes(&self) -> usize {
        let nodes: BTreeSet<&NodeName> = self.0.iter().map(|loss| loss.node).collect();
        nodes.len()
    }

    /// Packets a second.
    fn rate(&self) -> f64 {
        self.0.iter().map(|loss| loss.rate).sum()
    }
}

/// The NICs of a node that lose packets.
fn of_node<'a>(node: &'a NodeName, history: &'a NodeHistory) -> Vec<Loss<'a>> {
    let moving = history.moving(&RDMA_TRANSPORT_EVENTS);
    let losses = moving.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let (device, port, event) = (labels.next()?, labels.next()?, labels.next()?);
        let side = SIDES
            .iter()
            .position(|(_, events)| events.contains(&event))?;
        let (bytes, _) = SIDES[side];
        let rate = window.increase(LOSS_SECONDS[0])?.rate();
        if rate < edge::COUNTED_RATE {
            return None;
        }
        let carried = history.window(bytes, &[device, port])?;
        let is_felt = LOSS_SECONDS.into_iter().all(|seconds| {
            let rates = [window, carried].map(|of| of.newest_increase(seconds).map(Increase::rate));
            let [Some(lost), Some(bytes)] = rates else {
                return false;
            };
            lost >= MIN_RATE && lost >= MIN_LOST * bytes / PACKET_BYTES
        });
        Some(Loss {
            node,
            port: port_named(device, port)?,
            side,
            rate,
            is_felt,
            has_lasted: in_parts(window, LOSS_SECONDS[1], LOSS_SECONDS[0])
                .is_some_and(|[earlier, _]| earlier.amount > 0.0),
            is_congested: false,
        })
    });
    losses.collect()
}

/// Errors a second that the ports of hosts count.
fn host_errors(view: &View<'_>) -> f64 {
    let nodes = view.history.fresh_nodes(view.now);
    nodes.map(|(_, history)| errors_of(history, None)).sum()
}

/// Errors a second that the ports of a host count, or one of them.
fn errors_of(history: &NodeHistory, port: Option<&RdmaPort>) -> f64 {
    let number = port.map(|port| port.port.to_string());
    let own = port
        .zip(number.as_deref())
        .map(|(port, number)| [port.device.as_str(), number]);
    let netdev = own.and_then(|own| netdev::of_port(history, own));
    let rate = |metric, kind: Option<&str>| -> f64 {
        let is_own = |labels: &Labels| match kind {
            Some(_) => own.is_none_or(|own| labels.values().take(2).eq(own)),
            None => own.is_none() || labels.values().next() == netdev,
        };
        let is_of_kind =
            |labels: &Labels| kind.is_none_or(|kind| labels.values().last() == Some(kind));
        let moving = history.moving(metric);
        let series = moving.filter(|(labels, _)| is_of_kind(labels) && is_own(labels));
        let rates = series.filter_map(|(_, window)| window.increase(LOSS_SECONDS[0]));
        // The sum of no numbers is -0.
        rates.map(Increase::rate).fold(0.0, Add::add)
    };
    rate(&RDMA_PORT_ERRORS, Some("symbol_error"))
        + rate(&RDMA_PORT_ERRORS, Some("port_rcv_errors"))
        + rate(&NIC_PHY_SYMBOL_ERRORS, None)
        + rate(&NIC_PHY_CRC_ERRORS, None)
}

/// Switches on the paths from senders to receivers: those that are on the most of them, and those that are on nearly as many. In a
/// fabric of rails NICs of one device talk to each other.
fn on_most_ways(
    view: &View<'_>,
    senders: &Losses<'_>,
    receivers: &Losses<'_>,
) -> (Vec<Part>, Vec<Part>) {
    let leaves = |losses: &Losses<'_>| -> BTreeSet<(RdmaDevice, SwitchName)> {
        let leaf = |loss: &Loss<'_>| Some((loss.port.device.clone(), loss.leaf(view.fabric)?));
        losses.0.iter().filter_map(leaf).collect()
    };
    let (from, to) = (leaves(senders), leaves(receivers));
    let pairs: BTreeSet<_> = from
        .iter()
        .flat_map(|from| to.iter().map(move |to| (from, to)))
        .filter(|((device, from), (other, to))| device == other && from != to)
        .map(|((_, from), (_, to))| (from.min(to), from.max(to)))
        .collect();
    let ends = pairs.iter().flat_map(|(a, b)| [(*a).clone(), (*b).clone()]);
    let leaves: BTreeSet<Part> = ends.map(Part::Switch).collect();
    let ways = pairs.into_iter().take(MOST_PAIRS);
    let ways = ways.filter_map(|(a, b)| view.routes.between(view.fabric, a, b));
    let mut counts: BTreeMap<Part, usize> = BTreeMap::new();
    let mut all = 0;
    for way in ways {
        all += 1;
        for (switch, _) in way.switches {
            let part = view.fabric.vertex(switch).part.clone();
            *counts.entry(part).or_default() += 1;
        }
    }
    let most = counts.values().copied().max().unwrap_or(0);
    // One more switch may lose at the same time: the paths that cannot lead over the first are few
    // then.
    if most * 2 < all {
        return (Vec::new(), Vec::new());
    }
    // In a fabric of three levels the cores are on no path within a pod, and the switches below them on all of those.
    let least = ON_MOST * most as f64;
    let (of_most, others): (Vec<_>, Vec<_>) =
        counts.into_iter().partition(|(_, count)| *count == most);
    let nearly = others
        .into_iter()
        .filter(|(part, count)| *count as f64 >= least && !leaves.contains(part));
    let parts = |counted: Vec<(Part, usize)>| counted.into_iter().map(|(part, _)| part).collect();
    (parts(of_most), parts(nearly.collect()))
}

/// Whether packets of a switch's ports were reported lately.
fn counts_packets(view: &View<'_>, part: &Part) -> bool {
    let Part::Switch(name) = part else {
        return false;
    };
    let history = view.history.switch(name);
    history.is_some_and(|history| {
        let mut counts = history.series(&SWITCH_PORT_TRANSMIT_PACKETS);
        history.is_fresh(view.now) && counts.next().is_some()
    })
}

fn evidence(view: &View<'_>, senders: &Losses<'_>, receivers: &Losses<'_>) -> Option<Evidence> {
    let (switches, others) = on_most_ways(view, senders, receivers);
    let is_read = |switch: &Part| counts_packets(view, switch);
    // Where their counters are read, these name the cable or the queue that loses.
    if switches.iter().any(is_read) {
        return None;
    }
    let others = others.into_iter().filter(|switch| !is_read(switch));
    let mut switches = switches.into_iter();
    let part = switches.next()?;
    let alike: Vec<Part> = switches.chain(others).collect();
    let mut statement = format!(
        "{} NICs of {} nodes send packets that do not arrive, {:.0} per second, and {} NICs of {} nodes miss packets; no host port counts errors that explain this. {part} is on most paths between them",
        senders.0.len(),
        senders.nodes(),
        senders.rate(),
        receivers.0.len(),
        receivers.nodes(),
    );
    if alike.is_empty() {
        statement.push('.');
    } else {
        statement += &format!(
            "; it may also be one of {}: the counters of these switches, or probes, show which one it is.",
            list(&alike)
        );
    }
    Some(Evidence {
        detector: NAME,
        signal: RDMA_TRANSPORT_EVENTS.name,
        class: &UPLINK_LOSSY,
        // What a flow loses by it depends on how it sends again.
        effect: 0.0,
        statement,
        victims: victims(view, senders, receivers),
        related: Vec::new(),
        alike,
        part,
    })
}

/// The GPUs whose packets are lost.
fn victims(view: &View<'_>, senders: &Losses<'_>, receivers: &Losses<'_>) -> Vec<Part> {
    let nics = senders.0.iter().chain(&receivers.0);
    let gpus = nics.flat_map(|loss| gpus_behind(view.fabric, &loss.nic()));
    gpus.collect::<BTreeSet<Part>>().into_iter().collect()
}

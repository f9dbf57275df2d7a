//! NICs at which much of what arrives is marked for congestion, although less arrives than before: the link from their switch
//! is slower than its speed says.
//!
//! A switch marks packets that wait in the queue of a port. If many send to one NIC at once, more arrives at it than before. If a
//! link between switches is the bottleneck, packets to NICs of many nodes are marked. If the NIC is too slow, it pauses its
//! switch ([`slow_receiver`](super::slow_receiver)). There remains the link itself, or a shaper before it.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{RDMA_ECN_MARKED, RDMA_PORT_RECEIVE_BYTES};

use super::slow_receiver::pauses::sends_pause;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PATH_SLOW};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::ecn_marks::{marked_share, packet_size};
use crate::detect::netdev::nic_of;
use crate::detect::peers::{self, MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, Window};

/// The time in which packets are counted.
const WINDOW_SECONDS: f64 = 60.0;
/// The newest part of it, in which the condition must hold as well.
const NEWEST_SECONDS: f64 = 20.0;
/// Least share of the packets that is marked.
const MIN_MARKED: f64 = 5e-4;
/// The same share, in times the median of NICs that receive as much.
const ABOVE_PEERS: f64 = 10.0;
/// Bytes that a NIC receives, compared with the mean of all, from which it is evaluated, and compared with the one in question, from
/// which it is a peer.
const BUSY: f64 = 0.1;
/// Most NICs that stand out at once, and the share of the largest from which they do; where there are more, something that they
/// have in common is the bottleneck.
const MOST_AT_ONCE: usize = 2;
/// See [`MOST_AT_ONCE`].
const ALIKE: f64 = 0.2;
/// The same share, in times that of the same NIC before.
const NEW: f64 = 3.0;
/// Most bytes that it receives, compared with before.
const LESS: f64 = 0.9;
/// Most bytes that it receives, compared with the median of its node's other NICs.
const MAX_OF_NODE: f64 = 1.01;
/// Share of [`MIN_MARKED`], [`ABOVE_PEERS`] and [`NEW`] from which a reported NIC stays reported.
const STILL: f64 = 0.5;
/// Least age of the time before that is compared.
const AGO_SECONDS: f64 = 75.0;
/// Least length of that time.
const SPAN_SECONDS: f64 = 30.0;
/// Share of the time in pause from which the NIC is the cause.
const MAX_PAUSE: f64 = 0.01;

/// Name of the detector.
pub const NAME: &str = "marked-nics";

type Port = (NodeName, RdmaPort);

#[derive(Default)]
struct MarkedNics {
    /// What arrived before, of ports that were reported at the last tick.
    reported: BTreeMap<Port, Arrivals>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<MarkedNics>::default()
}

/// What arrives at a port.
#[derive(Debug, Clone, Copy)]
struct Arrivals {
    /// Bytes a second.
    bytes: f64,
    /// Share of the packets that is marked.
    marked: f64,
}

impl Arrivals {
    /// `None` if nothing arrives.
    fn of(marks: Option<f64>, bytes: Option<f64>) -> Option<Self> {
        let bytes = bytes.filter(|bytes| *bytes > 0.0)?;
        let marked = marked_share(marks?, bytes);
        Some(Self { bytes, marked })
    }

    fn lately([marks, bytes]: [Window<'_>; 2], seconds: f64) -> Option<Self> {
        let rate = |window: Window<'_>| window.newest_increase(seconds).map(Increase::rate);
        Self::of(rate(marks), rate(bytes))
    }
}

/// A port whose packets may be marked.
struct Known<'a> {
    node: &'a NodeName,
    history: &'a NodeHistory,
    port: [&'a str; 2],
    windows: [Window<'a>; 2],
    arrivals: Arrivals,
}

impl Known<'_> {
    fn named(&self) -> Option<Port> {
        let [device, port] = self.port;
        let (device, port) = (device.parse().ok()?, port.parse().ok()?);
        Some((self.node.clone(), RdmaPort { device, port }))
    }

    /// Whether its NIC pauses the switch.
    fn sends_pause(&self) -> bool {
        sends_pause(self.history, (WINDOW_SECONDS, MAX_PAUSE), |netdev| {
            let nic = nic_of(self.history, netdev);
            nic.is_some_and(|(_, device)| device.as_str() == self.port[0])
        })
    }
}

/// The ports at which much arrives.
fn ports<'a>(view: &View<'a>) -> Vec<Known<'a>> {
    let nodes = view.history.fresh_nodes(view.now);
    let ports = nodes.flat_map(|(node, history)| {
        let series = history.series(&RDMA_ECN_MARKED);
        series.filter_map(move |(labels, marks)| {
            let mut labels = labels.values();
            let port = [labels.next()?, labels.next()?];
            let windows = [marks, history.window(&RDMA_PORT_RECEIVE_BYTES, &port)?];
            Some(Known {
                node,
                history,
                port,
                windows,
                arrivals: Arrivals::lately(windows, WINDOW_SECONDS)?,
            })
        })
    });
    let mut ports: Vec<Known<'_>> = ports.collect();
    let bytes = ports.iter().map(|port| port.arrivals.bytes);
    let mean = bytes.sum::<f64>() / ports.len() as f64;
    // One marked packet is a large share of a few.
    ports.retain(|port| port.arrivals.bytes >= BUSY * mean);
    ports
}

/// The median share of the other ports that receive as much as this one; none if they are too few.
fn usual(ports: &[Known<'_>], own: &Known<'_>) -> Option<f64> {
    let peers = ports.iter().filter(|other| {
        let is_own = (other.node, other.port) == (own.node, own.port);
        !is_own && other.arrivals.bytes >= BUSY * own.arrivals.bytes
    });
    let peers: Vec<f64> = peers.map(|other| other.arrivals.marked).collect();
    (peers.len() >= MIN_PEERS).then(|| median(peers)).flatten()
}

/// Whether more arrives than at the other NICs of its node: then others than those of its job send to it.
fn has_more(ports: &[Known<'_>], own: &Known<'_>) -> bool {
    let others = ports
        .iter()
        .filter(|other| other.node == own.node && other.port != own.port);
    let usual = median(others.map(|other| other.arrivals.bytes));
    usual.is_some_and(|usual| own.arrivals.bytes > MAX_OF_NODE * usual)
}

impl MarkedNics {
    /// What arrived before at a port of which much more is marked now although less arrives.
    fn before(
        &self,
        own: &Known<'_>,
        named: &Port,
        usual: f64,
        view: &View<'_>,
    ) -> Option<Arrivals> {
        let reported = self.reported.get(named);
        let share = if reported.is_some() { STILL } else { 1.0 };
        let before = match reported {
            Some(before) => *before,
            None => {
                let until = view.now.plus_seconds(-AGO_SECONDS);
                let [marks, bytes] = own
                    .windows
                    .map(|window| window.rate_until(until, SPAN_SECONDS));
                Arrivals::of(marks, bytes)?
            }
        };
        let newest = Arrivals::lately(own.windows, NEWEST_SECONDS)?;
        let stands = [own.arrivals, newest].into_iter().all(|now| {
            now.marked >= share * MIN_MARKED
                && now.marked >= share * ABOVE_PEERS * usual
                && now.marked >= share * NEW * before.marked
                && now.bytes <= LESS * before.bytes
        });
        stands.then_some(before)
    }
}

impl Detector for MarkedNics {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let ports = ports(view);
        let largest = ports.iter().map(|port| port.arrivals.marked);
        let largest = largest.fold(0.0, f64::max);
        if largest < STILL * MIN_MARKED {
            self.reported.clear();
            return;
        }
        let mut alike: Vec<_> = ports.iter().collect();
        alike.retain(|port| port.arrivals.marked >= ALIKE * largest);
        if alike.len() > MOST_AT_ONCE {
            alike.clear();
        }
        let mut reported = BTreeMap::new();
        for own in alike {
            let found = usual(&ports, own)
                .zip(own.named())
                .and_then(|(usual, named)| {
                    let before = self.before(own, &named, usual, view)?;
                    Some((named, before, usual))
                });
            if let Some((named, before, usual)) =
                found.filter(|_| !own.sends_pause() && !has_more(&ports, own))
            {
                out.push(evidence(view, own, &named, (before, usual)));
                reported.insert(named, before);
            }
        }
        self.reported = reported;
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "Much of what arrives at a NIC is marked for congestion, although less arrives than before and the NIC sends no pause.",
            threshold: format!(
                "{:.2} % of the packets over {WINDOW_SECONDS:.0} s and over the newest {NEWEST_SECONDS:.0} s, {ABOVE_PEERS} times the median NIC that receives {:.0} % as much, {NEW} times the share before, at most {:.0} % of the bytes before and {MAX_OF_NODE} times those of the node's other NICs, at no more than {MOST_AT_ONCE} NICs",
                100.0 * MIN_MARKED,
                100.0 * BUSY,
                100.0 * LESS
            ),
            clears: "As many packets are marked as at other NICs, or as much arrives as before.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let own = numbers().into_iter().chain(numbers_of_before());
        vec![Rule::new(
            &PATH_SLOW,
            peers::thresholds().into_iter().chain(own).collect(),
        )]
    }
}

fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new("window", WINDOW_SECONDS, "s", "several scrapes (a choice)"),
        Threshold::new(
            "and also over the newest",
            NEWEST_SECONDS,
            "s",
            "the queue still exists (a choice)",
        ),
        packet_size(),
        Threshold::new(
            "share of packets that are marked",
            MIN_MARKED,
            "ratio",
            "congestion control keeps queues short, so that few are marked (a choice)",
        ),
        Threshold::new(
            "the same, compared with the median NIC",
            ABOVE_PEERS,
            "times",
            "the load affects every NIC (a choice)",
        ),
        Threshold::new(
            "bytes that a NIC receives, compared with the mean of all, from which it is evaluated, and compared with this one, from which it is a peer",
            BUSY,
            "ratio",
            "nothing is marked at an idle NIC (a choice)",
        ),
        Threshold::new(
            "NICs that stand out at once, at most",
            MOST_AT_ONCE as f64,
            "NICs",
            "more have something in common that is the bottleneck (a choice)",
        ),
        Threshold::new(
            "share of the largest share of marked packets from which a NIC stands out",
            ALIKE,
            "ratio",
            "queues of one cause are alike (a choice)",
        ),
        Threshold::new(
            "share of the time in which the NIC sends pause, at most",
            MAX_PAUSE,
            "ratio",
            "otherwise the NIC is slow (a choice)",
        ),
    ]
}

fn numbers_of_before() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of packets that are marked, compared with the same NIC before",
            NEW,
            "times",
            "uneven jobs always mark more at some NICs (a choice)",
        ),
        Threshold::new(
            "bytes that the NIC receives, compared with before, at most",
            LESS,
            "times",
            "if many send to one NIC, it receives more (a choice)",
        ),
        Threshold::new(
            "the same, compared with the median of its node's other NICs",
            MAX_OF_NODE,
            "times",
            "a job sends as much on each rail (a choice)",
        ),
        Threshold::new(
            "share of these limits that is enough to stay",
            STILL,
            "ratio",
            "a queue near its limit is one incident (a choice)",
        ),
        Threshold::new(
            "age of what was before, at least",
            AGO_SECONDS,
            "s",
            "longer than the window (a choice)",
        ),
        Threshold::new(
            "length of that time, at least",
            SPAN_SECONDS,
            "s",
            "several scrapes (a choice)",
        ),
    ]
}

fn evidence(
    view: &View<'_>,
    own: &Known<'_>,
    (node, port): &Port,
    (before, usual): (Arrivals, f64),
) -> Evidence {
    let part = Part::HostLink(node.clone(), port.clone());
    Evidence {
        detector: NAME,
        signal: RDMA_ECN_MARKED.name,
        class: &PATH_SLOW,
        effect: (1.0 - own.arrivals.bytes / before.bytes).clamp(0.0, 1.0),
        statement: format!(
            "About {:.2} % of the packets that arrive at {port} of {node} are marked for congestion (before: {:.2} %; median NIC: {:.2} %), although {:.1} GB/s arrive and before {:.1} GB/s, and the NIC sends no pause: the link from its switch passes less than its speed.",
            100.0 * own.arrivals.marked,
            100.0 * before.marked,
            100.0 * usual,
            own.arrivals.bytes * 1e-9,
            before.bytes * 1e-9
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

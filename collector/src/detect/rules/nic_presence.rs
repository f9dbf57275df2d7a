//! RDMA ports that are no longer exported while others of their node are: the kernel lists no device of a NIC that left its bus.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{Metric, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_UP};
use railscope_model::reading::Labels;

use crate::assemble::netdev::port_named;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PORT_DOWN};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

const NAME: &str = "nic-presence";

/// A port that received something so recently was not given away: hosts give idle devices to containers and virtual machines.
const BUSY_BEFORE_SECONDS: f64 = 120.0;
/// What it received then, bytes a second: more than management and health checks.
const BUSY: f64 = 1e7;
/// The time over which that is measured.
const WINDOW_SECONDS: f64 = 30.0;
/// Time for which a port must be missing: a driver that restarts takes some seconds.
const MISSING_SECONDS: f64 = 20.0;
/// How long it is remembered: then it was removed for good.
const KEPT_SECONDS: f64 = 86_400.0;
/// Ticks between two looks at the traffic of a node, which costs more than one at its list of ports.
const LOOKS: u64 = 4;

/// Which ports a node has: those with a state, and those that receive, as of EFA, which has no state.
const LISTS: [&Metric; 2] = [&RDMA_PORT_UP, &RDMA_PORT_RECEIVE_BYTES];

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<NicPresence>::default()
}

/// The ports that each node had.
#[derive(Default)]
struct NicPresence {
    /// By history: a node without scrapes for long is compared from scratch.
    nodes: HashMap<u64, Node, FixedState>,
    tick: u64,
}

#[derive(Debug, Default)]
struct Node {
    /// When each port last received much.
    present: BTreeMap<RdmaPort, Option<Timestamp>>,
    /// Since when ports are missing.
    missing: BTreeMap<RdmaPort, Timestamp>,
    /// Most ports at once.
    most: usize,
    /// What the list rests on.
    presence: Option<[u64; 2]>,
    tick: u64,
}

impl Detector for NicPresence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.tick += 1;
        let tick = self.tick;
        for (node, history) in view.history.fresh_nodes(view.now) {
            let known = self.nodes.entry(history.born()).or_default();
            known.tick = tick;
            let presence = Some(LISTS.map(|metric| history.presence_since(metric)));
            if known.presence != presence {
                known.presence = presence;
                known.relist(history, view.now);
            }
            if (tick + history.born()).is_multiple_of(LOOKS) {
                known.note_traffic(history, view.now);
            }
            out.extend(known.missing(node, view));
        }
        self.nodes.retain(|_, node| node.tick == tick);
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "An RDMA port that the node exported is no longer exported, while other ports of the node are.",
            threshold: format!(
                "the port received more than {:.0} MB/s less than {BUSY_BEFORE_SECONDS} s before, and is missing for {MISSING_SECONDS} s",
                1e-6 * BUSY
            ),
            clears: "The port is exported again, or another one has replaced it.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "longest time between its last traffic and its absence",
                BUSY_BEFORE_SECONDS,
                "s",
                "hosts give idle devices to containers and virtual machines (a choice)",
            ),
            Threshold::new(
                "bytes that it received then, at least",
                BUSY,
                "B/s",
                "more than management and health checks (a choice)",
            ),
            Threshold::new("over", WINDOW_SECONDS, "s", "several scrapes (a choice)"),
            Threshold::new(
                "minimum duration of its absence",
                MISSING_SECONDS,
                "s",
                "a driver that restarts takes some seconds (a choice)",
            ),
            Threshold::new(
                "time for which it is remembered",
                KEPT_SECONDS,
                "s",
                "then it was removed for good (a choice)",
            ),
            Threshold::new(
                "evaluations between two looks at the traffic of a node",
                LOOKS as f64,
                "evaluations",
                "a look costs more than the list of ports (a choice)",
            ),
        ];
        vec![Rule::new(&PORT_DOWN, thresholds)]
    }
}

/// The port of a series.
fn port_of(labels: &Labels) -> Option<RdmaPort> {
    let mut labels = labels.values();
    port_named(labels.next()?, labels.next()?)
}

impl Node {
    /// Compares the ports that the node lists now with those that it had.
    fn relist(&mut self, history: &NodeHistory, now: Timestamp) {
        let ports = LISTS.into_iter().flat_map(|metric| history.series(metric));
        let listed: BTreeSet<RdmaPort> = ports.filter_map(|(labels, _)| port_of(labels)).collect();
        // Nothing is known of its ports then.
        if listed.is_empty() {
            return;
        }
        let mut gone = std::mem::take(&mut self.present);
        self.present = listed
            .iter()
            .map(|port| (port.clone(), gone.remove(port).flatten()))
            .collect();
        let was_busy = |busy: Timestamp| now.seconds_since(busy) <= BUSY_BEFORE_SECONDS;
        let lost = gone
            .into_iter()
            .filter(|(_, busy)| busy.is_some_and(was_busy));
        self.missing.extend(lost.map(|(port, _)| (port, now)));
        self.missing.retain(|port, _| !listed.contains(port));
        // A port that took the place of another: nothing is missing.
        if listed.len() >= self.most {
            self.most = listed.len();
            self.missing.clear();
        }
    }

    /// Notes which ports receive much now.
    fn note_traffic(&mut self, history: &NodeHistory, now: Timestamp) {
        for (labels, window) in history.moving(&RDMA_PORT_RECEIVE_BYTES) {
            let rate = window.newest_increase(WINDOW_SECONDS).map(Increase::rate);
            if rate.is_some_and(|rate| rate >= BUSY)
                && let Some(busy) = port_of(labels).and_then(|port| self.present.get_mut(&port))
            {
                *busy = Some(now);
            }
        }
    }

    fn missing(&mut self, node: &NodeName, view: &View<'_>) -> impl Iterator<Item = Evidence> {
        let age = |since: Timestamp| view.now.seconds_since(since);
        self.missing.retain(|_, since| age(*since) <= KEPT_SECONDS);
        let missing = self.missing.iter();
        let missing = missing.filter(move |(_, since)| age(**since) >= MISSING_SECONDS);
        let others = self.present.len();
        missing.map(move |(port, _)| {
            let part = Part::HostLink(node.clone(), port.clone());
            Evidence {
                detector: NAME,
                signal: RDMA_PORT_UP.name,
                class: &PORT_DOWN,
                effect: 1.0,
                statement: format!(
                    "Port {port} of {node} is no longer exported; {others} other RDMA ports of the node are. It carried traffic until then."
                ),
                victims: gpus_behind(view.fabric, &part),
                related: Vec::new(),
                alike: Vec::new(),
                part,
            }
        })
    }
}

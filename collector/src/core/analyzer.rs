//! The analysis as a whole: takes up pages and sweeps, keeps the fabric, and judges it once a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, LinkId, Sightings, Timestamp, Witness};
use railscope_model::identity::{NodeName, SwitchName};
use railscope_model::reading::NodeReading;

use super::changes::{ChangeLog, Watch};
use super::detector::{DETECTORS, Detector, Evidence, View};
use super::history::{History, Ingested};
use super::incident::{Finding, Incident, Tracker};
use super::inventory::merge_node;
use super::lost::keep_lost_cables;
use crate::subnet::Subnet;
use crate::topology::{
    Routes, SubnetMerge, Verdict, assign_rails, has_cables, judge, merge_subnet, understand,
};

/// What the collector knows after one tick. Never changed once made: API and page read it while the next is made.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The moment of the tick.
    pub now: Timestamp,
    /// The graph of parts, lost cables included.
    pub fabric: Arc<Fabric>,
    /// What the fabric is, and how its hosts are wired.
    pub verdict: Arc<Verdict>,
    /// The shortest paths of the fabric, as the newest sweep shows it.
    pub routes: Arc<Routes>,
    /// What changed in the fabric lately.
    pub changes: Arc<ChangeLog>,
    /// Open incidents, worst first.
    pub incidents: Vec<Incident>,
    /// When each target was last heard.
    pub heard: BTreeMap<NodeName, Option<Timestamp>>,
    /// When the subnet was last read to the end.
    pub subnet_seen: Option<Timestamp>,
}

impl ClusterView {
    /// The incident with this id.
    pub fn incident(&self, id: &str) -> Option<&Incident> {
        self.incidents.iter().find(|incident| incident.id == id)
    }

    /// Who saw an edge and when. A witness that still shows it last saw it when it was last heard: the graph
    /// is only built anew when somebody says something else.
    pub fn sightings(&self, id: LinkId) -> Sightings {
        let Some((link, ends)) = self.fabric.link(id) else {
            return Sightings::default();
        };
        let mut seen_by = link.seen_by;
        for (witness, said) in link.seen_by.iter().filter(|(_, said)| said.current) {
            let heard = match witness {
                Witness::Exporter => ends.iter().find_map(|end| {
                    let node = self.fabric.vertex(*end).part.node()?;
                    self.heard.get(node).copied().flatten()
                }),
                Witness::Subnet => self.subnet_seen,
                Witness::Switch => None,
            };
            let at = heard.unwrap_or(said.at);
            seen_by.merge(&Sightings::by(witness, at));
        }
        seen_by
    }
}

/// Keeps history and fabric, and judges them.
pub struct Analyzer {
    history: History,
    subnet: Option<Subnet>,
    subnet_seen: Option<Timestamp>,
    /// Identity of each node when the fabric was last built.
    built_from: BTreeMap<NodeName, u64>,
    subnet_changed: bool,
    /// Whether the fabric was last built with a settled sweep, or none.
    built_settled: bool,
    fabric: Arc<Fabric>,
    verdict: Arc<Verdict>,
    routes: Arc<Routes>,
    detectors: Vec<Box<dyn Detector>>,
    tracker: Tracker,
    watch: Watch,
    /// What an earlier run knew, until there is something to hold it against.
    past: Option<Arc<Fabric>>,
}

impl Default for Analyzer {
    fn default() -> Self {
        Self {
            history: History::default(),
            subnet: None,
            subnet_seen: None,
            built_from: BTreeMap::new(),
            subnet_changed: true,
            built_settled: true,
            fabric: Arc::default(),
            verdict: Arc::new(judge(&Fabric::default(), &SubnetMerge::default())),
            routes: Arc::default(),
            detectors: DETECTORS.iter().map(|build| build()).collect(),
            tracker: Tracker::default(),
            watch: Watch::default(),
            past: None,
        }
    }
}

impl Analyzer {
    /// Starts with what an earlier run knew: cables that are not seen any more are lost, not forgotten.
    pub fn restore(&mut self, fabric: Fabric, changes: ChangeLog) {
        let fabric = Arc::new(fabric);
        self.watch = Watch::since(Arc::clone(&fabric), changes);
        self.past = Some(fabric);
    }

    /// Says which nodes there are; the others are forgotten, new ones are awaited.
    pub fn set_targets(&mut self, nodes: &[NodeName]) {
        let wanted: BTreeSet<_> = nodes.iter().collect();
        self.history.retain(|node| wanted.contains(node));
        nodes.iter().for_each(|node| {
            self.history.node_mut(node);
        });
    }

    /// Takes up a page of a node's exporter, read at `at`.
    pub fn ingest(&mut self, node: &NodeName, page: &str, at: Timestamp) -> Ingested {
        self.history.node_mut(node).ingest(page, at)
    }

    /// Takes up a node's reading as it is, without the way through text: for simulations that have no page.
    pub fn ingest_reading(&mut self, node: &NodeName, reading: &NodeReading, at: Timestamp) {
        self.history.node_mut(node).ingest_reading(reading, at);
    }

    /// Takes up what was read of a switch at `at`: rows of the catalogue's switch table.
    pub fn ingest_switch(&mut self, switch: &SwitchName, reading: &NodeReading, at: Timestamp) {
        self.history.switch_mut(switch).ingest_reading(reading, at);
    }

    /// Takes up a sweep of the subnet, read at `at`. A partial sweep never replaces a settled one: what it
    /// does not show is not gone. Nor is what is behind ports that were silent.
    pub fn take_subnet(&mut self, mut subnet: Subnet, at: Timestamp) {
        let settled = subnet.is_settled();
        if settled || self.subnet_seen.is_none() {
            let older = self.subnet.as_ref().filter(|_| self.subnet_seen.is_some());
            subnet.recall(older);
            self.subnet = Some(subnet);
            self.subnet_changed = true;
            self.subnet_seen = settled.then_some(at);
        }
    }

    /// Judges the cluster at one moment.
    pub fn tick(&mut self, now: Timestamp) -> ClusterView {
        let all_heard = self.history.nodes().all(|(_, node)| node.heard().is_some());
        let settled = self.watch.settle(all_heard, now);
        self.refresh_fabric(now, settled);
        self.watch.look(&self.fabric, now);
        self.history.forget_silent_switches(now);
        let view = View {
            fabric: &self.fabric,
            history: &self.history,
            misplaced: &self.verdict.wiring.misplaced,
            subnet_seen: self.subnet_seen,
            now,
        };
        let mut findings = Vec::new();
        for detector in &mut self.detectors {
            let mut out: Vec<Evidence> = Vec::new();
            detector.observe(&view, &mut out);
            findings.extend(out.into_iter().map(|evidence| Finding {
                explanation: detector.explain(&evidence),
                evidence,
            }));
        }
        ClusterView {
            now,
            incidents: self.tracker.tick(&self.fabric, &self.routes, findings, now),
            fabric: Arc::clone(&self.fabric),
            verdict: Arc::clone(&self.verdict),
            routes: Arc::clone(&self.routes),
            changes: self.watch.log(),
            heard: self
                .history
                .nodes()
                .map(|(node, history)| (node.clone(), history.heard()))
                .collect(),
            subnet_seen: self.subnet_seen,
        }
    }

    /// Builds the fabric anew if a node's parts or the subnet have changed since it was built.
    fn refresh_fabric(&mut self, now: Timestamp, settled: bool) {
        let identities: BTreeMap<_, _> = self
            .history
            .nodes()
            .map(|(node, history)| (node.clone(), history.identity()))
            .collect();
        let waits_for_past = self.past.is_some() && settled;
        if identities == self.built_from && !self.subnet_changed && !waits_for_past {
            return;
        }
        let mut fabric = Fabric::default();
        // Exporters first: they know a NIC's node and name for certain, the subnet only what was typed into it.
        for (node, history) in self
            .history
            .nodes()
            .filter(|(_, history)| history.heard().is_some())
        {
            merge_node(&mut fabric, node, history, now);
        }
        let seen = self.subnet_seen.unwrap_or(now);
        let merge = self
            .subnet
            .as_ref()
            .map(|subnet| merge_subnet(&mut fabric, subnet, seen));
        assign_rails(&mut fabric);
        // Judged before lost cables come back: a verdict is about what is there.
        let (verdict, routes) = understand(&fabric, &merge.unwrap_or_default());
        // What only a partial sweep has shown is not missed: half of it may have been a mistake.
        if self.built_settled {
            keep_lost_cables(&mut fabric, &self.fabric, now);
        }
        self.built_settled = self.subnet.as_ref().is_none_or(Subnet::is_settled);
        // Before cables are seen at all, those of an earlier run are not missed.
        if settled
            && self.built_settled
            && has_cables(&fabric)
            && let Some(past) = self.past.take()
        {
            keep_lost_cables(&mut fabric, &past, now);
        }
        self.fabric = Arc::new(fabric);
        self.verdict = Arc::new(verdict);
        self.routes = Arc::new(routes);
        self.built_from = identities;
        self.subnet_changed = false;
    }
}

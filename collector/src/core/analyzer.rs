//! The analysis as a whole: takes up pages and sweeps, keeps the fabric, and judges it once a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Link, LinkKind, PartId, Timestamp};
use railscope_model::identity::{NodeName, Part, SwitchName};
use railscope_model::reading::NodeReading;

use super::detector::{DETECTORS, Detector, Evidence, View};
use super::history::{History, Ingested};
use super::incident::{Finding, Incident, Tracker};
use super::inventory::merge_node;
use super::speaker::{Speaker, Subject};
use crate::subnet::Subnet;
use crate::topology::{SubnetMerge, Verdict, assign_rails, judge, merge_subnet};

/// A cable that was lost so long ago is forgotten: it was taken out, not broken.
const LOST_CABLE_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// What the collector knows after one tick. Never changed once made: API and page read it while the next is made.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The moment of the tick.
    pub now: Timestamp,
    /// The graph of parts, lost cables included.
    pub fabric: Arc<Fabric>,
    /// What the fabric is, and how its hosts are wired.
    pub verdict: Arc<Verdict>,
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
}

/// Keeps history and fabric, and judges them.
pub struct Analyzer {
    history: History,
    /// Nodes that exporters of their own were named for.
    targets: BTreeSet<NodeName>,
    /// Other nodes: those that an exporter of the whole subnet speaks of.
    spoken_of: BTreeSet<NodeName>,
    subnet: Option<Subnet>,
    subnet_seen: Option<Timestamp>,
    /// Identity of each node when the fabric was last built.
    built_from: BTreeMap<NodeName, u64>,
    subnet_changed: bool,
    /// Whether the fabric was last built with a settled sweep, or none.
    built_settled: bool,
    fabric: Arc<Fabric>,
    verdict: Arc<Verdict>,
    detectors: Vec<Box<dyn Detector>>,
    tracker: Tracker,
}

impl Default for Analyzer {
    fn default() -> Self {
        Self {
            history: History::default(),
            targets: BTreeSet::new(),
            spoken_of: BTreeSet::new(),
            subnet: None,
            subnet_seen: None,
            built_from: BTreeMap::new(),
            subnet_changed: true,
            built_settled: true,
            fabric: Arc::default(),
            verdict: Arc::new(judge(&Fabric::default(), &SubnetMerge::default())),
            detectors: DETECTORS.iter().map(|build| build()).collect(),
            tracker: Tracker::default(),
        }
    }
}

impl Analyzer {
    /// Says which nodes there are; the others are forgotten, new ones are awaited.
    pub fn set_targets(&mut self, nodes: &[NodeName]) {
        self.targets = nodes.iter().cloned().collect();
        self.spoken_of.retain(|node| !self.targets.contains(node));
        let (targets, spoken_of) = (&self.targets, &self.spoken_of);
        self.history
            .retain(|node| targets.contains(node) || spoken_of.contains(node));
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

    /// Takes up what one of several exporters says of a part, read at `at`. Those of a whole subnet
    /// (`from_afar`) are not heard on nodes that have exporters of their own: they call devices by other names.
    pub fn ingest_from(
        &mut self,
        speaker: &Speaker,
        subject: &Subject,
        reading: &NodeReading,
        at: Timestamp,
        from_afar: bool,
    ) -> Ingested {
        match subject {
            Subject::Switch(switch) => self
                .history
                .switch_mut(switch)
                .ingest_from(speaker, reading, at),
            Subject::Node(node) if from_afar && self.targets.contains(node) => Ingested {
                overruled: reading.samples().len(),
                ..Ingested::default()
            },
            Subject::Node(node) => {
                if from_afar {
                    self.spoken_of.insert(node.clone());
                }
                self.history
                    .node_mut(node)
                    .ingest_from(speaker, reading, at)
            }
        }
    }

    /// Forgets nodes that no list names and nobody has spoken of for too long.
    fn forget_unspoken(&mut self, now: Timestamp) {
        let history = &self.history;
        let silent = |node: &NodeName| history.node(node).is_none_or(|node| !node.is_fresh(now));
        let silent: BTreeSet<_> = self
            .spoken_of
            .iter()
            .filter(|node| silent(node))
            .cloned()
            .collect();
        if !silent.is_empty() {
            self.spoken_of.retain(|node| !silent.contains(node));
            self.history.retain(|node| !silent.contains(node));
        }
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
        self.refresh_fabric(now);
        self.history.forget_silent_switches(now);
        self.forget_unspoken(now);
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
            incidents: self.tracker.tick(&self.fabric, findings, now),
            fabric: Arc::clone(&self.fabric),
            verdict: Arc::clone(&self.verdict),
            heard: self
                .history
                .nodes()
                .map(|(node, history)| (node.clone(), history.heard()))
                .collect(),
            subnet_seen: self.subnet_seen,
        }
    }

    /// Builds the fabric anew if a node's parts or the subnet have changed since it was built.
    fn refresh_fabric(&mut self, now: Timestamp) {
        let identities: BTreeMap<_, _> = self
            .history
            .nodes()
            .map(|(node, history)| (node.clone(), history.identity()))
            .collect();
        if identities == self.built_from && !self.subnet_changed {
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
        let verdict = judge(&fabric, &merge.unwrap_or_default());
        // What only a partial sweep has shown is not missed: half of it may have been a mistake.
        if self.built_settled {
            keep_lost_cables(&mut fabric, &self.fabric, now);
        }
        self.built_settled = self.subnet.as_ref().is_none_or(Subnet::is_settled);
        self.fabric = Arc::new(fabric);
        self.verdict = Arc::new(verdict);
        self.built_from = identities;
        self.subnet_changed = false;
    }
}

/// Carries over cables that the older fabric had and the newer has not, unless one of their ports is in use
/// again: such a cable was moved. They keep the time at which they were last seen.
fn keep_lost_cables(fabric: &mut Fabric, older: &Fabric, now: Timestamp) {
    for (_, a, b, link) in older
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable)
    {
        if now.seconds_since(link.seen) > LOST_CABLE_KEPT_SECONDS {
            continue;
        }
        let in_use = |fabric: &Fabric, end: PartId, port: u16| {
            let id = fabric.find(&older.vertex(end).part);
            id.is_some_and(|id| {
                fabric
                    .neighbours(id)
                    .any(|near| near.link.kind == LinkKind::Cable && near.port == port)
            })
        };
        if in_use(fabric, a, link.ports.0) || in_use(fabric, b, link.ports.1) {
            continue;
        }
        let [a, b] = [a, b].map(|end| {
            let vertex = older.vertex(end);
            fabric
                .find(&vertex.part)
                .unwrap_or_else(|| fabric.upsert(vertex.part.clone(), vertex.equipment.clone()))
        });
        fabric.connect(a, b, Link::clone(link));
        restore_host(fabric, older, a);
        restore_host(fabric, older, b);
    }
}

/// A NIC that came back with its lost cable also gets its host back.
fn restore_host(fabric: &mut Fabric, older: &Fabric, nic: PartId) {
    let Part::Nic(node, _) = fabric.vertex(nic).part.clone() else {
        return;
    };
    if fabric
        .neighbours(nic)
        .any(|near| near.link.kind == LinkKind::Inside)
    {
        return;
    }
    let host = Part::Host(node);
    let Some(old) = older.find(&host) else { return };
    let inside = older
        .neighbours(old)
        .find(|near| near.link.kind == LinkKind::Inside)
        .map(|near| near.link.clone());
    if let Some(link) = inside {
        let host = fabric.upsert(host, older.vertex(old).equipment.clone());
        fabric.connect(host, nic, link);
    }
}

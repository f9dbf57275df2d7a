//! The analysis as a whole: ingests scrapes and sweeps, keeps the fabric, and evaluates it once a tick.

pub mod freshness;
pub(crate) mod ingest;
#[cfg(test)]
pub(crate) mod probe_tests;
#[cfg(test)]
pub(crate) mod switch_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Presence, Timestamp};
use railscope_model::identity::{NodeName, Part, SwitchName};
use railscope_model::plan::WiringPlan;
use railscope_model::reading::Labels;

use crate::analyzer::freshness::SourceIntervals;
use crate::assemble::build::{Built, Sources};
use crate::assemble::cable_traffic::weighed;
use crate::assemble::changes::{ChangeLog, Watch};
use crate::assemble::lldp::{DarkPorts, Switches, switch_nodes, told_by_others};
use crate::assemble::peer_settings::with_settings;
use crate::assemble::probe_targets::Probing;
use crate::assemble::retention::{Fate, has_cables_of_unknown_fate};
pub use crate::cluster_view::ClusterView;
use crate::detect::confirmation::SecondLooks;
use crate::detect::detector::{DETECTORS, Detector, Evidence, View};
use crate::detect::gpus::Gpus;
use crate::diagnose::curve::{Recorder, Seen};
use crate::diagnose::incident::{Finding, Incident};
use crate::diagnose::observer::Observer;
use crate::diagnose::pipeline::{Closed, Tracker};
use crate::diagnose::stages::job_impact::Impact;
use crate::diagnose::stages::maintenance::Window;
use crate::fabric::addresses::Addresses;
use crate::fabric::subnet::Subnet;
use crate::fabric::subnet::counters::DeviceReading;
use crate::fabric::{
    LldpMerge, Routes, SubnetMerge, Verdict, assign_rails, has_cables, judge, lint, understand,
};
use crate::jobs::collective_times::CollectiveTimes;
use crate::jobs::job::{JobTable, Jobs};
use crate::jobs::step_tails::StepTails;
use crate::jobs::straggler::{Operation, Stuck, Waiting, Waits};
use crate::store::source_id::Speaker;
use crate::store::{History, NodeHistory};

/// How long a stalled job that dumps reported is shown: long enough for an operator to see it.
const STUCK_KEPT_SECONDS: f64 = 86_400.0;

/// Keeps history and fabric, and evaluates them.
pub struct Analyzer {
    history: History,
    /// GPUs that nodes list, as of the last tick.
    gpus: Gpus,
    /// Nodes with a configured exporter.
    targets: BTreeSet<NodeName>,
    /// Other nodes: those that an exporter of the whole subnet refers to.
    spoken_of: BTreeSet<NodeName>,
    subnet: Option<Subnet>,
    subnet_seen: Option<Timestamp>,
    /// Sweeps in a row that lack the node they started from, which the known one has.
    sweeps_without_start: u32,
    source_intervals: SourceIntervals,
    /// Identity of each node when the fabric was last built.
    built_from: BTreeMap<NodeName, u64>,
    subnet_changed: bool,
    /// Readings of devices that wait for their names: the fabric has them by GUID.
    unnamed: Vec<(DeviceReading, Timestamp)>,
    switches: Switches,
    switches_changed: bool,
    /// Neighbors of switches that others' exporters report, when the fabric was last built.
    told_by_others: Vec<(SwitchName, Labels)>,
    /// Targets that are switches.
    switch_nodes: BTreeSet<NodeName>,
    dark: DarkPorts,
    second_looks: SecondLooks,
    observer: Observer,
    /// Whether the fabric has cables of unknown fate.
    has_unknown: bool,
    /// Whether the fabric was last built with a settled sweep, or none.
    built_settled: bool,
    fabric: Arc<Fabric>,
    /// How often the fabric was built.
    pub(crate) epoch: u64,
    verdict: Arc<Verdict>,
    plan: Option<WiringPlan>,
    lint: Arc<Vec<lint::Finding>>,
    lldp: Arc<LldpMerge>,
    routes: Arc<Routes>,
    probing: Arc<Probing>,
    pub(crate) addresses: Addresses,
    jobs: JobTable,
    pub(crate) waits: Waits,
    pub(crate) impact: Impact,
    step_tails: StepTails,
    collective_times: CollectiveTimes,
    stuck: BTreeMap<String, (Stuck, Timestamp)>,
    detectors: Vec<Box<dyn Detector>>,
    pub(crate) tracker: Tracker,
    recorder: Recorder,
    watch: Watch,
    /// State of an earlier run, until there is something to compare it with.
    past: Option<Arc<Fabric>>,
}

impl Default for Analyzer {
    fn default() -> Self {
        Self {
            history: History::default(),
            gpus: Gpus::default(),
            targets: BTreeSet::new(),
            spoken_of: BTreeSet::new(),
            subnet: None,
            subnet_seen: None,
            sweeps_without_start: 0,
            source_intervals: SourceIntervals::default(),
            built_from: BTreeMap::new(),
            subnet_changed: true,
            unnamed: Vec::new(),
            switches: Switches::default(),
            switches_changed: false,
            told_by_others: Vec::new(),
            switch_nodes: BTreeSet::new(),
            dark: DarkPorts::default(),
            second_looks: SecondLooks::default(),
            observer: Observer::default(),
            has_unknown: false,
            built_settled: true,
            fabric: Arc::default(),
            epoch: 0,
            verdict: Arc::new(judge(&Fabric::default(), &SubnetMerge::default())),
            plan: None,
            lint: Arc::default(),
            lldp: Arc::default(),
            routes: Arc::default(),
            probing: Arc::default(),
            addresses: Addresses::default(),
            jobs: JobTable::default(),
            waits: Waits::default(),
            impact: Impact::default(),
            step_tails: StepTails::default(),
            collective_times: CollectiveTimes::default(),
            stuck: BTreeMap::new(),
            detectors: DETECTORS.iter().map(|build| build()).collect(),
            tracker: Tracker::default(),
            recorder: Recorder::default(),
            watch: Watch::default(),
            past: None,
        }
    }
}

impl Analyzer {
    /// Starts with the state of an earlier run: cables that are no longer seen are missing, not forgotten.
    pub fn restore(&mut self, fabric: Fabric, changes: ChangeLog) {
        let fabric = Arc::new(fabric);
        self.watch = Watch::since(Arc::clone(&fabric), changes);
        self.past = Some(fabric);
    }

    /// Loads the open incidents of an earlier run.
    pub fn restore_incidents(&mut self, open: Vec<Incident>, closed: Vec<Closed>) {
        self.tracker.restore(open, closed);
    }

    /// Sets the maintenance windows, in place of those set before.
    pub fn set_maintenance(&mut self, windows: Vec<Arc<Window>>) {
        self.tracker.set_maintenance(windows);
    }

    /// What nodes and switches reported lately: for measurements of single detectors.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Sets which nodes there are; others are forgotten, new ones are awaited.
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

    /// Notes which sources of nodes are no longer targets: without data from them, a node is no less known.
    pub(crate) fn release_sources(&mut self, is_gone: impl Fn(&NodeName, &Speaker) -> bool) {
        self.history.release(is_gone);
    }

    /// Sets the wiring plan; without one, only peers show what is usual.
    pub fn set_plan(&mut self, plan: Option<WiringPlan>) {
        self.plan = plan;
        self.subnet_changed = true;
    }

    /// Nodes to scrape again [`SECOND_LOOK_SECONDS`](crate::detect::confirmation::SECOND_LOOK_SECONDS) after the
    /// scrape of `node` that was just ingested: none, unless it reports that a link is down.
    pub fn second_look(&mut self, node: &NodeName) -> BTreeSet<NodeName> {
        let said = self.history.node(node).map(|said| (node, said));
        said.map_or_else(BTreeSet::new, |said| {
            self.second_looks.after(&self.fabric, said)
        })
    }

    /// Ingests timings of collectives, and what dumps report about stalled jobs, read at `at`.
    pub fn take_collectives(
        &mut self,
        operations: Vec<Operation>,
        stuck: Vec<Stuck>,
        at: Timestamp,
    ) {
        self.collective_times.take(&operations, at);
        self.waits.take(operations, at);
        for stuck in stuck {
            self.stuck.insert(stuck.folder.clone(), (stuck, at));
        }
    }

    /// Puts readings where their devices' names belong; of adapters only those whose host has no exporter.
    fn name_readings(&mut self, now: Timestamp) {
        for (reading, at) in std::mem::take(&mut self.unnamed) {
            let id = self.fabric.find_guid(reading.guid);
            match id.map(|id| &self.fabric.vertex(id).part) {
                Some(Part::Switch(switch)) => {
                    self.history.switch_mut(switch).ingest_switch(&reading, at);
                }
                Some(Part::Nic(node, device)) => {
                    let speaks = |history: &NodeHistory| history.is_fresh(now);
                    if !self.history.node(node).is_some_and(speaks) {
                        let history = self.history.adapter_mut(node, device);
                        history.ingest_reading(&reading.as_adapter(device), at);
                    }
                }
                // Aggregation nodes and such have no part.
                _ => {}
            }
        }
        self.history.forget_silent(now);
    }

    /// What detectors saw at the tick that this is the view of, until something more is ingested.
    pub fn seen<'a>(&'a self, view: &'a ClusterView) -> View<'a> {
        View {
            fabric: &view.fabric,
            epoch: self.epoch,
            routes: &view.routes,
            addresses: &self.addresses,
            history: &self.history,
            gpus: &self.gpus,
            jobs: &view.jobs,
            waiting: &view.waiting,
            misplaced: &view.verdict.wiring.misplaced,
            subnet_seen: view.subnet_seen,
            left_out: self.tracker.left_out,
            now: view.now,
        }
    }

    /// The jobs, and the stragglers that each of them waits for.
    fn refresh_jobs(&mut self, now: Timestamp) -> (Arc<Jobs>, Arc<Vec<Waiting>>) {
        let jobs = self.jobs.refresh(&self.history, now);
        let waiting = Arc::new(self.waits.tick(&self.history, &jobs, now));
        (jobs, waiting)
    }

    /// Runs one analysis cycle.
    pub fn tick(&mut self, now: Timestamp) -> ClusterView {
        let observation = self.observer.observe(&self.history, now);
        let all_heard = self.history.nodes().all(|(_, node)| node.heard().is_some());
        let settled = self.watch.settle(all_heard, now);
        self.refresh_fabric(now, settled);
        self.watch.look(&self.fabric, now);
        self.forget_unspoken(now);
        self.name_readings(now);
        self.gpus.refresh(&self.history, now);
        let (jobs, waiting) = self.refresh_jobs(now);
        self.stuck
            .retain(|_, (_, at)| now.seconds_since(*at) <= STUCK_KEPT_SECONDS);
        let view = View {
            fabric: &self.fabric,
            epoch: self.epoch,
            routes: &self.routes,
            addresses: &self.addresses,
            history: &self.history,
            gpus: &self.gpus,
            jobs: &jobs,
            waiting: &waiting,
            misplaced: &self.verdict.wiring.misplaced,
            subnet_seen: self.subnet_seen,
            left_out: self.tracker.left_out,
            now,
        };
        let findings = findings(&mut self.detectors, &view);
        let tracker = &mut self.tracker;
        let may_open = observation.suspension.is_none();
        let seen = (self.routes.as_ref(), &self.history, &*jobs);
        let mut incidents = tracker.tick(&self.fabric, seen, findings, may_open, now);
        self.jobs.hold_up(&mut incidents);
        let costs = self.impact.tick(&self.history, &jobs, &mut incidents, now);
        let seen = Seen::of(&view);
        let curves = self.recorder.tick(seen, &incidents, |evidence| {
            let mut detectors = self.detectors.iter();
            let by = detectors.find(|detector| detector.name() == evidence.detector)?;
            by.plotted(evidence.class, evidence.signal)
        });
        ClusterView {
            now,
            observation,
            incidents,
            curves,
            tails: (self.detectors.iter().find_map(|detector| detector.tails()))
                .unwrap_or_default(),
            step_tails: self.step_tails.tick(&self.history, &jobs, now),
            collective_tails: self.collective_times.tick(&self.history, &jobs, now),
            jobs,
            waiting,
            costs,
            stuck: self.stuck.clone(),
            closed: tracker.closed(),
            maintenance: tracker.maintenance(now),
            fabric: Arc::clone(&self.fabric),
            verdict: Arc::clone(&self.verdict),
            lint: weighed(&self.lint, &self.fabric, self.plan.as_ref(), &self.history),
            lldp: Arc::clone(&self.lldp),
            switches_heard: self.switches_heard(),
            routes: Arc::clone(&self.routes),
            probing: Arc::clone(&self.probing),
            changes: self.watch.log(),
            heard: self
                .history
                .nodes()
                .filter(|(node, _)| !self.switch_nodes.contains(*node))
                .map(|(node, history)| (node.clone(), history.heard()))
                .collect(),
            freshness: self.freshness(now),
            subnet_seen: self.subnet_seen,
        }
    }

    /// Builds the fabric again if a node's parts, a switch's neighbors or the subnet have changed since it was
    /// built, or the port of a cable of unknown fate.
    fn refresh_fabric(&mut self, now: Timestamp, settled: bool) {
        let identities: BTreeMap<_, _> = self
            .history
            .nodes()
            .map(|(node, history)| (node.clone(), history.identity()))
            .collect();
        let told = told_by_others(&self.history, now);
        let dark = DarkPorts::of(&self.history, &self.switches, &self.switch_nodes, now);
        let waits_for_past = self.past.is_some() && settled;
        let changed = self.subnet_changed
            || self.switches_changed
            || waits_for_past
            || (&told, &dark) != (&self.told_by_others, &self.dark);
        if identities == self.built_from
            && !changed
            && !(self.has_unknown && self.fate(now).has_changed())
        {
            return;
        }
        (self.told_by_others, self.dark) = (told, dark);
        self.switch_nodes = switch_nodes(&self.history, &self.switches);
        let Built {
            mut fabric,
            subnet,
            lldp,
        } = self.built(now);
        // A neighbor that is no longer received while its port is up is not a missing cable: the result counts it.
        self.fate(now).keep(&mut fabric, Presence::Unknown);
        self.has_unknown = has_cables_of_unknown_fate(&fabric);
        assign_rails(&mut fabric);
        // Evaluated before lost cables come back: a result is about what is there.
        let (mut verdict, routes) = understand(&fabric, &subnet);
        lldp.temper(&mut verdict);
        let findings = lint::lint_seen(
            &fabric,
            &verdict,
            self.plan.as_ref(),
            // What is above a leaf that does not report its neighbors is not known.
            lldp.speaking_leaves == lldp.leaves.len(),
        );
        self.lint = Arc::new(with_settings(findings, &self.history));
        self.fate(now).keep(&mut fabric, Presence::Lost);
        self.built_settled = self.subnet.as_ref().is_none_or(Subnet::is_settled);
        self.take_up_past(&mut fabric, settled, now);
        self.probing = Arc::new(Probing::of(&fabric, &self.history));
        self.fabric = Arc::new(fabric);
        self.epoch += 1;
        self.verdict = Arc::new(verdict);
        self.lldp = Arc::new(lldp);
        self.routes = Arc::new(routes.with_lids(&self.fabric, self.subnet.as_ref()));
        self.built_from = identities;
        (self.subnet_changed, self.switches_changed) = (false, false);
    }

    /// The fabric, rebuilt from what its sources report now.
    pub fn built(&self, now: Timestamp) -> Built {
        let seen = self.subnet_seen.unwrap_or(now);
        let sources = Sources {
            history: &self.history,
            subnet: self.subnet.as_ref().map(|subnet| (subnet, seen)),
            switches: &self.switches,
            switch_nodes: &self.switch_nodes,
            dark: &self.dark,
            older: &self.fabric,
            now,
        };
        sources.fabric()
    }

    /// What an earlier run saw last is lost, or of unknown fate, as if this run had seen it: once there are
    /// cables to compare it with, and not while they are still being read.
    fn take_up_past(&mut self, fabric: &mut Fabric, settled: bool, now: Timestamp) {
        if !(settled && self.built_settled && has_cables(fabric)) {
            return;
        }
        let Some(past) = self.past.take() else { return };
        let fate = Fate {
            older: &past,
            ..self.fate(now)
        };
        fate.keep(fabric, Presence::Unknown);
        fate.keep(fabric, Presence::Lost);
        self.has_unknown = has_cables_of_unknown_fate(fabric);
    }

    fn fate(&self, now: Timestamp) -> Fate<'_> {
        Fate {
            older: &self.fabric,
            history: &self.history,
            switches: &self.switches,
            settled: self.built_settled,
            now,
        }
    }
}

/// What the detectors find now.
fn findings(detectors: &mut [Box<dyn Detector>], view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for detector in detectors {
        let mut out: Vec<Evidence> = Vec::new();
        detector.observe(view, &mut out);
        findings.extend(out.into_iter().map(|evidence| Finding {
            explanation: detector.explain(evidence.class, evidence.signal),
            evidence,
        }));
    }
    findings
}

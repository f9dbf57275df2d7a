//! What scrapers, analysis and API share: the newest view, the state of every target, counters of it all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;

use crate::analyzer::ClusterView;
use crate::config::{Config, Target};
use crate::diagnose::stages::maintenance::Window;
use crate::health::Health;
use crate::mapping::OWN_KIND;
use crate::record::Recorder;
use crate::serve::layout::Layout;
use crate::sources::collectives::watch::Counts;
use crate::sources::mad_sweep::Stats;
use crate::sources::push::Intake;
use crate::sources::targets::FileProblem;
use crate::store::Ingested;

/// Reads the time. The process uses the system's clock, a test its own.
pub type Clock = fn() -> Timestamp;

/// What became of one scrape: the `result` label of the scrape counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrapeResult {
    /// All samples were read.
    Ok,
    /// Some lines or samples were unusable.
    Partial,
    /// No connection, or it broke.
    Unreachable,
    /// No complete scrape body in time.
    Timeout,
    /// The response is not an exposition, or has no valid line.
    Malformed,
    /// A scrape beyond the configured size.
    TooLarge,
    /// The response has no samples.
    Empty,
    /// The response is an HTML page.
    Html,
    /// The response has no known sample.
    Unrecognized,
    /// The response is of another node.
    OtherNode,
}

impl ScrapeResult {
    /// Every result, in the order of the exposition.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Partial,
        Self::Unreachable,
        Self::Timeout,
        Self::Malformed,
        Self::TooLarge,
        Self::Empty,
        Self::Html,
        Self::Unrecognized,
        Self::OtherNode,
    ];

    /// The result as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Empty => "empty",
            Self::Html => "html",
            Self::Unrecognized => "unrecognized",
            Self::OtherNode => "other_node",
        }
    }

    /// Whether the target answered without a usable sample.
    pub fn is_unreadable(self) -> bool {
        match self {
            Self::Malformed
            | Self::TooLarge
            | Self::Empty
            | Self::Html
            | Self::Unrecognized
            | Self::OtherNode => true,
            Self::Ok | Self::Partial | Self::Unreachable | Self::Timeout => false,
        }
    }
}

/// What became of one read of the subnet: the `result` label of the sweep counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepResult {
    /// All of it was read.
    Complete,
    /// Something is missing from it.
    Partial,
    /// Nothing was read.
    Failed,
}

impl SweepResult {
    /// Every result, in the order of the exposition.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Partial, Self::Failed];

    /// The result as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

/// What became of samples: the `result` label of the sample counter.
pub const SAMPLE_RESULTS: [&str; 8] = [
    "kept",
    "unread",
    "late",
    "unknown",
    "over_limit",
    "malformed",
    "overruled",
    "unfit",
];

/// What became of questions of an own sweep: the `result` label of their counter.
pub const MAD_RESULTS: [&str; 5] = ["answered", "repeated", "unanswered", "refused", "not_asked"];

/// One exporter and how it was last reached.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TargetState {
    /// Which exporter its scrape was recognized to be, where the configuration does not specify it.
    pub recognized: Option<Arc<str>>,
    /// Result of the last scrape; `None` before the first has ended.
    pub last: Option<ScrapeResult>,
    /// Whether the last scrape brought samples; a scrape with some bad lines still does.
    pub up: bool,
    /// When a scrape was last ingested.
    pub last_ok: Option<Timestamp>,
    /// What was wrong with the last scrape.
    pub problem: Option<String>,
}

impl TargetState {
    /// Kind of the exporter: what the configuration reports, or what its scrape was recognized to
    /// be.
    pub fn exporter<'a>(&'a self, target: &'a Target) -> &'a str {
        let kind = target.kind.as_ref().or(self.recognized.as_ref());
        kind.map_or(OWN_KIND, |kind| kind)
    }
}

/// All exporters.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Whether every source of targets has been read once; before, the list is not to be trusted.
    pub known: bool,
    /// Each with its state; those of one part stand together.
    pub all: BTreeMap<Target, TargetState>,
    /// Addresses by which nodes are listed, each with the node.
    addresses: BTreeMap<NodeName, NodeName>,
}

impl Targets {
    /// Exporters of one node, also those that are listed by its address.
    pub fn of_node(&self, node: &NodeName) -> Vec<(Target, TargetState)> {
        let addresses = self.addresses.iter().filter(|(_, name)| *name == node);
        let listed = addresses
            .map(|(address, _)| address)
            .chain(std::iter::once(node));
        let targets = listed.flat_map(|node| {
            let first = Target::of_node(node.clone(), String::new());
            let from_there = self.all.range(&first..);
            from_there.take_while(move |(target, _)| target.about == first.about)
        });
        targets
            .map(|(target, state)| (target.clone(), state.clone()))
            .collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Number that respond.
    pub fn up(&self) -> usize {
        self.all.values().filter(|target| target.up).count()
    }
}

/// One finished tick with what the API derives from it.
#[derive(Debug)]
pub struct Snapshot {
    /// What the analysis reports.
    pub view: ClusterView,
    /// The fabric as displayed: built with the tick, so that no request waits for it.
    pub layout: Layout,
    /// How long the tick took.
    pub tick_seconds: f64,
}

impl Snapshot {
    /// A tick that has just ended.
    pub fn new(view: ClusterView) -> Self {
        let layout = Layout::of(&view);
        Self {
            view,
            layout,
            tick_seconds: 0.0,
        }
    }
}

/// What scrapers, analysis and API share.
#[derive(Debug)]
pub struct State {
    /// Name of the cluster.
    pub cluster: String,
    /// Address of a runbook, with `{class}`.
    pub runbook: String,
    /// Whether a source of the subnet is configured.
    pub has_subnet: bool,
    /// Configured interval of the InfiniBand sweep.
    pub subnet_interval: Option<Duration>,
    /// Whether a wiring plan was configured.
    pub has_plan: bool,
    /// Most series that the graph of the fabric may have on the metrics endpoint.
    pub graph_series: usize,
    /// The time.
    pub clock: Clock,
    /// A web page of another component on the same server: its title, and its path without a
    /// leading slash.
    pub beside: Option<(&'static str, &'static str)>,
    /// Result of what is sent by OTLP; none if nothing is sent.
    pub otlp: Option<railscope_otlp::StatsReader>,
    /// Accepts remote write; none if it is off.
    pub(crate) push: Option<Intake>,
    /// Records what the analysis receives; none if it is off.
    pub(crate) recorder: Option<Arc<Recorder>>,
    snapshot: ArcSwapOption<Snapshot>,
    targets: Mutex<Targets>,
    file_problems: Mutex<Vec<FileProblem>>,
    /// Configured interval of the analysis.
    pub analysis_interval: Duration,
    pub(crate) health: Health,
    scrapes: [AtomicU64; ScrapeResult::ALL.len()],
    sweeps: [AtomicU64; SweepResult::ALL.len()],
    samples: [AtomicU64; SAMPLE_RESULTS.len()],
    mads: Mutex<Mads>,
    dumps: Mutex<Option<Counts>>,
    /// The token that allows announcing maintenance; without one, no client may.
    pub maintenance_token: Option<Arc<str>>,
    posted: Mutex<Vec<Arc<Window>>>,
}

/// What own sweeps of the subnet cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mads {
    /// The sum of all sweeps; none before the first.
    total: Option<[u64; MAD_RESULTS.len()]>,
    /// Time of the last one, for shape, counters and forwarding tables.
    pub last: [Duration; 3],
}

impl Mads {
    /// Questions by what became of them; nothing before the first sweep.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.total.into_iter().flatten();
        MAD_RESULTS.into_iter().zip(counts)
    }
}

impl State {
    /// The state before anything has happened.
    pub fn new(config: &Config, clock: Clock) -> Self {
        Self {
            cluster: config.cluster.clone(),
            runbook: config.runbook.clone(),
            has_subnet: config.subnet.is_some(),
            subnet_interval: config.subnet.as_ref().map(|subnet| subnet.interval),
            has_plan: config.plan.is_some(),
            graph_series: config.graph_series,
            clock,
            beside: None,
            otlp: None,
            push: None,
            recorder: None,
            snapshot: ArcSwapOption::empty(),
            targets: Mutex::default(),
            file_problems: Mutex::default(),
            analysis_interval: config.analysis_interval,
            health: Health::default(),
            scrapes: Default::default(),
            sweeps: Default::default(),
            samples: Default::default(),
            mads: Mutex::default(),
            dumps: Mutex::default(),
            maintenance_token: config.maintenance_token.clone(),
            posted: Mutex::default(),
        }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The newest tick; `None` before the first has ended.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    /// Work that was announced over the API.
    pub fn posted(&self) -> MutexGuard<'_, Vec<Arc<Window>>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a tick the newest.
    pub fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Some(Arc::new(snapshot)));
    }

    /// All targets. Hold it briefly: scrapers wait for it.
    pub fn targets(&self) -> MutexGuard<'_, Targets> {
        // A panic elsewhere leaves complete entries behind, so the list is still consistent.
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list of scraped targets; those that stay keep what is known of them.
    pub fn set_targets(&self, targets: &[Target], known: bool) {
        self.targets().known |= known;
        self.replace_targets(targets, false);
    }

    /// Sets the addresses by which nodes are listed, each with the node.
    pub(crate) fn set_addresses(&self, addresses: &BTreeMap<NodeName, NodeName>) {
        self.targets().addresses.clone_from(addresses);
    }

    /// Sets the problems of target files.
    pub fn set_file_problems(&self, problems: Vec<FileProblem>) {
        *self.file_problems() = problems;
    }

    /// The problems of target files.
    pub fn file_problems(&self) -> MutexGuard<'_, Vec<FileProblem>> {
        self.file_problems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list of targets whose samples are pushed.
    pub fn set_pushed_targets(&self, targets: &[Target]) {
        self.replace_targets(targets, true);
    }

    fn replace_targets(&self, targets: &[Target], pushed: bool) {
        let mut guard = self.targets();
        let is_replaced = |target: &Target| target.is_pushed() == pushed;
        let (mut old, others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut guard.all)
            .into_iter()
            .partition(|(target, _)| is_replaced(target));
        guard.all = others;
        let new = targets.iter();
        let new = new.map(|target| (target.clone(), old.remove(target).unwrap_or_default()));
        guard.all.extend(new);
        let gone = old.len() as u64;
        self.health
            .targets_removed
            .fetch_add(gone, Ordering::Relaxed);
    }

    /// Counts a scrape and notes it at its target. `taken_up` reports that samples came out of it.
    /// Returns whether its result is another than that of the scrape before.
    pub fn record_scrape(
        &self,
        target: &Target,
        result: ScrapeResult,
        taken_up: Option<Timestamp>,
        problem: Option<String>,
    ) -> bool {
        self.scrapes[result as usize].fetch_add(1, Ordering::Relaxed);
        let mut targets = self.targets();
        let Some(state) = targets.all.get_mut(target) else {
            return false;
        };
        let before = state.last.replace(result);
        state.up = taken_up.is_some();
        state.last_ok = taken_up.max(state.last_ok);
        state.problem = problem;
        before != Some(result)
    }

    /// Notes which exporter a target was recognized to be.
    pub fn record_kind(&self, target: &Target, kind: &Arc<str>) {
        if let Some(state) = self.targets().all.get_mut(target) {
            state.recognized = Some(Arc::clone(kind));
        }
    }

    /// Counts what became of the samples of a scrape.
    pub fn record_samples(&self, ingested: &Ingested) {
        let counts = [
            ingested.kept,
            ingested.unread,
            ingested.late,
            ingested.unknown,
            ingested.over_limit,
            ingested.malformed,
            ingested.overruled,
            ingested.unfit,
        ];
        for (counter, count) in self.samples.iter().zip(counts) {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Counts a read of the subnet.
    pub fn record_sweep(&self, result: SweepResult) {
        self.sweeps[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what an own sweep cost.
    pub fn record_mads(&self, stats: &Stats) {
        let counts = [
            stats.answered,
            stats.repeated,
            stats.unanswered,
            stats.refused,
            stats.not_asked,
        ];
        let mut mads = self.mads.lock().unwrap_or_else(PoisonError::into_inner);
        let total = mads.total.get_or_insert_default();
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
        mads.last = [stats.discovery, stats.counters, stats.forwarding];
    }

    /// What own sweeps cost so far.
    pub fn mads(&self) -> Mads {
        *self.mads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was read of the folder of dumps so far.
    pub fn record_dumps(&self, counts: Counts) {
        *self.dumps.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// What was read of the folder of dumps so far; none without a folder.
    pub fn dumps(&self) -> Option<Counts> {
        self.dumps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Scrapes by result.
    pub fn scrapes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let labels = ScrapeResult::ALL.map(ScrapeResult::as_str);
        labels.into_iter().zip(self.scrapes.iter().map(read))
    }

    /// Reads of the subnet by result.
    pub fn sweeps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let labels = SweepResult::ALL.map(SweepResult::as_str);
        labels.into_iter().zip(self.sweeps.iter().map(read))
    }

    /// Samples by result.
    pub fn samples(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SAMPLE_RESULTS
            .into_iter()
            .zip(self.samples.iter().map(read))
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

//! One run: the simulated cluster, its scrapes, the collector's own analysis, and the baselines beside
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::classes::Severity;
use railscope_collector::detect::confirmation::SECOND_LOOK_SECONDS;
use railscope_collector::diagnose::incident::Incident;
use railscope_collector::diagnose::stages::maintenance::Window;
use railscope_collector::fabric::Told;
use railscope_collector::fabric::addresses::Addresses;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::fabric::subnet::{
    Forwarding, Subnet, parse_forwarding, parse_ibnetdiscover,
};
use railscope_collector::stages::LeftOut;
use railscope_model::exposition::{Format, Page};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, SwitchName};
use railscope_model::metric::Profile;
use railscope_model::reading::NodeReading;
use railscope_simulator::cluster::{Cluster, Maintenance};
use railscope_simulator::show::forwarding::dump_fts;
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::lldp;
use railscope_simulator::show::readings::{Exporters, addresses};
use railscope_simulator::spec::Transport;
use railscope_simulator::wiring::{Tier, Wiring};
use rustix::time::{ClockId, clock_gettime};

use super::ablations::Ablation;
use super::alarm::{Alarm, AlarmLog, Level, Naming};
use super::baselines::{BASELINES, Baseline};
use super::delivery::{Post, TURNS};
use super::draw::Plan;
use super::frame::{Frame, Layout};
use super::judge::Event;
use super::rounds::Rounds;

/// Start time of every run: arbitrary but fixed, for reproducible bytes.
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Ticks without a report after which a baseline's alarm ends, as for the collector's own.
const BASELINE_HOLD_TICKS: u32 = railscope_collector::diagnose::incident::CLOSE_AFTER_TICKS;

/// What is the same in every run.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Time between two scrapes, if it is not the scenario's own.
    pub(super) tick_seconds: Option<f64>,
    /// Whether readings go to the collector as scrape bodies, as in production, or directly.
    pub(super) through_text: bool,
    /// Methods that are evaluated beside the collector's own.
    pub(super) ablations: Vec<Ablation>,
}

/// What happened in a run and what was reported about it.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Simulated time.
    pub(super) seconds: f64,
    /// The truth.
    pub(super) events: Vec<Event>,
    /// What the site's people worked on.
    pub(super) maintenance: Vec<Maintenance>,
    /// Alarms of the collector, then of it without steps of its method, then of each baseline.
    pub(super) alarms: Vec<Vec<Alarm>>,
    /// Kinds of switches, by name.
    pub(super) tiers: HashMap<SwitchName, &'static str>,
    /// Where the processor's time went.
    pub(super) spent: Spent,
}

/// Processor time, by what it went to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    /// Moving the cluster on, and making readings of it.
    pub(super) simulator: Duration,
    /// Writing scrapes, if there are any, and taking readings up.
    pub(super) ingest: Duration,
    /// Writing and reading what the fabric reports about its cables.
    pub(super) subnet: Duration,
    /// Ticks of the analysis.
    pub(super) analysis: Duration,
    /// Everything for the baselines.
    pub(super) baselines: Duration,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.simulator += other.simulator;
        self.ingest += other.ingest;
        self.subnet += other.subnet;
        self.analysis += other.analysis;
        self.baselines += other.baselines;
    }
}

/// Processor time of this thread so far: other programs' time does not count, nor that of
/// other threads while a fabric is built.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// Adds the time since the start, and restarts.
fn spend(into: &mut Duration, since: &mut Duration) {
    let now = processor_time();
    *into += now.saturating_sub(*since);
    *since = now;
}

/// Makes a run.
///
/// # Errors
/// The scenario describes what cannot be.
pub(super) fn run(plan: &Plan<'_>, settings: &Settings) -> anyhow::Result<Outcome> {
    let scenario = plan.scenario;
    let mut cluster = plan.cluster()?;
    let events = plan.inject(&mut cluster)?;
    let layout = Arc::new(Layout::of(&cluster));
    let tick_seconds = settings.tick_seconds.unwrap_or(scenario.tick_seconds);
    let ticks = (scenario.duration_seconds / tick_seconds).floor() as u64;
    let duration = scenario.duration_seconds;
    let post = Post::new(scenario.delivery, plan.seed, &mut cluster, duration);
    let maintenance = cluster.maintenance(duration);
    let rounds = Rounds::new(plan.seed, scenario.delivery.switch_skew_seconds);
    let mut watch = Watch::new(&cluster, &layout, (post, rounds), &settings.ablations);
    if let Some(probing) = scenario.probes {
        watch.exporters = watch.exporters.probing(&cluster, probing);
    }
    for (analyzer, _) in &mut watch.methods {
        analyzer.set_maintenance(announced(&maintenance));
        analyzer.set_addresses(known_addresses(cluster.plan()));
    }
    let mut swept = f64::NEG_INFINITY;
    for tick in 0..=ticks {
        let seconds = tick as f64 * tick_seconds;
        watch.frame.begin(seconds);
        let turn_seconds = tick_seconds / TURNS as f64;
        for turn in 0..TURNS {
            let at = seconds - (TURNS - 1 - turn) as f64 * turn_seconds;
            let mut since = processor_time();
            cluster.advance(Duration::from_secs_f64(at.max(0.0)));
            watch.post.upset(&mut cluster, at - turn_seconds, at);
            watch.exporters.probe(&cluster);
            spend(&mut watch.spent.simulator, &mut since);
            let again = watch.scrape(&cluster, (tick, turn, at.max(0.0)), settings.through_text);
            let wait = (SECOND_LOOK_SECONDS / turn_seconds).ceil() as u64;
            watch.ask_again(&again, TURNS * tick + turn + wait);
        }
        watch.finish(&cluster);
        if seconds - swept >= scenario.subnet_seconds {
            swept = seconds;
            watch.sweep(&cluster, seconds);
        }
        if scenario.switch_counters {
            watch.read_switches(&cluster, seconds);
        }
        watch.judge(seconds);
    }
    Ok(Outcome {
        seconds: ticks as f64 * tick_seconds,
        events,
        maintenance,
        tiers: tiers(cluster.plan()),
        spent: watch.spent,
        alarms: (watch.methods.into_iter().map(|(_, log)| log))
            .chain(watch.baselines.into_iter().map(|(_, log)| log))
            .map(AlarmLog::finish)
            .collect(),
    })
}

/// What a site writes into its configuration of its switches' addresses.
pub(crate) fn known_addresses(plan: &Wiring) -> Addresses {
    let all = addresses(plan);
    all.map(|(address, switch, port)| (address, (switch, Some(port))))
        .collect()
}

/// The site's maintenance windows, as announced to the collector before they begin.
fn announced(maintenance: &[Maintenance]) -> Vec<Arc<Window>> {
    let window = |work: &Maintenance| Window {
        parts: work.parts.iter().cloned().map(Into::into).collect(),
        from: START.plus_seconds(work.seconds.0),
        until: START.plus_seconds(work.seconds.1),
        why: String::from("work of the site"),
    };
    maintenance.iter().map(window).map(Arc::new).collect()
}

/// The current forwarding tables of a subnet; those already read are valid until its cables change.
fn forwarding(cluster: &Cluster, known: Option<Forwarding>, at: Timestamp) -> Option<Forwarding> {
    let read = || dump_fts(cluster).map(|text| Arc::new(parse_forwarding(&text).tables));
    let tables = known.map(|known| known.tables).or_else(read)?;
    let read_at = at;
    Some(Forwarding { tables, read_at })
}

/// What a switch reports about its neighbors, or why it does not.
type Words = Result<Told, String>;

/// All detectors that observe the cluster.
struct Watch {
    exporters: Exporters,
    post: Post,
    rounds: Rounds,
    /// The collector's own method first, then those without some of its steps.
    methods: Vec<(Analyzer, AlarmLog)>,
    subnet: Option<(Wiring, Subnet)>,
    told: Option<(Wiring, BTreeMap<SwitchName, Words>)>,
    frame: Frame,
    baselines: Vec<(Box<dyn Baseline>, AlarmLog)>,
    spent: Spent,
}

impl Watch {
    fn new(
        cluster: &Cluster,
        layout: &Arc<Layout>,
        (post, rounds): (Post, Rounds),
        ablations: &[Ablation],
    ) -> Self {
        let exporters = Exporters::of(cluster);
        let readings = exporters.read(cluster).map(|(_, reading)| reading);
        let readings: Vec<_> = readings.collect();
        let method = |left_out: LeftOut| {
            let mut analyzer = Analyzer::default();
            analyzer.set_targets(exporters.names());
            analyzer.leave_out(left_out);
            // The collector itself keeps incidents that come and go open.
            (analyzer, AlarmLog::new(1))
        };
        let left_out = ablations.iter().map(|ablation| ablation.left_out);
        let methods = std::iter::once(LeftOut::default()).chain(left_out);
        let methods = methods.map(method).collect();
        let baseline = |rule: &super::baselines::Rule| {
            let log = AlarmLog::new(BASELINE_HOLD_TICKS);
            ((rule.build)(Arc::clone(layout)), log)
        };
        Self {
            exporters,
            post,
            rounds,
            methods,
            subnet: None,
            told: None,
            frame: Frame::new(layout, cluster, &readings),
            baselines: BASELINES.iter().map(baseline).collect(),
            spent: Spent::default(),
        }
    }

    /// Reads what the fabric reports about its cables as production does: as text. Text of the same cables
    /// is not parsed twice.
    fn sweep(&mut self, cluster: &Cluster, seconds: f64) {
        let mut since = processor_time();
        let at = START.plus_seconds(seconds);
        match cluster.spec().transport {
            Transport::Infiniband => self.sweep_subnet(cluster, at),
            Transport::Roce => self.ask_switches(cluster, at),
            // Its fabric is not visible.
            Transport::Efa => {}
        }
        spend(&mut self.spent.subnet, &mut since);
    }

    /// What Ethernet switches receive by LLDP. A switch that is down does not respond.
    fn ask_switches(&mut self, cluster: &Cluster, at: Timestamp) {
        let wiring = cluster.wiring();
        if self.told.as_ref().is_none_or(|(last, _)| last != wiring) {
            let silent = |switch: &SwitchName| (switch.clone(), Err(String::from("no answer")));
            let names = wiring.switches.iter().map(|switch| silent(&switch.name));
            let mut told: BTreeMap<_, _> = names.collect();
            for (switch, text) in lldp::switches(cluster) {
                told.insert(switch, parse_neighbors(&text));
            }
            self.told = Some((wiring.clone(), told));
        }
        for (switch, told) in self.told.iter().flat_map(|(_, told)| told) {
            for (analyzer, _) in &mut self.methods {
                analyzer.take_switch(switch, told.clone(), at);
            }
        }
    }

    fn sweep_subnet(&mut self, cluster: &Cluster, at: Timestamp) {
        let wiring = cluster.wiring();
        let changed = self.subnet.as_ref().is_none_or(|(last, _)| last != wiring);
        let is_first = self.subnet.is_none();
        if changed {
            let subnet = parse_ibnetdiscover(&ibnetdiscover(wiring, at));
            self.subnet = Some((wiring.clone(), subnet));
        }
        if let Some((_, subnet)) = &mut self.subnet {
            // As an own sweep: not in the one that sees a change.
            if is_first || !changed {
                subnet.forwarding = forwarding(cluster, subnet.forwarding.take(), at);
            }
            for (analyzer, _) in &mut self.methods {
                analyzer.take_subnet(subnet.clone(), at);
            }
        }
    }

    /// Scrapes the nodes that are due, and returns those for which the collector requests
    /// confirmation scrapes.
    fn scrape(
        &mut self,
        cluster: &Cluster,
        (tick, turn, seconds): (u64, u64, f64),
        through_text: bool,
    ) -> BTreeSet<NodeName> {
        let mut since = processor_time();
        let mut again = BTreeSet::new();
        for number in self.post.nodes_at(TURNS * tick + turn) {
            let read = || self.exporters.read_one(number, cluster);
            // A node that is switched off does not respond.
            let pages = if cluster.nodes()[number].away {
                Vec::new()
            } else {
                self.post.pages(number, (tick, seconds), read)
            };
            let stamp = self.post.stamp(number, seconds);
            let at = START.plus_seconds(stamp);
            spend(&mut self.spent.simulator, &mut since);
            for reading in pages {
                self.frame.take(number, &reading, stamp);
                spend(&mut self.spent.baselines, &mut since);
                let name = &self.exporters.names()[number];
                if through_text {
                    let page = page(reading);
                    for (analyzer, _) in &mut self.methods {
                        analyzer.ingest(name, &page, at);
                    }
                } else {
                    for (analyzer, _) in &mut self.methods {
                        analyzer.ingest_reading(name, &reading, at);
                    }
                }
                let own = self.methods.first_mut();
                again.extend(own.into_iter().flat_map(|(one, _)| one.second_look(name)));
                spend(&mut self.spent.ingest, &mut since);
            }
        }
        again
    }

    /// Requests confirmation scrapes of nodes.
    fn ask_again(&mut self, nodes: &BTreeSet<NodeName>, moment: u64) {
        let names = self.exporters.names().iter().enumerate();
        for (number, _) in names.filter(|(_, name)| nodes.contains(*name)) {
            self.post.ask_again(number, moment);
        }
    }

    /// What the baselines see beside scrapes.
    fn finish(&mut self, cluster: &Cluster) {
        let mut since = processor_time();
        self.frame.finish(cluster);
        spend(&mut self.spent.baselines, &mut since);
    }

    /// Ingests what switches have counted.
    fn read_switches(&mut self, cluster: &Cluster, seconds: f64) {
        let mut since = processor_time();
        let at = START.plus_seconds(seconds);
        for (switch, reading) in self.rounds.read(cluster, seconds) {
            spend(&mut self.spent.simulator, &mut since);
            for (analyzer, _) in &mut self.methods {
                analyzer.ingest_switch(&switch, &reading, at);
            }
            spend(&mut self.spent.ingest, &mut since);
        }
    }

    /// Lets everybody evaluate what was ingested.
    fn judge(&mut self, seconds: f64) {
        let mut since = processor_time();
        let at = START.plus_seconds(seconds);
        for (analyzer, log) in &mut self.methods {
            log.tick(seconds, namings(&analyzer.tick(at)));
        }
        spend(&mut self.spent.analysis, &mut since);
        for (baseline, log) in &mut self.baselines {
            log.tick(seconds, baseline.observe(&self.frame));
        }
        spend(&mut self.spent.baselines, &mut since);
    }
}

/// The exposition that the exporter would serve.
fn page(mut reading: NodeReading) -> String {
    reading.normalize();
    Page::new(Arc::new(reading)).write(Format::OpenMetrics, Profile::Full)
}

/// The collector's incidents. Alertmanager's example configuration pages for the critical ones.
fn namings(view: &ClusterView) -> Vec<Naming> {
    let naming = |incident: &Incident| Naming {
        part: incident.root.clone(),
        instead: instead(incident),
        class: Some(incident.class.name),
        level: match incident.severity {
            Severity::Critical => Level::Page,
            Severity::Warning => Level::Ticket,
        },
        posterior: Some(incident.posterior),
        announced: incident.maintenance.is_some(),
        // The order of the web page: by severity, then by GPUs that it delays, then by those behind
        // the part.
        score: incident.gpus_affected as f64 + 1e-6 * incident.gpus_behind().count() as f64,
    };
    view.incidents.iter().map(naming).collect()
}

/// The parts that it may be instead of the one that it names.
fn instead(incident: &Incident) -> Vec<Part> {
    let others = incident.weighed.iter().flat_map(|one| &one.candidates);
    let others = others.map(|one| one.part.clone());
    others.filter(|part| *part != incident.root).collect()
}

fn tiers(plan: &Wiring) -> HashMap<SwitchName, &'static str> {
    let tier = |tier| match tier {
        Tier::Leaf { .. } => "leaf",
        Tier::Spine => "spine",
        Tier::Core => "core",
        Tier::Router { .. } => "router",
    };
    let switches = plan.switches.iter();
    switches
        .map(|switch| (switch.name.clone(), tier(switch.tier)))
        .collect()
}

impl Outcome {
    /// The kind of a part, with the tier of a switch.
    pub(super) fn tier(&self, part: &Part) -> &'static str {
        match part {
            Part::Switch(name) => self.tiers.get(name).copied().unwrap_or("switch"),
            _ => part.class(),
        }
    }
}

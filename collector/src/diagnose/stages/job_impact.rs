//! What faults cost jobs: the throughput of each relative to its baseline, and the GPU-seconds that
//! it loses by part and class. A fault that slows no job does not page: it can wait for working hours.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::metric::{
    GPU_CLOCK, GPU_UTILIZATION, RDMA_PORT_TRANSMIT_BYTES, WORKLOAD_DEVICES,
};

use crate::classes::signs::is_of_clock;
use crate::classes::{
    Class, GPU_SLOW, HOST_COOLING, HOST_POWER, NUMA_AFFINITY, PCIE_REDIRECTED, SLOW_RECEIVER,
    SWITCH_QOS, Severity,
};
use crate::detect::gpus::any_is_busy;
use crate::diagnose::incident::{Incident, worst_first};
use crate::jobs::job::{Job, JobName, Jobs};
use crate::jobs::tensor_activity::active_share;
use crate::stages::{LeftOut, Step};
use crate::store::{History, Increase, NodeHistory, Window};

/// Slowdown from which a job is delayed: its steps are that much longer than usual.
pub const MIN_SLOWDOWN: f64 = 0.05;
/// Time over which the baseline throughput is a median.
const USUAL_SECONDS: f64 = 30.0 * 60.0;
/// A job that was watched for less has no baseline yet: it is launched, loads its data, and warms up.
const MIN_USUAL_SECONDS: f64 = 5.0 * 60.0;
/// Time over which the current throughput is measured, seconds: several steps, and not half a
/// checkpoint.
const NOW_SECONDS: f64 = 30.0;
/// Time between two samples of the throughput.
const POINT_SECONDS: f64 = 10.0;
/// Nodes of a job that are sampled, evenly spread: its ranks progress at the same rate.
const SAMPLED_NODES: usize = 64;
/// Bytes a second from which the ports of a job show its throughput; with less its GPUs do.
const MIN_RATE: f64 = 1e8;
/// Longest time between two ticks that counts as lost: a longer gap was not observed.
const MOST_SECONDS: f64 = 60.0;
/// How long what a job has lost is reported after its end: long enough for every scrape.
const ENDED_SECONDS: f64 = 3600.0;

/// Utilization below which a GPU does nothing: monitoring alone can show a percent or two (a choice).
const MOST_UNUSED: f64 = 0.05;
/// For how long GPUs that do nothing are idle: between two phases of a job they do nothing for less (a choice).
pub(crate) const IDLE_SECONDS: f64 = 60.0;

/// Classes of parts that continue more slowly. They page if a job is delayed; all others
/// are hard: a part that is missing, or runs at a lower rate or width, pages at once.
const SOFT: [&Class; 7] = [
    &GPU_SLOW,
    &HOST_POWER,
    &HOST_COOLING,
    &PCIE_REDIRECTED,
    &NUMA_AFFINITY,
    &SLOW_RECEIVER,
    &SWITCH_QOS,
];

/// Source of a job's throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Bytes that its ports send.
    Ports,
    /// Work of its GPUs' tensor cores: time active, times clock.
    Gpus,
}

/// Throughput of one job.
#[derive(Debug, Default)]
struct Pace {
    measure: Option<Measure>,
    points: VecDeque<(Timestamp, f64)>,
    now: Option<f64>,
}

impl Pace {
    /// Measures the current throughput; it becomes part of the baseline unless the job is delayed.
    fn look(&mut self, job: &Job, history: &History, now: Timestamp, held_up: bool) {
        let newest = match self.measure {
            Some(measure) => measured(job, history, measure),
            None => {
                let ports = measured(job, history, Measure::Ports).filter(|rate| *rate >= MIN_RATE);
                self.measure = Some(ports.map_or(Measure::Gpus, |_| Measure::Ports));
                ports.or_else(|| measured(job, history, Measure::Gpus))
            }
        };
        self.now = newest;
        if self.points.is_empty() && newest.is_none_or(|pace| pace <= 0.0) {
            // It has not begun: another measure may report more when it does.
            self.measure = None;
            return;
        }
        let due = |(at, _): &(Timestamp, f64)| now.seconds_since(*at) >= POINT_SECONDS;
        if let Some(pace) = newest
            && self.points.back().is_none_or(due)
            && !(held_up && self.is_slow())
        {
            self.points.push_back((now, pace));
        }
        let old = |(at, _): &(Timestamp, f64)| now.seconds_since(*at) > USUAL_SECONDS;
        // While it is delayed nothing new comes, and what was usual stays.
        while self.points.len() > 1 && !held_up && self.points.front().is_some_and(old) {
            self.points.pop_front();
        }
    }

    /// The current throughput as a share of the baseline; none while that is unknown.
    fn speed(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?.0, self.points.back()?.0);
        let mut paces: Vec<f64> = self.points.iter().map(|(_, pace)| *pace).collect();
        if last.seconds_since(first) < MIN_USUAL_SECONDS {
            return None;
        }
        let middle = paces.len() / 2;
        let usual = *paces.select_nth_unstable_by(middle, f64::total_cmp).1;
        (usual > 0.0).then(|| Some(self.now? / usual))?
    }

    fn is_slow(&self) -> bool {
        self.speed()
            .is_some_and(|speed| speed <= 1.0 - MIN_SLOWDOWN)
    }
}

/// Median over the sampled nodes of a job; none if nothing is reported.
fn measured(job: &Job, history: &History, measure: Measure) -> Option<f64> {
    let step = job.nodes.len().div_ceil(SAMPLED_NODES).max(1);
    let mut values = Vec::new();
    for node in job.nodes.keys().step_by(step) {
        let Some(said) = history.node(node) else {
            continue;
        };
        match measure {
            Measure::Ports => {
                let nics = job.nics.get(node);
                for (labels, sent) in said.series(&RDMA_PORT_TRANSMIT_BYTES) {
                    let device = labels.values().next();
                    if device.is_some_and(|device| nics.is_some_and(|nics| nics.contains(device))) {
                        values.extend(sent.increase(NOW_SECONDS).map(Increase::rate));
                    }
                }
            }
            Measure::Gpus => {
                for gpu in job.nodes.get(node).into_iter().flatten() {
                    values.extend(work(said, &gpu.to_string()));
                }
            }
        }
    }
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// What a GPU's tensor cores did lately.
fn work(said: &NodeHistory, gpu: &str) -> Option<f64> {
    let active = active_share(said, gpu, NOW_SECONDS)?;
    let work = active * said.value(&GPU_CLOCK, &[gpu, "sm"])?;
    work.is_finite().then_some(work)
}

/// GPU-seconds that a job has lost to one part.
#[derive(Debug, Clone, PartialEq)]
pub struct Lost {
    /// The job.
    pub job: JobName,
    /// The fault domain; empty where no incident explains that the job is slower than usual.
    pub fault_domain: String,
    /// The class; `unexplained` where no incident does.
    pub class: &'static str,
    /// How many since the collector was started.
    pub gpu_seconds: f64,
}

/// Cost of faults, as of one tick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Costs {
    /// By job: its throughput as a share of its baseline, of those that are known.
    pub speeds: BTreeMap<JobName, f64>,
    /// What has been lost so far, by job, fault domain and class.
    pub lost: Vec<Lost>,
}

/// Class of what no incident explains.
const UNEXPLAINED: &str = "unexplained";

/// Follows what faults cost.
#[derive(Debug, Default)]
pub struct Impact {
    paces: BTreeMap<JobName, Pace>,
    lost: BTreeMap<(JobName, String, &'static str), (f64, Timestamp)>,
    /// Incidents that have paged: an incident that has paged stays critical until it resolves.
    paged: BTreeSet<String>,
    /// Incidents that no known job waits for, with whether their node was idle when they began: it may become stale, and its
    /// GPUs stop.
    idle: BTreeMap<String, bool>,
    last: Option<Timestamp>,
    /// Steps that are omitted.
    pub(crate) left_out: LeftOut,
}

impl Impact {
    /// Measures all jobs, removes the pages of incidents that delay no job, and counts what is lost.
    pub fn tick(
        &mut self,
        history: &History,
        jobs: &Jobs,
        incidents: &mut [Incident],
        now: Timestamp,
    ) -> Costs {
        self.paces.retain(|job, _| jobs.get(job).is_some());
        let held: BTreeSet<&JobName> = incidents.iter().flat_map(|one| &one.jobs).collect();
        for job in jobs.iter() {
            let pace = self.paces.entry(JobName::clone(&job.name)).or_default();
            pace.look(job, history, now, held.contains(&job.name));
        }
        let speeds: BTreeMap<JobName, f64> = self
            .paces
            .iter()
            .filter_map(|(job, pace)| Some((JobName::clone(job), pace.speed()?)))
            .collect();
        self.gate((history, now), jobs, &speeds, incidents);
        self.count(jobs, &speeds, incidents, now);
        Costs {
            speeds,
            lost: self
                .lost
                .iter()
                .map(|((job, fault_domain, class), (gpu_seconds, _))| Lost {
                    job: JobName::clone(job),
                    fault_domain: fault_domain.clone(),
                    class,
                    gpu_seconds: *gpu_seconds,
                })
                .collect(),
        }
    }

    /// Sets how much each incident delays jobs, and keeps a page only where that must not wait. Missing data never
    /// lowers the severity.
    fn gate(
        &mut self,
        (history, now): (&History, Timestamp),
        jobs: &Jobs,
        speeds: &BTreeMap<JobName, f64>,
        incidents: &mut [Incident],
    ) {
        let open: BTreeSet<&String> = incidents.iter().map(|incident| &incident.id).collect();
        self.paged.retain(|id| open.contains(id));
        self.idle.retain(|id, _| open.contains(id));
        for incident in &mut *incidents {
            let known = incident.jobs.iter().filter_map(|job| speeds.get(job));
            let slowdown = known.map(|speed| (1.0 - speed).max(0.0)).reduce(f64::max);
            incident.slowdown = slowdown;
            let judged = !self.left_out.has(Step::ImpactGate);
            if !judged
                || incident.severity != Severity::Critical
                || self.paged.contains(&incident.id)
            {
                continue;
            }
            let all_known = incident.jobs.iter().all(|job| speeds.contains_key(job));
            let holds_up = slowdown.is_none_or(|slowdown| slowdown >= MIN_SLOWDOWN) || !all_known;
            let hurts = if incident.jobs.is_empty() {
                let idle = self.idle.entry(incident.id.clone());
                !*idle.or_insert_with(|| is_idle(incident, history, jobs, now))
                    && !is_small(incident)
            } else {
                !is_soft(incident) || (holds_up && !(slowdown.is_none() && is_small(incident)))
            };
            if hurts {
                self.paged.insert(incident.id.clone());
            } else {
                incident.severity = Severity::Warning;
            }
        }
        worst_first(incidents);
    }

    /// Adds what jobs have lost since the last tick, each to the worst incident that it waits for.
    fn count(
        &mut self,
        jobs: &Jobs,
        speeds: &BTreeMap<JobName, f64>,
        incidents: &[Incident],
        now: Timestamp,
    ) {
        let since = self
            .last
            .replace(now)
            .map_or(0.0, |last| now.seconds_since(last));
        let seconds = since.clamp(0.0, MOST_SECONDS);
        for (name, speed) in speeds {
            if *speed > 1.0 - MIN_SLOWDOWN {
                continue;
            }
            let gpus = jobs.get(name).map_or(0, Job::gpus) as f64;
            let cause = incidents
                .iter()
                .find(|incident| incident.jobs.contains(name));
            let key = cause.map_or((String::new(), UNEXPLAINED), |incident| {
                (incident.root.to_string(), incident.class.name)
            });
            let key = (JobName::clone(name), key.0, key.1);
            let (lost, at) = self.lost.entry(key).or_insert((0.0, now));
            *lost += (1.0 - speed).max(0.0) * gpus * seconds;
            *at = now;
        }
        self.lost.retain(|(job, ..), (_, at)| {
            jobs.get(job).is_some() || now.seconds_since(*at) <= ENDED_SECONDS
        });
    }
}

/// Whether a job may have its usual throughput: the part works, or others carry its load. A class that is a ticket by itself is
/// critical for other findings, and hard if one of these is.
fn is_soft(incident: &Incident) -> bool {
    let findings = incident.findings.iter().map(|found| &found.evidence);
    let mut paging = findings.filter(|own| own.severity() == Severity::Critical);
    let is_ticket = incident.class.severity == Severity::Warning;
    SOFT.contains(&incident.class)
        || matches!(incident.root, Part::SwitchLink(..))
        || (is_ticket && paging.all(|own| SOFT.contains(&own.class)))
}

/// Whether all that is known to be lost is a part of a GPU's clock, too small to delay a job.
fn is_small(incident: &Incident) -> bool {
    let mut findings = incident.findings.iter().map(|found| &found.evidence);
    incident.effect < MIN_SLOWDOWN && !incident.findings.is_empty() && findings.all(is_of_clock)
}

/// Whether it is known that no job runs on the node of an incident's part: its exporter reports its jobs, and none; or others
/// report theirs or compute, and its GPUs did nothing lately, or when it became stale.
fn is_idle(incident: &Incident, history: &History, jobs: &Jobs, now: Timestamp) -> bool {
    let Some(node) = incident.root.node() else {
        return false;
    };
    let Some(said) = history.node(node) else {
        return false;
    };
    let tells = said.series(&WORKLOAD_DEVICES).next().is_some();
    let others_work = || {
        jobs.iter().next().is_some() || history.fresh_nodes(now).any(|(_, one)| any_is_busy(one))
    };
    let are_known = tells || (does_nothing(said, IDLE_SECONDS) && others_work());
    are_known && jobs.of_node(node).next().is_none()
}

/// Whether a node has GPUs that were all unused for the last `seconds` that it reported.
pub(crate) fn does_nothing(node: &NodeHistory, seconds: f64) -> bool {
    let mut gpus = node.series(&GPU_UTILIZATION).peekable();
    let is_unused = |window: Window<'_>| {
        let newest = window.latest().map(|(newest, _)| newest);
        let mut unused = window.told().take_while(|(_, share)| *share < MOST_UNUSED);
        let is_old = |at| newest.is_some_and(|newest| newest.seconds_since(at) >= seconds);
        unused.any(|(at, _)| is_old(at))
    };
    gpus.peek().is_some() && gpus.all(|(_, window)| is_unused(window))
}

#[cfg(test)]
mod tests;

//! The tail of a job's step times beside the tail of its paths and hosts, and how much of it they explain.
//!
//! Jobs write how long their steps took and exporters count by how much long steps exceeded the median
//! ([`StepTimes`](railscope_model::step_times::StepTimes)). Over windows of half a minute of the last hour this excess is
//! compared with what the nodes of the job measured in the same windows: slow and lost probes, and late timers.

mod attribution;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;
use railscope_model::label;
use railscope_model::metric::{
    HOST_TIMER_DELAY, JOB_STEP_EXCESS, JOB_STEP_QUANTILE, JOB_STEPS, Metric, PROBE_PATH_LOST,
    PROBE_PATH_RTT,
};

use self::attribution::Windows;
pub use self::attribution::{Explained, Share};
use crate::jobs::job::{JobName, Jobs};
use crate::store::{History, NodeHistory, Window, sign_above};

/// Length of a window, seconds: two scrapes, so that simultaneous events on two nodes are mostly in one window.
const WINDOW_SECONDS: f64 = 30.0;
/// Time from the end of a window until it is evaluated, seconds: every node has been scraped by then.
const LAG_SECONDS: f64 = 45.0;
/// Windows that are kept: an hour.
const MOST_WINDOWS: usize = 120;
/// Round trips and timer delays above this count, seconds: where a collective step begins to feel them.
const SLOW_SECONDS: f64 = 200e-6;
/// How long a job is kept after its last report, seconds.
const FORGOTTEN_SECONDS: f64 = 600.0;

/// Step times of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTail {
    /// Which.
    pub job: JobName,
    /// Quantiles of its last 1,000 steps by label (`0.5`, `0.99`, `0.999`), seconds: the largest of any node.
    pub quantiles: BTreeMap<String, f64>,
    /// Steps in the windows that were watched.
    pub steps: f64,
    /// Seconds by which long steps exceeded the median in these windows.
    pub excess_seconds: f64,
    /// Time that was watched, seconds.
    pub watched_seconds: f64,
    /// Share of the excess that slow probes and late timers explain; none before enough windows were watched, or without any
    /// excess.
    pub explained: Option<Explained>,
}

/// Follows the step times of jobs.
#[derive(Debug, Default)]
pub(crate) struct StepTails {
    jobs: BTreeMap<JobName, Followed>,
    /// End of the last window that was evaluated.
    evaluated: Option<Timestamp>,
    tails: Arc<Vec<StepTail>>,
}

/// One job.
#[derive(Debug, Default)]
struct Followed {
    windows: VecDeque<OneWindow>,
    quantiles: BTreeMap<String, f64>,
    reported: Timestamp,
}

/// What a job and its nodes counted in one window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OneWindow {
    steps: f64,
    excess_seconds: f64,
    /// Slow and lost probes; none where no node probes.
    slow_probes: Option<f64>,
    /// Late timers; none where no node measures them.
    late_timers: Option<f64>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: Timestamp,
    to: Timestamp,
}

impl Stretch {
    /// Increase of a counter; none where that is not known.
    fn rise(self, counted: Window<'_>) -> Option<f64> {
        Some(counted.count_at(self.to)? - counted.count_at(self.from)?)
    }

    /// Observations of a histogram's series on one node that lie above [`SLOW_SECONDS`]; none without that bound.
    fn slow(self, node: &NodeHistory, histogram: &'static Metric) -> Option<f64> {
        let mut above = None;
        for (labels, counted) in node.series(histogram) {
            let Some(sign) = sign_above(labels, SLOW_SECONDS) else {
                continue;
            };
            let rise = self.rise(counted).unwrap_or_default();
            let (sum, bounds) = above.get_or_insert((0.0, 0));
            *sum += sign * rise;
            *bounds += i32::from(sign < 0.0);
        }
        above
            .filter(|(_, bounds)| *bounds > 0)
            .map(|(sum, _): (f64, i32)| sum.max(0.0))
    }
}

impl StepTails {
    /// Step times of all jobs that report them, by name.
    pub(crate) fn tick(
        &mut self,
        history: &History,
        jobs: &Jobs,
        now: Timestamp,
    ) -> Arc<Vec<StepTail>> {
        let window = (1000.0 * WINDOW_SECONDS) as u64;
        let complete = now.0.saturating_sub((1000.0 * LAG_SECONDS) as u64);
        let end = Timestamp(complete / window * window);
        if (self.evaluated).is_some_and(|evaluated| evaluated >= end) {
            return Arc::clone(&self.tails);
        }
        let first_end = Timestamp(end.0.saturating_sub(window));
        self.evaluated = Some(end);
        self.take_up(
            history,
            jobs,
            Stretch {
                from: first_end,
                to: end,
            },
        );
        self.jobs
            .retain(|_, job| end.seconds_since(job.reported) <= FORGOTTEN_SECONDS);
        let tails = self.jobs.iter().filter(|(_, job)| !job.windows.is_empty());
        self.tails = Arc::new(tails.map(|(name, job)| job.tail(name)).collect());
        Arc::clone(&self.tails)
    }

    fn take_up(&mut self, history: &History, jobs: &Jobs, stretch: Stretch) {
        let mut reports: BTreeMap<JobName, (f64, f64, BTreeSet<NodeName>)> = BTreeMap::new();
        for (name_of_node, node) in history.fresh_nodes(stretch.to) {
            for (labels, counted) in node.series(&JOB_STEPS) {
                let name = labels.get(label!(JOB_STEPS, "hpc_job"));
                let excess = name.and_then(|name| node.window(&JOB_STEP_EXCESS, &[name]));
                let rises = stretch
                    .rise(counted)
                    .zip(excess.and_then(|excess| stretch.rise(excess)));
                let (Some(name), Some((steps, excess))) = (name, rises) else {
                    continue;
                };
                let of_job = reports.entry(name.into()).or_default();
                // All ranks of a synchronous job run the same steps.
                of_job.0 = of_job.0.max(steps);
                of_job.1 = of_job.1.max(excess);
                of_job.2.insert(name_of_node.clone());
            }
        }
        for (name, (steps, excess_seconds, mut nodes)) in reports {
            let followed = self.jobs.entry(Arc::clone(&name)).or_default();
            followed.reported = stretch.to;
            followed.quantiles = quantiles(history, &nodes, &name);
            nodes.extend(
                jobs.get(&name)
                    .into_iter()
                    .flat_map(|job| job.nodes.keys().cloned()),
            );
            let histories: Vec<&NodeHistory> =
                nodes.iter().filter_map(|node| history.node(node)).collect();
            if followed.windows.len() == MOST_WINDOWS {
                followed.windows.pop_front();
            }
            followed.windows.push_back(OneWindow {
                steps,
                excess_seconds,
                slow_probes: sum(histories.iter().map(|node| slow_probes(node, stretch))),
                late_timers: sum(histories
                    .iter()
                    .map(|node| stretch.slow(node, &HOST_TIMER_DELAY))),
            });
        }
    }
}

impl Followed {
    fn tail(&self, name: &JobName) -> StepTail {
        let sum_of = |value: fn(&OneWindow) -> f64| self.windows.iter().map(value).sum::<f64>();
        let windows = Windows {
            excess: self.windows.iter().map(|one| one.excess_seconds).collect(),
            slow_probes: self.windows.iter().map(|one| one.slow_probes).collect(),
            late_timers: self.windows.iter().map(|one| one.late_timers).collect(),
        };
        StepTail {
            job: Arc::clone(name),
            quantiles: self.quantiles.clone(),
            steps: sum_of(|one| one.steps),
            excess_seconds: sum_of(|one| one.excess_seconds),
            watched_seconds: WINDOW_SECONDS * self.windows.len() as f64,
            explained: windows.explained(),
        }
    }
}

/// The largest of any node.
fn quantiles(history: &History, nodes: &BTreeSet<NodeName>, job: &str) -> BTreeMap<String, f64> {
    let mut quantiles: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes.iter().filter_map(|node| history.node(node)) {
        for (labels, window) in node.series(&JOB_STEP_QUANTILE) {
            let is_of_job = labels.get(label!(JOB_STEP_QUANTILE, "hpc_job")) == Some(job);
            let q = labels.get(label!(JOB_STEP_QUANTILE, "q"));
            if let (true, Some(q), Some(seconds)) = (is_of_job, q, window.value()) {
                let largest = quantiles.entry(q.to_owned()).or_default();
                *largest = largest.max(seconds);
            }
        }
    }
    quantiles
}

/// Probes of a node that were slow or lost.
fn slow_probes(node: &NodeHistory, stretch: Stretch) -> Option<f64> {
    let slow = stretch.slow(node, &PROBE_PATH_RTT)?;
    let lost = node.series(&PROBE_PATH_LOST);
    let lost: f64 = lost.filter_map(|(_, counted)| stretch.rise(counted)).sum();
    Some(slow + lost)
}

/// The sum of those that are known; none if none is.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|sum, value| sum + value)
}

#[cfg(test)]
mod tests;

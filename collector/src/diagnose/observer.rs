//! Detects that the collector or its host observes too late to compare anything; suspends the opening of incidents.
//!
//! A collector or a host that is short of CPU receives some samples late and others in time. Compared with each
//! other they look like a fault of hardware that is healthy.

use std::collections::{BTreeSet, VecDeque};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;

use crate::jobs::straggler::median;
use crate::store::{History, NodeHistory};

/// A target is late once its newest sample is older than this many of its scrape intervals: the scrape that was due
/// has not been received after half an interval more.
pub const LATE_INTERVALS: f64 = 1.5;
/// From this age on, in scrape intervals, a target is stale: its node or its network has failed, which other rules
/// report. If it counted as late, a rack without power would suspend everything for as long as it is down.
pub const SILENT_INTERVALS: f64 = 4.0;
/// Share of all targets that are late at once from which the cause is the observer, not the targets (a choice: a
/// starved demo had 8 of 32).
pub const LATE_SHARE: f64 = 0.2;
/// Fewest of them.
const MIN_LATE: usize = 3;
/// An analysis cycle is late if it begins more than this many usual cycles after the last (a choice: one that was
/// skipped, and half of one).
pub const LATE_CYCLES: f64 = 2.5;
/// Cycles that are remembered, to know which time between them is usual.
const CYCLES: usize = 9;
/// Fewest of them that report what is usual.
const MIN_CYCLES: usize = 3;
/// Intervals that must be complete before incidents open again.
pub const COMPLETE_INTERVALS: f64 = 2.0;

/// What is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// Many targets at once.
    Targets,
    /// The analysis itself.
    Analysis,
}

impl Late {
    /// Every cause.
    pub const ALL: [Self; 2] = [Self::Targets, Self::Analysis];

    /// The cause as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Targets => "targets",
            Self::Analysis => "analysis",
        }
    }
}

/// Why and since when no incident opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Suspension {
    /// What is late, or was until less than two intervals ago.
    pub late: Late,
    /// The analysis cycle that saw it first.
    pub since: Timestamp,
}

/// How well the cluster is observed in one analysis cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// Nodes whose newest sample is late.
    pub late_targets: usize,
    /// Set while no incident opens.
    pub suspension: Option<Suspension>,
}

/// Follows how late samples and analysis cycles are.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    last: Option<Timestamp>,
    /// Time between the newest cycles, seconds.
    cycles: VecDeque<f64>,
    /// Until when a late analysis cycle suspends.
    analysis_until: Option<Timestamp>,
    /// Nodes that were late together, until each has been scraped in time again.
    late_together: BTreeSet<NodeName>,
    since: Option<Timestamp>,
}

impl Observer {
    /// Evaluates one analysis cycle.
    pub(crate) fn observe(&mut self, history: &History, now: Timestamp) -> Observation {
        let late = late_targets(history, now);
        let targets = history.nodes().filter(|(_, node)| node.heard().is_some());
        let many = (LATE_SHARE * targets.count() as f64).max(MIN_LATE as f64);
        let late_targets = late.len();
        if late_targets as f64 >= many {
            self.late_together.extend(late.into_iter().cloned());
        }
        let mut incomplete = 0;
        self.late_together.retain(|name| {
            let Some(node) = history.node(name) else {
                return false;
            };
            let is_silent = is_silent(node, now);
            let is_incomplete = !is_silent && is_incomplete(node, now);
            incomplete += usize::from(is_incomplete);
            is_silent || is_incomplete
        });
        let late = if self.is_analysis_late(history, now) {
            Some(Late::Analysis)
        } else {
            (incomplete as f64 >= many).then_some(Late::Targets)
        };
        self.since = late.map(|_| self.since.unwrap_or(now));
        let suspension = late.zip(self.since);
        Observation {
            late_targets,
            suspension: suspension.map(|(late, since)| Suspension { late, since }),
        }
    }

    /// Whether this cycle is late, or one was less than two intervals ago.
    fn is_analysis_late(&mut self, history: &History, now: Timestamp) -> bool {
        let usual = median(self.cycles.iter().copied()).unwrap_or_default();
        let last = self.last.replace(now);
        let cycle = last.map(|last| now.seconds_since(last));
        // Two ticks at the same time are one cycle.
        if let Some(cycle) = cycle.filter(|cycle| *cycle > 0.0) {
            if self.cycles.len() >= MIN_CYCLES && cycle > LATE_CYCLES * usual {
                let pause = COMPLETE_INTERVALS * usual.max(usual_interval(history));
                self.analysis_until = Some(Timestamp(now.0 + (pause * 1000.0) as u64));
            }
            if self.cycles.len() == CYCLES {
                self.cycles.pop_front();
            }
            self.cycles.push_back(cycle);
        }
        self.analysis_until.is_some_and(|until| now < until)
    }
}

/// Age of the newest sample in scrape intervals; none of a node that was scraped less than three times.
fn age(node: &NodeHistory, now: Timestamp) -> Option<f64> {
    let (interval, mut scrapes) = node.scrapes()?;
    Some(now.seconds_since(scrapes.next()?) / interval)
}

/// Nodes whose newest sample is late.
fn late_targets(history: &History, now: Timestamp) -> Vec<&NodeName> {
    let is_late = |node: &NodeHistory| {
        age(node, now).is_some_and(|age| age > LATE_INTERVALS && age <= SILENT_INTERVALS)
    };
    let late = history.nodes().filter(|(_, node)| is_late(node));
    late.map(|(name, _)| name).collect()
}

fn is_silent(node: &NodeHistory, now: Timestamp) -> bool {
    age(node, now).is_some_and(|age| age > SILENT_INTERVALS)
}

/// Whether a sample is late, or one of the last two intervals was.
fn is_incomplete(node: &NodeHistory, now: Timestamp) -> bool {
    let Some((interval, mut scrapes)) = node.scrapes() else {
        return false;
    };
    let since = COMPLETE_INTERVALS * interval;
    let mut later = now;
    scrapes.any(|at| {
        let step = later.seconds_since(at);
        let ended = now.seconds_since(std::mem::replace(&mut later, at));
        ended < since && step > LATE_INTERVALS * interval
    })
}

/// The median scrape interval of the nodes, seconds.
fn usual_interval(history: &History) -> f64 {
    let intervals = history.nodes();
    let intervals = intervals.filter_map(|(_, node)| Some(node.scrapes()?.0));
    median(intervals).unwrap_or_default()
}

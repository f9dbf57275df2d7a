//! How the collector itself does: its sources beside exporters, whether the analysis keeps up, what cannot be kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use tokio::time::Instant;

use crate::status::State;

/// An analysis is late once the last one began more than so many intervals ago, beside the time that it took.
pub const LATE_INTERVALS: u32 = 3;

/// And never sooner: who analyses many times a second needs no answer as fast.
const LATE_SECONDS: f64 = 10.0;

/// How a source beside exporters was last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SourceStatus {
    /// Not at all yet.
    #[default]
    Waiting,
    /// To the end.
    Ok,
    /// With something missing.
    Partial,
    /// It took too long.
    Timeout,
    /// It could not be read.
    Failed,
}

impl SourceStatus {
    /// The status as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }
}

/// Which source: its kind and its name.
pub type SourceKey = (&'static str, String);

/// One source beside exporters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceState {
    /// Time between two reads; none where it is as new as who writes it makes it.
    pub interval: Option<Duration>,
    /// How it was last read.
    pub status: SourceStatus,
    /// How old what it last said is.
    pub last_ok: Option<Timestamp>,
    /// What was wrong with the last read.
    pub problem: Option<String>,
}

/// How the collector does.
#[derive(Debug, Default)]
pub(crate) struct Health {
    sources: Mutex<BTreeMap<SourceKey, SourceState>>,
    /// By how many ms the last analysis began late.
    late_millis: AtomicU64,
    late_ticks: AtomicU64,
    /// Whether each kind of state could not be written the last time.
    unwritable: Mutex<BTreeMap<&'static str, bool>>,
    pub(crate) targets_removed: AtomicU64,
}

impl State {
    /// Says which source there is and how often it is read.
    pub(crate) fn expect_source(&self, key: &SourceKey, interval: Option<Duration>) {
        let new = SourceState {
            interval,
            ..SourceState::default()
        };
        self.sources().insert(key.clone(), new);
    }

    /// Notes how a source was read; `at` is how old what it said is, where it said something new.
    pub(crate) fn record_source(
        &self,
        key: &SourceKey,
        status: SourceStatus,
        at: Option<Timestamp>,
        problem: Option<String>,
    ) {
        let mut sources = self.sources();
        let state = sources.entry(key.clone()).or_default();
        state.status = status;
        state.last_ok = at.max(state.last_ok);
        state.problem = problem;
    }

    /// All sources beside exporters.
    pub(crate) fn sources(&self) -> MutexGuard<'_, BTreeMap<SourceKey, SourceState>> {
        let sources = self.health.sources.lock();
        sources.unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an analysis begins which was due then.
    pub(crate) fn record_tick(&self, due: Instant) {
        let late = due.elapsed();
        let millis = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        self.health.late_millis.store(millis, Ordering::Relaxed);
        let is_late = u64::from(late > self.analysis_interval);
        self.health.late_ticks.fetch_add(is_late, Ordering::Relaxed);
    }

    /// By how many seconds the last analysis began late, and how many have by more than an interval.
    pub(crate) fn lateness(&self) -> (f64, u64) {
        let millis = self.health.late_millis.load(Ordering::Relaxed);
        let ticks = self.health.late_ticks.load(Ordering::Relaxed);
        (millis as f64 / 1e3, ticks)
    }

    /// How many seconds ago the last analysis began, if that is too long.
    pub(crate) fn analysis_late(&self) -> Option<f64> {
        let last = self.snapshot()?;
        let age = self.now().seconds_since(last.view.now);
        let usual = (self.analysis_interval * LATE_INTERVALS).as_secs_f64();
        (age > usual.max(LATE_SECONDS) + last.tick_seconds).then_some(age)
    }

    /// Notes whether state could be written.
    pub(crate) fn record_kept(&self, what: &'static str, kept: bool) {
        self.unwritable().insert(what, !kept);
    }

    /// Which kinds of state could not be written the last time, and which could.
    pub(crate) fn unwritable(&self) -> MutexGuard<'_, BTreeMap<&'static str, bool>> {
        let unwritable = self.health.unwritable.lock();
        unwritable.unwrap_or_else(PoisonError::into_inner)
    }

    /// Targets that left the list.
    pub(crate) fn targets_removed(&self) -> u64 {
        self.health.targets_removed.load(Ordering::Relaxed)
    }
}

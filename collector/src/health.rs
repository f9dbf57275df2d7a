//! Health of the collector: sources other than exporters, lateness of the analysis, unwritable state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use tokio::time::Instant;

use crate::serve::clients::Counts;
use crate::status::State;

/// Number of intervals since the start of the last analysis, plus its duration, after which the analysis is late.
pub const LATE_INTERVALS: u32 = 3;

/// Minimum age of a late analysis, for intervals below one second.
const LATE_SECONDS: f64 = 10.0;

/// Status of the last read of a source other than exporters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SourceStatus {
    /// Not read yet.
    #[default]
    Waiting,
    /// Read completely.
    Ok,
    /// Read incompletely.
    Partial,
    /// Timed out.
    Timeout,
    /// Failed.
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

/// Kind and name of a source.
pub type SourceKey = (&'static str, String);

/// State of a source other than exporters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceState {
    /// Read interval; `None` for files, whose age depends on their writer.
    pub interval: Option<Duration>,
    /// Status of the last read.
    pub status: SourceStatus,
    /// Time of the last data.
    pub last_ok: Option<Timestamp>,
    /// Error of the last read.
    pub problem: Option<String>,
}

/// Health counters and states of the collector.
#[derive(Debug, Default)]
pub(crate) struct Health {
    sources: Mutex<BTreeMap<SourceKey, SourceState>>,
    /// Delay of the start of the last analysis, in milliseconds.
    late_millis: AtomicU64,
    late_ticks: AtomicU64,
    /// Whether the last write of each kind of state failed.
    unwritable: Mutex<BTreeMap<&'static str, bool>>,
    pub(crate) targets_removed: AtomicU64,
    open_files_short: AtomicBool,
    clients: Arc<Counts>,
}

impl State {
    /// Registers a source and its read interval.
    pub(crate) fn expect_source(&self, key: &SourceKey, interval: Option<Duration>) {
        let new = SourceState {
            interval,
            ..SourceState::default()
        };
        self.sources().insert(key.clone(), new);
    }

    /// Records the result of a read; `at` is the time of the data, if it is new.
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

    /// All sources other than exporters.
    pub(crate) fn sources(&self) -> MutexGuard<'_, BTreeMap<SourceKey, SourceState>> {
        let sources = self.health.sources.lock();
        sources.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of an analysis that was due at `due`.
    pub(crate) fn record_tick(&self, due: Instant) {
        let late = due.elapsed();
        let millis = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        self.health.late_millis.store(millis, Ordering::Relaxed);
        let is_late = u64::from(late > self.analysis_interval);
        self.health.late_ticks.fetch_add(is_late, Ordering::Relaxed);
    }

    /// Delay of the last analysis in seconds, and the number of analyses that started more than one interval late.
    pub(crate) fn lateness(&self) -> (f64, u64) {
        let millis = self.health.late_millis.load(Ordering::Relaxed);
        let ticks = self.health.late_ticks.load(Ordering::Relaxed);
        (millis as f64 / 1e3, ticks)
    }

    /// Age of the last analysis in seconds, if it is late.
    pub(crate) fn analysis_late(&self) -> Option<f64> {
        let last = self.snapshot()?;
        let age = self.now().seconds_since(last.view.now);
        let usual = (self.analysis_interval * LATE_INTERVALS).as_secs_f64();
        (age > usual.max(LATE_SECONDS) + last.tick_seconds).then_some(age)
    }

    /// Records whether a write of state succeeded.
    pub(crate) fn record_kept(&self, what: &'static str, kept: bool) {
        self.unwritable().insert(what, !kept);
    }

    /// Whether the last write failed, by kind of state.
    pub(crate) fn unwritable(&self) -> MutexGuard<'_, BTreeMap<&'static str, bool>> {
        let unwritable = self.health.unwritable.lock();
        unwritable.unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients of the server.
    pub(crate) fn clients(&self) -> &Arc<Counts> {
        &self.health.clients
    }

    /// Notes whether the limit of open files is too low for the number of targets.
    pub(crate) fn record_open_files_short(&self, short: bool) {
        self.health.open_files_short.store(short, Ordering::Relaxed);
    }

    /// Whether the limit of open files is too low for the number of targets.
    pub(crate) fn open_files_short(&self) -> bool {
        self.health.open_files_short.load(Ordering::Relaxed)
    }

    /// Number of targets removed from the list.
    pub(crate) fn targets_removed(&self) -> u64 {
        self.health.targets_removed.load(Ordering::Relaxed)
    }
}

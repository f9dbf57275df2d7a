//! One source in the exposition: the last report of its sampler, how that read ended and how
//! old it is.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use railscope_model::metric::{
    SOURCE_AGE, SOURCE_DURATION, SOURCE_ERRORS, SOURCE_LATE, SOURCE_READS,
};
use railscope_model::reading::{Labels, NodeReading, Sample, Status};

use super::Limits;
use crate::sampler::{Presence, SampleError, Sampler};

/// One source: what its sampler last reported.
pub(super) struct Slot {
    pub(super) source: &'static str,
    /// The source's name.
    labels: Labels,
    stale_after: Duration,
    last: ArcSwap<Outcome>,
    reads: AtomicU64,
    failed_reads: AtomicU64,
    /// Total delay of the start of reads, ns.
    late: AtomicU64,
}

/// How the last read of a source ended.
#[derive(Clone)]
struct Outcome {
    /// None before the first read ended.
    status: Option<Status>,
    /// Empty after a read that failed: what cannot be read is absent.
    reading: Arc<NodeReading>,
    /// When any read last ended; the start of the exporter before the first.
    ended_at: Instant,
    /// When a read last was complete; the start of the exporter before the first.
    complete_at: Instant,
    /// What the sampler itself reported about its read, in place of what its thread can see.
    own: OwnWord,
    /// None before the first complete read.
    duration_seconds: Option<f64>,
}

/// What a sampler that reads through a child process knows more exactly than its thread. It
/// pushes the metrics of this name for its source.
#[derive(Debug, Clone, Copy, Default)]
struct OwnWord {
    /// `SOURCE_AGE`: age of the oldest value when `sample` returned, seconds.
    age_seconds: f64,
    /// `SOURCE_DURATION`: the read itself, seconds.
    duration_seconds: Option<f64>,
    /// `SOURCE_ERRORS`: single values that failed since the start.
    errors: u64,
    /// `SOURCE_LATE`: total delay of the start of reads since the start, seconds.
    late_seconds: f64,
}

impl Slot {
    pub(super) fn new(sampler: &dyn Sampler, limits: Limits) -> Self {
        let now = Instant::now();
        let periods = sampler.period().saturating_mul(limits.stale_periods);
        Self {
            source: sampler.name(),
            labels: Labels::new([sampler.name()]),
            stale_after: periods.max(limits.stale_at_least),
            last: ArcSwap::from_pointee(Outcome {
                status: None,
                reading: Arc::default(),
                ended_at: now,
                complete_at: now,
                own: OwnWord::default(),
                duration_seconds: None,
            }),
            reads: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    /// A read begins, so late; zero of one in time.
    pub(super) fn begin(&self, late: Duration) {
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.late.fetch_add(late, Ordering::Relaxed);
    }

    pub(super) fn publish(&self, presence: Presence, mut reading: NodeReading, begun: Instant) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let status = match presence {
            Presence::Present => Status::Ok,
            Presence::Absent(why) => why,
        };
        let last = self.last.load();
        if last.status != Some(status) {
            tracing::info!(source = self.source, status = status.as_str());
        }
        let now = Instant::now();
        let own = self.take_own_word(&mut reading);
        self.last.store(Arc::new(Outcome {
            status: Some(status),
            reading: Arc::new(reading),
            ended_at: now,
            complete_at: now,
            own,
            duration_seconds: own.duration_seconds.or(Some((now - begun).as_secs_f64())),
        }));
    }

    pub(super) fn fail(&self, error: &SampleError) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.failed_reads.fetch_add(1, Ordering::Relaxed);
        let status = status_of(&error.cause);
        let last = self.last.load();
        if last.status != Some(status) {
            tracing::warn!(source = self.source, %error, "not read");
        }
        self.last.store(Arc::new(Outcome {
            status: Some(status),
            reading: Arc::default(),
            ended_at: Instant::now(),
            ..Outcome::clone(&last)
        }));
    }

    /// Removes from a reading what its sampler reports about the read itself.
    fn take_own_word(&self, reading: &mut NodeReading) -> OwnWord {
        let mut own = OwnWord::default();
        let own_metrics = [&SOURCE_AGE, &SOURCE_DURATION, &SOURCE_ERRORS, &SOURCE_LATE];
        let is_own = |sample: &Sample| {
            own_metrics.contains(&sample.metric) && sample.labels.values().eq([self.source])
        };
        for sample in reading.take(is_own) {
            let value = sample.value.as_f64();
            if sample.metric == &SOURCE_AGE {
                own.age_seconds = value;
            } else if sample.metric == &SOURCE_DURATION {
                own.duration_seconds = Some(value);
            } else if sample.metric == &SOURCE_LATE {
                own.late_seconds = value;
            } else {
                own.errors = value as u64;
            }
        }
        own
    }

    /// The last report of the source, unless it is too old; its age, and how it was read, go to
    /// `own`.
    pub(super) fn report(&self, now: Instant, own: &mut NodeReading) -> Arc<NodeReading> {
        let last = self.last.load();
        let labels = &self.labels;
        let hangs = now.saturating_duration_since(last.ended_at) > self.stale_after;
        if hangs {
            own.push_status(self.source, "", Status::Timeout);
        } else if let Some(status) = last.status {
            own.push_status(self.source, "", status);
        }
        let age = now
            .saturating_duration_since(last.complete_at)
            .as_secs_f64();
        own.push(&SOURCE_AGE, labels, age + last.own.age_seconds);
        if let Some(seconds) = last.duration_seconds {
            own.push(&SOURCE_DURATION, labels, seconds);
        }
        own.push(&SOURCE_READS, labels, self.reads.load(Ordering::Relaxed));
        let errors = self.failed_reads.load(Ordering::Relaxed) + last.own.errors;
        own.push(&SOURCE_ERRORS, labels, errors);
        let late = Duration::from_nanos(self.late.load(Ordering::Relaxed)).as_secs_f64();
        own.push(&SOURCE_LATE, labels, late + last.own.late_seconds);
        if hangs {
            Arc::default()
        } else {
            Arc::clone(&last.reading)
        }
    }
}

/// The status that an error of the operating system amounts to.
fn status_of(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Status::Denied,
        io::ErrorKind::TimedOut => Status::Timeout,
        io::ErrorKind::InvalidData => Status::Unparsed,
        io::ErrorKind::Unsupported => Status::Unsupported,
        _ => Status::Failed,
    }
}

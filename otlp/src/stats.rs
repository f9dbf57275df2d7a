//! Counters of exports, by signal and result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One of the three signals of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Metric points.
    Metrics,
    /// Log records: incident events.
    Logs,
    /// Spans.
    Traces,
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Logs, Self::Traces];

    /// The name of the signal in settings and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
            Self::Traces => "traces",
        }
    }

    /// The path of the signal below an HTTP endpoint.
    pub(crate) fn http_path(self) -> &'static str {
        match self {
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
            Self::Traces => "v1/traces",
        }
    }

    /// The gRPC method that receives the signal.
    pub(crate) fn grpc_path(self) -> &'static str {
        match self {
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        }
    }
}

/// Counters of one signal since the start of the process. Items are metric points, log records or spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalStats {
    /// Requests that the receiver accepted completely.
    pub exports_ok: u64,
    /// Requests of which the receiver rejected some items.
    pub exports_partial: u64,
    /// Requests that the receiver rejected for good.
    pub exports_rejected: u64,
    /// Requests that were dropped after the last retry, or at the deadline of the shutdown.
    pub exports_failed: u64,
    /// Intervals without an export, because the previous export still ran. Metrics only.
    pub exports_skipped: u64,
    /// Attempts after the first of a request.
    pub retries: u64,
    /// Items that the receiver accepted.
    pub items_sent: u64,
    /// Items that the receiver rejected, in requests that it rejected or accepted in part.
    pub items_rejected: u64,
    /// Items of requests that failed after the last retry.
    pub items_failed: u64,
    /// Items dropped because the queue was full.
    pub items_queue_full: u64,
    /// Lines of the exposition that could not be converted. Metrics only.
    pub items_unreadable: u64,
}

impl SignalStats {
    /// Requests by result, for a counter with the label `result`.
    pub fn exports(&self) -> [(&'static str, u64); 5] {
        [
            ("ok", self.exports_ok),
            ("partial", self.exports_partial),
            ("rejected", self.exports_rejected),
            ("failed", self.exports_failed),
            ("skipped", self.exports_skipped),
        ]
    }

    /// Items by result, for a counter with the label `result`.
    pub fn items(&self) -> [(&'static str, u64); 5] {
        [
            ("sent", self.items_sent),
            ("rejected", self.items_rejected),
            ("failed", self.items_failed),
            ("queue_full", self.items_queue_full),
            ("unreadable", self.items_unreadable),
        ]
    }

    /// Items that did not reach the receiver's storage.
    pub fn dropped(&self) -> u64 {
        self.items_rejected + self.items_failed + self.items_queue_full
    }
}

/// Counters of all signals at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Metric points.
    pub metrics: SignalStats,
    /// Log records.
    pub logs: SignalStats,
    /// Spans.
    pub traces: SignalStats,
}

impl Stats {
    /// The counters of each signal.
    pub fn by_signal(&self) -> [(Signal, SignalStats); 3] {
        [
            (Signal::Metrics, self.metrics),
            (Signal::Logs, self.logs),
            (Signal::Traces, self.traces),
        ]
    }
}

/// The live counters of one signal.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) exports_ok: Counter,
    pub(crate) exports_partial: Counter,
    pub(crate) exports_rejected: Counter,
    pub(crate) exports_failed: Counter,
    pub(crate) exports_skipped: Counter,
    pub(crate) retries: Counter,
    pub(crate) items_sent: Counter,
    pub(crate) items_rejected: Counter,
    pub(crate) items_failed: Counter,
    pub(crate) items_queue_full: Counter,
    pub(crate) items_unreadable: Counter,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    fn snapshot(&self) -> SignalStats {
        SignalStats {
            exports_ok: self.exports_ok.get(),
            exports_partial: self.exports_partial.get(),
            exports_rejected: self.exports_rejected.get(),
            exports_failed: self.exports_failed.get(),
            exports_skipped: self.exports_skipped.get(),
            retries: self.retries.get(),
            items_sent: self.items_sent.get(),
            items_rejected: self.items_rejected.get(),
            items_failed: self.items_failed.get(),
            items_queue_full: self.items_queue_full.get(),
            items_unreadable: self.items_unreadable.get(),
        }
    }
}

/// The live counters of all signals.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllCounters {
    metrics: Arc<Counters>,
    logs: Arc<Counters>,
    traces: Arc<Counters>,
}

impl AllCounters {
    pub(crate) fn of(&self, signal: Signal) -> Arc<Counters> {
        Arc::clone(match signal {
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
            Signal::Traces => &self.traces,
        })
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            metrics: self.metrics.snapshot(),
            logs: self.logs.snapshot(),
            traces: self.traces.snapshot(),
        }
    }
}

//! Starts and stops the pipelines of the three signals.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::LoggerProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanLimits};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::delivery::Delivery;
use crate::incidents::IncidentLog;
use crate::metrics;
use crate::queue::{log_processor, span_processor};
use crate::resource::{self, SCHEMA_URL, SCOPE, Service};
use crate::settings::Settings;
use crate::stats::{AllCounters, Signal, Stats};
use crate::wire::{Wire, WireError};

/// Time that a shutdown takes at most: what has not been sent by then is dropped and counted.
const SHUTDOWN: Duration = Duration::from_secs(5);
/// Time after the deadline to count what it has cut off.
const LAST_COUNTS: Duration = Duration::from_millis(500);
/// Attributes, events and links of one span; more are dropped, and the span has the number of each that was.
const PER_SPAN: u32 = 32;
/// Spans and events of a lower level are not exported.
const SPAN_LEVEL: Level = Level::INFO;

/// A pipeline that cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot send {} by OTLP", signal.as_str())]
pub struct StartError {
    /// The signal.
    pub signal: Signal,
    /// Why.
    pub source: WireError,
}

/// The pipelines that are on. Dropping it stops them without a flush; [`Otlp::shutdown`] flushes.
pub struct Otlp {
    runtime: Handle,
    interval: Duration,
    attributes: Vec<(String, String)>,
    counters: AllCounters,
    closing: watch::Sender<Option<Instant>>,
    metrics: Option<Arc<Delivery>>,
    export: Option<JoinHandle<()>>,
    logs: Option<SdkLoggerProvider>,
    traces: Option<SdkTracerProvider>,
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp")
            .field("metrics", &self.metrics.is_some())
            .field("logs", &self.logs.is_some())
            .field("traces", &self.traces.is_some())
            .finish_non_exhaustive()
    }
}

/// Reads the counters of the pipelines; can outlive them.
#[derive(Debug, Clone)]
pub struct StatsReader(AllCounters);

impl StatsReader {
    /// The counters now.
    pub fn read(&self) -> Stats {
        self.0.snapshot()
    }
}

impl Otlp {
    /// Opens the pipelines of all signals that have a target. Connects when something is sent. Signals that are off
    /// cost nothing: no thread, no task, no queue.
    ///
    /// # Errors
    /// If certificates or keys for TLS cannot be used.
    pub fn start(
        settings: &Settings,
        service: &Service,
        runtime: &Handle,
    ) -> Result<Self, StartError> {
        let (closing, closes) = watch::channel(None);
        let counters = AllCounters::default();
        let delivery = |signal: Signal| {
            let Some(target) = settings.target(signal) else {
                return Ok(None);
            };
            let wire = Wire::new(target, signal).map_err(|source| StartError { signal, source })?;
            let delivery = Delivery::new(
                wire,
                signal,
                target.timeout,
                counters.of(signal),
                closes.clone(),
            );
            Ok(Some(Arc::new(delivery)))
        };
        let attributes = resource::attributes(service, settings);
        let resource = resource::sdk(&attributes);
        let logs = delivery(Signal::Logs)?.map(|delivery| {
            SdkLoggerProvider::builder()
                .with_log_processor(log_processor(delivery, runtime.clone()))
                .with_resource(resource.clone())
                .build()
        });
        let traces = delivery(Signal::Traces)?.map(|delivery| {
            SdkTracerProvider::builder()
                .with_span_processor(span_processor(delivery, runtime.clone()))
                .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
                .with_span_limits(SpanLimits {
                    max_events_per_span: PER_SPAN,
                    max_attributes_per_span: PER_SPAN,
                    max_links_per_span: PER_SPAN,
                    max_attributes_per_event: PER_SPAN,
                    max_attributes_per_link: PER_SPAN,
                })
                .with_resource(resource.clone())
                .build()
        });
        Ok(Self {
            runtime: runtime.clone(),
            interval: settings.interval,
            attributes,
            metrics: delivery(Signal::Metrics)?,
            counters,
            closing,
            export: None,
            logs,
            traces,
        })
    }

    /// Starts to export the exposition that `exposition` returns, at each interval. Does nothing if metrics are off, or
    /// on a second call. `start` is the start of the process, from which its counters count.
    pub fn export_metrics(
        &mut self,
        start: SystemTime,
        exposition: impl Fn() -> String + Send + Sync + 'static,
    ) {
        let Some(delivery) = self.metrics.take() else {
            return;
        };
        let export = metrics::Export {
            exposition: Arc::new(exposition),
            attributes: self.attributes.clone(),
            delivery,
            interval: self.interval,
            closing: self.closing.subscribe(),
            start,
        };
        self.export = Some(self.runtime.spawn(metrics::run(export)));
    }

    /// Where incident events go; none if logs are off.
    pub fn incidents(&self) -> Option<IncidentLog> {
        let provider = self.logs.as_ref()?;
        Some(IncidentLog::new(provider.logger_with_scope(scope())))
    }

    /// The layer that exports spans of Railscope's own targets at level INFO and above; none if traces are off.
    ///
    /// Of one span at most 32 attributes, 32 events and 32 links are exported; of the queue at most 2,048 spans.
    pub fn trace_layer<S>(&self) -> Option<impl Layer<S> + Send + Sync + use<S>>
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup> + Send + Sync,
    {
        let tracer = self.traces.as_ref()?.tracer_with_scope(scope());
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(filter_fn(is_exported)))
    }

    /// The counters of exports and drops now.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// A reader of the counters, for the process' own exposition.
    pub fn stats_reader(&self) -> StatsReader {
        StatsReader(self.counters.clone())
    }

    /// Sends what is queued and one last exposition, within 5 s. What is left is dropped and counted. Returns the
    /// counters.
    pub async fn shutdown(self) -> Stats {
        let deadline = Instant::now() + SHUTDOWN;
        self.closing.send_replace(Some(deadline));
        let Self {
            logs,
            traces,
            export,
            ..
        } = self;
        // The SDK blocks until its threads end.
        let logs = self.runtime.spawn_blocking(move || {
            if let Some(logs) = logs {
                log_result(
                    Signal::Logs,
                    &logs.shutdown_with_timeout(SHUTDOWN + LAST_COUNTS),
                );
            }
        });
        let traces = self.runtime.spawn_blocking(move || {
            if let Some(traces) = traces {
                log_result(
                    Signal::Traces,
                    &traces.shutdown_with_timeout(SHUTDOWN + LAST_COUNTS),
                );
            }
        });
        let all = async {
            if let Some(export) = export {
                log_join(export.await);
            }
            log_join(logs.await);
            log_join(traces.await);
        };
        if timeout_at(deadline + 2 * LAST_COUNTS, all).await.is_err() {
            tracing::warn!("OTLP pipelines did not stop within 5 s; exiting without them");
        }
        self.counters.snapshot()
    }
}

fn log_result(signal: Signal, result: &opentelemetry_sdk::error::OTelSdkResult) {
    if let Err(error) = result {
        tracing::warn!(signal = signal.as_str(), %error, "OTLP shutdown incomplete; queued items are dropped");
    }
}

fn log_join(result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "an OTLP task ended abnormally");
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

/// Railscope's own targets; not those of this crate, whose spans would be exports of exports.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_own = target == "railscope"
        || target.starts_with("railscope_")
        || target.starts_with("railscope::");
    is_own && !target.starts_with("railscope_otlp") && *metadata.level() <= SPAN_LEVEL
}

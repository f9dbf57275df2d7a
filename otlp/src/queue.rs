//! The SDK's batch processors of log records and spans, with queues that count what they drop.
//!
//! The SDK drops silently; so a gate before each processor counts queued items and drops at the same limit, visibly.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::logs::tonic::group_logs_by_resource_and_scope;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::logs::{
    BatchLogProcessor, LogBatch, LogExporter, LogProcessor, SdkLogRecord,
};
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use opentelemetry_sdk::{logs, trace};
use prost::Message as _;
use tokio::runtime::Handle;

use crate::delivery::{Delivered, Delivery};

/// Log records or spans that wait; more are dropped. A span takes 1 to 2 kB, so a queue takes at most 4 MB.
pub(crate) const QUEUE: usize = 2_048;
/// Items in one request.
const BATCH: usize = 512;
/// Time between two exports of spans.
const SPANS_DELAY: Duration = Duration::from_secs(5);
/// Time between two exports of incident events, which are few and urgent.
const LOGS_DELAY: Duration = Duration::from_secs(1);

/// Passes encoded batches from a thread of the SDK to the delivery, which needs the runtime.
struct Exporter {
    delivery: Arc<Delivery>,
    runtime: Handle,
    resource: ResourceAttributesWithSchema,
    queued: Arc<AtomicUsize>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    async fn deliver(&self, message: Vec<u8>, items: usize) -> OTelSdkResult {
        self.queued.fetch_sub(items, Ordering::AcqRel);
        let delivery = Arc::clone(&self.delivery);
        let sent = async move { delivery.deliver(Bytes::from(message), items as u64).await };
        match self.runtime.spawn(sent).await {
            Ok(Delivered::Accepted) => Ok(()),
            _ => Err(OTelSdkError::InternalFailure(
                "the OTLP export failed".to_owned(),
            )),
        }
    }
}

impl LogExporter for Exporter {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let items = batch.iter().count();
        let request = ExportLogsServiceRequest {
            resource_logs: group_logs_by_resource_and_scope(&batch, &self.resource),
        };
        self.deliver(request.encode_to_vec(), items).await
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let items = batch.len();
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        self.deliver(request.encode_to_vec(), items).await
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

/// Counts queued items before a batch processor.
#[derive(Debug)]
pub(crate) struct Gate<P> {
    processor: P,
    queued: Arc<AtomicUsize>,
    delivery: Arc<Delivery>,
}

impl<P> Gate<P> {
    /// Reserves a place in the queue, or counts a drop.
    fn enter(&self) -> bool {
        let reserve = |queued: usize| (queued < QUEUE).then_some(queued + 1);
        let entered = self
            .queued
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, reserve)
            .is_ok();
        if !entered {
            self.delivery.counters().items_queue_full.add(1);
        }
        entered
    }
}

/// The processor of log records.
pub(crate) fn log_processor(delivery: Arc<Delivery>, runtime: Handle) -> Gate<BatchLogProcessor> {
    let queued = Arc::new(AtomicUsize::new(0));
    let config = logs::BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(LOGS_DELAY)
        .build();
    let exporter = exporter(&delivery, runtime, &queued);
    Gate {
        processor: BatchLogProcessor::builder(exporter)
            .with_batch_config(config)
            .build(),
        queued,
        delivery,
    }
}

/// The processor of spans.
pub(crate) fn span_processor(delivery: Arc<Delivery>, runtime: Handle) -> Gate<BatchSpanProcessor> {
    let queued = Arc::new(AtomicUsize::new(0));
    let config = trace::BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(SPANS_DELAY)
        .build();
    let exporter = exporter(&delivery, runtime, &queued);
    Gate {
        processor: BatchSpanProcessor::builder(exporter)
            .with_batch_config(config)
            .build(),
        queued,
        delivery,
    }
}

fn exporter(delivery: &Arc<Delivery>, runtime: Handle, queued: &Arc<AtomicUsize>) -> Exporter {
    Exporter {
        delivery: Arc::clone(delivery),
        runtime,
        resource: ResourceAttributesWithSchema::default(),
        queued: Arc::clone(queued),
    }
}

impl LogProcessor for Gate<BatchLogProcessor> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        if self.enter() {
            self.processor.emit(record, scope);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

impl SpanProcessor for Gate<BatchSpanProcessor> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.processor.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        // The processor exports sampled spans only.
        if span.span_context.is_sampled() && self.enter() {
            self.processor.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

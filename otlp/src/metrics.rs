//! Exports the exposition of the process as OTLP metrics at each interval.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::convert::{Converted, Converter, requests};
use crate::delivery::{Closing, Delivered, Delivery};
use crate::resource::{SCHEMA_URL, SCOPE, text};

/// What the export needs.
pub(crate) struct Export {
    pub(crate) exposition: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) interval: Duration,
    pub(crate) closing: Closing,
    pub(crate) start: SystemTime,
}

/// Exports until the process stops, and a last time then.
///
/// Nothing is kept between exports: after one that took longer than the interval, the next one reads a new exposition,
/// and the intervals between are counted as skipped.
pub(crate) async fn run(export: Export) {
    let mut converter = Converter::new(export.start);
    let mut ticks = interval_at(Instant::now() + export.interval, export.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closing = export.closing.clone();
    loop {
        let stops = tokio::select! {
            _ = ticks.tick() => false,
            _ = closing.wait_for(Option::is_some) => true,
        };
        let began = Instant::now();
        let Some(used) = export_once(&export, converter).await else {
            return;
        };
        converter = used;
        if stops {
            return;
        }
        let missed = began.elapsed().as_nanos() / export.interval.as_nanos().max(1);
        export
            .delivery
            .counters()
            .exports_skipped
            .add(u64::try_from(missed).unwrap_or(u64::MAX));
    }
}

/// Reads, converts and sends one exposition. None if the exposition panics or the runtime stops.
async fn export_once(export: &Export, mut converter: Converter) -> Option<Converter> {
    let exposition = Arc::clone(&export.exposition);
    // The exposition and its conversion can take 100 ms at 100,000 series: not on a thread that serves connections.
    let work = tokio::task::spawn_blocking(move || {
        #[allow(
            clippy::disallowed_methods,
            reason = "the edge: the time of the exposition is read once, here"
        )]
        let at = SystemTime::now();
        let converted = converter.convert(&exposition(), at);
        (converter, converted)
    });
    let (converter, converted) = match work.await {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(%error, "cannot write the exposition for OTLP; no more metrics are exported");
            return None;
        }
    };
    export
        .delivery
        .counters()
        .items_unreadable
        .add(converted.unreadable);
    let mut delivered = Delivered::Accepted;
    for (metrics, points) in requests(converted.metrics) {
        // A receiver that is down would delay each of 20 requests by all attempts.
        if delivered == Delivered::Failed {
            export.delivery.counters().items_failed.add(points);
            continue;
        }
        let message = Bytes::from(encode(metrics, &export.attributes));
        delivered = export.delivery.deliver(message, points).await;
    }
    Some(converter)
}

impl Converted {
    /// The encoded request of these metrics, of a resource with these attributes.
    pub fn request(self, attributes: &[(String, String)]) -> Vec<u8> {
        encode(self.metrics, attributes)
    }
}

fn encode(metrics: Vec<Metric>, attributes: &[(String, String)]) -> Vec<u8> {
    let attributes = attributes
        .iter()
        .map(|(name, value)| text(name, value.clone()));
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: SCOPE.to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics,
                schema_url: SCHEMA_URL.to_owned(),
            }],
            schema_url: String::new(),
        }],
    };
    request.encode_to_vec()
}

//! All three signals over both protocols, read back by name.

use std::io;
use std::sync::{Arc, Mutex};

use crate::receiver::{Mode, Receiver, show};
use crate::start::{EXPOSITION, at, incident, start};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use railscope_otlp::{EventKind, IncidentEvent, Otlp, Stats, WithTraceIds};
use tracing_subscriber::fmt::format::Format;
use tracing_subscriber::fmt::layer as fmt_layer;
use tracing_subscriber::prelude::*;

const BOTH: [&str; 2] = ["grpc", "http/protobuf"];

/// Sends one of each signal; the shutdown flushes.
async fn send_all(mut otlp: Otlp) -> Stats {
    otlp.export_metrics(at(1_000), || EXPOSITION.to_owned());
    otlp.incidents().expect("logs are on").emit(&IncidentEvent {
        kind: EventKind::Opened,
        at: at(1_700_000_060),
        incident: incident("i1"),
    });
    let layer = otlp.trace_layer().expect("traces are on");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _cycle =
            tracing::info_span!(target: "railscope_collector::analyzer", "analysis", nodes = 8)
                .entered();
        let _foreign = tracing::info_span!(target: "hyper", "connection").entered();
        let _detail =
            tracing::debug_span!(target: "railscope_collector::analyzer", "detail").entered();
        let _detect =
            tracing::info_span!(target: "railscope_collector::detect", "detect").entered();
    });
    otlp.shutdown().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_signals_arrive_over_both_protocols_with_and_without_compression() {
    for protocol in BOTH {
        for compression in ["none", "gzip"] {
            let receiver = Receiver::start(Mode::Accept).await;
            let stats = send_all(start(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
                (
                    "OTEL_EXPORTER_OTLP_HEADERS",
                    "authorization=Bearer%20x,x-tenant=a",
                ),
                (
                    "OTEL_RESOURCE_ATTRIBUTES",
                    "deployment.environment=test,service.name=other",
                ),
                ("OTEL_SERVICE_NAME", "collector"),
            ]))
            .await;
            check_all(&receiver, protocol, compression, stats);
        }
    }
}

fn check_all(receiver: &Receiver, protocol: &str, compression: &str, stats: Stats) {
    let context = format!("{protocol} {compression}");
    let mut names: Vec<_> = receiver
        .metrics()
        .into_iter()
        .map(|metric| metric.name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "hw.network.io",
            "hw.power",
            "railscope.gpu_power_limit_watts"
        ],
        "{context}"
    );
    let logs = receiver.logs();
    assert_eq!(logs.len(), 1, "{context}");
    assert_eq!(logs[0].event_name, "railscope.incident.opened", "{context}");
    let spans = receiver.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        ["detect", "analysis"],
        "{context}: own targets from INFO on, and no others"
    );
    assert_eq!(spans[0].parent_span_id, spans[1].span_id, "{context}");
    let resource = receiver.with(|got| got.metrics[0].resource_metrics[0].resource.clone());
    assert_eq!(
        show(&resource.expect("a resource").attributes),
        [
            "deployment.environment=test",
            "host.name=a",
            "service.instance.id=a:9401",
            "service.name=collector",
            "service.version=1.2.3",
        ],
        "{context}"
    );
    let logs_resource = receiver.with(|got| got.logs[0].resource_logs[0].resource.clone());
    assert_eq!(
        logs_resource.expect("a resource").attributes.len(),
        5,
        "{context}"
    );
    receiver.with(|got| {
        assert_eq!(got.requests.len(), 3, "{context}");
        let encoding = if protocol == "grpc" {
            "grpc-encoding"
        } else {
            "content-encoding"
        };
        for (path, headers) in &got.requests {
            assert_eq!(headers["authorization"], "Bearer x", "{context} {path}");
            assert_eq!(headers["x-tenant"], "a", "{context} {path}");
            let found = headers
                .get(encoding)
                .is_some_and(|encoding| encoding == "gzip");
            assert_eq!(found, compression == "gzip", "{context} {path}");
        }
    });
    let sent = stats
        .by_signal()
        .map(|(_, counts)| (counts.exports_ok, counts.items_sent, counts.dropped()));
    assert_eq!(sent, [(1, 4, 0), (1, 1, 0), (1, 2, 0)], "{context}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_has_its_attributes_times_and_severity() {
    let receiver = Receiver::start(Mode::Accept).await;
    let otlp = start(&[(
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        &format!("{}/v1/logs", receiver.url()),
    )]);
    let log = otlp.incidents().expect("logs are on");
    for kind in [EventKind::Opened, EventKind::Closed] {
        log.emit(&IncidentEvent {
            kind,
            at: at(1_700_000_060),
            incident: incident("i1"),
        });
    }
    otlp.shutdown().await;
    let logs = receiver.logs();
    let heads: Vec<_> = logs
        .iter()
        .map(|log| (log.event_name.as_str(), log.severity_number))
        .collect();
    assert_eq!(
        heads,
        [
            ("railscope.incident.opened", 17),
            ("railscope.incident.closed", 9)
        ]
    );
    assert_eq!(logs[0].time_unix_nano, 1_700_000_060_000_000_000);
    assert_eq!(
        show(&logs[0].attributes),
        [
            "railscope.incident.affected_gpus=64",
            "railscope.incident.affected_jobs=1",
            "railscope.incident.class=bad-cable",
            "railscope.incident.cluster=east",
            "railscope.incident.component=cable leaf1/3 node7/mlx5_0",
            "railscope.incident.id=i1",
            "railscope.incident.posterior=0.93",
            "railscope.incident.related=[node7/mlx5_0/1]",
            "railscope.incident.runbook=https://example.org/bad-cable",
            "railscope.incident.severity=critical",
            "railscope.incident.since=1700000000",
            "railscope.incident.suppressed=false",
            "railscope.incident.victims=4",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_exported_at_each_interval() {
    let receiver = Receiver::start(Mode::Accept).await;
    let mut otlp = start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
    ]);
    otlp.export_metrics(at(1_000), || EXPOSITION.to_owned());
    receiver
        .until("three exports", |got| got.metrics.len() >= 3)
        .await;
    otlp.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_exposition_is_split_and_each_point_arrives_once() {
    let series = |name: &str, count: u32| -> String {
        let lines = (0..count).map(|at| format!("{name}{{a=\"{at}\"}} {at}\n"));
        format!("# TYPE {name} gauge\n{}", lines.collect::<String>())
    };
    let exposition = series("a", 3) + &series("b", 12_000) + &series("c", 1) + &series("d", 5_000);
    let receiver = Receiver::start(Mode::Accept).await;
    let mut otlp = start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url())]);
    otlp.export_metrics(at(1_000), move || exposition.clone());
    let stats = otlp.shutdown().await.metrics;
    assert_eq!((stats.exports_ok, stats.items_sent), (3, 17_004));
    let mut points: Vec<_> = receiver
        .metrics()
        .into_iter()
        .flat_map(|metric| {
            let Some(Data::Gauge(gauge)) = metric.data else {
                panic!("a gauge: {}", metric.name);
            };
            assert!(gauge.data_points.len() <= 8_000);
            let name = metric.name;
            gauge
                .data_points
                .into_iter()
                .map(move |point| (name.clone(), show(&point.attributes)))
        })
        .collect();
    points.sort();
    points.dedup();
    assert_eq!(points.len(), 17_004);
}

/// A writer that keeps what is written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_within_an_exported_span_have_its_ids_and_others_have_none() {
    let receiver = Receiver::start(Mode::Accept).await;
    let otlp = start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url())]);
    let lines = |with_traces: bool| {
        let written = Lines::default();
        let writer = written.clone();
        let format = WithTraceIds(Format::default().without_time());
        let fmt = fmt_layer()
            .event_format(format)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let traces = otlp.trace_layer().filter(|_| with_traces);
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(traces).with(fmt),
            || {
                tracing::info!(target: "railscope_collector", "outside");
                let _cycle =
                    tracing::info_span!(target: "railscope_collector", "analysis").entered();
                tracing::info!(target: "railscope_collector", "inside");
            },
        );
        let bytes = written.0.lock().expect("lock").clone();
        String::from_utf8(bytes).expect("text")
    };
    let plain = lines(false);
    assert!(!plain.contains("trace_id"), "{plain}");
    let with_ids = lines(true);
    otlp.shutdown().await;
    let span = receiver.spans().remove(0);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let ids = format!(
        "trace_id={} span_id={} ",
        hex(&span.trace_id),
        hex(&span.span_id)
    );
    let lines: Vec<_> = with_ids.lines().collect();
    assert!(!lines[0].contains("trace_id"), "{with_ids}");
    assert!(
        lines[1].starts_with(&ids) && lines[1].ends_with("inside"),
        "{with_ids}"
    );
}

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, ScopeMetrics, Sum,
    Summary, summary_data_point::ValueAtQuantile,
};
use opentelemetry_proto::tonic::resource::v1::Resource as ProtoResource;

use super::*;
use crate::resource::text as attribute;
use crate::{Converter, otlp_name};

const NANOS: u64 = 1_000_000_000_000;

fn request(resource: &[(&str, &str)], metrics: Vec<Metric>) -> Bytes {
    let attributes = resource
        .iter()
        .map(|(name, value)| attribute(name, (*value).to_owned()));
    let resource = ResourceMetrics {
        resource: Some(ProtoResource {
            attributes: attributes.collect(),
            ..ProtoResource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    };
    request.encode_to_vec().into()
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(labels: &[(&str, &str)], value: f64, nanos: u64) -> NumberDataPoint {
    let attributes = labels
        .iter()
        .map(|(name, value)| attribute(name, (*value).to_owned()));
    NumberDataPoint {
        attributes: attributes.collect(),
        time_unix_nano: nanos,
        value: Some(Number::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn gauge(points: Vec<NumberDataPoint>) -> Data {
    Data::Gauge(Gauge {
        data_points: points,
    })
}

fn sum(temporality: AggregationTemporality, points: Vec<NumberDataPoint>) -> Data {
    Data::Sum(Sum {
        data_points: points,
        aggregation_temporality: temporality as i32,
        is_monotonic: true,
    })
}

/// Every sample as a line of text, and the number of unsupported points.
fn lines(body: Bytes) -> (Vec<String>, u64) {
    let mut lines = Vec::new();
    let request = Request::decode(body).expect("a request");
    let mut unsupported = 0;
    for resource in request.resources() {
        unsupported += resource.read(|point| lines.push(line(point)));
    }
    (lines, unsupported)
}

fn line(point: &Point<'_>) -> String {
    let labels = point
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"));
    let labels: Vec<_> = labels.collect();
    let value = point
        .value
        .map_or("ended".to_owned(), |value| value.to_string());
    let delta = point.delta_until.map_or("", |_| " delta");
    format!(
        "{}{{{}}} {value}{delta} @{}",
        point.name,
        labels.join(","),
        point.millis
    )
}

#[test]
fn numbers_keep_prometheus_names_and_translate_others() {
    let point = || vec![number(&[("a.b", "x"), ("empty", "")], 2.5, NANOS)];
    let cumulative = |points| sum(AggregationTemporality::Cumulative, points);
    let (lines, unsupported) = lines(request(
        &[],
        vec![
            metric("DCGM_FI_DEV_GPU_TEMP", "C", gauge(point())),
            metric("node_cpu_seconds_total", "s", cumulative(point())),
            metric("system.network.io", "By", cumulative(point())),
            metric("fan.speed", "%", gauge(point())),
            metric("1st.duration", "1", gauge(point())),
            metric(
                "switch.dropped",
                "{packet}",
                sum(AggregationTemporality::Delta, point()),
            ),
        ],
    ));
    assert_eq!(unsupported, 0);
    assert_eq!(
        lines,
        [
            "DCGM_FI_DEV_GPU_TEMP{a_b=\"x\"} 2.5 @1000000",
            "node_cpu_seconds_total{a_b=\"x\"} 2.5 @1000000",
            "system_network_io_bytes_total{a_b=\"x\"} 2.5 @1000000",
            "fan_speed_percent{a_b=\"x\"} 2.5 @1000000",
            "_1st_duration_ratio{a_b=\"x\"} 2.5 @1000000",
            "switch_dropped_total{a_b=\"x\"} 2.5 delta @1000000",
        ]
    );
}

#[test]
fn histograms_and_summaries_become_their_series() {
    let histogram = HistogramDataPoint {
        time_unix_nano: NANOS,
        count: 6,
        sum: Some(1.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.1, 0.5],
        ..HistogramDataPoint::default()
    };
    let histogram = Data::Histogram(Histogram {
        data_points: vec![histogram],
        aggregation_temporality: AggregationTemporality::Cumulative as i32,
    });
    let summary = SummaryDataPoint {
        time_unix_nano: NANOS,
        count: 4,
        sum: 2.0,
        quantile_values: vec![ValueAtQuantile {
            quantile: 0.99,
            value: 0.7,
        }],
        ..SummaryDataPoint::default()
    };
    let summary = Data::Summary(Summary {
        data_points: vec![summary],
    });
    let exponential = Data::ExponentialHistogram(ExponentialHistogram {
        data_points: vec![ExponentialHistogramDataPoint::default()],
        aggregation_temporality: 0,
    });
    let (lines, unsupported) = lines(request(
        &[],
        vec![
            metric("stall.time", "s", histogram),
            metric("rpc_seconds", "s", summary),
            metric("x", "s", exponential),
        ],
    ));
    assert_eq!(unsupported, 1);
    assert_eq!(
        lines,
        [
            "stall_time_seconds_sum{} 1.5 @1000000",
            "stall_time_seconds_count{} 6 @1000000",
            "stall_time_seconds_bucket{le=\"+Inf\"} 6 @1000000",
            "stall_time_seconds_bucket{le=\"0.1\"} 1 @1000000",
            "stall_time_seconds_bucket{le=\"0.5\"} 3 @1000000",
            "rpc_seconds_sum{} 2 @1000000",
            "rpc_seconds_count{} 4 @1000000",
            "rpc_seconds{quantile=\"0.99\"} 0.7 @1000000",
        ]
    );
}

#[test]
fn points_of_one_collection_have_one_time_and_those_of_scrapes_their_own() {
    let of = |with_up: bool| {
        let mut all = vec![
            metric(
                "a",
                "",
                gauge(vec![
                    number(&[], 1.0, NANOS),
                    number(&[], 1.0, NANOS + 1_000_000_000),
                ]),
            ),
            metric("b", "", gauge(vec![number(&[], 2.0, NANOS + 999_000_000)])),
        ];
        if with_up {
            all.push(metric("up", "", gauge(vec![number(&[], 1.0, NANOS)])));
        }
        lines(request(&[], all)).0
    };
    assert_eq!(
        of(false),
        ["a{} 1 @1000000", "a{} 1 @1001000", "b{} 2 @1001000"]
    );
    assert_eq!(
        of(true),
        [
            "a{} 1 @1000000",
            "a{} 1 @1001000",
            "b{} 2 @1000999",
            "up{} 1 @1000000"
        ]
    );
}

#[test]
fn a_series_that_has_ended_has_no_value() {
    let ended = NumberDataPoint {
        flags: 1,
        value: None,
        ..number(&[], 0.0, NANOS)
    };
    let valueless = NumberDataPoint {
        value: None,
        ..number(&[], 0.0, NANOS)
    };
    let body = request(&[], vec![metric("a", "", gauge(vec![ended, valueless]))]);
    assert_eq!(lines(body), (vec!["a{} ended @1000000".to_owned()], 1));
}

#[test]
fn the_resource_names_job_instance_and_host() {
    let origin = |attributes: &[(&str, &str)]| {
        let point = gauge(vec![number(&[], 1.0, NANOS)]);
        let body = request(attributes, vec![metric("a", "", point)]);
        let request = Request::decode(body).expect("a request");
        let seen = request.resources().next().expect("a resource").origin;
        (
            seen.job,
            seen.instance.unwrap_or_default(),
            seen.host.unwrap_or_default(),
        )
    };
    let is = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    // The Prometheus receiver, of an agent on the node and of a gateway.
    let agent = [
        ("service.name", "dcgm"),
        ("service.instance.id", "localhost:9400"),
        ("server.address", "localhost"),
        ("host.name", "gpu-1"),
    ];
    assert_eq!(origin(&agent), is("dcgm", "gpu-1:9400", "gpu-1"));
    let gateway = [
        ("service.name", "dcgm"),
        ("service.instance.id", "gpu-2:9400"),
        ("server.address", "gpu-2"),
        ("host.name", "gateway"),
    ];
    assert_eq!(origin(&gateway), is("dcgm", "gpu-2:9400", "gpu-2"));
    let switch = [("net.host.name", "leaf-01")];
    assert_eq!(origin(&switch), is("", "leaf-01", "leaf-01"));
    let pod = [
        ("service.namespace", "ml"),
        ("service.name", "exporter"),
        ("service.instance.id", "a-uuid"),
        ("k8s.node.name", "n1"),
        ("host.name", "pod-7"),
    ];
    assert_eq!(origin(&pod), is("ml/exporter", "n1", "n1"));
    assert_eq!(origin(&pod[..3]), is("ml/exporter", "a-uuid", ""));
    // Every host has a localhost.
    assert_eq!(origin(&agent[..3]), is("dcgm", "", ""));
    assert_eq!(origin(&[]), is("", "", ""));
}

#[test]
fn what_the_exporter_sends_is_read_back_with_the_names_of_the_catalogue() {
    let exposition = "\
# TYPE railscope_gpu_memory_used_bytes gauge
railscope_gpu_memory_used_bytes{gpu=\"0\"} 7
# TYPE railscope_rdma_port_transmit_bytes_total counter
railscope_rdma_port_transmit_bytes_total{device=\"mlx5_0\",port=\"1\"} 8
railscope_rdma_port_receive_bytes_total{device=\"mlx5_0\",port=\"1\"} 9
# TYPE railscope_gpu_ecc_errors_total counter
railscope_gpu_ecc_errors_total{gpu=\"0\",severity=\"uncorrected\"} 1
# TYPE railscope_rdma_port_errors_total counter
railscope_rdma_port_errors_total{device=\"mlx5_0\",port=\"1\",kind=\"symbol\"} 2
# TYPE railscope_nic_pcie_stalled_ratio gauge
railscope_nic_pcie_stalled_ratio{device=\"mlx5_0\"} 0.5
# TYPE railscope_gpu_pcie_replays_total counter
railscope_gpu_pcie_replays_total{gpu=\"0\"} 3
";
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let converted = Converter::new(at).convert(exposition, at);
    assert_ne!(
        otlp_name("railscope_gpu_memory_used_bytes").name,
        "railscope_gpu_memory_used_bytes"
    );
    let sorted = |line: &str| {
        let (name, rest) = line.split_once('{').expect("labels");
        let (labels, rest) = rest.split_once('}').expect("labels");
        let mut labels: Vec<_> = labels.split(',').collect();
        labels.sort_unstable();
        format!("{name}{{{}}}{rest}", labels.join(","))
    };
    let mut expected: Vec<_> = exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(sorted)
        .collect();
    let (lines, unsupported) = lines(request(&[], converted.metrics));
    let mut read: Vec<_> = lines
        .iter()
        .map(|line| sorted(line.trim_end_matches(" @1000000")))
        .collect();
    expected.sort();
    read.sort();
    assert_eq!((read, unsupported), (expected, 0));
}

#[test]
fn a_response_names_what_was_rejected() {
    assert!(response(0, "").is_empty());
    let response = ExportMetricsServiceResponse::decode(response(3, "no instance"));
    let partial = response
        .expect("a response")
        .partial_success
        .expect("rejected");
    assert_eq!(
        (partial.rejected_data_points, &*partial.error_message),
        (3, "no instance")
    );
}

#[test]
fn another_message_is_an_error() {
    assert!(Request::decode(Bytes::from_static(b"\xff\xff")).is_err());
}

#[test]
fn buckets_that_add_up_to_more_than_a_counter_holds_stay_at_its_maximum() {
    let histogram = Data::Histogram(Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: NANOS,
            bucket_counts: vec![u64::MAX, 2, 0],
            explicit_bounds: vec![0.1, 0.5],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Cumulative as i32,
    });
    let (lines, _) = lines(request(&[], vec![metric("stall", "s", histogram)]));
    let buckets = lines
        .iter()
        .filter(|line| line.contains("0.1") || line.contains("0.5"));
    let most = (u64::MAX as f64).to_string();
    assert_eq!(
        buckets.filter(|line| line.contains(&most)).count(),
        2,
        "{lines:?}"
    );
}

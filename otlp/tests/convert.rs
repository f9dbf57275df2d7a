//! Expositions and their OTLP metrics, as text.

use crate::receiver::show;
use crate::start::at;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use railscope_otlp::{Converted, Converter};

/// Seconds of a time in nanoseconds.
fn seconds(nanos: u64) -> u64 {
    nanos / 1_000_000_000
}

fn number(point: &NumberDataPoint) -> String {
    let Some(Value::AsDouble(value)) = point.value else {
        panic!("every number is a double: {point:?}");
    };
    let times = (
        seconds(point.start_time_unix_nano),
        seconds(point.time_unix_nano),
    );
    format!(
        "{{{}}} {value} {}..{}",
        show(&point.attributes).join(","),
        times.0,
        times.1
    )
}

/// Each point as `name [unit] kind{attributes} value start..time`.
fn lines(converted: &Converted) -> Vec<String> {
    let points = |metric: &Metric| -> (String, Vec<String>) {
        match metric.data.as_ref().expect("data") {
            Data::Gauge(gauge) => (
                "gauge".to_owned(),
                gauge.data_points.iter().map(number).collect(),
            ),
            Data::Sum(sum) => {
                assert_eq!(sum.aggregation_temporality, 2, "cumulative");
                let kind = if sum.is_monotonic {
                    "counter"
                } else {
                    "updown"
                };
                (
                    kind.to_owned(),
                    sum.data_points.iter().map(number).collect(),
                )
            }
            Data::Histogram(histogram) => {
                assert_eq!(histogram.aggregation_temporality, 2, "cumulative");
                let points = histogram.data_points.iter().map(|point| {
                    format!(
                        "{{{}}} {:?}<={:?} sum {:?} count {} {}..{}",
                        show(&point.attributes).join(","),
                        point.bucket_counts,
                        point.explicit_bounds,
                        point.sum.unwrap_or(f64::NAN),
                        point.count,
                        seconds(point.start_time_unix_nano),
                        seconds(point.time_unix_nano)
                    )
                });
                ("histogram".to_owned(), points.collect())
            }
            Data::Summary(summary) => {
                let points = summary.data_points.iter().map(|point| {
                    let quantiles: Vec<_> = point
                        .quantile_values
                        .iter()
                        .map(|value| (value.quantile, value.value))
                        .collect();
                    format!(
                        "{{{}}} {quantiles:?} sum {} count {}",
                        show(&point.attributes).join(","),
                        point.sum,
                        point.count
                    )
                });
                ("summary".to_owned(), points.collect())
            }
            Data::ExponentialHistogram(_) => panic!("not made"),
        }
    };
    let all = converted.metrics.iter().flat_map(|metric| {
        let (kind, points) = points(metric);
        points
            .into_iter()
            .map(move |point| format!("{} [{}] {kind}{point}", metric.name, metric.unit))
    });
    all.collect()
}

const EXPOSITIONS: &[(&str, &[&str], u64)] = &[
    (
        "# TYPE railscope_gpu_memory_used_bytes gauge\nrailscope_gpu_memory_used_bytes{gpu=\"0\"} 5\n",
        &["hw.gpu.memory.usage [By] updown{gpu=0,hw.id=gpu/0,hw.type=gpu} 5 100..200"],
        0,
    ),
    (
        "# TYPE railscope_gpu_temperature_limit_celsius gauge\n\
             railscope_gpu_temperature_limit_celsius{gpu=\"1\",limit=\"shutdown\"} 95\n",
        &[
            "hw.temperature.limit [Cel] gauge{gpu=1,hw.id=gpu/1,hw.limit_type=high.critical,hw.type=gpu} 95 0..200",
        ],
        0,
    ),
    (
        "# TYPE railscope_rdma_port_errors_total counter\n\
             railscope_rdma_port_errors_total{device=\"mlx5_0\",port=\"1\",kind=\"symbol_error\"} 3\n",
        &[
            "hw.errors [{error}] counter{device=mlx5_0,error.type=symbol_error,hw.id=mlx5_0/1,hw.parent=mlx5_0,\
               hw.type=network,port=1} 3 100..200",
        ],
        0,
    ),
    (
        "# TYPE railscope_rdma_port_transmit_bytes_total counter\n\
             railscope_rdma_port_transmit_bytes_total{device=\"d\",port=\"1\"} 1\n\
             # TYPE railscope_rdma_port_receive_bytes_total counter\n\
             railscope_rdma_port_receive_bytes_total{device=\"d\",port=\"1\"} 2\n",
        &[
            "hw.network.io [By] counter{device=d,hw.id=d/1,hw.parent=d,hw.type=network,network.io.direction=transmit,\
                 port=1} 1 100..200",
            "hw.network.io [By] counter{device=d,hw.id=d/1,hw.parent=d,hw.type=network,network.io.direction=receive,\
                 port=1} 2 100..200",
        ],
        0,
    ),
    (
        "# TYPE railscope_gpu_info gauge\nrailscope_gpu_info{gpu=\"0\",name=\"H\\\"100\",serial=\"\"} 1\n",
        &["railscope.gpu_info [] gauge{gpu=0,name=H\"100} 1 0..200"],
        0,
    ),
    (
        "# TYPE railscope_nic_pause_seconds counter\n# UNIT railscope_nic_pause_seconds seconds\n\
             railscope_nic_pause_seconds_total{netdev=\"e\"} 2.5\n\
             railscope_nic_pause_seconds_created{netdev=\"e\"} 9\n# EOF\n",
        &["railscope.nic_pause_seconds [s] counter{netdev=e} 2.5 100..200"],
        0,
    ),
    (
        "# TYPE h_seconds histogram\nh_seconds_bucket{a=\"x\",le=\"0.1\"} 1\nh_seconds_bucket{a=\"x\",le=\"0.5\"} 4\n\
             h_seconds_bucket{a=\"x\",le=\"+Inf\"} 6\nh_seconds_sum{a=\"x\"} 2.5\nh_seconds_count{a=\"x\"} 6\n\
             h_seconds_bucket{a=\"y\",le=\"+Inf\"} 2\nh_seconds_bucket{a=\"y\",le=\"0.1\"} 2\n\
             h_seconds_sum{a=\"y\"} 0.1\n\
             h_seconds_count{a=\"y\"} 2\n",
        &[
            "h_seconds [s] histogram{a=x} [1, 3, 2]<=[0.1, 0.5] sum 2.5 count 6 100..200",
            "h_seconds [s] histogram{a=y} [2, 0]<=[0.1] sum 0.1 count 2 100..200",
        ],
        0,
    ),
    (
        "# TYPE s summary\ns{quantile=\"0.5\"} 1\ns{quantile=\"0.9\"} 2\ns_sum 30\ns_count 20\n",
        &["s [] summary{} [(0.5, 1.0), (0.9, 2.0)] sum 30 count 20"],
        0,
    ),
    (
        "no_type 1\nbad line\nno_type{a=\"b\"} NaN\nno_type{a=\"c\"} +Inf\n",
        &["no_type [] gauge{} 1 0..200"],
        3,
    ),
    (
        "# TYPE a counter\na 7 150000\n",
        &["a [] counter{} 7 100..150"],
        0,
    ),
];

#[test]
fn every_kind_of_series_has_its_kind_of_point() {
    for (exposition, expected, unreadable) in EXPOSITIONS {
        let converted = Converter::new(at(100)).convert(exposition, at(200));
        assert_eq!(&lines(&converted), expected, "{exposition}");
        assert_eq!(converted.unreadable, *unreadable, "{exposition}");
        assert_eq!(converted.points, expected.len() as u64, "{exposition}");
    }
}

#[test]
fn a_counter_that_falls_starts_at_the_exposition_before() {
    let mut converter = Converter::new(at(100));
    let starts =
        [(200, 5), (260, 9), (320, 2), (380, 2), (440, 3), (500, 0)].map(|(time, value)| {
            let text = format!(
                "# TYPE a counter\na{{b=\"c\"}} {value}\na{{b=\"d\"}} 1\n# TYPE h histogram\n\
             h_bucket{{le=\"+Inf\"}} {value}\n\
             h_sum 1\nh_count {value}\n"
            );
            let converted = converter.convert(&text, at(time));
            let start_of = |text: &str| {
                let start = text
                    .rsplit(' ')
                    .next()
                    .and_then(|times| times.split("..").next());
                start
                    .and_then(|start| start.parse::<u64>().ok())
                    .expect("a start")
            };
            let lines = lines(&converted);
            assert_eq!(start_of(&lines[1]), 100, "the other counter was not reset");
            assert_eq!(
                start_of(&lines[0]),
                start_of(&lines[2]),
                "counters and histograms alike"
            );
            start_of(&lines[0])
        });
    assert_eq!(starts, [100, 100, 260, 260, 260, 440]);
}

#[test]
fn a_counter_that_was_absent_for_an_hour_is_forgotten() {
    let mut converter = Converter::new(at(100));
    converter.convert("# TYPE a counter\na 5\n", at(200));
    converter.convert("", at(200 + 3_601));
    let converted = converter.convert("# TYPE a counter\na 1\n", at(4_000));
    assert_eq!(lines(&converted), ["a [] counter{} 1 100..4000"]);
}

#[test]
fn the_catalogue_describes_its_own_metrics() {
    let converted = Converter::new(at(1)).convert(
        "# TYPE railscope_gpu_info gauge\nrailscope_gpu_info{gpu=\"0\"} 1\n",
        at(2),
    );
    assert_eq!(
        converted.metrics[0].description,
        railscope_model::metric::GPU.help
    );
}

#[test]
fn expositions_of_whole_machines_convert_without_a_loss() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden");
    let files = std::fs::read_dir(folder)
        .expect("golden files")
        .map(|entry| entry.expect("entry").path());
    let expositions: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|of| of == "prom"))
        .collect();
    assert!(expositions.len() > 5, "{expositions:?}");
    for path in expositions {
        // Golden files have an asterisk for a value that differs between runs.
        let text = std::fs::read_to_string(&path)
            .expect("text")
            .replace(" *\n", " 1\n");
        let converted = Converter::new(at(100)).convert(&text, at(200));
        assert_eq!(converted.unreadable, 0, "{}", path.display());
        // A histogram is one point of many lines.
        let part = |line: &str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            name.ends_with("_bucket") || name.ends_with("_sum")
        };
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !part(line))
            .count();
        assert_eq!(converted.points, lines as u64, "{}", path.display());
        let mut names: Vec<_> = converted
            .metrics
            .iter()
            .map(|metric| metric.name.as_str())
            .collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before, "each name once: {}", path.display());
    }
}

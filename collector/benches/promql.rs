//! A cluster with known faults, evaluated here, and written for evaluation by Prometheus and VictoriaMetrics with PromQL.
//!
//! `tests/bench/detect_vs_promql` runs it. `cargo bench -p railscope-collector --bench promql -- NODES FOLDER END`
//! writes the series that its rules read into FOLDER, the last scrape read END seconds after 1970, and prints JSON.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod cluster;
mod measure;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use cluster::{Cluster, EVERY_SECONDS, FULL, Fault, GPUS_PER_NODE, Wrong};
use measure::{megabytes, processor_time};
use railscope_model::fabric::Timestamp;
use serde_json::json;

/// Scrapes and ticks.
const TICKS: u32 = 16;
/// When the faults begin.
const BEGINS: f64 = 30.0;
/// Series that the rules read. Prometheus gets no others: it would have seventeen times as many to keep.
const WANTED: &[&str] = &[
    "railscope_gpu_clock_hertz",
    "railscope_gpu_clock_event_seconds_total",
    "railscope_gpu_utilization_ratio",
    "railscope_rdma_port_up",
    "railscope_rdma_port_errors_total",
    "railscope_rdma_port_transmit_bytes_total",
    "railscope_rdma_port_receive_bytes_total",
    "railscope_cpu_steal_seconds_total",
];

/// A fault of each kind that a rule finds; the output contains the part's name.
const FAULTS: &[(&str, &[(&str, Wrong)])] = &[
    (
        "gpu/gpu-00003:2",
        &[
            (
                "railscope_gpu_clock_hertz{gpu=\"2\",clock=\"sm\"",
                Wrong::Times(0.8),
            ),
            (
                "railscope_gpu_clock_event_seconds_total{gpu=\"2\",reason=\"hw_thermal\"",
                Wrong::Rises(0.6),
            ),
        ],
    ),
    (
        "link/gpu-00021:mlx5_4/1",
        &[(
            "railscope_rdma_port_errors_total{device=\"mlx5_4\",port=\"1\",kind=\"symbol_error\"",
            Wrong::Rises(3.0),
        )],
    ),
    (
        "link/gpu-00040:mlx5_1/1",
        &[("railscope_rdma_port_up{device=\"mlx5_1\"", Wrong::Is(0.0))],
    ),
    (
        "link/gpu-00060:mlx5_6/1",
        &[
            (
                "railscope_rdma_port_transmit_bytes_total{device=\"mlx5_6\"",
                Wrong::Times(1.4),
            ),
            (
                "railscope_rdma_port_receive_bytes_total{device=\"mlx5_6\"",
                Wrong::Times(1.4),
            ),
        ],
    ),
    (
        "host/gpu-00077",
        &[("railscope_cpu_steal_seconds_total", Wrong::Rises(0.3))],
    ),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|one| one != "--bench");
    let (Some(nodes), Some(folder), Some(end)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        println!("nothing to do: run tests/bench/detect_vs_promql");
        return;
    };
    let mut cluster = Cluster::new(nodes.parse().expect("a number of nodes"), FULL);
    cluster.faults = faults();
    let end: f64 = end.parse().expect("seconds");
    let begin = Timestamp(((end - EVERY_SECONDS * f64::from(TICKS - 1)) * 1e3) as u64);
    let samples = write(&cluster, &PathBuf::from(folder), begin).expect("files");
    judge(&cluster, begin, samples);
}

fn faults() -> Vec<Fault> {
    let node = |part: &str| -> usize {
        let number = part.split("gpu-").nth(1).expect("a node");
        number[..5].parse().expect("a number")
    };
    let of_part = |(part, series): &(&str, &'static [(&'static str, Wrong)])| -> Vec<Fault> {
        let node = node(part);
        let faults = series.iter().map(|(series, wrong)| Fault {
            node,
            series,
            wrong: *wrong,
            since: BEGINS,
        });
        faults.collect()
    };
    FAULTS.iter().flat_map(of_part).collect()
}

/// Writes the series once with seconds, as OpenMetrics has them, and once with milliseconds.
fn write(cluster: &Cluster, folder: &std::path::Path, begin: Timestamp) -> std::io::Result<u64> {
    let file = |name| File::create(folder.join(name)).map(BufWriter::new);
    let (mut openmetrics, mut text) = (file("series.om")?, file("series.prom")?);
    let mut samples = 0;
    for tick in 0..TICKS {
        let seconds = EVERY_SECONDS * f64::from(tick);
        let at = begin.plus_seconds(seconds).0;
        for (node, name) in cluster.names.iter().enumerate() {
            let mut result = Ok(());
            cluster.values(node, seconds, WANTED, |series, value| {
                let labels = series.trim_end_matches('}');
                let line = format!("{labels},instance=\"{name}\"}} {value}");
                samples += 1;
                result = writeln!(openmetrics, "{line} {}", at as f64 / 1e3)
                    .and_then(|()| writeln!(text, "{line} {at}"));
            });
            result?;
        }
    }
    writeln!(openmetrics, "# EOF")?;
    openmetrics.flush()?;
    text.flush()?;
    Ok(samples)
}

/// Ingests the same expositions, all of their series, and evaluates them.
fn judge(cluster: &Cluster, begin: Timestamp, samples: u64) {
    let mut analyzer = cluster.watched(begin);
    let before = megabytes("VmRSS");
    let (mut ingest, mut ticks) = (Vec::new(), Vec::new());
    let mut named = Vec::new();
    for tick in 0..TICKS {
        let seconds = EVERY_SECONDS * f64::from(tick);
        let at = begin.plus_seconds(seconds);
        ingest.push(cluster.take_up(&mut analyzer, seconds, at, |_| {}));
        let began = processor_time();
        let view = analyzer.tick(at);
        ticks.push((processor_time() - began).as_secs_f64());
        let incidents = view.incidents.iter();
        named = incidents
            .map(|incident| incident.root.to_string())
            .collect();
    }
    named.sort();
    let usual = |costs: &[f64]| {
        // The first tick builds the fabric.
        let mut costs = costs[1..].to_vec();
        costs.sort_by(f64::total_cmp);
        costs[costs.len() / 2]
    };
    let answer = json!({
        "gpus": cluster.names.len() * GPUS_PER_NODE,
        "series_for_promql": samples / u64::from(TICKS),
        "series_for_railscope": cluster.names.len() * cluster.series_per_node(),
        "ingest_cpu_seconds": usual(&ingest),
        "tick_cpu_seconds": usual(&ticks),
        "megabytes": megabytes("VmHWM") - before,
        "wrong": FAULTS.iter().map(|(part, _)| part).collect::<Vec<_>>(),
        "named": named,
    });
    println!("{answer}");
}

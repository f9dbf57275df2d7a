//! Cost of one tick at 1,000, 10,000 and 100,000 GPUs: ingestion, switch reads, analysis, display; and memory.
//!
//! Processor time of all threads, so that other programs on the machine count little. Each size
//! runs in a separate process, once with the full profile of each node and once, after the word `default`, with the
//! default one; after the word `probes`, with the full profile and 256 flows of probes.
//! `cargo bench -p railscope-collector --bench tick -- [NODES... [default NODES...] [probes NODES...]]`.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod cluster;
mod measure;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use cluster::{Cluster, DEFAULT, EVERY_SECONDS, FULL, GPUS_PER_NODE};
use measure::{megabytes, processor_time};
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::config::{Config, Target};
use railscope_collector::detect::detector::{DETECTORS, Detector};
use railscope_collector::serve::router::router;
use railscope_collector::status::{Snapshot, State};
use railscope_model::fabric::Timestamp;
use tower::ServiceExt as _;

/// Until windows are full and the allocator has settled.
const TICKS: usize = 20;
/// Ticks at the end whose mean is printed.
const MEASURED: usize = 4;
/// Nodes of 8 GPUs, and again with the default profile.
const SIZES: &str = "125 1250 12500 default 1250";

/// Words before numbers of nodes.
const PAGES: [&str; 3] = ["full", "default", "probes"];

fn main() {
    if let Ok(nodes) = std::env::var("RAILSCOPE_TICK_NODES") {
        let page = std::env::var("RAILSCOPE_TICK_PAGE").unwrap_or_default();
        measure(nodes.parse().expect("a number of nodes"), &page);
        return;
    }
    // Cargo adds it, unless it runs benchmarks as tests.
    if !std::env::args().any(|text| text == "--bench") {
        return;
    }
    let wanted = std::env::args().skip(1).filter(|text| text != "--bench");
    let mut wanted: Vec<String> = wanted.collect();
    if wanted.is_empty() {
        wanted = SIZES.split(' ').map(str::to_owned).collect();
    }
    let this = std::env::current_exe().expect("this program");
    let mut page = "full";
    for word in &wanted {
        if let Some(known) = PAGES.iter().find(|known| *known == word) {
            page = known;
            continue;
        }
        let child = Command::new(&this)
            .env("RAILSCOPE_TICK_NODES", word)
            .env("RAILSCOPE_TICK_PAGE", page)
            .status();
        assert!(child.expect("a process").success(), "{word} nodes");
    }
}

/// Seconds by stage, in the order of their names.
type Costs = BTreeMap<&'static str, f64>;

fn measure(nodes: usize, page: &str) {
    let mut cluster = Cluster::new(nodes, if page == "default" { DEFAULT } else { FULL });
    cluster.probes = page == "probes";
    let at = |seconds: f64| Timestamp(1_800_000_000_000).plus_seconds(seconds);
    let state = Arc::new(State::new(&Config::default(), || {
        Timestamp(1_800_000_000_000)
    }));
    let targets = cluster.names.iter().cloned();
    let targets: Vec<_> = targets
        .map(|name| Target::of_node(name, String::new()))
        .collect();
    state.set_targets(&targets, true);
    println!(
        "\n{} GPUs: {nodes} nodes of {} series ({page}); {} MB before",
        nodes * GPUS_PER_NODE,
        cluster.series_per_node(),
        megabytes("VmRSS")
    );
    let mut analyzer = cluster.watched(at(0.0));
    let mut detectors: Vec<_> = DETECTORS.iter().map(|build| build()).collect();
    let (mut samples, mut sum) = (0, Costs::new());
    for tick in 0..TICKS {
        let seconds = tick as f64 * EVERY_SECONDS;
        let mut costs = Costs::new();
        let pages = cluster.take_up(&mut analyzer, seconds, at(seconds), |taken| {
            samples += taken.kept;
            assert!(taken.errors.is_empty(), "{:?}", taken.errors);
        });
        costs.insert("1 pages", pages);
        analyzer.take_readings(cluster.switches(seconds), at(seconds));
        let view = timed(&mut costs, "2 tick", || analyzer.tick(at(seconds)));
        if tick + MEASURED + 1 >= TICKS {
            by_detector(&mut detectors, &analyzer, &view, &mut costs);
        }
        let incidents = view.incidents.len();
        if let (true, Some(first)) = (tick + 1 == TICKS, view.incidents.first()) {
            // The cluster is healthy: whatever is named costs what it should not.
            let (root, findings) = (&first.root, &first.findings);
            println!(
                "  named: {root}: {:?}",
                findings.first().map(|one| &one.evidence.statement)
            );
        }
        let snapshot = timed(&mut costs, "4 view", || Snapshot::new(view));
        state.publish(snapshot);
        let bytes = timed(&mut costs, "5 /metrics", || metrics(&state));
        if tick == 0 {
            tell("the first tick", &costs, 1.0);
        }
        if tick + MEASURED >= TICKS {
            costs.iter().for_each(|(stage, seconds)| {
                *sum.entry(stage).or_default() += seconds;
            });
        }
        if tick + 1 == TICKS {
            tell("a tick", &sum, MEASURED as f64);
            println!(
                "  {incidents} incidents, {bytes} bytes of metrics, {} samples a tick; {} MB now, {} MB at most",
                samples / TICKS,
                megabytes("VmRSS"),
                megabytes("VmHWM")
            );
        }
    }
}

/// Each detector again, alone.
fn by_detector(
    detectors: &mut [Box<dyn Detector>],
    analyzer: &Analyzer,
    view: &ClusterView,
    costs: &mut Costs,
) {
    let seen = analyzer.seen(view);
    for detector in detectors {
        let mut out = Vec::new();
        timed(costs, detector.name(), || detector.observe(&seen, &mut out));
    }
}

fn metrics(state: &Arc<State>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let request = Request::get("/metrics").body(Body::empty());
    runtime.block_on(async {
        let answer = router(Arc::clone(state)).oneshot(request.expect("a request"));
        let body = answer.await.expect("an answer").into_body();
        let bytes = axum::body::to_bytes(body, usize::MAX).await;
        bytes.expect("a page").len()
    })
}

fn tell(what: &str, costs: &Costs, over: f64) {
    println!("  {what}, core-seconds:");
    for (stage, seconds) in costs {
        // Stages have numbers; the others are part of the tick.
        let part = if stage.starts_with(char::is_numeric) {
            ""
        } else {
            "        "
        };
        println!("    {part}{stage:<16} {:8.3}", seconds / over);
    }
}

fn timed<T>(costs: &mut Costs, stage: &'static str, work: impl FnOnce() -> T) -> T {
    let began = processor_time();
    let result = work();
    *costs.entry(stage).or_default() += (processor_time() - began).as_secs_f64();
    result
}

//! What one tick costs at 1,000, 10,000 and 100,000 GPUs: pages taken up, switches read, judged, shown; and memory.
//!
//! Processor time of the one thread that does it, so that other programs on the machine count little. Each size
//! runs in a process of its own. `cargo bench -p railscope-collector --bench tick -- [NODES...]`.
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
use cluster::{Cluster, GPUS_PER_NODE};
use measure::{megabytes, processor_time};
use railscope_collector::api::router;
use railscope_collector::config::{Config, Target};
use railscope_collector::core::ablation::LeftOut;
use railscope_collector::core::analyzer::{Analyzer, ClusterView};
use railscope_collector::core::detector::{DETECTORS, View};
use railscope_collector::state::{Snapshot, State};
use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_model::fabric::Timestamp;
use tower::ServiceExt as _;

/// Time between two scrapes of a node, two reads of all switches, and two ticks.
const EVERY_SECONDS: f64 = 10.0;
/// Until windows are full and the allocator has settled.
const TICKS: usize = 20;
/// Ticks at the end whose mean is told.
const MEASURED: usize = 4;
/// Nodes of 8 GPUs.
const SIZES: &[usize] = &[125, 1_250, 12_500];

fn main() {
    if let Ok(nodes) = std::env::var("RAILSCOPE_TICK_NODES") {
        measure(nodes.parse().expect("a number of nodes"));
        return;
    }
    // Cargo adds it, unless it runs benchmarks as tests.
    if !std::env::args().any(|text| text == "--bench") {
        return;
    }
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let sizes = if numbers.is_empty() { SIZES } else { &numbers };
    let this = std::env::current_exe().expect("this program");
    for nodes in sizes {
        let child = Command::new(&this)
            .env("RAILSCOPE_TICK_NODES", nodes.to_string())
            .status();
        assert!(child.expect("a process").success(), "{nodes} nodes");
    }
}

/// Seconds by stage, in the order of their names.
type Costs = BTreeMap<&'static str, f64>;

fn measure(nodes: usize) {
    let cluster = Cluster::new(nodes);
    let at = |seconds: f64| Timestamp(1_800_000_000_000).plus_seconds(seconds);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&cluster.names);
    let subnet = parse_ibnetdiscover(&cluster.subnet());
    let state = Arc::new(State::new(&Config::default(), || {
        Timestamp(1_800_000_000_000)
    }));
    let targets = cluster.names.iter().cloned();
    let targets: Vec<_> = targets
        .map(|name| Target::of_node(name, String::new()))
        .collect();
    state.set_targets(&targets, true);
    println!(
        "\n{} GPUs: {nodes} nodes of {} series; {} MB before",
        nodes * GPUS_PER_NODE,
        cluster.series_per_node(),
        megabytes("VmRSS")
    );
    analyzer.take_subnet(subnet, at(0.0));
    let (mut page, mut sum) = (String::new(), Costs::new());
    let mut samples = 0;
    for tick in 0..TICKS {
        let seconds = tick as f64 * EVERY_SECONDS;
        let mut costs = Costs::new();
        for (node, name) in cluster.names.iter().enumerate() {
            cluster.page(node, seconds, &mut page);
            let taken = timed(&mut costs, "1 pages", || {
                analyzer.ingest(name, &page, at(seconds))
            });
            samples += taken.kept;
            assert!(taken.errors.is_empty(), "{:?}", taken.errors);
        }
        analyzer.take_readings(cluster.switches(seconds), at(seconds));
        let view = timed(&mut costs, "2 tick", || analyzer.tick(at(seconds)));
        if tick + MEASURED >= TICKS {
            by_detector(&analyzer, &view, &mut costs);
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

/// Each detector once more, alone and without memory of earlier ticks.
fn by_detector(analyzer: &Analyzer, view: &ClusterView, costs: &mut Costs) {
    let seen = View {
        fabric: &view.fabric,
        history: analyzer.history(),
        jobs: &view.jobs,
        waiting: &view.waiting,
        misplaced: &view.verdict.wiring.misplaced,
        subnet_seen: view.subnet_seen,
        left_out: LeftOut::default(),
        now: view.now,
    };
    for build in DETECTORS {
        let mut detector = build();
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

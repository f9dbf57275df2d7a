//! Time to wire a cluster, to simulate 10 seconds, and to apply a fault, by its kind and size.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark")]

use std::cell::{LazyCell, RefCell};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::work::workload::{Collective, JobSpec, Pattern};

const TICK: Duration = Duration::from_secs(10);

/// Kind, its fabric, nodes, and how many nodes exchange all to all beside the ring of the usual job, if any.
/// Eight rails that never meet, three tiers of 64-port switches, unless stated otherwise.
const KINDS: &[(&str, &str, &[u16], Option<u16>)] = &[
    ("infiniband", "", &[128, 1_250, 12_500], None),
    (
        "roce",
        "transport = \"roce\"\nrouting = \"ecmp\"",
        &[128, 12_500],
        None,
    ),
    (
        "roce-experts",
        "transport = \"roce\"\nrouting = \"ecmp\"",
        &[128, 12_500],
        Some(8),
    ),
    (
        "efa",
        "node = \"efa-p5\"\ntransport = \"efa\"",
        &[128, 12_500],
        None,
    ),
    ("dgx-a100", "node = \"dgx-a100\"", &[12_500], None),
    (
        "gb200-nvl72",
        "node = \"gb200-nvl72\"\nnics_per_node = 4",
        &[25_000],
        None,
    ),
];

fn cluster(about: &str, nodes: u16, experts: Option<u16>) -> Cluster {
    let text = format!(
        "nodes = {nodes}\n{about}\nwiring = {{ kind = \"rail-only\", nodes_per_su = 32 }}\nswitches = {{ radix = 64, tiers = 3 }}\n"
    );
    let spec: ClusterSpec = toml::from_str(&text).expect("a description");
    let mut job = JobSpec::on_first(nodes);
    job.workload
        .collectives
        .extend(experts.map(|nodes| Collective {
            pattern: Pattern::AllToAll { nodes },
            bytes: 6e9,
        }));
    Cluster::with_jobs(spec, vec![job], 1).expect("a cluster")
}

fn bench_kind(group: &mut BenchmarkGroup<'_, WallTime>, kind: &str, build: impl Fn() -> Cluster) {
    // Only what is requested is built: the largest take gigabytes.
    let cluster = LazyCell::new(|| RefCell::new(build()));
    let id = |what| BenchmarkId::new(what, kind);
    group.bench_function(id("build"), |bench| bench.iter(&build));
    let mut now = Duration::ZERO;
    group.bench_function(id("tick"), |bench| {
        bench.iter(|| {
            now += TICK;
            cluster.borrow_mut().advance(now);
        });
    });
    group.bench_function(id("rank_times"), |bench| {
        let cluster = cluster.borrow();
        let waits = || -> f64 {
            let times = cluster.rank_times().flatten();
            times.map(|times| times.wait_seconds).sum()
        };
        bench.iter(waits);
    });
    for cause in ["pcie-degraded", "port-down"] {
        // EFA shows no ports that could be down.
        let fault = |cluster: &Cluster| examples::fault(cluster, cause, 7, 1e9);
        group.bench_function(id(cause), |bench| {
            let mut cluster = cluster.borrow_mut();
            if let Some(fault) = fault(&cluster) {
                bench.iter(|| cluster.inject(fault.clone()).expect("a fault"));
            } else {
                bench.iter(|| ());
            }
        });
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cluster");
    group.sample_size(10);
    for (kind, about, sizes, experts) in KINDS {
        for nodes in *sizes {
            let build = || cluster(about, *nodes, *experts);
            bench_kind(&mut group, &format!("{kind}-{nodes}"), build);
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

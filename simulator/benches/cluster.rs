//! How long a cluster takes to be wired, to live through 10 seconds, and to feel a fault, by its size.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark")]

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::spec::{ClusterSpec, Switches, WiringSpec};

const TICK: Duration = Duration::from_secs(10);

/// Eight rails that never meet, three tiers of 64-port switches: 8 GPUs and NICs on each node.
fn spec(nodes: u16) -> ClusterSpec {
    ClusterSpec {
        nodes,
        wiring: WiringSpec::RailOnly { nodes_per_su: 32 },
        switches: Switches {
            tiers: 3,
            ..Switches::default()
        },
        ..ClusterSpec::demo(1).expect("a cluster")
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cluster");
    group.sample_size(10);
    for nodes in [128, 1_250, 12_500] {
        let gpus = usize::from(nodes) * 8;
        group.bench_function(BenchmarkId::new("build", gpus), |bench| {
            bench.iter(|| Cluster::new(spec(nodes), 1).expect("a cluster"));
        });
        let mut cluster = Cluster::new(spec(nodes), 1).expect("a cluster");
        let mut now = Duration::ZERO;
        group.bench_function(BenchmarkId::new("tick", gpus), |bench| {
            bench.iter(|| {
                now += TICK;
                cluster.advance(now);
            });
        });
        group.bench_function(BenchmarkId::new("rank_times", gpus), |bench| {
            let waits = |cluster: &Cluster| -> f64 {
                let times = cluster.rank_times().flatten();
                times.map(|times| times.wait_seconds).sum()
            };
            bench.iter(|| waits(&cluster));
        });
        let fault = examples::fault(&cluster, "pcie-degraded", 7, 1e9).expect("a fault");
        group.bench_function(BenchmarkId::new("fault", gpus), |bench| {
            bench.iter(|| cluster.inject(fault.clone()).expect("a fault"));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

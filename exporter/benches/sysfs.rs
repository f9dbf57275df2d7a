//! What a sweep of the fixture HGX machine costs: values over kept files, and discovery with it.
//!
//! A plain file system's files cost one `fstat` more than sysfs' own (they may be replaced), and a real
//! driver's answer comes on top: this measures what is ours.
#![allow(clippy::expect_used, reason = "a benchmark")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{ours, sampler};
use criterion::{Criterion, criterion_group, criterion_main};
use railscope_model::reading::NodeReading;

fn sweeps(criterion: &mut Criterion) {
    let machine = ours("hgx-h100-ib");
    for name in ["rdma", "pcie", "placement", "host"] {
        let mut kept = sampler(name, &machine);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("sample", |bencher| {
            bencher.iter(|| {
                let mut reading = NodeReading::default();
                kept.sample(&mut reading).expect("a sample");
                reading
            });
        });
        group.bench_function("discovery and first sample", |bencher| {
            bencher.iter(|| {
                let mut reading = NodeReading::default();
                sampler(name, &machine)
                    .sample(&mut reading)
                    .expect("a sample");
                reading
            });
        });
        group.finish();
    }
}

criterion_group!(benches, sweeps);
criterion_main!(benches);

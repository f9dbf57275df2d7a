//! How long a sweep takes to become a fabric and a verdict: a real one, and one of 100,000 NICs made here.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a benchmark"
)]

#[path = "../tests/topology_net.rs"]
mod net;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use net::Net;
use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_collector::topology::lint::lint;
use railscope_collector::topology::{judge, merge_subnet};
use railscope_model::fabric::{Fabric, Link, LinkKind, PartId, Timestamp};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

/// Hosts and rails of the synthetic fabric: the 100,000 GPUs that one collector is meant to carry.
const HOSTS: usize = 12_500;
const RAILS: usize = 8;
/// Hosts of a unit fill half of a 64-port leaf.
const UNIT: usize = 32;

/// The plan of what is there.
fn as_planned(fabric: &Fabric) -> WiringPlan {
    let cables = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    let cable = |(_, a, b, link): (_, PartId, PartId, &Link)| PlannedCable {
        ends: [(a, link.ports.0), (b, link.ports.1)].map(|(id, port)| Socket {
            part: fabric.vertex(id).part.clone(),
            port: fabric.port_name(id, port),
        }),
        rail: None,
        plane: None,
        length_meters: None,
        serial: None,
    };
    WiringPlan {
        cables: cables.map(cable).collect(),
    }
}

fn bench_text(criterion: &mut Criterion, name: &str, text: &str) {
    let mut group = criterion.benchmark_group(name);
    group
        .sample_size(10)
        .throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("parse", |bench| {
        bench.iter(|| parse_ibnetdiscover(black_box(text)));
    });
    let subnet = parse_ibnetdiscover(text);
    let build = || {
        let mut fabric = Fabric::default();
        let merge = merge_subnet(&mut fabric, &subnet, Timestamp(1));
        (fabric, merge)
    };
    group.bench_function("fabric", |bench| bench.iter(build));
    let (fabric, merge) = build();
    eprintln!("{}", judge(&fabric, &merge));
    group.bench_function("verdict", |bench| bench.iter(|| judge(&fabric, &merge)));
    let verdict = judge(&fabric, &merge);
    group.bench_function("lint by peers", |bench| {
        bench.iter(|| lint(&fabric, &verdict, None));
    });
    let plan = as_planned(&fabric);
    group.bench_function("lint by a plan", |bench| {
        bench.iter(|| lint(&fabric, &verdict, Some(&plan)));
    });
    group.bench_function("text to verdict", |bench| {
        bench.iter(|| {
            let mut fabric = Fabric::default();
            let merge = merge_subnet(
                &mut fabric,
                &parse_ibnetdiscover(black_box(text)),
                Timestamp(1),
            );
            judge(&fabric, &merge)
        });
    });
    group.finish();
}

fn selene(criterion: &mut Criterion) {
    let file = "/../../shared/captures/ib_topology/selene.compute.ibnetdiscover";
    match std::fs::read_to_string(format!("{}{file}", env!("CARGO_MANIFEST_DIR"))) {
        Ok(text) => bench_text(criterion, "selene", &text),
        Err(_) => eprintln!("SKIPPED: selene: no capture of it here"),
    }
}

/// Three tiers of 64-port switches without oversubscription: each rail of 32 units under 32 spines, each
/// spine of one number under the cores of its plane.
fn hundred_thousand(criterion: &mut Criterion) {
    const PLANE_CORES: usize = 52;
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(HOSTS, RAILS, UNIT, 0);
    let planes: Vec<Vec<usize>> = (0..UNIT)
        .map(|plane| {
            (0..PLANE_CORES)
                .map(|n| net.switch(&format!("core-{plane}-{n}")))
                .collect()
        })
        .collect();
    let mut uplinks = 0;
    for (group, units) in leaves.chunks(UNIT).enumerate() {
        for rail in 0..RAILS {
            for (number, plane) in planes.iter().enumerate() {
                let spine = net.switch(&format!("spine-{group}-{rail}-{number}"));
                for leaves in units {
                    net.link(leaves[rail], spine);
                }
                for uplink in 0..UNIT {
                    net.link(spine, plane[(uplinks + uplink) % PLANE_CORES]);
                }
            }
            uplinks += UNIT;
        }
    }
    bench_text(criterion, "100k NICs", &net.text());
}

criterion_group!(benches, selene, hundred_thousand);
criterion_main!(benches);

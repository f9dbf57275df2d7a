//! Time from a sweep to a fabric and its classification: a real one, and a synthetic one of 100,000 NICs.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a benchmark"
)]

#[path = "../tests/topology_net.rs"]
mod net;

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main,
};
use net::three_tiers;
use railscope_collector::fabric::lint::lint;
use railscope_collector::fabric::subnet::{Subnet, parse_ibnetdiscover};
use railscope_collector::fabric::{
    SubnetMerge, assign_rails, diff, judge, merge_subnet, understand,
};
use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

/// Hosts and rails of the synthetic fabric: the 100,000 GPUs that one collector is meant to carry.
const HOSTS: usize = 12_500;
const RAILS: usize = 8;

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

fn hundred_thousand(criterion: &mut Criterion) {
    bench_text(criterion, "100k NICs", &three_tiers(HOSTS, RAILS).text());
}

/// Hosts and GPUs as their exporters report them, each GPU with its NIC; then the sweep.
fn whole_fabric(hosts: usize, subnet: &Subnet) -> (Fabric, SubnetMerge) {
    let mut fabric = Fabric::default();
    let inside = |kind| Link::plain(kind, Witness::Exporter, Timestamp(1));
    for host in 0..hosts {
        let part = |text: String| text.parse::<Part>().expect("a part");
        let id = fabric.upsert(part(format!("host/gpu-{host:05}")), Equipment::Host);
        for rail in 0..RAILS {
            let (uuid, guid) = (None, None);
            let gpu = part(format!("gpu/gpu-{host:05}:{rail}"));
            let gpu = fabric.upsert(gpu, Equipment::Gpu { uuid, pci: None });
            let nic = part(format!("nic/gpu-{host:05}:mlx5_{rail}"));
            let (pci, rail) = (None, None);
            let nic = fabric.upsert(nic, Equipment::Nic { guid, pci, rail });
            fabric.connect(gpu, id, inside(LinkKind::Inside));
            fabric.connect(nic, id, inside(LinkKind::Inside));
            fabric.connect(gpu, nic, inside(LinkKind::Pcie));
        }
    }
    let merge = merge_subnet(&mut fabric, subnet, Timestamp(1));
    assign_rails(&mut fabric);
    (fabric, merge)
}

/// What this process has in memory, and had at most, in MB.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines();
    let wanted = lines.filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    wanted.collect::<Vec<_>>().join(", ")
}

/// What is wrong with the wiring, by peers, by its plan, and by a plan with two rows exchanged: then the plan is drawn
/// and evaluated too, to see which of the two is wrong.
fn lints(group: &mut BenchmarkGroup<'_, WallTime>, fabric: &Fabric, merge: &SubnetMerge) {
    let verdict = judge(fabric, merge);
    let plan = as_planned(fabric);
    let mut wrong = plan.clone();
    let far = wrong.cables[0].ends[1].clone();
    wrong.cables[0].ends[1] = std::mem::replace(&mut wrong.cables[RAILS + 1].ends[1], far);
    for (name, plan) in [
        ("lint by peers", None),
        ("lint by its plan", Some(&plan)),
        ("lint by a wrong plan", Some(&wrong)),
    ] {
        group.bench_function(name, |bench| {
            bench.iter(|| lint(fabric, &verdict, plan));
        });
    }
}

/// Everything that is computed of a fabric, at 1,000, 10,000 and 100,000 GPUs.
fn growth(criterion: &mut Criterion) {
    for hosts in [HOSTS / 100, HOSTS / 10, HOSTS] {
        let gpus = hosts * RAILS;
        let mut group = criterion.benchmark_group(format!("{gpus} GPUs"));
        group.sample_size(10);
        let text = three_tiers(hosts, RAILS).text();
        let subnet = parse_ibnetdiscover(&text);
        drop(text);
        eprintln!("{gpus} GPUs: {} before", memory());
        let (fabric, merge) = whole_fabric(hosts, &subnet);
        eprintln!("{gpus} GPUs: {} with the fabric", memory());
        let (_, routes) = understand(&fabric, &merge);
        eprintln!("{gpus} GPUs: {} with verdict and routes", memory());
        group.bench_function("fabric", |bench| {
            bench.iter(|| whole_fabric(hosts, &subnet));
        });
        group.bench_function("verdict and structure", |bench| {
            bench.iter(|| understand(&fabric, &merge));
        });
        lints(&mut group, &fabric, &merge);
        let other = fabric.clone();
        group.bench_function("difference", |bench| bench.iter(|| diff(&fabric, &other)));
        drop(other);
        let name = |text: &str| text.parse::<SwitchName>().expect("a name");
        let (from, to) = (name("leaf-0-0"), name("leaf-2-1"));
        // A new `Routes` each round: it caches earlier results.
        group.bench_function("paths of a pair", |bench| {
            bench.iter_batched(
                || understand(&fabric, &merge).1,
                |routes| routes.between(&fabric, &from, &to),
                BatchSize::PerIteration,
            );
        });
        let core = |link: &&Part| link.to_string().starts_with("link/core-0-0:");
        let mut cables = fabric.links().filter_map(|(id, ..)| fabric.cable_part(id));
        let core = cables.find(|link| core(&link)).expect("a cable to a core");
        group.bench_function("traffic of a cable to a core", |bench| {
            bench.iter_batched(
                || understand(&fabric, &merge).1,
                |routes| routes.over(&fabric, &core),
                BatchSize::PerIteration,
            );
        });
        eprintln!(
            "{gpus} GPUs: {} in the end; {:?}",
            memory(),
            routes.over(&fabric, &core).leaves.first()
        );
        group.finish();
    }
}

criterion_group!(benches, selene, hundred_thousand, growth);
criterion_main!(benches);

//! The simulator's direct reading of a node equals what the real exporter reads from the node's files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use railscope_exporter::{Exporter, Machine, NetworkAccess, NvmlAccess, WorkloadAccess};
use railscope_model::exposition::{Format, Page};
use railscope_model::fabric::Timestamp;
use railscope_model::metric::Profile;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::faults::Fault;
use railscope_simulator::faults::site::Site;
use railscope_simulator::parts::efa::EfaCounter;
use railscope_simulator::show::readings::NodeRows;
use railscope_simulator::show::tree::ClusterTree;
use railscope_simulator::spec::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, Group, Transport};
use railscope_simulator::wiring::Device;

use crate::support::wait_for;

const STARTED: Timestamp = Timestamp(1_754_493_083_000);
const LIMIT: Duration = Duration::from_secs(60);

type Series = BTreeMap<String, f64>;

fn series(text: &str) -> Series {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect(line);
            (series.to_owned(), value.parse().expect(line))
        })
        .collect()
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

/// Series that only the direct reading has: the timer probe runs on real processors.
const PROBE: &str = "railscope_host_stalls_total";

/// Counters of time that the exporter counts by its own clock.
const OWN_TIME: [&str; 2] = [
    "railscope_gpu_monitored_seconds_total",
    "railscope_gpu_tensor_active_seconds_total",
];

/// What the exporter reports and the direct reading omits: bridges, errors of GPUs' PCIe links, the clock and the sensor of the
/// memory, and NICs that are not the nearest.
fn left_out(series: &str, bridges: &[String]) -> bool {
    [
        "kind=\"bridge\"",
        "clock=\"",
        "sensor=\"memory\"",
        "nearest=\"false\"",
    ]
    .iter()
    .any(|label| series.contains(label))
        || bridges
            .iter()
            .any(|pci| series.contains(&format!("{{pci=\"{pci}\"")))
        || series.starts_with("railscope_pcie_errors")
}

fn exporter(machine: &railscope_simulator::show::machine::NodePaths, empty: &Path) -> Exporter {
    let machine = Machine {
        sysfs: machine.sysfs(),
        procfs: machine.procfs(),
        network: NetworkAccess::Recorded(machine.network()),
        nvml: Some(NvmlAccess {
            library: machine.nvml_library(),
            worker: vec![env!("CARGO_BIN_EXE_railscope").into(), "nvml-worker".into()],
            period: Duration::from_secs(1),
        }),
        workloads: WorkloadAccess {
            job_mapping: Some(machine.job_mapping()),
            ..WorkloadAccess::below(empty)
        },
        ..Machine::below(empty)
    };
    Exporter::start(machine).expect("threads start")
}

/// Series of the default profile of one node with its work; an EFA node has 32 NICs where the budget is for 8, and keeps to it.
const BUDGET: usize = 600;

/// Compares every node of a cluster with the exporter on its files.
fn check(name_of_case: &str, cluster: &Cluster) {
    let tree = ClusterTree::create(cluster, STARTED, &std::env::temp_dir()).expect("a tree");
    let empty = tempfile::tempdir().expect("a folder");
    let plan = cluster.plan();
    // All at once: most of an exporter's first seconds is waiting.
    let exporters = tree.machines().iter();
    let exporters: Vec<_> = exporters
        .map(|machine| exporter(machine.paths(), empty.path()))
        .collect();
    let nodes = cluster.nodes().iter().zip(&plan.hosts);
    for ((node, host), exporter) in nodes.zip(&exporters) {
        let nics = &plan.nics[host.nics.clone()];
        let mut reading = NodeRows::new(node, nics).read(node);
        assert_eq!(reading.normalize(), 0, "a series twice");
        let mut direct = series(&Page::new(Arc::new(reading)).write(Format::Text, Profile::Full));
        direct.retain(|series, _| name(series) != PROBE);
        let page_of = |profile| {
            let body = exporter.page().body(profile, Format::Text, false);
            series(std::str::from_utf8(&body).expect("UTF-8"))
        };
        let case = format!("{name_of_case}: {}", node.name);
        // NVML comes last, GPU by GPU.
        let page = wait_for(&case, LIMIT, || {
            let page = page_of(Profile::Full);
            let missing = direct.keys().find(|series| !page.contains_key(*series));
            missing.map_or(Ok(page.clone()), |series| Err(format!("no {series}")))
        });
        let body = exporter.page().body(Profile::Default, Format::Text, false);
        let shown = series(std::str::from_utf8(&body).expect("UTF-8")).len();
        println!("{case}: {shown} series by default");
        assert!(shown <= BUDGET, "{case}: {shown} series by default");
        let by_its_own_clock = |series: &str| OWN_TIME.contains(&name(series));
        for (series, value) in direct
            .iter()
            .filter(|(series, _)| !by_its_own_clock(series))
        {
            assert_eq!(page.get(series), Some(value), "{case}: {series}");
        }
        let bridges: Vec<String> = page
            .keys()
            .filter(|series| series.contains("kind=\"bridge\""))
            .filter_map(|series| Some(series.split('"').nth(1)?.to_owned()))
            .collect();
        let known: BTreeSet<&str> = direct.keys().map(|series| name(series)).collect();
        for (series, value) in &page {
            assert!(
                !known.contains(name(series))
                    || direct.contains_key(series)
                    || left_out(series, &bridges),
                "{case}: only the exporter says {series} {value}"
            );
        }
    }
}

#[test]
fn the_exporter_reads_from_files_what_the_simulator_says_directly() {
    let mut cluster = Cluster::new(ClusterSpec::demo(3).expect("a cluster"), 3).expect("a cluster");
    // All but those after which a GPU or a cable is not there any more, and XIDs, which are counted from the
    // start of the exporter.
    for (seed, cause) in (0..).zip([
        "pcie-degraded",
        "pcie-errors",
        "pcie-redirected",
        "link-errors",
        "port-down",
        "gpu-thermal",
        "gpu-power-cap",
        "host-steal",
        "noisy-neighbour",
        "receiver-not-ready",
        "storage-stall",
    ]) {
        let fault = examples::fault(&cluster, cause, seed, 10.0).expect(cause);
        cluster.inject(fault).expect(cause);
    }
    for (part, effect) in [
        ("gpu/gpu-node-00:5", "cause = 'gpu-memory'"),
        ("gpu/gpu-node-01:6", "cause = 'nvlink-down'\nlinks = 4"),
    ] {
        // Not reported when it begins before the simulation does.
        let fault = Fault {
            part: part.parse().expect(part),
            onset_seconds: 0.0,
            end_seconds: None,
            effect: toml::from_str(effect).expect(effect),
        };
        cluster.inject(fault).expect(part);
    }
    cluster.advance(Duration::from_secs(60));
    check("thirteen faults", &cluster);
}

#[test]
fn power_caps_warm_rooms_and_new_firmware_read_as_the_site_has_them() {
    // All of the first node's NICs have new firmware, and some of the second's.
    let site: Site = toml::from_str(
        "rooms = { nodes_per_row = 1 }\npower_caps = [{ share = 1.0, watts = 600 }]\n\
         [nic_firmware]\nversion = '28.43.2026'\n\
         turns = { first_seconds = 10, every_seconds = 80, seconds = 40, launch_seconds = 5 }",
    )
    .expect("a site");
    let cluster = Cluster::new(ClusterSpec::demo(3).expect("a cluster"), 4).expect("a cluster");
    let mut cluster = cluster.with_site(site).expect("a sound site");
    cluster.advance(Duration::from_secs(107));
    let version = |node: usize, port: usize| cluster.nodes()[node].ports[port].firmware.is_some();
    assert!(version(0, 7) && version(1, 1) && !version(1, 5) && !version(2, 0));
    check("a site at work", &cluster);
}

#[test]
fn ports_of_two_planes_are_functions_of_one_adapter() {
    let spec = ClusterSpec {
        planes: 2,
        nics_per_node: Some(4),
        gpus_per_node: Some(4),
        ..ClusterSpec::demo(2).expect("a cluster")
    };
    let mut cluster = Cluster::new(spec, 5).expect("a cluster");
    cluster.advance(Duration::from_secs(30));
    check("two planes", &cluster);
}

/// A small cluster of this kind, and of another with it.
fn of(kind: NodeKind, others: &[NodeKind]) -> ClusterSpec {
    ClusterSpec {
        node: kind,
        transport: kind.transport(),
        groups: others
            .iter()
            .map(|node| Group {
                node: *node,
                nodes: 1,
            })
            .collect(),
        ..ClusterSpec::demo(2).expect("a cluster")
    }
}

/// Holds one shape of node, with a fault of each kind that it can have, against the real exporter.
fn reads_as_it_says_and_keeps_to_the_budget(kind: NodeKind) {
    let mut cluster = Cluster::new(of(kind, &[]), 7).expect("a cluster");
    for (seed, cause) in (0..).zip([
        "pcie-degraded",
        "nvlink-down",
        "host-steal",
        "port-degraded",
        "pcie-redirected",
    ]) {
        // The rate of an EFA device stays at its driver's value.
        let Some(mut fault) = examples::fault(&cluster, cause, seed, 10.0) else {
            assert_eq!((kind, cause), (NodeKind::EfaP5, "port-degraded"));
            continue;
        };
        if cause == "nvlink-down" {
            fault.onset_seconds = 0.0;
        }
        cluster.inject(fault).expect(cause);
    }
    cluster.advance(Duration::from_secs(60));
    check(kind.name(), &cluster);
}

/// One test for each shape, so that they run side by side.
macro_rules! shapes {
    ($($test:ident: $kind:ident,)+) => {
        $(#[test]
        fn $test() {
            reads_as_it_says_and_keeps_to_the_budget(NodeKind::$kind);
        })+

        #[test]
        fn every_shape_of_node_has_its_test() {
            assert_eq!(NodeKind::ALL, [$(NodeKind::$kind),+]);
        }
    };
}
shapes! {
    an_hgx_h100_node_reads_as_it_says: HgxH100,
    an_hgx_h200_node_reads_as_it_says: HgxH200,
    an_hgx_b200_node_reads_as_it_says: HgxB200,
    a_gb200_nvl72_node_reads_as_it_says: Gb200Nvl72,
    a_dgx_a100_node_reads_as_it_says: DgxA100,
    an_efa_p5_node_reads_as_it_says: EfaP5,
}

#[test]
fn nodes_of_two_generations_stand_side_by_side() {
    let spec = of(NodeKind::HgxH100, &[NodeKind::Gb200Nvl72]);
    let mut cluster = Cluster::new(spec, 9).expect("a cluster");
    cluster.advance(Duration::from_secs(30));
    check("two generations", &cluster);
}

#[test]
fn an_efa_node_says_the_same_directly_and_nobody_writes_its_cables() {
    let mut cluster = Cluster::new(of(NodeKind::EfaP5, &[]), 7).expect("a cluster");
    for (seed, cause) in (0..).zip([
        "pcie-errors",
        "link-errors",
        "receiver-not-ready",
        "port-down",
    ]) {
        let fault = examples::fault(&cluster, cause, seed, 20.0 * seed as f64).expect(cause);
        cluster.inject(fault).expect(cause);
    }
    cluster.advance(Duration::from_secs(120));
    for counter in EfaCounter::ALL {
        let ports = cluster.nodes().iter().flat_map(|node| &node.ports);
        let sum: u64 = ports
            .map(|port| port.efa.as_deref().expect("EFA").get(*counter))
            .sum();
        println!("{}: {sum}", counter.name());
    }
    check("EFA", &cluster);
    let tree = ClusterTree::create(&cluster, STARTED, &std::env::temp_dir()).expect("a tree");
    assert!(!tree.subnet().exists() && !tree.plan().exists());
    assert!(!tree.machines()[0].paths().network().exists());
}

fn roce(nodes: u16) -> ClusterSpec {
    ClusterSpec {
        transport: Transport::Roce,
        ..ClusterSpec::demo(nodes).expect("a cluster")
    }
}

/// Label values of a line of the exposition, in order.
fn labels(series: &str) -> Vec<&str> {
    series.split('"').skip(1).step_by(2).collect()
}

#[test]
fn a_roce_node_says_the_same_directly() {
    let running = [
        "slow-receiver",
        "link-errors",
        "miscabled-rail",
        "switch-qos",
    ];
    let stopped = ["pfc-storm", "mtu-mismatch", "port-down"];
    for causes in [&running[..], &stopped] {
        let mut cluster = Cluster::new(roce(3), 3).expect("a cluster");
        for (seed, cause) in (0..).zip(causes) {
            let fault = examples::fault(&cluster, cause, seed, 10.0).expect(cause);
            cluster.inject(fault).expect(cause);
        }
        cluster.advance(Duration::from_secs(60));
        check(&causes.join(", "), &cluster);
    }
    let spec = ClusterSpec {
        planes: 2,
        nics_per_node: Some(4),
        gpus_per_node: Some(4),
        ..roce(2)
    };
    let mut cluster = Cluster::new(spec, 5).expect("a cluster");
    cluster.advance(Duration::from_secs(30));
    check("RoCE on two planes", &cluster);
}

#[test]
fn lldp_neighbors_are_the_wiring_cable_by_cable_and_nobody_writes_a_subnet() {
    let mut cluster = Cluster::new(roce(3), 3).expect("a cluster");
    for cause in ["miscabled-rail", "port-down"] {
        let fault = examples::fault(&cluster, cause, 9, 1.0).expect(cause);
        cluster.inject(fault).expect(cause);
    }
    cluster.advance(Duration::from_secs(10));
    let tree = ClusterTree::create(&cluster, STARTED, &std::env::temp_dir()).expect("a tree");
    assert!(!tree.subnet().exists());
    let empty = tempfile::tempdir().expect("a folder");
    let mut heard = Vec::new();
    for (node, machine) in cluster.nodes().iter().zip(tree.machines()) {
        let exporter = exporter(machine.paths(), empty.path());
        let page = wait_for(node.name.as_str(), LIMIT, || {
            let body = exporter.page().body(Profile::Default, Format::Text, false);
            let page = series(std::str::from_utf8(&body).expect("UTF-8"));
            let has = |wanted: &str| page.keys().any(|series| name(series) == wanted);
            let all = ["railscope_lldp_neighbor_info", "railscope_rdma_port_info"];
            let missing = all.into_iter().find(|wanted| !has(wanted));
            missing.map_or(Ok(page.clone()), |series| Err(format!("no {series}")))
        });
        let ports = page
            .keys()
            .filter(|series| name(series) == "railscope_rdma_port_info");
        for port in ports.map(|series| labels(series)) {
            let (device, netdev) = (port[0], port[3]);
            let neighbors = page
                .keys()
                .filter(|series| name(series) == "railscope_lldp_neighbor_info");
            for neighbor in neighbors.map(|series| labels(series)) {
                if neighbor[0] == netdev {
                    heard.push(format!(
                        "{} {device} {} {}",
                        node.name, neighbor[3], neighbor[2]
                    ));
                }
            }
        }
    }
    let wiring = cluster.wiring();
    let mut cables: Vec<String> = wiring
        .lit()
        .filter_map(|cable| match cable.ends {
            [(Device::Nic(nic), _), (Device::Switch(switch), port)] => {
                let (nic, switch) = (&wiring.nics[nic], &wiring.switches[switch]);
                Some(format!(
                    "{} {} {} swp{port}",
                    nic.node_name, nic.device, switch.name
                ))
            }
            _ => None,
        })
        .collect();
    assert_eq!(cables.len(), 3 * 8 - 1, "one is dark");
    cables.sort();
    heard.sort();
    assert_eq!(heard, cables);
}

//! Results of other tools' topology files, where the recordings of real hardware are at hand.
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use calamine::{Reader as _, Xlsx, open_workbook};
use railscope_collector::fabric::plans::{Site, read};
use railscope_model::fabric::LinkKind;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/captures/");

/// Reads a capture; reports if there is none.
fn capture(file: &str) -> Option<String> {
    let bytes = std::fs::read(format!("{ROOT}{file}")).ok();
    if bytes.is_none() {
        eprintln!("SKIPPED: no capture {file}");
    }
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Format, result in one line, problems.
fn answer(file: &str, text: &str) -> String {
    let opened = match read(file, text, None) {
        Ok(opened) => opened,
        Err(errors) => return format!("refused: {}", errors[0].found),
    };
    let format = opened.format;
    let problems = opened.problems.len();
    let site = Site::of(vec![opened]);
    let verdict = if let Some(verdict) = &site.verdict {
        verdict
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    } else if let Some((_, placement)) = site.placements.first() {
        placement
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    } else if let Some((_, gpus)) = site.gpus.first() {
        gpus.to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    } else if let Some((_, node)) = site.nodes.first() {
        format!(
            "{} GPUs, {} NICs: {}",
            node.gpus.len(),
            node.nics.len(),
            node.verdict()
        )
    } else {
        let cables = site
            .fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable);
        format!("{} cables of one device", cables.count())
    };
    let problems = if problems > 0 {
        format!(" [{problems} problems]")
    } else {
        String::new()
    };
    format!("{format}: {verdict}{problems}")
}

/// Each file, and how its result begins.
const CAPTURES: &[(&str, &str)] = &[
    (
        "ib_topology/selene.compute.ibnetdiscover",
        "ibnetdiscover: rail-optimized fat-tree, 3 levels (confidence high)",
    ),
    (
        "ib_topology/topograph-dgx-ndr.ibnetdiscover",
        "ibnetdiscover: rail-optimized fat-tree, 2 levels (confidence medium)",
    ),
    (
        "ib_topology/topograph-single-ca-bad.ibnetdiscover",
        "ibnetdiscover: no verdict: one CA and no switch seen",
    ),
    (
        "ib_topology/ufm-lab-small.ibnetdiscover",
        "ibnetdiscover: no verdict: 2 switches with hosts and none above: too small to tell a topology",
    ),
    (
        "ib_topology/superbench/ib_traffic_topo_aware_ibnetdiscover.txt",
        "ibnetdiscover: fat-tree, 3 levels (confidence low)",
    ),
    (
        "ib_topology/superbench/ib_traffic_topo_aware_ibstat.txt",
        "refused",
    ),
    (
        "ib_topology/superbench/ib_traffic_topo_aware_hostfile",
        "refused",
    ),
    (
        "ib_topology/superbench/ib_traffic_topo_aware_expected_config",
        "refused",
    ),
    (
        "ib_topology/treydock-ibnetdiscover-p/test.out",
        "ibnetdiscover: fat-tree, 2 levels (confidence low)",
    ),
    (
        "ib_topology/treydock-ibnetdiscover-p/test2.out",
        "ibnetdiscover: no verdict: 1 switch with hosts and none above: too small to tell a topology [1 problems]",
    ),
    (
        "ib_topology/treydock-ibnetdiscover-p/test3.out",
        "ibnetdiscover: no verdict: 1 switch and 0 hosts seen, and no cable between them [1 problems]",
    ),
    (
        "ib_topology/ufm-ndt/switch_to_host_topo1.ndt",
        "ndt: no verdict: 153 switches with hosts and none above: too small to tell a topology",
    ),
    (
        "ib_topology/netq/topologyGraph.json",
        "netq: host-grouped fat-tree: each host on one switch, 2 levels (confidence high)",
    ),
    (
        "ib_topology/netq/computeNodes.json",
        "netq: 2 nodes in 1 block",
    ),
    (
        "nccl_topo/aws-g5.48xl-topo.xml",
        "nccl: 0 GPUs, 0 NICs: no verdict: 9 PCI functions without a type (GPU or NIC)",
    ),
    (
        "nccl_topo/aws-p4d-24xl-topo.xml",
        "nccl: 8 GPUs, 4 NICs: up to 2 GPUs share their nearest NIC, reached without the CPU (PIX)",
    ),
    (
        "nccl_topo/aws-p4de-24xl-topo.xml",
        "nccl: 8 GPUs, 4 NICs: up to 2 GPUs share their nearest NIC, reached without the CPU (PIX)",
    ),
    ("nccl_topo/azure-ncv4-graph.xml", "refused: NCCL's graph"),
    (
        "nccl_topo/azure-ncv4-topo.xml",
        "nccl: 4 GPUs, 0 NICs: no RDMA NIC: no GPUDirect path out of the node",
    ),
    (
        "nccl_topo/azure-ndv2-topo.xml",
        "nccl: 8 GPUs, 1 NICs: 8 of 8 GPUs reach their nearest NIC through the CPU (SYS)",
    ),
    (
        "nccl_topo/azure-ndv4-topo.xml",
        "nccl: 8 GPUs, 8 NICs: up to 2 GPUs share their nearest NIC, reached without the CPU (PIX)",
    ),
    (
        "nccl_topo/azure-ndv5-topo.xml",
        "nccl: 8 GPUs, 8 NICs: each GPU has its own NIC, reached without the CPU (PIX)",
    ),
    (
        "nccl_topo/hwloc-mpibind-coral-lassen.xml",
        "hwloc: 4 GPUs, 4 NICs: 4 of 4 GPUs reach their nearest NIC through the CPU (NODE)",
    ),
    (
        "nccl_topo/hwloc-mpibind-g4dnmetal.xml",
        "hwloc: 8 GPUs, 1 NICs: 8 of 8 GPUs reach their nearest NIC through the CPU (SYS)",
    ),
    (
        "nccl_topo/hwloc-nvidiaDGX2.xml",
        "hwloc: 16 GPUs, 0 NICs: no RDMA NIC: no GPUDirect path out of the node",
    ),
    (
        "nccl_topo/hwloc-power8gpudistances.xml",
        "hwloc: 4 GPUs, 0 NICs: no RDMA NIC: no GPUDirect path out of the node",
    ),
    (
        "nccl_topo/rccl-topo_4p4h.xml",
        "nccl: 16 GPUs, 16 NICs: each GPU has its own NIC, reached without the CPU (PIX)",
    ),
    (
        "nccl_topo/rccl-topo_8p_4nics.xml",
        "nccl: 8 GPUs, 4 NICs: up to 2 GPUs share their nearest NIC, reached without the CPU (PXB)",
    ),
    (
        "nccl_topo/rccl-topo_8p_940.xml",
        "nccl: 8 GPUs, 8 NICs: each GPU has its own NIC, reached without the CPU (PXB)",
    ),
    (
        "switch/lldp/arista_eos_show_lldp_neighbors.raw",
        "refused: the short list of LLDP neighbors",
    ),
    (
        "switch/lldp/arista_eos_show_lldp_neighbors_detail.raw",
        "lldp-neighbors: 11 cables of one device",
    ),
    (
        "switch/lldp/cisco_nxos_show_lldp_neighbors_detail.raw",
        "lldp-neighbors: 3 cables of one device",
    ),
    (
        "switch/lldp/cisco_nxos_show_lldp_neighbors_detail2.raw",
        "lldp-neighbors: 2 cables of one device",
    ),
    (
        "switch/lldp/meta-gcm-eth_learn_good.json",
        "refused: line 100: chassis id mac_value",
    ),
    (
        "gpu_smi/a100-sxm4-v12.nvidia-smi-qx.xml",
        "smi-query: 1 GPU: no findings [1 problems]",
    ),
    (
        "gpu_smi/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
        "smi-topo: 1 GPUs, 0 NICs: no RDMA NIC: no GPUDirect path out of the node",
    ),
    (
        "gpu_smi/linux-x86_64__nvidia-h200__590.48.01.txt",
        "smi-topo: 1 GPUs, 0 NICs: no RDMA NIC: no GPUDirect path out of the node",
    ),
    (
        "gpu_smi/nvidia-smi.nvlink.status.a10.txt",
        "refused: an empty file",
    ),
    (
        "gpu_smi/nvidia-smi.nvlink.status.a100.txt",
        "smi-nvlink: 8 GPUs, 0 NICs: links between GPUs only, no data about NICs",
    ),
];

#[test]
fn every_topology_file_is_read_with_its_verdict_or_refused_by_what_it_is() {
    for (file, expected) in CAPTURES {
        if let Some(text) = capture(file) {
            let answer = answer(file, &text);
            assert!(answer.starts_with(expected), "{file}: {answer}");
        }
    }
}

/// A port that moved more in 25 minutes carried a job, and not only the chatter of an idle host.
const BUSY_OCTETS: f64 = 1e9;

/// Rows of the wiring table: server, NIC, leaf, port of the leaf; empty where the table is.
fn wiring_table() -> Option<Vec<[String; 4]>> {
    let path = format!("{ROOT}traces/zhejiang/cluster_2000_A100.xlsx");
    let Ok(mut book) = open_workbook::<Xlsx<_>, _>(&path) else {
        eprintln!("SKIPPED: no capture {path}");
        return None;
    };
    let sheet = book.worksheet_range("cluster topology").expect("the sheet");
    let mut rows = sheet.rows();
    let header: Vec<String> = rows
        .next()
        .expect("a header")
        .iter()
        .map(ToString::to_string)
        .collect();
    let columns = ["sysname", "nicname", "switchname", "accessport"]
        .map(|name| header.iter().position(|column| column == name).expect(name));
    Some(
        rows.map(|row| columns.map(|column| row[column].to_string()))
            .collect(),
    )
}

/// Octets that each port of a leaf took from its server and gave to it.
fn traffic(leaf: usize) -> Option<BTreeMap<String, (f64, f64)>> {
    let file = format!("{ROOT}traces/zhejiang/leaf_ports_pod1_t0-1500/Leaf-{leaf}.csv.gz");
    let packed = std::fs::File::open(&file).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_string(&mut text)
        .expect(&file);
    let mut ports: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let number = |place: usize| fields[place].parse::<f64>().unwrap_or(0.0);
        let port = ports.entry(fields[1].to_owned()).or_default();
        *port = (port.0 + number(3), port.1 + number(5));
    }
    Some(ports)
}

#[test]
fn a_wiring_table_of_2024_gpus_is_rail_wired_and_traffic_shows_who_uses_which_rails() {
    let Some(rows) = wiring_table() else { return };
    let (full, empty): (Vec<_>, Vec<_>) = rows
        .iter()
        .partition(|row| row.iter().all(|cell| !cell.is_empty()));
    // Two rows of one server name no NIC.
    assert_eq!((full.len(), empty.len()), (1010, 2));
    assert!(empty.iter().all(|row| row[0].ends_with("F03-12U-GPU-153")));
    // The plan as a site would write it: in Railscope's own form.
    let mut table = String::from("from,from_port,to,to_port\n");
    for [server, nic, leaf, port] in full {
        table += &format!("nic/{server}:{nic},1,switch/{leaf},{port}\n");
    }
    let site = Site::of(vec![read("table", &table, None).expect("a plan")]);
    let verdict = site.verdict.as_ref().expect("a verdict");
    let wiring = &verdict.wiring;
    assert_eq!(
        (verdict.hosts, verdict.nics, verdict.host_leaves),
        (253, 1010, 20)
    );
    assert_eq!((wiring.rails, wiring.units, wiring.pure_leaves), (4, 5, 16));
    let missing: Vec<_> = wiring.missing.iter().map(|missing| missing.rail).collect();
    assert_eq!(missing, [2, 3], "the server of the empty cells");
    // Racks G02 to G05: every NIC in the place of its neighbor.
    let crossed: BTreeSet<_> = wiring
        .misplaced
        .iter()
        .map(|wrong| wrong.host.as_str())
        .collect();
    assert_eq!((wiring.misplaced.len(), crossed.len()), (32, 8));
    assert!(
        wiring
            .misplaced
            .iter()
            .all(|wrong| wrong.swapped_with.is_some())
    );

    let mut used: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for leaf in 1..=4 {
        let Some(ports) = traffic(leaf) else { return };
        let suffix = format!("Leaf-{leaf}.GPU.S9825");
        for row in rows.iter().filter(|row| row[2].ends_with(&suffix)) {
            let (taken, given) = ports.get(&row[3]).copied().unwrap_or_default();
            let rails = used.entry(&row[0]).or_default();
            if taken + given > BUSY_OCTETS {
                rails.push(leaf);
            }
        }
    }
    let mut patterns: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for rails in used.into_values() {
        *patterns.entry(rails).or_default() += 1;
    }
    let expected = [
        (vec![], 22),
        (vec![1, 2, 3, 4], 34),
        (vec![1, 2, 4], 1),
        (vec![2, 4], 2),
        (vec![4], 1),
    ];
    assert_eq!(patterns, BTreeMap::from(expected));
}

//! What the topology files of others say, where the recordings of real hardware are at hand.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use calamine::{Reader as _, Xlsx, open_workbook};
use railscope_collector::plans::{Cabling, Document, NamedCable, NamedEnd, Site, read};
use railscope_collector::topology::Kind;
use railscope_model::fabric::LinkKind;
use railscope_model::identity::Part;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/captures/");

/// Reads a capture; says so where there is none.
fn capture(file: &str) -> Option<String> {
    let bytes = std::fs::read(format!("{ROOT}{file}")).ok();
    if bytes.is_none() {
        eprintln!("SKIPPED: no capture {file}");
    }
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Format, verdict in one line, problems.
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

#[test]
fn every_topology_file_is_read_with_its_verdict_or_refused_by_what_it_is() {
    for (file, expected) in [
        ("ib_topology/selene.compute.ibnetdiscover", ""),
        ("ib_topology/topograph-dgx-ndr.ibnetdiscover", ""),
        ("ib_topology/topograph-single-ca-bad.ibnetdiscover", ""),
        ("ib_topology/ufm-lab-small.ibnetdiscover", ""),
        (
            "ib_topology/superbench/ib_traffic_topo_aware_ibnetdiscover.txt",
            "",
        ),
        (
            "ib_topology/superbench/ib_traffic_topo_aware_ibstat.txt",
            "",
        ),
        ("ib_topology/superbench/ib_traffic_topo_aware_hostfile", ""),
        (
            "ib_topology/superbench/ib_traffic_topo_aware_expected_config",
            "",
        ),
        ("ib_topology/treydock-ibnetdiscover-p/test.out", ""),
        ("ib_topology/treydock-ibnetdiscover-p/test2.out", ""),
        ("ib_topology/treydock-ibnetdiscover-p/test3.out", ""),
        ("ib_topology/ufm-ndt/switch_to_host_topo1.ndt", ""),
        ("ib_topology/netq/topologyGraph.json", ""),
        ("ib_topology/netq/computeNodes.json", ""),
        ("nccl_topo/aws-g5.48xl-topo.xml", ""),
        ("nccl_topo/aws-p4d-24xl-topo.xml", ""),
        ("nccl_topo/aws-p4de-24xl-topo.xml", ""),
        ("nccl_topo/azure-ncv4-graph.xml", ""),
        ("nccl_topo/azure-ncv4-topo.xml", ""),
        ("nccl_topo/azure-ndv2-topo.xml", ""),
        ("nccl_topo/azure-ndv4-topo.xml", ""),
        ("nccl_topo/azure-ndv5-topo.xml", ""),
        ("nccl_topo/hwloc-mpibind-coral-lassen.xml", ""),
        ("nccl_topo/hwloc-mpibind-g4dnmetal.xml", ""),
        ("nccl_topo/hwloc-nvidiaDGX2.xml", ""),
        ("nccl_topo/hwloc-power8gpudistances.xml", ""),
        ("nccl_topo/rccl-topo_4p4h.xml", ""),
        ("nccl_topo/rccl-topo_8p_4nics.xml", ""),
        ("nccl_topo/rccl-topo_8p_940.xml", ""),
        ("switch/lldp/arista_eos_show_lldp_neighbors.raw", ""),
        ("switch/lldp/arista_eos_show_lldp_neighbors_detail.raw", ""),
        ("switch/lldp/cisco_nxos_show_lldp_neighbors_detail.raw", ""),
        ("switch/lldp/cisco_nxos_show_lldp_neighbors_detail2.raw", ""),
        ("switch/lldp/meta-gcm-eth_learn_good.json", ""),
        ("gpu_smi/a100-sxm4-v12.nvidia-smi-qx.xml", ""),
        (
            "gpu_smi/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
            "",
        ),
        ("gpu_smi/linux-x86_64__nvidia-h200__590.48.01.txt", ""),
        ("gpu_smi/nvidia-smi.nvlink.status.a10.txt", ""),
        ("gpu_smi/nvidia-smi.nvlink.status.a100.txt", ""),
    ] {
        if let Some(text) = capture(file) {
            let answer = answer(file, &text);
            eprintln!("        (\"{file}\", \"{answer}\"),");
            assert!(
                expected.is_empty() || answer == expected,
                "{file}: {answer}"
            );
        }
    }
}

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
fn a_wiring_table_of_2024_gpus_is_rail_optimised_by_nic_and_traffic_shows_what_it_leaves_out() {
    let Some(rows) = wiring_table() else { return };
    let empty: Vec<_> = rows
        .iter()
        .filter(|row| row.iter().any(String::is_empty))
        .collect();
    let mut cabling = Cabling::default();
    let named = |part: String| part.parse::<Part>().expect("a part");
    for [server, nic, leaf, port] in rows
        .iter()
        .filter(|row| row.iter().all(|cell| !cell.is_empty()))
    {
        let ends = [
            (format!("nic/{server}:{nic}"), "1"),
            (format!("switch/{leaf}"), port),
        ];
        let ends = ends.map(|(part, port)| NamedEnd {
            part: named(part),
            port: port.to_owned(),
        });
        cabling.cables.push(NamedCable { ends });
    }
    let (plan, _) = cabling.plan();
    println!(
        "{} rows, {} cables, {} empty: {empty:?}",
        rows.len(),
        plan.cables.len(),
        empty.len()
    );
    let mut nics: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in &rows {
        nics.entry(&row[0]).or_default().insert(&row[1]);
    }
    let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for own in nics.values() {
        *counts.entry(own.iter().copied().collect()).or_default() += 1;
    }
    println!("{counts:?}");
    let fabric =
        railscope_collector::plans::plan_fabric(&plan, railscope_model::fabric::Timestamp(0), None);
    println!(
        "{}",
        railscope_collector::topology::judge(&fabric, &Default::default())
    );
    let mut used: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for leaf in 1..=4 {
        let Some(ports) = traffic(leaf) else { return };
        let suffix = format!("Leaf-{leaf}.GPU.S9825");
        for row in rows.iter().filter(|row| row[2].ends_with(&suffix)) {
            let (rx, tx) = ports.get(&row[3]).copied().unwrap_or_default();
            let rails = used.entry(&row[0]).or_default();
            if rx + tx > 1e9 {
                rails.push(leaf);
            }
        }
    }
    let mut patterns: BTreeMap<Vec<usize>, Vec<&str>> = BTreeMap::new();
    for (server, rails) in used {
        patterns.entry(rails).or_default().push(server);
    }
    for (rails, servers) in patterns {
        println!(
            "{rails:?}: {} {:?}",
            servers.len(),
            &servers[..servers.len().min(4)]
        );
    }
}

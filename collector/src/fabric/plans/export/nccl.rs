//! Hints for NCCL: each node's NICs in the order of their rails.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use railscope_model::fabric::{Equipment, Fabric};
use railscope_model::identity::{NodeName, Part, RdmaDevice};

use super::super::compress_hosts;
use super::MISSING;
use crate::fabric::{Kind, Verdict};

/// Nodes and their unusable device names, by reason.
type Unnamed<'a> = BTreeMap<&'static str, (BTreeSet<&'a str>, BTreeSet<&'a str>)>;

/// Settings by groups of nodes that need the same: `NCCL_IB_HCA` with the NICs that have a rail and a cable, in the
/// order of rails, so that channel i of every node is on one rail. The `=` makes NCCL take the names exactly. What
/// is uncertain is replaced by a line with [`MISSING`].
pub fn nccl_hints(fabric: &Fabric, verdict: &Verdict) -> String {
    if !verdict.wiring.is_rail_wired() && verdict.kind != Kind::RailOnly {
        return format!(
            "{MISSING}rails: this fabric has none ({}), so that it determines neither the order of NICs nor NCCL_CROSS_NIC; \
             use NCCL's defaults\n",
            verdict.kind
        );
    }
    let mut of_node: BTreeMap<&NodeName, Vec<(u16, String)>> = BTreeMap::new();
    let mut unnamed = Unnamed::new();
    for (id, vertex) in fabric.vertices() {
        let (
            Part::Nic(node, device),
            Equipment::Nic {
                rail: Some(rail), ..
            },
        ) = (&vertex.part, &vertex.equipment)
        else {
            continue;
        };
        let cables = fabric.cables(id);
        let mut ports: Vec<u16> = cables.map(|near| near.port).collect();
        ports.sort_unstable();
        if let (Some(why), false) = (no_device(device), ports.is_empty()) {
            let (nodes, names) = unnamed.entry(why).or_default();
            nodes.insert(node.as_str());
            names.insert(device.as_str());
            continue;
        }
        for port in ports {
            of_node
                .entry(node)
                .or_default()
                .push((*rail, format!("{device}:{port}")));
        }
    }
    // An incomplete list of a node's NICs is not a valid hint.
    of_node.retain(|node, _| {
        !unnamed
            .values()
            .any(|(nodes, _)| nodes.contains(node.as_str()))
    });
    write(of_node, &unnamed)
}

fn write(of_node: BTreeMap<&NodeName, Vec<(u16, String)>>, unnamed: &Unnamed<'_>) -> String {
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, mut nics) in of_node {
        nics.sort();
        let names: Vec<String> = nics.into_iter().map(|(_, name)| name).collect();
        alike
            .entry(names.join(","))
            .or_default()
            .push(node.as_str());
    }
    let mut text = String::new();
    for (nics, nodes) in &alike {
        // Writing to a string does not fail.
        writeln!(text, "# {}\nNCCL_IB_HCA=={nics}\n# keep each channel on its rail: leaves of two rails connect only through spines\nNCCL_CROSS_NIC=0", compress_hosts(nodes.iter().copied())).ok();
    }
    for (why, (nodes, names)) in unnamed {
        let names: Vec<&str> = names.iter().copied().collect();
        writeln!(
            text,
            "{MISSING}device names of {}: {} {why}",
            compress_hosts(nodes.iter().copied()),
            names.join(" ")
        )
        .ok();
    }
    if alike.is_empty() && unnamed.is_empty() {
        writeln!(text, "{MISSING}NICs: none has both a rail and a cable").ok();
    }
    text
}

/// The reason why NCCL cannot find a NIC by this name; `None` for the name of an RDMA device.
fn no_device(device: &RdmaDevice) -> Option<&'static str> {
    const INTERFACES: [&str; 7] = ["eth", "eno", "ens", "enp", "enx", "bond", "swp"];
    let name = device.as_str();
    if name.starts_with("HCA-") {
        return Some(
            "are words of node descriptions, not devices (ibv_devices lists devices; rdma-ndd writes them to the \
             descriptions; scrape bodies of exporters, added to the sweep, also contain them)",
        );
    }
    let is_interface = INTERFACES.iter().any(|prefix| name.starts_with(prefix));
    is_interface.then_some("are network interfaces, not RDMA devices (\"rdma link\" shows both)")
}

//! Hints for NCCL: each node's NICs in the order of their rails.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use railscope_model::fabric::{Equipment, Fabric, LinkKind};
use railscope_model::identity::{NodeName, Part};

use super::super::compress_hosts;

/// Settings by groups of nodes that need the same: `NCCL_IB_HCA` with the NICs that have a rail and a cable, in the
/// order of rails, so that channel i of every node is on one rail. The `=` makes NCCL take the names exactly.
pub fn nccl_hints(fabric: &Fabric) -> String {
    let mut of_node: BTreeMap<&NodeName, Vec<(u16, String)>> = BTreeMap::new();
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
        let cables = fabric
            .neighbours(id)
            .filter(|near| near.link.kind == LinkKind::Cable);
        let mut ports: Vec<u16> = cables.map(|near| near.port).collect();
        ports.sort_unstable();
        for port in ports {
            of_node
                .entry(node)
                .or_default()
                .push((*rail, format!("{device}:{port}")));
        }
    }
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
    for (nics, nodes) in alike {
        // Writing to a string does not fail.
        writeln!(text, "# {}\nNCCL_IB_HCA=={nics}\n# keep each channel on its rail: leaves of two rails meet only at the spines\nNCCL_CROSS_NIC=0", compress_hosts(nodes)).ok();
    }
    text
}

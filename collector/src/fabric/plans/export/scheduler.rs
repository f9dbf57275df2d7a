//! The fabric as schedulers take it: Slurm's `topology.conf` as tree or blocks, labels of Kubernetes nodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use railscope_model::identity::NodeName;

use super::super::{PlacedSwitch, Placement, compress_hosts};

/// A name as Slurm takes it: its hostlists give brackets and commas another meaning, and `=` and space end a value.
fn slurm_name(name: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    name.chars()
        .map(|sign| if plain(sign) { sign } else { '_' })
        .collect()
}

/// Slurm's topology/tree. Where leaves share their hosts, as rails do, they are one switch of the tree; a comment says
/// of which.
pub fn slurm_tree(placement: &Placement) -> String {
    let mut text = String::from("# topology/tree, written by railscope topology export\n");
    for switch in &placement.switches {
        if !switch.of.is_empty() {
            // Writing to a string does not fail.
            writeln!(
                text,
                "# {}: {}",
                slurm_name(&switch.name),
                switch.of.join(" ")
            )
            .ok();
        }
        write!(text, "SwitchName={}", slurm_name(&switch.name)).ok();
        if !switch.nodes.is_empty() {
            let nodes = switch.nodes.iter().map(NodeName::as_str);
            write!(text, " Nodes={}", compress_hosts(nodes)).ok();
        }
        if !switch.switches.is_empty() {
            let names: Vec<String> = switch
                .switches
                .iter()
                .map(|name| slurm_name(name))
                .collect();
            write!(text, " Switches={}", names.join(",")).ok();
        }
        text.push('\n');
    }
    text
}

/// Slurm's topology/block: the blocks of the placement, or its leaves where it has none.
pub fn slurm_block(placement: &Placement) -> String {
    let mut text = String::from("# topology/block, written by railscope topology export\n");
    let blocks: Vec<(String, Vec<&str>)> = if placement.blocks.is_empty() {
        let leaves = placement
            .switches
            .iter()
            .filter(|switch| !switch.nodes.is_empty());
        leaves
            .map(|leaf| {
                (
                    leaf.name.clone(),
                    leaf.nodes.iter().map(NodeName::as_str).collect(),
                )
            })
            .collect()
    } else {
        let blocks = placement.blocks.iter();
        blocks
            .map(|block| {
                (
                    block.name.clone(),
                    block.nodes.iter().map(NodeName::as_str).collect(),
                )
            })
            .collect()
    };
    for (name, nodes) in &blocks {
        writeln!(
            text,
            "BlockName={} Nodes={}",
            slurm_name(name),
            compress_hosts(nodes.iter().copied())
        )
        .ok();
    }
    // Jobs get whole multiples of it: the smallest block that is sure to be there.
    if let Some(smallest) = blocks.iter().map(|(_, nodes)| nodes.len()).min() {
        writeln!(text, "BlockSizes={smallest}").ok();
    }
    text
}

/// Labels of each node as NVIDIA's topograph sets them on Kubernetes nodes: a YAML map by node.
pub fn node_labels(placement: &Placement) -> String {
    const TIERS: [&str; 3] = ["leaf", "spine", "core"];
    let mut parents: BTreeMap<&str, &PlacedSwitch> = BTreeMap::new();
    for switch in &placement.switches {
        for child in &switch.switches {
            parents.insert(child, switch);
        }
    }
    let mut text = String::new();
    for leaf in &placement.switches {
        for node in &leaf.nodes {
            writeln!(text, "{node}:").ok();
            let mut switch = Some(leaf);
            for tier in TIERS {
                let Some(own) = switch else { break };
                writeln!(
                    text,
                    "  network.topology.nvidia.com/{tier}: {}",
                    label(&own.name)
                )
                .ok();
                switch = parents.get(own.name.as_str()).copied();
            }
            let block = placement
                .blocks
                .iter()
                .find(|block| block.nodes.contains(node));
            if let Some(block) = block {
                writeln!(
                    text,
                    "  network.topology.nvidia.com/accelerator: {}",
                    label(&block.name)
                )
                .ok();
            }
        }
    }
    text
}

/// Longest value of a Kubernetes label (Kubernetes documentation, "Labels and Selectors").
const LONGEST_LABEL: usize = 63;

/// A value as Kubernetes takes it: letters, digits, `-_.`, beginning and ending with one of the first two.
fn label(name: &str) -> String {
    let name = slurm_name(name);
    let cut: String = name.chars().take(LONGEST_LABEL).collect();
    cut.trim_matches(|sign: char| !sign.is_ascii_alphanumeric())
        .to_owned()
}

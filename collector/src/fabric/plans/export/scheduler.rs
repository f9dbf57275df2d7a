//! The fabric in schedulers' formats: Slurm's `topology.conf` as tree or blocks, labels of Kubernetes nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use railscope_model::identity::NodeName;

use super::super::{Placement, compress_hosts};
use super::MISSING;

/// A name in Slurm's form: its hostlists give brackets and commas another meaning, and `=` and space end a value.
fn slurm_name(name: &str) -> String {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    name.chars()
        .map(|sign| if plain(sign) { sign } else { '_' })
        .collect()
}

/// Unique names that Slurm accepts; names that differ only in characters that Slurm rejects get a number.
fn slurm_names(placement: &Placement) -> BTreeMap<&str, String> {
    let mut names = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for switch in &placement.switches {
        let plain = slurm_name(&switch.name);
        let numbered = (2..).map(|number| format!("{plain}__{number}"));
        let mut names_of_it = std::iter::once(plain.clone()).chain(numbered);
        if let Some(name) = names_of_it.find(|name| !taken.contains(name)) {
            taken.insert(name.clone());
            names.insert(switch.name.as_str(), name);
        }
    }
    names
}

/// Slurm's topology/tree. Where leaves share their hosts, as rails do, they are one switch of the tree; a comment
/// reports of which. Entries that break the tree are omitted and named ([`MISSING`]).
pub fn slurm_tree(placement: &Placement) -> String {
    let (placement, omitted) = placement.sound();
    let names = slurm_names(&placement);
    let mut text = String::from("# topology/tree, written by railscope topology export\n");
    for what in omitted {
        // Writing to a string does not fail.
        writeln!(text, "{MISSING}{what}").ok();
    }
    for switch in &placement.switches {
        let name = &names[switch.name.as_str()];
        if !switch.of.is_empty() {
            writeln!(text, "# {name}: {}", switch.of.join(" ")).ok();
        }
        // Slurm rejects a switch without children.
        if switch.nodes.is_empty() && switch.switches.is_empty() {
            writeln!(text, "{MISSING}{name}: no children are left").ok();
            continue;
        }
        write!(text, "SwitchName={name}").ok();
        if !switch.nodes.is_empty() {
            let nodes = switch.nodes.iter().map(NodeName::as_str);
            write!(text, " Nodes={}", compress_hosts(nodes)).ok();
        }
        if !switch.switches.is_empty() {
            let below: Vec<&str> = switch
                .switches
                .iter()
                .map(|child| names[child.as_str()].as_str())
                .collect();
            write!(text, " Switches={}", below.join(",")).ok();
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
    // Jobs get whole multiples of it: the smallest block that certainly exists.
    if let Some(smallest) = blocks.iter().map(|(_, nodes)| nodes.len()).min() {
        writeln!(text, "BlockSizes={smallest}").ok();
    }
    text
}

/// Labels of each node as NVIDIA's topograph sets them on Kubernetes nodes: a YAML map by node.
pub fn node_labels(placement: &Placement) -> String {
    const TIERS: [&str; 3] = ["leaf", "spine", "core"];
    let parents = placement.parents();
    let mut text = String::new();
    for leaf in &placement.switches {
        for node in &leaf.nodes {
            writeln!(text, "{node}:").ok();
            for (tier, own) in TIERS.into_iter().zip(placement.way_up(leaf, &parents)) {
                writeln!(
                    text,
                    "  network.topology.nvidia.com/{tier}: {}",
                    label(&own.name)
                )
                .ok();
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

/// A value in Kubernetes' form: letters, digits, `-_.`, beginning and ending with one of the first two.
fn label(name: &str) -> String {
    let name = slurm_name(name);
    let cut: String = name.chars().take(LONGEST_LABEL).collect();
    cut.trim_matches(|sign: char| !sign.is_ascii_alphanumeric())
        .to_owned()
}

//! Which nodes are behind which switch, without ports: what schedulers know of a fabric, and what is wrong with it.

mod sound;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use railscope_model::fabric::{Fabric, LinkKind};
use railscope_model::identity::{NodeName, Part, natural};

use crate::fabric::subnet::counted;
use crate::fabric::tiers;

/// Two leaves are of one unit when more than this share of the smaller one's hosts are connected to both: a cable in another
/// unit's leaf does not join units (as `fabric/classify/rails.rs`).
const UNIT_SHARE: f64 = 0.25;

/// A switch of a tree, or a group of leaves that share their hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacedSwitch {
    /// Its name.
    pub name: String,
    /// Nodes right behind it.
    pub nodes: Vec<NodeName>,
    /// Switches right below it, by name.
    pub switches: Vec<String>,
    /// Real switches that it represents, if it is a group of them.
    pub of: Vec<String>,
}

/// Nodes joined by something faster than the fabric: Slurm's block, an NVLink domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeName>,
}

/// The placement of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Switches, in the order of the text.
    pub switches: Vec<PlacedSwitch>,
    /// Blocks, in the order of the text.
    pub blocks: Vec<Block>,
    /// Slurm's block sizes, smallest first.
    pub block_sizes: Vec<u32>,
}

impl Placement {
    /// Every node that it names.
    pub fn nodes(&self) -> BTreeSet<&NodeName> {
        let behind = self.switches.iter().flat_map(|switch| &switch.nodes);
        behind
            .chain(self.blocks.iter().flat_map(|block| &block.nodes))
            .collect()
    }

    /// Switches that no other has below it.
    pub fn roots(&self) -> Vec<&str> {
        let below: BTreeSet<&str> = self.children().collect();
        let names = self.switches.iter().map(|switch| switch.name.as_str());
        names.filter(|name| !below.contains(name)).collect()
    }

    /// Tiers of switches: the longest path from a switch with nodes to the root. A ring is traversed once.
    pub fn levels(&self) -> usize {
        let parents = self.parents();
        let leaves = self
            .switches
            .iter()
            .filter(|switch| !switch.nodes.is_empty());
        let paths = leaves.map(|leaf| self.way_up(leaf, &parents).len());
        let has_none = || usize::from(!self.switches.is_empty());
        paths.max().unwrap_or_else(has_none)
    }

    fn by_name(&self) -> BTreeMap<&str, &PlacedSwitch> {
        self.switches
            .iter()
            .map(|switch| (switch.name.as_str(), switch))
            .collect()
    }

    fn children(&self) -> impl Iterator<Item = &str> {
        self.switches
            .iter()
            .flat_map(|switch| switch.switches.iter().map(String::as_str))
    }

    /// What does not hold together, in sentences.
    pub fn defects(&self) -> Vec<String> {
        let mut defects = Vec::new();
        let by_name = self.by_name();
        let mut parents: BTreeMap<&str, usize> = BTreeMap::new();
        for child in self.children() {
            *parents.entry(child).or_default() += 1;
            if !by_name.contains_key(child) && parents[child] == 1 {
                defects.push(format!(
                    "switch {child} stands below another and is nowhere described"
                ));
            }
        }
        let several = parents.iter().filter(|(_, parents)| **parents > 1);
        defects.extend(
            several
                .map(|(child, parents)| format!("switch {child} stands below {parents} switches")),
        );
        let mut homes: BTreeMap<&NodeName, Vec<&str>> = BTreeMap::new();
        for switch in &self.switches {
            for node in &switch.nodes {
                homes.entry(node).or_default().push(&switch.name);
            }
        }
        let several = homes.iter().filter(|(_, homes)| homes.len() > 1);
        defects.extend(
            several.map(|(node, homes)| format!("node {node} is behind {}", homes.join(" and "))),
        );
        if !self.switches.is_empty() {
            let roots = self.roots();
            match roots.len() {
                0 => defects.push(
                    "no switch at the top: the switches stand below each other in a ring"
                        .to_owned(),
                ),
                1 => {}
                _ => defects.push(format!(
                    "{} switches at the top that nothing joins: {}",
                    roots.len(),
                    roots.join(", ")
                )),
            }
        }
        let mut blocks: BTreeMap<&NodeName, Vec<&str>> = BTreeMap::new();
        for block in &self.blocks {
            for node in &block.nodes {
                blocks.entry(node).or_default().push(&block.name);
            }
        }
        let several = blocks.iter().filter(|(_, blocks)| blocks.len() > 1);
        defects
            .extend(several.map(|(node, blocks)| {
                format!("node {node} is in blocks {}", blocks.join(" and "))
            }));
        defects
    }

    /// The groups that a scheduler should know of a fabric: hosts behind the same leaves, those behind the same
    /// spines, and so on to the top. A group of one switch has its name; a larger one that of its first switch after
    /// `unit-` at the first tier, `group-` above.
    pub fn of(fabric: &Fabric) -> Self {
        let tiers = tiers(fabric);
        let mut groups = Groups::of_hosts(fabric);
        let mut placement = Self::default();
        for tier in 1..=tiers.levels.max(1) {
            if tier > 1 {
                groups.join_by(fabric, |id| tiers.of(id) == Some(tier));
            }
            groups.write(tier, &mut placement);
            if groups.members.len() == 1 {
                break;
            }
        }
        placement
    }
}

impl fmt::Display for Placement {
    /// Several lines; the first is the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = counted(self.nodes().len(), "node", "nodes");
        match self.switches.len() {
            0 => writeln!(
                f,
                "{nodes} in {}",
                counted(self.blocks.len(), "block", "blocks")
            )?,
            switches => writeln!(
                f,
                "{nodes} behind {} in {}",
                counted(switches, "switch", "switches"),
                counted(self.levels(), "tier", "tiers")
            )?,
        }
        let spread = |what: &str, sizes: Vec<usize>| {
            let bounds = sizes.iter().min().zip(sizes.iter().max());
            bounds.map(|(least, most)| match least == most {
                true => format!("  {what:<10} {}, {least} nodes each", sizes.len()),
                false => format!("  {what:<10} {}, {least} to {most} nodes each", sizes.len()),
            })
        };
        let leaves = self.switches.iter().map(|switch| switch.nodes.len());
        let leaves = spread("leaves", leaves.filter(|nodes| *nodes > 0).collect());
        let blocks = spread(
            "blocks",
            self.blocks.iter().map(|block| block.nodes.len()).collect(),
        );
        for line in leaves.into_iter().chain(blocks) {
            writeln!(f, "{line}")?;
        }
        for defect in self.defects() {
            writeln!(f, "  wrong      {defect}")?;
        }
        Ok(())
    }
}

/// Groups of switches while tiers are gone through from below.
struct Groups {
    /// Root of each switch's set, by switch index in `names`.
    sets: Vec<usize>,
    names: Vec<String>,
    index: BTreeMap<Part, usize>,
    nodes: BTreeMap<usize, BTreeSet<NodeName>>,
    /// Name written at the tier below, by root then.
    members: BTreeMap<usize, Vec<String>>,
    /// Switches of each root by name.
    switches: BTreeMap<usize, BTreeSet<usize>>,
}

impl Groups {
    /// Leaves joined where they share hosts.
    fn of_hosts(fabric: &Fabric) -> Self {
        let mut leaves: BTreeMap<&NodeName, BTreeMap<usize, usize>> = BTreeMap::new();
        let (mut index, mut names) = (BTreeMap::new(), Vec::new());
        for (_, vertex) in fabric.vertices() {
            if let Part::Switch(name) = &vertex.part {
                index.insert(vertex.part.clone(), names.len());
                names.push(name.to_string());
            }
        }
        for (_, a, b, _) in fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable)
        {
            let (a, b) = (&fabric.vertex(a).part, &fabric.vertex(b).part);
            if let (Part::Nic(node, _), Part::Switch(_)) | (Part::Switch(_), Part::Nic(node, _)) =
                (a, b)
            {
                let switch = if matches!(a, Part::Switch(_)) { a } else { b };
                *leaves
                    .entry(node)
                    .or_default()
                    .entry(index[switch])
                    .or_default() += 1;
            }
        }
        let mut hosts = vec![0usize; names.len()];
        let mut shared: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for own in leaves.values() {
            let own: Vec<usize> = own.keys().copied().collect();
            for (place, a) in own.iter().enumerate() {
                hosts[*a] += 1;
                for b in &own[place + 1..] {
                    *shared.entry((*a, *b)).or_default() += 1;
                }
            }
        }
        let mut groups = Self {
            sets: (0..names.len()).collect(),
            names,
            index,
            nodes: BTreeMap::new(),
            members: BTreeMap::new(),
            switches: BTreeMap::new(),
        };
        for ((a, b), common) in shared {
            if common as f64 > UNIT_SHARE * hosts[a].min(hosts[b]) as f64 {
                groups.union(a, b);
            }
        }
        for (node, own) in leaves {
            // A host with a cable elsewhere belongs where most of its cables are.
            let mut by_root: BTreeMap<usize, usize> = BTreeMap::new();
            for (leaf, cables) in own {
                let root = groups.root(leaf);
                *by_root.entry(root).or_default() += cables;
                groups.switches.entry(root).or_default().insert(leaf);
            }
            if let Some((root, _)) = by_root
                .into_iter()
                .max_by_key(|(root, cables)| (*cables, usize::MAX - root))
            {
                groups.nodes.entry(root).or_default().insert(node.clone());
            }
        }
        groups
    }

    fn root(&self, mut member: usize) -> usize {
        while self.sets[member] != member {
            member = self.sets[member];
        }
        member
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.sets[a.max(b)] = a.min(b);
    }

    /// Joins the groups below by switches of one tier; what joins nothing new stays as it is.
    fn join_by(
        &mut self,
        fabric: &Fabric,
        is_of_tier: impl Fn(railscope_model::fabric::PartId) -> bool,
    ) {
        let mut above: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let of_tier: Vec<_> = fabric
            .vertices()
            .filter(|(id, vertex)| matches!(vertex.part, Part::Switch(_)) && is_of_tier(*id))
            .map(|(id, vertex)| (id, vertex.part.clone()))
            .collect();
        let known: BTreeSet<usize> = self.switches.keys().copied().collect();
        for (id, part) in &of_tier {
            let cables = fabric.cables(*id);
            let below: BTreeSet<usize> = cables
                .filter_map(|near| self.index.get(&fabric.vertex(near.peer).part))
                .map(|switch| self.root(*switch))
                .filter(|root| known.contains(root))
                .collect();
            let own = self.index[part];
            above.insert(own, below);
        }
        for (own, below) in &above {
            for group in below {
                self.union(*own, *group);
            }
        }
        let mut members: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut switches: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (old, names) in std::mem::take(&mut self.members) {
            members.entry(self.root(old)).or_default().extend(names);
        }
        for (own, below) in above {
            if !below.is_empty() {
                switches.entry(self.root(own)).or_default().insert(own);
            }
        }
        self.members = members;
        self.switches = switches;
    }

    /// Writes the groups of a tier and remembers their names for the tier above.
    fn write(&mut self, tier: u8, placement: &mut Placement) {
        let roots: Vec<usize> = if tier == 1 {
            self.nodes.keys().copied().collect()
        } else {
            self.members.keys().copied().collect()
        };
        let mut written: Vec<(usize, PlacedSwitch)> = Vec::new();
        for root in roots {
            let mut of: Vec<String> = self
                .switches
                .get(&root)
                .into_iter()
                .flatten()
                .map(|switch| self.names[*switch].clone())
                .collect();
            of.sort_by(|a, b| natural(a, b));
            let mut switches = self.members.get(&root).cloned().unwrap_or_default();
            if tier > 1 && of.is_empty() {
                continue; // nothing above it: it stays a top
            }
            switches.sort_by(|a, b| natural(a, b));
            let name = match of.as_slice() {
                [one] => one.clone(),
                [first, ..] if tier == 1 => format!("unit-{first}"),
                [first, ..] => format!("group-{first}"),
                [] => continue,
            };
            let nodes = if tier == 1 {
                let mut nodes: Vec<_> = self
                    .nodes
                    .get(&root)
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect();
                nodes.sort_by(|a, b| natural(a.as_str(), b.as_str()));
                nodes
            } else {
                Vec::new()
            };
            let of = if of.len() > 1 { of } else { Vec::new() };
            written.push((
                root,
                PlacedSwitch {
                    name,
                    nodes,
                    switches,
                    of,
                },
            ));
        }
        for (root, switch) in &written {
            self.members.insert(*root, vec![switch.name.clone()]);
        }
        placement
            .switches
            .extend(written.into_iter().map(|(_, switch)| switch));
    }
}

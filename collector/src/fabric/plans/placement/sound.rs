//! Reduces a placement to a valid tree: paths from leaf to root, and the entries that must be omitted.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::NodeName;

use super::{PlacedSwitch, Placement};

impl Placement {
    /// The parent of each switch; the first of several.
    pub(crate) fn parents(&self) -> BTreeMap<&str, &PlacedSwitch> {
        let mut parents = BTreeMap::new();
        for switch in &self.switches {
            for child in &switch.switches {
                parents.entry(child.as_str()).or_insert(switch);
            }
        }
        parents
    }

    /// A leaf and its ancestors up to the root, each once.
    pub(crate) fn way_up<'a>(
        &'a self,
        leaf: &'a PlacedSwitch,
        parents: &BTreeMap<&str, &'a PlacedSwitch>,
    ) -> Vec<&'a PlacedSwitch> {
        let mut path = vec![leaf];
        let mut met = BTreeSet::from([leaf.name.as_str()]);
        let mut at = leaf;
        while let Some(above) = parents
            .get(at.name.as_str())
            .filter(|above| met.insert(&above.name))
        {
            at = above;
            path.push(at);
        }
        path
    }

    /// The placement without entries that break the tree, and those entries, one sentence each: undefined switches,
    /// second parents of switches and nodes, rings.
    pub(crate) fn sound(&self) -> (Self, Vec<String>) {
        let mut omitted = Vec::new();
        let mut sound = self.clone();
        let described: BTreeSet<&str> = self
            .switches
            .iter()
            .map(|switch| switch.name.as_str())
            .collect();
        let ringed = self.ringed();
        let mut homed: BTreeSet<String> = BTreeSet::new();
        let mut placed: BTreeSet<NodeName> = BTreeSet::new();
        for switch in &mut sound.switches {
            let own = switch.name.clone();
            switch.switches.retain(|child| {
                let why = if !described.contains(child.as_str()) {
                    "which is undefined"
                } else if ringed.contains(own.as_str()) && ringed.contains(child.as_str()) {
                    "which is also above it: a ring"
                } else if !homed.insert(child.clone()) {
                    "which already has another parent"
                } else {
                    return true;
                };
                omitted.push(format!("switch {child} below {own}, {why}"));
                false
            });
            switch.nodes.retain(|node| {
                let is_new = placed.insert(node.clone());
                if !is_new {
                    omitted.push(format!(
                        "node {node} below {own}, which already has another switch"
                    ));
                }
                is_new
            });
        }
        (sound, omitted)
    }

    /// Switches on a ring, or between two rings.
    fn ringed(&self) -> BTreeSet<&str> {
        let names = self.switches.iter().map(|switch| switch.name.as_str());
        let all: BTreeSet<&str> = names.collect();
        let edges: Vec<(&str, &str)> = self
            .switches
            .iter()
            .flat_map(|switch| {
                switch
                    .switches
                    .iter()
                    .map(|child| (switch.name.as_str(), child.as_str()))
            })
            .filter(|(_, child)| all.contains(child))
            .collect();
        let below = without_ends(all, edges.iter().copied());
        without_ends(below, edges.iter().map(|(above, child)| (*child, *above)))
    }
}

/// The nodes of a directed graph that remain after repeated removal of nodes without incoming edges.
fn without_ends<'a>(
    mut nodes: BTreeSet<&'a str>,
    edges: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeSet<&'a str> {
    let mut led_to: BTreeMap<&str, usize> = BTreeMap::new();
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges.filter(|(from, to)| nodes.contains(from) && nodes.contains(to)) {
        *led_to.entry(to).or_default() += 1;
        next.entry(from).or_default().push(to);
    }
    let mut ends: Vec<&str> = nodes
        .iter()
        .copied()
        .filter(|node| !led_to.contains_key(node))
        .collect();
    while let Some(end) = ends.pop() {
        nodes.remove(end);
        for to in next.remove(end).unwrap_or_default() {
            let left = led_to.entry(to).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                ends.push(to);
            }
        }
    }
    nodes
}

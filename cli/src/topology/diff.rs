//! What changed between two sites: parts, cables, placements, the inside of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::bail;
use railscope_collector::fabric::plans::{NodeTopology, Placement, Site};
use railscope_model::fabric::{Fabric, LinkKind};
use railscope_model::identity::{NodeName, Part};

/// What became of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeKind {
    /// It is no longer there.
    Gone,
    /// It is new.
    New,
    /// It is otherwise.
    Otherwise,
}

impl ChangeKind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::New => "new",
            Self::Otherwise => "changed",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    pub(super) what: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {}", self.kind.word(), self.what)?;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, ": {before} -> {after}"),
            (Some(one), None) | (None, Some(one)) => write!(f, ": {one}"),
            (None, None) => Ok(()),
        }
    }
}

/// Compares by key: what only one side has, and what both have otherwise.
fn compare<T: PartialEq>(
    what: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
    say: impl Fn(&T) -> Option<String>,
    out: &mut Vec<Change>,
) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let (before, after) = (old.get(key), new.get(key));
        let kind = match (before, after) {
            (Some(before), Some(after)) if before == after => continue,
            (Some(_), Some(_)) => ChangeKind::Otherwise,
            (Some(_), None) => ChangeKind::Gone,
            _ => ChangeKind::New,
        };
        out.push(Change {
            kind,
            what: format!("{what}{key}"),
            before: before.and_then(&say),
            after: after.and_then(&say),
        });
    }
}

/// Everything that differs.
pub(super) fn changes(old: &Site, new: &Site) -> anyhow::Result<Vec<Change>> {
    let mut out = Vec::new();
    let has_fabric = |site: &Site| site.fabric.links().next().is_some();
    match (
        (has_fabric(old), has_fabric(new)),
        (old.nodes.as_slice(), new.nodes.as_slice()),
    ) {
        ((true, true), _) => fabrics(&old.fabric, &new.fabric, &mut out),
        (_, ([(_, old)], [(_, new)])) => insides(old, new, &mut out),
        _ => {
            let placement = |site: &Site| match site.placements.as_slice() {
                [(_, own)] => Some(own.clone()),
                [] if has_fabric(site) => Some(Placement::of(&site.fabric)),
                _ => None,
            };
            let (Some(old), Some(new)) = (placement(old), placement(new)) else {
                bail!(
                    "the two files describe different things: expected two fabrics, two placements of nodes, or two node topologies"
                );
            };
            placements(&old, &new, &mut out);
        }
    }
    out.sort();
    Ok(out)
}

/// Hosts and switches, and every cable from its end at the host or the lower switch.
fn fabrics(old: &Fabric, new: &Fabric, out: &mut Vec<Change>) {
    let parts = |fabric: &Fabric| -> BTreeMap<String, ()> {
        let parts = fabric
            .vertices()
            .filter(|(_, vertex)| matches!(vertex.part, Part::Host(_) | Part::Switch(_)));
        parts
            .map(|(_, vertex)| (vertex.part.to_string(), ()))
            .collect()
    };
    compare("", &parts(old), &parts(new), |()| None, out);
    // A plan has no speeds: they are compared only if both sides have them.
    let speeds = |fabric: &Fabric| {
        fabric
            .links()
            .any(|(.., link)| link.kind == LinkKind::Cable && link.speed.is_some())
    };
    let both = speeds(old) && speeds(new);
    let cables = |fabric: &Fabric| -> BTreeMap<String, (String, Option<String>)> {
        let cables = fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable);
        cables
            .map(|(_, a, b, link)| {
                let end = |id, port| {
                    (
                        matches!(fabric.vertex(id).part, Part::Switch(_)),
                        format!("{} port {port}", fabric.vertex(id).part),
                    )
                };
                let mut ends = [end(a, link.ports.0), end(b, link.ports.1)];
                ends.sort();
                let [near, far] = ends;
                (
                    near.1,
                    (
                        far.1,
                        link.speed.filter(|_| both).map(|speed| speed.to_string()),
                    ),
                )
            })
            .collect()
    };
    let say = |(far, speed): &(String, Option<String>)| {
        Some(match speed {
            Some(speed) => format!("{far} at {speed}"),
            None => far.clone(),
        })
    };
    compare("cable of ", &cables(old), &cables(new), say, out);
}

/// Nodes by what they share a leaf with: names of groups may differ, and do where one is computed.
fn placements(old: &Placement, new: &Placement, out: &mut Vec<Change>) {
    let groups = |placement: &Placement| -> BTreeMap<String, BTreeSet<NodeName>> {
        let leaves = placement
            .switches
            .iter()
            .map(|switch| (&switch.name, &switch.nodes));
        let blocks = placement
            .blocks
            .iter()
            .map(|block| (&block.name, &block.nodes));
        let has_leaves = placement
            .switches
            .iter()
            .any(|switch| !switch.nodes.is_empty());
        let all = leaves.chain(blocks.filter(|_| !has_leaves));
        all.filter(|(_, nodes)| !nodes.is_empty())
            .map(|(name, nodes)| (name.clone(), nodes.iter().cloned().collect()))
            .collect()
    };
    let (old, new) = (groups(old), groups(new));
    // Each new group is the old one with which it shares most.
    let mut names: BTreeMap<&String, &String> = BTreeMap::new();
    for (name, nodes) in &new {
        let shared = |other: &BTreeSet<NodeName>| other.intersection(nodes).count();
        let best = old
            .iter()
            .max_by_key(|(_, other)| shared(other))
            .filter(|(_, other)| shared(other) > 0);
        names.insert(name, best.map_or(name, |(old, _)| old));
    }
    let homes =
        |groups: &BTreeMap<String, BTreeSet<NodeName>>, rename: bool| -> BTreeMap<String, String> {
            let mut homes = BTreeMap::new();
            for (name, nodes) in groups {
                let name = if rename {
                    names.get(name).copied().unwrap_or(name)
                } else {
                    name
                };
                homes.extend(nodes.iter().map(|node| (node.to_string(), name.clone())));
            }
            homes
        };
    compare(
        "node ",
        &homes(&old, false),
        &homes(&new, true),
        |name| Some(format!("behind {name}")),
        out,
    );
}

fn insides(old: &NodeTopology, new: &NodeTopology, out: &mut Vec<Change>) {
    let near = |node: &NodeTopology| -> BTreeMap<String, String> {
        let affinity = node.affinity().into_iter().zip(&node.gpus);
        affinity
            .map(|((distance, nics), gpu)| {
                let word = distance.map_or("no NIC", |distance| distance.word());
                (
                    gpu.name.clone(),
                    format!("{word} {}", nics.join(" ")).trim().to_owned(),
                )
            })
            .collect()
    };
    compare(
        "nearest NIC of ",
        &near(old),
        &near(new),
        |text| Some(text.clone()),
        out,
    );
    let links = |node: &NodeTopology| -> BTreeMap<String, u16> {
        node.gpus
            .iter()
            .enumerate()
            .map(|(gpu, own)| (own.name.clone(), node.links_of(gpu)))
            .collect()
    };
    compare(
        "NVLinks of ",
        &links(old),
        &links(new),
        |links| Some(links.to_string()),
        out,
    );
}

/// The cables that one device reported about, as a list.
pub(super) fn neighbors(site: &Site) -> String {
    let mut lines = BTreeSet::new();
    for (_, a, b, link) in site
        .fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable)
    {
        let end = |id, port| {
            let part = &site.fabric.vertex(id).part;
            format!("{part} port {}", site.fabric.port_name(id, port))
        };
        lines.insert(format!(
            "  {} - {}\n",
            end(a, link.ports.0),
            end(b, link.ports.1)
        ));
    }
    let count = lines.len();
    let mut text = format!("the neighbors of one device, not a complete fabric: {count} cables\n");
    text.extend(lines);
    text
}

//! Fat-trees and their kin: leaves with NICs below spines, and those below cores.

use std::collections::BTreeMap;

use railscope_model::units::LinkSpeed;

use super::{Device, Socket, Tier, Wiring};
use crate::spec::{ClusterSpec, RailsMeet, SpecError, Switches, WiringSpec};

/// Leaves that only their own spines and cores join.
struct Tree {
    /// What the names of its spines and cores begin with: empty where there is one tree.
    prefix: String,
    /// Indices of its leaves, by pod. Leaves of a pod have the same spines; two tiers have one pod.
    pods: Vec<Vec<usize>>,
}

/// Where a leaf belongs, in the order in which leaves are numbered: plane, group, rail.
type LeafKey = (u8, u16, u8);

pub(super) fn wire(wiring: &mut Wiring, spec: &ClusterSpec) -> Result<(), SpecError> {
    let speed = spec.uplink_speed().link();
    let leaves = add_leaves(wiring, spec)?;
    wiring.cables.sort_by_key(|cable| cable.ends[0]);
    for tree in trees(spec, &leaves) {
        tree.wire(wiring, &spec.switches, speed)?;
    }
    Ok(())
}

/// Every NIC on its leaf, and the leaves by key.
fn add_leaves(
    wiring: &mut Wiring,
    spec: &ClusterSpec,
) -> Result<BTreeMap<LeafKey, usize>, SpecError> {
    let mut nics: BTreeMap<LeafKey, Vec<usize>> = BTreeMap::new();
    let down = spec.switches.leaf_downlinks();
    let by_rail = matches!(
        spec.wiring,
        WiringSpec::RailOptimized { .. } | WiringSpec::RailOnly { .. }
    );
    for (index, nic) in wiring.nics.iter().enumerate() {
        let (group, rail) = match spec.wiring {
            WiringSpec::RailOptimized { nodes_per_su, .. }
            | WiringSpec::RailOnly { nodes_per_su } => (nic.node / nodes_per_su, nic.rail),
            WiringSpec::HostGrouped { nodes_per_leaf } => (nic.node / nodes_per_leaf, 0),
            // Dragonflies are wired elsewhere.
            WiringSpec::FatTree | WiringSpec::Dragonfly { .. } => {
                let leaf = u16::try_from(index / usize::from(spec.planes) / usize::from(down));
                let leaf = leaf.map_err(|_| {
                    SpecError::new("nodes", "found too many for 65,536 leaves, expected fewer")
                })?;
                (leaf, 0)
            }
        };
        nics.entry((nic.plane, group, rail))
            .or_default()
            .push(index);
    }
    let mut leaves = BTreeMap::new();
    for (key, nics) in nics {
        let (plane, group, rail) = key;
        let name = if by_rail {
            format!("{}leaf-su{group}-r{rail}", of_plane(spec, plane))
        } else {
            format!("{}leaf-{group}", of_plane(spec, plane))
        };
        let rail = by_rail.then_some(rail);
        let leaf = wiring.add_switch(&name, Tier::Leaf { group, rail }, spec.switches.radix)?;
        for (port, nic) in (1..).zip(nics) {
            let speed = spec.nic_speed(wiring.nics[nic].kind).link();
            wiring.join((Device::Nic(nic), 1), (Device::Switch(leaf), port), speed);
        }
        leaves.insert(key, leaf);
    }
    Ok(leaves)
}

fn of_plane(spec: &ClusterSpec, plane: u8) -> String {
    if spec.planes > 1 {
        format!("p{plane}-")
    } else {
        String::new()
    }
}

/// Which leaves belong together.
fn trees(spec: &ClusterSpec, leaves: &BTreeMap<LeafKey, usize>) -> Vec<Tree> {
    let apart = matches!(spec.wiring, WiringSpec::RailOnly { .. });
    let at_cores = matches!(
        spec.wiring,
        WiringSpec::RailOptimized {
            rails_meet: RailsMeet::Core,
            ..
        }
    );
    let mut trees: BTreeMap<(u8, u8), Vec<(LeafKey, usize)>> = BTreeMap::new();
    for (key, leaf) in leaves {
        let rail = if apart { key.2 } else { 0 };
        trees.entry((key.0, rail)).or_default().push((*key, *leaf));
    }
    let tree = |((plane, rail), mut leaves): ((u8, u8), Vec<(LeafKey, usize)>)| {
        let prefix = of_plane(spec, plane)
            + &if apart {
                format!("r{rail}-")
            } else {
                String::new()
            };
        if at_cores {
            leaves.sort_by_key(|((_, group, rail), _)| (*rail, *group));
        }
        Tree {
            prefix,
            pods: pods(spec, &leaves, at_cores),
        }
    };
    trees.into_iter().map(tree).collect()
}

/// Cuts a tree's leaves into pods, never through the leaves of a scalable unit where its rails meet at
/// the spines, and never over two rails where they meet at the cores.
fn pods(spec: &ClusterSpec, leaves: &[(LeafKey, usize)], at_cores: bool) -> Vec<Vec<usize>> {
    let index = |leaves: &[(LeafKey, usize)]| leaves.iter().map(|(_, leaf)| *leaf).collect();
    if spec.switches.tiers == 2 {
        return vec![index(leaves)];
    }
    let below = usize::from(spec.switches.radix / 2);
    if at_cores {
        return leaves
            .chunk_by(|a, b| a.0.2 == b.0.2)
            .flat_map(|rail| rail.chunks(below))
            .map(index)
            .collect();
    }
    let units: Vec<_> = leaves.chunk_by(|a, b| a.0.1 == b.0.1).collect();
    let widest = units.iter().map(|unit| unit.len()).max().unwrap_or(1);
    units
        .chunks((below / widest).max(1))
        .map(|units| index(&units.concat()))
        .collect()
}

impl Tree {
    fn wire(
        &self,
        wiring: &mut Wiring,
        switches: &Switches,
        speed: LinkSpeed,
    ) -> Result<(), SpecError> {
        let radix = switches.radix;
        let uplinks = switches.leaf_uplinks();
        let above = if switches.tiers == 3 { radix / 2 } else { 0 };
        let widest = self.pods.iter().map(Vec::len).max().unwrap_or(0);
        let spines = spread(
            "switches.spines",
            switches.spines,
            uplinks,
            widest,
            radix - above,
        )?;
        let mut of_pod = Vec::new();
        for (pod, leaves) in self.pods.iter().enumerate() {
            let name = |spine: u16| match switches.tiers {
                2 => format!("{}spine-{spine}", self.prefix),
                _ => format!("{}spine-{pod}-{spine}", self.prefix),
            };
            let first = radix - uplinks + 1;
            of_pod.push(join_up(
                wiring,
                leaves,
                (first, uplinks),
                Tier::Spine,
                radix,
                spines,
                &name,
                speed,
            )?);
        }
        if switches.tiers == 2 {
            return Ok(());
        }
        // The spines of one place in every pod have the same cores.
        let cores = spread("switches.tiers", None, above, self.pods.len(), radix)?;
        for place in 0..spines {
            let below: Vec<usize> = of_pod.iter().map(|pod| pod[usize::from(place)]).collect();
            let name = |core: u16| format!("{}core-{place}-{core}", self.prefix);
            let first = radix - above + 1;
            join_up(
                wiring,
                &below,
                (first, above),
                Tier::Core,
                radix,
                cores,
                &name,
                speed,
            )?;
        }
        Ok(())
    }
}

/// Over how many switches above each of `below` switches spreads its uplinks evenly: as given, or as few
/// as have the ports.
fn spread(
    field: &'static str,
    given: Option<u16>,
    uplinks: u16,
    below: usize,
    ports: u16,
) -> Result<u16, SpecError> {
    let carries = |above: u16| below * usize::from(uplinks / above) <= usize::from(ports);
    match given {
        Some(above) if above == 0 || !uplinks.is_multiple_of(above) => Err(SpecError::new(
            field,
            format!("found {above}, expected a divisor of a switch's {uplinks} uplinks"),
        )),
        Some(above) if !carries(above) => Err(SpecError::new(
            field,
            format!(
                "found {above}, too few: {below} switches need {} ports of each and it has {ports}",
                below * usize::from(uplinks / above)
            ),
        )),
        Some(above) => Ok(above),
        None => (1..=uplinks)
            .filter(|above| uplinks.is_multiple_of(*above))
            .find(|above| carries(*above))
            .ok_or_else(|| {
                SpecError::new(
                    field,
                    format!("found {below} switches side by side, expected at most the {ports} ports of one above them: more tiers, or switches with more ports"),
                )
            }),
    }
}

/// Adds `count` switches above `below` and joins each to each.
#[allow(clippy::too_many_arguments)] // what a tier is made of, once
fn join_up(
    wiring: &mut Wiring,
    below: &[usize],
    (first, uplinks): (u16, u16),
    tier: Tier,
    radix: u16,
    count: u16,
    name: &dyn Fn(u16) -> String,
    speed: LinkSpeed,
) -> Result<Vec<usize>, SpecError> {
    let mut above = Vec::new();
    for number in 0..count {
        above.push(wiring.add_switch(&name(number), tier, radix)?);
    }
    let parallel = uplinks / count;
    for (lower, down) in below.iter().zip((1..).step_by(usize::from(parallel))) {
        for uplink in 0..uplinks {
            let upper = above[usize::from(uplink / parallel)];
            let ends: [Socket; 2] = [
                (Device::Switch(*lower), first + uplink),
                (Device::Switch(upper), down + uplink % parallel),
            ];
            wiring.join(ends[0], ends[1], speed);
        }
    }
    Ok(above)
}

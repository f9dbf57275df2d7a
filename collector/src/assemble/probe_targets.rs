//! Which NICs each NIC probes: neighbors on its leaf, and NICs of its rail behind other leaves, so
//! that every NIC and every pair of leaves is probed, and no NIC probes many.

use std::collections::BTreeMap;

use railscope_model::fabric::{Equipment, Fabric, PartId};
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{NETDEV_ADDRESS, RDMA_PORT};
use railscope_model::path_class::PathClass;
use railscope_model::reading::Labels;

use crate::assemble::node_parts::read;
use crate::fabric::Routes;
use crate::store::{History, NodeHistory};

/// NICs of its leaf that a NIC probes: enough to distinguish a bad one from its neighbors (a
/// choice; with four, R-Pingmesh's rule for NICs in a mesh has eight paths to each).
const NEAR: usize = 4;
/// NICs behind other leaves that it probes.
const FAR: usize = 4;
/// Source ports of each of those: each takes a separate one of the equal paths.
const FLOWS: usize = 4;
/// Maximum number of flows per node: the exporter's limit.
pub const MOST_FLOWS: usize = 256;

/// A NIC that answers probes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answerer {
    node: NodeName,
    device: RdmaDevice,
    address: String,
    leaf: PartId,
    rail: Option<u16>,
}

/// The NICs that answer probes, by where they are.
#[derive(Debug, Clone, Default)]
pub struct Probing {
    /// In the order of nodes and devices.
    all: Vec<Answerer>,
    by_node: BTreeMap<NodeName, Vec<usize>>,
    by_leaf: BTreeMap<PartId, Vec<usize>>,
    /// Leaves of each rail.
    by_rail: BTreeMap<Option<u16>, BTreeMap<PartId, Vec<usize>>>,
}

/// One NIC to probe, and the local NIC that probes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The own NIC.
    pub device: RdmaDevice,
    /// The other node.
    pub peer_node: NodeName,
    /// Its NIC.
    pub peer_device: RdmaDevice,
    /// Address at which it responds, as its exporter prints it.
    pub address: String,
    /// Source ports.
    pub flows: usize,
    /// How far apart the two NICs are.
    pub path_class: PathClass,
}

impl Probing {
    /// The NICs of a fabric whose exporters report the addresses at which they respond.
    pub fn of(fabric: &Fabric, history: &History) -> Self {
        let mut probing = Self::default();
        for (node, history) in history.nodes() {
            for (device, address) in addresses(history) {
                probing.add(fabric, node, device, address);
            }
        }
        probing
    }

    fn add(&mut self, fabric: &Fabric, node: &NodeName, device: RdmaDevice, address: String) {
        let Some(nic) = fabric.find(&Part::Nic(node.clone(), device.clone())) else {
            return;
        };
        let rail = match fabric.vertex(nic).equipment {
            Equipment::Nic { rail, .. } => rail,
            _ => None,
        };
        let mut cables = fabric.cables(nic).filter(|near| {
            let is_switch = matches!(fabric.vertex(near.peer).part, Part::Switch(_));
            near.link.is_present() && is_switch
        });
        let Some(leaf) = cables.next().map(|near| near.peer) else {
            return;
        };
        let place = self.all.len();
        self.by_node.entry(node.clone()).or_default().push(place);
        self.by_leaf.entry(leaf).or_default().push(place);
        let of_rail = self.by_rail.entry(rail).or_default();
        of_rail.entry(leaf).or_default().push(place);
        self.all.push(Answerer {
            node: node.clone(),
            device,
            address,
            leaf,
            rail,
        });
    }

    /// The probe targets of a node; none if it does not respond to probes itself, or if there are
    /// none.
    pub fn targets(&self, fabric: &Fabric, routes: &Routes, node: &NodeName) -> Vec<Target> {
        let own = self.by_node.get(node).map_or(&[][..], Vec::as_slice);
        let each = MOST_FLOWS / own.len().max(1);
        // A node of many NICs probes fewer from each, so that every NIC has a target.
        let (near, far) = (NEAR.min((each / 4).max(1)), FAR.min((each / 4).max(1)));
        let flows = (each.saturating_sub(near) / far).clamp(1, FLOWS);
        let mut targets = Vec::new();
        for place in own {
            let (asker, near) = (&self.all[*place], self.near(*place, near));
            let far = self.far(fabric, routes, *place, far);
            let near = near.into_iter().map(|other| (other, 1));
            let far = far.into_iter().map(|other| (other, flows));
            targets.extend(near.chain(far).map(|(other, flows)| {
                let other = &self.all[other];
                Target {
                    path_class: self.path_class(asker, other),
                    device: asker.device.clone(),
                    peer_node: other.node.clone(),
                    peer_device: other.device.clone(),
                    address: other.address.clone(),
                    flows,
                }
            }));
        }
        targets.truncate(MOST_FLOWS);
        targets
    }

    /// How far apart two NICs of different nodes are. A scalable unit is the nodes behind the same leaves.
    fn path_class(&self, a: &Answerer, b: &Answerer) -> PathClass {
        let leaves = |of: &Answerer| {
            let places = self.by_node.get(&of.node).into_iter().flatten();
            places.map(|place| self.all[*place].leaf)
        };
        PathClass::between((a.leaf, a.rail), (b.leaf, b.rail), || {
            leaves(a).any(|leaf| leaves(b).any(|other| other == leaf))
        })
    }

    /// The next ones of its leaf. A probe from a NIC of the same node is no test of the node.
    fn near(&self, place: usize, count: usize) -> Vec<usize> {
        let ring = &self.by_leaf[&self.all[place].leaf];
        let at = ring.binary_search(&place).unwrap_or_default();
        let others = (1..ring.len()).map(|step| ring[(at + step) % ring.len()]);
        let of_others = |other: &usize| self.all[*other].node != self.all[place].node;
        others.filter(of_others).take(count).collect()
    }

    /// Some behind other leaves, of its rail if it has any there. Each NIC of a leaf begins with another leaf.
    fn far(&self, fabric: &Fabric, routes: &Routes, place: usize, count: usize) -> Vec<usize> {
        let own = &self.all[place];
        let of_others = |other: &usize| self.all[*other].node != own.node;
        let others = |leaves: &BTreeMap<PartId, Vec<usize>>| -> Vec<Vec<usize>> {
            let others = leaves.iter().filter(|(leaf, _)| **leaf != own.leaf);
            others
                .filter(|(leaf, _)| reaches(fabric, routes, own.leaf, **leaf))
                .map(|(_, nics)| nics.iter().copied().filter(of_others).collect::<Vec<_>>())
                .filter(|nics| !nics.is_empty())
                .collect()
        };
        let mut leaves = others(&self.by_rail[&own.rail]);
        if leaves.is_empty() {
            leaves = others(&self.by_leaf);
        }
        let at = self.by_leaf[&own.leaf]
            .binary_search(&place)
            .unwrap_or_default();
        let all: usize = leaves.iter().map(Vec::len).sum();
        let mut targets = Vec::new();
        for step in 0..count.min(all) {
            let nics = &leaves[(at * count + step) % leaves.len()];
            targets.push(nics[(at + step / leaves.len()) % nics.len()]);
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }
}

/// Whether a path leads from one leaf to another: planes have none between them.
fn reaches(fabric: &Fabric, routes: &Routes, a: PartId, b: PartId) -> bool {
    let name = |leaf: PartId| match &fabric.vertex(leaf).part {
        Part::Switch(name) => Some(name),
        _ => None,
    };
    let ways = |(a, b)| routes.reaches(fabric, a, b);
    name(a).zip(name(b)).is_some_and(ways)
}

/// Address at which each device of a node responds: IPv4 before IPv6, then the first as text.
fn addresses(history: &NodeHistory) -> BTreeMap<RdmaDevice, String> {
    let rank = |address: &str| (address.contains(':'), address.to_owned());
    let mut known: BTreeMap<&str, (bool, String)> = BTreeMap::new();
    for (labels, _) in history.series(&NETDEV_ADDRESS) {
        let netdev = labels.get(label!(NETDEV_ADDRESS, "netdev"));
        let address = labels.get(label!(NETDEV_ADDRESS, "address"));
        if let (Some(netdev), Some(address)) = (netdev, address) {
            let best = known.entry(netdev).or_insert_with(|| rank(address));
            if rank(address) < *best {
                *best = rank(address);
            }
        }
    }
    let of_port = |(labels, _): (&Labels, _)| {
        let netdev = labels.get(label!(RDMA_PORT, "netdev"))?;
        let (_, address) = known.get(netdev)?;
        Some((read(labels, label!(RDMA_PORT, "device"))?, address.clone()))
    };
    history.series(&RDMA_PORT).filter_map(of_port).collect()
}

#[cfg(test)]
mod tests;

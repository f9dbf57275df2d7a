//! What most ports, or most PCIe links, of a host share is the host's: firmware, a setting, its board.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, LinkKind, PartId};
use railscope_model::identity::{NodeName, Part};

use crate::classes::{PCIE_DEGRADED, PORT_DEGRADED};
use crate::detect::peers::MAJORITY;
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::lost_links::PARENT_MIN_CHILDREN;
use crate::diagnose::stages::posterior::pci_of;

/// Parts of a host that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    /// Cables of NICs.
    Cable,
    /// PCIe links of NICs.
    NicSlot,
    /// PCIe links of GPUs.
    GpuSlot,
}

/// Degraded links that are their host's fault, each with the host: at least [`PARENT_MIN_CHILDREN`] of a sort, and
/// [`MAJORITY`] of all that the host has.
pub(crate) fn whole_hosts(fabric: &Fabric, findings: &[Finding]) -> BTreeMap<Part, Part> {
    let mut degraded: BTreeMap<(&NodeName, Sort), BTreeSet<&Part>> = BTreeMap::new();
    for evidence in findings.iter().map(|found| &found.evidence) {
        let is_degraded = [&PORT_DEGRADED, &PCIE_DEGRADED].contains(&evidence.class);
        if let (true, Some(node), Some(sort)) = (
            is_degraded,
            evidence.part.node(),
            sort_of(fabric, &evidence.part),
        ) {
            let of_host = degraded.entry((node, sort)).or_default();
            of_host.insert(&evidence.part);
        }
    }
    degraded.retain(|_, parts| parts.len() >= PARENT_MIN_CHILDREN);
    let mut hosts = BTreeMap::new();
    for ((node, sort), parts) in degraded {
        let all = inside(fabric, node)
            .filter(|device| is_of(fabric, *device, sort))
            .count();
        if parts.len() as f64 >= MAJORITY * all as f64 {
            let host = Part::Host(node.clone());
            hosts.extend(parts.into_iter().map(|part| (part.clone(), host.clone())));
        }
    }
    hosts
}

fn sort_of(fabric: &Fabric, part: &Part) -> Option<Sort> {
    match part {
        Part::HostLink(..) => Some(Sort::Cable),
        Part::PcieLink(node, pci) => {
            let mut devices = inside(fabric, node);
            let device = devices.find(|device| pci_of(fabric, *device) == Some(*pci))?;
            let sorts = [Sort::NicSlot, Sort::GpuSlot];
            sorts.into_iter().find(|sort| is_of(fabric, device, *sort))
        }
        _ => None,
    }
}

/// Devices of a host.
fn inside<'a>(fabric: &'a Fabric, node: &NodeName) -> impl Iterator<Item = PartId> + 'a {
    let host = fabric.find(&Part::Host(node.clone()));
    let near = host.into_iter().flat_map(|host| fabric.neighbors(host));
    near.filter(|near| near.link.kind == LinkKind::Inside)
        .map(|near| near.peer)
}

fn is_of(fabric: &Fabric, device: PartId, sort: Sort) -> bool {
    match (&fabric.vertex(device).part, sort) {
        (Part::Nic(..), Sort::Cable) => {
            let mut near = fabric.neighbors(device);
            near.any(|near| near.link.kind == LinkKind::Cable)
        }
        (Part::Nic(..), Sort::NicSlot) | (Part::Gpu(..), Sort::GpuSlot) => true,
        _ => false,
    }
}

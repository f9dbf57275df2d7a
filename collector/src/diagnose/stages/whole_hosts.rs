//! What most ports, or most PCIe links, of a host share is the host's: firmware, a setting, its board.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, PartId};
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
        let all = fabric
            .devices(node)
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
            let mut devices = fabric.devices(node);
            let device = devices.find(|device| pci_of(fabric, *device) == Some(*pci))?;
            let sorts = [Sort::NicSlot, Sort::GpuSlot];
            sorts.into_iter().find(|sort| is_of(fabric, device, *sort))
        }
        _ => None,
    }
}

fn is_of(fabric: &Fabric, device: PartId, sort: Sort) -> bool {
    match (&fabric.vertex(device).part, sort) {
        (Part::Nic(..), Sort::Cable) => fabric.cables(device).next().is_some(),
        (Part::Nic(..), Sort::NicSlot) | (Part::Gpu(..), Sort::GpuSlot) => true,
        _ => false,
    }
}

//! What exporters report a node is made of, as parts of the fabric.

use std::collections::BTreeMap;
use std::str::FromStr;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{GPU, GPU_NIC, Label, NIC_CARRIER, NIC_SPEED, PCIE_PATH, RDMA_PORT};
use railscope_model::reading::Labels;

use crate::assemble::netdev::MIN_SPEED;
use crate::fabric::Routes;
use crate::store::NodeHistory;

/// A label of a series, read as what it should be.
pub(crate) fn read<T: FromStr>(labels: &Labels, label: Label) -> Option<T> {
    labels.get(label)?.parse().ok()
}

/// A node and what exporters report about it.
pub type Known<'a> = (&'a NodeName, &'a NodeHistory);

/// What exporters report that a node is made of.
#[derive(Debug)]
pub struct NodeParts<'a> {
    node: Known<'a>,
    /// GPUs and NICs. A GPU that PCIe and NVML both report comes twice, NVML's entry last.
    parts: Vec<(Part, Equipment)>,
    /// Which NIC each GPU uses.
    nearest: Vec<(Part, Part)>,
}

/// A node whose parts are in the fabric.
#[derive(Debug)]
pub struct Placed<'a> {
    /// Which one it is.
    pub node: Known<'a>,
    /// Where its NICs are in the fabric.
    pub nics: Vec<(RdmaDevice, PartId)>,
}

impl<'a> NodeParts<'a> {
    /// Reads them. `named`: its interfaces that switches have as neighbors, where no exporter reports its RDMA ports.
    pub fn of((node, history): Known<'a>, named: &[&str]) -> Self {
        let nearest = |(labels, _): (&Labels, _)| {
            let gpu = Part::Gpu(node.clone(), read(labels, label!(GPU_NIC, "gpu"))?);
            let nic = Part::Nic(node.clone(), read(labels, label!(GPU_NIC, "device"))?);
            (labels.get(label!(GPU_NIC, "nearest")) == Some("true")).then_some((gpu, nic))
        };
        let mut parts = parts(node, history);
        parts.extend(
            named
                .iter()
                .filter_map(|netdev| nic_by_interface(node, history, netdev)),
        );
        Self {
            node: (node, history),
            parts,
            nearest: history.series(&GPU_NIC).filter_map(nearest).collect(),
        }
    }

    /// Adds them to a fabric.
    pub fn merge(self, fabric: &mut Fabric, now: Timestamp) -> Placed<'a> {
        let (host, _) = self.node;
        let mut nics = Vec::new();
        let plain = |kind| Link::plain(kind, Witness::Exporter, now);
        let host = fabric.upsert(Part::Host(host.clone()), Equipment::Host);
        for (part, equipment) in self.parts {
            let device = match &part {
                Part::Nic(_, device) => Some(device.clone()),
                _ => None,
            };
            let id = fabric.upsert(part, equipment);
            nics.extend(device.map(|device| (device, id)));
            fabric.connect(host, id, plain(LinkKind::Inside));
        }
        for (gpu, nic) in self.nearest {
            if let (Some(gpu), Some(nic)) = (fabric.find(&gpu), fabric.find(&nic)) {
                fabric.connect(gpu, nic, plain(LinkKind::Pcie));
            }
        }
        let node = self.node;
        Placed { node, nics }
    }
}

/// An interface as a NIC, of which it has the name; none of a slow one, which is for management. Without a link it has no speed.
fn nic_by_interface(
    node: &NodeName,
    history: &NodeHistory,
    netdev: &str,
) -> Option<(Part, Equipment)> {
    let speed = history
        .value(&NIC_SPEED, &[netdev])
        .filter(|speed| *speed > 0.0);
    let is_there = speed.is_some() || history.value(&NIC_CARRIER, &[netdev]).is_some();
    let is_fast = speed.is_none_or(|speed| speed >= MIN_SPEED);
    (is_there && is_fast).then(|| nic_named(node, netdev))?
}

/// A NIC of which nothing is known but the name of its interface.
pub(super) fn nic_named(node: &NodeName, netdev: &str) -> Option<(Part, Equipment)> {
    let equipment = Equipment::Nic {
        guid: None,
        pci: None,
        rail: None,
    };
    let part = Part::Nic(node.clone(), netdev.parse().ok()?);
    Some((part, equipment))
}

fn parts(node: &NodeName, history: &NodeHistory) -> Vec<(Part, Equipment)> {
    let mut parts = Vec::new();
    for (labels, _) in history.series(&PCIE_PATH) {
        if labels.get(label!(PCIE_PATH, "kind")) == Some("gpu")
            && let Some(gpu) = read(labels, label!(PCIE_PATH, "name"))
        {
            let equipment = Equipment::Gpu {
                uuid: None,
                pci: read(labels, label!(PCIE_PATH, "pci")),
            };
            parts.push((Part::Gpu(node.clone(), gpu), equipment));
        }
    }
    for (labels, _) in history.series(&GPU) {
        if let Some(gpu) = read(labels, label!(GPU, "gpu")) {
            let uuid = labels.get(label!(GPU, "uuid")).map(str::to_owned);
            let equipment = Equipment::Gpu {
                uuid,
                pci: read(labels, label!(GPU, "pci")),
            };
            parts.push((Part::Gpu(node.clone(), gpu), equipment));
        }
    }
    for (labels, _) in history.series(&RDMA_PORT) {
        if let Some(device) = read(labels, label!(RDMA_PORT, "device")) {
            let equipment = Equipment::Nic {
                guid: read(labels, label!(RDMA_PORT, "node_guid")),
                pci: read(labels, label!(RDMA_PORT, "pci")),
                rail: None,
            };
            parts.push((Part::Nic(node.clone(), device), equipment));
        }
    }
    parts
}

/// What sits at each PCI address of a node: kind, such as `gpu` or `nic`, and name. The PCIe tree takes precedence; without
/// it, as in a container, the address labels of GPUs and RDMA ports are used.
pub fn endpoints(history: &NodeHistory) -> BTreeMap<&str, (&str, &str)> {
    let gpus = history.series(&GPU).map(|(labels, _)| {
        let (pci, name) = (label!(GPU, "pci"), label!(GPU, "gpu"));
        (labels, pci, "gpu", name)
    });
    let nics = history.series(&RDMA_PORT).map(|(labels, _)| {
        let (pci, name) = (label!(RDMA_PORT, "pci"), label!(RDMA_PORT, "device"));
        (labels, pci, "nic", name)
    });
    let tree = history.series(&PCIE_PATH).map(|(labels, _)| {
        let kind = labels.get(label!(PCIE_PATH, "kind")).unwrap_or_default();
        let (pci, name) = (label!(PCIE_PATH, "pci"), label!(PCIE_PATH, "name"));
        (labels, pci, kind, name)
    });
    let all = gpus.chain(nics).chain(tree);
    all.filter_map(|(labels, pci, kind, name)| {
        let pci = labels.get(pci).filter(|pci| !pci.is_empty())?;
        Some((pci, (kind, labels.get(name).unwrap_or_default())))
    })
    .collect()
}

/// GPUs that a fault of this part slows: those that use the NIC, sit in the host, or are behind the switch.
pub fn gpus_behind(fabric: &Fabric, part: &Part) -> Vec<Part> {
    let mut gpus = match part {
        Part::Gpu(..) => vec![part.clone()],
        Part::NvLink(node, link) => vec![Part::Gpu(node.clone(), link.gpu)],
        Part::Nic(..) | Part::Host(_) | Part::Switch(_) => fabric
            .find(part)
            .map(|id| gpus_near(fabric, id))
            .unwrap_or_default(),
        Part::HostLink(node, port) => {
            return gpus_behind(fabric, &Part::Nic(node.clone(), port.device.clone()));
        }
        Part::PcieLink(node, pci) => {
            let sits_there = |id: &PartId| match &fabric.vertex(*id).equipment {
                Equipment::Gpu { pci: found, .. } | Equipment::Nic { pci: found, .. } => {
                    *found == Some(*pci)
                }
                _ => false,
            };
            let there = fabric.devices(node).filter(sits_there);
            there.flat_map(|id| gpus_near(fabric, id)).collect()
        }
        // A cable between switches slows all hosts that are routed over it: see `gpus_routed_over`. Which nodes use the
        // storage, only their I/O wait shows.
        Part::SwitchLink(..) | Part::SharedStorage => Vec::new(),
    };
    gpus.sort();
    gpus.dedup();
    gpus
}

/// GPUs whose NICs' traffic may go over a cable between switches, on the lower side of it, each with the
/// share of its NICs' traffic to all other leaves that does: 1/64 with 64 equal paths.
pub fn gpus_routed_over(fabric: &Fabric, routes: &Routes, cable: &Part) -> Vec<(Part, f64)> {
    let usage = routes.over(fabric, cable);
    let mut shares: BTreeMap<Part, f64> = BTreeMap::new();
    for (leaf, share) in &usage.leaves {
        for gpu in gpus_near(fabric, *leaf) {
            let known = shares.entry(gpu).or_default();
            *known = known.max(*share);
        }
    }
    shares.into_iter().collect()
}

/// GPUs whose NICs' traffic may go over a switch that has no NICs itself.
pub fn gpus_below(fabric: &Fabric, routes: &Routes, switch: &Part) -> Vec<Part> {
    let leaves = fabric.find(switch).map(|id| routes.below(fabric, id));
    let leaves = leaves.into_iter().flatten();
    leaves.flat_map(|leaf| gpus_near(fabric, leaf)).collect()
}

fn gpus_near(fabric: &Fabric, id: PartId) -> Vec<Part> {
    let vertex = fabric.vertex(id);
    let peers = |kind: LinkKind| {
        fabric
            .neighbors(id)
            .filter(move |near| near.link.kind == kind)
            .map(|near| near.peer)
    };
    let is_gpu = |id: &PartId| matches!(fabric.vertex(*id).part, Part::Gpu(..));
    match vertex.part {
        Part::Gpu(..) => vec![vertex.part.clone()],
        Part::Nic(..) => peers(LinkKind::Pcie)
            .filter(is_gpu)
            .map(|id| fabric.vertex(id).part.clone())
            .collect(),
        Part::Host(_) => peers(LinkKind::Inside)
            .filter(is_gpu)
            .map(|id| fabric.vertex(id).part.clone())
            .collect(),
        Part::Switch(_) => {
            let is_nic = |id: &PartId| matches!(fabric.vertex(*id).part, Part::Nic(..));
            peers(LinkKind::Cable)
                .filter(is_nic)
                .flat_map(|id| gpus_near(fabric, id))
                .collect()
        }
        _ => Vec::new(),
    }
}

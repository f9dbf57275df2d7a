//! What exporters say a node is made of, as parts of the fabric.

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{GpuIndex, NodeName, Part, PciAddress, RdmaDevice};
use railscope_model::metric::{GPU, GPU_NIC, Metric, PCIE_PATH, RDMA_PORT};
use railscope_model::reading::Labels;

use super::history::NodeHistory;

/// A label of an info series by name; empty labels say "unknown" and read as none.
fn label<'a>(metric: &Metric, labels: &'a Labels, name: &str) -> Option<&'a str> {
    let place = metric.labels.iter().position(|label| *label == name)?;
    labels.values().nth(place).filter(|value| !value.is_empty())
}

/// Adds host, GPUs and NICs of a node, and which NIC each GPU uses.
pub fn merge_node(fabric: &mut Fabric, node: &NodeName, history: &NodeHistory, now: Timestamp) {
    let host = fabric.upsert(Part::Host(node.clone()), Equipment::Host);
    let edge = |kind| Link {
        kind,
        ports: (0, 0),
        speed: None,
        witness: Witness::Exporter,
        seen: now,
    };
    let inside = |fabric: &mut Fabric, part, equipment| {
        let id = fabric.upsert(part, equipment);
        fabric.connect(host, id, edge(LinkKind::Inside));
        id
    };
    for (labels, _) in history.series(&PCIE_PATH) {
        let gpu = label(&PCIE_PATH, labels, "kind") == Some("gpu");
        let index =
            label(&PCIE_PATH, labels, "name").and_then(|name| name.parse::<GpuIndex>().ok());
        if let (true, Some(index)) = (gpu, index) {
            let pci = label(&PCIE_PATH, labels, "pci").and_then(|pci| pci.parse().ok());
            inside(
                fabric,
                Part::Gpu(node.clone(), index),
                Equipment::Gpu { uuid: None, pci },
            );
        }
    }
    for (labels, _) in history.series(&GPU) {
        if let Some(index) = label(&GPU, labels, "gpu").and_then(|gpu| gpu.parse().ok()) {
            let pci = label(&GPU, labels, "pci").and_then(|pci| pci.parse().ok());
            let uuid = label(&GPU, labels, "uuid").map(str::to_owned);
            inside(
                fabric,
                Part::Gpu(node.clone(), index),
                Equipment::Gpu { uuid, pci },
            );
        }
    }
    for (labels, _) in history.series(&RDMA_PORT) {
        if let Some(device) =
            label(&RDMA_PORT, labels, "device").and_then(|device| device.parse().ok())
        {
            let pci = label(&RDMA_PORT, labels, "pci").and_then(|pci| pci.parse().ok());
            let guid = label(&RDMA_PORT, labels, "node_guid").and_then(|guid| guid.parse().ok());
            inside(
                fabric,
                Part::Nic(node.clone(), device),
                Equipment::Nic {
                    guid,
                    pci,
                    rail: None,
                },
            );
        }
    }
    for (labels, _) in history.series(&GPU_NIC) {
        let pair = (
            label(&GPU_NIC, labels, "gpu"),
            label(&GPU_NIC, labels, "device"),
        );
        let (Some(Ok(gpu)), Some(Ok(device))) = (pair.0.map(str::parse), pair.1.map(str::parse))
        else {
            continue;
        };
        let nearest = label(&GPU_NIC, labels, "nearest") == Some("true");
        let ids = (
            fabric.find(&Part::Gpu(node.clone(), gpu)),
            fabric.find(&Part::Nic(node.clone(), device)),
        );
        if let (true, (Some(gpu), Some(nic))) = (nearest, ids) {
            fabric.connect(gpu, nic, edge(LinkKind::Pcie));
        }
    }
}

/// Which GPU or NIC of a node sits at a PCI address.
pub fn endpoint(history: &NodeHistory, pci: PciAddress) -> Option<(String, String)> {
    let wanted = pci.to_string();
    history.series(&PCIE_PATH).find_map(|(labels, _)| {
        (label(&PCIE_PATH, labels, "pci")? == wanted).then(|| {
            let text = |name| {
                label(&PCIE_PATH, labels, name)
                    .unwrap_or_default()
                    .to_owned()
            };
            (text("kind"), text("name"))
        })
    })
}

/// The PCI function of an RDMA device of a node.
pub fn device_at<'a>(history: &'a NodeHistory, device: &RdmaDevice) -> Option<&'a str> {
    let found = |labels: &&Labels| label(&RDMA_PORT, labels, "device") == Some(device.as_str());
    history
        .series(&RDMA_PORT)
        .map(|(labels, _)| labels)
        .find(found)
        .and_then(|labels| label(&RDMA_PORT, labels, "pci"))
}

/// GPUs that a fault of this part slows: those that use the NIC, sit in the host, or hang behind the switch.
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
            let host = fabric.find(&Part::Host(node.clone()));
            let near = host
                .into_iter()
                .flat_map(|host| fabric.neighbours(host))
                .map(|near| near.peer);
            let sits_there = |id: &PartId| match &fabric.vertex(*id).equipment {
                Equipment::Gpu { pci: found, .. } | Equipment::Nic { pci: found, .. } => {
                    *found == Some(*pci)
                }
                _ => false,
            };
            near.filter(sits_there)
                .flat_map(|id| gpus_near(fabric, id))
                .collect()
        }
        // A cable between switches slows whoever is routed over it; that takes paths, not neighbours.
        Part::SwitchLink(..) => Vec::new(),
    };
    gpus.sort();
    gpus.dedup();
    gpus
}

fn gpus_near(fabric: &Fabric, id: PartId) -> Vec<Part> {
    let vertex = fabric.vertex(id);
    let peers = |kind: LinkKind| {
        fabric
            .neighbours(id)
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

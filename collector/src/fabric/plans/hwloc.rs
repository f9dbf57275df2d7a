//! hwloc's XML (`lstopo --of xml`): packages, host bridges, PCIe, GPUs and RDMA devices.

use railscope_model::plan::PlanError;
use roxmltree::Node;

use super::nccl::{line, xml};
use super::node::Step;
use super::{Endpoint, NodeTopology, Source};

/// Vendors of GPUs: NVIDIA, AMD. Another vendor's display device is the console of a board.
const GPU_VENDORS: [&str; 2] = ["10de", "1002"];
/// hwloc shows the upstream and each downstream port of a PCIe switch: one bridge between switch and device.
const PORTS: usize = 1;

/// Reads the topology.
pub(super) fn read(source: &mut Source<'_>) -> Result<NodeTopology, Vec<PlanError>> {
    let document = xml(source)?;
    let root = document.root_element();
    if !root.has_tag_name("topology") {
        let (line, found) = (line(source, root), root.tag_name().name());
        return Err(vec![source.error(
            line,
            "root",
            found,
            "<topology>, of hwloc",
        )]);
    }
    let mut walk = Walk {
        // Kinds of devices are numbers in hwloc 2, bits in hwloc 3.
        openfabrics: match root.attribute("version") {
            Some(version) if version.starts_with('3') => "32",
            _ => "3",
        },
        ..Walk::default()
    };
    walk.children(source, root, &mut Vec::new(), None);
    walk.topology.fits(source)?;
    walk.topology.tells_nics = true;
    walk.topology.measure(&walk.gpus, &walk.nics, PORTS);
    Ok(walk.topology)
}

#[derive(Default)]
struct Walk {
    topology: NodeTopology,
    gpus: Vec<Vec<Step>>,
    nics: Vec<Vec<Step>>,
    openfabrics: &'static str,
    steps: usize,
}

impl Walk {
    fn children(
        &mut self,
        source: &mut Source<'_>,
        node: Node<'_, '_>,
        way: &mut Vec<Step>,
        numa: Option<u16>,
    ) {
        for child in node.children().filter(|child| child.has_tag_name("object")) {
            self.steps += 1;
            let step = match (child.attribute("type"), child.attribute("bridge_type")) {
                (Some("Package"), _) => Some(Step::Cpu(self.steps)),
                (Some("Bridge"), Some("0-1")) => Some(Step::HostBridge(self.steps)),
                (Some("Bridge"), _) => Some(Step::Bridge(self.steps)),
                (Some("PCIDev"), _) => {
                    self.device(source, child, way, numa);
                    None
                }
                _ => None,
            };
            let own = match child.attribute("type") {
                Some("Package") => child
                    .attribute("os_index")
                    .and_then(|index| index.parse().ok()),
                _ => numa,
            };
            way.extend(step);
            self.children(source, child, way, own);
            way.truncate(way.len() - usize::from(step.is_some()));
        }
    }

    fn device(
        &mut self,
        source: &mut Source<'_>,
        node: Node<'_, '_>,
        way: &[Step],
        numa: Option<u16>,
    ) {
        let kind = node.attribute("pci_type").unwrap_or_default();
        let vendor = kind.split(['[', ':']).nth(1).unwrap_or_default();
        let address = node.attribute("pci_busid").unwrap_or_default();
        let pci = address.parse().ok();
        if pci.is_none() {
            let line = line(source, node);
            source.problem(
                line,
                "pci_busid",
                address,
                "a PCI address such as 0000:8d:00.0",
            );
        }
        let system = node.children().filter(|child| child.has_tag_name("object"));
        let rdma = system
            .filter(|child| child.attribute("osdev_type") == Some(self.openfabrics))
            .find_map(|child| child.attribute("name"));
        match (kind.get(..2), rdma) {
            (Some("03"), _) if GPU_VENDORS.contains(&vendor) => {
                let name = format!("GPU{}", self.topology.gpus.len());
                self.topology.gpus.push(Endpoint { name, pci, numa });
                self.gpus.push(way.to_vec());
            }
            // Without its RDMA device, an InfiniBand function is known by its class.
            (Some("02"), name) if name.is_some() || kind.starts_with("0207") => {
                let name = name.unwrap_or(address).to_owned();
                self.topology.nics.push(Endpoint { name, pci, numa });
                self.nics.push(way.to_vec());
            }
            _ => {}
        }
    }
}

//! The truth as the graph that a collector should build.

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, Timestamp, Witness};
use railscope_model::identity::{GpuIndex, Part};

use super::{Device, Socket, Wiring};
use crate::show::machine::gpus::uuid;
use crate::spec::pci_layout::gpu_address;

impl Wiring {
    /// The truth as the graph that a collector should build: hosts, GPUs, NICs, switches and cables.
    pub fn fabric(&self, seen: Timestamp) -> Fabric {
        let mut fabric = Fabric::default();
        let inside = Link::plain(LinkKind::Inside, Witness::Exporter, seen);
        let mut nics = Vec::new();
        for nic in &self.nics {
            let host = fabric.upsert(Part::Host(nic.node_name.clone()), Equipment::Host);
            if (nic.rail, nic.plane) == (0, 0) {
                let host_gpus = self.hosts[usize::from(nic.node)].gpus.len();
                for gpu in 0..host_gpus as u8 {
                    let part = Part::Gpu(nic.node_name.clone(), GpuIndex(gpu.into()));
                    let equipment = Equipment::Gpu {
                        uuid: Some(uuid(nic.node, gpu)),
                        pci: Some(gpu_address(nic.kind.shape(), gpu)),
                    };
                    let gpu = fabric.upsert(part, equipment);
                    fabric.connect(host, gpu, inside.clone());
                }
            }
            let part = Part::Nic(nic.node_name.clone(), nic.device.clone());
            let equipment = Equipment::Nic {
                guid: Some(nic.guid),
                pci: Some(nic.pci()),
                rail: Some(nic.rail.into()),
            };
            let id = fabric.upsert(part, equipment);
            fabric.connect(host, id, inside.clone());
            nics.push(id);
        }
        let mut switches = Vec::new();
        for switch in &self.switches {
            let equipment = Equipment::Switch {
                guid: Some(switch.guid),
                ports: switch.ports,
                description: switch.description(),
            };
            switches.push(fabric.upsert(Part::Switch(switch.name.clone()), equipment));
        }
        for cable in self.lit() {
            let ends = cable.ends.map(|(device, port): Socket| match device {
                Device::Nic(index) => (nics[index], port),
                Device::Switch(index) => {
                    let (id, name) = (switches[index], self.port_name(port));
                    // More names than a graph has handles for no switch has.
                    (id, fabric.port_handle(id, &name).unwrap_or(port))
                }
            });
            let [a, b] = ends;
            let link = Link::cable((a.1, b.1), Some(cable.speed), Witness::Subnet, seen);
            fabric.connect(a.0, b.0, link);
        }
        fabric
    }
}

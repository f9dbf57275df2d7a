//! Which port is cabled to which: a deterministic wiring out of a cluster's description.

use std::collections::HashMap;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, Timestamp, Witness};
use railscope_model::identity::{
    GpuIndex, Guid, IdentityError, NodeName, Part, RdmaDevice, RdmaPort, SwitchName,
};
use railscope_model::units::LinkSpeed;

use crate::machine::gpus::uuid;
use crate::machine::layout::{gpu_address, nic_address};
use crate::spec::{ClusterSpec, SpecError, WiringSpec};

/// A network adapter with one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Ordinal of its node.
    pub node: u16,
    /// Ordinal in its node, which is its rail.
    pub rail: u8,
    /// Name of its node.
    pub node_name: NodeName,
    /// Name in its node: `mlx5_3`.
    pub device: RdmaDevice,
    /// Node GUID, and GUID of its port.
    pub guid: Guid,
    /// Local identifier in the subnet.
    pub lid: u16,
}

/// Tier of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Has nodes: those of one rail of one scalable unit.
    Leaf {
        /// Scalable unit.
        su: u16,
        /// Rail.
        rail: u8,
    },
    /// Joins leaves.
    Spine,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name: `leaf-su0-r3`, `spine-0`.
    pub name: SwitchName,
    /// Tier.
    pub tier: Tier,
    /// Ports.
    pub ports: u16,
    /// Node GUID.
    pub guid: Guid,
    /// Local identifier in the subnet.
    pub lid: u16,
}

impl Switch {
    /// Node description in the manner of a managed Quantum-2: `MF0;leaf-su0-r3:MQM9700/U1`.
    pub fn description(&self) -> String {
        format!("MF0;{}:MQM9700/U1", self.name)
    }
}

/// A device with cables: index into [`Wiring::nics`] or [`Wiring::switches`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// A NIC.
    Nic(usize),
    /// A switch.
    Switch(usize),
}

/// One port of a device, from 1.
pub type Socket = (Device, u16);

/// A cable that carries light.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cable {
    /// Its two ends: node or leaf first.
    pub ends: [Socket; 2],
    /// Width and speed now.
    pub speed: LinkSpeed,
}

/// All devices of a fabric and the cables between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// NICs by node, then rail.
    pub nics: Vec<Nic>,
    /// Switches: leaves by scalable unit and rail, then spines.
    pub switches: Vec<Switch>,
    /// Cables: NICs in order, then uplinks.
    pub cables: Vec<Cable>,
    gpus_per_node: u8,
    nics_per_node: u8,
}

/// GUIDs start with an OUI of NVIDIA (Mellanox) each, as on the captured NDR fabric.
const NIC_GUIDS: u64 = 0xe09d_7303_0000_0000;
const SWITCH_GUIDS: u64 = 0x2c5e_ab03_0000_0000;

/// Name of a node: `gpu-node-00`.
///
/// # Errors
/// None in practice: the name is well-formed.
pub fn node_name(node: u16) -> Result<NodeName, IdentityError> {
    format!("gpu-node-{node:02}").parse()
}

impl Wiring {
    /// The wiring that was planned. The same description gives the same names, ports, GUIDs and LIDs.
    ///
    /// # Errors
    /// The description asks for what its switches cannot carry.
    pub fn plan(spec: &ClusterSpec) -> Result<Self, SpecError> {
        spec.check()?;
        let mut wiring = Self {
            nics: Vec::new(),
            switches: Vec::new(),
            cables: Vec::new(),
            gpus_per_node: spec.gpus_per_node,
            nics_per_node: spec.nics_per_node,
        };
        let named = match spec.wiring {
            WiringSpec::RailOptimised {
                nodes_per_su,
                radix,
                spines,
            } => wiring.rail_optimised(spec, nodes_per_su, radix, spines),
        };
        named.map_err(|error| SpecError::new("wiring", error.to_string()))?;
        Ok(wiring)
    }

    fn rail_optimised(
        &mut self,
        spec: &ClusterSpec,
        nodes_per_su: u16,
        radix: u16,
        spines: u16,
    ) -> Result<(), IdentityError> {
        let rails = spec.nics_per_node;
        for su in 0..spec.nodes.div_ceil(nodes_per_su) {
            for rail in 0..rails {
                let name = format!("leaf-su{su}-r{rail}").parse()?;
                self.add_switch(name, Tier::Leaf { su, rail }, radix);
            }
        }
        let leaves = self.switches.len();
        for spine in 0..spines {
            self.add_switch(format!("spine-{spine}").parse()?, Tier::Spine, radix);
        }
        self.add_nics(spec)?;
        let speed = spec.speed.link();
        for (index, nic) in self.nics.iter().enumerate() {
            let leaf =
                usize::from(nic.node / nodes_per_su) * usize::from(rails) + usize::from(nic.rail);
            let port = nic.node % nodes_per_su + 1;
            self.cables.push(Cable {
                ends: [(Device::Nic(index), 1), (Device::Switch(leaf), port)],
                speed,
            });
        }
        let (half, parallel) = (radix / 2, radix / 2 / spines);
        for (leaf, first) in (0..leaves).zip((1..).step_by(usize::from(parallel))) {
            for uplink in 0..half {
                let spine = leaves + usize::from(uplink / parallel);
                let down = first + uplink % parallel;
                self.cables.push(Cable {
                    ends: [
                        (Device::Switch(leaf), half + 1 + uplink),
                        (Device::Switch(spine), down),
                    ],
                    speed,
                });
            }
        }
        Ok(())
    }

    fn add_switch(&mut self, name: SwitchName, tier: Tier, ports: u16) {
        let number = self.switches.len() as u16 + 1;
        self.switches.push(Switch {
            name,
            tier,
            ports,
            guid: Guid(SWITCH_GUIDS | u64::from(number) << 8),
            lid: number,
        });
    }

    /// Adds the NICs of all nodes. Switches come first, because LIDs go on where theirs end.
    fn add_nics(&mut self, spec: &ClusterSpec) -> Result<(), IdentityError> {
        for node in 0..spec.nodes {
            let node_name = node_name(node)?;
            for rail in 0..spec.nics_per_node {
                self.nics.push(Nic {
                    node,
                    rail,
                    node_name: node_name.clone(),
                    device: format!("mlx5_{rail}").parse()?,
                    guid: Guid(NIC_GUIDS | (u64::from(node) + 1) << 8 | u64::from(rail) << 4),
                    lid: (self.switches.len() + self.nics.len() + 1) as u16,
                });
            }
        }
        Ok(())
    }

    /// Index of the NIC on a rail of a node.
    pub fn nic_index(&self, node: u16, rail: u8) -> usize {
        usize::from(node) * usize::from(self.nics_per_node) + usize::from(rail)
    }

    /// Index of the cable at a NIC; none if it carries no light.
    pub fn cable_of(&self, nic: usize) -> Option<usize> {
        let socket = (Device::Nic(nic), 1);
        self.cables.iter().position(|cable| cable.ends[0] == socket)
    }

    /// Exchanges the switch ends of the cables at two NICs, as somebody does who mixes them up.
    pub fn swap(&mut self, nic: usize, other: usize) {
        if let (Some(a), Some(b)) = (self.cable_of(nic), self.cable_of(other)) {
            let far = self.cables[a].ends[1];
            self.cables[a].ends[1] = self.cables[b].ends[1];
            self.cables[b].ends[1] = far;
        }
    }

    /// The cable at a NIC goes dark.
    pub fn cut(&mut self, nic: usize) {
        if let Some(cable) = self.cable_of(nic) {
            self.cables.remove(cable);
        }
    }

    /// Whether a NIC hangs on a leaf of its own rail; none if its cable is dark.
    pub fn on_own_rail(&self, nic: usize) -> Option<bool> {
        let cable = self.cables[self.cable_of(nic)?];
        let (Device::Switch(leaf), _) = cable.ends[1] else {
            return None;
        };
        let own = self.nics[nic].rail;
        Some(matches!(self.switches[leaf].tier, Tier::Leaf { rail, .. } if rail == own))
    }

    /// What hangs on the ports of each device, by port: far end and speed.
    pub fn ports(&self) -> HashMap<Device, Vec<(u16, Socket, LinkSpeed)>> {
        let mut ports: HashMap<Device, Vec<_>> = HashMap::new();
        for cable in &self.cables {
            let [a, b] = cable.ends;
            ports.entry(a.0).or_default().push((a.1, b, cable.speed));
            ports.entry(b.0).or_default().push((b.1, a, cable.speed));
        }
        for far in ports.values_mut() {
            far.sort_by_key(|(port, ..)| *port);
        }
        ports
    }

    /// The truth as the graph that a collector should build: hosts, GPUs, NICs, switches and cables.
    pub fn fabric(&self, seen: Timestamp) -> Fabric {
        let mut fabric = Fabric::default();
        let inside = Link {
            kind: LinkKind::Inside,
            ports: (0, 0),
            speed: None,
            witness: Witness::Exporter,
            seen,
        };
        let mut nics = Vec::new();
        for nic in &self.nics {
            let host = fabric.upsert(Part::Host(nic.node_name.clone()), Equipment::Host);
            if nic.rail == 0 {
                for gpu in 0..self.gpus_per_node {
                    let part = Part::Gpu(nic.node_name.clone(), GpuIndex(gpu.into()));
                    let equipment = Equipment::Gpu {
                        uuid: Some(uuid(nic.node, gpu)),
                        pci: Some(gpu_address(gpu)),
                    };
                    let gpu = fabric.upsert(part, equipment);
                    fabric.connect(host, gpu, inside.clone());
                }
            }
            let part = Part::Nic(nic.node_name.clone(), nic.device.clone());
            let equipment = Equipment::Nic {
                guid: Some(nic.guid),
                pci: Some(nic_address(nic.rail)),
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
        for cable in &self.cables {
            let id = |(device, _): Socket| match device {
                Device::Nic(index) => nics[index],
                Device::Switch(index) => switches[index],
            };
            let [a, b] = cable.ends;
            let link = Link {
                kind: LinkKind::Cable,
                ports: (a.1, b.1),
                speed: Some(cable.speed),
                witness: Witness::Subnet,
                seen,
            };
            fabric.connect(id(a), id(b), link);
        }
        fabric
    }
}

impl Nic {
    /// Node description that the driver sets: `gpu-node-00 mlx5_3`.
    pub fn description(&self) -> String {
        format!("{} {}", self.node_name, self.device)
    }

    /// Its only port.
    pub fn port(&self) -> RdmaPort {
        RdmaPort {
            device: self.device.clone(),
            port: 1,
        }
    }

    /// The cable at its port, as a part.
    pub fn link_part(&self) -> Part {
        Part::HostLink(self.node_name.clone(), self.port())
    }

    /// The PCIe link above it, as a part.
    pub fn pcie_part(&self) -> Part {
        Part::PcieLink(self.node_name.clone(), nic_address(self.rail))
    }
}

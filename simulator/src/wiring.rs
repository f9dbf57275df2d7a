//! Which port is cabled to which: a deterministic wiring out of a cluster's description.

use std::collections::HashMap;
use std::ops::Range;

use petgraph::unionfind::UnionFind;
use railscope_model::identity::{
    Guid, IdentityError, NodeName, Part, PciAddress, PortName, RdmaDevice, RdmaPort, SwitchName,
};
use railscope_model::units::LinkSpeed;

use crate::parts::efa;
use crate::spec::pci_layout::nic_address;
use crate::spec::products::NicDriver;
use crate::spec::shape::NodeKind;
use crate::spec::{Change, ClusterSpec, SpecError, Transport, WiringSpec};
use crate::traffic::router::Lane;
use crate::work::workload::Towards;

mod clos;
mod dragonfly;
mod truth;

/// One node: what it is, and which NICs and GPUs are its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What kind of node.
    pub kind: NodeKind,
    /// Its place among the nodes of its group, from 0.
    pub place: u16,
    /// Its ports towards the fabric: indices into [`Wiring::nics`].
    pub nics: Range<usize>,
    /// Its GPUs, by number over all nodes.
    pub gpus: Range<usize>,
}

/// One port of a network adapter, which is a separate RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Ordinal of its node.
    pub node: u16,
    /// What kind of node.
    pub kind: NodeKind,
    /// Ordinal of the adapter in its node, which is its rail.
    pub rail: u8,
    /// Port of the adapter, from 0, which is its plane.
    pub plane: u8,
    /// Name of its node.
    pub node_name: NodeName,
    /// Name in its node: `mlx5_3`, `rdmap71s0`.
    pub device: RdmaDevice,
    /// Node GUID, and GUID of its port.
    pub guid: Guid,
    /// Local identifier in the subnet; 0 on other fabrics.
    pub lid: u16,
}

/// Tier of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Has nodes.
    Leaf {
        /// Its nodes' scalable unit, or its number where leaves do not belong to units.
        group: u16,
        /// The rail of all its NICs, if it has one.
        rail: Option<u8>,
    },
    /// Joins leaves.
    Spine,
    /// Joins spines.
    Core,
    /// Has nodes and joins others of its kind.
    Router {
        /// Group of routers that are joined all to all.
        group: u16,
    },
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name: `leaf-su0-r3`, `spine-0`, `core-3-1`, `router-2-5`.
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

/// A cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cable {
    /// Its two ends: node or lower switch first.
    pub ends: [Socket; 2],
    /// Width and speed now.
    pub speed: LinkSpeed,
    /// Whether it carries an optical signal.
    pub lit: bool,
}

/// All devices of a fabric and the cables between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// Nodes.
    pub hosts: Vec<Host>,
    /// NICs by node, rail and plane.
    pub nics: Vec<Nic>,
    /// Switches: leaves first.
    pub switches: Vec<Switch>,
    /// Cables, dark ones too: that of each NIC in their order, then those between switches.
    pub cables: Vec<Cable>,
    planes: u8,
    ethernet: bool,
}

/// GUIDs start with an OUI of NVIDIA (Mellanox) each, as on the captured NDR fabric.
const NIC_GUIDS: u64 = 0xe09d_7303_0000_0000;
const SWITCH_GUIDS: u64 = 0x2c5e_ab03_0000_0000;
/// Above are multicast groups (InfiniBand Architecture Specification, volume 1, section 4.1.3).
const LAST_UNICAST_LID: u16 = 0xbfff;

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
    /// The description exceeds the capacity of its switches.
    pub fn plan(spec: &ClusterSpec) -> Result<Self, SpecError> {
        spec.check()?;
        let mut wiring = Self {
            hosts: Vec::new(),
            nics: Vec::new(),
            switches: Vec::new(),
            cables: Vec::new(),
            planes: spec.planes,
            ethernet: spec.transport == Transport::Roce,
        };
        wiring
            .add_hosts(spec)
            .map_err(|error| SpecError::new("nodes", error.to_string()))?;
        if let WiringSpec::Dragonfly { .. } = spec.wiring {
            dragonfly::wire(&mut wiring, spec)?;
        } else {
            clos::wire(&mut wiring, spec)?;
        }
        if spec.transport == Transport::Infiniband {
            wiring.give_lids()?;
        }
        Ok(wiring)
    }

    /// The wiring as people have built it: the plan with the changes of its description.
    ///
    /// # Errors
    /// The plan cannot be made, or has no cable that a change names.
    pub fn built(spec: &ClusterSpec) -> Result<Self, SpecError> {
        let mut wiring = Self::plan(spec)?;
        let find = |wiring: &Self, part: &Part| {
            wiring.cable_named(part).ok_or_else(|| {
                let example = wiring.nics.first().map(Nic::link_part);
                let example = example.map_or_else(String::new, |part| format!(", such as {part}"));
                SpecError::new(
                    "changes",
                    format!("found {part}, expected a cable of the plan{example}"),
                )
            })
        };
        for change in &spec.changes {
            match change {
                Change::Missing(part) => {
                    let cable = find(&wiring, part)?;
                    wiring.cables[cable].lit = false;
                }
                Change::Swapped([one, other]) => {
                    let (one, other) = (find(&wiring, one)?, find(&wiring, other)?);
                    wiring.swap(one, other);
                }
            }
        }
        Ok(wiring)
    }

    fn add_hosts(&mut self, spec: &ClusterSpec) -> Result<(), IdentityError> {
        let mut gpus = 0;
        for (node, (kind, place)) in (0..).zip(spec.kinds()) {
            let node_name = node_name(node)?;
            let ports = spec.nics_of(kind) * spec.planes;
            let (first_nic, first_gpu) = (self.nics.len(), gpus);
            gpus += usize::from(spec.gpus_of(kind));
            self.hosts.push(Host {
                kind,
                place,
                nics: first_nic..first_nic + usize::from(ports),
                gpus: first_gpu..gpus,
            });
            let driver = kind.shape().nic.driver;
            for slot in 0..ports {
                let pci = nic_address(kind.shape(), slot / spec.planes, slot % spec.planes);
                let guid = match driver {
                    NicDriver::Mlx5 => {
                        Guid(NIC_GUIDS | (u64::from(node) + 1) << 8 | u64::from(slot) << 4)
                    }
                    NicDriver::Efa => efa::node_guid(node, pci.bus),
                };
                self.nics.push(Nic {
                    node,
                    kind,
                    rail: slot / spec.planes,
                    plane: slot % spec.planes,
                    node_name: node_name.clone(),
                    device: driver.device(slot, pci).parse()?,
                    guid,
                    lid: 0,
                });
            }
        }
        Ok(())
    }

    /// Adds a switch and returns its index.
    fn add_switch(&mut self, name: &str, tier: Tier, ports: u16) -> Result<usize, SpecError> {
        let name = name
            .parse()
            .map_err(|error: IdentityError| SpecError::new("wiring", error.to_string()))?;
        let index = self.switches.len();
        self.switches.push(Switch {
            name,
            tier,
            ports,
            guid: Guid(SWITCH_GUIDS | (index as u64 + 1) << 8),
            lid: 0,
        });
        Ok(index)
    }

    fn join(&mut self, lower: Socket, upper: Socket, speed: LinkSpeed) {
        self.cables.push(Cable {
            ends: [lower, upper],
            speed,
            lit: true,
        });
    }

    /// Subnets one after another, in each the switches first, as a subnet manager would.
    fn give_lids(&mut self) -> Result<(), SpecError> {
        let mut next: HashMap<usize, u16> = HashMap::new();
        let subnets = self.subnets();
        let switches = self.switches.len();
        for (device, subnet) in subnets.into_iter().enumerate() {
            let lid = next.entry(subnet).or_insert(0);
            *lid += 1;
            if *lid > LAST_UNICAST_LID {
                return Err(SpecError::new(
                    "nodes",
                    format!(
                        "found more than {LAST_UNICAST_LID} devices in one subnet, expected fewer, or planes or rails apart"
                    ),
                ));
            }
            match device.checked_sub(switches) {
                None => self.switches[device].lid = *lid,
                Some(nic) => self.nics[nic].lid = *lid,
            }
        }
        Ok(())
    }

    /// Which subnet each switch, and then each NIC, is in: devices that cables join are in one.
    pub fn subnets(&self) -> Vec<usize> {
        let number = |device| match device {
            Device::Switch(index) => index,
            Device::Nic(index) => self.switches.len() + index,
        };
        let mut of = UnionFind::new(self.switches.len() + self.nics.len());
        for cable in &self.cables {
            let [(lower, _), (upper, _)] = cable.ends;
            of.union(number(lower), number(upper));
        }
        of.into_labeling()
    }

    /// Index of a NIC by its node and the number in its device's name.
    pub fn nic_index(&self, node: u16, slot: usize) -> usize {
        self.hosts[usize::from(node)].nics.start + slot
    }

    /// Number of a NIC in its node: that of its device's name.
    pub fn slot(&self, nic: usize) -> usize {
        let host = usize::from(self.nics[nic].node);
        nic - self.hosts[host].nics.start
    }

    /// Numbers of NICs that every one of these nodes has: NCCL opens no more channels than the node with the
    /// fewest carries.
    pub fn common_slots(&self, nodes: &[u16]) -> Range<usize> {
        let counts = nodes
            .iter()
            .map(|node| self.hosts[usize::from(*node)].nics.len());
        0..counts.min().unwrap_or(0)
    }

    /// Ports of each adapter, each to a separate fabric.
    pub const fn planes(&self) -> u8 {
        self.planes
    }

    /// The node that has a GPU, by its number over all nodes.
    pub fn host_of_gpu(&self, gpu: usize) -> usize {
        self.hosts.partition_point(|host| host.gpus.end <= gpu)
    }

    /// Indices of all ports of the adapter that a NIC is a port of.
    pub fn ports_of_adapter(&self, nic: usize) -> Range<usize> {
        let planes = usize::from(self.planes);
        let first = nic / planes * planes;
        first..first + planes
    }

    /// One direction of the PCIe link above a NIC. Numbered after those of the cables.
    pub fn pcie_lane(&self, nic: usize, towards: Towards) -> Lane {
        let adapter = nic / usize::from(self.planes);
        let link = self.cables.len() + adapter;
        match towards {
            Towards::Fabric => Lane::up(link),
            Towards::Host => Lane::down(link),
        }
    }

    /// Lanes of all cables and PCIe links.
    pub fn lanes(&self) -> usize {
        2 * (self.cables.len() + self.nics.len() / usize::from(self.planes))
    }

    /// The cable at a NIC; none if it carries no optical signal.
    pub fn cable_of(&self, nic: usize) -> Option<&Cable> {
        self.cables.get(nic).filter(|cable| cable.lit)
    }

    /// What a switch calls one of its ports: InfiniBand numbers them, an Ethernet switch of Cumulus names them.
    pub fn port_name(&self, port: u16) -> PortName {
        if self.ethernet {
            PortName::Name(format!("swp{port}").into())
        } else {
            PortName::Number(port)
        }
    }

    /// Index of the cable that a part names, by either of its ends.
    pub fn cable_named(&self, part: &Part) -> Option<usize> {
        match part {
            Part::HostLink(..) => self.nics.iter().position(|nic| nic.link_part() == *part),
            Part::SwitchLink(name, port) => {
                let mut switches = self.switches.iter();
                let switch = Device::Switch(switches.position(|switch| switch.name == *name)?);
                let is_it = |end: &Socket| end.0 == switch && self.port_name(end.1) == *port;
                self.cables
                    .iter()
                    .position(|cable| cable.ends.iter().any(is_it))
            }
            _ => None,
        }
    }

    /// The cable as a part: named by its NIC, or by the switch whose name comes first, as the fabric graph does.
    pub fn cable_part(&self, cable: usize) -> Part {
        let by_end = |(device, port): Socket| match device {
            Device::Nic(nic) => self.nics[nic].link_part(),
            Device::Switch(switch) => {
                Part::SwitchLink(self.switches[switch].name.clone(), self.port_name(port))
            }
        };
        match self.cables[cable].ends {
            [nic @ (Device::Nic(_), _), _] => by_end(nic),
            ends => {
                let [a, b] = ends.map(by_end);
                a.min(b)
            }
        }
    }

    /// Cables that carry an optical signal.
    pub fn lit(&self) -> impl Iterator<Item = &Cable> {
        self.cables.iter().filter(|cable| cable.lit)
    }

    /// Exchanges the upper ends of two cables, as a wiring mistake does.
    pub fn swap(&mut self, one: usize, other: usize) {
        let far = self.cables[one].ends[1];
        self.cables[one].ends[1] = self.cables[other].ends[1];
        self.cables[other].ends[1] = far;
    }

    /// Whether a NIC is connected to a leaf of its rail, if leaves belong to rails; none if its cable
    /// is dark.
    pub fn on_own_rail(&self, nic: usize) -> Option<bool> {
        let (Device::Switch(leaf), _) = self.cable_of(nic)?.ends[1] else {
            return None;
        };
        let own = self.nics[nic].rail;
        Some(match self.switches[leaf].tier {
            Tier::Leaf { rail, .. } => rail.is_none_or(|rail| rail == own),
            _ => true,
        })
    }

    /// What is connected to the ports of each device, by port: far end and speed. Dark cables are omitted.
    pub fn ports(&self) -> HashMap<Device, Vec<(u16, Socket, LinkSpeed)>> {
        let mut ports: HashMap<Device, Vec<_>> = HashMap::new();
        for cable in self.lit() {
            let [a, b] = cable.ends;
            ports.entry(a.0).or_default().push((a.1, b, cable.speed));
            ports.entry(b.0).or_default().push((b.1, a, cable.speed));
        }
        for far in ports.values_mut() {
            far.sort_by_key(|(port, ..)| *port);
        }
        ports
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

    /// Address of its PCI function.
    pub fn pci(&self) -> PciAddress {
        nic_address(self.kind.shape(), self.rail, self.plane)
    }

    /// The PCIe link above its adapter, as a part: named by the first function.
    pub fn pcie_part(&self) -> Part {
        Part::PcieLink(
            self.node_name.clone(),
            nic_address(self.kind.shape(), self.rail, 0),
        )
    }
}

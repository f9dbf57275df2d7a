//! The fabric graph as arrays: switches, hosts and NICs by number, as the computations over all of it need them.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, Link, LinkId, LinkKind, PartId};
use railscope_model::identity::{NodeName, Part, PciAddress, PortName, RdmaDevice, SwitchName};
use railscope_model::units::LinkSpeed;

/// Index of no vertex.
const NONE: u32 = u32::MAX;

/// A switch with its cables.
#[derive(Debug)]
pub(crate) struct SwitchView<'a> {
    pub(crate) id: PartId,
    pub(crate) name: &'a SwitchName,
    /// Cables to other switches: the other switch, the speed.
    pub(crate) trunks: Vec<(usize, Option<LinkSpeed>)>,
    /// Cables to NICs: host, NIC of the host, speed.
    pub(crate) nics: Vec<(usize, usize, Option<LinkSpeed>)>,
    /// Cables to itself: both ports, speed.
    pub(crate) loops: Vec<((PortName, PortName), Option<LinkSpeed>)>,
}

impl SwitchView<'_> {
    /// Other switches that it is cabled to, each once, in order.
    pub(crate) fn neighbors(&self) -> Vec<usize> {
        let mut peers: Vec<_> = self.trunks.iter().map(|(peer, _)| *peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

/// A NIC with the switches that it is cabled to.
#[derive(Debug)]
pub(crate) struct NicView<'a> {
    pub(crate) id: PartId,
    pub(crate) device: &'a RdmaDevice,
    pub(crate) pci: Option<PciAddress>,
    pub(crate) switches: Vec<usize>,
}

/// A host with its NICs.
#[derive(Debug)]
pub(crate) struct HostView<'a> {
    pub(crate) name: &'a NodeName,
    pub(crate) gpus: usize,
    pub(crate) nics: Vec<NicView<'a>>,
}

impl HostView<'_> {
    /// NICs that a switch is cabled to.
    pub(crate) fn cabled(&self) -> impl Iterator<Item = &NicView<'_>> {
        self.nics.iter().filter(|nic| !nic.switches.is_empty())
    }
}

/// The whole fabric.
#[derive(Debug, Default)]
pub(crate) struct Survey<'a> {
    pub(crate) switches: Vec<SwitchView<'a>>,
    pub(crate) hosts: Vec<HostView<'a>>,
    /// Whether any NIC is cabled to a switch; if none is, cables are unknown, not absent.
    pub(crate) has_cables: bool,
    /// Every cable between two switches, in the order of the graph; those from a switch to itself are not in it.
    pub(crate) trunks: Vec<CableView>,
    /// Every cable between a switch and a host, by the numbers of both.
    pub(crate) drops: Vec<CableView>,
}

/// A cable by the numbers of its ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CableView {
    pub(crate) id: LinkId,
    /// Two switches, or a switch and a host.
    pub(crate) ends: [u32; 2],
}

/// What a vertex number stands for.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Other,
    Switch(u32),
    Nic(u32, u32),
}

impl<'a> Survey<'a> {
    pub(crate) fn of(fabric: &'a Fabric) -> Self {
        let mut survey = Self::default();
        let slots = survey.place_vertices(fabric);
        for (id, a, b, link) in fabric.links() {
            if link.kind == LinkKind::Cable {
                let slot = |id: PartId| slots.get(id.index()).copied().unwrap_or(Slot::Other);
                if a == b {
                    let ends = [link.ports.0, link.ports.1].map(|port| fabric.port_name(a, port));
                    survey.place_loop(slot(a), ends, link);
                } else {
                    survey.place_cable(slot(a), slot(b), id, link);
                }
            }
        }
        survey
    }

    fn place_vertices(&mut self, fabric: &'a Fabric) -> Vec<Slot> {
        let mut by_name: HashMap<&NodeName, u32, FixedState> = HashMap::default();
        let mut slots = Vec::new();
        for (id, vertex) in fabric.vertices() {
            slots.resize(id.index() + 1, Slot::Other);
            let Some(node) = vertex.part.node() else {
                if let Part::Switch(name) = &vertex.part {
                    slots[id.index()] = Slot::Switch(self.switches.len() as u32);
                    self.switches.push(SwitchView {
                        id,
                        name,
                        trunks: Vec::new(),
                        nics: Vec::new(),
                        loops: Vec::new(),
                    });
                }
                continue;
            };
            let host = *by_name.entry(node).or_insert(NONE);
            let host = if host == NONE {
                by_name.insert(node, self.hosts.len() as u32);
                self.hosts.push(HostView {
                    name: node,
                    gpus: 0,
                    nics: Vec::new(),
                });
                self.hosts.len() - 1
            } else {
                host as usize
            };
            match (&vertex.part, &vertex.equipment) {
                (Part::Nic(_, device), Equipment::Nic { pci, .. }) => {
                    let nics = &mut self.hosts[host].nics;
                    slots[id.index()] = Slot::Nic(host as u32, nics.len() as u32);
                    nics.push(NicView {
                        id,
                        device,
                        pci: *pci,
                        switches: Vec::new(),
                    });
                }
                (Part::Gpu(..), _) => self.hosts[host].gpus += 1,
                _ => {}
            }
        }
        slots
    }

    fn place_loop(&mut self, at: Slot, mut ends: [PortName; 2], link: &Link) {
        if let Slot::Switch(switch) = at {
            ends.sort();
            self.switches[switch as usize]
                .loops
                .push((ends.into(), link.speed));
        }
    }

    fn place_cable(&mut self, a: Slot, b: Slot, id: LinkId, link: &Link) {
        match (a, b) {
            (Slot::Switch(a), Slot::Switch(b)) => {
                let ends = [a, b];
                self.trunks.push(CableView { id, ends });
                self.switches[a as usize]
                    .trunks
                    .push((b as usize, link.speed));
                self.switches[b as usize]
                    .trunks
                    .push((a as usize, link.speed));
            }
            (Slot::Switch(switch), Slot::Nic(host, nic))
            | (Slot::Nic(host, nic), Slot::Switch(switch)) => {
                let ends = [switch, host];
                self.drops.push(CableView { id, ends });
                let (switch, host, nic) = (switch as usize, host as usize, nic as usize);
                self.switches[switch].nics.push((host, nic, link.speed));
                self.hosts[host].nics[nic].switches.push(switch);
                self.has_cables = true;
            }
            _ => {} // hosts cabled to each other have no place in a switched fabric
        }
    }
}

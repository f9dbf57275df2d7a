//! The graph of parts and what joins them, on petgraph.
//!
//! Vertices are physical components: hosts, GPUs, NICs, PCIe bridges, switches. Edges are
//! cables, and connections inside a host. Every edge records its witnesses and their times.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use petgraph::stable_graph::{EdgeIndex, NodeIndex, StableUnGraph};
use petgraph::visit::{EdgeRef, IntoEdgeReferences};

use crate::identity::{Guid, NodeName, Part, PciAddress, PortName, RdmaPort};

mod link;
mod time;

pub use link::{Link, LinkKind, Presence, Sighting, Sightings, Witness};
pub use time::{MONTHS, Timestamp, civil, days_from_civil};

/// Ports with names have handles from here on; numbers are below.
const FIRST_HANDLE: u16 = 1 << 15;

/// What a vertex of the graph is, beyond its name.
#[derive(Debug, Clone, PartialEq)]
pub enum Equipment {
    /// A server.
    Host,
    /// A GPU.
    Gpu {
        /// NVML's UUID, if an exporter reported it.
        uuid: Option<String>,
        /// Where it sits on the host's PCIe.
        pci: Option<PciAddress>,
    },
    /// An RDMA device.
    Nic {
        /// Node GUID: the key that joins exporter and subnet.
        guid: Option<Guid>,
        /// Where it sits on the host's PCIe.
        pci: Option<PciAddress>,
        /// Which rail it belongs to, from 0, once that is known.
        rail: Option<u16>,
    },
    /// A PCIe bridge: switch port or root port.
    PcieBridge,
    /// A network switch.
    Switch {
        /// Node GUID, for InfiniBand.
        guid: Option<Guid>,
        /// Ports that it has; 0 if not reported.
        ports: u16,
        /// Description from the switch; empty if it has none.
        description: String,
    },
}

/// A vertex: a part with what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Vertex {
    /// Stable name.
    pub part: Part,
    /// What it is.
    pub equipment: Equipment,
}

/// Handle of a vertex, stable while other vertices come and go.
pub type PartId = NodeIndex<u32>;
/// Handle of an edge, stable while other edges come and go.
pub type LinkId = EdgeIndex<u32>;

/// One edge seen from one of its ends.
#[derive(Debug, Clone, Copy)]
pub struct Neighbor<'a> {
    /// The edge.
    pub id: LinkId,
    /// The edge's data.
    pub link: &'a Link,
    /// The far end.
    pub peer: PartId,
    /// Port at the near end.
    pub port: u16,
    /// Port at the far end.
    pub peer_port: u16,
}

/// The graph of parts.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    graph: StableUnGraph<Vertex, Link>,
    by_part: HashMap<Part, PartId, FixedState>,
    by_guid: HashMap<Guid, PartId, FixedState>,
    /// Names of the ports of switches that have any, by handle from [`FIRST_HANDLE`] on.
    port_names: HashMap<PartId, IndexSet<PortName, FixedState>, FixedState>,
}

impl Fabric {
    /// Adds a part, or replaces what is known of it.
    pub fn upsert(&mut self, part: Part, equipment: Equipment) -> PartId {
        let guid = match &equipment {
            Equipment::Nic { guid, .. } | Equipment::Switch { guid, .. } => *guid,
            _ => None,
        };
        let id = match self.by_part.entry(part) {
            Entry::Occupied(known) => {
                let id = *known.get();
                self.graph[id].equipment = equipment;
                id
            }
            Entry::Vacant(new) => {
                let part = new.key().clone();
                *new.insert(self.graph.add_node(Vertex { part, equipment }))
            }
        };
        if let Some(guid) = guid {
            self.by_guid.insert(guid, id);
        }
        id
    }

    /// Joins two parts. An edge of the same kind between the same ports is the same edge: what the new
    /// witness reports is added. Another cable between the same two switches is another edge. A switch may be
    /// cabled to itself.
    pub fn connect(&mut self, a: PartId, b: PartId, link: Link) -> LinkId {
        match self.twin(a, b, &link) {
            Some(id) => {
                // The stored ends may be in reverse order.
                let (first, _) = self.graph.edge_endpoints(id).unwrap_or((a, b));
                let ports = if first == a {
                    link.ports
                } else {
                    (link.ports.1, link.ports.0)
                };
                let mut seen_by = self.graph[id].seen_by;
                seen_by.merge(&link.seen_by);
                let speed = link.speed.or(self.graph[id].speed);
                self.graph[id] = Link {
                    ports,
                    speed,
                    seen_by,
                    ..link
                };
                id
            }
            None => self.graph.add_edge(a, b, link),
        }
    }

    /// As [`Fabric::connect`] for an edge that is known not to be there yet.
    pub fn add_link(&mut self, a: PartId, b: PartId, link: Link) -> LinkId {
        self.graph.add_edge(a, b, link)
    }

    /// The edge of the same kind between the same ports. It is searched from both ends at once: one of them may have
    /// many edges.
    fn twin(&self, a: PartId, b: PartId, link: &Link) -> Option<LinkId> {
        let joins = |near: &Neighbor<'_>, peer, ports| {
            near.peer == peer && near.link.kind == link.kind && ports == link.ports
        };
        let mut ends = self.neighbors(a).zip(self.neighbors(b));
        ends.find_map(|(at_a, at_b)| {
            if joins(&at_a, b, (at_a.port, at_a.peer_port)) {
                Some(at_a.id)
            } else if joins(&at_b, a, (at_b.peer_port, at_b.port)) {
                Some(at_b.id)
            } else {
                None
            }
        })
    }

    /// Removes every edge that is not to be kept; handles of the others stay.
    pub fn retain_links(&mut self, keep: impl Fn(&Link) -> bool) {
        self.graph.retain_edges(|graph, id| keep(&graph[id]));
    }

    /// What [`Link::ports`] calls a port of a part: its number, or a handle that is valid as long as this
    /// graph does. None for a switch with more than 32,768 names of ports: no switch has.
    pub fn port_handle(&mut self, part: PartId, port: &PortName) -> Option<u16> {
        if let Some(handle) = self.find_port(part, port) {
            return Some(handle);
        }
        let names = self.port_names.entry(part).or_default();
        let handle = handle_of(names.len())?;
        names.insert(port.clone());
        Some(handle)
    }

    /// Gives handles to all of these names of a part's ports, as [`Fabric::port_handle`] does to one.
    pub fn name_ports(&mut self, part: PartId, names: &IndexSet<PortName, FixedState>) {
        match self.port_names.entry(part) {
            Entry::Vacant(new) => {
                new.insert(names.clone());
            }
            Entry::Occupied(known) => known.into_mut().extend(names.iter().cloned()),
        }
    }

    /// As [`Fabric::port_handle`]; none for a name that is not in this graph.
    pub fn find_port(&self, part: PartId, port: &PortName) -> Option<u16> {
        match port {
            PortName::Number(number) if *number < FIRST_HANDLE => Some(*number),
            _ => handle_of(self.port_names.get(&part)?.get_index_of(port)?),
        }
    }

    /// The port behind a number or handle of [`Link::ports`].
    pub fn port_name(&self, part: PartId, port: u16) -> PortName {
        let named = port.checked_sub(FIRST_HANDLE).and_then(|place| {
            let names = self.port_names.get(&part)?;
            names.get_index(usize::from(place)).cloned()
        });
        named.unwrap_or(PortName::Number(port))
    }

    /// The part with this name.
    pub fn find(&self, part: &Part) -> Option<PartId> {
        self.by_part.get(part).copied()
    }

    /// The NIC or switch with this node GUID.
    pub fn find_guid(&self, guid: Guid) -> Option<PartId> {
        self.by_guid.get(&guid).copied()
    }

    /// The vertex behind a handle of this graph.
    pub fn vertex(&self, id: PartId) -> &Vertex {
        &self.graph[id]
    }

    /// The vertex behind a handle of this graph, to change what is known of it.
    pub fn equipment_mut(&mut self, id: PartId) -> &mut Equipment {
        &mut self.graph[id].equipment
    }

    /// All vertices, in the order in which they were added.
    pub fn vertices(&self) -> impl Iterator<Item = (PartId, &Vertex)> {
        self.graph.node_indices().map(|id| (id, &self.graph[id]))
    }

    /// All edges with both ends, in the order in which they were added.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, PartId, PartId, &Link)> {
        self.graph
            .edge_references()
            .map(|edge| (edge.id(), edge.source(), edge.target(), edge.weight()))
    }

    /// An edge with its two ends, in the order of its ports.
    pub fn link(&self, id: LinkId) -> Option<(&Link, [PartId; 2])> {
        let (a, b) = self.graph.edge_endpoints(id)?;
        Some((&self.graph[id], [a, b]))
    }

    /// Edges at one part. A cable from a switch to itself shows up once for each of its two ports.
    pub fn neighbors(&self, id: PartId) -> impl Iterator<Item = Neighbor<'_>> {
        self.graph.edges(id).flat_map(move |edge| {
            let link = edge.weight();
            // As they are stored: petgraph turns the ends of an undirected edge, but not the ports.
            let ends = self.graph.edge_endpoints(edge.id());
            let (port, peer_port) = link.ports;
            let forward = ends.map(|(near, far)| (near, far, port, peer_port));
            let backward = ends.map(|(far, near)| (near, far, peer_port, port));
            let both = [forward, backward].into_iter().flatten();
            let here = both.filter(move |(near, ..)| *near == id);
            here.map(move |(_, peer, port, peer_port)| Neighbor {
                id: edge.id(),
                link,
                peer,
                port,
                peer_port,
            })
        })
    }

    /// Cables at one part, lost ones too.
    pub fn cables(&self, id: PartId) -> impl Iterator<Item = Neighbor<'_>> {
        self.neighbors(id)
            .filter(|near| near.link.kind == LinkKind::Cable)
    }

    /// GPUs and NICs in a host; none of a host that the graph does not have.
    pub fn devices(&self, node: &NodeName) -> impl Iterator<Item = PartId> {
        let host = self.find(&Part::Host(node.clone()));
        let near = host.into_iter().flat_map(|host| self.neighbors(host));
        near.filter(|near| near.link.kind == LinkKind::Inside)
            .map(|near| near.peer)
    }

    /// The NICs among them.
    pub fn nics(&self, node: &NodeName) -> impl Iterator<Item = PartId> {
        self.devices(node)
            .filter(|id| matches!(self.vertex(*id).part, Part::Nic(..)))
    }

    /// The part that a cable is: named by its host end, or by the lower of its two switch ends.
    pub fn cable_part(&self, id: LinkId) -> Option<Part> {
        let (a, b) = self.graph.edge_endpoints(id)?;
        let link = &self.graph[id];
        if link.kind != LinkKind::Cable {
            return None;
        }
        let ends = [(a, link.ports.0), (b, link.ports.1)];
        for (id, port) in ends {
            if let Part::Nic(node, device) = &self.graph[id].part {
                let port = RdmaPort {
                    device: device.clone(),
                    port: u8::try_from(port).ok()?,
                };
                return Some(Part::HostLink(node.clone(), port));
            }
        }
        let lower = ends
            .map(|(id, port)| (&self.graph[id].part, self.port_name(id, port)))
            .into_iter()
            .min()?;
        match lower {
            (Part::Switch(switch), port) => Some(Part::SwitchLink(switch.clone(), port)),
            _ => None,
        }
    }

    /// Where a cable of this name is plugged in: the part that names it, and what it joins that with.
    pub fn find_cable(&self, cable: &Part) -> Option<(PartId, Neighbor<'_>)> {
        self.cables_named(cable).next()
    }

    /// As [`Fabric::find_cable`]: a port from which a cable was moved has, as long as that is remembered, two of a name.
    pub fn cables_named(&self, cable: &Part) -> impl Iterator<Item = (PartId, Neighbor<'_>)> {
        let end = self.naming_end(cable);
        end.into_iter().flat_map(|(near, port)| {
            let cables = self.cables(near).filter(move |far| far.port == port);
            cables.map(move |far| (near, far))
        })
    }

    /// The part and its port by which a cable is named.
    fn naming_end(&self, cable: &Part) -> Option<(PartId, u16)> {
        match cable {
            Part::HostLink(node, port) => {
                let nic = Part::Nic(node.clone(), port.device.clone());
                Some((self.find(&nic)?, port.port.into()))
            }
            Part::SwitchLink(switch, port) => {
                let switch = self.find(&Part::Switch(switch.clone()))?;
                Some((switch, self.find_port(switch, port)?))
            }
            _ => None,
        }
    }

    /// How many parts of each class there are.
    pub fn count_parts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for vertex in self.graph.node_weights() {
            *counts.entry(vertex.part.class()).or_default() += 1;
        }
        counts
    }
}

/// The handle of a port by the place of its name.
fn handle_of(place: usize) -> Option<u16> {
    u16::try_from(place).ok()?.checked_add(FIRST_HANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str) -> (Part, Equipment) {
        let part = format!("switch/{name}").parse().expect(name);
        (
            part,
            Equipment::Switch {
                guid: None,
                ports: 64,
                description: name.to_owned(),
            },
        )
    }

    fn cable(ports: (u16, u16)) -> Link {
        Link::cable(ports, None, Witness::Subnet, Timestamp(0))
    }

    fn ends(fabric: &Fabric, id: PartId) -> Vec<(u16, String, u16)> {
        let mut ends: Vec<_> = fabric
            .neighbors(id)
            .map(|near| {
                (
                    near.port,
                    fabric.vertex(near.peer).part.to_string(),
                    near.peer_port,
                )
            })
            .collect();
        ends.sort();
        ends
    }

    #[test]
    fn parallel_cables_are_two_edges_and_the_same_cable_from_its_other_end_is_one() {
        let mut fabric = Fabric::default();
        let [a, b] = ["a", "b"]
            .map(switch)
            .map(|(part, equipment)| fabric.upsert(part, equipment));
        let first = fabric.connect(a, b, cable((1, 11)));
        fabric.connect(a, b, cable((2, 12)));
        assert_eq!(fabric.connect(b, a, cable((11, 1))), first);
        assert_eq!(
            ends(&fabric, a),
            [(1, "switch/b".into(), 11), (2, "switch/b".into(), 12)]
        );
        assert_eq!(
            ends(&fabric, b),
            [(11, "switch/a".into(), 1), (12, "switch/a".into(), 2)]
        );
        assert_eq!(
            fabric
                .cable_part(first)
                .map(|part| part.to_string())
                .as_deref(),
            Some("link/a:1")
        );
    }

    #[test]
    fn a_switch_cabled_to_itself_shows_both_ports() {
        let mut fabric = Fabric::default();
        let (part, equipment) = switch("a");
        let a = fabric.upsert(part, equipment);
        let first = fabric.connect(a, a, cable((25, 26)));
        assert_eq!(
            fabric.connect(a, a, cable((26, 25))),
            first,
            "the other end of the same cable"
        );
        assert_eq!(
            ends(&fabric, a),
            [(25, "switch/a".into(), 26), (26, "switch/a".into(), 25)]
        );
        assert_eq!(fabric.links().count(), 1);
    }

    #[test]
    fn a_cable_between_named_ports_is_named_by_the_name_however_the_graph_was_built() {
        for names in [["swp10", "swp9"], ["swp9", "swp10"]] {
            let mut fabric = Fabric::default();
            let [a, b] = ["a", "b"]
                .map(switch)
                .map(|(part, equipment)| fabric.upsert(part, equipment));
            for name in names {
                let port: PortName = name.parse().expect(name);
                let ports = [a, b].map(|id| fabric.port_handle(id, &port).expect("a handle"));
                let id = fabric.connect(b, a, cable((ports[1], ports[0])));
                let part = fabric.cable_part(id).expect("a cable");
                assert_eq!(part.to_string(), format!("link/a[{name}]"));
                let (near, far) = fabric.find_cable(&part).expect("found");
                assert_eq!((near, far.id, far.peer), (a, id, b));
                assert_eq!(fabric.port_handle(a, &port), Some(ports[0]), "kept");
                assert_eq!(fabric.port_name(a, ports[0]), port);
            }
            assert_eq!(fabric.links().count(), 2);
            assert_eq!(fabric.port_handle(a, &33.into()), Some(33));
            assert_eq!(fabric.port_name(a, 33), 33.into());
        }
    }

    #[test]
    fn a_cable_with_a_host_end_is_named_by_it() {
        let mut fabric = Fabric::default();
        let (part, equipment) = switch("leaf");
        let leaf = fabric.upsert(part, equipment);
        let nic = "nic/n7:mlx5_4".parse().expect("nic");
        let nic = fabric.upsert(
            nic,
            Equipment::Nic {
                guid: Some(Guid(7)),
                pci: None,
                rail: None,
            },
        );
        let id = fabric.connect(leaf, nic, cable((7, 1)));
        let part = fabric.cable_part(id).expect("a cable");
        assert_eq!(part.to_string(), "link/n7:mlx5_4/1");
        let (near, far) = fabric.find_cable(&part).expect("found");
        assert_eq!((near, far.peer, far.peer_port), (nic, leaf, 7));
        let absent = "link/n7:mlx5_4/2".parse().expect("a cable");
        assert!(fabric.find_cable(&absent).is_none());
        assert_eq!(fabric.find_guid(Guid(7)), Some(nic));
    }
}

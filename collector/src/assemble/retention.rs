//! Missing cables, which no source shows any more: kept in the graph until one of their ports is used
//! again.

use railscope_model::fabric::{
    Fabric, Link, LinkKind, PartId, Presence, Sighting, Timestamp, Witness,
};
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::metric::{NIC_CARRIER, RDMA_PORT_UP, SWITCH_PORT_UP};

use crate::assemble::lldp::Switches;
use crate::store::History;

/// A cable that has been missing for so long is forgotten: it was removed, not broken.
const LOST_CABLE_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// What became of cables that the older fabric has and the newer has not.
#[derive(Debug, Clone, Copy)]
pub struct Fate<'a> {
    /// The older fabric.
    pub older: &'a Fabric,
    /// What the nodes report now.
    pub history: &'a History,
    /// Switches that report their neighbors by file or program.
    pub switches: &'a Switches,
    /// Whether the older fabric was built with a settled sweep of the subnet, or none: what only a partial
    /// sweep has shown is not missing, as half of it may have been an error.
    pub settled: bool,
    /// Current time.
    pub now: Timestamp,
}

impl Fate<'_> {
    /// Carries over cables that the newer fabric has not, and that are now of this presence, unless one of
    /// their ports is in use again: such a cable was moved. They keep the time at which they were last seen.
    pub fn keep(&self, fabric: &mut Fabric, wanted: Presence) {
        for (_, a, b, link) in self.older.links() {
            let age = self.now.seconds_since(link.seen());
            if link.kind != LinkKind::Cable || age > LOST_CABLE_KEPT_SECONDS {
                continue;
            }
            let ends = [(a, link.ports.0), (b, link.ports.1)];
            if ends.iter().any(|end| is_in_use(fabric, self.older, *end)) {
                continue;
            }
            if let Some(link) = self.judged(link, ends)
                && link.seen_by.presence() == wanted
            {
                carry(fabric, self.older, ends, &link);
            }
        }
    }

    /// The cable with what its witnesses, which no longer show it, report now; none if no witness
    /// is left.
    fn judged(&self, link: &Link, ends: [(PartId, u16); 2]) -> Option<Link> {
        let mut link = link.clone();
        for (witness, said) in link.seen_by.iter().collect::<Vec<_>>() {
            let says = match witness {
                Witness::Subnet => self.settled.then_some(Presence::Lost),
                Witness::Exporter => self.by_host(ends),
                Witness::Switch => self.by_switch(ends),
            };
            let said = says.map(|says| Sighting { says, ..said });
            link.seen_by.set(witness, said);
        }
        let has_witness = link.seen_by.iter().next().is_some();
        has_witness.then_some(link)
    }

    /// A host no longer receives the neighbor: the cable is missing if the port is down. None if the host
    /// is no longer a target.
    fn by_host(&self, ends: [(PartId, u16); 2]) -> Option<Presence> {
        let (node, device, port) = ends
            .into_iter()
            .find_map(|end| host_port(self.older, end))?;
        let history = self.history.node(node)?;
        let labels = [device.as_str(), &port.to_string()];
        Some(match history.value(&RDMA_PORT_UP, &labels) {
            Some(0.0) => Presence::Lost,
            _ => Presence::Unknown,
        })
    }

    /// As [`Self::by_host`], of the switches at the ends. One that has just become silent may start again.
    fn by_switch(&self, ends: [(PartId, u16); 2]) -> Option<Presence> {
        let mut says = None;
        for (end, port) in ends {
            let Part::Switch(name) = &self.older.vertex(end).part else {
                continue;
            };
            let port = self.older.port_name(end, port).to_string();
            let node = name.as_str().parse::<NodeName>().ok();
            let own = node.and_then(|node| self.history.node(&node));
            let others = self.history.switch(name);
            let light = own.and_then(|own| own.value(&NIC_CARRIER, &[&port]));
            let light = light.or_else(|| others?.value(&SWITCH_PORT_UP, &[&port]));
            let told = self.switches.told.contains_key(name) || self.history.fell_silent(name);
            let said = match light {
                Some(0.0) => Presence::Lost,
                None if own.is_none() && others.is_none() && !told => continue,
                _ => Presence::Unknown,
            };
            // A signal at one end implies one at the other; none at either is enough.
            says = Some(says.map_or(said, |other: Presence| other.min(said)));
        }
        says
    }

    /// Whether a cable of unknown fate has been lost since it was evaluated: its port is down now.
    pub fn has_changed(&self) -> bool {
        self.older.links().any(|(_, a, b, link)| {
            let ends = [(a, link.ports.0), (b, link.ports.1)];
            link.kind == LinkKind::Cable
                && link.seen_by.presence() == Presence::Unknown
                && self
                    .judged(link, ends)
                    .is_none_or(|link| link.seen_by.presence() != Presence::Unknown)
        })
    }
}

fn host_port(fabric: &Fabric, (end, port): (PartId, u16)) -> Option<(&NodeName, &RdmaDevice, u16)> {
    match &fabric.vertex(end).part {
        Part::Nic(node, device) => Some((node, device, port)),
        _ => None,
    }
}

fn carry(fabric: &mut Fabric, older: &Fabric, ends: [(PartId, u16); 2], link: &Link) {
    let [a, b] = ends.map(|(end, port)| {
        let vertex = older.vertex(end);
        let id = fabric
            .find(&vertex.part)
            .unwrap_or_else(|| fabric.upsert(vertex.part.clone(), vertex.equipment.clone()));
        // Handles hold in one graph only, names in all.
        Some((id, fabric.port_handle(id, &older.port_name(end, port))?))
    });
    let (Some(a), Some(b)) = (a, b) else { return };
    let ports = (a.1, b.1);
    let link = Link {
        ports,
        ..link.clone()
    };
    fabric.connect(a.0, b.0, link);
    restore_host(fabric, older, a.0);
    restore_host(fabric, older, b.0);
}

/// Whether a port of the older fabric has a cable in the newer.
fn is_in_use(fabric: &Fabric, older: &Fabric, (end, port): (PartId, u16)) -> bool {
    let Some(id) = fabric.find(&older.vertex(end).part) else {
        return false;
    };
    let Some(port) = fabric.find_port(id, &older.port_name(end, port)) else {
        return false;
    };
    fabric.cables(id).any(|near| near.port == port)
}

/// A NIC that came back with its lost cable also gets its host back.
fn restore_host(fabric: &mut Fabric, older: &Fabric, nic: PartId) {
    let Part::Nic(node, _) = fabric.vertex(nic).part.clone() else {
        return;
    };
    if fabric
        .neighbors(nic)
        .any(|near| near.link.kind == LinkKind::Inside)
    {
        return;
    }
    let host = Part::Host(node);
    let Some(old) = older.find(&host) else { return };
    let inside = older
        .neighbors(old)
        .find(|near| near.link.kind == LinkKind::Inside)
        .map(|near| near.link.clone());
    if let Some(link) = inside {
        let host = fabric.upsert(host, older.vertex(old).equipment.clone());
        fabric.connect(host, nic, link);
    }
}

/// Whether it is unknown of any cable if it is still there.
pub(crate) fn has_cables_of_unknown_fate(fabric: &Fabric) -> bool {
    let mut links = fabric.links();
    links.any(|(.., link)| {
        link.kind == LinkKind::Cable && link.seen_by.presence() == Presence::Unknown
    })
}

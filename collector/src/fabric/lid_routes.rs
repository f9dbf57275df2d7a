//! The paths that the forwarding tables of an InfiniBand subnet give: from a switch, by the LID of an adapter's port.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, LinkId, LinkKind, PartId, Timestamp};
use railscope_model::identity::Guid;

use crate::fabric::subnet::forwarding::Tables;
use crate::fabric::subnet::{Node, NodeKind, Subnet};

/// Most cables of a path: as many as a directed route has hops (InfiniBand Architecture Specification, volume 1, 14.2.2).
const MAX_CABLES: usize = 63;

/// Share of the switches that must have a table: with fewer, too many paths have a gap to report anything (a
/// choice).
const LEAST_TABLES: f64 = 0.75;

/// A port of a part.
type Port = (PartId, u16);

/// The far end of a cable.
#[derive(Debug, Clone, Copy)]
struct Far {
    cable: LinkId,
    port: Port,
}

/// The tables of a subnet, by the parts and cables of its fabric.
#[derive(Debug, Default)]
pub struct LidRoutes {
    tables: Arc<Tables>,
    read_at: Option<Timestamp>,
    /// Switches with a table; none for parts that two devices claim to be.
    switches: HashMap<PartId, Option<Guid>, FixedState>,
    /// LIDs of ports; none where two claim to be the same port.
    lids: HashMap<Port, Option<u16>, FixedState>,
    /// Cables that are present; none where a port has two.
    cables: HashMap<Port, Option<Far>, FixedState>,
}

/// Inserts a value; if there is one already, neither counts.
fn put<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, Option<V>, FixedState>, key: K, value: V) {
    map.entry(key)
        .and_modify(|known| *known = None)
        .or_insert(Some(value));
}

impl LidRoutes {
    /// The tables that were read together with this subnet; no paths where there are none, or too few.
    pub fn of(fabric: &Fabric, subnet: Option<&Subnet>) -> Self {
        let mut routes = Self::default();
        let Some((subnet, forwarding)) =
            subnet.and_then(|subnet| Some((subnet, subnet.forwarding.as_ref()?)))
        else {
            return routes;
        };
        let is_switch = |node: &&Node| node.kind == NodeKind::Switch;
        let switches = subnet.nodes.iter().filter(is_switch).count();
        if (forwarding.tables.len() as f64) < LEAST_TABLES * switches as f64 {
            return routes;
        }
        routes.tables = Arc::clone(&forwarding.tables);
        routes.read_at = Some(forwarding.read_at);
        for guid in forwarding.tables.keys() {
            if let Some(switch) = fabric.find_guid(*guid) {
                put(&mut routes.switches, switch, *guid);
            }
        }
        for (end, lid) in &subnet.lids {
            if let Some(part) = fabric.find_guid(end.guid) {
                put(&mut routes.lids, (part, end.port), *lid);
            }
        }
        let cables = fabric
            .links()
            .filter(|(.., link)| link.kind == LinkKind::Cable);
        for (cable, a, b, link) in cables.filter(|(.., link)| link.is_present()) {
            let ends = [(a, link.ports.0), (b, link.ports.1)];
            for (near, port) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                put(&mut routes.cables, near, Far { cable, port });
            }
        }
        routes
    }

    /// Whether a switch forwards by a table that is known.
    pub fn has_table(&self, switch: PartId) -> bool {
        matches!(self.switches.get(&switch), Some(Some(_)))
    }

    /// When the oldest table was read; none where there is none.
    pub fn read_at(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// The path from a switch to a NIC behind another: each cable between switches, with the switch behind it. None unless
    /// the tables lead there over cables that are present, without a gap.
    pub fn path(
        &self,
        fabric: &Fabric,
        from: PartId,
        nic: PartId,
    ) -> Option<Vec<(LinkId, PartId)>> {
        let (last, lid) = self.attached(fabric, nic)?;
        let mut steps = Vec::new();
        let mut at = from;
        while steps.len() <= MAX_CABLES {
            let guid = (*self.switches.get(&at)?)?;
            let port = self.tables.get(&guid)?.port(lid)?;
            let far = (*self.cables.get(&(at, u16::from(port)))?)?;
            if far.cable == last {
                return Some(steps);
            }
            let is_switch = matches!(
                fabric.vertex(far.port.0).equipment,
                Equipment::Switch { .. }
            );
            // A path that comes back to a switch never ends.
            if !is_switch || far.port.0 == from || steps.iter().any(|(_, old)| *old == far.port.0) {
                return None;
            }
            at = far.port.0;
            steps.push((far.cable, at));
        }
        None
    }

    /// The cable by which a NIC is attached to a switch, and the LID of its port there; none of a NIC with several.
    fn attached(&self, fabric: &Fabric, nic: PartId) -> Option<(LinkId, u16)> {
        let cables = fabric.cables(nic).filter(|near| near.link.is_present());
        let mut attached = cables.map(|near| (near.id, near.port));
        let (cable, port) = attached.next()?;
        let lid = (*self.lids.get(&(nic, port))?)?;
        attached.next().is_none().then_some((cable, lid))
    }
}

#[cfg(test)]
mod tests;

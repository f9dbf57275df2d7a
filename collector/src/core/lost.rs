//! Cables that nobody shows any more: kept in the graph as lost until one of their ports is used again.

use railscope_model::fabric::{Fabric, Link, LinkKind, PartId, Timestamp};
use railscope_model::identity::Part;

/// A cable that was lost so long ago is forgotten: it was taken out, not broken.
const LOST_CABLE_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// Carries over cables that the older fabric had and the newer has not, unless one of their ports is in use
/// again: such a cable was moved. They keep the time at which they were last seen.
pub fn keep_lost_cables(fabric: &mut Fabric, older: &Fabric, now: Timestamp) {
    for (_, a, b, link) in older.links() {
        let is_cable = link.kind == LinkKind::Cable;
        if !is_cable || now.seconds_since(link.seen()) > LOST_CABLE_KEPT_SECONDS {
            continue;
        }
        let ends = [(a, link.ports.0), (b, link.ports.1)];
        if ends.iter().any(|end| is_in_use(fabric, older, *end)) {
            continue;
        }
        let [a, b] = ends.map(|(end, port)| {
            let vertex = older.vertex(end);
            let id = fabric
                .find(&vertex.part)
                .unwrap_or_else(|| fabric.upsert(vertex.part.clone(), vertex.equipment.clone()));
            // Handles hold in one graph only, names in all.
            Some((id, fabric.port_handle(id, &older.port_name(end, port))?))
        });
        let (Some(a), Some(b)) = (a, b) else { continue };
        let mut lost = Link {
            ports: (a.1, b.1),
            ..link.clone()
        };
        lost.seen_by.end();
        fabric.connect(a.0, b.0, lost);
        restore_host(fabric, older, a.0);
        restore_host(fabric, older, b.0);
    }
}

/// Whether a port of the older fabric has a cable in the newer.
fn is_in_use(fabric: &Fabric, older: &Fabric, (end, port): (PartId, u16)) -> bool {
    let Some(id) = fabric.find(&older.vertex(end).part) else {
        return false;
    };
    let Some(port) = fabric.find_port(id, &older.port_name(end, port)) else {
        return false;
    };
    fabric
        .neighbours(id)
        .any(|near| near.link.kind == LinkKind::Cable && near.port == port)
}

/// A NIC that came back with its lost cable also gets its host back.
fn restore_host(fabric: &mut Fabric, older: &Fabric, nic: PartId) {
    let Part::Nic(node, _) = fabric.vertex(nic).part.clone() else {
        return;
    };
    if fabric
        .neighbours(nic)
        .any(|near| near.link.kind == LinkKind::Inside)
    {
        return;
    }
    let host = Part::Host(node);
    let Some(old) = older.find(&host) else { return };
    let inside = older
        .neighbours(old)
        .find(|near| near.link.kind == LinkKind::Inside)
        .map(|near| near.link.clone());
    if let Some(link) = inside {
        let host = fabric.upsert(host, older.vertex(old).equipment.clone());
        fabric.connect(host, nic, link);
    }
}

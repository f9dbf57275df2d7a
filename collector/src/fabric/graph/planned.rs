//! A wiring plan as the fabric that it draws.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{Part, PortName};
use railscope_model::plan::{Socket, WiringPlan};
use railscope_model::units::LinkSpeed;

/// The fabric that a plan draws: every cable as if it had been seen `now`, at `speed` where it is known.
pub fn plan_fabric(plan: &WiringPlan, now: Timestamp, speed: Option<LinkSpeed>) -> Fabric {
    let mut fabric = Fabric::default();
    let mut ports: BTreeMap<&Part, BTreeSet<&PortName>> = BTreeMap::new();
    for end in plan.cables.iter().flat_map(|cable| &cable.ends) {
        ports.entry(&end.part).or_default().insert(&end.port);
    }
    for cable in &plan.cables {
        let [a, b] = cable.ends.each_ref().map(|end| {
            let ports = ports.get(&end.part).map_or(0, BTreeSet::len);
            let id = draw(&mut fabric, end, cable.rail, ports, now);
            (id, fabric.port_handle(id, &end.port))
        });
        // A switch with more names of ports than a graph can hold does not exist.
        if let ((a, Some(port)), (b, Some(far))) = (a, b) {
            fabric.connect(a, b, Link::cable((port, far), speed, Witness::Subnet, now));
        }
    }
    fabric
}

fn draw(
    fabric: &mut Fabric,
    end: &Socket,
    rail: Option<u16>,
    ports: usize,
    now: Timestamp,
) -> PartId {
    if let Some(id) = fabric.find(&end.part) {
        return id;
    }
    match &end.part {
        Part::Nic(node, _) => {
            let host = Part::Host(node.clone());
            let host = fabric
                .find(&host)
                .unwrap_or_else(|| fabric.upsert(host, Equipment::Host));
            let equipment = Equipment::Nic {
                guid: None,
                pci: None,
                rail,
            };
            let nic = fabric.upsert(end.part.clone(), equipment);
            let inside = Link::plain(LinkKind::Inside, Witness::Subnet, now);
            fabric.connect(nic, host, inside);
            nic
        }
        part => {
            let equipment = Equipment::Switch {
                guid: None,
                ports: u16::try_from(ports).unwrap_or(u16::MAX),
                description: String::new(),
            };
            fabric.upsert(part.clone(), equipment)
        }
    }
}

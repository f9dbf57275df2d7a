//! What changed between two fabrics: parts that came and went, cables that came, went, moved or run at another speed.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, Link, LinkId, LinkKind, PartId, Presence};
use railscope_model::identity::{Part, PortName};
use railscope_model::units::LinkSpeed;

mod net;

pub use net::net;

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// The NIC or switch.
    pub part: Part,
    /// Its port.
    pub port: PortName,
}

/// A cable by its two ends: the NIC, or the lower one of two switches, first.
pub type Ends = [Socket; 2];

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A part is there that was not. What sits in a host that came is not listed.
    PartCame(Part),
    /// A part is not there any more. What sat in a host that went is not listed.
    PartWent(Part),
    /// A cable is new.
    CableCame(Ends),
    /// A cable is not there any more.
    CableWent(Ends),
    /// A cable has one end where it was and the other elsewhere.
    CableMoved {
        /// Where it was; the end that stayed first.
        from: Ends,
        /// Where it is; the end that stayed first.
        to: Ends,
    },
    /// A cable runs at another width or speed. One that was not known before is no change.
    SpeedChanged {
        /// The cable.
        cable: Ends,
        /// What it ran at.
        from: LinkSpeed,
        /// What it runs at.
        to: LinkSpeed,
    },
}

/// Cables that no source reports are lost.
fn cables(fabric: &Fabric) -> impl Iterator<Item = (LinkId, PartId, PartId, &Link)> {
    let all = fabric.links();
    all.filter(|(.., link)| {
        link.kind == LinkKind::Cable && link.seen_by.presence() != Presence::Lost
    })
}

/// Whether any cable is present.
pub fn has_cables(fabric: &Fabric) -> bool {
    cables(fabric).next().is_some()
}

fn ends_of(fabric: &Fabric, id: LinkId) -> Option<Ends> {
    let (link, [a, b]) = fabric.link(id)?;
    let socket = |end: PartId, port| Socket {
        part: fabric.vertex(end).part.clone(),
        port: fabric.port_name(end, port),
    };
    let mut ends = [socket(a, link.ports.0), socket(b, link.ports.1)];
    ends.sort_by(|a, b| {
        let is_switch = |end: &Socket| matches!(end.part, Part::Switch(_));
        (is_switch(a), a).cmp(&(is_switch(b), b))
    });
    Some(ends)
}

/// Everything that is otherwise in the newer fabric: parts first, each sort in the order of the graphs.
/// Parts and cables are known by their names and ports, so what comes back after a flap is the same. Cables
/// that are lost count as gone.
pub fn diff(older: &Fabric, newer: &Fabric) -> Vec<Change> {
    let mut changes = Vec::new();
    part_changes(older, newer, &mut changes, Change::PartWent);
    part_changes(newer, older, &mut changes, Change::PartCame);
    cable_changes(older, newer, &mut changes);
    changes
}

/// Parts of one fabric that the other has not.
fn part_changes(
    one: &Fabric,
    other: &Fabric,
    changes: &mut Vec<Change>,
    change: fn(Part) -> Change,
) {
    for (_, vertex) in one.vertices() {
        // What sits in a host beside its NICs has its own detectors.
        let is_of_fabric = matches!(vertex.part, Part::Host(_) | Part::Nic(..) | Part::Switch(_));
        if !is_of_fabric || other.find(&vertex.part).is_some() {
            continue;
        }
        let host = vertex.part.node().map(|node| Part::Host(node.clone()));
        let goes_with_host = host.is_some_and(|host| {
            vertex.part != host && one.find(&host).is_some() && other.find(&host).is_none()
        });
        if !goes_with_host {
            changes.push(change(vertex.part.clone()));
        }
    }
}

/// A port of the newer fabric.
type Port = (PartId, u16);

fn cable_changes(older: &Fabric, newer: &Fabric, changes: &mut Vec<Change>) {
    let mut at: HashMap<Port, (Port, LinkId), FixedState> = HashMap::default();
    for (id, a, b, link) in cables(newer) {
        let (a, b) = ((a, link.ports.0), (b, link.ports.1));
        at.insert(a, (b, id));
        at.insert(b, (a, id));
    }
    let mut told: HashSet<LinkId, FixedState> = HashSet::default();
    let mut gone = Vec::new();
    for (id, a, b, link) in cables(older) {
        let there = |end: PartId, port: u16| {
            let id = newer.find(&older.vertex(end).part)?;
            Some((id, newer.find_port(id, &older.port_name(end, port))?))
        };
        let ends = (there(a, link.ports.0), there(b, link.ports.1));
        let same = match ends {
            (Some(a), Some(b)) => at.get(&a).filter(|(far, _)| *far == b),
            _ => None,
        };
        let Some((_, now)) = same else {
            gone.push((id, [ends.0, ends.1]));
            continue;
        };
        told.insert(*now);
        let speeds = (
            link.speed,
            newer.link(*now).and_then(|(link, _)| link.speed),
        );
        if let (Some(from), Some(to)) = speeds
            && !from.agrees_with(to)
            && let Some(cable) = ends_of(newer, *now)
        {
            changes.push(Change::SpeedChanged { cable, from, to });
        }
    }
    // A host's cable is where its NIC is; what is left may be a cable between switches that moved.
    let is_trunk = |(id, _): &(LinkId, _)| {
        let ends = older.link(*id).map(|(_, ends)| ends);
        let is_switch = |end: PartId| matches!(older.vertex(end).part, Part::Switch(_));
        ends.is_some_and(|ends| ends.into_iter().all(is_switch))
    };
    gone.sort_by_key(is_trunk);
    for (id, ends) in gone {
        changes.extend(where_it_went(older, newer, id, ends, &at, &mut told));
    }
    for (id, ..) in cables(newer).filter(|(id, ..)| !told.contains(id)) {
        changes.extend(ends_of(newer, id).map(Change::CableCame));
    }
}

/// A cable is where one of its ends is: that of the NIC, or of the lower of two switches, before the other.
fn where_it_went(
    older: &Fabric,
    newer: &Fabric,
    id: LinkId,
    ends: [Option<Port>; 2],
    at: &HashMap<Port, (Port, LinkId), FixedState>,
    told: &mut HashSet<LinkId, FixedState>,
) -> Option<Change> {
    let mut from = ends_of(older, id)?;
    let (_, [first, _]) = older.link(id)?;
    let turned = older.vertex(first).part != from[0].part;
    let in_order = if turned { [ends[1], ends[0]] } else { ends };
    for (place, end) in in_order.into_iter().enumerate() {
        let now = end.and_then(|end| at.get(&end));
        let Some((_, now)) = now.filter(|(_, now)| !told.contains(now)) else {
            continue;
        };
        let mut to = ends_of(newer, *now)?;
        told.insert(*now);
        if place == 1 {
            from.swap(0, 1);
        }
        if to[0] != from[0] {
            to.swap(0, 1);
        }
        return Some(Change::CableMoved { from, to });
    }
    Some(Change::CableWent(from))
}

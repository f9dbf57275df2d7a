//! What changed between two fabrics: parts that came and went, cables that came, went, moved or run at another speed.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, Link, LinkId, LinkKind, PartId};
use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// The NIC or switch.
    pub part: Part,
    /// Its port.
    pub port: u16,
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
    /// A cable is there that was not.
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

/// A fabric at one time. Links from `links` on are remembered, not there: lost cables.
#[derive(Debug, Clone, Copy)]
pub struct Epoch<'a> {
    /// The graph.
    pub fabric: &'a Fabric,
    /// How many of its links are there, in the order of the graph.
    pub links: usize,
}

impl<'a> Epoch<'a> {
    /// A fabric all of whose links are there.
    pub fn whole(fabric: &'a Fabric) -> Self {
        Self {
            fabric,
            links: usize::MAX,
        }
    }

    fn cables(self) -> impl Iterator<Item = (LinkId, PartId, PartId, &'a Link)> {
        let there = self
            .fabric
            .links()
            .take_while(move |(id, ..)| id.index() < self.links);
        there.filter(|(.., link)| link.kind == LinkKind::Cable)
    }

    /// Whether any cable is there.
    pub fn has_cables(self) -> bool {
        self.cables().next().is_some()
    }

    fn ends(self, id: LinkId) -> Option<Ends> {
        let (a, b) = self.fabric.ends(id)?;
        let link = self.fabric.link(id)?;
        let socket = |end: PartId, port| Socket {
            part: self.fabric.vertex(end).part.clone(),
            port,
        };
        let mut ends = [socket(a, link.ports.0), socket(b, link.ports.1)];
        ends.sort_by(|a, b| {
            let is_switch = |end: &Socket| matches!(end.part, Part::Switch(_));
            (is_switch(a), a).cmp(&(is_switch(b), b))
        });
        Some(ends)
    }
}

/// Everything that is otherwise in the newer fabric: parts first, each sort in the order of the graphs.
/// Parts and cables are known by their names and ports, so what comes back after a flap is the same.
pub fn diff(older: Epoch<'_>, newer: Epoch<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    part_changes(older.fabric, newer.fabric, &mut changes, Change::PartWent);
    part_changes(newer.fabric, older.fabric, &mut changes, Change::PartCame);
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
        if other.find(&vertex.part).is_some() {
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

fn cable_changes(older: Epoch<'_>, newer: Epoch<'_>, changes: &mut Vec<Change>) {
    let mut at: HashMap<Port, (Port, LinkId), FixedState> = HashMap::default();
    for (id, a, b, link) in newer.cables() {
        let (a, b) = ((a, link.ports.0), (b, link.ports.1));
        at.insert(a, (b, id));
        at.insert(b, (a, id));
    }
    let mut told: HashSet<LinkId, FixedState> = HashSet::default();
    let mut gone = Vec::new();
    for (id, a, b, link) in older.cables() {
        let there = |end: PartId, port: u16| {
            let id = newer.fabric.find(&older.fabric.vertex(end).part)?;
            Some((id, port))
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
            newer.fabric.link(*now).and_then(|link| link.speed),
        );
        if let (Some(from), Some(to)) = speeds
            && from != to
            && let Some(cable) = newer.ends(*now)
        {
            changes.push(Change::SpeedChanged { cable, from, to });
        }
    }
    for (id, ends) in gone {
        changes.extend(where_it_went(older, newer, id, ends, &at, &mut told));
    }
    for (id, ..) in newer.cables().filter(|(id, ..)| !told.contains(id)) {
        changes.extend(newer.ends(id).map(Change::CableCame));
    }
}

/// A cable is where one of its ends is: that of the NIC, or of the lower of two switches, before the other.
fn where_it_went(
    older: Epoch<'_>,
    newer: Epoch<'_>,
    id: LinkId,
    ends: [Option<Port>; 2],
    at: &HashMap<Port, (Port, LinkId), FixedState>,
    told: &mut HashSet<LinkId, FixedState>,
) -> Option<Change> {
    let mut from = older.ends(id)?;
    let (first, _) = older.fabric.ends(id)?;
    let turned = older.fabric.vertex(first).part != from[0].part;
    let in_order = if turned { [ends[1], ends[0]] } else { ends };
    for (place, end) in in_order.into_iter().enumerate() {
        let now = end.and_then(|end| at.get(&end));
        let Some((_, now)) = now.filter(|(_, now)| !told.contains(now)) else {
            continue;
        };
        let mut to = newer.ends(*now)?;
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

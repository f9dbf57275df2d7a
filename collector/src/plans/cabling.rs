//! Cables with ports by name, and the same as a wiring plan with ports by number and as a fabric.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::Part;
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};
use railscope_model::units::LinkSpeed;

/// One end of a cable: a NIC or a switch, and what its port is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedEnd {
    /// A [`Part::Nic`] or a [`Part::Switch`].
    pub part: Part,
    /// Name of the port, such as `swp17s0`; for a NIC, whose device is the port, `1`.
    pub port: String,
}

/// A cable between named ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCable {
    /// Both ends, in the order of the text.
    pub ends: [NamedEnd; 2],
}

/// All cables of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cabling {
    /// In the order of the text.
    pub cables: Vec<NamedCable>,
}

/// What the ports are called whose numbers do not say it.
pub type PortNames = BTreeMap<(Part, u16), String>;

impl Cabling {
    /// The same cables with numbers for ports: the number where the name is one (`12`, `Port 12`), else its place
    /// among the names of the part in natural order. A cable that two devices both told of stands once.
    pub fn plan(&self) -> (WiringPlan, PortNames) {
        let mut ports: BTreeMap<&Part, Vec<&str>> = BTreeMap::new();
        for end in self.cables.iter().flat_map(|cable| &cable.ends) {
            ports.entry(&end.part).or_default().push(&end.port);
        }
        let mut names = PortNames::new();
        let mut numbers: BTreeMap<(&Part, &str), u16> = BTreeMap::new();
        for (part, mut own) in ports {
            own.sort_by(|a, b| natural(a, b));
            own.dedup();
            let plain: Option<Vec<u16>> = own.iter().map(|name| plain_number(name)).collect();
            for (place, name) in (1u16..).zip(own) {
                let number = match &plain {
                    Some(plain) => plain[usize::from(place) - 1],
                    None => {
                        names.insert((part.clone(), place), name.to_owned());
                        place
                    }
                };
                numbers.insert((part, name), number);
            }
        }
        let mut cables: BTreeMap<[(Part, u16); 2], PlannedCable> = BTreeMap::new();
        for cable in &self.cables {
            let ends = cable.ends.each_ref().map(|end| Socket {
                part: end.part.clone(),
                port: numbers
                    .get(&(&end.part, end.port.as_str()))
                    .copied()
                    .unwrap_or(1),
            });
            let mut key = ends.clone().map(|end| (end.part, end.port));
            key.sort();
            cables.entry(key).or_insert(PlannedCable {
                ends,
                rail: None,
                plane: None,
                length_meters: None,
                serial: None,
            });
        }
        let cables = cables.into_values().collect();
        (WiringPlan { cables }, names)
    }
}

/// The number that a port's name is.
fn plain_number(name: &str) -> Option<u16> {
    let digits = name
        .strip_prefix("Port")
        .or_else(|| name.strip_prefix("port"));
    let number = digits.unwrap_or(name).trim().parse().ok()?;
    (number > 0).then_some(number)
}

/// Order in which people count: `swp2` before `swp10`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (Some(one), Some(other)) = (left.chars().next(), right.chars().next()) else {
            return left.len().cmp(&right.len());
        };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (l, r) = (digits(left), digits(right));
        let order = if l > 0 && r > 0 {
            let number = |text: &str, end: usize| text[..end].trim_start_matches('0').to_owned();
            let (x, y) = (number(left, l), number(right, r));
            (left, right) = (&left[l..], &right[r..]);
            x.len().cmp(&y.len()).then(x.cmp(&y))
        } else {
            (left, right) = (&left[one.len_utf8()..], &right[other.len_utf8()..]);
            one.cmp(&other)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The fabric that a plan draws: every cable as if it had been seen `now`, at `speed` where somebody knows it.
pub fn plan_fabric(plan: &WiringPlan, now: Timestamp, speed: Option<LinkSpeed>) -> Fabric {
    let mut fabric = Fabric::default();
    let mut highest: BTreeMap<&Part, u16> = BTreeMap::new();
    for end in plan.cables.iter().flat_map(|cable| &cable.ends) {
        let port = highest.entry(&end.part).or_default();
        *port = (*port).max(end.port);
    }
    for cable in &plan.cables {
        let [a, b] = cable
            .ends
            .each_ref()
            .map(|end| draw(&mut fabric, end, cable.rail, highest[&end.part], now));
        let link = Link {
            kind: LinkKind::Cable,
            ports: (cable.ends[0].port, cable.ends[1].port),
            speed,
            witness: Witness::Subnet,
            seen: now,
        };
        fabric.connect(a, b, link);
    }
    fabric
}

fn draw(
    fabric: &mut Fabric,
    end: &Socket,
    rail: Option<u16>,
    ports: u16,
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
            let inside = Link {
                kind: LinkKind::Inside,
                ports: (0, 0),
                speed: None,
                witness: Witness::Subnet,
                seen: now,
            };
            fabric.connect(nic, host, inside);
            nic
        }
        part => {
            let equipment = Equipment::Switch {
                guid: None,
                ports,
                description: String::new(),
            };
            fabric.upsert(part.clone(), equipment)
        }
    }
}

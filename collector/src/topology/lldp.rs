//! What hosts and switches hear by LLDP, merged into the fabric graph: switches, and cables with their witnesses.

mod pairs;
mod report;
mod resolve;

use std::collections::{BTreeSet, HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, Link, PartId, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, PortName, SwitchName};
use railscope_model::units::LinkSpeed;

use pairs::Pairs;
pub use report::{Contradiction, LldpMerge};
use resolve::{Far, Resolver};

/// Who hears.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A port of a NIC.
    Nic(PartId, u8),
    /// A port of a switch.
    Switch(SwitchName, PortName),
}

/// What one end of a cable hears from the other, word by word.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// Who hears.
    pub near: End,
    /// Chassis id of the other end, mostly a MAC address.
    pub chassis: String,
    /// Port id of the other end.
    pub port: String,
    /// System name of the other end; may be empty.
    pub system: String,
    /// Port description of the other end; may be empty.
    pub description: String,
    /// Whether the other end says that it forwards packets; none where nobody told.
    pub forwards: Option<bool>,
    /// Speed of the near port, where it is known.
    pub speed: Option<LinkSpeed>,
    /// When the near end was last heard to say so.
    pub at: Timestamp,
}

impl Heard {
    fn witness(&self) -> Witness {
        match self.near {
            End::Nic(..) => Witness::Exporter,
            End::Switch(..) => Witness::Switch,
        }
    }
}

/// Everything that is heard by LLDP in one cluster, with the names by which far ends are found.
#[derive(Debug, Default)]
pub struct Words {
    /// What each end hears.
    pub heard: Vec<Heard>,
    /// Switches that tell their neighbours.
    pub speakers: BTreeSet<SwitchName>,
    /// Nodes that are hosts.
    pub hosts: BTreeSet<NodeName>,
    /// Ports of NICs by host and network interface.
    pub interfaces: HashMap<(NodeName, String), End, FixedState>,
    /// Ports of NICs by MAC address, lower case.
    pub addresses: HashMap<String, End, FixedState>,
    /// Ports that say themselves that they have no light: what others still tell of them is old.
    pub dark: BTreeSet<End>,
    /// Interfaces of hosts that are far slower than the fastest: management, not fabric.
    pub slow: usize,
    /// Ethernet ports of NICs that are up and hear nobody.
    pub silent: usize,
    /// Switches whose neighbours could not be read, with the reason.
    pub unread: Vec<(SwitchName, String)>,
    /// Neighbours in switches' words that could not be read.
    pub unparsed: usize,
}

/// Puts what is heard into the fabric. Ends that two cables claim are left out unless one of them is
/// confirmed from both sides, or much newer; the report names them.
pub fn merge_lldp(fabric: &mut Fabric, words: &Words) -> LldpMerge {
    let resolver = Resolver::of(words);
    let mut report = LldpMerge {
        speakers: words.speakers.len(),
        slow: words.slow,
        silent: words.silent,
        unread: words.unread.clone(),
        unparsed: words.unparsed,
        shared_chassis: resolver.shared_chassis(),
        ..LldpMerge::default()
    };
    let mut pairs = Pairs::default();
    for heard in &words.heard {
        match resolver.far(heard) {
            Far::End(far) => pairs.add(heard, far),
            Far::Host => report.host_neighbours += 1,
            Far::Management => report.management += 1,
            Far::Stranger(name) => {
                report.strangers.insert(name);
            }
            Far::Unreadable => report.unparsed += 1,
        }
    }
    pairs.unify(&resolver);
    let contradictions = pairs.settle();
    let in_words = |end: &End| match end {
        End::Nic(nic, port) => format!("{} port {port}", fabric.vertex(*nic).part),
        End::Switch(switch, port) => format!("switch/{switch} port {port}"),
    };
    report.contradictions = contradictions
        .iter()
        .map(|contradiction| contradiction.in_words(&in_words))
        .collect();
    for (ends, pair) in pairs.into_iter() {
        if ends.iter().any(|end| words.dark.contains(end)) {
            report.dark += 1;
            continue;
        }
        let [a, b] = ends.map(|end| place(fabric, end));
        let (Some(a), Some(b)) = (a, b) else {
            report.unparsed += 1;
            continue;
        };
        let mut link = Link::cable((a.1, b.1), pair.speed, Witness::Exporter, Timestamp(0));
        link.seen_by = pair.seen_by;
        fabric.connect(a.0, b.0, link);
        report.cables += 1;
    }
    report.leaves = leaves(fabric);
    report.speaking_leaves = report
        .leaves
        .iter()
        .filter(|leaf| words.speakers.contains(*leaf))
        .count();
    report
}

/// The vertex and port of an end; a switch that is not there yet is added.
fn place(fabric: &mut Fabric, end: End) -> Option<(PartId, u16)> {
    match end {
        End::Nic(nic, port) => Some((nic, port.into())),
        End::Switch(name, port) => {
            let part = Part::Switch(name.clone());
            let id = fabric.find(&part).unwrap_or_else(|| {
                let equipment = Equipment::Switch {
                    guid: None,
                    ports: 0,
                    description: String::new(),
                };
                fabric.upsert(part, equipment)
            });
            Some((id, fabric.port_handle(id, &port)?))
        }
    }
}

/// Switches that a NIC is cabled to by LLDP alone.
fn leaves(fabric: &Fabric) -> BTreeSet<SwitchName> {
    let mut leaves: HashSet<&SwitchName, FixedState> = HashSet::default();
    for (_, a, b, link) in fabric.links() {
        let parts = [a, b].map(|end| &fabric.vertex(end).part);
        if link.seen_by.of(Witness::Subnet).is_none()
            && let [Part::Nic(..), Part::Switch(leaf)] | [Part::Switch(leaf), Part::Nic(..)] = parts
        {
            leaves.insert(leaf);
        }
    }
    leaves.into_iter().cloned().collect()
}

//! What hosts and switches receive by LLDP, merged into the fabric graph: switches, and cables with their
//! witnesses.

mod ends;
mod mac;
pub(crate) mod neighbors;
mod pairs;
mod report;
mod resolve;
pub mod text;
mod unlisted;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, SwitchName, natural};
use railscope_model::units::LinkSpeed;
use rayon::prelude::*;

use super::diff::has_cables;
pub use crate::fabric::lldp::neighbors::{Neighbor, Said, Told, Wrong};
pub use ends::{End, PortNumber, SwitchNumber, SwitchPorts};
pub use mac::Mac;
use pairs::Pairs;
pub use report::{Contradiction, LldpMerge};
pub(crate) use resolve::is_management_port;
use resolve::{Far, Resolver, shared_chassis};
pub use resolve::{Neighbors, neighbors_of_switches};
pub use unlisted::unlisted_hosts;

/// Entries that are resolved at once, before their cables are built one by one.
const WORDS_AT_ONCE: usize = 1 << 14;

/// What one end of a cable receives from the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard<'a> {
    /// The receiving device.
    pub near: End,
    /// What the other end advertises, unchanged.
    pub said: Said<'a>,
    /// Speed of the near port, where it is known.
    pub speed: Option<LinkSpeed>,
    /// When the near end was last seen reporting so.
    pub at: Timestamp,
}

/// Ports of a host's NICs by network interface.
pub type Interfaces<'a> = BTreeMap<&'a str, End>;

/// Everything that is received by LLDP in one cluster, with the names by which far ends are found.
#[derive(Debug, Default)]
pub struct Words<'a> {
    /// What hosts receive.
    pub hosts: Vec<HostWords<'a>>,
    /// What switches receive.
    pub switches: SwitchWords<'a>,
    /// Ports that report themselves that they have no optical signal: what others still report
    /// about them is old.
    pub dark: HashSet<End, FixedState>,
}

/// What one host receives.
#[derive(Debug)]
pub struct HostWords<'a> {
    /// Its name.
    pub host: &'a NodeName,
    /// What each port of its NICs receives.
    pub heard: Vec<Heard<'a>>,
    /// Ports by network interface.
    pub interfaces: Interfaces<'a>,
    /// Ports by MAC address.
    pub addresses: Vec<(Mac, End)>,
    /// Interfaces that are far slower than the fastest: management, not fabric.
    pub slow: usize,
    /// Ethernet ports that are up and receive no neighbor.
    pub silent: usize,
}

/// What switches receive.
#[derive(Debug, Default)]
pub struct SwitchWords<'a> {
    /// What each port receives.
    pub heard: Vec<Heard<'a>>,
    /// Switches that report their neighbors, and their ports that do.
    pub ports: SwitchPorts,
    /// Switches whose neighbors could not be read, with the reason.
    pub unread: Vec<(SwitchName, String)>,
    /// Neighbors that could not be read.
    pub unparsed: usize,
}

impl<'a> Words<'a> {
    /// All that is received, by NICs first.
    fn heard(&self) -> impl Iterator<Item = &Heard<'a>> {
        let hosts = self.hosts.iter().flat_map(|host| &host.heard);
        hosts.chain(&self.switches.heard)
    }
}

/// Adds what is received to the fabric. Ends that two cables claim are omitted unless one of them
/// is confirmed from both sides, or much newer; the report names them.
pub fn merge_lldp(fabric: &mut Fabric, mut words: Words<'_>) -> LldpMerge {
    let ports = mem::take(&mut words.switches.ports);
    let mut report = LldpMerge {
        speakers: ports.speakers().count(),
        slow: words.hosts.iter().map(|host| host.slow).sum(),
        silent: words.hosts.iter().map(|host| host.silent).sum(),
        unread: words.switches.unread.clone(),
        unparsed: words.switches.unparsed,
        ..LldpMerge::default()
    };
    let mut resolver = Resolver::of(&words, ports);
    let pairs = || pairs(fabric, &words, &mut resolver, &mut report);
    let (pairs, shared_chassis) = rayon::join(pairs, || shared_chassis(&words));
    report.shared_chassis = shared_chassis;
    place(fabric, pairs, (&resolver.ports, &words.dark), &mut report);
    report.leaves = leaves(fabric);
    let leaves = report.leaves.iter();
    report.speaking_leaves = leaves.filter(|leaf| resolver.ports.speaks(leaf)).count();
    report
}

/// Cables of which each end has one, by what NICs receive and what switches receive.
fn pairs<'a>(
    fabric: &Fabric,
    words: &'a Words<'a>,
    resolver: &mut Resolver<'a>,
    report: &mut LldpMerge,
) -> Pairs {
    let heard: Vec<_> = words.heard().collect();
    let mut pairs = Pairs::for_words(heard.len());
    for heard in heard.chunks(WORDS_AT_ONCE) {
        let known = heard.par_iter().map(|heard| resolver.known(heard));
        for (heard, known) in heard.iter().zip(known.collect::<Vec<_>>()) {
            match resolver.far(heard, known) {
                Far::End(far) => pairs.add(heard, far),
                Far::Host => report.host_neighbors += 1,
                Far::Management => report.management += 1,
                Far::Stranger(name) => {
                    report.strangers.insert(name);
                }
                Far::Unreadable => report.unparsed += 1,
            }
        }
    }
    pairs.unify(&resolver.ports);
    let contests = pairs.settle();
    let in_words = |end: End| match end {
        End::Nic(nic, port) => format!("{} port {port}", fabric.vertex(nic).part),
        End::Switch(switch, port) => {
            let (switch, port) = resolver.ports.names(switch, port);
            format!("switch/{switch} port {port}")
        }
    };
    let contests = contests.iter().map(|contest| contest.in_words(&in_words));
    report.contradictions = contests.collect();
    let contradictions = &mut report.contradictions;
    contradictions.sort_by(|a, b| natural(&a.end, &b.end));
    pairs
}

/// Puts cables into the fabric, but for those of ports without an optical signal.
fn place(
    fabric: &mut Fabric,
    pairs: Pairs,
    (ports, dark): (&SwitchPorts, &HashSet<End, FixedState>),
    report: &mut LldpMerge,
) {
    // A sweep may have reported about the same cables.
    let join = if has_cables(fabric) {
        Fabric::connect
    } else {
        Fabric::add_link
    };
    let mut vertices: Vec<Option<PartId>> = vec![None; ports.len()];
    for (ends, pair) in pairs.into_iter() {
        if ends.iter().any(|end| dark.contains(end)) {
            report.dark += 1;
            continue;
        }
        let [a, b] = ends.map(|end| vertex_and_port(fabric, ports, &mut vertices, end));
        let (Some(a), Some(b)) = (a, b) else {
            report.unparsed += 1;
            continue;
        };
        let link = Link {
            kind: LinkKind::Cable,
            ports: (a.1, b.1),
            speed: pair.speed,
            seen_by: pair.seen_by(ends),
        };
        join(fabric, a.0, b.0, link);
        report.cables += 1;
    }
}

/// The vertex and port of an end; a switch that is not there yet is added.
fn vertex_and_port(
    fabric: &mut Fabric,
    ports: &SwitchPorts,
    vertices: &mut [Option<PartId>],
    end: End,
) -> Option<(PartId, u16)> {
    let (switch, port) = match end {
        End::Nic(nic, port) => return Some((nic, port.into())),
        End::Switch(switch, port) => (switch, port),
    };
    let (name, port) = ports.names(switch, port);
    let vertex = *vertices[switch.0 as usize].get_or_insert_with(|| {
        let part = Part::Switch(name.clone());
        let vertex = fabric.find(&part).unwrap_or_else(|| {
            let equipment = Equipment::Switch {
                guid: None,
                ports: 0,
                description: String::new(),
            };
            fabric.upsert(part, equipment)
        });
        fabric.name_ports(vertex, ports.all(switch));
        vertex
    });
    Some((vertex, fabric.find_port(vertex, port)?))
}

/// Switches that a NIC is cabled to by LLDP alone.
fn leaves(fabric: &Fabric) -> BTreeSet<SwitchName> {
    let mut leaves: HashSet<PartId, FixedState> = HashSet::default();
    for (_, a, b, link) in fabric.links() {
        let parts = [a, b].map(|end| &fabric.vertex(end).part);
        if link.seen_by.of(Witness::Subnet).is_none() {
            match parts {
                [Part::Nic(..), Part::Switch(_)] => leaves.insert(b),
                [Part::Switch(_), Part::Nic(..)] => leaves.insert(a),
                _ => false,
            };
        }
    }
    let name = |leaf| match &fabric.vertex(leaf).part {
        Part::Switch(name) => Some(name.clone()),
        _ => None,
    };
    leaves.into_iter().filter_map(name).collect()
}

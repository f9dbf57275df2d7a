//! Lost links: whose fault they are, of the cables themselves, or of the switch or the host that has lost many of them.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, PartId, Witness};
use railscope_model::identity::{NodeName, Part, RdmaDevice, RdmaPort};
use railscope_model::metric::{
    Metric, NIC_CARRIER, NIC_PHY_LINK_DOWN, RDMA_PORT_ERRORS, RDMA_PORT_UP,
};

use crate::classes::{Class, PORT_DOWN, PORT_FLAPPING, UPLINK_DOWN};
use crate::diagnose::incident::Finding;

/// Share of a switch's cables that must be lost before the switch itself is named.
pub(crate) const PARENT_SHARE: f64 = 0.3;
/// The same of a switch whose ports are still reported, where most of the cables are down: it is not down as a whole.
pub(crate) const ANSWERING_PARENT_SHARE: f64 = 0.5;
/// Fewest lost cables that make a parent: one cable is a cable.
pub(crate) const PARENT_MIN_CHILDREN: usize = 3;
/// The same for a host whose exporter no longer responds either: two can be a card of a host that lives.
pub(crate) const SILENT_HOST_MIN_CHILDREN: usize = 2;
/// Seconds after which a flapping cable is a separate fault: links of one switch flap together, and are read within
/// this time.
pub(crate) const FLAP_TOGETHER_SECONDS: f64 = 120.0;

/// What a host reports itself if the link of a port is down.
const SAID_BY_HOSTS: [&Metric; 4] = [
    &RDMA_PORT_UP,
    &NIC_CARRIER,
    &RDMA_PORT_ERRORS,
    &NIC_PHY_LINK_DOWN,
];

/// What earlier ticks found.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Switches with an open incident: what is lost of them stays theirs, whichever host is read late.
    pub(crate) switches_down: BTreeSet<Part>,
    /// Hosts with an open incident.
    pub(crate) hosts_down: BTreeSet<Part>,
    /// Cables that have flapped for longer than [`FLAP_TOGETHER_SECONDS`].
    pub(crate) flapping_long: BTreeSet<Part>,
}

/// Lost cables whose switch or host is what is really lost: child -> parent.
///
/// A switch swallows its cables when a good share of them is lost, a host only when all of its are:
/// three dead rails of eight are three faults, or a card's, and not the host's. Links that have flapped one after another over
/// minutes are separate faults. `answers`: whether something still
/// reports the ports of a host or switch, if anything did.
pub(crate) fn parents(
    fabric: &Fabric,
    findings: &[Finding],
    earlier: &Earlier,
    answers: impl Fn(&Part) -> Option<bool>,
) -> BTreeMap<Part, Part> {
    let lost: BTreeSet<_> = findings
        .iter()
        .filter(|f| is_lost_cable(f.evidence.class))
        .map(|f| &f.evidence.part)
        .collect();
    let flapping = flapping(findings);
    let mut alone = earlier.flapping_long.clone();
    // What is down now may be so because of its switch.
    for found in findings.iter().map(|f| &f.evidence) {
        if is_lost_cable(found.class) && found.class != &PORT_FLAPPING {
            alone.remove(&found.part);
        }
    }
    let dark = said_by_hosts(findings);
    let mut cables = cables_of_switches(fabric, &lost);
    cables
        .values_mut()
        .for_each(|cables| leave_out_unsaid(cables, &lost, &dark));
    let cables = cables.into_iter().map(|(switch, cables)| {
        let cables: Vec<Part> = cables.into_iter().map(|(cable, _)| cable).collect();
        (switch, cables)
    });
    let hosts = cables_of_hosts(fabric, &lost, SILENT_HOST_MIN_CHILDREN).into_iter();
    let hosts = hosts.map(|(host, cables)| {
        // One that starts again answers before its links are up.
        let is_silent = answers(&host) == Some(false) || earlier.hosts_down.contains(&host);
        let fewest = if is_silent && !cables.iter().any(|cable| dark.contains(cable)) {
            SILENT_HOST_MIN_CHILDREN
        } else {
            PARENT_MIN_CHILDREN
        };
        (host, cables, 1.0, fewest)
    });
    let switches = cables.into_iter().map(|(part, cables)| {
        let gone = cables.iter().filter(|cable| lost.contains(cable));
        let share = share_of_switch(gone, &flapping, answers(part));
        (part.clone(), cables, share, PARENT_MIN_CHILDREN)
    });
    let mut parents: BTreeMap<Part, (bool, f64, usize, Part)> = BTreeMap::new();
    for (parent, children, needed, fewest) in hosts.chain(switches) {
        let known_down = earlier.switches_down.contains(&parent);
        let is_switch = matches!(parent, Part::Switch(_));
        let is_alone = |child: &Part| is_switch && !known_down && alone.contains(child);
        let gone: Vec<_> = children
            .iter()
            .filter(|child| lost.contains(child) && !is_alone(child))
            .collect();
        let share = gone.len() as f64 / children.len() as f64;
        if gone.len() < fewest || (share < needed && !known_down) {
            continue;
        }
        let claim = (known_down, share, gone.len());
        for child in &gone {
            // Of the two ends of a cable the one that lost the greater share explains it: a dead leaf takes down
            // a third of a small spine's cables. Where both lost all, one fault is likelier than
            // several: behind a dead leaf all cables of whole hosts may end.
            let known = parents.get(child);
            let better = known.is_none_or(|known| claim > (known.0, known.1, known.2));
            if better {
                let (down, share, count) = claim;
                parents.insert((*child).clone(), (down, share, count, parent.clone()));
            }
        }
    }
    parents
        .into_iter()
        .map(|(child, (.., parent))| (child, parent))
        .collect()
}

/// Cables of which a host itself reports that its port is down.
pub(crate) fn said_by_hosts(findings: &[Finding]) -> BTreeSet<&Part> {
    let all = findings.iter().map(|found| &found.evidence);
    let own = all.filter(|found| SAID_BY_HOSTS.iter().any(|of| found.signal == of.name));
    own.map(|found| &found.part).collect()
}

/// Cables that flap.
fn flapping(findings: &[Finding]) -> BTreeSet<&Part> {
    let all = findings.iter().map(|found| &found.evidence);
    let flapping = all.filter(|found| found.class == &PORT_FLAPPING);
    flapping.map(|found| &found.part).collect()
}

/// Share of a switch's cables that must be lost before the switch itself is named, by those that are: one whose cables flap answers
/// meanwhile.
fn share_of_switch<'a>(
    gone: impl Iterator<Item = &'a Part>,
    flapping: &BTreeSet<&Part>,
    answers: Option<bool>,
) -> f64 {
    let (flaps, down): (Vec<&Part>, Vec<&Part>) = gone.partition(|cable| flapping.contains(cable));
    if answers == Some(true) && down.len() > flaps.len() {
        ANSWERING_PARENT_SHARE
    } else {
        PARENT_SHARE
    }
}

/// Whether a class implies that a link is down, permanently or repeatedly.
pub(crate) fn is_lost_cable(class: &Class) -> bool {
    [&PORT_DOWN, &UPLINK_DOWN, &PORT_FLAPPING].contains(&class)
}

/// Whether so many lost cables, of all that there are, are enough to be their switch's fault.
pub(crate) fn are_the_switchs(lost: usize, all: usize) -> bool {
    lost >= PARENT_MIN_CHILDREN && lost as f64 >= PARENT_SHARE * all as f64
}

/// Cables of the switches that have one of these, and whether the subnet shows them.
pub(crate) fn cables_of_switches<'a>(
    fabric: &'a Fabric,
    lost: &BTreeSet<&Part>,
) -> BTreeMap<&'a Part, Vec<(Part, bool)>> {
    let found = lost.iter().flat_map(|cable| fabric.cables_named(cable));
    let ends: BTreeSet<PartId> = found.flat_map(|(near, far)| [near, far.peer]).collect();
    let ends = ends.into_iter().map(|id| (id, &fabric.vertex(id).part));
    let switches = ends.filter(|(_, part)| matches!(part, Part::Switch(_)));
    switches
        .map(|(id, switch)| (switch, cables_of(fabric, id)))
        .collect()
}

/// Cables of a part, and whether the subnet shows them.
pub(crate) fn cables_of(fabric: &Fabric, id: PartId) -> Vec<(Part, bool)> {
    let cables = fabric.neighbors(id).filter_map(|near| {
        let swept = near.link.seen_by.of(Witness::Subnet).is_some();
        // Only a cable has a part.
        Some((fabric.cable_part(near.id)?, swept))
    });
    cables.collect()
}

/// Cables to switches of the hosts that have lost at least so many of them; all ports of a host of which no such cable is known.
pub(crate) fn cables_of_hosts(
    fabric: &Fabric,
    lost: &BTreeSet<&Part>,
    fewest: usize,
) -> BTreeMap<Part, Vec<Part>> {
    let mut counts: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for node in lost.iter().filter_map(|cable| cable.node()) {
        *counts.entry(node).or_default() += 1;
    }
    counts.retain(|_, count| *count >= fewest);
    let mut cables: BTreeMap<Part, Vec<Part>> = BTreeMap::new();
    if counts.is_empty() {
        return cables;
    }
    for (id, a, b, _) in fabric.links() {
        let ends = [a, b].map(|end| &fabric.vertex(end).part);
        let ([Part::Nic(node, _), Part::Switch(_)] | [Part::Switch(_), Part::Nic(node, _)]) = ends
        else {
            continue;
        };
        if counts.contains_key(node) {
            let host = Part::Host(node.clone());
            cables
                .entry(host)
                .or_default()
                .extend(fabric.cable_part(id));
        }
    }
    counts.retain(|node, _| !cables.contains_key(&Part::Host((*node).clone())));
    if !counts.is_empty() {
        let hosts = counts.into_keys().collect();
        cables.extend(ports_of_hosts(fabric, lost, &hosts));
    }
    cables
}

/// The ports of these hosts: of each NIC those that are lost, else its first one.
fn ports_of_hosts(
    fabric: &Fabric,
    lost: &BTreeSet<&Part>,
    hosts: &BTreeSet<&NodeName>,
) -> BTreeMap<Part, Vec<Part>> {
    let mut of_nics: BTreeMap<(&NodeName, &RdmaDevice), Vec<Part>> = BTreeMap::new();
    for part in lost {
        if let Part::HostLink(node, port) = part {
            let of_nic = of_nics.entry((node, &port.device)).or_default();
            of_nic.push((*part).clone());
        }
    }
    let mut ports: BTreeMap<Part, Vec<Part>> = BTreeMap::new();
    for (_, vertex) in fabric.vertices() {
        if let Part::Nic(node, device) = &vertex.part
            && hosts.contains(node)
        {
            let first = || {
                let device = device.clone();
                vec![Part::HostLink(node.clone(), RdmaPort { device, port: 1 })]
            };
            let of_nic = of_nics.remove(&(node, device)).unwrap_or_else(first);
            let host = Part::Host(node.clone());
            ports.entry(host).or_default().extend(of_nic);
        }
    }
    ports
}

/// Omits the cables of a leaf to other switches whose loss cannot have been reported yet. Hosts report at
/// once that their ports are down; the next sweep comes later, and LLDP forgets neighbors minutes after a switch
/// has died.
///
/// Cables that a sweep shows are omitted only where several hosts live and report that all of their ports there
/// are down: what is left of such a leaf serves no host.
fn leave_out_unsaid(
    cables: &mut Vec<(Part, bool)>,
    lost: &BTreeSet<&Part>,
    dark: &BTreeSet<&Part>,
) {
    let to_hosts = || cables.iter().filter(|(cable, _)| cable.node().is_some());
    if to_hosts().count() < PARENT_MIN_CHILDREN {
        return;
    }
    let hosts: BTreeSet<_> = to_hosts().map(|(cable, _)| cable.node()).collect();
    let serves_nobody = hosts.len() > 1 && to_hosts().all(|(cable, _)| dark.contains(cable));
    cables.retain(|(cable, swept)| {
        (*swept && !serves_nobody) || cable.node().is_some() || lost.contains(cable)
    });
}

/// Cables between the same two switches whose links are down together are one fault: of a line card, a trunk or a setting. The
/// first of them by name represents all.
pub(crate) fn bundles(fabric: &Fabric, findings: &[Finding]) -> BTreeMap<Part, Part> {
    let lost = findings
        .iter()
        .filter(|found| is_lost_cable(found.evidence.class));
    let lost: BTreeSet<&Part> = lost.map(|found| &found.evidence.part).collect();
    let mut by_ends: BTreeMap<[PartId; 2], Vec<&Part>> = BTreeMap::new();
    let of_switches = lost
        .into_iter()
        .filter(|part| matches!(part, Part::SwitchLink(..)));
    for cable in of_switches {
        if let Some((near, far)) = fabric.find_cable(cable) {
            let (low, high) = (near.min(far.peer), near.max(far.peer));
            by_ends.entry([low, high]).or_default().push(cable);
        }
    }
    let bundles = by_ends.into_values().filter(|cables| cables.len() > 1);
    let roots = bundles.flat_map(|cables| {
        let first = cables[0].clone();
        let others = cables.into_iter().skip(1);
        others
            .map(move |cable| (cable.clone(), first.clone()))
            .collect::<Vec<_>>()
    });
    roots.collect()
}

//! Probes and transports report where, counters report what: what probes report about an edge or a cable belongs to the
//! part of it that another detector names. So does what a GPU's work reports about it, where its PCIe link is the cause.
//!
//! To probes a NIC, its cable and its PCIe link are one, and a switch whose packets get lost on one
//! of its cables may be all that they can report.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Neighbor, PartId};
use railscope_model::identity::{NodeName, Part, RdmaDevice};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::signs::{is_marked, is_of_clock, is_of_ends};
use crate::classes::{
    Class, GPU_SLOW, NOISY_NEIGHBOR, NUMA_AFFINITY, PATH_SLOW, PCIE_DEGRADED, PCIE_ERRORS,
    PCIE_REDIRECTED, PFC_STORM, PORT_DEGRADED, PORT_DOWN, PORT_FLAPPING, RECEIVER_NOT_READY,
    SLOW_RECEIVER, UPLINK_DOWN, UPLINK_JITTER,
};
use crate::detect::detector::Evidence;
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::posterior::pci_of;

/// What makes packets wait on a cable between switches, or before one: it passes less, or others carry more because of it.
const NARROWS: [&Class; 5] = [
    &PATH_SLOW,
    &PORT_DEGRADED,
    &PORT_FLAPPING,
    &UPLINK_DOWN,
    &UPLINK_JITTER,
];

/// A receiver back-pressures its switch.
const BACK_PRESSURES: [&Class; 2] = [&SLOW_RECEIVER, &PFC_STORM];

/// Parts that only probes or transports name, each with the part that others name in its place.
pub(crate) fn explained_by_others(fabric: &Fabric, findings: &[Finding]) -> BTreeMap<Part, Part> {
    let of_ends = |found: &&Finding| is_of_ends(&found.evidence);
    let others: Vec<&Finding> = findings.iter().filter(|found| !of_ends(found)).collect();
    let mut explained = slow_behind_pcie(fabric, findings);
    explained.extend(busy_for_lost(findings));
    let unready = unready_behind_slow(findings, &explained);
    explained.extend(unready);
    if others.is_empty() {
        return explained;
    }
    for found in findings.iter().filter(of_ends) {
        let part = &found.evidence.part;
        let of_it = others.iter().map(|other| &other.evidence);
        let late = late_at(fabric, &found.evidence);
        // Pause reaches all that send through the leaf.
        let delays = |other| !late.is_empty() && !paused_by(fabric, other).is_disjoint(&late);
        // Packets to a NIC may wait on any cable to its leaf.
        let marks = |other: &Evidence| {
            let marked = is_marked(&found.evidence) && NARROWS.contains(&other.class);
            let is_cable = matches!(other.part, Part::SwitchLink(..));
            marked && is_cable && !leaves_of(fabric, &other.part).is_disjoint(&late)
        };
        // What is named itself needs no other part, and of several that explain it the nearest to a cause
        // does.
        let best = of_it
            .filter(|other| {
                let shares = other.part == *part || other.related.contains(part);
                shares || is_in(fabric, part, &other.part) || delays(other) || marks(other)
            })
            .min_by_key(|other| (other.part != *part, other.class.order(), other.part.clone()));
        if let Some(best) = best.filter(|best| best.part != *part) {
            let root = explained.get(&best.part).unwrap_or(&best.part).clone();
            explained.insert(part.clone(), root);
        }
    }
    explained
}

/// The evidence of one class.
fn of_class<'a>(
    findings: &'a [Finding],
    class: &'static Class,
) -> impl Iterator<Item = &'a Evidence> {
    let all = findings.iter().map(|found| &found.evidence);
    all.filter(move |evidence| evidence.class == class)
}

/// Ports that carry more than the others of their node, each with a port of the node that is down: its job sends through them.
fn busy_for_lost(findings: &[Finding]) -> BTreeMap<Part, Part> {
    let with = |class| of_class(findings, class);
    let pairs = with(&NOISY_NEIGHBOR).filter_map(|busy| {
        let is_of_node = |down: &&Evidence| down.part.node() == busy.part.node();
        let down = with(&PORT_DOWN).find(is_of_node)?;
        (down.part != busy.part).then(|| (busy.part.clone(), down.part.clone()))
    });
    pairs.collect()
}

/// Hosts of which only is found that receive buffers are missing, each with a NIC of theirs, or its PCIe link, that back-pressures its
/// switch, or with what that one waits for: completions are late there, and so are the buffers that they free.
fn unready_behind_slow(
    findings: &[Finding],
    explained: &BTreeMap<Part, Part>,
) -> BTreeMap<Part, Part> {
    let unready = of_class(findings, &RECEIVER_NOT_READY);
    let unready: Vec<_> = unready
        .filter(|own| matches!(own.part, Part::Host(_)))
        .collect();
    if unready.is_empty() {
        return BTreeMap::new();
    }
    let slow = BACK_PRESSURES.map(|class| of_class(findings, class));
    let is_nic = |own: &&Evidence| matches!(own.part, Part::Nic(..) | Part::PcieLink(..));
    let slow: Vec<_> = slow.into_iter().flatten().filter(is_nic).collect();
    let pairs = unready.into_iter().filter_map(|own| {
        let nic = slow.iter().find(|nic| nic.part.node() == own.part.node())?;
        let root = explained.get(&nic.part).unwrap_or(&nic.part);
        let mut all = findings.iter().map(|found| &found.evidence);
        let is_other = |other: &Evidence| other.part == own.part && other.class != own.class;
        (!all.any(is_other)).then(|| (own.part.clone(), root.clone()))
    });
    pairs.collect()
}

/// Parts that wait for the PCIe link of a GPU, each with that link: the GPU, if it is slow at its work while its clock is as it
/// should be, and, where the link is degraded, the NIC that delivers to its memory, if that back-pressures its switch or packets wait before
/// it; a NIC that back-pressures belongs to a GPU whose link counts errors, too.
fn slow_behind_pcie(fabric: &Fabric, findings: &[Finding]) -> BTreeMap<Part, Part> {
    let evidence = || findings.iter().map(|found| &found.evidence);
    let with = |class| of_class(findings, class);
    let degraded: BTreeSet<&Part> = with(&PCIE_DEGRADED).map(|own| &own.part).collect();
    let errors: BTreeSet<&Part> = with(&PCIE_ERRORS).map(|own| &own.part).collect();
    if degraded.is_empty() && errors.is_empty() {
        return BTreeMap::new();
    }
    let link_of = |gpu: &Part| {
        let (Part::Gpu(node, _), Some(id)) = (gpu, fabric.find(gpu)) else {
            return None;
        };
        pci_of(fabric, id).map(|pci| Part::PcieLink(node.clone(), pci))
    };
    let mut explained = BTreeMap::new();
    for own in evidence() {
        let is_nic = matches!(own.part, Part::Nic(..) | Part::PcieLink(..));
        let waits = is_nic && BACK_PRESSURES.contains(&own.class);
        let link = if own.class == &GPU_SLOW {
            link_of(&own.part).filter(|link| degraded.contains(link) || errors.contains(link))
        } else if (waits || is_marked(own)) && !degraded.contains(&own.part) {
            let gpus = match waits && is_only_one_that_waits(findings, &own.part) {
                true => may_serve(fabric, &own.part),
                false => gpus_behind(fabric, &own.part),
            };
            let mut links = gpus.iter().filter_map(link_of);
            let link = links.find(|link| degraded.contains(link));
            // Errors on the link of a GPU explain why packets to it wait; marks have other causes as well.
            let mut failing = gpus.into_iter().filter(|gpu| waits && errors.contains(gpu));
            link.or_else(|| failing.next())
        } else {
            None
        };
        explained.extend(link.map(|link| (own.part.clone(), link)));
    }
    for own in evidence().filter(|own| is_of_clock(own)) {
        explained.remove(&own.part);
    }
    explained
}

/// Whether no other NIC of the node back-pressures its switch.
fn is_only_one_that_waits(findings: &[Finding], nic: &Part) -> bool {
    let waiting = BACK_PRESSURES.map(|class| of_class(findings, class));
    let mut waiting = waiting.into_iter().flatten();
    !waiting.any(|other| other.part != *nic && other.part.node() == nic.node())
}

/// The GPUs that a NIC serves; where that is not known, all of its node.
fn may_serve(fabric: &Fabric, nic: &Part) -> Vec<Part> {
    let gpus = gpus_behind(fabric, nic);
    let Some(node) = nic.node().filter(|_| gpus.is_empty()) else {
        return gpus;
    };
    let parts = fabric.devices(node).map(|id| &fabric.vertex(id).part);
    let gpus = parts.filter(|part| matches!(part, Part::Gpu(..)));
    gpus.cloned().collect()
}

/// Whether what probes see of a part may be another's doing.
fn is_in(fabric: &Fabric, probed: &Part, other: &Part) -> bool {
    match probed {
        Part::HostLink(node, port) => is_at_nic(fabric, (node, &port.device), other),
        Part::Nic(node, device) => is_at_nic(fabric, (node, device), other),
        Part::SwitchLink(..) => joins(fabric, probed, other),
        Part::Switch(_) => joins(fabric, other, probed),
        _ => false,
    }
}

/// The switches that a part back-pressures, if the finding is of pause.
pub(crate) fn paused_by(fabric: &Fabric, found: &Evidence) -> BTreeSet<Part> {
    let pauses = [&PFC_STORM, &SLOW_RECEIVER, &PCIE_REDIRECTED, &NUMA_AFFINITY];
    let at = pauses.contains(&found.class).then_some(&found.part);
    at.map_or_else(BTreeSet::new, |part| leaves_of(fabric, part))
}

/// The switches at which packets are late, if the finding is of that.
pub(crate) fn late_at(fabric: &Fabric, found: &Evidence) -> BTreeSet<Part> {
    let at = [&PATH_SLOW, &UPLINK_JITTER]
        .contains(&found.class)
        .then_some(&found.part);
    at.map_or_else(BTreeSet::new, |part| leaves_of(fabric, part))
}

/// The switches at a part: itself, those that a cable joins, those that the NICs of a link or of a host are connected to.
pub(crate) fn leaves_of(fabric: &Fabric, part: &Part) -> BTreeSet<Part> {
    let of_nic = |nic| cabled_to(fabric, nic);
    let ids: Vec<PartId> = match part {
        Part::Switch(_) => fabric.find(part).into_iter().collect(),
        Part::SwitchLink(..) => fabric
            .find_cable(part)
            .into_iter()
            .flat_map(|(near, far)| [near, far.peer])
            .collect(),
        Part::Nic(..) => fabric.find(part).into_iter().flat_map(of_nic).collect(),
        Part::HostLink(node, port) => {
            return leaves_of(fabric, &Part::Nic(node.clone(), port.device.clone()));
        }
        Part::PcieLink(node, pci) => {
            let there = fabric
                .devices(node)
                .filter(|id| pci_of(fabric, *id) == Some(*pci));
            there.flat_map(of_nic).collect()
        }
        Part::Host(node) => fabric.devices(node).flat_map(of_nic).collect(),
        _ => Vec::new(),
    };
    let parts = ids.into_iter().map(|id| fabric.vertex(id).part.clone());
    parts
        .filter(|part| matches!(part, Part::Switch(_)))
        .collect()
}

/// What a NIC has a cable to.
fn cabled_to(fabric: &Fabric, nic: PartId) -> impl Iterator<Item = PartId> {
    let cables = fabric.cables(nic);
    cables.map(|near| near.peer)
}

/// Whether a part is a NIC, its cable, its PCIe link, or the switch that it is connected to.
fn is_at_nic(fabric: &Fabric, (node, device): (&NodeName, &RdmaDevice), other: &Part) -> bool {
    let nic = fabric.find(&Part::Nic(node.clone(), device.clone()));
    match other {
        Part::Nic(of, own) => (of, own) == (node, device),
        Part::HostLink(of, port) => (of, &port.device) == (node, device),
        Part::PcieLink(of, own) => {
            of == node && nic.is_some_and(|nic| pci_of(fabric, nic) == Some(*own))
        }
        Part::Switch(_) => nic.is_some_and(|nic| {
            cabled_to(fabric, nic).any(|peer| fabric.vertex(peer).part == *other)
        }),
        _ => false,
    }
}

/// Whether a cable between switches has this one at an end.
fn joins(fabric: &Fabric, cable: &Part, switch: &Part) -> bool {
    let is_switch = |id: PartId| fabric.vertex(id).part == *switch;
    let has_it = |(near, far): (PartId, Neighbor<'_>)| is_switch(near) || is_switch(far.peer);
    matches!(cable, Part::SwitchLink(..)) && fabric.find_cable(cable).is_some_and(has_it)
}

#[cfg(test)]
pub(crate) mod tests {
    use railscope_model::fabric::{Equipment, Link, LinkKind, Timestamp, Witness};

    use super::*;
    use crate::classes::{EDGE_LOSSY, LINK_ERRORS, UPLINK_LOSSY};
    use crate::detect::found::{found, part};
    use crate::detect::rules::{marked_nics, probe_paths};

    /// A node with a GPU and a NIC on a leaf, a spine above it, and a leaf without nodes. Which NIC serves the GPU is not known.
    pub(crate) fn fabric() -> Fabric {
        let mut fabric = Fabric::default();
        let switch = |name: &str| Equipment::Switch {
            guid: None,
            ports: 0,
            description: name.to_owned(),
        };
        let [leaf, spine, far] = ["leaf", "spine", "far"]
            .map(|name| fabric.upsert(part(&format!("switch/{name}")), switch(name)));
        let nic = Equipment::Nic {
            guid: None,
            pci: Some("0000:10:00.0".parse().expect("an address")),
            rail: None,
        };
        let nic = fabric.upsert(part("nic/n1:mlx5_0"), nic);
        let host = fabric.upsert(part("host/n1"), Equipment::Host);
        let gpu = Equipment::Gpu {
            uuid: None,
            pci: Some("0000:20:00.0".parse().expect("an address")),
        };
        let gpu = fabric.upsert(part("gpu/n1:1"), gpu);
        for device in [nic, gpu] {
            let inside = Link::plain(LinkKind::Inside, Witness::Exporter, Timestamp(0));
            fabric.connect(host, device, inside);
        }
        let cable = |ports| Link::cable(ports, None, Witness::Subnet, Timestamp(0));
        fabric.connect(nic, leaf, cable((1, 1)));
        fabric.connect(leaf, spine, cable((33, 1)));
        fabric.connect(spine, far, cable((2, 33)));
        fabric
    }

    #[test]
    fn a_port_that_carries_more_does_so_for_one_of_its_node_that_is_down() {
        let explained = |down: &'static Class, at: &str| {
            let busy = found("test", &NOISY_NEIGHBOR, EDGE, &[]);
            let findings = [busy, found("test", down, at, &[])];
            explained_by_others(&fabric(), &findings).remove(&part(EDGE))
        };
        let other = "link/n1:mlx5_1/1";
        assert_eq!(explained(&PORT_DOWN, other), Some(part(other)));
        assert_eq!(explained(&PORT_DOWN, "link/n2:mlx5_1/1"), None);
        assert_eq!(explained(&LINK_ERRORS, other), None);
    }

    #[test]
    fn a_host_without_receive_buffers_waits_for_its_nic_that_back_pressures() {
        let explained = |own: &'static Class, slow: &str| {
            let unready = found("test", &RECEIVER_NOT_READY, "host/n1", &[]);
            let slow = found("test", &SLOW_RECEIVER, slow, &[]);
            let findings = [unready, slow, found("test", own, "host/n1", &[])];
            explained_by_others(&fabric(), &findings).remove(&part("host/n1"))
        };
        for slow in [NIC, PCIE] {
            assert_eq!(explained(&RECEIVER_NOT_READY, slow), Some(part(slow)));
        }
        assert_eq!(explained(&RECEIVER_NOT_READY, "nic/n2:mlx5_0"), None);
        let behind_gpu = [
            found("test", &RECEIVER_NOT_READY, "host/n1", &[]),
            found("test", &SLOW_RECEIVER, NIC, &[]),
            found("test", &PCIE_ERRORS, "gpu/n1:1", &[]),
        ];
        let root = explained_by_others(&fabric(), &behind_gpu).remove(&part("host/n1"));
        assert_eq!(root, Some(part("gpu/n1:1")));
        // The host has trouble of its own.
        assert_eq!(explained(&GPU_SLOW, NIC), None);
    }

    const EDGE: &str = "link/n1:mlx5_0/1";
    const NIC: &str = "nic/n1:mlx5_0";
    const PCIE: &str = "pcie/n1:0000:10:00.0";

    /// The part to which what probes report about another belongs, if others name these.
    fn belongs_to(
        probed: (&'static Class, &str),
        others: &[(&'static Class, &str)],
    ) -> Option<Part> {
        said_by(probe_paths::NAME, probed, others)
    }

    /// The same of what a detector reports.
    fn said_by(
        detector: &'static str,
        probed: (&'static Class, &str),
        others: &[(&'static Class, &str)],
    ) -> Option<Part> {
        let mut findings = vec![found(detector, probed.0, probed.1, &[])];
        let others = others.iter();
        findings.extend(others.map(|(class, named)| found("other", class, named, &[])));
        explained_by_others(&fabric(), &findings).remove(&part(probed.1))
    }

    #[test]
    fn a_nic_that_back_pressures_belongs_to_the_gpu_behind_it_whose_link_counts_errors() {
        let mut fabric = fabric();
        let (pci, uuid) = (None, None);
        let gpu = fabric.upsert(part("gpu/n1:0"), Equipment::Gpu { pci, uuid });
        let nic = fabric.find(&part(NIC)).expect("the NIC");
        let near = Link::plain(LinkKind::Pcie, Witness::Exporter, Timestamp(0));
        fabric.connect(nic, gpu, near);
        let of_nic = |class: &'static Class, at: &str| {
            let waits = found("test", &SLOW_RECEIVER, NIC, &[]);
            let findings = [waits, found("test", class, at, &[])];
            explained_by_others(&fabric, &findings).remove(&part(NIC))
        };
        assert_eq!(of_nic(&PCIE_ERRORS, "gpu/n1:0"), Some(part("gpu/n1:0")));
        assert_eq!(of_nic(&PCIE_ERRORS, "gpu/n1:1"), None);
        assert_eq!(of_nic(&LINK_ERRORS, "link/leaf:33"), None);
        // Which GPUs another NIC of the node serves is not known.
        let of_other = |at: &str| {
            let waits = found("test", &SLOW_RECEIVER, "nic/n1:mlx5_1", &[]);
            let findings = [waits, found("test", &PCIE_ERRORS, at, &[])];
            explained_by_others(&fabric, &findings).remove(&part("nic/n1:mlx5_1"))
        };
        assert_eq!(of_other("gpu/n1:1"), Some(part("gpu/n1:1")));
        assert_eq!(of_other("gpu/n2:1"), None);
    }

    #[test]
    fn a_nic_that_back_pressures_waits_for_the_narrow_link_of_a_gpu_that_it_may_serve() {
        const OF_GPU: &str = "pcie/n1:0000:20:00.0";
        let waits = (&SLOW_RECEIVER, NIC);
        let root = |class, at| said_by("test", waits, &[(class, at)]);
        assert_eq!(root(&PCIE_DEGRADED, OF_GPU), Some(part(OF_GPU)));
        // Of two that wait, which one waits for the GPU is not known.
        let two: &[(&'static Class, &str)] =
            &[(&PCIE_DEGRADED, OF_GPU), (&SLOW_RECEIVER, "nic/n1:mlx5_1")];
        assert_eq!(said_by("test", waits, two), None);
        // The link of another NIC, and of another node.
        assert_eq!(root(&PCIE_DEGRADED, "pcie/n1:0000:30:00.0"), None);
        assert_eq!(root(&PCIE_DEGRADED, "pcie/n2:0000:20:00.0"), None);
        // Packets may be marked for other reasons.
        let marked = (&PATH_SLOW, NIC);
        let others: &[(&'static Class, &str)] = &[(&PCIE_DEGRADED, OF_GPU)];
        assert_eq!(said_by(marked_nics::NAME, marked, others), None);
    }

    #[test]
    fn packets_marked_before_a_nic_belong_to_what_delays_them() {
        let marked = |others: &[(&'static Class, &str)]| {
            said_by(marked_nics::NAME, (&PATH_SLOW, EDGE), others)
        };
        assert_eq!(marked(&[]), None);
        for (class, other) in [
            (&GPU_SLOW, "gpu/n2:0"),
            // It loses packets, and does not delay them.
            (&LINK_ERRORS, "link/leaf:33"),
            // It does not join the NIC's leaf.
            (&PATH_SLOW, "link/spine:2"),
        ] {
            assert_eq!(marked(&[(class, other)]), None);
        }
        for (class, cause) in [
            (&PATH_SLOW, "link/leaf:33"),
            (&SLOW_RECEIVER, NIC),
            (&PCIE_DEGRADED, PCIE),
        ] {
            assert_eq!(marked(&[(class, cause)]), Some(part(cause)));
        }
    }

    #[test]
    fn what_probes_see_belongs_to_the_part_that_counters_name() {
        let uplink = "link/leaf:33";
        for (probed, others, expected) in [
            ((&EDGE_LOSSY, EDGE), &[][..], None),
            ((&EDGE_LOSSY, EDGE), &[(&PFC_STORM, NIC)], Some(NIC)),
            ((&EDGE_LOSSY, EDGE), &[(&PCIE_ERRORS, PCIE)], Some(PCIE)),
            (
                (&EDGE_LOSSY, EDGE),
                &[(&PCIE_ERRORS, "pcie/n1:0000:20:00.0")],
                None,
            ),
            ((&EDGE_LOSSY, EDGE), &[(&PFC_STORM, "nic/n2:mlx5_0")], None),
            // What counters name, too, needs no other part.
            (
                (&EDGE_LOSSY, EDGE),
                &[(&PFC_STORM, NIC), (&LINK_ERRORS, EDGE)],
                None,
            ),
            (
                (&UPLINK_LOSSY, uplink),
                &[(&UPLINK_LOSSY, "switch/spine")],
                Some("switch/spine"),
            ),
            (
                (&UPLINK_LOSSY, "switch/leaf"),
                &[(&UPLINK_LOSSY, uplink)],
                Some(uplink),
            ),
            (
                (&UPLINK_LOSSY, "switch/leaf"),
                &[(&LINK_ERRORS, EDGE)],
                None,
            ),
            // Pause delays all that send through the leaf, and loses nothing.
            ((&PATH_SLOW, "switch/leaf"), &[(&PFC_STORM, NIC)], Some(NIC)),
            (
                (&UPLINK_JITTER, uplink),
                &[(&SLOW_RECEIVER, PCIE)],
                Some(PCIE),
            ),
            (
                (&PATH_SLOW, "switch/leaf"),
                &[(&SLOW_RECEIVER, "host/n1")],
                Some("host/n1"),
            ),
            ((&PATH_SLOW, "switch/spine"), &[(&PFC_STORM, NIC)], None),
            ((&UPLINK_LOSSY, "switch/leaf"), &[(&PFC_STORM, NIC)], None),
        ] {
            let expected = expected.map(part);
            assert_eq!(
                belongs_to(probed, others),
                expected,
                "{probed:?} {others:?}"
            );
        }
    }
}

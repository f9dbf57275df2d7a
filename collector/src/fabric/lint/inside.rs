//! The inside of hosts beside that of their peers: which NIC each GPU uses, and which device sits in which slot.

use std::collections::BTreeMap;

use railscope_model::fabric::{Equipment, LinkKind};
use railscope_model::identity::{NodeName, Part, PciAddress};

use super::{Case, DEVICE_ORDER, Finding, GPU_NIC_AFFINITY, usual};

/// Hosts that can be compared: those of one class.
fn classes<'a>(
    case: &'a Case<'_>,
) -> BTreeMap<crate::fabric::graph::host_classes::HostRole, Vec<&'a NodeName>> {
    let mut classes: BTreeMap<_, Vec<&NodeName>> = BTreeMap::new();
    for (host, role) in case.survey.hosts.iter().zip(&case.shapes.roles) {
        classes.entry(*role).or_default().push(host.name);
    }
    classes
}

pub(super) fn check_affinity(case: &Case<'_>, out: &mut Vec<Finding>) {
    // GPU ordinal to its nearest NICs, as exporters report it. Where NICs sit reports more than what they are
    // called.
    let mut pairs: BTreeMap<&NodeName, Vec<Pair>> = BTreeMap::new();
    for (_, a, b, _) in case
        .fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Pcie)
    {
        let (a, b) = (case.fabric.vertex(a), case.fabric.vertex(b));
        let (gpu, nic) = match (&a.part, &b.part) {
            (Part::Gpu(..), Part::Nic(..)) => (a, b),
            _ => (b, a),
        };
        if let (Part::Gpu(node, gpu), Part::Nic(_, device), Equipment::Nic { pci, .. }) =
            (&gpu.part, &nic.part, &nic.equipment)
        {
            let name = device.to_string();
            let slot = pci.map_or_else(|| name.clone(), |pci| pci.to_string());
            pairs
                .entry(node)
                .or_default()
                .push((gpu.to_string(), slot, name));
        }
    }
    pairs.values_mut().for_each(|own| own.sort());
    let places = |own: &[Pair]| -> Vec<(String, String)> {
        own.iter()
            .map(|(gpu, slot, _)| (gpu.clone(), slot.clone()))
            .collect()
    };
    for hosts in classes(case).into_values() {
        let known: Vec<_> = hosts
            .iter()
            .filter_map(|host| Some((*host, pairs.get(host)?)))
            .collect();
        let Some(common) = usual(known.iter().map(|(_, own)| places(own))) else {
            continue;
        };
        let mut alike = known.iter().filter(|(_, own)| places(own) == common);
        let Some((_, peers)) = alike.next() else {
            continue;
        };
        for (host, own) in known.iter().filter(|(_, own)| places(own) != common) {
            let (differing, lost) = (only_in(own, peers), only_in(peers, own));
            out.push(Finding {
                rule: &GPU_NIC_AFFINITY,
                parts: vec![Part::Host((*host).clone())],
                sentence: format!("On {host}, GPUs are nearest to other NICs than on its peers."),
                evidence: vec![format!(
                    "here {}; on {} peers {}",
                    list(&differing),
                    known.len() - 1,
                    list(&lost)
                )],
            });
        }
    }
}

/// A GPU's ordinal, where its NIC sits, and what that is called.
type Pair = (String, String, String);

/// Pairs that the other host has not, as text.
fn only_in(one: &[Pair], other: &[Pair]) -> Vec<String> {
    let has = |(gpu, slot, _): &&Pair| {
        !other
            .iter()
            .any(|(other, there, _)| (other, there) == (gpu, slot))
    };
    let only = one.iter().filter(has);
    only.map(|(gpu, _, name)| format!("GPU {gpu} with {name}"))
        .collect()
}

fn list(items: &[String]) -> String {
    if items.is_empty() {
        "no such pair".to_owned()
    } else {
        items.join(", ")
    }
}

pub(super) fn check_device_order(case: &Case<'_>, out: &mut Vec<Finding>) {
    type Slots = BTreeMap<String, PciAddress>;
    let mut slots: BTreeMap<&NodeName, Slots> = BTreeMap::new();
    for (_, vertex) in case.fabric.vertices() {
        if let (Part::Nic(node, device), Equipment::Nic { pci: Some(pci), .. }) =
            (&vertex.part, &vertex.equipment)
        {
            slots
                .entry(node)
                .or_default()
                .insert(device.to_string(), *pci);
        }
    }
    let sorted = |own: &Slots| {
        let mut addresses: Vec<_> = own.values().copied().collect();
        addresses.sort_unstable();
        addresses
    };
    for hosts in classes(case).into_values() {
        let known: Vec<_> = hosts
            .iter()
            .filter_map(|host| Some((*host, slots.get(host)?)))
            .collect();
        let Some(peers) = usual(known.iter().map(|(_, own)| *own)) else {
            continue;
        };
        for (host, own) in &known {
            // Another board has other addresses; only the same slots under other names are a wrong order.
            if *own == peers || sorted(own) != sorted(peers) {
                continue;
            }
            let moved: Vec<_> = own
                .iter()
                .filter(|(device, pci)| peers.get(*device) != Some(*pci))
                .collect();
            let said = moved
                .iter()
                .map(|(device, pci)| format!("{device} is at {pci}"));
            let said: Vec<String> = said.collect();
            out.push(Finding {
                rule: &DEVICE_ORDER,
                parts: moved
                    .iter()
                    .filter_map(|(device, _)| {
                        Some(Part::Nic((*host).clone(), device.parse().ok()?))
                    })
                    .collect(),
                sentence: format!(
                    "On {host}, devices have each other's names: {}.",
                    said.join(", ")
                ),
                evidence: vec![format!(
                    "{} peers have the same slots under other names",
                    known.len() - 1
                )],
            });
        }
    }
}

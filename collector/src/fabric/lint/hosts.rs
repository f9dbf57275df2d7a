//! Cables of hosts, by rail: missing ones, ones on the leaf of another rail or unit, pairs that are exchanged.

use std::collections::BTreeSet;

use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::plan::Socket;

use super::{
    ABSENT_DEVICE, CROSS_RAIL, Case, Finding, MISSING_CABLE, MOVED_CABLE, SWAPPED_CABLES, cable_at,
};
use crate::fabric::classify::rails::Misplaced;
use crate::fabric::subnet::counted;

pub(super) fn check(case: &Case<'_>, out: &mut Vec<Finding>) {
    let wiring = &case.verdict.wiring;
    if case.whole {
        out.extend(missing(case));
    }
    let mut told: BTreeSet<(&NodeName, &RdmaDevice)> = BTreeSet::new();
    for wrong in &wiring.misplaced {
        if !told.contains(&(&wrong.host, &wrong.device)) {
            out.push(misplaced(case, wrong));
        }
        if let Some((host, device)) = &wrong.swapped_with {
            told.insert((host, device));
        }
    }
}

fn missing(case: &Case<'_>) -> Vec<Finding> {
    let wiring = &case.verdict.wiring;
    let cables = wiring
        .missing
        .iter()
        .filter(|missing| !missing.leaf_absent)
        .map(|missing| Finding {
            rule: &MISSING_CABLE,
            parts: vec![link(case, &missing.host, &missing.device)],
            sentence: format!("{missing}."),
            evidence: vec![format!(
                "its peers all have a cable at {}, on the leaf of rail {}",
                missing.device, missing.rail
            )],
        });
    let leaves = wiring.absent_leaves.iter().map(|leaf| {
        let hosts = wiring
            .missing
            .iter()
            .filter(|missing| missing.leaf_absent && missing.rail == leaf.rail);
        Finding {
            rule: &ABSENT_DEVICE,
            parts: hosts
                .map(|missing| link(case, &missing.host, &missing.device))
                .collect(),
            sentence: format!("{leaf}."),
            evidence: vec![format!(
                "{} beside it have a leaf for every other rail",
                counted(leaf.beside.len(), "leaf", "leaves")
            )],
        }
    });
    cables.chain(leaves).collect()
}

fn misplaced(case: &Case<'_>, wrong: &Misplaced) -> Finding {
    let rule = match &wrong.swapped_with {
        Some(_) => &SWAPPED_CABLES,
        None if wrong.leaf_rail.is_some_and(|rail| rail != wrong.rail) => &CROSS_RAIL,
        None => &MOVED_CABLE,
    };
    let mut parts = vec![link(case, &wrong.host, &wrong.device)];
    if let Some((host, device)) = &wrong.swapped_with {
        parts.push(link(case, host, device));
    }
    let leaf = case.verdict.wiring.rail_of_leaf(&wrong.leaf);
    let others = leaf.map(|leaf| {
        format!(
            "{} other NICs on {} are of rail {}",
            leaf.nics, wrong.leaf, leaf.rail
        )
    });
    Finding {
        rule,
        parts,
        sentence: format!("{wrong}."),
        evidence: others.into_iter().collect(),
    }
}

/// The cable of a device, by the port that has one.
fn link(case: &Case<'_>, host: &NodeName, device: &RdmaDevice) -> Part {
    let nic = Part::Nic(host.clone(), device.clone());
    let id = case.fabric.find(&nic);
    let mut cables = id.into_iter().flat_map(|id| case.fabric.cables(id));
    let port = cables.next().map(|near| near.port);
    cable_at(&Socket {
        part: nic,
        port: port.unwrap_or(1).into(),
    })
}

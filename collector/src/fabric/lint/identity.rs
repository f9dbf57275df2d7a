//! Devices that claim the same GUID, and cables from a switch to itself.

use std::collections::BTreeMap;

use railscope_model::fabric::Equipment;
use railscope_model::identity::{Guid, Part};

use super::{Case, DUPLICATE_GUID, Finding, SELF_LOOP};

pub(super) fn check_guids(case: &Case<'_>, out: &mut Vec<Finding>) {
    let mut owners: BTreeMap<Guid, Vec<Part>> = BTreeMap::new();
    for (_, vertex) in case.fabric.vertices() {
        if let Equipment::Nic { guid: Some(guid), .. } | Equipment::Switch { guid: Some(guid), .. } = vertex.equipment
            // A virtual function that has none yet reports zero.
            && guid.0 != 0
        {
            owners.entry(guid).or_default().push(vertex.part.clone());
        }
    }
    for (guid, mut parts) in owners.into_iter().filter(|(_, parts)| parts.len() > 1) {
        parts.sort();
        let names: Vec<_> = parts.iter().map(ToString::to_string).collect();
        out.push(Finding {
            rule: &DUPLICATE_GUID,
            sentence: format!("{} all have the node GUID {guid}.", names.join(" and ")),
            evidence: Vec::new(),
            parts,
        });
    }
}

pub(super) fn check_loops(case: &Case<'_>, out: &mut Vec<Finding>) {
    for own in &case.verdict.self_loops {
        out.push(Finding {
            rule: &SELF_LOOP,
            parts: vec![Part::SwitchLink(own.switch.clone(), own.ports.0.clone())],
            sentence: format!(
                "Port {} of {} is cabled to port {} of the same switch.",
                own.ports.0, own.switch, own.ports.1
            ),
            evidence: Vec::new(),
        });
    }
}

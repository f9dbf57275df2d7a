//! Errors that switches count on their ports: of the cable there, unless what came in was broken before.

use std::collections::BTreeMap;

use railscope_model::fabric::Fabric;
use railscope_model::identity::{Part, SwitchName};
use railscope_model::reading::Labels;

use super::limits::{LIMITS, Limit, Names};
use super::{Rise, rises_of};
use crate::detect::detector::View;
use crate::detect::port_series::link_at;
use crate::detect::registry::Threshold;

/// Share of the broken frames of a port of which as many must have come in at the switch before it to be the same.
const SAME_FRAMES: f64 = 0.5;

/// The number.
pub(super) fn threshold() -> Threshold {
    Threshold::new(
        "share of the errors that arrived at the sending switch over one cable, less than",
        SAME_FRAMES,
        "of all",
        "a cut-through switch forwards corrupted frames (a choice)",
    )
}

/// Increases on all switches, by limit.
pub(super) fn observe(view: &View<'_>, all: &mut [Vec<Rise>; LIMITS.len()]) {
    for (limit, high) in LIMITS.iter().zip(all) {
        rises(view, limit, limit.at_least, high);
    }
}

/// Increases that a limit evaluates, of ports with at least `least`.
pub(super) fn rises(view: &View<'_>, limit: &Limit, least: f64, rises: &mut Vec<Rise>) {
    if limit.names != Names::SwitchPort {
        return;
    }
    for (switch, history) in view.history.fresh_switches(view.now) {
        // Peers without errors count, too.
        if least > 0.0 && history.moving(limit.metric).next().is_none() {
            continue;
        }
        let begin = rises.len();
        let link = |labels: &Labels| link_at(view.fabric, switch, labels.values().next()?);
        rises_of(history, limit, least, link, rises);
        for rise in &mut rises[begin..] {
            rise.seen_at = Some(switch.clone());
        }
    }
}

/// Omits cables on which a switch sends frames that came to it broken: one that forwards a frame
/// before it has all of it passes it on, and each switch behind counts it.
pub(super) fn leave_out_passed_on(fabric: &Fabric, rises: &mut Vec<Rise>) {
    let mut received: BTreeMap<SwitchName, Vec<(Part, f64)>> = BTreeMap::new();
    for rise in rises.iter() {
        if let Some(switch) = &rise.seen_at {
            let cables = received.entry(switch.clone()).or_default();
            cables.push((rise.part.clone(), rise.amount));
        }
    }
    rises.retain(|rise| {
        let sender = rise
            .seen_at
            .as_ref()
            .and_then(|at| sender(fabric, &rise.part, at));
        let before = sender.and_then(|sender| received.get(&sender));
        let is_same = |(cable, amount): &(Part, f64)| {
            *cable != rise.part && *amount >= SAME_FRAMES * rise.amount
        };
        !before.is_some_and(|before| before.iter().any(is_same))
    });
}

/// The switch at the other end of a cable.
fn sender(fabric: &Fabric, cable: &Part, receiver: &SwitchName) -> Option<SwitchName> {
    let (near, far) = fabric.find_cable(cable)?;
    let ends = [near, far.peer].map(|id| &fabric.vertex(id).part);
    ends.into_iter().find_map(|end| match end {
        Part::Switch(switch) if switch != receiver => Some(switch.clone()),
        _ => None,
    })
}

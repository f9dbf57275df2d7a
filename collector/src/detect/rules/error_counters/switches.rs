//! Errors that switches count on their ports: of the cable there, unless what came in was broken before.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Neighbor, PartId};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::reading::Labels;

use super::limits::{LIMITS, Limit, Names};
use super::{Rise, evidence, rises_of};
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::link_at;
use crate::detect::registry::Threshold;

/// Share of the broken frames of a port of which as many must have come in at the switch before it to be the same.
const SAME_FRAMES: f64 = 0.5;

/// Share of a switch's cables to other switches that have errors above which it is the switch, and fewest of them.
const SHARE_OF_SWITCH: f64 = 0.5;
const FEWEST_OF_SWITCH: usize = 3;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 3] {
    [
        Threshold::new(
            "share of the errors that arrived at the sending switch over one cable, less than",
            SAME_FRAMES,
            "of all",
            "a cut-through switch forwards corrupted frames (a choice)",
        ),
        Threshold::new(
            "share of a switch's cables to other switches above which the switch is reported",
            SHARE_OF_SWITCH,
            "of all",
            "cables fail one by one (a choice)",
        ),
        Threshold::new(
            "and fewest of them",
            FEWEST_OF_SWITCH as f64,
            "cables",
            "cables fail one by one (a choice)",
        ),
    ]
}

/// A switch with errors on most of its cables to other switches.
pub(super) struct Whole {
    switch: PartId,
    /// What its cables have.
    rises: Vec<Rise>,
    /// How many such cables it has.
    cables: usize,
}

impl Whole {
    /// What is reported of it.
    pub(super) fn evidence(self, view: &View<'_>, limit: &Limit, usual_per_hour: f64) -> Evidence {
        let sum = |of: fn(&Rise) -> f64| self.rises.iter().map(of).sum();
        let bad: BTreeSet<Part> = self.rises.iter().map(|rise| rise.part.clone()).collect();
        let seconds: f64 = sum(|rise| rise.seconds);
        let all = Rise {
            part: view.fabric.vertex(self.switch).part.clone(),
            seen_at: None,
            amount: sum(|rise| rise.amount),
            seconds: seconds / self.rises.len() as f64,
        };
        let part = all.part.clone();
        let mut evidence = evidence(view, all, limit, usual_per_hour);
        evidence.statement = format!(
            "{} of the {} cables between {part} and other switches have errors: {}",
            bad.len(),
            self.cables,
            evidence.statement
        );
        evidence.related = bad.into_iter().collect();
        evidence
    }
}

/// Takes the cables of switches out that have errors on most of their cables to other switches.
pub(super) fn take_whole(fabric: &Fabric, rises: &mut Vec<Rise>) -> Vec<Whole> {
    let mut found = Vec::new();
    while let Some((switch, cables)) = worst(fabric, rises) {
        let is_its = |rise: &Rise| {
            switches_of(fabric, &rise.part).is_some_and(|ends| ends.contains(&switch))
        };
        let (own, others) = std::mem::take(rises).into_iter().partition(is_its);
        *rises = others;
        found.push(Whole {
            switch,
            rises: own,
            cables,
        });
    }
    found
}

/// The switch with the largest share of cables with errors, if that is most of them, and the number of its cables. None if two have the
/// same, and where a bundle to one switch has errors: it may be either.
fn worst(fabric: &Fabric, rises: &[Rise]) -> Option<(PartId, usize)> {
    // Both ends of a cable may have counted.
    let mut with_errors: BTreeMap<PartId, BTreeMap<&Part, PartId>> = BTreeMap::new();
    for rise in rises {
        if let Some([one, other]) = switches_of(fabric, &rise.part) {
            for (near, far) in [(one, other), (other, one)] {
                with_errors.entry(near).or_default().insert(&rise.part, far);
            }
        }
    }
    let mut most: Vec<_> = with_errors
        .into_iter()
        .filter_map(|(switch, bad)| {
            let cables = between_switches(fabric, switch);
            let share = bad.len() as f64 / cables as f64;
            let peers: BTreeSet<PartId> = bad.values().copied().collect();
            let is_most = bad.len() >= FEWEST_OF_SWITCH && share > SHARE_OF_SWITCH;
            (is_most && peers.len() > 1).then_some((share, bad.len(), switch, cables))
        })
        .collect();
    most.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let (share, count, switch, cables) = *most.first()?;
    let second = most.get(1);
    let is_alone = second.is_none_or(|second| (second.0, second.1) != (share, count));
    is_alone.then_some((switch, cables))
}

/// The ends of a cable between two switches.
fn switches_of(fabric: &Fabric, cable: &Part) -> Option<[PartId; 2]> {
    let (near, far) = fabric.find_cable(cable)?;
    let ends = [near, far.peer];
    ends.iter()
        .all(|end| matches!(fabric.vertex(*end).part, Part::Switch(_)))
        .then_some(ends)
}

/// How many cables in use a switch has to other switches.
fn between_switches(fabric: &Fabric, switch: PartId) -> usize {
    let to_switch = |near: &Neighbor<'_>| {
        near.link.is_present() && matches!(fabric.vertex(near.peer).part, Part::Switch(_))
    };
    fabric.cables(switch).filter(to_switch).count()
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

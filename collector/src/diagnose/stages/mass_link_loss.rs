//! Mass link loss: links of many switches and hosts that go down simultaneously are one incident.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Fabric;
use railscope_model::identity::Part;

use super::maintenance::ends_of_cables;
use crate::diagnose::incident::{CLOSE_AFTER_TICKS, Finding};
use crate::diagnose::stages::lost_links::is_lost_cable;

/// Simultaneous link losses from which it is a mass link loss.
pub const STORM_CABLES: usize = 50;
/// Lost cables below which it is over: half, so that it does not come and go.
pub(crate) const STILL_A_STORM: usize = STORM_CABLES / 2;

/// A mass link loss that lasts.
#[derive(Debug)]
struct Storm {
    root: Part,
    cables: BTreeSet<Part>,
    ticks: u32,
}

/// Tracks mass link losses over ticks; at most one lasts at a time.
#[derive(Debug, Default)]
pub(crate) struct Storms {
    current: Option<Storm>,
    ticks: u32,
}

type Groups = BTreeMap<Part, Vec<Finding>>;

impl Storms {
    /// Merges the cables of a mass link loss into the group of one part, and reports which. `known`
    /// reports the parts of incidents that are older than this moment.
    pub(crate) fn fold<'a>(
        &mut self,
        fabric: &Fabric,
        groups: &mut Groups,
        known: impl Fn() -> BTreeSet<&'a Part>,
    ) -> Option<Part> {
        self.ticks = self.ticks.saturating_add(1);
        let lost: BTreeSet<Part> = groups
            .values()
            .flatten()
            .filter(|found| is_lost_cable(found.evidence.class))
            .map(|found| found.evidence.part.clone())
            .collect();
        match &mut self.current {
            Some(storm) => {
                storm.ticks = storm.ticks.saturating_add(1);
                if storm.ticks <= CLOSE_AFTER_TICKS {
                    let known = known();
                    let more = lost.iter().filter(|cable| !known.contains(cable));
                    storm.cables.extend(more.cloned());
                }
                if storm.cables.intersection(&lost).count() < STILL_A_STORM {
                    self.current = None;
                }
            }
            // When a run begins, it is unknown since when cables are missing.
            None if lost.len() >= STORM_CABLES && self.ticks > CLOSE_AFTER_TICKS => {
                let known = known();
                let new: BTreeSet<Part> = lost.into_iter().filter(|c| !known.contains(c)).collect();
                self.current = (new.len() >= STORM_CABLES)
                    .then(|| root_of(fabric, &new))
                    .flatten()
                    .map(|root| Storm {
                        root,
                        cables: new,
                        ticks: 0,
                    });
            }
            None => {}
        }
        let storm = self.current.as_ref()?;
        let mut folded = Vec::new();
        groups.retain(|_, findings| {
            let of_storm = |found: &mut Finding| {
                is_lost_cable(found.evidence.class) && storm.cables.contains(&found.evidence.part)
            };
            folded.extend(findings.extract_if(.., of_storm));
            !findings.is_empty()
        });
        groups.entry(storm.root.clone()).or_default().extend(folded);
        Some(storm.root.clone())
    }
}

/// The part that names a mass link loss; none if all cables are connected to one part: then it is that part's
/// fault alone.
///
/// It is the switch or host at which most of the cables end, if that is half of them; else the switch that is a
/// neighbor of most of them, and of several the highest.
fn root_of(fabric: &Fabric, cables: &BTreeSet<Part>) -> Option<Part> {
    let ends = ends_of_cables(fabric);
    let devices = |cable: &Part| -> Vec<Part> {
        let ends = ends.get(cable).into_iter().flatten();
        let device = |part: &Part| {
            part.node()
                .map_or(part.clone(), |node| Part::Host(node.clone()))
        };
        ends.map(device).collect()
    };
    let mut touched: BTreeMap<Part, usize> = BTreeMap::new();
    for part in cables.iter().flat_map(devices) {
        *touched.entry(part).or_default() += 1;
    }
    let (most, count) = touched
        .iter()
        .max_by_key(|(part, count)| (**count, Reverse(*part)))?;
    if *count == cables.len() {
        return None;
    }
    if 2 * count >= cables.len() {
        return Some(most.clone());
    }
    let mut near: BTreeMap<Part, BTreeSet<Part>> = BTreeMap::new();
    let mut has_hosts = BTreeSet::new();
    for cable in ends.keys() {
        let pair = devices(cable);
        let [a, b] = pair.as_slice() else { continue };
        for (part, other) in [(a, b), (b, a)] {
            if matches!(part, Part::Switch(_)) {
                let reached = near.entry(part.clone()).or_default();
                reached.extend([part.clone(), other.clone()]);
                if matches!(other, Part::Host(_)) {
                    has_hosts.insert(part.clone());
                }
            }
        }
    }
    let reach = |reached: &BTreeSet<Part>| {
        let near = cables
            .iter()
            .filter(|cable| devices(cable).iter().any(|part| reached.contains(part)));
        near.count()
    };
    let ranked = near
        .iter()
        .map(|(switch, reached)| (reach(reached), !has_hosts.contains(switch), Reverse(switch)));
    ranked.max().map(|(_, _, Reverse(switch))| switch.clone())
}

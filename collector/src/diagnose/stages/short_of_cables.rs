//! Drops at switches that have lost many of their cables to other switches: what went over these goes over the others, and overflows there.

use std::collections::BTreeMap;

use railscope_model::fabric::{Fabric, Neighbor, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_DISCARDS;

use crate::detect::detector::Evidence;
use crate::diagnose::stages::reattribute::leaves_of;

/// For how long drops are counted after the cables are back: windows of the detectors, and readings that are a minute apart.
const KEPT_SECONDS: f64 = 120.0;
/// For how long drops are those of lost cables: what drops for longer is a fault that persists (a choice).
const LONGEST_SECONDS: f64 = 900.0;
/// Share of its cables to other switches from which a switch is short of them: less adds little to the others (a choice).
const MANY: f64 = 0.125;
/// Share of the switches next to one that are short of cables, from which it carries what went elsewhere (a choice).
const MOST: f64 = 0.5;

/// Switches that are short of cables, with the first and the last time.
#[derive(Debug, Default)]
pub(super) struct ShortOfCables(BTreeMap<Part, [Timestamp; 2]>);

impl ShortOfCables {
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, [_, last]| now.seconds_since(*last) <= KEPT_SECONDS);
    }

    /// Notes the switches at a lost cable of an open incident that have lost many.
    pub(super) fn note(&mut self, fabric: &Fabric, lost: &Evidence, now: Timestamp) {
        for switch in leaves_of(fabric, &lost.part) {
            let Some(id) = fabric.find(&switch) else {
                continue;
            };
            let cables = between_switches(fabric, id);
            if share(cables.map(|near| !near.link.is_present())) >= MANY {
                self.0.entry(switch).or_insert([now; 2])[1] = now;
            }
        }
    }

    /// Whether these are drops at such a switch, at a cable of one, or at a switch that most are next to.
    pub(super) fn explains(&self, fabric: &Fabric, found: &Evidence, now: Timestamp) -> bool {
        if self.0.is_empty() || found.signal != SWITCH_PORT_DISCARDS.name {
            return false;
        }
        let is_short = |part: &Part| {
            let known = self.0.get(part);
            known.is_some_and(|[first, _]| now.seconds_since(*first) <= LONGEST_SECONDS)
        };
        let is_next_to_most = |id: PartId| {
            let peers = between_switches(fabric, id).map(|near| &fabric.vertex(near.peer).part);
            share(peers.map(is_short)) >= MOST
        };
        let at = leaves_of(fabric, &found.part);
        at.iter().any(is_short)
            || matches!(found.part, Part::Switch(_))
                && fabric.find(&found.part).is_some_and(is_next_to_most)
    }
}

/// Cables of a switch to other switches, lost ones included.
fn between_switches(fabric: &Fabric, switch: PartId) -> impl Iterator<Item = Neighbor<'_>> {
    let cables = fabric.cables(switch);
    cables.filter(|near| matches!(fabric.vertex(near.peer).part, Part::Switch(_)))
}

/// Share of those for which it is so; 0 of none.
fn share(all: impl Iterator<Item = bool>) -> f64 {
    let all: Vec<bool> = all.collect();
    let count = all.iter().filter(|is_so| **is_so).count();
    count as f64 / all.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use railscope_model::fabric::{Equipment, Link, Presence, Sighting, Witness};

    use super::*;
    use crate::classes::{PATH_SLOW, UPLINK_DOWN, UPLINK_LOSSY};
    use crate::detect::found::{found, part};

    /// Leaves `a` and `b` with cables to the spines `s` and `t`, of which those to `s` are lost, and a switch `far` with one to `other`.
    fn fabric() -> Fabric {
        let mut fabric = Fabric::default();
        let cables = [
            ("a", 1, "s", 1),
            ("a", 2, "t", 1),
            ("b", 1, "s", 2),
            ("b", 2, "t", 2),
            ("far", 1, "other", 1),
        ];
        for (one, port, other, far) in cables {
            let [one, other_end] = [one, other].map(|name| {
                let equipment = Equipment::Switch {
                    guid: None,
                    ports: 0,
                    description: String::new(),
                };
                fabric.upsert(part(&format!("switch/{name}")), equipment)
            });
            let mut link = Link::cable((port, far), None, Witness::Subnet, Timestamp(0));
            if other == "s" {
                let (at, says) = (Timestamp(0), Presence::Lost);
                link.seen_by
                    .set(Witness::Subnet, Some(Sighting { at, says }));
            }
            fabric.connect(one, other_end, link);
        }
        fabric
    }

    #[test]
    fn drops_near_lost_cables_are_of_these_while_they_are_lost_and_shortly_after() {
        let fabric = fabric();
        let lost = |on: &str| found("degraded-link", &UPLINK_DOWN, on, &[]).evidence;
        let drops = |on: &str| {
            let mut found = found("switch-ports", &UPLINK_LOSSY, on, &[]).evidence;
            found.signal = SWITCH_PORT_DISCARDS.name;
            found
        };
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let mut short = ShortOfCables::default();
        let t = || drops("switch/t");
        assert!(!short.explains(&fabric, &t(), at(0)));
        for cable in ["link/a:1", "link/b:1"] {
            short.note(&fabric, &lost(cable), at(10));
        }
        for near in ["switch/a", "switch/t", "link/a:2"] {
            assert!(short.explains(&fabric, &drops(near), at(10)), "{near}");
        }
        assert!(!short.explains(&fabric, &drops("switch/far"), at(10)));
        let late = found("probe-paths", &PATH_SLOW, "switch/t", &[]).evidence;
        assert!(!short.explains(&fabric, &late, at(10)), "no drops");
        short.forget(at(130));
        assert!(short.explains(&fabric, &t(), at(130)));
        short.forget(at(131));
        assert!(!short.explains(&fabric, &t(), at(131)));

        short.note(&fabric, &lost("link/far:1"), at(140));
        let far = || drops("switch/far");
        assert!(
            !short.explains(&fabric, &far(), at(140)),
            "its cable is present"
        );
        // A cable that waits for a spare hides nothing for ever.
        for seconds in [200, 1_101] {
            short.note(&fabric, &lost("link/a:1"), at(seconds));
        }
        assert!(!short.explains(&fabric, &drops("switch/a"), at(1_101)));
    }
}

//! Drops where cables are lost: what went over these goes over the others, and overflows there.

use std::collections::BTreeMap;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_DISCARDS;

use crate::classes::{PORT_DOWN, UPLINK_DOWN};
use crate::detect::detector::Evidence;
use crate::diagnose::stages::reattribute::leaves_of;

/// For how long drops are counted after the cables are back: windows of the detectors, and readings that are a minute apart.
const SECONDS: f64 = 120.0;

/// Switches that lost cables to other switches, each with the last time.
#[derive(Debug, Default)]
pub(super) struct ShortOfCables(BTreeMap<Part, Timestamp>);

impl ShortOfCables {
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, last| now.seconds_since(*last) <= SECONDS);
    }

    /// Notes what an open incident shows.
    pub(super) fn note(&mut self, fabric: &Fabric, found: &Evidence, now: Timestamp) {
        let is_lost = [&PORT_DOWN, &UPLINK_DOWN].contains(&found.class);
        if is_lost && matches!(found.part, Part::SwitchLink(..)) {
            let ends = leaves_of(fabric, &found.part).into_iter();
            self.0.extend(ends.map(|switch| (switch, now)));
        }
    }

    /// Whether these are drops at such a switch, at a cable of one, or at a switch next to one.
    pub(super) fn explains(&self, fabric: &Fabric, found: &Evidence) -> bool {
        if self.0.is_empty() || found.signal != SWITCH_PORT_DISCARDS.name {
            return false;
        }
        let near = |part: &Part| {
            let peers = fabric
                .find(part)
                .into_iter()
                .flat_map(|id| fabric.cables(id));
            peers.map(|near| &fabric.vertex(near.peer).part)
        };
        let at = leaves_of(fabric, &found.part);
        at.iter().any(|switch| {
            self.0.contains_key(switch) || near(switch).any(|peer| self.0.contains_key(peer))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{LINK_ERRORS, PATH_SLOW, UPLINK_LOSSY};
    use crate::detect::found::{found, part};
    use railscope_model::fabric::{Equipment, Link, Witness};

    /// Leaves `a` and `b` with a cable to each of the spines `s` and `t`, and a switch `far` with one to `other`.
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
            let [one, other] = [one, other].map(|name| {
                let equipment = Equipment::Switch {
                    guid: None,
                    ports: 0,
                    description: String::new(),
                };
                fabric.upsert(part(&format!("switch/{name}")), equipment)
            });
            let link = Link::cable((port, far), None, Witness::Subnet, Timestamp(0));
            fabric.connect(one, other, link);
        }
        fabric
    }

    #[test]
    fn drops_near_lost_cables_are_of_these_while_they_are_lost_and_shortly_after() {
        let fabric = fabric();
        let lost = found("degraded-link", &UPLINK_DOWN, "link/a:1", &[]).evidence;
        let drops = |on: &str| {
            let mut found = found("switch-ports", &UPLINK_LOSSY, on, &[]).evidence;
            found.signal = SWITCH_PORT_DISCARDS.name;
            found
        };
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let mut short = ShortOfCables::default();
        assert!(!short.explains(&fabric, &drops("switch/t")));
        short.note(&fabric, &lost, at(10));
        for near in ["switch/a", "switch/t", "link/a:2", "link/b:1"] {
            assert!(short.explains(&fabric, &drops(near)), "{near}");
        }
        assert!(!short.explains(&fabric, &drops("switch/far")));
        let late = found("probe-paths", &PATH_SLOW, "switch/t", &[]).evidence;
        assert!(!short.explains(&fabric, &late), "no drops");
        short.forget(at(130));
        assert!(short.explains(&fabric, &drops("switch/t")));
        short.forget(at(131));
        assert!(!short.explains(&fabric, &drops("switch/t")));

        let errors = found("error-counters", &LINK_ERRORS, "link/a:1", &[]).evidence;
        short.note(&fabric, &errors, at(140));
        assert!(!short.explains(&fabric, &drops("switch/t")), "it is there");
    }
}

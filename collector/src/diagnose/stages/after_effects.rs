//! What probes and transports still count of a fault that is over. Their window is longer than that of the
//! counters that named its part, so that losses of the past would open a separate incident once the
//! counters are quiet.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use crate::classes::signs::is_of_ends;
use crate::detect::rules::probe_paths;
use crate::diagnose::incident::Finding;

/// Parts that an open incident accounts for, each with the last time: those whose findings it explained, and its own unless
/// only probes named that.
#[derive(Debug, Default)]
pub(crate) struct AfterEffects(BTreeMap<Part, Timestamp>);

impl AfterEffects {
    /// Roots that only probes name, and that an open incident accounted for within the window of the probes: what was lost
    /// behind a dead switch is counted on each of its cables when it is back. They open no incident: a fault that is still
    /// there names its part after that time.
    pub(crate) fn among(
        &mut self,
        groups: &BTreeMap<Part, Vec<Finding>>,
        is_open: impl Fn(&Part) -> bool,
        now: Timestamp,
    ) -> BTreeSet<Part> {
        self.0
            .retain(|_, last| now.seconds_since(*last) <= probe_paths::WINDOW_SECONDS);
        for (root, findings) in groups.iter().filter(|(root, _)| is_open(root)) {
            let accounted = findings
                .iter()
                .filter(|found| found.evidence.part != *root || !is_of_ends(&found.evidence));
            let parts = accounted.map(|found| (found.evidence.part.clone(), now));
            self.0.extend(parts);
        }
        let is_after = |(root, findings): &(&Part, &Vec<Finding>)| {
            self.0.contains_key(*root)
                && findings.iter().all(|found| is_of_ends(&found.evidence))
                && !is_open(root)
        };
        let after = groups.iter().filter(is_after);
        after.map(|(root, _)| root.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{EDGE_LOSSY, LINK_ERRORS, PFC_STORM, PORT_DOWN};
    use crate::detect::found::{found, part};

    const NIC: &str = "nic/n1:mlx5_0";
    const LINK: &str = "link/n1:mlx5_0/1";

    #[test]
    fn losses_of_probes_that_an_open_incident_explained_open_none_after_it() {
        let probed = || found(probe_paths::NAME, &EDGE_LOSSY, LINK, &[]);
        let paused = || found("pause", &PFC_STORM, NIC, &[]);
        let errors = || found("error-counters", &LINK_ERRORS, LINK, &[]);
        let explained = || BTreeMap::from([(part(NIC), vec![paused(), probed()])]);
        let alone = |findings| BTreeMap::from([(part(LINK), findings)]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let [nic, link] = [part(NIC), part(LINK)];

        let mut known = AfterEffects::default();
        let mut among = |groups, open: &[&Part], seconds| {
            let after = known.among(&groups, |part| open.contains(&part), at(seconds));
            after.contains(&link)
        };
        // An explanation that is no incident yet may be noise.
        assert!(!among(explained(), &[], 0));
        assert!(!among(alone(vec![probed()]), &[], 1));

        assert!(!among(explained(), &[&nic], 10));
        assert!(among(alone(vec![probed()]), &[&nic], 20), "the rest of it");
        assert!(
            !among(alone(vec![probed(), errors()]), &[], 30),
            "counters say so, too"
        );
        assert!(!among(alone(vec![probed()]), &[&link], 40), "it is open");
        assert!(among(alone(vec![probed()]), &[], 160));
        assert!(
            !among(alone(vec![probed()]), &[], 161),
            "still lost: a fault of its own"
        );
    }

    #[test]
    fn losses_behind_a_dead_switch_open_none_when_it_is_back() {
        const SWITCH: &str = "switch/leaf-1";
        let down = |on: &str| found("port-state", &PORT_DOWN, on, &[]);
        let probed = || found(probe_paths::NAME, &EDGE_LOSSY, LINK, &[]);
        let dead = BTreeMap::from([(part(SWITCH), vec![down(LINK)])]);
        let alone = BTreeMap::from([(part(LINK), vec![probed()])]);
        let own = BTreeMap::from([(part(LINK), vec![down(LINK), probed()])]);
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let (switch, link) = (part(SWITCH), part(LINK));

        let mut known = AfterEffects::default();
        known.among(&dead, |part| *part == switch, at(0));
        let after = known.among(&alone, |part| *part == switch, at(100));
        assert!(after.contains(&link));
        assert!(known.among(&alone, |_| false, at(151)).is_empty());
        // The same of a cable whose port is up again.
        known.among(&own, |part| *part == link, at(200));
        assert!(known.among(&alone, |_| false, at(350)).contains(&link));
    }
}

//! What switches report of their neighbors, when each node and switch was last seen, and which are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};

use super::Analyzer;
use crate::fabric::Told;

impl Analyzer {
    /// Sets which switches there are besides those that nodes and subnet report; what the others
    /// reported is forgotten. One of them may be a target: then it is no host.
    pub fn set_switches(&mut self, switches: &[SwitchName]) {
        let old = std::mem::take(&mut self.switches);
        for switch in switches {
            let told = old.told.get(switch).cloned().flatten();
            self.switches.told.insert(switch.clone(), told);
        }
        self.switches_changed = true;
    }

    /// Ingests what a switch reported about its neighbors at `at`, or why it could not be read: then what it
    /// reported before stays.
    pub fn take_switch(&mut self, switch: &SwitchName, told: Result<Told, String>, at: Timestamp) {
        let known = self.switches.told.entry(switch.clone()).or_default();
        let before = (
            known.as_ref().map(|(told, _)| told),
            self.switches.problems.get(switch),
        );
        self.switches_changed |= match &told {
            Ok(told) => before != (Some(told), None),
            Err(problem) => before.1 != Some(problem),
        };
        match told {
            Ok(told) => {
                *known = Some((told, at));
                self.switches.problems.remove(switch);
            }
            Err(problem) => {
                self.switches.problems.insert(switch.clone(), problem);
            }
        }
    }

    /// Forgets nodes that no list names and no source has reported for too long.
    pub(super) fn forget_unspoken(&mut self, now: Timestamp) {
        let history = &self.history;
        let silent = |node: &NodeName| history.node(node).is_none_or(|node| !node.is_fresh(now));
        let silent: BTreeSet<_> = self
            .spoken_of
            .iter()
            .filter(|node| silent(node))
            .cloned()
            .collect();
        if !silent.is_empty() {
            self.spoken_of.retain(|node| !silent.contains(node));
            self.history.retain(|node| !silent.contains(node));
        }
    }

    /// When each switch that reports its neighbors was last seen.
    pub(super) fn switches_heard(&self) -> BTreeMap<SwitchName, Timestamp> {
        let told = self.switches.told.iter();
        let told = told.filter_map(|(switch, told)| Some((switch.clone(), told.as_ref()?.1)));
        let nodes = self.switch_nodes.iter().filter_map(|node| {
            let heard = self.history.node(node)?.heard()?;
            Some((node.as_str().parse().ok()?, heard))
        });
        told.chain(nodes).collect()
    }
}

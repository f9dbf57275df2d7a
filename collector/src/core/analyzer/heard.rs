//! Who was heard and when, and who is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};

use super::Analyzer;

impl Analyzer {
    /// Forgets nodes that no list names and nobody has spoken of for too long.
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

    /// When each switch that tells its neighbours was last heard.
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

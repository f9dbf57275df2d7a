//! What every node and every switch reported lately: by source and metric, columns of series by slots of
//! time.

mod column;
mod columns;
mod ingested;
mod node;
mod window;

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, RdmaDevice, SwitchName};

use crate::store::series_names::Shared;
use crate::store::source_id::Speaker;
use crate::store::time_axis::Reach;
pub use crate::store::time_axis::{
    MIN_STEP_SECONDS, SWITCH_WINDOW_SECONDS, WINDOW_PAGES, WINDOW_SECONDS,
};
pub use ingested::{BAD_LINES_LIMIT, Ingested};
pub(crate) use node::Place;
pub use node::{
    LastSample, NODE_SERIES_LIMIT, NodeHistory, Rows, STALE_AFTER_SECONDS, UNKNOWN_INTERVALS,
};
pub(crate) use window::sign_above;
pub use window::{Count, Increase, MAX_STEP, Quality, Window};

/// For so long a switch of which nothing is reported may start again, so that its cables are still there.
const SILENT_SWITCH_SECONDS: f64 = 900.0;

/// What all nodes and switches reported lately.
#[derive(Debug, Clone, Default)]
pub struct History {
    shared: Shared,
    nodes: BTreeMap<NodeName, NodeHistory>,
    switches: BTreeMap<SwitchName, NodeHistory>,
    /// Switches that became silent, and when they were dropped.
    silent: BTreeMap<SwitchName, Timestamp>,
    /// Adapters of hosts without an exporter, as a sweep of the subnet reads them.
    adapters: BTreeMap<(NodeName, RdmaDevice), NodeHistory>,
    /// Histories that were ever begun.
    born: u64,
}

impl History {
    /// The history of one node, created if missing.
    pub fn node_mut(&mut self, node: &NodeName) -> &mut NodeHistory {
        let new = || begin(&self.shared, Reach::default(), &mut self.born);
        self.nodes.entry(node.clone()).or_insert_with(new)
    }

    /// Forgets nodes that are no longer targets.
    pub fn retain(&mut self, keep: impl Fn(&NodeName) -> bool) {
        self.nodes.retain(|node, _| keep(node));
    }

    /// Notes which sources are no longer targets, of all nodes or of the one whose own exporter it was.
    pub(crate) fn release(&mut self, is_gone: impl Fn(&NodeName, &Speaker) -> bool) {
        for (node, history) in &mut self.nodes {
            history.release(|speaker| is_gone(node, speaker));
        }
    }

    /// The history of one node.
    pub fn node(&self, node: &NodeName) -> Option<&NodeHistory> {
        self.nodes.get(node)
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.nodes.iter()
    }

    /// Nodes that were seen lately enough to report something about now.
    pub fn fresh_nodes(&self, now: Timestamp) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.nodes
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
    }

    /// The history of one switch, created if missing.
    pub fn switch_mut(&mut self, switch: &SwitchName) -> &mut NodeHistory {
        let reach = Reach(SWITCH_WINDOW_SECONDS);
        let new = || begin(&Shared::default(), reach, &mut self.born);
        self.switches.entry(switch.clone()).or_insert_with(new)
    }

    /// The history of one switch.
    pub fn switch(&self, switch: &SwitchName) -> Option<&NodeHistory> {
        self.switches.get(switch)
    }

    /// All switches by name.
    pub fn switches(&self) -> impl Iterator<Item = (&SwitchName, &NodeHistory)> {
        self.switches.iter()
    }

    /// All adapters whose hosts have no exporter: node and history.
    pub fn adapters(&self) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.adapters
            .iter()
            .map(|((node, _), history)| (node, history))
    }

    /// Switches that were seen lately enough to report something about now.
    pub fn fresh_switches(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&SwitchName, &NodeHistory)> {
        self.switches
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
    }

    /// The history of an adapter whose host has no exporter, created if missing.
    pub fn adapter_mut(&mut self, node: &NodeName, device: &RdmaDevice) -> &mut NodeHistory {
        let new = || begin(&Shared::default(), Reach::default(), &mut self.born);
        let name = (node.clone(), device.clone());
        self.adapters.entry(name).or_insert_with(new)
    }

    /// Adapters whose hosts have no exporter and that were seen lately: node and history.
    pub fn fresh_adapters(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.adapters
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
            .map(|((node, _), history)| (node, history))
    }

    /// Whether a switch was dropped lately because it had become silent: it may start again.
    pub fn fell_silent(&self, switch: &SwitchName) -> bool {
        self.silent.contains_key(switch)
    }

    /// Drops switches and adapters without data for too long: unlike nodes, no list reports which there
    /// are.
    pub fn forget_silent(&mut self, now: Timestamp) {
        self.silent
            .retain(|_, since| now.seconds_since(*since) <= SILENT_SWITCH_SECONDS);
        self.switches.retain(|switch, history| {
            let is_fresh = history.is_fresh(now);
            if !is_fresh {
                self.silent.insert(switch.clone(), now);
            }
            is_fresh
        });
        self.adapters.retain(|_, history| history.is_fresh(now));
    }
}

fn begin(shared: &Shared, reach: Reach, born: &mut u64) -> NodeHistory {
    *born += 1;
    NodeHistory::sharing(shared, reach, *born)
}

pub(crate) mod page_cache;
pub mod per_node_cache;
pub(crate) mod series_names;
pub mod source_id;
#[cfg(test)]
mod tests;
pub(crate) mod time_axis;

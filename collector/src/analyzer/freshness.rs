//! Components with fresh data. A component without fresh data from any source is unknown, not healthy.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};

use super::Analyzer;
use crate::store::UNKNOWN_INTERVALS;

/// Read intervals in seconds of sources whose interval is not visible in their data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceIntervals {
    /// The subnet.
    pub subnet: f64,
    /// The LLDP neighbors of switches.
    pub switches: f64,
}

impl Default for SourceIntervals {
    /// For sources without a configuration.
    fn default() -> Self {
        Self {
            subnet: 200.0,
            switches: 200.0,
        }
    }
}

/// Components whose newest data is older than [`UNKNOWN_INTERVALS`] of its source, and components with fresh data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Nodes with their own exporter and without fresh data from it.
    pub unheard: BTreeSet<NodeName>,
    /// Nodes with fresh adapter counters from a sweep.
    pub swept: BTreeSet<NodeName>,
    /// Switches with fresh data from themselves, or about more than their cables.
    pub switches: BTreeSet<SwitchName>,
    /// Whether the last complete sweep is fresh.
    pub subnet: bool,
}

impl Analyzer {
    /// Sets the read intervals of sources.
    pub fn set_source_intervals(&mut self, intervals: SourceIntervals) {
        self.source_intervals = intervals;
    }

    pub(super) fn freshness(&self, now: Timestamp) -> Freshness {
        let history = &self.history;
        let within =
            |at: Timestamp, interval: f64| now.seconds_since(at) <= UNKNOWN_INTERVALS * interval;
        let unheard = history.nodes().filter(|(_, node)| !node.is_current(now));
        let swept = history.adapters().filter(|(_, node)| node.is_current(now));
        let counted = history.switches().filter(|(_, node)| node.is_current(now));
        let with_neighbors = self.switches.told.iter().filter(|(_, neighbors)| {
            let at = neighbors.as_ref().map(|(_, at)| *at);
            at.is_some_and(|at| within(at, self.source_intervals.switches))
        });
        let with_exporter = self.switch_nodes.iter().filter_map(|node| {
            let fresh = history.node(node).filter(|history| history.is_current(now));
            fresh.and_then(|_| node.as_str().parse().ok())
        });
        let named = counted.map(|(switch, _)| switch);
        let named = named
            .chain(with_neighbors.map(|(switch, _)| switch))
            .cloned();
        Freshness {
            unheard: unheard.map(|(node, _)| node.clone()).collect(),
            swept: swept.map(|(node, _)| node.clone()).collect(),
            switches: named.chain(with_exporter).collect(),
            subnet: (self.subnet_seen)
                .is_some_and(|seen| within(seen, self.source_intervals.subnet)),
        }
    }
}

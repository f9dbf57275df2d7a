//! Of which parts the evidence is new enough to say anything about now: what nobody has spoken of lately is unknown, not well.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};

use super::Analyzer;
use crate::store::UNKNOWN_INTERVALS;

/// How often sources are read that do not show it themselves, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceIntervals {
    /// The subnet.
    pub subnet: f64,
    /// The neighbours that switches tell.
    pub switches: f64,
}

impl Default for SourceIntervals {
    /// Of sources that nobody configured.
    fn default() -> Self {
        Self {
            subnet: 200.0,
            switches: 200.0,
        }
    }
}

/// Of what the evidence is older than [`UNKNOWN_INTERVALS`] of its source, and of what it is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Nodes that speak by exporters of their own, and did not lately.
    pub unheard: BTreeSet<NodeName>,
    /// Nodes of whose adapters a sweep has read the counters lately.
    pub swept: BTreeSet<NodeName>,
    /// Switches that spoke lately, or were spoken of by more than their cables.
    pub switches: BTreeSet<SwitchName>,
    /// Whether the subnet was read to the end lately.
    pub subnet: bool,
}

impl Analyzer {
    /// Says how often sources are read.
    pub fn set_source_intervals(&mut self, intervals: SourceIntervals) {
        self.source_intervals = intervals;
    }

    pub(super) fn freshness(&self, now: Timestamp) -> Freshness {
        let history = &self.history;
        let within =
            |at: Timestamp, interval: f64| now.seconds_since(at) <= UNKNOWN_INTERVALS * interval;
        let unheard = history.nodes().filter(|(_, said)| !said.is_current(now));
        let swept = history.adapters().filter(|(_, said)| said.is_current(now));
        let counted = history.switches().filter(|(_, said)| said.is_current(now));
        let told = self.switches.told.iter().filter(|(_, told)| {
            let at = told.as_ref().map(|(_, at)| *at);
            at.is_some_and(|at| within(at, self.source_intervals.switches))
        });
        let speaking = self.switch_nodes.iter().filter_map(|node| {
            let said = history.node(node).filter(|said| said.is_current(now));
            said.and_then(|_| node.as_str().parse().ok())
        });
        let named = counted.map(|(switch, _)| switch);
        let named = named.chain(told.map(|(switch, _)| switch)).cloned();
        Freshness {
            unheard: unheard.map(|(node, _)| node.clone()).collect(),
            swept: swept.map(|(node, _)| node.clone()).collect(),
            switches: named.chain(speaking).collect(),
            subnet: (self.subnet_seen)
                .is_some_and(|seen| within(seen, self.source_intervals.subnet)),
        }
    }
}

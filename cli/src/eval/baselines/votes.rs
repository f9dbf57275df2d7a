//! 007-like: flows that retransmit vote for the cables that they cross.

use std::collections::BTreeMap;
use std::sync::Arc;

use railscope_model::identity::Part;

use super::super::alarm::Naming;
use super::super::frame::{Column, Frame, Layout};
use super::Baseline;

/// A cable is bad while it has at least this share of all votes (007, NSDI 2018: 1 %).
const SHARE: f64 = 0.01;

/// 007-like. A flow is bad if its sender counts sequence errors or acknowledgement time-outs; counters are
/// by port, so that all flows of a port are bad together.
pub(super) struct Votes {
    layout: Arc<Layout>,
}

impl Votes {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout }
    }
}

impl Baseline for Votes {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let errors = [Column::SequenceErrors, Column::Retransmits].map(|c| frame.column(c));
        let is_bad = |port: &usize| errors.iter().any(|column| column[*port] > 0.0);
        let bad = (0..self.layout.flows.len()).filter(is_bad);
        let mut flows: Vec<&Vec<Part>> = bad.flat_map(|port| &self.layout.flows[port]).collect();
        let all: f64 = flows.iter().filter(|path| !path.is_empty()).count() as f64;
        let mut named = Vec::new();
        loop {
            let mut votes: BTreeMap<&Part, f64> = BTreeMap::new();
            for path in &flows {
                for cable in *path {
                    *votes.entry(cable).or_default() += 1.0 / path.len() as f64;
                }
            }
            let most = votes.values().copied().fold(0.0, f64::max);
            if most <= 0.0 || most < SHARE * all {
                return named;
            }
            // Cables with equal votes cannot be distinguished: all of them are named.
            let worst: Vec<Part> = votes
                .into_iter()
                .filter(|(_, count)| *count > 0.999 * most)
                .map(|(cable, _)| cable.clone())
                .collect();
            flows.retain(|path| !path.iter().any(|cable| worst.contains(cable)));
            named.extend(worst.into_iter().map(|cable| Naming::page(cable, most)));
        }
    }
}

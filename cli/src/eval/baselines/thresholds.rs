//! Fixed thresholds on port counters, as health checks of nodes have them.

use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Entity, Frame, Layout};
use super::Baseline;

/// Counter and the rate per second above which it is a fault, as in NVSentinel's NIC checks: symbol errors 10 a second,
/// recoveries 5 a minute, receive errors 10 a second, discards 100 a second, acknowledgement time-outs 1 a second, and any link that went down.
const LIMITS: &[(Column, f64)] = &[
    (Column::SymbolErrors, 10.0),
    (Column::Recoveries, 5.0 / 60.0),
    (Column::ReceiveErrors, 10.0),
    (Column::Discards, 100.0),
    (Column::Retransmits, 1.0),
    (Column::Downs, 0.0),
];

/// NVSentinel-like.
pub(super) struct Thresholds {
    layout: Arc<Layout>,
}

impl Thresholds {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout }
    }
}

impl Baseline for Thresholds {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let mut named = Vec::new();
        for (index, part) in self.layout.parts(Entity::Link).iter().enumerate() {
            let over = LIMITS.iter().filter_map(|(column, limit)| {
                let rate = frame.column(*column)[index];
                (rate > *limit).then(|| rate / limit.max(1e-3))
            });
            let down = (frame.column(Column::LinkUp)[index] == 0.0).then_some(f64::MAX);
            if let Some(score) = over.chain(down).reduce(f64::max) {
                named.push(Naming::page(part.clone(), score));
            }
        }
        named
    }
}

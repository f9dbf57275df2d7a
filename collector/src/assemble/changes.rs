//! What changed in the fabric lately: a bounded log, fed by comparing what is there with what was.

use std::collections::VecDeque;
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};

use crate::fabric::{Change, diff, has_cables, net};

/// Changes that are kept: a spine of 64 ports going and coming back, thirty times.
pub const KEPT_CHANGES: usize = 4096;
/// How long a node that was never seen may delay the first comparison: several scrapes of any usual
/// interval. Until then, what appears is only seen for the first time.
const SETTLE_SECONDS: f64 = 300.0;

/// A change and when it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// The tick that saw it.
    pub at: Timestamp,
    /// What changed.
    pub change: Change,
}

/// The newest changes, the oldest of them first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeLog {
    /// At most [`KEPT_CHANGES`].
    pub entries: VecDeque<Logged>,
    /// Older ones that are no longer stored.
    pub forgotten: u64,
}

impl ChangeLog {
    /// Adds a change; drops the oldest one if there are too many.
    pub fn push(&mut self, logged: Logged) {
        if self.entries.len() >= KEPT_CHANGES {
            self.entries.pop_front();
            self.forgotten += 1;
        }
        self.entries.push_back(logged);
    }

    /// The time since which every change is kept; none if none was ever dropped.
    pub fn kept_since(&self) -> Option<Timestamp> {
        let oldest = self.entries.front().map(|logged| logged.at);
        oldest.filter(|_| self.forgotten > 0)
    }

    /// What is otherwise at `to` than it was at `from`: what came and went again in between is no difference.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Vec<Change> {
        let logged = self.entries.iter();
        let logged = logged.filter(|logged| from < logged.at && logged.at <= to);
        net(logged.map(|logged| &logged.change))
    }
}

/// Compares each new fabric with the one before.
#[derive(Debug, Default)]
pub struct Watch {
    base: Option<Arc<Fabric>>,
    log: Arc<ChangeLog>,
    begun: Option<Timestamp>,
    settled: bool,
}

impl Watch {
    /// Continues from the state of an earlier run.
    pub fn since(base: Arc<Fabric>, log: ChangeLog) -> Self {
        Self {
            base: Some(base),
            log: Arc::new(log),
            ..Self::default()
        }
    }

    /// The newest changes.
    pub fn log(&self) -> Arc<ChangeLog> {
        Arc::clone(&self.log)
    }

    /// Whether every node was seen once, or had its time to be.
    pub fn settle(&mut self, all_heard: bool, now: Timestamp) -> bool {
        let begun = *self.begun.get_or_insert(now);
        self.settled |= all_heard || now.seconds_since(begun) >= SETTLE_SECONDS;
        self.settled
    }

    /// Compares the fabric of a tick with the previous one. Nothing is logged before it has settled; and cables are compared once
    /// both sides have some: before that they are unknown, not removed.
    pub fn look(&mut self, fabric: &Arc<Fabric>, now: Timestamp) {
        if !self.settled
            || self
                .base
                .as_ref()
                .is_some_and(|base| Arc::ptr_eq(base, fabric))
        {
            return;
        }
        if let Some(base) = &self.base {
            match (has_cables(base), has_cables(fabric)) {
                (true, false) => return,
                (false, true) => {}
                _ => {
                    let changes = diff(base, fabric);
                    if !changes.is_empty() {
                        let log = Arc::make_mut(&mut self.log);
                        for change in changes {
                            log.push(Logged { at: now, change });
                        }
                    }
                }
            }
        }
        self.base = Some(Arc::clone(fabric));
    }
}

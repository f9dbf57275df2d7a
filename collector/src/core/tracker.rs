//! Incidents over ticks: when they open and close, what closed and came back, and what an earlier run knew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;

use super::classes::FABRIC_STORM;
use super::incident::{CLOSE_AFTER_TICKS, Finding, Incident, OPEN_AFTER_TICKS, describe, group};
use super::maintenance::{Window, mark};
use super::storm::Storms;
use crate::topology::Routes;

/// How long after it closed an incident that comes back is still the same (detection method, section 3.8).
pub const REOPEN_SECONDS: f64 = 30.0 * 60.0;

/// What is known of one suspected part between ticks.
#[derive(Debug)]
struct Suspect {
    since: Timestamp,
    seen_ticks: u32,
    missed_ticks: u32,
    open: bool,
    incident: Incident,
}

/// An incident that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Closed {
    /// Its part.
    pub root: Part,
    /// When it first opened.
    pub since: Timestamp,
    /// When it closed.
    pub at: Timestamp,
    /// How often it had come back before.
    pub reopenings: u32,
}

/// Follows suspects over ticks and says which of them are incidents.
#[derive(Debug, Default)]
pub struct Tracker {
    suspects: BTreeMap<Part, Suspect>,
    /// Of the last half an hour.
    closed: BTreeMap<Part, Closed>,
    storms: Storms,
    windows: Vec<Arc<Window>>,
}

impl Tracker {
    /// Says which work is announced.
    pub fn set_maintenance(&mut self, windows: Vec<Arc<Window>>) {
        self.windows = windows;
    }

    /// Announced work that is not over yet.
    pub fn maintenance(&self, now: Timestamp) -> Vec<Arc<Window>> {
        let ahead = self.windows.iter().filter(|window| !window.is_over(now));
        ahead.cloned().collect()
    }

    /// Takes up what an earlier run knew: its open incidents are open, without evidence until there is some again.
    pub fn restore(&mut self, open: Vec<Incident>, closed: Vec<Closed>) {
        for incident in open {
            let suspect = Suspect {
                since: incident.since,
                seen_ticks: OPEN_AFTER_TICKS,
                missed_ticks: 0,
                open: true,
                incident,
            };
            self.suspects.insert(suspect.incident.root.clone(), suspect);
        }
        let closed = closed
            .into_iter()
            .map(|closed| (closed.root.clone(), closed));
        self.closed.extend(closed);
    }

    /// Incidents that closed in the last half an hour.
    pub fn closed(&self) -> Vec<Closed> {
        self.closed.values().cloned().collect()
    }

    /// Takes the findings of one tick and returns the open incidents, worst first.
    pub fn tick(
        &mut self,
        fabric: &Fabric,
        routes: &Routes,
        findings: Vec<Finding>,
        now: Timestamp,
    ) -> Vec<Incident> {
        let mut groups = group(fabric, findings);
        let suspects = &self.suspects;
        let storm = self.storms.fold(fabric, &mut groups, || known(suspects));
        let named: BTreeSet<_> = groups.keys().cloned().collect();
        self.closed
            .retain(|_, closed| now.seconds_since(closed.at) <= REOPEN_SECONDS);
        for (root, findings) in groups {
            let mut incident = describe(fabric, &root, findings, now);
            if storm.as_ref() == Some(&root) {
                incident.class = &FABRIC_STORM;
            }
            incident.add_routed(fabric, routes);
            self.see(incident, now);
        }
        self.miss(&named, now);
        let open = self.suspects.values().filter(|suspect| suspect.open);
        let mut incidents: Vec<_> = open.map(|suspect| suspect.incident.clone()).collect();
        mark(&self.windows, fabric, &mut incidents);
        let rank = |incident: &Incident| (incident.severity, incident.gpus_affected);
        incidents.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.root.cmp(&b.root)));
        incidents
    }

    /// A part is suspected in this tick.
    fn see(&mut self, incident: Incident, now: Timestamp) {
        // A part whose fault turns out to be another's is no suspect of its own any more, and what was
        // known of it goes over to the root.
        let of_parts = incident
            .related
            .iter()
            .filter_map(|part| self.suspects.remove(part));
        let absorbed = of_parts.reduce(|a, b| if a.since <= b.since { a } else { b });
        let new = || Suspect {
            since: now,
            seen_ticks: 0,
            missed_ticks: 0,
            open: false,
            incident: incident.clone(),
        };
        let suspect = self
            .suspects
            .entry(incident.root.clone())
            .or_insert_with(new);
        if let Some(absorbed) = absorbed {
            suspect.since = suspect.since.min(absorbed.since);
            suspect.seen_ticks = suspect.seen_ticks.max(absorbed.seen_ticks);
            suspect.open |= absorbed.open;
        }
        suspect.seen_ticks += 1;
        suspect.missed_ticks = 0;
        suspect.open |= suspect.seen_ticks >= OPEN_AFTER_TICKS;
        let mut reopenings = suspect.incident.reopenings;
        if suspect.open
            && let Some(closed) = self.closed.remove(&incident.root)
        {
            suspect.since = closed.since;
            reopenings = closed.reopenings + 1;
        }
        suspect.incident = Incident {
            since: suspect.since,
            reopenings,
            ..incident
        };
    }

    /// All others are not: those that were noise are forgotten, those that are over closed.
    fn miss(&mut self, named: &BTreeSet<Part>, now: Timestamp) {
        self.suspects.retain(|root, suspect| {
            if !named.contains(root) {
                suspect.missed_ticks += 1;
                suspect.seen_ticks = 0;
            }
            // Evidence that is gone before it opened an incident was noise.
            let kept = suspect.missed_ticks < if suspect.open { CLOSE_AFTER_TICKS } else { 1 };
            if suspect.open && !kept {
                let closed = Closed {
                    root: root.clone(),
                    since: suspect.since,
                    at: now,
                    reopenings: suspect.incident.reopenings,
                };
                self.closed.insert(root.clone(), closed);
            }
            kept
        });
    }
}

/// Parts of incidents that are open, and of what was seen often enough to be.
fn known(suspects: &BTreeMap<Part, Suspect>) -> BTreeSet<&Part> {
    let old = suspects
        .values()
        .filter(|suspect| suspect.open || suspect.seen_ticks >= OPEN_AFTER_TICKS);
    old.flat_map(|suspect| {
        [&suspect.incident.root]
            .into_iter()
            .chain(&suspect.incident.related)
    })
    .collect()
}

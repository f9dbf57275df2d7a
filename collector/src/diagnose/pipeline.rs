//! Incidents over ticks: when they open, close and reopen, and how they are loaded from an earlier run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part};

use super::incident::{
    CLOSE_AFTER_TICKS, Finding, Incident, OPEN_AFTER_TICKS, describe, group, worst_first,
};
use crate::classes::{
    Class, FABRIC_STORM, GPU_ERROR, GPU_LOST, HOST_DOWN, MISCABLED_RAIL, NVLINK_DOWN, PORT_DOWN,
    PORT_FLAPPING, SWITCH_DOWN, Severity, UPLINK_DOWN,
};
use crate::diagnose::stages::after_effects::AfterEffects;
use crate::diagnose::stages::disabled_ports::DisabledPorts;
use crate::diagnose::stages::hold_down::Losses;
use crate::diagnose::stages::immediate_open::proven;
use crate::diagnose::stages::lost_links::{Earlier, FLAP_TOGETHER_SECONDS};
use crate::diagnose::stages::maintenance::{Window, mark};
use crate::diagnose::stages::mass_link_loss::Storms;
use crate::diagnose::stages::nvlink_switches::{self, Bond};
use crate::diagnose::stages::reseats::Reseats;
use crate::diagnose::stages::virtual_functions;
use crate::fabric::Routes;
use crate::jobs::job::Jobs;
use crate::stages::{LeftOut, Step};
use crate::store::History;

/// How long after it closed an incident that comes back is still the same.
pub const REOPEN_SECONDS: f64 = 30.0 * 60.0;

/// What is known of one suspected part between ticks.
#[derive(Debug)]
struct Suspect {
    since: Timestamp,
    seen_ticks: u32,
    missed_ticks: u32,
    open: bool,
    incident: Incident,
    /// When there was last evidence of the incident's class.
    class_seen: Timestamp,
    /// When a cable between switches went down for the second time within 30 minutes.
    lost_again: Option<Timestamp>,
}

/// Whether an incident of an earlier run is of a cable between switches that went down twice.
fn was_lost_again(incident: &Incident) -> bool {
    let is_of_switches = matches!(incident.root, Part::SwitchLink(..));
    is_of_switches && incident.class == &PORT_FLAPPING && incident.reopenings > 0
}

fn is_lost_uplink(class: &Class) -> bool {
    [&UPLINK_DOWN, &PORT_FLAPPING].contains(&class)
}

/// How long an open incident keeps its class when only evidence of less severe classes is left, or of those that page and are farther from a cause:
/// errors, link losses and pause that remain in the counters' windows belong to the fault that has just ended.
const CLASS_KEPT_SECONDS: f64 = 120.0;

impl Suspect {
    /// Updates it with the findings of this tick.
    fn renew(&mut self, mut incident: Incident, now: Timestamp) {
        let known = &self.incident;
        let (old, new) = (known.class, incident.class);
        // A link that was down and is up again reports itself what it is now.
        let is_over = [&PORT_DOWN, &UPLINK_DOWN].contains(&old);
        let was_moved = is_over && new == &MISCABLED_RAIL;
        let both_page = [old, new].map(|class| class.severity) == [Severity::Critical; 2];
        let is_farther = both_page && !is_over && new.order() > old.order();
        let is_weaker = !was_moved && (new.severity < old.severity || is_farther);
        let is_kept = now.seconds_since(self.class_seen) <= CLASS_KEPT_SECONDS;
        if self.open && is_weaker && is_kept {
            incident.class = known.class;
            incident.severity = known.severity;
        } else {
            self.class_seen = now;
        }
        // They are labels: what is reported about an open incident stays. The fabric forgets a cable that is missing for long.
        let far_end = incident.far_end.take();
        incident.far_end = if self.open {
            known.far_end.clone().or(far_end)
        } else {
            far_end.or_else(|| known.far_end.clone())
        };
        if self.open && !known.alternatives.is_empty() {
            incident.alternatives.clone_from(&known.alternatives);
        }
        let is_known = self.open && incident.class == known.class;
        if is_known && !known.first_statement.is_empty() {
            incident.first_statement.clone_from(&known.first_statement);
        }
        self.incident = incident;
    }
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
    /// Whether a cable between switches was down.
    pub is_lost_uplink: bool,
}

/// Follows suspects over ticks and reports which of them are incidents.
#[derive(Debug, Default)]
pub struct Tracker {
    suspects: BTreeMap<Part, Suspect>,
    /// Of the last half an hour.
    closed: BTreeMap<Part, Closed>,
    disabled_ports: DisabledPorts,
    losses: Losses,
    reseats: Reseats,
    /// When each cable that flaps was first seen to.
    flapping_since: BTreeMap<Part, Timestamp>,
    after_effects: AfterEffects,
    storms: Storms,
    windows: Vec<Arc<Window>>,
    /// Steps that are omitted, here and by detectors.
    pub(crate) left_out: LeftOut,
}

impl Tracker {
    /// Sets the maintenance windows.
    pub fn set_maintenance(&mut self, windows: Vec<Arc<Window>>) {
        self.windows = windows;
    }

    /// Maintenance windows that are not over yet.
    pub fn maintenance(&self, now: Timestamp) -> Vec<Arc<Window>> {
        let ahead = self.windows.iter().filter(|window| !window.is_over(now));
        ahead.cloned().collect()
    }

    /// Adds the state of an earlier run: its open incidents are open, without evidence until there is some again.
    pub fn restore(&mut self, open: Vec<Incident>, closed: Vec<Closed>) {
        for incident in open {
            let suspect = Suspect {
                since: incident.since,
                seen_ticks: OPEN_AFTER_TICKS,
                missed_ticks: 0,
                open: true,
                class_seen: incident.last_seen,
                lost_again: was_lost_again(&incident).then_some(incident.last_seen),
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

    /// Takes the findings of one tick and returns the open incidents, worst first. Unless incidents may open, what is
    /// open stays open, and what is seen for the first time has to be seen again later.
    pub fn tick(
        &mut self,
        fabric: &Fabric,
        (routes, history, jobs): (&Routes, &History, &Jobs),
        mut findings: Vec<Finding>,
        may_open: bool,
        now: Timestamp,
    ) -> Vec<Incident> {
        if !may_open {
            self.suspects.retain(|_, suspect| suspect.open);
        }
        let held = self.held(fabric, (history, jobs, now), &mut findings);
        let mut waiting = self.losses.spreading(fabric, history, &findings, now);
        let answers = |part: &Part| {
            let own = match part {
                Part::Host(node) => history.node(node)?,
                Part::Switch(switch) => history.switch(switch)?,
                _ => return None,
            };
            Some(own.is_current(now))
        };
        let earlier = self.earlier(&findings, now);
        let mut groups = group(fabric, findings, &earlier, answers, self.left_out);
        if !self.left_out.has(Step::Parents) {
            virtual_functions::join(history, now, &mut groups);
            nvlink_switches::join(fabric, history, &mut groups, |gpu, port| {
                self.bond(gpu, port, now)
            });
            let since = |part: &Part| self.suspects.get(part).map(|known| known.since);
            nvlink_switches::join_whole_switches(fabric, history, &mut groups, since);
            let seen = (history, now);
            let gpus = nvlink_switches::unexplained_gpus(fabric, seen, &groups, since);
            let ports = nvlink_switches::unexplained_ports(fabric, seen, &groups, since);
            waiting.extend(gpus.into_iter().chain(ports));
        }
        let suspects = &self.suspects;
        let storm = self.storms.fold(fabric, &mut groups, || known(suspects));
        let named: BTreeSet<_> = groups.keys().cloned().collect();
        let is_open = |part: &Part| suspects.get(part).is_some_and(|suspect| suspect.open);
        let after = self.after_effects.among(fabric, &groups, is_open, now);
        let mut certain = proven(fabric, (history, now), &groups);
        if self.left_out.has(Step::Proof) || !may_open {
            certain.clear();
        }
        certain.retain(|part| !held.contains(part));
        waiting.extend(held);
        self.closed
            .retain(|_, closed| now.seconds_since(closed.at) <= REOPEN_SECONDS);
        for (root, findings) in groups {
            if after.contains(&root) {
                continue;
            }
            let mut incident = describe(fabric, &root, findings, now);
            if storm.as_ref() == Some(&root) {
                incident.class = &FABRIC_STORM;
            }
            if self.left_out.has(Step::Belief) {
                incident.severity = incident.worst();
            }
            incident.add_routed(fabric, routes);
            let is_certain = certain.contains(&root);
            self.see(incident, is_certain, (&named, &waiting), now);
        }
        if may_open {
            self.miss(&named, now);
        }
        let open = self.suspects.values().filter(|suspect| suspect.open);
        let mut incidents: Vec<_> = open.map(|suspect| suspect.incident.clone()).collect();
        if !self.left_out.has(Step::Maintenance) {
            mark(&self.windows, fabric, &mut incidents);
        }
        worst_first(&mut incidents);
        incidents
    }

    /// Cables whose incident waits, because they may be reseated or a switch may have disabled their port. What is found at
    /// cables of disabled ports is removed.
    fn held(
        &mut self,
        fabric: &Fabric,
        seen: (&History, &Jobs, Timestamp),
        findings: &mut Vec<Finding>,
    ) -> BTreeSet<Part> {
        let (history, _, now) = seen;
        let mut held = self.disabled_ports.remove(fabric, history, findings, now);
        if self.left_out.has(Step::ImpactGate) {
            return held;
        }
        let (open, closed) = (&self.suspects, &self.closed);
        let was_open = |part: &Part| {
            closed.contains_key(part) || open.get(part).is_some_and(|suspect| suspect.open)
        };
        // Their action is to drain the node and to reset or power-cycle it.
        let in_repair: BTreeSet<_> = open
            .values()
            .filter(|suspect| suspect.open)
            .map(|suspect| &suspect.incident)
            .filter(|incident| [&GPU_LOST, &GPU_ERROR, &NVLINK_DOWN].contains(&incident.class))
            .filter_map(|incident| incident.root.node())
            .collect();
        let is_in_repair = |node: &NodeName| in_repair.contains(node);
        let reseats = &mut self.reseats;
        held.extend(reseats.held(fabric, seen, findings, was_open, is_in_repair));
        held
    }

    /// A part is suspected in this tick, or known for certain, among all that are `named` and cables that are `waiting`.
    fn see(
        &mut self,
        incident: Incident,
        is_certain: bool,
        (named, waiting): (&BTreeSet<Part>, &BTreeSet<Part>),
        now: Timestamp,
    ) {
        // A switch waits for itself alone.
        let is_switch = matches!(incident.root, Part::Switch(_));
        let mut related = incident.related.iter().filter(|_| !is_switch);
        let waits = waiting.contains(&incident.root) || related.any(|part| waiting.contains(part));
        let absorbed = self.absorb(&incident.root, &incident, named);
        let new = || Suspect {
            since: now,
            seen_ticks: 0,
            missed_ticks: 0,
            open: false,
            incident: incident.clone(),
            class_seen: now,
            lost_again: None,
        };
        let suspect = self
            .suspects
            .entry(incident.root.clone())
            .or_insert_with(new);
        if let Some(absorbed) = absorbed {
            suspect.since = suspect.since.min(absorbed.since);
            suspect.seen_ticks = suspect.seen_ticks.max(absorbed.seen_ticks);
            suspect.open |= absorbed.open;
            suspect.lost_again = suspect.lost_again.max(absorbed.lost_again);
        }
        suspect.seen_ticks += 1;
        if waits {
            suspect.seen_ticks = suspect.seen_ticks.min(OPEN_AFTER_TICKS - 1);
        }
        suspect.missed_ticks = 0;
        let enough = is_certain || suspect.seen_ticks >= OPEN_AFTER_TICKS;
        suspect.open |= enough || self.left_out.has(Step::Persistence);
        let mut incident = incident;
        incident.reopenings = suspect.incident.reopenings;
        if suspect.open
            && let Some(closed) = self.closed.remove(&incident.root)
        {
            suspect.since = closed.since;
            incident.reopenings = closed.reopenings + 1;
            suspect.lost_again = closed.is_lost_uplink.then_some(now);
        }
        incident.since = suspect.since;
        // Down again within 30 minutes, it flaps more slowly than the window of the counters shows; one that stays down does not flap.
        let is_lately = |at| now.seconds_since(at) <= REOPEN_SECONDS;
        if suspect.lost_again.is_some_and(is_lately) && incident.class == &UPLINK_DOWN {
            incident.class = &PORT_FLAPPING;
        }
        suspect.renew(incident, now);
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
                    is_lost_uplink: is_lost_uplink(suspect.incident.class),
                };
                self.closed.insert(root.clone(), closed);
            }
            kept
        });
    }

    /// Why the errors of a port of an NVLink switch may be those of a GPU; none if there is no reason.
    fn bond(&self, gpu: &Part, port: &Part, now: Timestamp) -> Option<Bond> {
        let since = |part| self.suspects.get(part).map_or(now, |known| known.since);
        let [of_gpu, of_port] = [since(gpu), since(port)];
        let apart = of_gpu
            .seconds_since(of_port)
            .max(of_port.seconds_since(of_gpu));
        let known = self.suspects.get(gpu);
        let is_known = known.is_some_and(|known| known.incident.related.contains(port));
        if is_known {
            return Some(Bond::Joined);
        }
        (apart <= nvlink_switches::TOGETHER_SECONDS).then_some(Bond::BeganTogether)
    }

    fn earlier(&mut self, findings: &[Finding], now: Timestamp) -> Earlier {
        let flapping = findings.iter().map(|found| &found.evidence);
        let flapping = flapping.filter(|found| found.class == &PORT_FLAPPING);
        let since = |part: &Part| self.flapping_since.get(part).copied().unwrap_or(now);
        self.flapping_since = flapping
            .map(|found| (found.part.clone(), since(&found.part)))
            .collect();
        let long = self
            .flapping_since
            .iter()
            .filter(|(_, since)| now.seconds_since(**since) > FLAP_TOGETHER_SECONDS);
        let open_of = |class: &'static Class| {
            let open = self.suspects.iter().filter(|(_, suspect)| suspect.open);
            let of_class = open.filter(|(_, suspect)| suspect.incident.class == class);
            of_class.map(|(part, _)| part.clone()).collect()
        };
        Earlier {
            switches_down: open_of(&SWITCH_DOWN),
            hosts_down: open_of(&HOST_DOWN),
            flapping_long: long.map(|(part, _)| part.clone()).collect(),
        }
    }

    /// Parts whose fault turns out to be another's are no longer separate suspects, and their state
    /// moves to the root: cables, and hosts whose cables are all the root's.
    fn absorb(
        &mut self,
        root: &Part,
        incident: &Incident,
        named: &BTreeSet<Part>,
    ) -> Option<Suspect> {
        let related: BTreeSet<_> = incident.related.iter().collect();
        let is_part = |part: &Part, suspect: &Suspect| {
            let mut of = suspect.incident.related.iter();
            let is_host = suspect.incident.class == &HOST_DOWN && !named.contains(part);
            part != root
                && (related.contains(part) || is_host && of.all(|part| related.contains(part)))
        };
        let parts = self
            .suspects
            .iter()
            .filter(|(part, suspect)| is_part(part, suspect));
        let parts: Vec<_> = parts.map(|(part, _)| part.clone()).collect();
        let of_parts = parts.iter().filter_map(|part| self.suspects.remove(part));
        of_parts.reduce(|a, b| if a.since <= b.since { a } else { b })
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

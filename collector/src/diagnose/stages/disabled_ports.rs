//! Ports of switches that someone disabled: their cables have no fault.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::{SWITCH_PORT_ENABLED, SWITCH_PORT_UP};

use super::lost_links::is_lost_cable;
use super::maintenance::SETTLE_SECONDS;
use crate::diagnose::incident::Finding;
use crate::store::{History, Window};

/// How long a lost cable waits for a switch that reports which ports are enabled to be read, in its usual intervals: one scrape
/// may be missed by little.
const PATIENCE: f64 = 1.5;

/// Since when each cable is lost.
#[derive(Debug, Default)]
pub(crate) struct DisabledPorts(BTreeMap<Part, Timestamp>);

impl DisabledPorts {
    /// Removes what is found at cables that are plugged into a disabled port, or one that was enabled a moment ago: a link that
    /// an operator takes down to work on it, or to drain its switch, is no fault, and trains when it comes back. Returns the lost
    /// cables, and the switches, that are still to be read since.
    pub(crate) fn remove(
        &mut self,
        fabric: &Fabric,
        history: &History,
        findings: &mut Vec<Finding>,
        now: Timestamp,
    ) -> BTreeSet<Part> {
        let lost = findings
            .iter()
            .map(|found| &found.evidence)
            .filter(|evidence| is_lost_cable(evidence.class));
        let known = std::mem::take(&mut self.0);
        let since = |part: &Part| known.get(part).copied().unwrap_or(now);
        self.0 = lost
            .map(|evidence| (evidence.part.clone(), since(&evidence.part)))
            .collect();
        let mut unread = BTreeSet::new();
        findings.retain(|found| {
            let part = &found.evidence.part;
            let Some((near, far)) = fabric.find_cable(part) else {
                return true;
            };
            let lost_since = self.0.get(part).copied();
            let mut is_disabled = false;
            for end in [(near, far.port), (far.peer, far.peer_port)] {
                let Some(port) = Port::of(fabric, history, end) else {
                    continue;
                };
                is_disabled |= was_disabled(port.enabled, now);
                if lost_since.is_some_and(|since| port.is_unread(since, now)) {
                    unread.extend([part.clone(), port.switch.clone()]);
                }
            }
            !is_disabled
        });
        unread
    }
}

/// A port of a switch that reports which of them are enabled.
struct Port<'a> {
    switch: &'a Part,
    enabled: Window<'a>,
    /// Whether the switch reports it as down.
    is_down: bool,
}

impl<'a> Port<'a> {
    fn of(fabric: &'a Fabric, history: &'a History, (id, port): (PartId, u16)) -> Option<Self> {
        let part = &fabric.vertex(id).part;
        let Part::Switch(switch) = part else {
            return None;
        };
        let port = fabric.port_name(id, port).to_string();
        let switch = history.switch(switch)?;
        Some(Self {
            switch: part,
            enabled: switch.window(&SWITCH_PORT_ENABLED, &[&port])?,
            is_down: switch.value(&SWITCH_PORT_UP, &[&port]) == Some(0.0),
        })
    }

    /// Whether it was not read since a moment at which its cable was lost, nor when it was down already, and may still be.
    fn is_unread(&self, since: Timestamp, now: Timestamp) -> bool {
        let mut read = self.enabled.told().map(|(at, _)| at);
        let (Some(newest), Some(before)) = (read.next(), read.next()) else {
            return false;
        };
        let interval = newest.seconds_since(before);
        !self.is_down && newest < since && now.seconds_since(since) <= PATIENCE * interval
    }
}

/// Whether a port is disabled, or was first seen enabled a moment ago.
fn was_disabled(enabled: Window<'_>, now: Timestamp) -> bool {
    let mut first = None;
    for (at, enabled) in enabled.told() {
        if enabled == 0.0 {
            return first.is_none_or(|first| now.seconds_since(first) <= SETTLE_SECONDS);
        }
        first = Some(at);
    }
    false
}

//! Ports of switches that someone disabled: their cables have no fault.

use std::collections::BTreeMap;

use railscope_model::fabric::{Fabric, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_ENABLED;

use super::lost_links::is_lost_cable;
use super::maintenance::SETTLE_SECONDS;
use crate::diagnose::incident::Finding;
use crate::store::{History, NodeHistory};

/// How long a lost cable waits for a switch that reports which ports are enabled to be read, in its usual intervals: one scrape
/// may be missed by little.
const PATIENCE: f64 = 1.5;

/// Since when each cable is lost.
#[derive(Debug, Default)]
pub(crate) struct DisabledPorts(BTreeMap<Part, Timestamp>);

impl DisabledPorts {
    /// Removes what is found at cables that are plugged into a disabled port, or one that was enabled a moment ago: a link that
    /// an operator takes down to work on it, or to drain its switch, is no fault, and trains when it comes back.
    pub(crate) fn remove(
        &mut self,
        fabric: &Fabric,
        history: &History,
        findings: &mut Vec<Finding>,
        now: Timestamp,
    ) {
        let lost = findings
            .iter()
            .map(|found| &found.evidence)
            .filter(|evidence| is_lost_cable(evidence.class));
        let known = std::mem::take(&mut self.0);
        let since = |part: &Part| known.get(part).copied().unwrap_or(now);
        self.0 = lost
            .map(|evidence| (evidence.part.clone(), since(&evidence.part)))
            .collect();
        findings.retain(|found| {
            let part = &found.evidence.part;
            let lost_since = self.0.get(part).copied();
            let is_none = |end| is_disabled(fabric, history, end, (lost_since, now));
            let cable = fabric.find_cable(part);
            !cable.is_some_and(|(near, far)| {
                [(near, far.port), (far.peer, far.peer_port)]
                    .into_iter()
                    .any(is_none)
            })
        });
    }
}

/// Whether a port is disabled, or was until a moment ago, or its switch is still to be read since its cable was lost.
fn is_disabled(
    fabric: &Fabric,
    history: &History,
    (id, port): (PartId, u16),
    (lost_since, now): (Option<Timestamp>, Timestamp),
) -> bool {
    let Part::Switch(switch) = &fabric.vertex(id).part else {
        return false;
    };
    let Some(switch) = history.switch(switch) else {
        return false;
    };
    let port = fabric.port_name(id, port).to_string();
    let Some(window) = switch.window(&SWITCH_PORT_ENABLED, &[&port]) else {
        return false;
    };
    let mut enabled = window.told();
    let newest = enabled.next();
    let lately = enabled.take_while(|(at, _)| now.seconds_since(*at) <= SETTLE_SECONDS);
    newest
        .into_iter()
        .chain(lately)
        .any(|(_, enabled)| enabled == 0.0)
        || lost_since.is_some_and(|since| is_unread(switch, since, now))
}

/// Whether a switch was not read since a moment, and may still be.
fn is_unread(switch: &NodeHistory, since: Timestamp, now: Timestamp) -> bool {
    let is_read = switch.heard().is_some_and(|heard| heard >= since);
    let interval = switch.scrapes().map(|(interval, _)| interval);
    let is_late = interval.is_none_or(|interval| now.seconds_since(since) > PATIENCE * interval);
    !is_read && !is_late
}

//! Ports of switches that someone disabled: their cables have no fault.

use railscope_model::fabric::{Fabric, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_ENABLED;

use super::maintenance::SETTLE_SECONDS;
use crate::diagnose::incident::Finding;
use crate::store::History;

/// Removes what is found at cables that are plugged into a disabled port, or one that was enabled a moment ago: a link
/// that an operator takes down to work on it, or to drain its switch, is no fault, and trains when it comes back.
pub(crate) fn remove(
    fabric: &Fabric,
    history: &History,
    findings: &mut Vec<Finding>,
    now: Timestamp,
) {
    let is_disabled = |(id, port): (PartId, u16)| {
        let Part::Switch(switch) = &fabric.vertex(id).part else {
            return false;
        };
        let port = fabric.port_name(id, port).to_string();
        let window = history
            .switch(switch)
            .and_then(|switch| switch.window(&SWITCH_PORT_ENABLED, &[&port]));
        window.is_some_and(|window| {
            let mut enabled = window.told();
            let newest = enabled.next();
            let lately = enabled.take_while(|(at, _)| now.seconds_since(*at) <= SETTLE_SECONDS);
            newest
                .into_iter()
                .chain(lately)
                .any(|(_, enabled)| enabled == 0.0)
        })
    };
    findings.retain(|found| {
        let cable = fabric.find_cable(&found.evidence.part);
        !cable.is_some_and(|(near, far)| {
            [(near, far.port), (far.peer, far.peer_port)]
                .into_iter()
                .any(is_disabled)
        })
    });
}

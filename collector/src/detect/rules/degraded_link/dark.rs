//! Cables between switches whose both ends report no optical signal, before a sweep finds them
//! missing.

use std::collections::BTreeSet;

use railscope_model::fabric::{PartId, Presence};
use railscope_model::identity::{Part, PortName};
use railscope_model::metric::SWITCH_PORT_UP;

use super::evidence;
use crate::classes::UPLINK_DOWN;
use crate::detect::detector::{Evidence, View};

/// A port of a switch.
type Port = (PartId, u16);

/// Ports of switches that are down, as their switches report since the newest sweep. A sweep that is newer, or
/// of the same time, takes precedence.
fn dark_ports(view: &View<'_>) -> BTreeSet<Port> {
    let mut dark = BTreeSet::new();
    for (switch, history) in view.history.fresh_switches(view.now) {
        let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
            continue;
        };
        for (labels, window) in history.series(&SWITCH_PORT_UP) {
            let Some((at, 0.0)) = window.latest() else {
                continue;
            };
            let port = labels.values().next().map(str::parse::<PortName>);
            if let Some(Ok(port)) = port
                && view.subnet_seen.is_none_or(|swept| at > swept)
                && let Some(port) = view.fabric.find_port(id, &port)
            {
                dark.insert((id, port));
            }
        }
    }
    dark
}

/// Such cables. One end alone may be a switch that dies, and waits for the sweep.
pub(super) fn cables_without_light(view: &View<'_>, out: &mut Vec<Evidence>) {
    let dark = dark_ports(view);
    for (id, port) in &dark {
        for near in view.fabric.cables(*id).filter(|near| near.port == *port) {
            let far = (near.peer, near.peer_port);
            let is_new = near.link.seen_by.presence() != Presence::Lost;
            if !is_new || far < (*id, *port) || !dark.contains(&far) {
                continue;
            }
            let Some(part) = view.fabric.cable_part(near.id) else {
                continue;
            };
            let end = |(id, port): Port| {
                let port = view.fabric.port_name(id, port);
                format!("{} port {port}", view.fabric.vertex(id).part)
            };
            let statement = format!(
                "The cable between {} and {} has no link: both switches report it down.",
                end((*id, *port)),
                end(far)
            );
            let signal = SWITCH_PORT_UP.name;
            out.push(evidence(view, part, &UPLINK_DOWN, signal, 1.0, statement));
        }
    }
}

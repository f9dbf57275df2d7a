//! Cables between switches that have no link, as both ends say, before a sweep comes by and misses them; or as both ends show that
//! do not say it.

use std::collections::BTreeSet;

use railscope_model::fabric::{LinkKind, PartId, Presence};
use railscope_model::identity::{Part, PortName};
use railscope_model::metric::{SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_UP};

use super::evidence;
use crate::classes::UPLINK_DOWN;
use crate::detect::detector::{Evidence, View};
use crate::detect::registry::Threshold;
use crate::store::Increase;

/// A port of a switch.
type Port = (PartId, u16);

/// How long no octet must have been sent at either end. A port with a link sends LLDP packets at least, every 30 s.
const SILENT_SECONDS: f64 = 60.0;

/// Ports of switches that are down, as their switches say since the newest sweep. What a sweep says later, or at the
/// same moment, is the newer word.
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

/// The time.
pub(super) fn silence() -> Threshold {
    Threshold::new(
        "time without a byte sent at either end, where switches do not report port states",
        SILENT_SECONDS,
        "s",
        "two intervals of LLDP, which every port with a link sends (IEEE 802.1AB: 30 s)",
    )
}

/// Such cables. One end alone may be a switch that dies, and waits for the sweep.
pub(super) fn cables_without_light(view: &View<'_>, out: &mut Vec<Evidence>) {
    let dark = dark_ports(view);
    for (id, port) in &dark {
        for near in view
            .fabric
            .neighbours(*id)
            .filter(|near| near.port == *port)
        {
            let far = (near.peer, near.peer_port);
            let is_new =
                near.link.kind == LinkKind::Cable && near.link.seen_by.presence() != Presence::Lost;
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

/// Cables between switches that say nothing of their ports' state: both ends have not heard each other lately, and have sent
/// nothing, while other ports of theirs have.
pub(super) fn cables_without_octets(view: &View<'_>, out: &mut Vec<Evidence>) {
    for (id, a, b, link) in view.fabric.links() {
        if link.kind != LinkKind::Cable || link.seen_by.presence() != Presence::Unknown {
            continue;
        }
        let ends = [(a, link.ports.0), (b, link.ports.1)];
        if !ends.iter().all(|end| sends_nothing(view, *end)) {
            continue;
        }
        let Some(part) = view.fabric.cable_part(id) else {
            continue;
        };
        let statement = format!(
            "{part} has no link: its ends last received LLDP from each other {:.0} s ago, and neither has sent a byte for {SILENT_SECONDS:.0} s.",
            view.now.seconds_since(link.seen())
        );
        let signal = SWITCH_PORT_TRANSMIT_BYTES.name;
        out.push(evidence(view, part, &UPLINK_DOWN, signal, 1.0, statement));
    }
}

/// Whether a port of a switch has sent nothing, and the switch does not say whether it is up.
fn sends_nothing(view: &View<'_>, (id, port): Port) -> bool {
    let Part::Switch(switch) = &view.fabric.vertex(id).part else {
        return false;
    };
    let history = view.history.switch(switch);
    let Some(history) = history.filter(|history| history.is_fresh(view.now)) else {
        return false;
    };
    let port = view.fabric.port_name(id, port).to_string();
    let sent = history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[&port]);
    let sent = sent.and_then(|sent| sent.increase(SILENT_SECONDS));
    // Reads are not a whole minute apart to the second.
    let is_silent = |sent: Increase| sent.amount == 0.0 && sent.seconds >= 0.75 * SILENT_SECONDS;
    sent.is_some_and(is_silent)
        && history.value(&SWITCH_PORT_UP, &[&port]).is_none()
        && history.moving(&SWITCH_PORT_TRANSMIT_BYTES).next().is_some()
}

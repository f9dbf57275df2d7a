//! Cables of a text as a wiring plan.

use std::collections::BTreeSet;

use railscope_model::identity::{Part, PortName};
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

/// A cable of which only the ends are known.
pub(super) fn cable(ends: [Socket; 2]) -> PlannedCable {
    PlannedCable {
        ends,
        rail: None,
        plane: None,
        length_meters: None,
        serial: None,
    }
}

/// A port of a switch, or a host's device by the name of its interface; none where a name is no name.
pub(super) fn socket(device: &str, is_switch: bool, port: &str) -> Option<Socket> {
    Some(if is_switch {
        Socket {
            part: Part::Switch(device.parse().ok()?),
            port: port.parse().ok()?,
        }
    } else {
        Socket {
            part: Part::Nic(device.parse().ok()?, port.parse().ok()?),
            port: PortName::Number(1),
        }
    })
}

/// A cable that both of its ends told of stands once.
pub(crate) fn once(plan: WiringPlan) -> WiringPlan {
    let mut told: BTreeSet<[Socket; 2]> = BTreeSet::new();
    let mut cables = plan.cables;
    cables.retain(|cable| {
        let mut ends = cable.ends.clone();
        ends.sort();
        told.insert(ends)
    });
    WiringPlan { cables }
}

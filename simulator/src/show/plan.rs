//! The wiring as the plan that a site would have of it.

use railscope_model::identity::Part;
use railscope_model::plan::{PlannedCable, Socket, WiringPlan};

use crate::wiring::{self, Device, Wiring};

/// The plan of a wiring: every cable, dark ones too. That of [`Wiring::plan`] is what should be, that of
/// [`Wiring::built`] what people have made of it.
pub fn plan(wiring: &Wiring) -> WiringPlan {
    let cables = wiring.cables.iter().map(|cable| {
        let nic = match cable.ends[0].0 {
            Device::Nic(nic) => Some(&wiring.nics[nic]),
            Device::Switch(_) => None,
        };
        PlannedCable {
            ends: cable.ends.map(|end| socket(wiring, end)),
            rail: nic.map(|nic| nic.rail.into()),
            plane: nic
                .filter(|_| wiring.planes() > 1)
                .map(|nic| nic.plane.into()),
            length_meters: None,
            serial: None,
        }
    });
    WiringPlan {
        cables: cables.collect(),
    }
}

/// The plan as text, as `docs/wiring-plan.md` describes it.
pub fn write(wiring: &Wiring) -> String {
    plan(wiring).to_string()
}

fn socket(wiring: &Wiring, (device, port): wiring::Socket) -> Socket {
    match device {
        Device::Nic(nic) => {
            let nic = &wiring.nics[nic];
            Socket {
                part: Part::Nic(nic.node_name.clone(), nic.device.clone()),
                port: port.into(),
            }
        }
        Device::Switch(switch) => Socket {
            part: Part::Switch(wiring.switches[switch].name.clone()),
            port: wiring.port_name(port),
        },
    }
}

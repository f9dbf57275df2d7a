//! Cables that run slower or narrower than their equals.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::PartId;
use railscope_model::identity::Part;
use railscope_model::plan::Socket;
use railscope_model::units::LinkSpeed;

use super::{Case, Finding, SLOW_CABLE, cable_at, usual};

pub(super) fn check(case: &Case<'_>, out: &mut Vec<Finding>) {
    hosts(case, out);
    trunks(case, out);
}

/// A host's cable is slow when the others of its leaf and the others of its host are faster: older hosts on a leaf,
/// and older leaves under a host, are so by design.
fn hosts(case: &Case<'_>, out: &mut Vec<Finding>) {
    let mut of_host: Vec<Vec<LinkSpeed>> = vec![Vec::new(); case.survey.hosts.len()];
    for switch in &case.survey.switches {
        for (host, _, speed) in &switch.nics {
            of_host[*host].extend(*speed);
        }
    }
    for switch in &case.survey.switches {
        let speeds = switch.nics.iter().filter_map(|(.., speed)| *speed);
        let Some(leaf) = usual(speeds) else { continue };
        for (host, nic, speed) in &switch.nics {
            let Some(speed) = speed.filter(|speed| is_slower(*speed, leaf)) else {
                continue;
            };
            let view = &case.survey.hosts[*host];
            let faster = of_host[*host]
                .iter()
                .filter(|other| is_slower(speed, **other))
                .count();
            let others = of_host[*host].len() - 1;
            if others == 0 || faster * 2 <= others {
                continue;
            }
            let nic = Part::Nic(view.name.clone(), view.nics[*nic].device.clone());
            let port = port_to(case, &nic, switch.id);
            out.push(Finding {
                rule: &SLOW_CABLE,
                sentence: format!(
                    "{nic} runs at {speed} on {}, whose cables to hosts run at {leaf}.",
                    switch.name
                ),
                evidence: vec![format!(
                    "{faster} of the {others} other cables of the host are faster"
                )],
                parts: vec![cable_at(&Socket {
                    part: nic,
                    port: port.into(),
                })],
            });
        }
    }
}

fn port_to(case: &Case<'_>, part: &Part, switch: PartId) -> u16 {
    let near = case
        .fabric
        .find(part)
        .into_iter()
        .flat_map(|id| case.fabric.cables(id));
    let mut ports = near.filter(|near| near.peer == switch);
    ports.next().map_or(1, |near| near.port)
}

/// A cable between switches is slow beside the other cables of the same switch to its tier above.
fn trunks(case: &Case<'_>, out: &mut Vec<Finding>) {
    let numbers: HashMap<PartId, usize, FixedState> = case
        .survey
        .switches
        .iter()
        .enumerate()
        .map(|(index, switch)| (switch.id, index))
        .collect();
    for (index, switch) in case.survey.switches.iter().enumerate() {
        let upwards = |peer: usize| case.tiers[peer] > case.tiers[index];
        let up = switch.trunks.iter().filter(|(peer, _)| upwards(*peer));
        let Some(own) = usual(up.filter_map(|(_, speed)| *speed)) else {
            continue;
        };
        for near in case.fabric.cables(switch.id) {
            let peer = numbers.get(&near.peer).copied();
            let slow = near.link.speed.filter(|speed| is_slower(*speed, own));
            let (Some(_), Some(speed)) = (peer.filter(|peer| upwards(*peer)), slow) else {
                continue;
            };
            let socket = Socket {
                part: Part::Switch(switch.name.clone()),
                port: case.fabric.port_name(switch.id, near.port),
            };
            out.push(Finding {
                rule: &SLOW_CABLE,
                sentence: format!(
                    "{socket} to {} runs at {speed}, the other uplinks at {own}.",
                    case.fabric.vertex(near.peer).part
                ),
                evidence: Vec::new(),
                parts: vec![cable_at(&socket)],
            });
        }
    }
}

fn is_slower(one: LinkSpeed, other: LinkSpeed) -> bool {
    one.bytes_per_second() < other.bytes_per_second()
}

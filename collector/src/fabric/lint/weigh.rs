//! Findings by a plan beside what the ports carry: traffic reports whether a cable is where it was seen, and
//! whether hosts that lack a planned cable miss it.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Fabric;
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::plan::{Socket, WiringPlan};

use super::{Finding, MIN_PEERS, MISSING_CABLE, PEER_SHARE, WRONG_PLAN, cable_at, socket, sort};

/// A port that moves less is idle: management, ARP and LLDP are some kilobytes a second, an NDR port carries 50 GB.
const IDLE_BYTES_PER_SECOND: f64 = 1e6;
/// What leaves one end arrives at the other, but the two are read at different times within a job's steps.
const SAME_SHARE: f64 = 0.2;

/// What a port sends and what it receives, in bytes per second over the same minute; none without counters.
pub type Rates<'a> = dyn Fn(&Socket) -> Option<[f64; 2]> + 'a;

/// The findings again, with what traffic reports about those against the plan: the same ones where it reports
/// nothing.
///
/// A cable that the plan is known to have wrong gets the traffic of its two ends as evidence, or as doubt. Devices
/// that are planned on many hosts and cabled on hardly any are one fault of the plan if those hosts work without them.
pub fn weigh(
    findings: &[Finding],
    fabric: &Fabric,
    plan: &WiringPlan,
    rates: &Rates<'_>,
) -> Vec<Finding> {
    let mut findings = findings.to_vec();
    for finding in findings
        .iter_mut()
        .filter(|finding| finding.rule == &WRONG_PLAN)
    {
        let said = finding
            .parts
            .iter()
            .filter_map(|part| along(fabric, part, rates));
        let said: Vec<String> = said.collect();
        finding.evidence.extend(said);
    }
    unused(&mut findings, plan, rates);
    findings
}

/// What the two ends of a cable report about each other.
fn along(fabric: &Fabric, cable: &Part, rates: &Rates<'_>) -> Option<String> {
    let (one, other) = ends(fabric, cable)?;
    let ([out, into], [far_out, far_into]) = (rates(&one)?, rates(&other)?);
    if out.max(into).max(far_out).max(far_into) < IDLE_BYTES_PER_SECOND {
        return None;
    }
    let is_same =
        |a: f64, b: f64| (a - b).abs() <= SAME_SHARE * a.max(b) || a.max(b) < IDLE_BYTES_PER_SECOND;
    let agrees = is_same(out, far_into) && is_same(into, far_out);
    let word = if agrees { "arrives" } else { "does not arrive" };
    Some(format!(
        "traffic: what {one} sends {word} at {other} ({:.2} GB/s and {:.2} GB/s, back {:.2} GB/s and {:.2} GB/s)",
        out / 1e9,
        far_into / 1e9,
        far_out / 1e9,
        into / 1e9
    ))
}

/// The two ports of a present cable.
fn ends(fabric: &Fabric, cable: &Part) -> Option<(Socket, Socket)> {
    let (near, far) = fabric.find_cable(cable)?;
    Some((
        socket(fabric, (near, far.port)),
        socket(fabric, (far.peer, far.peer_port)),
    ))
}

/// Devices whose planned cables are missing on most hosts while those hosts' other cables carry traffic.
fn unused(findings: &mut Vec<Finding>, plan: &WiringPlan, rates: &Rates<'_>) {
    let missing = findings
        .iter()
        .filter(|finding| finding.rule == &MISSING_CABLE);
    let missing: BTreeSet<&Part> = missing
        .filter_map(|finding| finding.parts.first())
        .collect();
    if missing.len() < MIN_PEERS {
        return;
    }
    let mut of_device: BTreeMap<&RdmaDevice, Vec<(&NodeName, Part)>> = BTreeMap::new();
    let mut works: BTreeMap<&NodeName, bool> = BTreeMap::new();
    for end in plan.cables.iter().flat_map(|cable| &cable.ends) {
        let Part::Nic(node, device) = &end.part else {
            continue;
        };
        let cable = cable_at(end);
        if missing.contains(&cable) {
            of_device.entry(device).or_default().push((node, cable));
            works.entry(node).or_default();
        } else {
            of_device.entry(device).or_default();
            let moves = |[out, into]: [f64; 2]| out.max(into) >= IDLE_BYTES_PER_SECOND;
            *works.entry(node).or_default() |= rates(end).is_some_and(moves);
        }
    }
    let planned = |device: &RdmaDevice| {
        let nics = plan.cables.iter().flat_map(|cable| &cable.ends);
        nics.filter(|end| matches!(&end.part, Part::Nic(_, own) if own == device))
            .count()
    };
    of_device.retain(|device, hosts| {
        hosts.len() >= MIN_PEERS
            && hosts.len() as f64 >= PEER_SHARE * planned(device) as f64
            && hosts.iter().filter(|(node, _)| works[node]).count() as f64
                >= PEER_SHARE * hosts.len() as f64
    });
    if of_device.is_empty() {
        return;
    }
    let finding = never_used(&of_device);
    findings.retain(|found| {
        found.rule != &MISSING_CABLE || !found.parts.iter().any(|part| finding.parts.contains(part))
    });
    findings.push(finding);
    sort(findings);
}

fn never_used(of_device: &BTreeMap<&RdmaDevice, Vec<(&NodeName, Part)>>) -> Finding {
    let devices: Vec<String> = of_device.keys().map(ToString::to_string).collect();
    let hosts: BTreeSet<&NodeName> = of_device
        .values()
        .flatten()
        .map(|(node, _)| *node)
        .collect();
    let cables = of_device.values().flatten().map(|(_, cable)| cable.clone());
    Finding {
        rule: &WRONG_PLAN,
        parts: cables.collect(),
        sentence: format!(
            "The plan has cables at {} that {} hosts do not have.",
            devices.join(", "),
            hosts.len()
        ),
        evidence: vec![
            "most of the planned cables of these devices are missing, in the same way on each host"
                .to_owned(),
            "traffic: the hosts' other ports are busy, so their jobs do not miss these".to_owned(),
        ],
    }
}

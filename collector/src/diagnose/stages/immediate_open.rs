//! What opens an incident at its first tick: readings that neither one bad scrape nor a transient state can cause.
//!
//! A port that is down, links that train, values that are missing: each of them may be over at the next scrape, and
//! waits for it. Evidence that a device has counted as a separate event, many hosts report independently, or a host has
//! reported on two scrapes before the tick, does not wait.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{GPU_XID_EVENTS, NIC_PAUSE_STORMS, RDMA_PORT_UP};

use crate::classes::{Class, GPU_LOST, NVLINK_DOWN, PFC_STORM, PORT_DOWN};
use crate::detect::confirmation::second_look_at;
use crate::detect::detector::Evidence;
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::hold_down::is_its_own;
use crate::diagnose::stages::lost_links::{PARENT_MIN_CHILDREN, cables_of, is_lost_cable};
use crate::store::History;

/// Classes that a counter of events proves: the driver has reported a fatal XID and the GPU does not respond; the
/// watchdog of a NIC has counted a storm and the NIC pauses its switch.
const COUNTED: [(&Class, &str); 2] = [
    (&GPU_LOST, GPU_XID_EVENTS.name),
    (&PFC_STORM, NIC_PAUSE_STORMS.name),
];
/// Classes that two scrapes of the host prove.
const LOST: [&Class; 2] = [&PORT_DOWN, &NVLINK_DOWN];
/// Fewest hosts that prove a switch to be down by losing their links together: each is a separate reading, and as
/// many as make a parent are stronger than a confirmation scrape of one.
const MIN_HOSTS: usize = PARENT_MIN_CHILDREN;

/// The parts of which the findings of one tick are proof.
pub(crate) fn proven(
    fabric: &Fabric,
    (history, now): (&History, Timestamp),
    groups: &BTreeMap<Part, Vec<Finding>>,
) -> BTreeSet<Part> {
    let dark: Vec<&Part> = dark_switches(fabric, groups);
    // Several switches simultaneously are no switch's fault, but a fabric that restarts.
    let switch = dark.first().filter(|_| dark.len() == 1).copied();
    let all = groups.values().flatten().map(|found| &found.evidence);
    let cables = all.filter(|evidence| is_lost_cable(evidence.class));
    let cables: BTreeSet<&Part> = cables.map(|evidence| &evidence.part).collect();
    let is_seen_twice = |part: &Part| {
        second_look_at(history, part).is_some_and(|second_look| {
            is_its_own(fabric, history, (part, &cables), (second_look, now))
        })
    };
    let proves = |part: &Part, evidence: &Evidence| {
        let is_lost = LOST.contains(&evidence.class) && evidence.part == *part;
        COUNTED.contains(&(evidence.class, evidence.signal)) || is_lost && is_seen_twice(part)
    };
    let alone = groups.iter().filter(|(part, findings)| {
        let mut findings = findings.iter();
        findings.any(|found| proves(part, &found.evidence))
    });
    let alone = alone.map(|(part, _)| part);
    alone.chain(switch).cloned().collect()
}

/// Switches of which all hosts, and enough of them, report that their ports there are down.
fn dark_switches<'a>(fabric: &Fabric, groups: &'a BTreeMap<Part, Vec<Finding>>) -> Vec<&'a Part> {
    let said = |findings: &'a [Finding]| -> BTreeSet<&'a Part> {
        let by_host = findings
            .iter()
            .map(|found| &found.evidence)
            .filter(|evidence| {
                is_lost_cable(evidence.class) && evidence.signal == RDMA_PORT_UP.name
            });
        by_host.map(|evidence| &evidence.part).collect()
    };
    let switches = groups.iter().filter_map(|(part, findings)| {
        let dark = said(findings);
        let hosts: BTreeSet<&NodeName> = dark.iter().filter_map(|cable| cable.node()).collect();
        let enough = matches!(part, Part::Switch(_)) && hosts.len() >= MIN_HOSTS;
        enough.then_some((part, dark))
    });
    let mut switches: Vec<_> = switches.collect();
    switches.retain(|(switch, dark)| {
        let own = fabric.find(switch).map(|id| cables_of(fabric, id));
        let mut of_hosts = own.into_iter().flatten();
        of_hosts.all(|(cable, _)| cable.node().is_none() || dark.contains(&cable))
    });
    switches.into_iter().map(|(switch, _)| switch).collect()
}

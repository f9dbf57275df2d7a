//! Root cause: evidence becomes findings about parts, and those that one part explains become its incident.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, PartId, Timestamp, Witness};
use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::{GPU_RECOVERY_ACTION, RDMA_PORT_UP};

use crate::assemble::node_parts::{gpus_behind, gpus_below, gpus_routed_over};
use crate::classes::belief::SURE_ENOUGH_TO_PAGE;
use crate::classes::{
    Class, GPU_MEMORY, HOST_DOWN, PORT_DOWN, PORT_FLAPPING, SWITCH_DOWN, Severity, UPLINK_DOWN,
};
use crate::detect::detector::{Evidence, Explanation};
use crate::diagnose::stages::maintenance::Window;
use crate::diagnose::stages::posterior::{Weighed, weigh};
use crate::diagnose::stages::reattribute::explained_by_others;
use crate::diagnose::stages::whole_hosts::whole_hosts;
use crate::fabric::Routes;
use crate::jobs::job::JobName;
use crate::stages::{LeftOut, Step};

/// Ticks in a row with evidence before an incident opens, and without before it closes: one bad scrape
/// does not page, and a fault that comes and goes stays one incident.
pub const OPEN_AFTER_TICKS: u32 = 2;
/// See [`OPEN_AFTER_TICKS`].
pub const CLOSE_AFTER_TICKS: u32 = 12;
/// Share of a switch's cables that must be lost before the switch itself is named.
pub const PARENT_SHARE: f64 = 0.3;
/// Fewest lost cables that make a parent: one cable is a cable.
pub const PARENT_MIN_CHILDREN: usize = 3;
/// The same for a host whose exporter no longer responds either: two can be a card of a host that lives.
pub const SILENT_HOST_MIN_CHILDREN: usize = 2;

/// A piece of evidence with its explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was seen.
    pub evidence: Evidence,
    /// Why that is a fault.
    pub explanation: Explanation,
}

/// One fault: the part to fix, why, and what it affects.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Short and stable: the same part with a fault has the same id after a restart.
    pub id: String,
    /// The part to fix; its text is the fault domain.
    pub root: Part,
    /// Of a cable between switches the end that does not name it; none if it was never seen.
    pub far_end: Option<Part>,
    /// Parts that it may be as well: what was seen when it opened could not distinguish them.
    pub alternatives: Vec<Part>,
    /// What is wrong with it.
    pub class: &'static Class,
    /// How bad it is.
    pub severity: Severity,
    /// First evidence.
    pub since: Timestamp,
    /// Newest evidence.
    pub last_seen: Timestamp,
    /// Probability that the part is the root cause, 0 to 1.
    pub posterior: f64,
    /// The part and those that it may be instead; none of an incident of an earlier run that was not seen again yet.
    pub weighed: Option<Weighed>,
    /// Largest effect of its findings.
    pub effect: f64,
    /// Evidence with explanations, strongest first.
    pub findings: Vec<Finding>,
    /// Parts that share the fault.
    pub related: Vec<Part>,
    /// Parts that wait because of it.
    pub victims: Vec<Part>,
    /// GPUs that may wait because of it: the part's own and those behind it, and all of the jobs that use these.
    pub gpus_affected: usize,
    /// Jobs that wait for the part.
    pub jobs: Vec<JobName>,
    /// By which share the slowest of these goes slower than it usually does; none if that is not known.
    pub slowdown: Option<f64>,
    /// How often it closed and came back; `since` is that of the first time.
    pub reopenings: u32,
    /// The maintenance window that explains it: then it does not page.
    pub maintenance: Option<Arc<Window>>,
    /// The strongest evidence when it opened or its class last changed: a label, so it does not follow each new value.
    pub first_statement: String,
}

/// Findings by the part that explains them.
pub(crate) fn group(
    fabric: &Fabric,
    findings: Vec<Finding>,
    down: &BTreeSet<Part>,
    is_silent: impl Fn(&NodeName) -> bool,
    left_out: LeftOut,
) -> BTreeMap<Part, Vec<Finding>> {
    let (mut parents, mut roots, mut explained) = Default::default();
    if !left_out.has(Step::Parents) {
        parents = self::parents(fabric, &findings, down, is_silent);
        roots = shared_roots(&findings);
        roots.extend(bundles(fabric, &findings));
        explained = explained_by_others(fabric, &findings);
    }
    if left_out.has(Step::HostComponent) {
        parents.retain(|_, parent| !matches!(parent, Part::Host(_)));
    } else if !left_out.has(Step::Parents) {
        roots.extend(whole_hosts(fabric, &findings));
    }
    let mut groups: BTreeMap<Part, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        let part = &finding.evidence.part;
        let part = explained.get(part).unwrap_or(part);
        let parent = parents.get(part);
        let root = parent.or_else(|| roots.get(part)).unwrap_or(part).clone();
        groups.entry(root).or_default().push(finding);
    }
    groups
}

/// Lost cables whose switch or host is what is really lost: child -> parent.
///
/// A switch swallows its cables when a good share of them is lost, a host only when all of its are:
/// three dead rails of eight are three faults, or a card's, and not the host's.
fn parents(
    fabric: &Fabric,
    findings: &[Finding],
    down: &BTreeSet<Part>,
    is_silent: impl Fn(&NodeName) -> bool,
) -> BTreeMap<Part, Part> {
    let lost: BTreeSet<_> = findings
        .iter()
        .filter(|f| is_lost_cable(f.evidence.class))
        .map(|f| &f.evidence.part)
        .collect();
    let said_by_hosts = findings
        .iter()
        .filter(|f| f.evidence.signal == RDMA_PORT_UP.name);
    let dark: BTreeSet<_> = said_by_hosts.map(|f| &f.evidence.part).collect();
    let mut cables = cables_of_switches(fabric, &lost);
    cables
        .values_mut()
        .for_each(|cables| leave_out_unsaid(cables, &lost, &dark));
    let cables = cables.into_iter().map(|(switch, cables)| {
        let cables: Vec<Part> = cables.into_iter().map(|(cable, _)| cable).collect();
        (switch, cables)
    });
    let hosts = cables_of_hosts(fabric, &lost).into_iter();
    let hosts = hosts.map(|(host, cables)| {
        let fewest = match host.node() {
            Some(node) if is_silent(node) && !cables.iter().any(|cable| dark.contains(cable)) => {
                SILENT_HOST_MIN_CHILDREN
            }
            _ => PARENT_MIN_CHILDREN,
        };
        (host, cables, 1.0, fewest)
    });
    let switches = cables
        .into_iter()
        .map(|(part, cables)| (part.clone(), cables, PARENT_SHARE, PARENT_MIN_CHILDREN));
    let mut parents: BTreeMap<Part, (bool, f64, usize, Part)> = BTreeMap::new();
    for (parent, children, needed, fewest) in hosts.chain(switches) {
        let gone: Vec<_> = children
            .iter()
            .filter(|child| lost.contains(child))
            .collect();
        let share = gone.len() as f64 / children.len() as f64;
        let known_down = down.contains(&parent);
        if gone.len() < fewest || (share < needed && !known_down) {
            continue;
        }
        let claim = (known_down, share, gone.len());
        for child in &gone {
            // Of the two ends of a cable the one that lost the greater share explains it: a dead leaf takes
            // a third of a small spine's cables with it. Where both lost all, one fault is likelier than
            // several: behind a dead leaf all cables of whole hosts may end.
            let known = parents.get(child);
            let better = known.is_none_or(|known| claim > (known.0, known.1, known.2));
            if better {
                let (down, share, count) = claim;
                parents.insert((*child).clone(), (down, share, count, parent.clone()));
            }
        }
    }
    parents
        .into_iter()
        .map(|(child, (.., parent))| (child, parent))
        .collect()
}

/// Whether a class implies that a link is down, permanently or repeatedly.
pub(crate) fn is_lost_cable(class: &Class) -> bool {
    [&PORT_DOWN, &UPLINK_DOWN, &PORT_FLAPPING].contains(&class)
}

/// Whether so many lost cables, of all that there are, are enough to be their switch's fault.
pub(crate) fn are_the_switchs(lost: usize, all: usize) -> bool {
    lost >= PARENT_MIN_CHILDREN && lost as f64 >= PARENT_SHARE * all as f64
}

/// Cables of the switches that have one of these, and whether the subnet shows them.
pub(crate) fn cables_of_switches<'a>(
    fabric: &'a Fabric,
    lost: &BTreeSet<&Part>,
) -> BTreeMap<&'a Part, Vec<(Part, bool)>> {
    let found = lost.iter().flat_map(|cable| fabric.cables_named(cable));
    let ends: BTreeSet<PartId> = found.flat_map(|(near, far)| [near, far.peer]).collect();
    let ends = ends.into_iter().map(|id| (id, &fabric.vertex(id).part));
    let switches = ends.filter(|(_, part)| matches!(part, Part::Switch(_)));
    switches
        .map(|(id, switch)| (switch, cables_of(fabric, id)))
        .collect()
}

/// Cables of a part, and whether the subnet shows them.
pub(crate) fn cables_of(fabric: &Fabric, id: PartId) -> Vec<(Part, bool)> {
    let cables = fabric.neighbours(id).filter_map(|near| {
        let swept = near.link.seen_by.of(Witness::Subnet).is_some();
        // Only a cable has a part.
        Some((fabric.cable_part(near.id)?, swept))
    });
    cables.collect()
}

/// Cables to switches of the hosts that have lost enough of them to be what is lost.
fn cables_of_hosts(fabric: &Fabric, lost: &BTreeSet<&Part>) -> BTreeMap<Part, Vec<Part>> {
    let mut counts: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for node in lost.iter().filter_map(|cable| cable.node()) {
        *counts.entry(node).or_default() += 1;
    }
    counts.retain(|_, count| *count >= SILENT_HOST_MIN_CHILDREN);
    let mut cables: BTreeMap<Part, Vec<Part>> = BTreeMap::new();
    if counts.is_empty() {
        return cables;
    }
    for (id, a, b, _) in fabric.links() {
        let ends = [a, b].map(|end| &fabric.vertex(end).part);
        let ([Part::Nic(node, _), Part::Switch(_)] | [Part::Switch(_), Part::Nic(node, _)]) = ends
        else {
            continue;
        };
        if counts.contains_key(node) {
            let host = Part::Host(node.clone());
            cables
                .entry(host)
                .or_default()
                .extend(fabric.cable_part(id));
        }
    }
    cables
}

/// Omits the cables of a leaf to other switches whose loss cannot have been reported yet. Hosts report at
/// once that their ports are down; the next sweep comes later, and LLDP forgets neighbors minutes after a switch
/// has died.
///
/// Cables that a sweep shows are omitted only where several hosts live and report that all of their ports there
/// are down: what is left of such a leaf serves no host.
fn leave_out_unsaid(
    cables: &mut Vec<(Part, bool)>,
    lost: &BTreeSet<&Part>,
    dark: &BTreeSet<&Part>,
) {
    let to_hosts = || cables.iter().filter(|(cable, _)| cable.node().is_some());
    if to_hosts().count() < PARENT_MIN_CHILDREN {
        return;
    }
    let hosts: BTreeSet<_> = to_hosts().map(|(cable, _)| cable.node()).collect();
    let serves_nobody = hosts.len() > 1 && to_hosts().all(|(cable, _)| dark.contains(cable));
    cables.retain(|(cable, swept)| {
        (*swept && !serves_nobody) || cable.node().is_some() || lost.contains(cable)
    });
}

/// Cables between the same two switches whose links are down together are one fault: of a line card, a trunk or a setting. The
/// first of them by name stands for all.
fn bundles(fabric: &Fabric, findings: &[Finding]) -> BTreeMap<Part, Part> {
    let lost = findings
        .iter()
        .filter(|found| is_lost_cable(found.evidence.class));
    let lost: BTreeSet<&Part> = lost.map(|found| &found.evidence.part).collect();
    let mut by_ends: BTreeMap<[PartId; 2], Vec<&Part>> = BTreeMap::new();
    let of_switches = lost
        .into_iter()
        .filter(|part| matches!(part, Part::SwitchLink(..)));
    for cable in of_switches {
        if let Some((near, far)) = fabric.find_cable(cable) {
            let (low, high) = (near.min(far.peer), near.max(far.peer));
            by_ends.entry([low, high]).or_default().push(cable);
        }
    }
    let bundles = by_ends.into_values().filter(|cables| cables.len() > 1);
    let roots = bundles.flat_map(|cables| {
        let first = cables[0].clone();
        let others = cables.into_iter().skip(1);
        others
            .map(move |cable| (cable.clone(), first.clone()))
            .collect::<Vec<_>>()
    });
    roots.collect()
}

/// The end of a cable between switches that does not name it.
fn far_end(fabric: &Fabric, root: &Part) -> Option<Part> {
    let Part::SwitchLink(..) = root else {
        return None;
    };
    let (_, far) = fabric.find_cable(root)?;
    match &fabric.vertex(far.peer).part {
        Part::Switch(switch) => {
            let port = fabric.port_name(far.peer, far.peer_port);
            Some(Part::SwitchLink(switch.clone(), port))
        }
        _ => None,
    }
}

/// Parts that the strongest finding cannot distinguish from the root cause.
fn alternatives(root: &Part, findings: &[Finding]) -> Vec<Part> {
    let strongest = findings.first().map(|finding| &finding.evidence);
    let of_root = strongest.filter(|evidence| evidence.part == *root);
    of_root.map_or_else(Vec::new, |evidence| {
        let others = evidence.alike.iter().filter(|part| *part != root);
        others.cloned().collect()
    })
}

/// Parts that name each other as sharing one fault get one root: the first of them by name.
fn shared_roots(findings: &[Finding]) -> BTreeMap<Part, Part> {
    let mut roots = BTreeMap::new();
    for finding in findings {
        let together = finding
            .evidence
            .related
            .iter()
            .chain([&finding.evidence.part]);
        if let Some(first) = together.clone().min() {
            for part in together {
                let root: &mut Part = roots.entry(part.clone()).or_insert_with(|| first.clone());
                if first < root {
                    *root = first.clone();
                }
            }
        }
    }
    roots
}

impl Incident {
    /// How bad it is if it is what it seems to be.
    pub(crate) fn worst(&self) -> Severity {
        let mut findings = self.findings.iter().map(|found| &found.evidence);
        let severities = findings.clone().map(Evidence::severity);
        // A class that no finding has is that of what they have in common.
        let of_class =
            (!findings.any(|found| found.class == self.class)).then_some(self.class.severity);
        severities
            .chain(of_class)
            .fold(Severity::Warning, Severity::max)
    }

    /// Of a cable between switches, and of a switch without NICs, the GPUs routed over it are victims too.
    pub(crate) fn add_routed(&mut self, fabric: &Fabric, routes: &Routes) {
        let routed: Vec<Part> = match &self.root {
            Part::SwitchLink(..) => {
                let routed = gpus_routed_over(fabric, routes, &self.root);
                routed.into_iter().map(|(gpu, _)| gpu).collect()
            }
            Part::Switch(_) => gpus_below(fabric, routes, &self.root),
            _ => return,
        };
        let own = std::mem::take(&mut self.victims);
        let all: BTreeSet<_> = own.into_iter().chain(routed).collect();
        self.victims = all.into_iter().collect();
        self.gpus_affected = self.gpus_behind().count();
    }

    /// GPUs that are the part or behind it.
    pub fn gpus_behind(&self) -> impl Iterator<Item = (&NodeName, GpuIndex)> {
        let parts = self.victims.iter().chain([&self.root]);
        parts.filter_map(|part| match part {
            Part::Gpu(node, gpu) => Some((node, *gpu)),
            _ => None,
        })
    }
}

/// Puts the worst first: by severity, then by how many GPUs wait, then by how many are behind the part.
pub(crate) fn worst_first(incidents: &mut [Incident]) {
    let rank = |incident: &Incident| {
        let behind = incident.gpus_behind().count();
        (incident.severity, incident.gpus_affected, behind)
    };
    incidents.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.root.cmp(&b.root)));
}

/// The incident of a part with such findings.
pub(crate) fn describe(
    fabric: &Fabric,
    root: &Part,
    mut findings: Vec<Finding>,
    now: Timestamp,
) -> Incident {
    // A memory error is the cause of the reset that the driver asks for.
    let is_request = |own: &Evidence| own.signal == GPU_RECOVERY_ACTION.name;
    let is_memory_error = |own: &Evidence| own.class == &GPU_MEMORY && !is_request(own);
    let has_memory_error = findings.iter().any(|own| is_memory_error(&own.evidence));
    findings.sort_by(|a, b| {
        let (a, b) = (&a.evidence, &b.evidence);
        let rank = |own: &Evidence| (has_memory_error && is_request(own), own.class.order());
        let by_class = rank(a).cmp(&rank(b));
        by_class
            .then_with(|| b.effect.total_cmp(&a.effect))
            .then_with(|| (&a.part, &a.statement).cmp(&(&b.part, &b.statement)))
    });
    let worst = findings
        .first()
        .map_or(&PORT_DOWN, |finding| finding.evidence.class);
    let class = match root {
        Part::Switch(_) if is_lost_cable(worst) => &SWITCH_DOWN,
        Part::Host(_) if is_lost_cable(worst) => &HOST_DOWN,
        _ => worst,
    };
    let of_parts = findings
        .iter()
        .flat_map(|f| [&f.evidence.part].into_iter().chain(&f.evidence.related));
    let related: BTreeSet<_> = of_parts.filter(|part| *part != root).cloned().collect();
    let mut victims: BTreeSet<_> = findings
        .iter()
        .flat_map(|f| f.evidence.victims.iter().cloned())
        .collect();
    victims.extend(gpus_behind(fabric, root));
    victims.remove(root);
    let weighed = weigh(fabric, root, &findings, &related);
    let posterior = weighed.posterior();
    let mut incident = Incident {
        id: incident_id(root),
        root: root.clone(),
        far_end: far_end(fabric, root),
        alternatives: alternatives(root, &findings),
        class,
        severity: class.severity,
        posterior,
        weighed: Some(weighed),
        since: now,
        last_seen: now,
        effect: findings
            .iter()
            .map(|finding| finding.evidence.effect)
            .fold(0.0, f64::max),
        related: related.into_iter().collect(),
        victims: victims.into_iter().collect(),
        gpus_affected: 0,
        jobs: Vec::new(),
        slowdown: None,
        reopenings: 0,
        maintenance: None,
        first_statement: findings
            .first()
            .map(|finding| finding.evidence.statement.clone())
            .unwrap_or_default(),
        findings,
    };
    incident.severity = severity_of(incident.worst(), posterior);
    incident.gpus_affected = incident.gpus_behind().count();
    incident
}

/// Severity of an incident: one that probably has another cause does not page.
pub(crate) fn severity_of(worst: Severity, posterior: f64) -> Severity {
    if posterior >= SURE_ENOUGH_TO_PAGE {
        worst
    } else {
        Severity::Warning
    }
}

/// Eight hex digits out of the fault domain: stable over restarts and equal on every replica.
///
/// FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), of which the upper half is kept.
pub(crate) fn incident_id(root: &Part) -> String {
    short_id(&root.to_string())
}

/// Eight hex digits out of a text.
pub(crate) fn short_id(text: &str) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{:08x}", hash >> 32)
}

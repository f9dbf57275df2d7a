//! Root cause: evidence becomes findings about parts, and those that one part explains become its incident.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::{GPU_RECOVERY_ACTION, GPU_SM_ACTIVE, SENSOR_ALARM};

use crate::assemble::node_parts::{gpus_behind, gpus_below, gpus_routed_over};
use crate::classes::belief::SURE_ENOUGH_TO_PAGE;
use crate::classes::{
    Class, GPU_MEMORY, GPU_SLOW, HOST_DOWN, NVLINK_ERRORS, PORT_DOWN, SWITCH_DOWN, Severity,
};
use crate::detect::detector::{Evidence, Explanation};
use crate::detect::rules::late_rank;
use crate::diagnose::stages::bonds::members_of_bonds;
use crate::diagnose::stages::lost_links::{Earlier, bundles, is_lost_cable, parents};
use crate::diagnose::stages::maintenance::Window;
use crate::diagnose::stages::posterior::{Weighed, weigh};
use crate::diagnose::stages::reattribute::explained_by_others;
use crate::diagnose::stages::shared_nics::shared_nics;
use crate::diagnose::stages::whole_hosts::whole_hosts;
use crate::fabric::Routes;
use crate::jobs::job::JobName;
use crate::stages::{LeftOut, Step};

/// Ticks in a row with evidence before an incident opens, and without before it closes: one bad scrape
/// does not page, and an intermittent fault stays one incident.
pub const OPEN_AFTER_TICKS: u32 = 2;
/// See [`OPEN_AFTER_TICKS`].
pub const CLOSE_AFTER_TICKS: u32 = 12;

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
    /// For a cable the switch port at the end that does not name it; none if it was never seen.
    pub far_end: Option<Part>,
    /// Other candidates: what was seen when it opened could not distinguish them.
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
    /// Slowdown of the slowest of these relative to its baseline, as a share; none if that is not known.
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
    earlier: &Earlier,
    answers: impl Fn(&Part) -> Option<bool>,
    left_out: LeftOut,
) -> BTreeMap<Part, Vec<Finding>> {
    let (mut of_lost, mut roots, mut explained) = Default::default();
    if !left_out.has(Step::Parents) {
        of_lost = parents(fabric, &findings, earlier, answers);
        roots = shared_roots(&findings);
        roots.extend(bundles(fabric, &findings));
        explained = explained_by_others(fabric, &findings);
        let has_root = |part: &Part| of_lost.contains_key(part) || explained.contains_key(part);
        roots.extend(shared_nics(fabric, &findings, has_root));
        roots.extend(members_of_bonds(&findings));
    }
    if left_out.has(Step::HostComponent) {
        of_lost.retain(|_, parent| !matches!(parent, Part::Host(_)));
    } else if !left_out.has(Step::Parents) {
        roots.extend(whole_hosts(fabric, &findings));
    }
    let mut groups: BTreeMap<Part, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        let part = &finding.evidence.part;
        let part = explained.get(part).unwrap_or(part);
        let parent = of_lost.get(part);
        let root = parent.or_else(|| roots.get(part)).unwrap_or(part).clone();
        groups.entry(root).or_default().push(finding);
    }
    groups
}

/// The end of a cable at a switch that does not name it.
fn far_end(fabric: &Fabric, root: &Part) -> Option<Part> {
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
    sort_by_cause(&mut findings);
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

/// Puts the finding that is nearest to the cause first.
///
/// A memory error is the cause of the reset that the driver asks for. Errors of NVLinks, which send again what was corrupted, are the
/// cause of SMs that are active for longer, and of a rank that is late. What a sensor alarms about may have been so for weeks.
fn sort_by_cause(findings: &mut [Finding]) {
    let is_request = |own: &Evidence| own.signal == GPU_RECOVERY_ACTION.name;
    let is_memory_error = |own: &Evidence| own.class == &GPU_MEMORY && !is_request(own);
    let of_waits = [GPU_SM_ACTIVE.name, late_rank::SIGNAL];
    let is_link_error = |own: &Evidence| own.class == &NVLINK_ERRORS;
    let any = |is: &dyn Fn(&Evidence) -> bool| findings.iter().any(|own| is(&own.evidence));
    let (memory, links) = (any(&is_memory_error), any(&is_link_error));
    let is_effect = |own: &Evidence| {
        let waits = own.class == &GPU_SLOW && of_waits.contains(&own.signal);
        let is_alarm = own.signal == SENSOR_ALARM.name;
        is_alarm || (memory && is_request(own)) || (links && waits)
    };
    let rank = |own: &Evidence| (is_effect(own), own.class.order());
    findings.sort_by(|a, b| {
        let (a, b) = (&a.evidence, &b.evidence);
        rank(a)
            .cmp(&rank(b))
            .then_with(|| b.effect.total_cmp(&a.effect))
            .then_with(|| (&a.part, &a.statement).cmp(&(&b.part, &b.statement)))
    });
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

#[cfg(test)]
mod tests {
    use railscope_model::metric::{GPU_CLOCK, GPU_TENSOR_ACTIVE};

    use super::*;
    use crate::classes::{GPU_ERROR, GPU_THERMAL, HOST_COOLING, PCIE_DEGRADED};
    use crate::detect::found::{found, part};

    const GPU: &str = "gpu/n1:2";

    /// The class and the severity of an incident of one GPU with findings of these classes and signals.
    fn of(findings: &[(&'static Class, &'static str)]) -> (&'static str, Severity) {
        let findings = findings.iter().map(|(class, signal)| {
            let mut finding = found(class.name, class, GPU, &[]);
            finding.evidence.signal = signal;
            finding
        });
        let fabric = Fabric::default();
        let incident = describe(&fabric, &part(GPU), findings.collect(), Timestamp(0));
        (incident.class.name, incident.severity)
    }

    #[test]
    fn nvlinks_that_send_again_are_why_work_takes_longer_and_not_why_a_clock_is_low() {
        let errors = (&NVLINK_ERRORS, "railscope_gpu_nvlink_errors_total");
        let waits = (&GPU_SLOW, "railscope_gpu_sm_active_ratio");
        let (alone, beside) = (of(&[errors]), of(&[waits, errors]));
        assert_eq!(alone, ("nvlink-errors", Severity::Warning));
        assert_eq!(beside, ("nvlink-errors", Severity::Critical));
        assert_eq!(of(&[waits]), ("gpu-slow", Severity::Critical));
        let hot = (&GPU_THERMAL, "");
        assert_eq!(of(&[waits, errors, hot]).0, "nvlink-errors");
        let late = (&GPU_SLOW, late_rank::SIGNAL);
        assert_eq!(of(&[late, errors]).0, "nvlink-errors");
        for own in [&GPU_CLOCK, &GPU_TENSOR_ACTIVE] {
            let own = (&GPU_SLOW, own.name);
            assert_eq!(of(&[own, errors]).0, "gpu-slow");
        }
    }

    #[test]
    fn a_failed_fan_is_a_ticket_until_gpus_are_slower() {
        let fan = (&HOST_COOLING, SENSOR_ALARM.name);
        let slower = (&HOST_COOLING, GPU_CLOCK.name);
        assert_eq!(of(&[fan]), ("host-cooling", Severity::Warning));
        let degraded = (&PCIE_DEGRADED, "");
        assert_eq!(of(&[fan, degraded]).0, "pcie-degraded");
        assert_eq!(of(&[fan, slower]), ("host-cooling", Severity::Critical));
    }

    #[test]
    fn a_memory_error_is_why_the_driver_asks_for_a_reset() {
        let asked = (&GPU_ERROR, GPU_RECOVERY_ACTION.name);
        let memory = (&GPU_MEMORY, "");
        assert_eq!(of(&[asked]).0, "gpu-error");
        assert_eq!(of(&[asked, memory]).0, "gpu-memory");
    }
}

//! Incidents and their evidence as JSON.

use serde::Serialize;

use crate::clock::unix_seconds;
use crate::diagnose::incident::{Finding, Incident as CoreIncident};
use crate::maintenance::WindowWire;
use crate::serve::layout::Layout;
use crate::serve::phrases;
use crate::serve::router::runbook;
use crate::serve::wire::Curve;
use crate::status::State;

/// Placeholder for an incident of an earlier run until this run sees it.
const UNSEEN: &str =
    "Open before the collector was restarted; its evidence has not been seen again yet.";

/// An incident in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Incident {
    pub(crate) id: String,
    pub(crate) fault_domain: String,
    /// Other candidates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) alternatives: Vec<String>,
    /// The part in plain text.
    pub(crate) part: String,
    pub(crate) class: &'static str,
    pub(crate) title: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) since: f64,
    pub(crate) last_seen: f64,
    /// Probability that the part is the root cause.
    pub(crate) posterior: f64,
    pub(crate) effect: f64,
    /// GPUs that may wait because of it: those behind the part, and all of the jobs that use it.
    pub(crate) gpus_affected: usize,
    /// GPUs that are the part or behind it.
    pub(crate) gpus_behind: usize,
    /// Jobs that use the part.
    pub(crate) jobs: Vec<String>,
    /// Slowdown of the slowest of these relative to its baseline, as a share; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slowdown: Option<f64>,
    pub(crate) summary: String,
    pub(crate) action: String,
    pub(crate) runbook: String,
    /// How often it closed and came back.
    pub(crate) reopenings: u32,
    /// Whether a maintenance window explains it; then it does not page.
    pub(crate) in_maintenance: bool,
    /// The work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maintenance: Option<WindowWire>,
}

impl Incident {
    pub(crate) fn of(incident: &CoreIncident, layout: &Layout, state: &State) -> Self {
        let summary = incident.findings.first().map_or_else(
            || String::from(UNSEEN),
            |finding| finding.evidence.statement.clone(),
        );
        let maintenance = incident.maintenance.as_ref();
        Self {
            id: incident.id.clone(),
            fault_domain: incident.root.to_string(),
            alternatives: incident
                .alternatives
                .iter()
                .map(ToString::to_string)
                .collect(),
            part: phrases::part(&incident.root, layout),
            class: incident.class.name,
            title: incident.class.title,
            severity: incident.severity.as_str(),
            since: unix_seconds(incident.since),
            last_seen: unix_seconds(incident.last_seen),
            posterior: thousandths(incident.posterior),
            effect: incident.effect,
            gpus_affected: incident.gpus_affected,
            gpus_behind: incident.gpus_behind().count(),
            slowdown: incident.slowdown,
            jobs: incident.jobs.iter().map(ToString::to_string).collect(),
            summary,
            action: phrases::action(incident.class, &incident.root, layout),
            runbook: runbook(&state.runbook, incident.class.name),
            reopenings: incident.reopenings,
            in_maintenance: maintenance.is_some(),
            maintenance: maintenance.map(|work| WindowWire::of(work, incident.last_seen)),
        }
    }
}

/// `/api/v1/incidents/{id}`
#[derive(Debug, Serialize)]
pub(crate) struct IncidentDetail {
    pub(crate) cluster: String,
    pub(crate) at: f64,
    #[serde(flatten)]
    pub(crate) incident: Incident,
    /// The part and those that it may be instead, the likeliest first: three at most, the part itself first.
    pub(crate) candidates: Vec<Candidate>,
    /// Probability that no part is faulty: software, a transient state, a wrong counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_part: Option<f64>,
    pub(crate) evidence: Vec<Evidence>,
    /// Curve of the deciding counter; absent where the evidence rests on no series, or on none of the worst incidents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) curve: Option<Curve>,
    pub(crate) related: Vec<String>,
    pub(crate) victims: Vec<String>,
}

/// A candidate for the root cause.
#[derive(Debug, Serialize)]
pub(crate) struct Candidate {
    fault_domain: String,
    /// The part in plain text.
    part: String,
    /// Probability that it is the root cause.
    posterior: f64,
    /// By piece of evidence, in its order: its log-likelihood for this part, relative to no faulty part,
    /// in nats.
    nats: Vec<f64>,
}

impl Candidate {
    pub(crate) fn all(incident: &CoreIncident, layout: &Layout) -> Vec<Self> {
        let all = incident.weighed.iter().flat_map(|one| &one.candidates);
        all.map(|one| Self {
            fault_domain: one.part.to_string(),
            part: phrases::part(&one.part, layout),
            posterior: thousandths(one.posterior),
            nats: one.nats.iter().copied().map(thousandths).collect(),
        })
        .collect()
    }
}

/// As many digits as a probability bears.
pub(crate) fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What a detector saw, and why that is a fault.
#[derive(Debug, Serialize)]
pub(crate) struct Evidence {
    detector: &'static str,
    part: String,
    class: &'static str,
    effect: f64,
    statement: String,
    check: &'static str,
    threshold: String,
    clears: &'static str,
}

impl Evidence {
    pub(crate) fn of(finding: &Finding) -> Self {
        let Finding {
            evidence,
            explanation,
        } = finding;
        Self {
            detector: evidence.detector,
            part: evidence.part.to_string(),
            class: evidence.class.name,
            effect: evidence.effect,
            statement: evidence.statement.clone(),
            check: explanation.check,
            threshold: explanation.threshold.clone(),
            clears: explanation.clears,
        }
    }
}

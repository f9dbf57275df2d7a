//! Incidents and their evidence as JSON.

use serde::Serialize;

use crate::api::layout::Layout;
use crate::api::{runbook, words};
use crate::diagnose::incident::{Finding, Incident as CoreIncident};
use crate::maintenance::WindowWire;
use crate::state::State;

/// What is said of an incident that an earlier run knew, until this one sees it.
const UNSEEN: &str =
    "Open before the collector was restarted; its evidence has not been seen again yet.";

/// An incident in a list.
#[derive(Debug, Serialize)]
pub(in crate::api) struct Incident {
    pub(in crate::api) id: String,
    pub(in crate::api) fault_domain: String,
    /// The part in plain words.
    pub(in crate::api) part: String,
    pub(in crate::api) class: &'static str,
    pub(in crate::api) title: &'static str,
    pub(in crate::api) severity: &'static str,
    pub(in crate::api) since: f64,
    pub(in crate::api) last_seen: f64,
    /// Chance that the part is to blame.
    pub(in crate::api) posterior: f64,
    pub(in crate::api) effect: f64,
    /// GPUs that it slows or stops: those behind the part, and all of the jobs that wait for them.
    pub(in crate::api) gpus_affected: usize,
    /// GPUs that are the part or behind it.
    pub(in crate::api) gpus_behind: usize,
    /// Jobs that wait for the part.
    pub(in crate::api) jobs: Vec<String>,
    /// By which share the slowest of these goes slower than it usually does; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) slowdown: Option<f64>,
    pub(in crate::api) summary: String,
    pub(in crate::api) action: &'static str,
    pub(in crate::api) runbook: String,
    /// How often it closed and came back.
    pub(in crate::api) reopenings: u32,
    /// Whether announced work explains it; then it pages nobody.
    pub(in crate::api) in_maintenance: bool,
    /// The work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) maintenance: Option<WindowWire>,
}

impl Incident {
    pub(in crate::api) fn of(incident: &CoreIncident, layout: &Layout, state: &State) -> Self {
        let summary = incident.findings.first().map_or_else(
            || String::from(UNSEEN),
            |finding| finding.evidence.statement.clone(),
        );
        let maintenance = incident.maintenance.as_ref();
        Self {
            id: incident.id.clone(),
            fault_domain: incident.root.to_string(),
            part: words::part(&incident.root, layout),
            class: incident.class.name,
            title: incident.class.title,
            severity: incident.severity.as_str(),
            since: incident.since.as_seconds(),
            last_seen: incident.last_seen.as_seconds(),
            posterior: thousandths(incident.posterior),
            effect: incident.effect,
            gpus_affected: incident.gpus_affected,
            gpus_behind: incident.gpus_behind().count(),
            slowdown: incident.slowdown,
            jobs: incident.jobs.iter().map(ToString::to_string).collect(),
            summary,
            action: incident.class.action,
            runbook: runbook(&state.runbook, incident.class.name),
            reopenings: incident.reopenings,
            in_maintenance: maintenance.is_some(),
            maintenance: maintenance.map(|work| WindowWire::of(work, incident.last_seen)),
        }
    }
}

/// `/api/v1/incidents/{id}`
#[derive(Debug, Serialize)]
pub(in crate::api) struct IncidentDetail {
    pub(in crate::api) cluster: String,
    pub(in crate::api) at: f64,
    #[serde(flatten)]
    pub(in crate::api) incident: Incident,
    /// The part and those that it may be instead, the likeliest first: three at most, the part itself first.
    pub(in crate::api) candidates: Vec<Candidate>,
    /// Chance that no part is to blame: software, a moment's state, a counter that lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::api) no_part: Option<f64>,
    pub(in crate::api) evidence: Vec<Evidence>,
    pub(in crate::api) related: Vec<String>,
    pub(in crate::api) victims: Vec<String>,
}

/// A part that may be to blame.
#[derive(Debug, Serialize)]
pub(in crate::api) struct Candidate {
    fault_domain: String,
    /// The part in plain words.
    part: String,
    /// Chance that it is to blame.
    posterior: f64,
    /// By piece of evidence, in its order: how much that speaks for this part, nats above no part being to blame.
    nats: Vec<f64>,
}

impl Candidate {
    pub(in crate::api) fn all(incident: &CoreIncident, layout: &Layout) -> Vec<Self> {
        let all = incident.weighed.iter().flat_map(|one| &one.candidates);
        all.map(|one| Self {
            fault_domain: one.part.to_string(),
            part: words::part(&one.part, layout),
            posterior: thousandths(one.posterior),
            nats: one.nats.iter().copied().map(thousandths).collect(),
        })
        .collect()
    }
}

/// As many digits as a chance bears.
pub(in crate::api) fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// What a detector saw, and why that is a fault.
#[derive(Debug, Serialize)]
pub(in crate::api) struct Evidence {
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
    pub(in crate::api) fn of(finding: &Finding) -> Self {
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

//! Incidents as OTLP events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use railscope_model::fabric::Timestamp;
use railscope_otlp::{Incident as Event, IncidentLog, OpenIncidents, Otlp, Severity as Urgency};

use super::router::runbook;
use crate::classes::Severity;
use crate::clock;
use crate::cluster_view::ClusterView;
use crate::diagnose::incident::Incident;
use crate::status::State;

/// Sends an event whenever an incident opens, changes or closes.
#[derive(Debug)]
pub(crate) struct IncidentEvents {
    log: IncidentLog,
    open: Option<OpenIncidents>,
}

impl IncidentEvents {
    /// To this receiver; none if it does not accept logs.
    pub(crate) fn to(otlp: &Otlp) -> Option<Self> {
        let log = otlp.incidents()?;
        Some(Self { log, open: None })
    }

    /// Sends what is new since the last call. An incident of an earlier run that has not been seen since is not new.
    pub(crate) fn follow(&mut self, view: &ClusterView, state: &State) {
        let events = |seen: fn(&&Incident) -> bool| {
            let incidents = view.incidents.iter().filter(seen);
            incidents
                .map(|incident| event(incident, state))
                .collect::<Vec<_>>()
        };
        let restored = || OpenIncidents::restored(events(|incident| incident.findings.is_empty()));
        let open = self.open.get_or_insert_with(restored);
        for changed in open.update(events(|_| true), time(view.now)) {
            self.log.emit(&changed);
        }
    }
}

/// An incident as it is reported.
pub(crate) fn event(incident: &Incident, state: &State) -> Event {
    let summary = incident.findings.first();
    Event {
        id: incident.id.clone(),
        cluster: state.cluster.clone(),
        component: incident.root.to_string(),
        far_end: incident.far_end.as_ref().map(ToString::to_string),
        alternatives: incident
            .alternatives
            .iter()
            .map(ToString::to_string)
            .collect(),
        related: incident.related.iter().map(ToString::to_string).collect(),
        class: incident.class.name.to_owned(),
        severity: match incident.severity {
            Severity::Warning => Urgency::Warning,
            Severity::Critical => Urgency::Critical,
        },
        posterior: incident.posterior,
        runbook: runbook(&state.runbook, incident.class.name),
        summary: summary
            .map_or(incident.class.title, |finding| &finding.evidence.statement)
            .to_owned(),
        since: time(incident.since),
        victims: incident.victims.len() as u64,
        gpus: incident.gpus_affected as u64,
        jobs: incident.jobs.len() as u64,
        is_suppressed: incident.maintenance.is_some(),
    }
}

/// A time as the standard library has it.
pub(crate) fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(clock::shown(at).0)
}

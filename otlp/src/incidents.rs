//! Incidents as events: log records with an event name and stable attributes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, Severity as OtelSeverity};
use opentelemetry_sdk::logs::SdkLogger;

/// A change of the probability by at least so much is reported. The web page and `explain` show whole percent; 10
/// points are a difference on which an operator acts, and less changes with every analysis cycle.
pub const POSTERIOR_STEP: f64 = 0.1;

/// How urgent an incident is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A ticket: severity number 13 (WARN).
    Warning,
    /// An alert to the on-call: severity number 17 (ERROR).
    Critical,
}

impl Severity {
    /// The severity as alerts and labels spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What happened to an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It is open, and was not.
    Opened,
    /// Its class, severity or components changed, or its probability by [`POSTERIOR_STEP`].
    Changed,
    /// It is no longer open.
    Closed,
}

impl EventKind {
    /// The event name of the log record.
    pub fn event_name(self) -> &'static str {
        match self {
            Self::Opened => "railscope.incident.opened",
            Self::Changed => "railscope.incident.changed",
            Self::Closed => "railscope.incident.closed",
        }
    }
}

/// An open incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Incident {
    /// Stable over restarts.
    pub id: String,
    /// The cluster; empty if it has no name.
    pub cluster: String,
    /// The component to repair.
    pub component: String,
    /// Of a cable between switches the end that does not name it.
    pub far_end: Option<String>,
    /// Other candidate components.
    pub alternatives: Vec<String>,
    /// Other components that share the fault.
    pub related: Vec<String>,
    /// The fault class.
    pub class: String,
    /// How urgent it is.
    pub severity: Severity,
    /// Probability that the component is the root cause, 0 to 1.
    pub posterior: f64,
    /// URL or path of the runbook.
    pub runbook: String,
    /// One sentence: the body of the log record.
    pub summary: String,
    /// Time of the first evidence.
    pub since: SystemTime,
    /// Components that wait because of it.
    pub victims: u64,
    /// GPUs that may wait because of it: those behind the component, and all of the jobs that use it.
    pub gpus: u64,
    /// Jobs that use the component.
    pub jobs: u64,
    /// Whether a maintenance window suppresses pages.
    pub is_suppressed: bool,
}

/// One change of one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct IncidentEvent {
    /// What happened.
    pub kind: EventKind,
    /// When the analysis found it.
    pub at: SystemTime,
    /// The incident after the change; of a closed one, as it was last reported.
    pub incident: Incident,
}

/// The open incidents as they were last reported.
#[derive(Debug, Clone, Default)]
pub struct OpenIncidents {
    reported: BTreeMap<String, Incident>,
}

impl OpenIncidents {
    /// Starts with incidents that were reported before a restart, so that they are not reported as opened again.
    pub fn restored(open: impl IntoIterator<Item = Incident>) -> Self {
        let reported = open
            .into_iter()
            .map(|incident| (incident.id.clone(), incident))
            .collect();
        Self { reported }
    }

    /// Compares the incidents that are open now with those last reported; events are in the order of ids, closed ones
    /// last.
    ///
    /// The probability is compared with the reported one, not with that of the previous cycle, so that a slow drift is
    /// reported, too.
    pub fn update(
        &mut self,
        open: impl IntoIterator<Item = Incident>,
        at: SystemTime,
    ) -> Vec<IncidentEvent> {
        let open: BTreeMap<String, Incident> = open
            .into_iter()
            .map(|incident| (incident.id.clone(), incident))
            .collect();
        let mut events = Vec::new();
        let mut reported = BTreeMap::new();
        for (id, incident) in open {
            let kind = match self.reported.remove(&id) {
                None => EventKind::Opened,
                Some(before) if is_changed(&before, &incident) => EventKind::Changed,
                Some(before) => {
                    reported.insert(id, before);
                    continue;
                }
            };
            let event = IncidentEvent { kind, at, incident };
            reported.insert(id, event.incident.clone());
            events.push(event);
        }
        let closed = std::mem::replace(&mut self.reported, reported);
        events.extend(closed.into_values().map(|incident| IncidentEvent {
            kind: EventKind::Closed,
            at,
            incident,
        }));
        events
    }
}

fn is_changed(before: &Incident, now: &Incident) -> bool {
    let related = |incident: &Incident| {
        let mut all = incident.related.clone();
        all.sort();
        all
    };
    before.class != now.class
        || before.severity != now.severity
        || before.component != now.component
        || related(before) != related(now)
        || (before.posterior - now.posterior).abs() >= POSTERIOR_STEP
}

/// Writes incident events as log records.
#[derive(Debug, Clone)]
pub struct IncidentLog {
    logger: SdkLogger,
}

impl IncidentLog {
    pub(crate) fn new(logger: SdkLogger) -> Self {
        Self { logger }
    }

    /// Queues one event. Never blocks; if the queue is full, the event is dropped and counted.
    pub fn emit(&self, event: &IncidentEvent) {
        let incident = &event.incident;
        let mut record = self.logger.create_log_record();
        record.set_event_name(event.kind.event_name());
        record.set_timestamp(event.at);
        // A closed incident is no error, whatever it was.
        let (number, level) = match (event.kind, incident.severity) {
            (EventKind::Closed, _) => (OtelSeverity::Info, "INFO"),
            (_, Severity::Warning) => (OtelSeverity::Warn, "WARN"),
            (_, Severity::Critical) => (OtelSeverity::Error, "ERROR"),
        };
        record.set_severity_number(number);
        record.set_severity_text(level);
        record.set_body(AnyValue::from(incident.summary.clone()));
        for (name, value) in attributes(incident) {
            record.add_attribute(name, value);
        }
        self.logger.emit(record);
    }
}

fn attributes(incident: &Incident) -> Vec<(&'static str, AnyValue)> {
    let count = |number: u64| AnyValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let since =
        i64::try_from(crate::convert::nanos(incident.since) / 1_000_000_000).unwrap_or(i64::MAX);
    let list = |names: &[String]| {
        let names = names.iter().map(|name| AnyValue::from(name.clone()));
        AnyValue::ListAny(Box::new(names.collect()))
    };
    let all = [
        ("railscope.incident.id", AnyValue::from(incident.id.clone())),
        (
            "railscope.incident.cluster",
            AnyValue::from(incident.cluster.clone()),
        ),
        (
            "railscope.incident.component",
            AnyValue::from(incident.component.clone()),
        ),
        (
            "railscope.incident.far_end",
            AnyValue::from(incident.far_end.clone().unwrap_or_default()),
        ),
        (
            "railscope.incident.alternatives",
            list(&incident.alternatives),
        ),
        ("railscope.incident.related", list(&incident.related)),
        (
            "railscope.incident.class",
            AnyValue::from(incident.class.clone()),
        ),
        (
            "railscope.incident.severity",
            AnyValue::from(incident.severity.as_str()),
        ),
        (
            "railscope.incident.posterior",
            AnyValue::Double(incident.posterior),
        ),
        (
            "railscope.incident.runbook",
            AnyValue::from(incident.runbook.clone()),
        ),
        ("railscope.incident.since", AnyValue::Int(since)),
        ("railscope.incident.victims", count(incident.victims)),
        ("railscope.incident.affected_gpus", count(incident.gpus)),
        ("railscope.incident.affected_jobs", count(incident.jobs)),
        (
            "railscope.incident.suppressed",
            AnyValue::Boolean(incident.is_suppressed),
        ),
    ];
    let is_empty = |value: &AnyValue| match value {
        AnyValue::String(text) => text.as_str().is_empty(),
        AnyValue::ListAny(list) => list.is_empty(),
        _ => false,
    };
    all.into_iter()
        .filter(|(_, value)| !is_empty(value))
        .collect()
}

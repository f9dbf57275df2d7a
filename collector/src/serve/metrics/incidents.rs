//! Exports open incidents: series for alerts, and texts for notifications.

use railscope_model::metric::{
    INCIDENT_ACTIVE, INCIDENT_GPUS, INCIDENT_GPUS_BEHIND, INCIDENT_SINCE, INCIDENT_SLOWDOWN,
    INCIDENT_TEXT,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::clock::unix_seconds;
use crate::diagnose::incident::Incident;
use crate::serve::layout::Layout;
use crate::serve::phrases;

/// Maximum number of alternatives in a label.
const MAX_ALTERNATIVES: usize = 16;
/// Maximum characters of evidence in a label: Mimir accepts label values up to 2,048 bytes.
const LONGEST_TEXT: usize = 400;

pub(super) fn push(reading: &mut NodeReading, incident: &Incident, layout: &Layout) {
    let domain = incident.root.to_string();
    let node = incident
        .root
        .node()
        .map(ToString::to_string)
        .unwrap_or_default();
    let class = [&domain, incident.class.name, incident.severity.as_str()];
    let far_end = incident.far_end.as_ref().map(ToString::to_string);
    let far_end = far_end.unwrap_or_default();
    let alternatives = alternatives(incident);
    let place = [node.as_str(), &incident.id, &far_end, &alternatives];
    reading.push(
        &INCIDENT_ACTIVE,
        &Labels::new(class.into_iter().chain(place)),
        true,
    );
    let part = phrases::part(&incident.root, layout);
    let seen: String = incident
        .first_statement
        .chars()
        .take(LONGEST_TEXT)
        .collect();
    let action = phrases::action(incident.class, &incident.root, layout);
    let text = [
        &domain,
        &incident.id,
        incident.class.title,
        &part,
        &seen,
        &action,
    ];
    reading.push(&INCIDENT_TEXT, &Labels::new(text), true);
    let labels = Labels::new([&domain, &incident.id]);
    reading.push(&INCIDENT_GPUS, &labels, incident.gpus_affected as u64);
    let behind = incident.gpus_behind().count() as u64;
    reading.push(&INCIDENT_GPUS_BEHIND, &labels, behind);
    if let Some(slowdown) = incident.slowdown {
        reading.push(&INCIDENT_SLOWDOWN, &labels, slowdown);
    }
    reading.push(&INCIDENT_SINCE, &labels, unix_seconds(incident.since));
}

fn alternatives(incident: &Incident) -> String {
    let all = &incident.alternatives;
    let listed = all.iter().take(MAX_ALTERNATIVES).map(ToString::to_string);
    let mut listed: Vec<String> = listed.collect();
    if let more @ 1.. = all.len().saturating_sub(MAX_ALTERNATIVES) {
        listed.push(format!("and {more} more"));
    }
    listed.join(" ")
}

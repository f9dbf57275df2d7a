//! Node conditions and events for Kubernetes, by the convention of node-problem-detector: a condition is true while a
//! problem exists, its reason is one CamelCase word, and each new problem is also an event.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::plan::{Advice, Case, Plan, Withdrawn};
use super::time::rfc3339;

/// Kubernetes truncates event messages at 1,024 characters.
const LONGEST_MESSAGE: usize = 1_000;

/// A `List` of `Node` objects with only conditions, and of `Event` objects.
pub(super) fn list(plan: &Plan) -> Value {
    let mut nodes: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for advice in plan.nodes() {
        let known = nodes.entry(&advice.node).or_default();
        known.extend(conditions(advice, plan.at));
    }
    for over in &plan.withdrawn {
        let known = nodes.entry(&over.node).or_default();
        known.extend(over.conditions.keys().map(|name| cleared(name, plan.at)));
    }
    let nodes = nodes
        .into_iter()
        .filter(|(_, conditions)| !conditions.is_empty());
    let nodes = nodes.map(|(node, conditions)| {
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node }, "status": { "conditions": conditions } })
    });
    let opened = plan.nodes().flat_map(|advice| {
        let cases = advice.cases.iter();
        cases.map(|case| opened_event(&advice.node, case, plan.at))
    });
    let resolved = plan
        .withdrawn
        .iter()
        .flat_map(|over| resolved_events(over, plan.at));
    let items: Vec<Value> = nodes.chain(opened).chain(resolved).collect();
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// One condition for each type, with the reason of its most severe incident.
fn conditions(advice: &Advice, at: f64) -> Vec<Value> {
    let mut by_kind: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &advice.cases {
        by_kind.entry(case.condition()).or_default().push(case);
    }
    let one = |(kind, cases): (&str, Vec<&Case>)| {
        let worst = cases.first()?;
        let texts: Vec<String> = cases.iter().map(|case| message(case)).collect();
        Some(json!({
            "type": kind,
            "status": "True",
            "reason": reason(&worst.class),
            "message": cut(&texts.join(" ")),
            "lastTransitionTime": rfc3339(worst.since),
            "lastHeartbeatTime": rfc3339(at),
        }))
    };
    by_kind.into_iter().filter_map(one).collect()
}

fn cleared(kind: &str, at: f64) -> Value {
    json!({
        "type": kind,
        "status": "False",
        "reason": "NoOpenIncident",
        "message": "Railscope has no open incident of this type on the node.",
        "lastTransitionTime": rfc3339(at),
        "lastHeartbeatTime": rfc3339(at),
    })
}

fn opened_event(node: &str, case: &Case, at: f64) -> Value {
    let name = format!("{node}.railscope-{}", case.incident);
    let about = (&*reason(&case.class), &*message(case));
    event(node, &name, "Warning", about, [case.since, at])
}

fn resolved_events(over: &Withdrawn, at: f64) -> Vec<Value> {
    let incidents = over.conditions.values().flatten();
    let one = |incident: &String| {
        let name = format!("{}.railscope-{incident}-over", over.node);
        let message = format!("Incident {incident} is resolved.");
        event(
            &over.node,
            &name,
            "Normal",
            ("IncidentOver", &message),
            [at, at],
        )
    };
    incidents.map(one).collect()
}

fn event(
    node: &str,
    name: &str,
    kind: &str,
    (reason, message): (&str, &str),
    [first, last]: [f64; 2],
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": "default" },
        // The uid of an event about a node is the node's name, as kubelet writes it.
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": { "component": "railscope" },
        "reportingComponent": "railscope",
        "firstTimestamp": rfc3339(first),
        "lastTimestamp": rfc3339(last),
        "count": 1,
    })
}

fn message(case: &Case) -> String {
    let evidence = case.evidence.first().map_or("", String::as_str);
    cut(&format!(
        "{}: {}. {evidence} {} {}",
        case.title, case.part, case.action, case.incident_url
    ))
}

/// The class in CamelCase: `PcieDegraded` for `pcie-degraded`.
fn reason(class: &str) -> String {
    let words = class.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .flat_map(|word| {
            let mut chars = word.chars();
            let first = chars.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(chars)
        })
        .collect()
}

fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST_MESSAGE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

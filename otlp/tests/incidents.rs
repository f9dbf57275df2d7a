//! Events from successive lists of open incidents.

use crate::start::{at, incident};
use railscope_otlp::{EventKind, Incident, OpenIncidents, Severity};

fn changed(change: impl FnOnce(&mut Incident)) -> Incident {
    let mut incident = incident("i1");
    change(&mut incident);
    incident
}

#[test]
fn opened_changed_and_closed_incidents_are_events_and_equal_ones_are_not() {
    use EventKind::{Changed, Closed, Opened};
    let (a, b) = (incident("a"), incident("b"));
    let mut open = OpenIncidents::default();
    type Expected = &'static [(EventKind, &'static str)];
    let steps: [(Vec<Incident>, Expected); 6] = [
        (vec![], &[]),
        (vec![b.clone(), a.clone()], &[(Opened, "a"), (Opened, "b")]),
        (vec![a.clone(), b.clone()], &[]),
        (
            vec![Incident {
                severity: Severity::Warning,
                ..b.clone()
            }],
            &[(Changed, "b"), (Closed, "a")],
        ),
        (vec![a], &[(Opened, "a"), (Closed, "b")]),
        (vec![], &[(Closed, "a")]),
    ];
    for (step, (now, expected)) in steps.into_iter().enumerate() {
        let events = open.update(now, at(9));
        let found: Vec<_> = events
            .iter()
            .map(|event| (event.kind, event.incident.id.as_str()))
            .collect();
        assert_eq!(found, expected, "step {step}");
    }
}

#[test]
fn only_class_severity_components_and_a_step_of_probability_are_changes() {
    let cases: [(&str, Incident, bool); 10] = [
        ("equal", incident("i1"), false),
        (
            "class",
            changed(|incident| incident.class = "port-down".to_owned()),
            true,
        ),
        (
            "severity",
            changed(|incident| incident.severity = Severity::Warning),
            true,
        ),
        (
            "component",
            changed(|incident| incident.component = "node7".to_owned()),
            true,
        ),
        (
            "related",
            changed(|incident| incident.related.push("x".to_owned())),
            true,
        ),
        ("victims", changed(|incident| incident.victims = 9), false),
        (
            "summary",
            changed(|incident| incident.summary = "other".to_owned()),
            false,
        ),
        ("since", changed(|incident| incident.since = at(5)), false),
        (
            "small step",
            changed(|incident| incident.posterior -= 0.09),
            false,
        ),
        ("step", changed(|incident| incident.posterior -= 0.11), true),
    ];
    for (name, now, expected) in cases {
        let mut open = OpenIncidents::restored([incident("i1")]);
        assert_eq!(!open.update([now], at(9)).is_empty(), expected, "{name}");
    }
}

#[test]
fn related_components_in_another_order_are_no_change() {
    let with = |related: &[&str]| {
        changed(|incident| incident.related = related.iter().map(ToString::to_string).collect())
    };
    let mut open = OpenIncidents::restored([with(&["a", "b"])]);
    assert_eq!(open.update([with(&["b", "a"])], at(9)), []);
}

#[test]
fn a_slow_drift_of_the_probability_is_reported_once_it_is_a_step() {
    let mut open = OpenIncidents::restored([changed(|incident| incident.posterior = 0.5)]);
    let events = (1..=30).map(|step| {
        let now = changed(|incident| incident.posterior = 0.5 + f64::from(step) * 0.011);
        open.update([now], at(9)).len()
    });
    assert_eq!(events.sum::<usize>(), 3);
}

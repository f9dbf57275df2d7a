//! Results for small hand-made truths and incidents.

use super::*;

const TRUTH: &str = r#"{"world": "w", "start": 800, "end": 1600,
  "faults": [
    {"id": "f0", "kind": "cable_ber", "part_type": "nic", "start": 1000, "end": 1200, "victims": ["node9"],
     "culprit": {"node": "node1", "device": "mlx5_3", "leaf": "leaf4", "leaf_port": 7}},
    {"id": "f1", "kind": "pfc_storm", "part_type": "nic", "start": 1000, "end": 1090, "victims": ["node8"],
     "culprit": {"node": "node3", "device": "mlx5_0"}},
    {"id": "f2", "kind": "pfc_storm", "part_type": "nic", "start": 1300, "end": 1390, "victims": ["node8"],
     "culprit": {"node": "node3", "device": "mlx5_0"}}],
  "benign": [
    {"id": "b0", "kind": "checkpoint", "part_type": "node", "start": 1000, "end": 1100, "culprit": {"node": "node5"}}]}"#;

fn incident(first: f64, last: f64, component: &str, classes: &[(f64, &str)]) -> Incident {
    Incident {
        component: component.to_owned(),
        first,
        last,
        classes: classes
            .iter()
            .map(|(at, class)| (*at, (*class).to_owned()))
            .collect(),
        is_critical: true,
    }
}

fn simple(first: f64, last: f64, component: &str, class: &str) -> Incident {
    incident(first, last, component, &[(first, class)])
}

fn truth() -> Truth {
    Truth::parse(TRUTH).expect("valid")
}

fn verdicts(incidents: &[Incident]) -> Vec<Verdict> {
    let judged = judge(&truth(), incidents);
    judged.iter().map(|one| one.verdict).collect()
}

#[test]
fn the_exact_component_with_the_right_class_is_a_detection() {
    let truth = truth();
    let incidents = [simple(1012.0, 1230.0, "link/node1:mlx5_3/1", "link-errors")];
    let judged = judge(&truth, &incidents);
    assert_eq!(judged[0].verdict, Verdict::True);
    assert_eq!(
        detection(&truth, 0, &judged),
        Detection {
            is_found: true,
            is_exact: true,
            class_fits: true,
            seconds: Some(12.0),
            classes: vec!["link-errors".to_owned()],
        }
    );
    assert!(!detection(&truth, 1, &judged).is_found);
}

#[test]
fn an_incident_just_before_the_onset_is_detected_after_zero_seconds() {
    let truth = truth();
    let incidents = [simple(998.5, 1230.0, "link/leaf4:7", "link-errors")];
    let judged = judge(&truth, &incidents);
    let found = detection(&truth, 0, &judged);
    assert_eq!((found.is_exact, found.seconds), (true, Some(0.0)));
}

#[test]
fn the_host_alone_counts_only_with_the_right_class() {
    let truth = truth();
    let incidents = [
        simple(1012.0, 1100.0, "host/node1", "link-errors"),
        simple(1013.0, 1100.0, "host/node1", "host-steal"),
    ];
    let judged = judge(&truth, &incidents);
    assert_eq!(judged[0].verdict, Verdict::True);
    assert_eq!(judged[1].verdict, Verdict::VictimBlamed);
    let found = detection(&truth, 0, &judged);
    assert!(found.is_found && !found.is_exact && found.class_fits);
}

#[test]
fn the_exact_component_with_a_wrong_class_is_found_with_a_wrong_class() {
    let truth = truth();
    let incidents = [simple(1012.0, 1230.0, "nic/node1:mlx5_3", "numa-affinity")];
    let judged = judge(&truth, &incidents);
    assert_eq!(judged[0].verdict, Verdict::True);
    let found = detection(&truth, 0, &judged);
    assert!(found.is_exact && !found.class_fits);
    assert_eq!(found.classes, ["numa-affinity"]);
}

#[test]
fn a_victim_is_blamed() {
    let incidents = [simple(1012.0, 1100.0, "nic/node9:mlx5_0", "slow-receiver")];
    assert_eq!(verdicts(&incidents), [Verdict::VictimBlamed]);
}

#[test]
fn an_unrelated_component_or_a_longer_name_is_false() {
    let incidents = [
        simple(1012.0, 1100.0, "link/node10:mlx5_3/1", "link-errors"),
        simple(1013.0, 1100.0, "link/node91:mlx5_3/1", "link-errors"),
        simple(1014.0, 1100.0, "link/leaf40:7", "link-errors"),
    ];
    assert_eq!(verdicts(&incidents), [Verdict::False; 3]);
}

#[test]
fn an_incident_before_the_onset_or_long_after_the_end_is_false() {
    let component = "link/node1:mlx5_3/1";
    let incidents = [
        simple(950.0, 960.0, component, "link-errors"),
        simple(990.0, 1100.0, component, "link-errors"),
        simple(1381.0, 1390.0, component, "link-errors"),
    ];
    assert_eq!(verdicts(&incidents), [Verdict::False; 3]);
}

#[test]
fn a_benign_event_is_explained_by_its_class_and_blamed_by_another() {
    let incidents = [
        simple(1020.0, 1100.0, "host/node5", "storage-stall"),
        simple(1021.0, 1100.0, "host/node5", "host-steal"),
    ];
    let expected = [Verdict::Explained, Verdict::BenignBlamed];
    assert_eq!(verdicts(&incidents), expected);
}

#[test]
fn a_second_incident_soon_after_the_end_and_any_one_later_are_wrong() {
    let component = "link/node1:mlx5_3/1";
    let seen = simple(1012.0, 1205.0, component, "link-errors");
    let at = |first: f64| simple(first, 1500.0, component, "link-errors");
    assert_eq!(verdicts(&[at(1225.0)]), [Verdict::True]);
    assert_eq!(verdicts(&[at(1265.0)]), [Verdict::AfterTheEnd]);
    assert_eq!(
        verdicts(&[seen.clone(), at(1208.0)]),
        [Verdict::True, Verdict::True]
    );
    assert_eq!(
        verdicts(&[seen, at(1225.0)]),
        [Verdict::True, Verdict::AfterTheEnd]
    );
}

#[test]
fn a_class_drifts_if_the_first_is_right_and_the_last_is_not() {
    let component = "link/node1:mlx5_3/1";
    let incidents = [
        incident(
            1012.0,
            1230.0,
            component,
            &[(1012.0, "link-errors"), (1190.0, "gpu-slow")],
        ),
        incident(
            1013.0,
            1230.0,
            component,
            &[(1013.0, "gpu-slow"), (1020.0, "link-errors")],
        ),
    ];
    let judged = judge(&truth(), &incidents);
    let drifted: Vec<_> = judged.iter().map(|one| one.has_drifted).collect();
    assert_eq!(drifted, [true, false]);
}

#[test]
fn a_fault_that_returns_while_its_incident_is_open_is_found_at_once() {
    let truth = truth();
    let incidents = [simple(1010.0, 1395.0, "nic/node3:mlx5_0", "pfc-storm")];
    let judged = judge(&truth, &incidents);
    assert_eq!(judged[0].event, Some(1));
    let second = detection(&truth, 2, &judged);
    assert!(second.is_found && second.is_exact && second.class_fits);
    assert_eq!(second.seconds, Some(0.0));
    let closed = [simple(1010.0, 1120.0, "nic/node3:mlx5_0", "pfc-storm")];
    let judged = judge(&truth, &closed);
    assert!(!detection(&truth, 2, &judged).is_found);
}

#[test]
fn of_two_faults_of_one_component_the_nearer_onset_is_meant() {
    let incidents = [simple(1310.0, 1400.0, "nic/node3:mlx5_0", "pfc-storm")];
    assert_eq!(judge(&truth(), &incidents)[0].event, Some(2));
}

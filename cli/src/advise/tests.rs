//! Tests of the advice with API responses.

mod requests;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::memory::{self, Memory, NodeState};
use super::plan::{Detail, Fabric, Incidents, Plan};
use super::{kubernetes, slurm};

const COLLECTOR: &str = "http://collector:10661/";

fn detail(id: &str, component: &str, class: &str, severity: &str) -> Value {
    json!({
        "id": id, "fault_domain": component, "part": format!("Part {component}"), "class": class, "title": "It is slow",
        "severity": severity, "since": 1_700_000_000.0, "posterior": 0.982, "summary": "Seen.", "action": "Reseat it.",
        "runbook": "https://r/x.md", "in_maintenance": false, "jobs": ["4711"],
        "evidence": [{ "statement": "It has 8 of 16 lanes.", "detector": "x" }],
        "a field of a newer version": 1
    })
}

fn answer() -> Incidents {
    let answer = json!({ "cluster": "c1", "at": 1_700_000_900.0, "incidents": [] });
    serde_json::from_value(answer).expect("as the API answers")
}

fn plan(details: &[Value], only: Option<&str>) -> Plan {
    let details = details.iter().cloned().map(serde_json::from_value);
    let details: Vec<Detail> = details
        .collect::<Result<_, _>>()
        .expect("as the API answers");
    Plan::of(&answer(), details, COLLECTOR, only)
}

fn of_all_kinds() -> Vec<Value> {
    let mut in_maintenance = detail("4", "gpu/n4:1", "gpu-error", "critical");
    in_maintenance["in_maintenance"] = json!(true);
    vec![
        detail("1", "pcie/n1:0000:1a:00.0", "pcie-degraded", "critical"),
        detail("2", "gpu/n1:3", "gpu-thermal", "warning"),
        detail("3", "switch/leaf-3", "switch-down", "critical"),
        in_maintenance,
        detail("5", "link/n5:mlx5_4/1", "link-errors", "warning"),
    ]
}

fn names(list: &[super::plan::Advice]) -> Vec<&str> {
    list.iter().map(|advice| &*advice.node).collect()
}

#[test]
fn only_critical_incidents_of_nodes_outside_maintenance_windows_are_drains() {
    let plan = plan(&of_all_kinds(), None);
    assert_eq!(names(&plan.drain), ["n1"]);
    assert_eq!(plan.drain[0].cases.len(), 2);
    assert_eq!(plan.drain[0].cases[0].severity, "critical");
    assert_eq!(names(&plan.watch), ["n4", "n5"]);
    assert_eq!(plan.fabric.len(), 1);
    let only = self::plan(&of_all_kinds(), Some("n5"));
    assert!(only.drain.is_empty() && only.fabric.is_empty());
    assert_eq!(names(&only.watch), ["n5"]);
}

#[test]
fn slurm_gets_a_line_with_the_evidence_above_it() {
    let text = slurm::write(&plan(&of_all_kinds(), None));
    for expected in [
        "# Railscope, cluster c1: 1 to drain, 2 to watch, 0 to resume. Proposals only: nothing was changed.\n",
        "#   It is slow (critical, probability 98.2 %): Part pcie/n1:0000:1a:00.0\n#     evidence: It has 8 of 16 lanes.\n#     jobs:     4711\n",
        "#     action:   Reseat it.\n#     http://collector:10661/incidents/1\n",
        "\nscontrol update nodename=n1 state=drain reason=\"Railscope 1 pcie-degraded pcie/n1:0000:1a:00.0\"\n",
        "# n5: no drain proposed\n",
        "# Fabric or storage: a drain does not help\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let runs: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    assert_eq!(runs.len(), 1, "{text}");
}

#[test]
fn no_text_of_an_incident_runs_in_a_shell() {
    let mut bad = detail("1\n", "host/n1", "x\"; reboot #", "critical");
    bad["title"] = json!("a\nreboot");
    bad["evidence"][0]["statement"] = json!("b\r\nreboot $(reboot)");
    let text = slurm::write(&plan(&[bad], None));
    let runs: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    assert_eq!(
        runs,
        ["scontrol update nodename=n1 state=drain reason=\"Railscope 1 xreboot host/n1\""]
    );
}

#[test]
fn drains_above_the_limit_are_comments() {
    let many: Vec<_> = (0..4)
        .map(|n| {
            detail(
                &n.to_string(),
                &format!("host/n{n}"),
                "host-down",
                "critical",
            )
        })
        .collect();
    let mut plan = plan(&many, None);
    plan.hold_back(3);
    let text = slurm::write(&plan);
    assert!(text.contains("# 4 nodes exceed the drain limit"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.is_empty() || line.starts_with('#')),
        "{text}"
    );
    // What was not proposed is not withdrawn later.
    let memory = plan.memory(&Memory::default(), None);
    assert!(memory.nodes.values().all(|state| !state.drain));
}

#[test]
fn resolved_advice_is_withdrawn_once_and_only_for_own_drains() {
    let first = plan(&of_all_kinds(), None);
    let before = first.memory(&Memory::default(), None);
    assert!(before.nodes["n1"].drain && !before.nodes["n5"].drain);
    // n1's PCIe link is repaired; the GPU is still hot.
    let mut second = plan(&of_all_kinds()[1..], None);
    second.withdraw(&before, None);
    assert_eq!(second.withdrawn.len(), 1);
    assert!(second.withdrawn[0].resume);
    let text = slurm::write(&second);
    let wanted = "scontrol show node n1 | grep -q 'Reason=Railscope ' && scontrol update nodename=n1 state=resume";
    assert!(text.contains(wanted), "{text}");
    let host =
        json!({ "type": "RailscopeHostFault", "status": "False", "reason": "NoOpenIncident" });
    let list = kubernetes::list(&second);
    let items = list["items"].as_array().expect("items");
    let node = items
        .iter()
        .find(|item| item["metadata"]["name"] == "n1")
        .expect("n1");
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    let is_withdrawn = |condition: &Value| {
        ["type", "status", "reason"]
            .iter()
            .all(|key| condition[*key] == host[*key])
    };
    assert!(conditions.iter().any(is_withdrawn), "{node}");
    assert!(
        items
            .iter()
            .any(|item| item["metadata"]["name"] == "n1.railscope-1-over"),
        "{list}"
    );
    // And not again.
    let after = second.memory(&before, None);
    let mut third = plan(&of_all_kinds()[1..], None);
    third.withdraw(&after, None);
    assert!(third.withdrawn.is_empty(), "{:?}", third.withdrawn);
}

#[test]
fn without_most_exporters_no_advice_is_withdrawn_or_forgotten() {
    let fabric = |up, all| Fabric {
        tick_age_seconds: 0.0,
        targets: all,
        targets_up: up,
    };
    assert!(fabric(3, 8).is_blind() && !fabric(4, 8).is_blind() && !fabric(0, 0).is_blind());
    let before = plan(&of_all_kinds(), None).memory(&Memory::default(), None);
    let mut now = plan(&[], None);
    now.keep(&before);
    assert!(now.withdrawn.is_empty());
    assert_eq!(now.memory(&before, None), before);
}

#[test]
fn advice_for_one_node_keeps_the_state_of_others() {
    let before = plan(&of_all_kinds(), None).memory(&Memory::default(), None);
    let mut now = plan(&[], Some("n5"));
    now.withdraw(&before, Some("n5"));
    assert_eq!(now.withdrawn.len(), 1);
    let after = now.memory(&before, Some("n5"));
    assert!(after.nodes.contains_key("n1") && !after.nodes.contains_key("n5"));
}

#[test]
fn kubernetes_gets_conditions_and_events_in_the_form_of_node_problem_detector() {
    let list = kubernetes::list(&plan(&of_all_kinds(), None));
    let items = list["items"].as_array().expect("items");
    let nodes: Vec<_> = items.iter().filter(|item| item["kind"] == "Node").collect();
    assert_eq!(nodes.len(), 3, "switches are no nodes");
    let conditions = nodes[0]["status"]["conditions"]
        .as_array()
        .expect("conditions");
    let kinds: Vec<_> = conditions
        .iter()
        .map(|c| c["type"].as_str().expect("type"))
        .collect();
    assert_eq!(kinds, ["RailscopeGpuFault", "RailscopeHostFault"]);
    assert_eq!(conditions[1]["status"], "True");
    assert_eq!(conditions[1]["reason"], "PcieDegraded");
    assert_eq!(conditions[1]["lastTransitionTime"], "2023-11-14T22:13:20Z");
    let message = conditions[1]["message"].as_str().expect("message");
    assert!(
        message.contains("It has 8 of 16 lanes.") && message.contains("/incidents/1"),
        "{message}"
    );
    let events: Vec<_> = items
        .iter()
        .filter(|item| item["kind"] == "Event")
        .collect();
    assert_eq!(events.len(), 4);
    assert_eq!(events[0]["involvedObject"]["name"], "n1");
    assert_eq!(events[0]["type"], "Warning");
}

#[test]
fn the_state_file_round_trips_and_an_invalid_or_foreign_one_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.json");
    assert_eq!(memory::read(&path, "c1").expect("none"), Memory::default());
    let state = NodeState {
        drain: true,
        conditions: BTreeMap::from([("A".to_owned(), vec!["1".to_owned()])]),
    };
    let memory = Memory {
        cluster: "c1".to_owned(),
        nodes: BTreeMap::from([("n1".to_owned(), state)]),
    };
    memory::write(&path, &memory).expect("written");
    assert_eq!(memory::read(&path, "c1").expect("read"), memory);
    assert!(
        memory::read(&path, "c2")
            .expect_err("foreign")
            .to_string()
            .contains("cluster \"c1\"")
    );
    std::fs::write(&path, "{").expect("broken");
    assert!(memory::read(&path, "c1").is_err());
}

//! Texts and routes of notifications, tested with amtool.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::site::tool;
use super::support::{need, root, run};

const LIMIT: Duration = Duration::from_secs(30);

/// One alert as Alertmanager passes it to templates.
fn alert(status: &str) -> Value {
    json!({
        "status": status,
        "labels": {
            "alertname": "RailscopeIncidentCritical", "cluster": "c1", "component": "pcie/n7:0000:1a:00.0", "node": "n7",
            "severity": "critical"
        },
        "annotations": {
            "summary": "PCIe link is degraded: PCIe link of mlx5_4 in n7", "description": "It has 8 of 16 lanes.",
            "action": "Drain n7 and power-cycle it.", "class": "pcie-degraded", "incident": "0a1b2c3d",
            "incident_url": "http://collector/incidents/0a1b2c3d", "dashboard_url": "https://grafana/d/x?a=1&to=now",
            "runbook_url": "https://runbooks/pcie-degraded.md"
        },
        "startsAt": "2026-01-02T03:04:05Z", "endsAt": "2026-01-02T04:05:06Z", "generatorURL": "", "fingerprint": "a"
    })
}

fn data(status: &str, alerts: &[Value]) -> Value {
    let first = &alerts[0];
    let common = if alerts.len() == 1 {
        first["annotations"].clone()
    } else {
        json!({})
    };
    json!({
        "receiver": "pager", "status": status, "alerts": alerts, "groupLabels": {},
        "commonLabels": { "cluster": "c1", "component": first["labels"]["component"], "severity": "critical" },
        "commonAnnotations": common, "externalURL": "http://alertmanager"
    })
}

/// The text of a template of `alerts/templates`.
fn render(name: &str, data: &Value) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("data.json");
    std::fs::write(&file, data.to_string()).expect("data");
    let mut command = tool("amtool");
    command
        .args(["template", "render"])
        .arg(format!(
            "--template.glob={}",
            root().join("alerts/templates/*.tmpl").display()
        ))
        .arg(format!("--template.text={{{{ template \"{name}\" . }}}}"))
        .arg(format!("--template.data={}", file.display()));
    let (well, output) = run(&mut command, LIMIT);
    assert!(well, "{name}: {output}");
    output
}

#[test]
fn templates_have_fault_action_and_links() {
    need!("amtool");
    let firing = data("firing", &[alert("firing")]);
    assert_eq!(
        render("railscope.title", &firing).trim(),
        "Page [c1]: PCIe link is degraded: PCIe link of mlx5_4 in n7"
    );
    let links = [
        "http://collector/incidents/0a1b2c3d",
        "https://grafana/d/x?a=1&to=now",
        "https://runbooks/pcie-degraded.md",
    ];
    for name in ["railscope.text", "railscope.slack.text"] {
        let text = render(name, &firing);
        let expected = [
            "It has 8 of 16 lanes.",
            "Drain n7 and power-cycle it.",
            "pcie/n7:0000:1a:00.0",
            "pcie-degraded",
        ];
        for expected in expected.iter().chain(&links) {
            assert!(text.contains(expected), "{name}: {expected}\n{text}");
        }
    }
    let text = render("railscope.text", &firing);
    assert!(
        text.contains("Since:     2026-01-02 03:04:05 UTC"),
        "{text}"
    );
    assert!(text.contains("railscope explain 0a1b2c3d"), "{text}");
    let resolved = data("resolved", &[alert("resolved")]);
    assert!(render("railscope.title", &resolved).starts_with("Resolved [c1]: "));
    assert!(render("railscope.text", &resolved).contains("Until:     2026-01-02 04:05:06 UTC"));
    assert!(!render("railscope.slack.text", &resolved).contains("What to do"));
    assert_eq!(render("railscope.slack.color", &resolved).trim(), "good");
    assert_eq!(render("railscope.slack.color", &firing).trim(), "danger");
}

#[test]
fn templates_need_no_annotations_and_print_each_alert_of_a_group() {
    need!("amtool");
    let mut bare = alert("firing");
    bare["annotations"] =
        json!({ "summary": "No collector answers", "description": "It is down." });
    bare["labels"]
        .as_object_mut()
        .expect("labels")
        .remove("cluster");
    let mut one = data("firing", &[bare.clone()]);
    one["commonLabels"]
        .as_object_mut()
        .expect("labels")
        .remove("cluster");
    assert_eq!(
        render("railscope.title", &one).trim(),
        "Page: No collector answers"
    );
    let text = render("railscope.text", &one);
    assert!(
        !text.contains("Incident:") && !text.contains("What to do") && !text.contains("no value"),
        "{text}"
    );
    let two = data("firing", &[alert("firing"), bare]);
    assert!(render("railscope.title", &two).contains("and 2 alerts in all"));
    let text = render("railscope.text", &two);
    assert!(
        text.contains("It has 8 of 16 lanes.") && text.contains("It is down."),
        "{text}"
    );
}

#[test]
fn pages_tickets_and_the_watchdog_have_separate_receivers() {
    need!("amtool");
    for (file, labels, receiver) in [
        (
            "alertmanager.example.yml",
            ["alertname=RailscopeIncidentCritical", "severity=critical"],
            "pager",
        ),
        (
            "alertmanager.example.yml",
            ["alertname=RailscopeIncidentWarning", "severity=warning"],
            "tickets",
        ),
        (
            "alertmanager.example.yml",
            ["alertname=RailscopeWatchdog", "severity=none"],
            "watchdog",
        ),
        (
            "receivers.example.yml",
            ["alertname=RailscopeManyPortsDown", "severity=critical"],
            "pager",
        ),
        (
            "receivers.example.yml",
            ["alertname=RailscopePortDown", "severity=warning"],
            "tickets",
        ),
    ] {
        let mut command = tool("amtool");
        let file = root().join("alerts").join(file);
        command
            .args(["config", "routes", "test"])
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--verify.receivers={receiver}"))
            .args(labels);
        let (well, output) = run(&mut command, LIMIT);
        assert!(well, "{labels:?}: {output}");
    }
}

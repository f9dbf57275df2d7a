//! The demo under a real Prometheus and Alertmanager with the shipped rules: one fault, one page, and
//! every query of the dashboards answers.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "otlp_sender.rs"]
mod otlp_sender;
#[path = "push.rs"]
mod push;
mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::site::{Site, tool};
use support::{Demo, Http, Sink, need, root, run, run_with_input, wait_for};

/// Long enough for a demo that shares two cores with the compiler of somebody else.
const DETECTED_WITHIN: Duration = Duration::from_secs(60);
/// The rule waits 30 s.
const PAGED_WITHIN: Duration = Duration::from_secs(90);
/// How long a second notification, which there must not be, is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
const SILENT_FOR: Duration = Duration::from_secs(15);
const TEXT: &str = "text/plain; version=0.0.4";

/// Panels that show nothing on the demo, and why that is right.
const EMPTY_ON_DEMO: &[(&str, &str)] = &[
    (
        "Exporters that the collector cannot read",
        "all exporters of the demo answer",
    ),
    ("Lost cables", "the demo pulls none"),
    ("Wiring findings", "the demo is wired right"),
    (
        "Pace against the usual",
        "it takes five minutes to know what is usual",
    ),
    ("Longest timer latency by node", "its timers are counts"),
    ("Tail incidents", "its fault makes no tail"),
    ("Open tail incidents", "its fault makes no tail"),
    ("Worst components", "no probe is slow"),
    ("Worst pairs", "no probe is slow"),
    ("Slow probes by component", "no probe is slow"),
    ("Slow probes by pair", "no probe is slow"),
    ("GPUs lost by job and class", "so does what is lost"),
    ("What each part has cost", "so does what is lost"),
];

fn limit() -> Duration {
    Duration::from_secs(60)
}

#[test]
fn one_fault_in_the_demo_is_one_page_and_every_panel_of_the_dashboards_answers() {
    need!("prometheus", "prometheus-alertmanager", "promtool");
    let sink = Sink::start();
    let fault = ["--fault", "pcie-degraded", "--fault-after", "5s"];
    let mut site = Site::start(&sink, &[&["--nodes", "8"], &fault[..]].concat());
    let began = Instant::now();
    let incident = site.demo.wait_for_incident(&site.http, DETECTED_WITHIN);
    println!(
        "incident {:?} after {:?}",
        incident["fault_domain"],
        began.elapsed()
    );

    let (path, page) = sink.next(PAGED_WITHIN).unwrap_or_else(|| {
        let alerts = site
            .http
            .get(&format!("{}/api/v1/alerts", site.prometheus_url));
        panic!(
            "no notification within {PAGED_WITHIN:?}; alerts: {alerts:?}\n{}",
            site.prometheus.tail()
        );
    });
    println!("page after {:?}", began.elapsed());
    is_the_page_for(&incident, &path, &page);
    dashboards_answer(&site);
    let second = sink.next(SILENT_FOR);
    assert!(
        second.is_none(),
        "a second notification for one fault: {second:?}"
    );
    site.demo.stop();
}

fn is_the_page_for(incident: &Value, path: &str, page: &Value) {
    let domain = incident["fault_domain"].as_str().expect("a fault domain");
    assert!(domain.starts_with("pcie/gpu-node-"), "{domain}");
    assert_eq!(path, "/pager");
    assert_eq!(page["status"], "firing");
    assert_eq!(
        page["groupLabels"],
        serde_json::json!({ "cluster": "demo", "fault_domain": domain })
    );
    let alerts = page["alerts"].as_array().expect("alerts");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let node = domain
        .trim_start_matches("pcie/")
        .split(':')
        .next()
        .expect("a node");
    let expected = [
        ("alertname", "RailscopeIncident"),
        ("cluster", "demo"),
        ("fault_domain", domain),
        ("class", "pcie-degraded"),
        ("severity", "critical"),
        ("node", node),
        ("incident", incident["id"].as_str().expect("an id")),
    ];
    for (label, value) in expected {
        assert_eq!(alerts[0]["labels"][label], value, "{alerts:?}");
    }
    let annotation = |name: &str| {
        alerts[0]["annotations"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(annotation("runbook_url").ends_with("/alerts/runbooks/pcie-degraded.md"));
    let gpus = format!("slows or stops: {}.", incident["gpus_affected"]);
    assert!(
        annotation("description").contains(&gpus),
        "{gpus}: {}",
        annotation("description")
    );
}

/// Every expression of every dashboard is valid, and shows something once Prometheus has scraped all of it.
fn dashboards_answer(site: &Site) {
    let asked = wait_for("answer to all dashboards", ANSWERED_WITHIN, || {
        ask_dashboards(site)
    });
    println!("{asked} queries of the dashboards answered");
}

/// How many queries were asked, or those that are wrong.
fn ask_dashboards(site: &Site) -> Result<usize, String> {
    let mut wrong = Vec::new();
    let mut asked = 0;
    for entry in root().join("dashboards").read_dir().expect("dashboards") {
        let path = entry.expect("entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        let variables = dashboard["templating"]["list"]
            .as_array()
            .expect("variables");
        let panels = dashboard["panels"].as_array().expect("panels");
        let annotations = dashboard["annotations"]["list"]
            .as_array()
            .expect("annotations");
        let of_panel = |panel: &Value| panel["targets"].as_array().cloned().unwrap_or_default();
        let queries = panels.iter().flat_map(|panel| {
            of_panel(panel)
                .into_iter()
                .map(|target| (panel["title"].clone(), target))
        });
        for (title, target) in
            queries.chain(annotations.iter().map(|a| (a["name"].clone(), a.clone())))
        {
            let title = title.as_str().expect("a title");
            let expression = target["expr"].as_str().expect("an expression");
            let expression = expression.replace("$__rate_interval", "20s");
            let expression = with_all(&expression, variables);
            asked += 1;
            let may_be_empty = EMPTY_ON_DEMO.iter().any(|(empty, _)| *empty == title);
            match site.query(&expression) {
                Err(error) => wrong.push(format!("{title}: {error}")),
                Ok(samples) if samples.is_empty() && !may_be_empty => {
                    wrong.push(format!("{title}: empty: {expression}"));
                }
                Ok(_) => {}
            }
        }
    }
    if wrong.is_empty() {
        Ok(asked)
    } else {
        Err(wrong.join("\n"))
    }
}

/// The expression with all values of each variable chosen.
fn with_all(expression: &str, variables: &[Value]) -> String {
    let mut expression = expression.to_owned();
    for variable in variables {
        let name = variable["name"].as_str().expect("a name");
        expression = expression.replace(&format!("${name}"), ".*");
    }
    // "$1" is a group of a regular expression.
    let mut after_dollar = expression.split('$').skip(1);
    assert!(
        after_dollar.all(|rest| rest.starts_with(|c: char| c.is_ascii_digit())),
        "a variable that the dashboard lacks: {expression}"
    );
    expression
}

#[test]
fn what_exporters_and_collector_serve_passes_promtools_linter() {
    need!("promtool");
    let folder = tempfile::tempdir().expect("a folder");
    let http = Http::new();
    let demo = Demo::start(
        folder.path(),
        &[
            "--nodes",
            "4",
            "--fault",
            "pcie-degraded",
            "--fault-after",
            "1s",
        ],
    );
    // With an incident, so that its series are on the page.
    demo.wait_for_incident(&http, DETECTED_WITHIN);
    let targets = http
        .json(&format!("{}/api/v1/sd", demo.url))
        .expect("targets");
    let exporter = targets[0]["targets"][0].as_str().expect("an exporter");
    let pages = [
        format!("http://{exporter}/metrics"),
        format!("http://{exporter}/metrics?profile=full"),
        format!("{}/metrics", demo.url),
    ];
    let mut wrong = String::new();
    for url in pages {
        let page = http.get_as(&url, TEXT).expect("a page");
        assert!(page.lines().count() > 50, "{url}: {page}");
        let (clean, said) = run_with_input(tool("promtool").args(["check", "metrics"]), &page);
        if !clean || !said.trim().is_empty() {
            wrong += &format!("{url}: {said}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn rules_alertmanager_and_scrape_configuration_pass_the_checkers_of_their_programs() {
    need!("promtool", "amtool");
    let alerts = root().join("alerts");
    let mut tests: Vec<_> = alerts
        .join("tests")
        .read_dir()
        .expect("tests")
        .map(|entry| entry.expect("entry").path())
        .collect();
    tests.sort();
    assert!(tests.len() >= 3);
    let folder = tempfile::tempdir().expect("a folder");
    let example = std::fs::read_to_string(root().join("packaging/prometheus.example.yml"))
        .expect("an example");
    std::fs::write(folder.path().join("prometheus.yml"), example).expect("a copy");
    std::fs::copy(
        alerts.join("railscope.rules.yml"),
        folder.path().join("railscope.rules.yml"),
    )
    .expect("a copy");
    let commands = [
        (
            "promtool",
            vec!["check", "rules", "--lint=all", "--lint-fatal"],
            vec![alerts.join("railscope.rules.yml")],
        ),
        ("promtool", vec!["test", "rules"], tests),
        (
            "promtool",
            vec!["check", "config"],
            vec![folder.path().join("prometheus.yml")],
        ),
        (
            "amtool",
            vec!["check-config"],
            vec![alerts.join("alertmanager.example.yml")],
        ),
    ];
    for (name, arguments, files) in commands {
        let (well, said) = run(tool(name).args(&arguments).args(files), limit());
        assert!(well, "{name} {arguments:?}: {said}");
    }
}

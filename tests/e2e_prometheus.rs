//! The demo under a real Prometheus and Alertmanager with the shipped rules: one fault, one page, and
//! every query of the dashboards returns data.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "native_histograms.rs"]
mod native_histograms;
#[path = "otlp_sender.rs"]
mod otlp_sender;
#[path = "push.rs"]
mod push;
#[path = "read_back.rs"]
mod read_back;
mod support;

use std::time::{Duration, Instant};

use serde_json::Value;
use support::site::{Site, tool};
use support::{Demo, Http, Sink, need, root, run, run_with_input, wait_for};

/// Long enough for a demo that shares two cores with another user's compiler.
const DETECTED_WITHIN: Duration = Duration::from_secs(60);
/// The rule waits 30 s.
const PAGED_WITHIN: Duration = Duration::from_secs(90);
/// How long a second notification, which there must not be, is waited for.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
const SILENT_FOR: Duration = Duration::from_secs(15);
const TEXT: &str = "text/plain; version=0.0.4";

/// Panels that show nothing on the demo, and why that is right.
const EMPTY_ON_DEMO: &[(&str, &[&str])] = &[
    (
        "all exporters of the demo answer, and its fault is a PCIe link",
        &[
            "Exporters that the collector cannot scrape",
            "Ports down by leaf and rail",
            "Ports slower than the median",
            "Ports with the most errors",
            "Missing cables",
            "Wiring findings",
            "Throttling",
            "Throttle reasons of the node",
            "GPUs with a lowered clock",
            "ECC errors and XIDs",
            "Hardware events in the kernel log",
            "Nodes with the most NVLink errors",
            "Other alerts of Railscope",
        ],
    ),
    (
        "it takes ten minutes to compare long steps with probes",
        &["Cause of long steps"],
    ),
    (
        "it takes five minutes to know the usual throughput, and so what is lost",
        &[
            "Measured slowdown",
            "Slowest jobs",
            "Throughput compared with the usual",
            "GPUs lost by job and class",
            "GPU-hours lost by job and cause",
            "GPU-hours lost by class and day",
            "GPU-hours lost by class and week",
            "GPU-hours lost by component",
            "GPU-hours lost by job",
            "Hours of open incidents by class and day",
        ],
    ),
    (
        "no probe is slow, and timers are counts",
        &[
            "Tail incidents",
            "Open tail incidents",
            "Worst components",
            "Worst pairs",
            "Slow probes by component",
            "Slow probes by pair",
            "Longest timer latency by node",
        ],
    ),
    (
        "the demo is InfiniBand",
        &[
            "Pause by rail",
            "ECN marks by rail",
            "Pause of the node",
            "Nodes that send the most pause",
            "Nodes that receive the most pause",
            "Pause sent and received by node",
            "Congestion notification packets",
            "Sends the most pause",
            "Largest share of pause sent",
            "ECN marks",
            "CNPs",
            "ECN marks by leaf",
            "ECN marks by node",
            "Pause by NIC",
            "Peak pause by NIC",
            "Discards by NIC",
            "ECN marks by port",
            "CNPs by port",
            "PCIe back-pressure of NICs",
        ],
    ),
];

/// For a checker to end: promtool's unit tests take half a minute of one CPU, and other tests run beside it.
fn limit() -> Duration {
    Duration::from_secs(240)
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
        serde_json::json!({ "cluster": "demo", "component": domain })
    );
    let alerts = page["alerts"].as_array().expect("alerts");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let node = domain
        .trim_start_matches("pcie/")
        .split(':')
        .next()
        .expect("a node");
    let expected = [
        ("alertname", "RailscopeIncidentCritical"),
        ("cluster", "demo"),
        ("component", domain),
        ("node", node),
        ("severity", "critical"),
    ];
    // Nothing else, which could change and make it another alert.
    let expected: serde_json::Map<_, _> = expected
        .map(|(label, value)| (label.to_owned(), Value::from(value)))
        .into_iter()
        .collect();
    assert_eq!(alerts[0]["labels"], Value::from(expected));
    let annotation = |name: &str| {
        alerts[0]["annotations"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(annotation("runbook_url").ends_with("/alerts/runbooks/pcie-degraded.md"));
    let id = incident["id"].as_str().expect("an id");
    assert!(annotation("incident_url").ends_with(&format!("/incidents/{id}")));
    assert!(
        annotation("dashboard_url").contains(&format!("var-incident={id}&var-cluster=demo&from="))
    );
    assert_eq!(annotation("class"), "pcie-degraded");
    assert_eq!(
        annotation("action"),
        incident["action"].as_str().expect("what to do")
    );
    assert!(
        annotation("action").contains(node),
        "{}",
        annotation("action")
    );
    let gpus = format!("jobs that use it: {}.", incident["gpus_affected"]);
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

/// The number of queries, or those that are wrong.
fn ask_dashboards(site: &Site) -> Result<usize, String> {
    let mut wrong = Vec::new();
    let mut asked = 0;
    for entry in root().join("dashboards").read_dir().expect("dashboards") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
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
                .map(|target| (panel.clone(), target))
        });
        for (panel, target) in queries.chain(annotations.iter().map(|a| (a.clone(), a.clone()))) {
            let title = panel["title"].as_str().or(panel["name"].as_str());
            let title = title.expect("a title");
            let expression = target["expr"].as_str().expect("an expression");
            let expression = expression
                .replace("$__rate_interval", "20s")
                .replace("$__range", "1h");
            let expression = with_all(&expression, variables);
            asked += 1;
            let says = panel["description"].as_str().unwrap_or_default();
            let may_be_empty = says.contains("Full profile only.")
                || EMPTY_ON_DEMO
                    .iter()
                    .any(|(_, titles)| titles.contains(&title));
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

/// The expression with all values of each variable chosen, or the only one.
fn with_all(expression: &str, variables: &[Value]) -> String {
    let mut expression = expression.to_owned();
    let mut variables: Vec<_> = variables.iter().collect();
    // $incident is the beginning of $incident_node.
    variables.sort_by_key(|variable| std::cmp::Reverse(variable["name"].as_str().map(str::len)));
    for variable in variables {
        let name = variable["name"].as_str().expect("a name");
        let chosen = match variable["type"].as_str() {
            Some("custom") => variable["current"]["value"].as_str().expect("a choice"),
            _ => ".*",
        };
        expression = expression.replace(&format!("${name}"), chosen);
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
    // With an incident, so that its series are exported.
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
    let rules = [
        "railscope.rules.yml",
        "railscope-recording.rules.yml",
        "railscope-links.rules.yml",
    ];
    for name in rules {
        std::fs::copy(alerts.join(name), folder.path().join(name)).expect("a copy");
    }
    let commands = [
        (
            "promtool",
            vec!["check", "rules", "--lint=all", "--lint-fatal"],
            rules.map(|name| alerts.join(name)).to_vec(),
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
            vec![
                alerts.join("alertmanager.example.yml"),
                alerts.join("receivers.example.yml"),
            ],
        ),
    ];
    for (name, arguments, files) in commands {
        let (well, said) = run(tool(name).args(&arguments).args(files), limit());
        assert!(well, "{name} {arguments:?}: {said}");
    }
}

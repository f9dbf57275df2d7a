//! Exactly one notification for a fault and one for its resolution, with a real Prometheus and Alertmanager and the shipped
//! rules, independent of changes of the fault.
//!
//! Each case is a separate cluster with synthetic collectors and exporters, so that all run simultaneously. Delays of the
//! rules and of Alertmanager are at most 10 % of the shipped ones; grouping, holding and inhibition are as shipped.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "alert_cases.rs"]
mod alert_cases;
#[path = "notification_texts.rs"]
mod notification_texts;
mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use alert_cases::{
    Case, Count, Server, cases_of_a_dead_leaf, cases_of_gaps, cases_of_one_fault, cases_of_storms,
    every_class, exports,
};
use support::site::{adapted, tool};
use support::{Http, Process, Sink, free_port, need, wait_for};

/// Duration of the cases, and the time to wait for a last notification: the longest hold plus Alertmanager's interval.
const PLAYED: u64 = 18;
const SETTLED: Duration = Duration::from_secs(14);
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// The rules' times in seconds, ordered so that no value is a prefix of a later one.
const RULE_TIMES: &[(&str, &str)] = &[
    ("keep_firing_for: 10m", "keep_firing_for: 8s"),
    ("keep_firing_for: 2m", "keep_firing_for: 3s"),
    (" for: 1m\n", " for: 5s\n"),
    (" for: 2m\n", " for: 5s\n"),
    (" for: 5m\n", " for: 9s\n"),
];

/// Response of a synthetic server at `/metrics`; `None` as if it were down.
type Exposition = Arc<Mutex<Option<String>>>;

/// Serves the exposition until the test ends; returns the port.
fn serve(exposition: &Exposition) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let port = listener.local_addr().expect("its address").port();
    let exposition = exposition.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            if !stream.read(&mut request).is_ok_and(|read| read > 0) {
                continue;
            }
            let text = exposition.lock().expect("no panic").clone();
            if let Some(text) = text {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
                write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len()).ok();
            }
        }
    });
    port
}

/// The synthetic servers of all clusters.
struct Servers {
    by_place: BTreeMap<(&'static str, Server), Exposition>,
    scrape_configs: String,
}

impl Servers {
    fn start(cases: &[Case]) -> Self {
        let mut by_place: BTreeMap<(&'static str, Server), Exposition> = BTreeMap::new();
        for case in cases {
            for server in [Server::Collector, Server::Exporters]
                .into_iter()
                .chain(case.steps.iter().map(|step| step.1))
            {
                by_place
                    .entry((case.cluster, server))
                    .or_insert_with(|| Arc::new(Mutex::new(exports(""))));
            }
        }
        let mut jobs: BTreeMap<&str, String> = BTreeMap::new();
        for ((cluster, server), exposition) in &by_place {
            let job = if *server == Server::Exporters {
                "railscope-exporter"
            } else {
                "railscope-collector"
            };
            let target = format!(
                "      - {{ targets: [\"127.0.0.1:{}\"], labels: {{ cluster: {cluster} }} }}\n",
                serve(exposition)
            );
            jobs.entry(job).or_default().push_str(&target);
        }
        let jobs = jobs
            .iter()
            .map(|(job, targets)| format!("  - job_name: {job}\n    static_configs:\n{targets}"));
        let scrape_configs = jobs.collect();
        Self {
            by_place,
            scrape_configs,
        }
    }

    fn set(&self, cluster: &'static str, server: Server, text: Option<String>) {
        *self.by_place[&(cluster, server)].lock().expect("no panic") = text;
    }
}

fn prometheus(folder: &Path, at: &str, alertmanager: &str, scrape_configs: &str) -> Process {
    let files = [
        "railscope.rules.yml",
        "railscope-recording.rules.yml",
        "railscope-links.rules.yml",
    ];
    for file in files {
        let changes = match file {
            "railscope.rules.yml" => RULE_TIMES,
            "railscope-recording.rules.yml" => &[("interval: 30s", "interval: 2s")],
            _ => &[],
        };
        std::fs::write(
            folder.join(file),
            adapted(&format!("alerts/{file}"), changes),
        )
        .expect("rules");
    }
    let config = format!(
        "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
         rule_files: [\"*.rules.yml\"]\n\
         alerting: {{ alertmanagers: [{{ static_configs: [{{ targets: [\"{alertmanager}\"] }}] }}] }}\n\
         scrape_configs:\n{scrape_configs}"
    );
    std::fs::write(folder.join("prometheus.yml"), config).expect("a configuration");
    let mut command = tool("prometheus");
    command
        .args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=prometheus-data",
        ])
        // The interval after which firing alerts are sent to Alertmanager again; Alertmanager treats an alert as resolved after
        // four times this interval.
        .arg("--rules.alert.resend-delay=5s")
        .arg(format!("--web.listen-address={at}"));
    Process::start("prometheus", folder, command.stdin(Stdio::null()))
}

/// Alertmanager with this shipped configuration, faster and with these texts replaced.
fn alertmanager(folder: &Path, at: &str, shipped: &str, replaced: &[(&str, &str)]) -> Process {
    let faster = [
        ("group_wait: 30s", "group_wait: 2s"),
        ("group_interval: 5m", "group_interval: 1s"),
    ];
    let config = adapted(shipped, &[&faster[..], replaced].concat());
    std::fs::write(folder.join("alertmanager.yml"), config).expect("a configuration");
    let mut command = tool("prometheus-alertmanager");
    command
        .args([
            "--config.file=alertmanager.yml",
            "--storage.path=alertmanager-data",
            "--cluster.listen-address=",
        ])
        .arg(format!("--web.listen-address={at}"));
    Process::start("alertmanager", folder, command.stdin(Stdio::null()))
}

/// Runs all cases simultaneously, second by second.
fn play(cases: &[Case], servers: &Servers) {
    let began = Instant::now();
    for second in 0..=PLAYED {
        let until = began + Duration::from_secs(second);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        for case in cases {
            for (_, server, text) in case.steps.iter().filter(|(at, ..)| *at == second) {
                servers.set(case.cluster, *server, text.clone());
            }
        }
    }
}

type Counts = BTreeMap<(String, String, String), Count>;

/// Notifications by cluster, receiver and component, until none has come for a while.
fn received(sink: &Sink) -> (Counts, String) {
    let (mut counts, mut log) = (Counts::new(), String::new());
    while let Some((path, notification)) = sink.next(SETTLED) {
        let label = |name: &str| {
            notification["groupLabels"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let count = counts
            .entry((label("cluster"), path.clone(), label("component")))
            .or_default();
        let is_firing = notification["status"] == "firing";
        *(if is_firing {
            &mut count.firing
        } else {
            &mut count.resolved
        }) += 1;
        let alerts = notification["alerts"].as_array().into_iter().flatten();
        let names =
            alerts.map(|alert| format!("{} {}", alert["labels"]["alertname"], alert["status"]));
        let names: Vec<_> = names.collect();
        writeln!(
            log,
            "{} {path} {} {} {names:?}",
            label("cluster"),
            label("component"),
            notification["status"]
        )
        .expect("a text");
    }
    (counts, log)
}

#[test]
#[ignore = "slow: 45 s in real time, and late scrapes on a busy machine count"]
fn slow_every_fault_is_one_notification_and_one_resolve() {
    need!("prometheus", "prometheus-alertmanager");
    let mut cases = cases_of_one_fault();
    cases.extend(cases_of_gaps());
    cases.extend(cases_of_a_dead_leaf());
    cases.extend(cases_of_storms());
    cases.push(every_class());
    let sink = Sink::start();
    let (http, folder) = (Http::new(), tempfile::tempdir().expect("a folder"));
    let servers = Servers::start(&cases);
    let [prometheus_at, alertmanager_at] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let _alertmanager = alertmanager(
        folder.path(),
        &alertmanager_at,
        "alerts/alertmanager.example.yml",
        &[("127.0.0.1:9095", &format!("127.0.0.1:{}", sink.port))],
    );
    let prometheus = prometheus(
        folder.path(),
        &prometheus_at,
        &alertmanager_at,
        &servers.scrape_configs,
    );
    // All servers were scraped once before the first fault.
    wait_for("first scrapes", STARTED_WITHIN, || {
        let url = format!("http://{prometheus_at}/api/v1/query?query=count(up==1)");
        let answer = http.json(&url)?;
        let count = answer
            .pointer("/data/result/0/value/1")
            .and_then(|count| count.as_str());
        let all = servers.by_place.len().to_string();
        (count == Some(&*all))
            .then_some(())
            .ok_or_else(|| format!("{answer}\n{}", prometheus.tail()))
    });
    play(&cases, &servers);
    let (counts, log) = received(&sink);

    let wanted: Counts = cases
        .iter()
        .flat_map(|case| {
            let of = |(path, component, count): &(&str, String, Count)| {
                (
                    (
                        case.cluster.to_owned(),
                        (*path).to_owned(),
                        component.clone(),
                    ),
                    *count,
                )
            };
            case.wanted.iter().map(of).collect::<Vec<_>>()
        })
        .collect();
    let differ = |a: &Counts, b: &Counts| -> Vec<String> {
        a.iter()
            .filter(|(key, count)| b.get(*key) != Some(count))
            .map(|line| format!("{line:?}"))
            .collect()
    };
    let (missing, too_much) = (differ(&wanted, &counts), differ(&counts, &wanted));
    assert!(
        missing.is_empty() && too_much.is_empty(),
        "expected\n{}\nbut was\n{}\nof\n{log}",
        missing.join("\n"),
        too_much.join("\n")
    );
}

/// What Slack and PagerDuty are sent by a real Alertmanager with the shipped receivers.
#[test]
fn slack_and_pagerduty_are_sent_the_fault_and_its_end() {
    need!("prometheus-alertmanager", "amtool");
    let (sink, folder) = (Sink::start(), tempfile::tempdir().expect("a folder"));
    let at = format!("127.0.0.1:{}", free_port());
    let slack = format!(
        "slack_api_url: http://127.0.0.1:{0}/slack\n  pagerduty_url: http://127.0.0.1:{0}/pagerduty",
        sink.port
    );
    let templates = support::root()
        .join("alerts/templates/*.tmpl")
        .display()
        .to_string();
    let replaced = [
        (
            "slack_api_url: https://hooks.slack.example/services/T000/B000/XXXX",
            &*slack,
        ),
        ("templates/*.tmpl", &*templates),
    ];
    let _alertmanager = alertmanager(
        folder.path(),
        &at,
        "alerts/receivers.example.yml",
        &replaced,
    );
    let add = |end: &[&str]| {
        let mut command = tool("amtool");
        command
            .args(["alert", "add", "--alertmanager.url"])
            .arg(format!("http://{at}"));
        command.args([
            "RailscopeIncidentCritical",
            "cluster=c1",
            "component=pcie/n7:0000:1a:00.0",
            "node=n7",
            "severity=critical",
            "--annotation=summary=PCIe link is degraded: PCIe link of mlx5_4 in n7",
            "--annotation=description=It has 8 of 16 lanes.",
            "--annotation=action=Drain n7 and power-cycle it.",
            "--annotation=class=pcie-degraded",
            "--annotation=incident=0a1b2c3d",
            "--annotation=incident_url=http://collector/incidents/0a1b2c3d",
            "--annotation=runbook_url=https://runbooks/pcie-degraded.md",
        ]);
        support::run(command.args(end), Duration::from_secs(20))
    };
    wait_for("Alertmanager", STARTED_WITHIN, || {
        let (well, output) = add(&[]);
        well.then_some(()).ok_or(output)
    });
    let both = || {
        let sent = (0..2).filter_map(|_| sink.next(STARTED_WITHIN));
        sent.collect::<BTreeMap<String, serde_json::Value>>()
    };
    let firing = both();
    let slack = &firing["/slack"]["attachments"][0];
    assert_eq!(
        slack["title"], "Page [c1]: PCIe link is degraded: PCIe link of mlx5_4 in n7",
        "{firing:#?}"
    );
    assert_eq!(slack["title_link"], "http://collector/incidents/0a1b2c3d");
    assert_eq!(slack["color"], "danger");
    assert!(
        slack["text"]
            .as_str()
            .is_some_and(|text| text.contains("Drain n7 and power-cycle it."))
    );
    let pager = &firing["/pagerduty"];
    assert_eq!(pager["event_action"], "trigger", "{firing:#?}");
    assert_eq!(pager["payload"]["component"], "pcie/n7:0000:1a:00.0");
    assert_eq!(pager["payload"]["class"], "pcie-degraded");
    assert_eq!(pager["payload"]["severity"], "critical");
    assert_eq!(
        pager["links"][0]["href"],
        "https://runbooks/pcie-degraded.md"
    );

    let (well, output) = add(&["--end", "2026-01-02T03:04:05Z"]);
    assert!(well, "{output}");
    let resolved = both();
    assert_eq!(
        resolved["/slack"]["attachments"][0]["color"], "good",
        "{resolved:#?}"
    );
    assert_eq!(
        resolved["/pagerduty"]["event_action"], "resolve",
        "{resolved:#?}"
    );
    assert_eq!(resolved["/pagerduty"]["dedup_key"], pager["dedup_key"]);
}

//! From a fault to the page for it, through real exporters, collector, Prometheus and Alertmanager: one page that
//! names the part, whatever else shows symptoms, and none without a faulty part.
//!
//! The slow ones: `cargo test -p railscope --test e2e_detection -- --ignored --nocapture`, or `tests/run --slow`.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::site::Site;
use support::{RAILSCOPE, Sink, need, wait_for};

/// For all of it to start on a machine that others use too.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// From the fault to the page; the goal for a hard fault is 10 s to the incident, and the demo's Prometheus scrapes
/// and evaluates rules every 2 s.
const PAGED_WITHIN: Duration = Duration::from_secs(60);
/// How long there must be no second page. The rule for unexplained ports waits a minute.
const ALONE_FOR: Duration = Duration::from_secs(10);
const ALONE_FOR_LONG: Duration = Duration::from_secs(75);

/// When each step of a page was reached, after the fault.
struct Times {
    incident: Duration,
    firing: Duration,
    page: Duration,
}

/// Plays a scene and expects exactly one page, for the part that the demo breaks and of this class.
fn one_page(scene: &str, nodes: &str, class: &str, alone_for: Duration) -> Option<Times> {
    let sink = Sink::start();
    let mut site = Site::start(
        &sink,
        &["--scene", scene, "--nodes", nodes, "--fault-after", "10s"],
    );
    let process = &mut site.demo.process;
    process.wait_for_output("BROKEN: ", STARTED_WITHIN);
    let began = Instant::now();
    let output = process.output();
    let broken = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("BROKEN: "));
    let part = broken.and_then(|line| line.split(' ').next())?.to_owned();

    let incident = site.demo.wait_for_incident(&site.http, PAGED_WITHIN);
    let incident_after = began.elapsed();
    assert_eq!(incident["fault_domain"], *part, "{incident}");
    assert_eq!(incident["class"], class, "{incident}");
    wait_for("firing alert", PAGED_WITHIN, || {
        let firing = site.query("ALERTS{alertstate=\"firing\"}")?;
        (firing
            .iter()
            .any(|alert| alert["metric"]["component"] == *part))
        .then_some(())
        .ok_or(format!("{firing:?}"))
    });
    let firing = began.elapsed();
    let (path, page) = sink.next(PAGED_WITHIN).expect("a page");
    let times = Times {
        incident: incident_after,
        firing,
        page: began.elapsed(),
    };
    assert_eq!(path, "/pager", "{page}");
    let alerts = page["alerts"].as_array().expect("alerts");
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["labels"]["component"], *part, "{alerts:?}");
    assert_eq!(alerts[0]["annotations"]["class"], class, "{alerts:?}");
    // A ticket may follow, such as for a subnet that cannot be read completely due to a dead switch.
    let quiet_until = Instant::now() + alone_for;
    while let Some((path, more)) = sink.next(quiet_until.saturating_duration_since(Instant::now()))
    {
        assert_ne!(path, "/pager", "a second page: {more}");
    }
    let open = site.demo.incidents(&site.http).expect("an answer");
    assert_eq!(domains(&open), [part.as_str()]);
    site.demo.stop();
    println!(
        "{scene}: {part} broke; incident after {:.1} s, alert after {:.1} s, page after {:.1} s",
        times.incident.as_secs_f64(),
        times.firing.as_secs_f64(),
        times.page.as_secs_f64()
    );
    Some(times)
}

fn domains(incidents: &[Value]) -> Vec<&str> {
    let domains = incidents.iter().map(|incident| &incident["fault_domain"]);
    domains
        .map(|domain| domain.as_str().unwrap_or(""))
        .collect()
}

#[test]
fn a_pause_storm_is_one_page_that_names_the_nic_and_none_of_those_that_it_pauses() {
    need!("prometheus", "prometheus-alertmanager");
    let times = one_page("pfc-storm", "8", "pfc-storm", ALONE_FOR).expect("a broken part");
    assert!(times.firing <= times.page);
}

#[test]
#[ignore = "slow: two minutes and 16 nodes"]
fn slow_a_dead_leaf_with_64_ports_is_one_page_that_names_the_switch() {
    need!("prometheus", "prometheus-alertmanager");
    one_page("dead-leaf", "16", "switch-down", ALONE_FOR_LONG).expect("a broken part");
}

#[test]
#[ignore = "slow: two minutes and 32 nodes"]
fn slow_a_dead_rail_is_one_page_that_names_the_switch() {
    need!("prometheus", "prometheus-alertmanager");
    one_page("dead-rail", "32", "switch-down", ALONE_FOR_LONG).expect("a broken part");
}

#[test]
#[ignore = "slow: two minutes of silence"]
fn slow_ranks_with_unequal_work_are_no_page() {
    need!("prometheus", "prometheus-alertmanager");
    let sink = Sink::start();
    let mut site = Site::start(&sink, &["--scene", "your-code", "--nodes", "8"]);
    let said = sink.next(Duration::from_secs(120));
    assert!(said.is_none(), "{said:?}");
    let scraped = site
        .query("railscope_gpu_utilization_ratio")
        .expect("samples");
    assert_eq!(scraped.len(), 64, "8 nodes with 8 GPUs are watched");
    let open = site.demo.incidents(&site.http).expect("an answer");
    assert_eq!(domains(&open), [""; 0]);
    site.demo.stop();
}

/// Every scene of the demo: the nodes that it needs, and the cause of its fault; none without a faulty part.
const SCENES: &[(&str, &str, Option<&str>)] = &[
    ("slow-gpu", "8", Some("gpu-power-cap")),
    ("thermal", "8", Some("gpu-thermal")),
    ("slow-pcie", "8", Some("pcie-degraded")),
    ("dead-rail", "32", Some("switch-down")),
    ("dead-leaf", "16", Some("switch-down")),
    ("miswired-cable", "8", Some("miscabled-rail")),
    ("flapping-optic", "8", Some("port-flapping")),
    ("noisy-vm-host", "8", Some("host-steal")),
    ("spine-gray-failure", "32", Some("uplink-lossy")),
    ("jittery-uplink", "32", Some("uplink-jitter")),
    ("your-code", "8", None),
    ("pfc-storm", "8", Some("pfc-storm")),
    ("dead-uplink", "32", Some("uplink-down")),
    ("calm-roce", "32", None),
];
/// Times of the rules, so that a scene takes minutes: `for`, grouping and inhibition stay.
const TIMES: &[(&str, &str)] = &[
    ("keep_firing_for: 10m", "keep_firing_for: 40s"),
    ("keep_firing_for: 2m", "keep_firing_for: 10s"),
];
/// From the begin of a fault to the notification, and from its end to the resolve: some checks use five minutes.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(240);
const RESOLVED_WITHIN: Duration = Duration::from_secs(600);
/// How long nothing else may come: longer than any rule of one fault waits, and than what holds it.
const QUIET_FOR: Duration = Duration::from_secs(75);
const SILENT_FOR: Duration = Duration::from_secs(150);

/// Notifications as `receiver status component alerts`, until none has come for a while.
fn notifications(sink: &Sink, quiet: Duration) -> Vec<String> {
    let all = std::iter::from_fn(|| sink.next(quiet));
    all.map(|(path, notification)| described(&path, &notification))
        .collect()
}

fn described(path: &str, notification: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let alerts = notification["alerts"].as_array().into_iter().flatten();
    let names: Vec<_> = alerts
        .map(|alert| word(&alert["labels"]["alertname"]))
        .collect();
    let component = word(&notification["groupLabels"]["component"]);
    let status = word(&notification["status"]);
    format!("{path} {status} {component} {}", names.join(","))
}

/// Plays one scene up to the end of its fault; returns the differences from what is expected.
fn play(scene: &str, nodes: &str, cause: Option<&str>) -> Result<(), String> {
    let sink = Sink::start();
    let arguments = ["--scene", scene, "--nodes", nodes, "--fault-after", "10s"];
    let mut site = Site::start_with(&sink, &arguments, TIMES);
    let Some(cause) = cause else {
        let said = notifications(&sink, SILENT_FOR);
        site.demo.stop();
        return if said.is_empty() {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        };
    };
    site.demo
        .process
        .wait_for_output("BROKEN: ", STARTED_WITHIN);
    let (path, first) = sink.next(NOTIFIED_WITHIN).ok_or("no notification")?;
    let mut said = vec![described(&path, &first)];
    said.extend(notifications(&sink, QUIET_FOR));
    let address = site.demo.url.trim_start_matches("http://").to_owned();
    let mut end = Command::new(RAILSCOPE);
    let end = end.args(["demo", "inject", "--demo", &address, cause, "--end"]);
    let ended = end.output().map_err(|error| error.to_string())?;
    if !ended.status.success() {
        return Err(format!("the fault does not end: {ended:?}"));
    }
    let (path, resolve) = sink
        .next(RESOLVED_WITHIN)
        .ok_or(format!("no resolve after {said:?}"))?;
    said.push(described(&path, &resolve));
    said.extend(notifications(&sink, QUIET_FOR));
    site.demo.stop();
    let [begin, end] = said.as_slice() else {
        return Err(format!(
            "expected one notification and one resolve: {said:?}"
        ));
    };
    let (begun, ended) = (
        begin.replacen(" firing ", " ", 1),
        end.replacen(" resolved ", " ", 1),
    );
    let is_pair = begin != &begun && end != &ended && begun == ended;
    let is_incident = begin.ends_with(" RailscopeIncidentCritical")
        || begin.ends_with(" RailscopeIncidentWarning");
    (is_pair && is_incident)
        .then_some(())
        .ok_or(format!("{said:?}"))
}

/// `RAILSCOPE_SCENES` names those to play, with commas.
#[test]
#[ignore = "slow: an hour of real time, every scene with its end"]
fn slow_each_scene_is_one_notification_and_one_resolve() {
    need!("prometheus", "prometheus-alertmanager");
    let only = std::env::var("RAILSCOPE_SCENES").unwrap_or_default();
    let is_wanted = |scene: &str| only.is_empty() || only.split(',').any(|one| one == scene);
    let mut wrong = Vec::new();
    for (scene, nodes, cause) in SCENES.iter().filter(|(scene, ..)| is_wanted(scene)) {
        let began = Instant::now();
        let played = play(scene, nodes, *cause);
        println!(
            "{scene}: {played:?} after {:.0} s",
            began.elapsed().as_secs_f64()
        );
        wrong.extend(played.err().map(|why| format!("{scene}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

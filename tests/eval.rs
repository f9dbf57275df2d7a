//! `railscope eval` as a user runs it: the same bytes on any number of threads, silence where nothing is
//! broken, and each plain fault found with its part. Properties, not scores.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use railscope_simulator::examples;
use serde_json::Value;

const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");

/// Causes that stop a link or slow it so that no rule could overlook it: each must be found, and named first.
const PLAIN: &[&str] = &[
    "pcie-degraded",
    "port-down",
    "port-degraded",
    "link-errors",
    "miscabled-rail",
    "gpu-thermal",
];

/// Two scalable units of two rails, small enough for a build without optimization.
const FABRIC: &str = "[fabric]\nnodes = 8\nnics_per_node = 2\ngpus_per_node = 2\n\
    wiring = { kind = 'rail-optimized', nodes_per_su = 4 }\nswitches = { radix = 8 }\n";

fn eval(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(RAILSCOPE)
        .args(["--log", "error", "eval", "--scenario"])
        .arg(folder)
        .args(arguments)
        .output()
        .expect("runs")
}

/// The report on one scenario, as JSON.
fn report(scenario: &str, arguments: &[&str]) -> (String, Value) {
    report_on(FABRIC, scenario, arguments)
}

/// The same on another fabric.
fn report_on(fabric: &str, scenario: &str, arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    // Top-level keys stand before tables.
    let (keys, tables) = scenario.split_at(scenario.find("[[").unwrap_or(scenario.len()));
    let text = format!("about = 'a test'\n{keys}\n{fabric}\n{tables}");
    std::fs::write(folder.path().join("scenario.toml"), text).expect("written");
    let mut all = vec!["--format", "json"];
    all.extend(arguments);
    let output = eval(folder.path(), &all);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let value = serde_json::from_str(&text).expect("JSON");
    (text, value)
}

const EACH: &str =
    "duration = '4m'\nexpect = 'alarm'\n[[draws]]\ncause = 'each'\nonset_seconds = [60, 90]\n";

fn hits(ratio: &Value) -> (u64, u64) {
    let number = |field: &str| ratio[field].as_u64().expect("a count");
    (number("hits"), number("of"))
}

#[test]
fn each_plain_fault_is_found_with_its_part_and_class_whatever_the_seed() {
    let (_, report) = report(EACH, &["--seeds", "1000..1002"]);
    let own = &report["detectors"][0];
    assert_eq!(own["name"], "railscope");
    for cause in PLAIN {
        let score = &own["score"]["by_cause"][cause];
        for figure in ["recall", "top1", "class"] {
            assert_eq!(hits(&score[figure]), (2, 2), "{cause}: {figure}");
        }
        let slowest = score["localise_seconds"]["p90"].as_f64().expect("a time");
        assert!(slowest <= 45.0, "{cause}: {slowest} s");
    }
}

#[test]
fn rules_that_probe_name_a_dark_port_and_nobody_where_nothing_is_broken() {
    for (scenario, found) in [
        (
            "duration = '4m'\nexpect = 'alarm'\n[[draws]]\ncause = 'port-down'\nonset_seconds = [60, 90]\n",
            true,
        ),
        ("duration = '15m'\nexpect = 'no-page'\n", false),
    ] {
        let (_, report) = report(scenario, &["--seeds", "1000..1001"]);
        let rules = report["detectors"].as_array().expect("a list");
        for name in ["R-Pingmesh-like", "NetBouncer-like", "C4D-like"] {
            let rule = rules.iter().find(|rule| rule["name"] == name).expect(name);
            let (score, alarms) = (&rule["score"], &rule["score"]["alarms"]);
            if found {
                let named = &score["by_cause"]["port-down"]["top1"];
                assert_eq!(hits(named), (1, 1), "{name}");
            } else {
                assert_eq!(alarms["healthy_pages"]["count"], 0, "{name}");
            }
        }
        let left = report["not_run"].as_array().expect("a list");
        let lacks = |what: &str| left.iter().any(|rule| rule["name"] == what);
        assert!(lacks("Holmes-like") && !lacks("C4D-like"));
    }
}

/// The same units on an Ethernet whose switches are not read, and whose exporters probe each other.
const PROBED: &str = "[fabric]\nnodes = 8\nnics_per_node = 2\ngpus_per_node = 2\ntransport = 'roce'\n\
    routing = 'ecmp'\nwiring = { kind = 'rail-optimized', nodes_per_su = 4 }\n\
    switches = { radix = 8 }\n[probes]\n";

#[test]
fn what_nothing_counts_is_found_by_probes_and_only_by_them() {
    let gray = "duration = '6m'\nexpect = 'alarm'\nswitch_counters = false\n[[draws]]\ncause = 'each'\n\
        onset_seconds = [60, 90]\neffects = [{ cause = 'uplink-lossy', loss_ratio = 0.05 }, \
        { cause = 'edge-lossy', loss_ratio = 0.05 }, \
        { cause = 'uplink-jitter', packet_ratio = 0.3, seconds = 1e-3 }]\n";
    let arguments = ["--seeds", "1000..1001", "--without", "probes"];
    let (_, report) = report_on(PROBED, gray, &arguments);
    for (name, found) in [("railscope", 1), ("without probes", 0)] {
        let rules = report["detectors"].as_array().expect("a list");
        let rule = rules.iter().find(|rule| rule["name"] == name).expect(name);
        // Hosts count what they lose at their own cables.
        for (cause, found) in [
            ("uplink-lossy", found),
            ("edge-lossy", 1),
            ("uplink-jitter", found),
        ] {
            let named = &rule["score"]["by_cause"][cause]["top1"];
            assert_eq!(hits(named), (found, 1), "{name}: {cause}");
        }
    }
    let site = "[delivery]\nlost = 0.05\nrestarts = 0.5\n\
        [site]\nreboots = { first_seconds = 60, every_seconds = 120, seconds = 100 }\n";
    let calm = "duration = '10m'\nexpect = 'no-page'\n";
    let (_, report) = report_on(&format!("{PROBED}{site}"), calm, &arguments[..2]);
    let alarms = &report["detectors"][0]["score"]["alarms"];
    assert_eq!(alarms["healthy_pages"]["count"], 0);
}

/// Everything that can go wrong between nodes and collector, at a rate that leaves no node without data for long.
const DELIVERY: &str = "[delivery]\nlost = 0.02\nlate = 0.05\nduplicated = 0.1\nskew_seconds = 1.0\n\
    counter_resets = 0.2\ncounter_wraps = 0.3\nrestarts = 0.3\n";

#[test]
fn each_plain_fault_is_found_though_pages_come_late_and_counters_begin_anew() {
    let scenario = EACH.replace("[[draws]]", &format!("{DELIVERY}[[draws]]"));
    let (_, report) = report(&scenario, &["--seeds", "1000..1001"]);
    for cause in PLAIN {
        let score = &report["detectors"][0]["score"]["by_cause"][cause];
        assert_eq!(hits(&score["top1"]), (1, 1), "{cause}");
    }
}

#[test]
fn the_same_bytes_come_from_any_number_of_threads_and_through_text_as_without() {
    let arguments = ["--seeds", "1000..1001"];
    let scenario = EACH.replace("[[draws]]", &format!("{DELIVERY}[[draws]]"));
    let with = |more: &[&str]| report(&scenario, &[&arguments, more].concat()).0;
    let one = with(&["--threads", "1"]);
    assert_eq!(one, with(&["--threads", "5"]));
    assert_eq!(one, with(&["--through-text"]));
}

#[test]
fn nobody_is_paged_where_nothing_is_broken() {
    for scenario in [
        "duration = '30m'\nexpect = 'no-page'\n",
        "duration = '15m'\nexpect = 'no-page'\n[delivery]\nlost = 0.1\nlate = 0.1\nduplicated = 0.2\n",
        "duration = '15m'\nexpect = 'no-page'\n[delivery]\nmissing = 0.1\ndying = 0.5\nskew_seconds = 4.0\n",
        "duration = '15m'\nexpect = 'no-page'\n[delivery]\ncounter_resets = 0.5\ncounter_wraps = 0.5\nrestarts = 0.5\n",
        "duration = '15m'\nexpect = 'no-page'\n[[jobs]]\nname = 'a'\nnodes = [0, 1, 4]\n[[jobs]]\nname = 'b'\nnodes = [2, 5]\n",
    ] {
        let (_, report) = report(scenario, &["--seeds", "1000..1002"]);
        let alarms = &report["detectors"][0]["score"]["alarms"];
        assert_eq!(alarms["healthy_pages"]["count"], 0, "{scenario}");
        assert_eq!(alarms["precision"]["of"], 0, "{scenario}");
        assert_eq!(hits(&report["scenarios"][0]["met"]), (2, 2));
    }
}

#[test]
fn a_rule_without_care_is_seen_to_cry_wolf() {
    // The harness must be able to show that a detector is bad.
    let (_, report) = report(
        "duration = '30m'\nexpect = 'no-page'\n",
        &["--seeds", "1000..1001"],
    );
    let rules = report["detectors"].as_array().expect("a list");
    let careless = rules.iter().find(|rule| rule["name"] == "z > 3");
    let pages = &careless.expect("a rule")["score"]["alarms"]["healthy_pages"]["count"];
    assert!(pages.as_u64().expect("a count") > 0);
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios")
}

#[test]
fn every_cause_of_the_simulator_is_in_a_scenario() {
    let texts: Vec<String> = std::fs::read_dir(scenarios())
        .expect("scenarios")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .map(|path| std::fs::read_to_string(path).expect("a scenario"))
        .collect();
    let each = |text: &&String| text.contains("cause = \"each\"");
    for cause in examples::CAUSES {
        let left_out = format!("\"{cause}\"");
        let drawn = texts
            .iter()
            .filter(each)
            .any(|text| !text.contains(&left_out));
        assert!(drawn, "{cause}");
    }
}

#[test]
fn a_wrong_scenario_and_wrong_seeds_are_refused_with_what_was_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "about = 'x'\nduration = 'soon'\n").expect("written");
    for (arguments, said) in [
        (
            &["--seeds", "1000..1001"][..],
            "wrong.toml:2: \"soon\" is not a time such as 5s",
        ),
        (
            &["--seeds", "1999..2001"],
            "is not a range of seeds such as 1000..1003, below 2000",
        ),
        (&["--tick", "5m"], "\"5m\" is no tick: expected 1s to 60s"),
    ] {
        let output = eval(folder.path(), arguments);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn the_page_holds_its_plots_and_needs_nothing_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = format!(
        "about = 'a test'\n{}{FABRIC}",
        "duration = '2m'\nexpect = 'no-page'\n"
    );
    std::fs::write(folder.path().join("s.toml"), scenario).expect("written");
    let page = folder.path().join("page.html");
    let page_text = page.to_str().expect("UTF-8");
    let output = eval(
        folder.path(),
        &["--seeds", "1000..1001", "--html", page_text],
    );
    assert!(output.status.success());
    let text = std::fs::read_to_string(page).expect("a page");
    assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
    assert!(text.contains("<svg") && text.ends_with("</html>\n"));
    for outside in ["http:", "https:", "src=", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
}

//! Every alert reads series that exist, keeps the rules of `alerts/`, and has a runbook; so has every class.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use railscope_collector::classes::CLASSES;
use railscope_model::metric::Metric;

const HEADINGS: &[&str] = &["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];
const RUNBOOKS: &str = "https://github.com/railscope/railscope/blob/main/alerts/runbooks/";

fn alerts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../alerts")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(alerts().join(path))
        .unwrap_or_else(|error| panic!("alerts/{path}: {error}"))
}

/// One rule of the file: from its `- alert:` to the next.
fn rules(text: &str) -> Vec<(String, String)> {
    let without_comments = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let text = without_comments.collect::<Vec<_>>().join("\n");
    let rules = text.split("- alert: ").skip(1);
    rules
        .map(|rule| {
            (
                rule.lines().next().unwrap_or_default().to_owned(),
                rule.to_owned(),
            )
        })
        .collect()
}

/// `RailscopeManyPortsDown` -> `many-ports-down`.
fn kebab(alert: &str) -> String {
    let mut name = String::new();
    for c in alert
        .strip_prefix("Railscope")
        .expect("begins with Railscope")
        .chars()
    {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Words of a text that look like series of ours; not recorded ones, `LEVEL:railscope_…:OPERATION`.
fn series(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    let words = words.map(|word| word.trim_end_matches(':'));
    words.filter(|word| word.starts_with("railscope_"))
}

#[test]
fn every_series_in_rules_tests_and_runbooks_is_in_the_catalogue() {
    let mut files = ["railscope.rules.yml", "railscope-recording.rules.yml"]
        .map(str::to_owned)
        .to_vec();
    for folder in ["tests", "runbooks"] {
        for entry in alerts().join(folder).read_dir().expect(folder) {
            files.push(format!(
                "{folder}/{}",
                entry.expect("entry").file_name().to_string_lossy()
            ));
        }
    }
    for file in files {
        for name in series(&read(&file)) {
            assert!(
                Metric::by_name(name).is_some() || Metric::of_part(name).is_some(),
                "alerts/{file}: {name} is not in the catalogue"
            );
        }
    }
}

#[test]
fn every_alert_says_what_it_is_about_and_has_one_firing_and_one_silent_test() {
    let mut tests = String::new();
    for entry in alerts().join("tests").read_dir().expect("tests") {
        tests += &std::fs::read_to_string(entry.expect("entry").path()).expect("text");
    }
    let rules = rules(&read("railscope.rules.yml"));
    assert!(rules.len() >= 5);
    for (alert, rule) in rules {
        for key in [
            "for:",
            "keep_firing_for:",
            "summary:",
            "description:",
            "runbook_url:",
        ] {
            assert!(
                rule.contains(&format!("\n        {key}"))
                    || rule.contains(&format!("\n          {key}")),
                "{alert}: {key}"
            );
        }
        let summary = rule
            .lines()
            .find(|line| line.trim_start().starts_with("summary:"))
            .expect("summary");
        assert!(
            !summary.contains("$value"),
            "{alert}: values belong into the description"
        );
        let carries = |label: &str| {
            rule.contains(&format!("{label}, ")) || rule.contains(&format!("\n          {label}: "))
        };
        assert!(
            carries("severity") && carries("fault_domain"),
            "{alert}: severity and fault_domain"
        );
        let silent = format!("alertname: {alert} }}\n");
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(
            tests.contains(&silent),
            "{alert}: no test that it is silent"
        );
        assert!(tests.contains(&fires), "{alert}: no test that it fires");
    }
}

#[test]
fn every_class_and_every_alert_has_a_runbook_and_every_runbook_is_somebodys() {
    let mut expected: BTreeSet<_> = CLASSES.iter().map(|class| class.name.to_owned()).collect();
    for (alert, rule) in rules(&read("railscope.rules.yml")) {
        let url = rule
            .lines()
            .find_map(|line| line.trim().strip_prefix("runbook_url: "))
            .expect("runbook_url");
        if alert == "RailscopeIncident" {
            // Its runbook is that of the class.
            assert_eq!(
                url.trim_matches('"'),
                format!("{RUNBOOKS}{{{{ $labels.class }}}}.md")
            );
        } else {
            let runbook = url.trim_matches('"').strip_prefix(RUNBOOKS);
            let runbook = runbook.and_then(|name| name.strip_suffix(".md"));
            // That of the class that the collector would name, or its own.
            let is_of_class = CLASSES.iter().any(|class| Some(class.name) == runbook);
            if !is_of_class {
                assert_eq!(runbook, Some(&*kebab(&alert)), "{alert}");
                expected.insert(kebab(&alert));
            }
        }
    }
    let folder = alerts().join("runbooks").read_dir().expect("runbooks");
    let names = folder.map(|entry| {
        entry
            .expect("entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let found: BTreeSet<_> = names
        .map(|name| name.strip_suffix(".md").expect(".md").to_owned())
        .collect();
    assert_eq!(found, expected);
    for name in found {
        let text = read(&format!("runbooks/{name}.md"));
        let headings: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(headings, HEADINGS, "{name}");
        let title = text.lines().next().unwrap_or_default();
        let named = title.starts_with(&format!("# {name}: "))
            || title.strip_prefix("# Railscope").is_some_and(|rest| {
                kebab(&format!(
                    "Railscope{}",
                    rest.split(':').next().unwrap_or_default()
                )) == name
            });
        assert!(named, "{name}: {title}");
    }
}

/// Recorded series: `LEVEL:METRIC:OPERATION`.
fn recorded(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    words.filter(|word| word.contains(":railscope_"))
}

#[test]
fn recording_rules_read_recorded_series_that_exist_and_tests_read_no_other() {
    let rules = read("railscope-recording.rules.yml");
    let made: Vec<_> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- record: "))
        .collect();
    let unique: BTreeSet<_> = made.iter().copied().collect();
    assert!(made.len() >= 60);
    assert_eq!(made.len(), unique.len(), "a name is recorded twice");
    let tests = ["recording.test.yml", "recording-cost.test.yml"];
    let tests = tests.map(|name| read(&format!("tests/{name}")));
    for name in recorded(&rules).chain(tests.iter().flat_map(|text| recorded(text))) {
        assert!(unique.contains(name), "{name} is not recorded");
    }
}

#[test]
fn recording_rules_keep_clusters_apart() {
    let rules = read("railscope-recording.rules.yml");
    let aggregations = rules.match_indices(" by (").map(|(at, _)| &rules[at..]);
    let mut count = 0;
    for rest in aggregations {
        let list = rest.split(')').next().unwrap_or_default();
        assert!(list.contains("cluster"), "{list}: clusters would be mixed");
        count += 1;
    }
    assert!(count >= 60, "{count}");
    let joins = rules.split(" on (").skip(1);
    for rest in joins {
        assert!(
            rest.starts_with("cluster"),
            "{}",
            rest.lines().next().unwrap_or_default()
        );
    }
}

#[test]
fn the_classes_that_rules_name_exist() {
    let text = read("railscope.rules.yml");
    let matchers = text.split("class=~\"").skip(1);
    let named: BTreeSet<_> = matchers
        .filter_map(|rest| Some(rest.split_once('"')?.0))
        .flat_map(|classes| classes.split('|'))
        .collect();
    assert!(named.contains("gpu-lost") && named.contains("port-down"));
    for name in named {
        assert!(CLASSES.iter().any(|class| class.name == name), "{name}");
    }
}

#[test]
fn inhibition_never_takes_a_missing_label_for_an_equal_one() {
    // Alertmanager holds a label that is missing on both sides for equal, and would silence strangers.
    let text = read("alertmanager.example.yml");
    let matchers: Vec<_> = text
        .lines()
        .filter(|line| line.contains("_matchers:"))
        .collect();
    assert_eq!(matchers.len(), 2);
    assert!(
        matchers
            .iter()
            .all(|line| line.contains(r#"fault_domain!="""#)),
        "{matchers:?}"
    );
    assert!(text.contains("group_by: [cluster, fault_domain]"));
}

//! Every alert reads series that exist, keeps the rules of `alerts/`, and has a runbook; so has every class.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use railscope_collector::classes::CLASSES;
use railscope_model::metric::Metric;

const HEADINGS: &[&str] = &["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];
/// Paragraphs that every runbook has.
const PARAGRAPHS: [&str; 3] = [
    "**Can wait**",
    "**Keep before you wipe it**",
    "**Hand over to**",
];
/// The rule files.
const RULES: [&str; 3] = [
    "railscope.rules.yml",
    "railscope-recording.rules.yml",
    "railscope-links.rules.yml",
];
/// Alerts whose class and runbook are known only while they fire.
const INCIDENTS: [&str; 2] = ["RailscopeIncidentCritical", "RailscopeIncidentWarning"];

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
    let mut files = RULES.map(str::to_owned).to_vec();
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
            "action:",
            "dashboard_url:",
            "runbook_url:",
        ] {
            // The texts of the other alert about incidents, by a YAML alias.
            if rule.contains("annotations: *incident")
                && !["for:", "keep_firing_for:"].contains(&key)
            {
                continue;
            }
            assert!(
                rule.contains(&format!("\n        {key}"))
                    || rule.contains(&format!("\n          {key}")),
                "{alert}: {key}"
            );
        }
        let summary = rule
            .lines()
            .find(|line| line.trim_start().starts_with("summary:"))
            .unwrap_or_default();
        assert!(
            !summary.contains("$value"),
            "{alert}: values belong into the description"
        );
        let carries = |label: &str| {
            rule.contains(&format!("{label}, ")) || rule.contains(&format!("\n          {label}: "))
        };
        assert!(
            carries("severity") && carries("component"),
            "{alert}: severity and component"
        );
        assert!(
            !rule.contains("severity: '{{"),
            "{alert}: a severity that changes creates another alert: use a separate alert name"
        );
        let silent = format!("alertname: {alert} }}\n");
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(
            alert == "RailscopeWatchdog" || tests.contains(&silent),
            "{alert}: no test that it is silent"
        );
        assert!(tests.contains(&fires), "{alert}: no test that it fires");
    }
}

/// Labels identify an alert; changing data belongs in annotations.
#[test]
fn the_identity_of_an_incident_is_its_cluster_and_component() {
    let rules = rules(&read("railscope.rules.yml"));
    for name in INCIDENTS {
        let (_, rule) = rules.iter().find(|(alert, _)| alert == name).expect(name);
        assert!(
            rule.contains("max by (cluster, component, node) ("),
            "{rule}"
        );
        let labels = rule.split("labels:\n").nth(1).expect("labels");
        let labels = labels.split("annotations:").next().expect("labels").trim();
        assert!(
            ["severity: critical", "severity: warning"].contains(&labels),
            "{labels}"
        );
    }
}

/// The name of the runbook at the end of an alert's `runbook_url`.
fn runbook_of(rule: &str) -> Option<&str> {
    let url = rule
        .lines()
        .find_map(|line| line.trim().strip_prefix("runbook_url: "))?;
    let (_, name) = url.rsplit_once("}}/")?;
    name.split_once(".md").map(|(name, _)| name)
}

#[test]
fn every_class_and_every_alert_has_a_runbook_and_every_runbook_is_somebodys() {
    let mut expected: BTreeSet<_> = CLASSES.iter().map(|class| class.name.to_owned()).collect();
    for (alert, rule) in rules(&read("railscope.rules.yml")) {
        if INCIDENTS.contains(&&*alert) {
            continue;
        }
        let runbook = runbook_of(&rule).unwrap_or_else(|| panic!("{alert}: runbook_url"));
        // The runbook of the equivalent fault class, or one whose title names the alert.
        if !CLASSES.iter().any(|class| class.name == runbook) {
            let text = read(&format!("runbooks/{runbook}.md"));
            let title = text.lines().next().unwrap_or_default();
            assert!(title.contains(&alert), "{alert}: {title}");
            assert!(kebab(&alert).starts_with(runbook), "{alert}: {runbook}");
            expected.insert(runbook.to_owned());
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
        for paragraph in PARAGRAPHS {
            assert!(
                text.contains(&format!("\n{paragraph}: ")),
                "{name}: {paragraph}"
            );
        }
        // The evidence of an incident is the first thing to read.
        let is_of_class = CLASSES.iter().any(|class| class.name == name);
        assert!(
            !is_of_class || text.contains("railscope explain "),
            "{name}: railscope explain"
        );
        let title = text.lines().next().unwrap_or_default();
        let named = title.starts_with(&format!("# {name}: "))
            || title.strip_prefix("# Railscope").is_some_and(|rest| {
                let first = rest.split([':', ',']).next().unwrap_or_default();
                kebab(&format!("Railscope{first}")).starts_with(&name)
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
    let tests = [
        "recording.test.yml",
        "recording-cost.test.yml",
        "tail.test.yml",
    ];
    let tests = tests.map(|name| read(&format!("tests/{name}")));
    for name in recorded(&rules).chain(tests.iter().flat_map(|text| recorded(text))) {
        assert!(unique.contains(name), "{name} is not recorded");
    }
}

#[test]
fn rules_keep_clusters_apart() {
    let rules = read("railscope-recording.rules.yml") + &read("railscope.rules.yml");
    // Templates name the cluster in the selector of their query.
    let lines = rules.lines().filter(|line| !line.contains("{{"));
    let rules = lines.collect::<Vec<_>>().join("\n");
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
    for file in ["alertmanager.example.yml", "receivers.example.yml"] {
        let text = read(file);
        let matchers: Vec<_> = text
            .lines()
            .filter(|line| line.contains("_matchers:"))
            .collect();
        assert_eq!(matchers.len(), 2, "{file}");
        assert!(
            matchers
                .iter()
                .all(|line| line.contains(r#"component!="""#)),
            "{file}: {matchers:?}"
        );
        assert!(text.contains("group_by: [cluster, component]"), "{file}");
    }
}

#[test]
fn addresses_stand_in_one_file() {
    for file in ["railscope.rules.yml", "railscope-recording.rules.yml"] {
        assert!(
            !read(file).contains("://"),
            "{file}: addresses belong into railscope-links.rules.yml"
        );
    }
    let links = read("railscope-links.rules.yml");
    for label in ["collector", "grafana", "runbooks"] {
        assert!(
            links.contains(&format!("          {label}: \"http")),
            "{label}"
        );
    }
}

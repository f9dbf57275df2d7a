//! Every dashboard keeps the rules of Grafana's dashboard-linter and ours, and names only series that exist. Its
//! links are in `dashboard_links.rs`.
//!
//! One of the linter's rules is omitted: matchers on job and instance in every selector. All series of ours
//! begin with `railscope_`, and the variables `cluster` and `node` choose among them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::promql::names;
use railscope_collector::classes::CLASSES;
use railscope_model::metric::{Kind, Metric, Profile, Writer};
use serde_json::Value;

const COLUMNS: u64 = 24;
/// Oldest Grafana that must read the dashboards: 10.4, whose schema is 39.
const SCHEMA: u64 = 39;
/// Series that Prometheus makes itself.
const FOREIGN: &[&str] = &["up", "ALERTS"];
/// Units of Grafana that the dashboards use. A misspelt unit is shown as text behind the number.
const UNITS: &[&str] = &[
    "short",
    "percentunit",
    "s",
    "bps",
    "Bps",
    "cps",
    "reqps",
    "hertz",
    "celsius",
    "dateTimeAsIso",
    "watt",
    "bytes",
    "suffix: GPU-h",
    "suffix: h",
];
/// The series of one level that grows with the cluster: one for each node.
const NODE_LEVELS: &[&str] = &["node", "job_node"];
/// What limits how many series a query returns.
const LIMITS: &[&str] = &["topk", "bottomk", "count", "sum", "quantile"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

/// Name and content of each dashboard.
pub(crate) fn dashboards() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in folder().read_dir().expect("dashboards") {
        let path = entry.expect("entry").path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let json = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.push((
            path.file_name()
                .expect("name")
                .to_string_lossy()
                .into_owned(),
            json,
        ));
    }
    assert!(!found.is_empty());
    found
}

pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Title and content of each panel, without rows.
pub(crate) fn panels(dashboard: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let panels = list(dashboard, "/panels")
        .iter()
        .filter(|panel| text(panel, "/type") != "row");
    panels.map(|panel| (text(panel, "/title"), panel))
}

/// Where it stands and the expression, for each one: panels, annotations, variables. A panel whose series is a
/// variable has one for each choice.
fn expressions(dashboard: &Value) -> Vec<(&str, String)> {
    let choices: Vec<_> = list(dashboard, "/templating/list")
        .iter()
        .filter(|variable| text(variable, "/type") == "custom")
        .flat_map(|variable| {
            list(variable, "/options")
                .iter()
                .map(move |option| (variable, option))
        })
        .map(|(variable, option)| {
            (
                format!("${}{{", text(variable, "/name")),
                format!("{}{{", text(option, "/value")),
            )
        })
        .collect();
    let mut found = Vec::new();
    for (place, expression) in raw_expressions(dashboard) {
        let chosen: Vec<_> = choices
            .iter()
            .filter(|(name, _)| expression.contains(name))
            .collect();
        if chosen.is_empty() {
            found.push((place, expression.to_owned()));
        }
        found.extend(
            chosen
                .iter()
                .map(|(name, value)| (place, expression.replace(name, value))),
        );
    }
    found
}

fn raw_expressions(dashboard: &Value) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (title, panel) in panels(dashboard) {
        found.extend(
            list(panel, "/targets")
                .iter()
                .map(|target| (title, text(target, "/expr"))),
        );
    }
    found.extend(
        list(dashboard, "/annotations/list")
            .iter()
            .map(|a| (text(a, "/name"), text(a, "/expr"))),
    );
    for variable in list(dashboard, "/templating/list")
        .iter()
        .filter(|v| text(v, "/type") == "query")
    {
        found.push((text(variable, "/name"), text(variable, "/query/query")));
    }
    found
}

/// The series of a catalogue's metric. Of a histogram only its parts are series.
fn metric(series: &str) -> Option<&'static Metric> {
    match Metric::by_name(series) {
        Some(metric) => (metric.kind != Kind::Histogram).then_some(metric),
        None => Metric::of_part(series).map(|(metric, _)| metric),
    }
}

/// Whether Prometheus has the series: it scrapes exporters and collectors, and computes the recorded ones.
fn exists(series: &str, recorded: &HashSet<String>) -> bool {
    recorded.contains(series)
        || metric(series).is_some_and(|metric| metric.writer != Writer::Switch)
}

/// Names of recording rules.
fn recorded() -> HashSet<String> {
    let rules = folder().join("../alerts/railscope-recording.rules.yml");
    let text = std::fs::read_to_string(rules).expect("recording rules");
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- record: "));
    names.map(str::to_owned).collect()
}

fn is_series(name: &str) -> bool {
    name.starts_with("railscope_") || name.contains(':') || FOREIGN.contains(&name)
}

/// Whether the series only rises: a counter, or a part of a histogram.
fn rises(series: &str) -> bool {
    Metric::by_name(series).is_some_and(|metric| metric.kind == Kind::Counter)
        || Metric::of_part(series).is_some()
}

#[test]
fn a_dashboard_is_one_that_grafana_10_4_reads_and_nobody_edits_in_place() {
    let mut uids = HashSet::new();
    for (file, dashboard) in dashboards() {
        assert_eq!(dashboard["schemaVersion"], SCHEMA, "{file}");
        assert_eq!(dashboard["editable"], false, "{file}");
        let stem = file.strip_suffix(".json").expect(".json");
        assert_eq!(dashboard["uid"], format!("railscope-{stem}"), "{file}");
        assert!(uids.insert(text(&dashboard, "/uid").to_owned()), "{file}");
        assert!(
            !text(&dashboard, "/title").is_empty() && !text(&dashboard, "/description").is_empty(),
            "{file}"
        );
    }
}

#[test]
fn panels_have_unique_ids_stand_inside_the_grid_and_do_not_overlap() {
    for (file, dashboard) in dashboards() {
        let mut ids = HashSet::new();
        let mut taken = HashSet::new();
        for panel in list(&dashboard, "/panels") {
            let title = text(panel, "/title");
            assert!(
                ids.insert(panel["id"].as_u64().expect("id")),
                "{file}: {title}: id twice"
            );
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect("a number"));
            assert!(
                w > 0 && h > 0 && x + w <= COLUMNS,
                "{file}: {title} stands outside of {COLUMNS} columns"
            );
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(
                    taken.insert(cell),
                    "{file}: {title} covers another panel at {cell:?}"
                );
            }
        }
    }
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    for (file, dashboard) in dashboards() {
        let mut titles = HashSet::new();
        for (title, panel) in panels(&dashboard) {
            assert!(
                !title.is_empty() && titles.insert(title),
                "{file}: {title:?}"
            );
            assert!(
                text(panel, "/description").ends_with('.'),
                "{file}: {title}: no description"
            );
            let unit = text(panel, "/fieldConfig/defaults/unit");
            assert!(UNITS.contains(&unit), "{file}: {title}: unit {unit:?}");
            assert!(
                !list(panel, "/targets").is_empty(),
                "{file}: {title}: no query"
            );
        }
    }
}

#[test]
fn data_comes_from_prometheus_as_the_variable_says() {
    for (file, dashboard) in dashboards() {
        let variables = list(&dashboard, "/templating/list");
        let source = variables
            .iter()
            .find(|variable| text(variable, "/name") == "datasource")
            .expect("variable");
        assert_eq!(
            (text(source, "/type"), text(source, "/query")),
            ("datasource", "prometheus"),
            "{file}"
        );
        for variable in variables
            .iter()
            .filter(|variable| text(variable, "/type") == "query")
        {
            let name = text(variable, "/name");
            assert_eq!(
                variable["refresh"], 2,
                "{file}: {name}: not read anew when the time range changes"
            );
            // .+ would lose all series where the label is only an external one.
            assert_eq!(text(variable, "/allValue"), ".*", "{file}: {name}");
        }
        for (title, panel) in panels(&dashboard) {
            for holder in list(panel, "/targets").iter().chain([panel]) {
                assert_eq!(
                    text(holder, "/datasource/uid"),
                    "${datasource}",
                    "{file}: {title}"
                );
                assert_eq!(
                    text(holder, "/datasource/type"),
                    "prometheus",
                    "{file}: {title}"
                );
            }
        }
    }
}

#[test]
fn rates_span_the_interval_that_grafana_computes_and_counters_are_only_read_through_them() {
    const RATES: &[&str] = &["rate", "increase", "irate"];
    for (file, dashboard) in dashboards() {
        for (place, expression) in expressions(&dashboard) {
            let rates = names(&expression)
                .iter()
                .filter(|name| RATES.contains(&name.text))
                .count();
            assert_eq!(
                rates,
                expression.matches("[$__rate_interval]").count(),
                "{file}: {place}: {expression}"
            );
            for name in names(&expression) {
                let in_rate = name.inside.last().is_some_and(|call| RATES.contains(call));
                assert!(
                    rises(name.text) == in_rate || RATES.contains(&name.text),
                    "{file}: {place}: {}",
                    name.text
                );
            }
        }
    }
}

#[test]
fn every_series_exists_and_every_query_keeps_to_the_chosen_cluster() {
    let recorded = recorded();
    for (file, dashboard) in dashboards() {
        for (place, expression) in expressions(&dashboard) {
            let series: Vec<_> = names(&expression)
                .into_iter()
                .map(|name| name.text)
                .filter(|name| is_series(name))
                .collect();
            assert!(
                !series.is_empty(),
                "{file}: {place}: reads nothing: {expression}"
            );
            for name in &series {
                assert!(
                    FOREIGN.contains(name) || exists(name, &recorded),
                    "{file}: {place}: {name} is neither in the catalogue nor a recording rule"
                );
            }
            let chosen = expression.matches(r#"cluster=~"$cluster""#).count();
            let chooses =
                expression.starts_with("label_values(") && expression.ends_with(", cluster)");
            assert!(
                chosen == series.len() || chooses,
                "{file}: {place}: a selector without cluster: {expression}"
            );
        }
    }
}

#[test]
fn classes_of_incidents_that_a_query_chooses_exist() {
    let mut chosen = 0;
    for (file, dashboard) in dashboards() {
        for (place, expression) in expressions(&dashboard) {
            for matcher in expression.split(r#"{class=~""#).skip(1) {
                let classes = matcher.split('"').next().unwrap_or_default();
                for name in classes.split('|') {
                    chosen += 1;
                    assert!(
                        CLASSES.iter().any(|class| class.name == name),
                        "{file}: {place}: no class {name}"
                    );
                }
            }
        }
    }
    assert!(chosen > 0);
}

/// The matchers of a selector, for each series of the expression.
fn selectors(expression: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for name in names(expression)
        .into_iter()
        .filter(|name| is_series(name.text))
    {
        let after = name.text.as_ptr() as usize - expression.as_ptr() as usize + name.text.len();
        let braces = expression[after..]
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'));
        found.push((name.text, braces.map_or("", |(matchers, _)| matchers)));
    }
    found
}

/// Variables of which exactly one value is chosen.
fn single(dashboard: &Value) -> HashSet<&str> {
    let variables = list(dashboard, "/templating/list").iter();
    let single = variables
        .filter(|variable| text(variable, "/type") == "query" && variable["multi"] == false);
    single.map(|variable| text(variable, "/name")).collect()
}

/// Whether an expression aggregates, and keeps the label `node` nowhere.
fn is_without_nodes(expression: &str) -> bool {
    let mut kept = expression.split(" by (").skip(1);
    let has_node = |rest: &str| {
        let labels = rest.split(')').next().unwrap_or_default();
        labels.split(',').any(|label| label.trim() == "node")
    };
    (expression.contains(" by (") || expression.starts_with("max(")) && !kept.any(has_node)
}

#[test]
fn no_query_reads_every_port_or_gpu_and_no_panel_shows_every_node() {
    for (file, dashboard) in dashboards() {
        let single = single(&dashboard);
        for (place, expression) in expressions(&dashboard) {
            let of_one_node = |matchers: &str| {
                ["node", "incident_node"].iter().any(|name| {
                    single.contains(name) && matchers.contains(&format!(r#"node=~"${name}""#))
                })
            };
            for (series, matchers) in selectors(&expression) {
                let is_big = metric(series).is_some_and(|metric| metric.writer == Writer::Exporter)
                    || series == "railscope_port_topology_info"
                    || series.starts_with("port:railscope_port_topology");
                assert!(
                    !is_big || of_one_node(matchers),
                    "{file}: {place}: {series} of all nodes: take a recording rule"
                );
            }
            for name in names(&expression) {
                let level = name.text.split_once(':').map_or("", |(level, _)| level);
                let is_limited = name.inside.iter().any(|call| LIMITS.contains(call));
                let is_variable = expression.starts_with("label_values(");
                let matchers = selectors(&expression)
                    .into_iter()
                    .find(|(series, _)| *series == name.text);
                assert!(
                    !NODE_LEVELS.contains(&level)
                        || is_limited
                        || is_without_nodes(&expression)
                        || is_variable
                        || expression.contains("topk(")
                        || expression.contains("bottomk(")
                        || of_one_node(matchers.map_or("", |(_, matchers)| matchers)),
                    "{file}: {place}: {} of all nodes, without topk",
                    name.text
                );
            }
        }
    }
}

#[test]
fn a_panel_that_needs_the_full_profile_says_so() {
    let mut full = 0;
    for (file, dashboard) in dashboards() {
        for (title, panel) in panels(&dashboard) {
            let needs = list(panel, "/targets").iter().any(|target| {
                let series = names(text(target, "/expr")).into_iter();
                series
                    .filter_map(|name| metric(name.text))
                    .any(|metric| metric.profile == Profile::Full)
            });
            let says = text(panel, "/description").contains("Full profile only.");
            assert_eq!(needs, says, "{file}: {title}");
            full += usize::from(needs);
        }
    }
    assert!(full > 0);
}

#[test]
fn recorded_names_are_level_metric_operation_and_each_is_read() {
    let mut read = HashSet::new();
    for (_, dashboard) in dashboards() {
        for (_, expression) in expressions(&dashboard) {
            read.extend(
                names(&expression)
                    .into_iter()
                    .map(|name| name.text.to_owned()),
            );
        }
    }
    let rules = ["railscope-recording.rules.yml", "railscope.rules.yml"]
        .map(|name| std::fs::read_to_string(folder().join("../alerts").join(name)).expect("rules"))
        .concat();
    for name in recorded() {
        assert_eq!(name.split(':').count(), 3, "{name}");
        assert!(name.contains(":railscope_"), "{name}");
        let in_rules = rules.matches(&name).count() > 1;
        assert!(read.contains(&name) || in_rules, "{name}: nothing reads it");
    }
}

//! Every dashboard keeps the rules of Grafana's dashboard-linter and ours, and names only series that exist.
//!
//! Of the linter's rules one is left out: matchers on job and instance in every selector. All series of ours
//! begin with `railscope_`, and the variables `cluster` and `node` choose among them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::promql::names;
use railscope_collector::classes::CLASSES;
use railscope_model::metric::{Kind, Metric};
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
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

/// Name and content of each dashboard.
fn dashboards() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in folder().read_dir().expect("dashboards") {
        let path = entry.expect("entry").path();
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

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Title and content of each panel, rows left out.
fn panels(dashboard: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let panels = list(dashboard, "/panels")
        .iter()
        .filter(|panel| text(panel, "/type") != "row");
    panels.map(|panel| (text(panel, "/title"), panel))
}

/// Where it stands and the expression, for each one: panels, annotations, variables.
fn expressions(dashboard: &Value) -> Vec<(&str, &str)> {
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

/// Whether the catalogue has the series. Of a histogram only its parts are series.
fn exists(series: &str) -> bool {
    match Metric::by_name(series) {
        Some(metric) => metric.kind != Kind::Histogram,
        None => Metric::of_part(series).is_some(),
    }
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
            let rates = names(expression)
                .iter()
                .filter(|name| RATES.contains(&name.text))
                .count();
            assert_eq!(
                rates,
                expression.matches("[$__rate_interval]").count(),
                "{file}: {place}: {expression}"
            );
            for name in names(expression) {
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
    for (file, dashboard) in dashboards() {
        for (place, expression) in expressions(&dashboard) {
            let series: Vec<_> = names(expression)
                .into_iter()
                .map(|name| name.text)
                .filter(|name| name.starts_with("railscope_") || FOREIGN.contains(name))
                .collect();
            assert!(
                !series.is_empty(),
                "{file}: {place}: reads nothing: {expression}"
            );
            for name in &series {
                assert!(
                    FOREIGN.contains(name) || exists(name),
                    "{file}: {place}: {name} is not in the catalogue"
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

#[test]
fn links_to_dashboards_lead_somewhere() {
    let dashboards = dashboards();
    let uids: Vec<_> = dashboards
        .iter()
        .map(|(_, dashboard)| text(dashboard, "/uid"))
        .collect();
    for (file, dashboard) in &dashboards {
        for link in dashboard.to_string().split("\"/d/").skip(1) {
            let uid = link.split(['?', '"', '/']).next().unwrap_or_default();
            assert!(uids.contains(&uid), "{file}: a link to {uid}");
        }
    }
}

//! What Grafana's dashboard-linter asks of a dashboard and a test can state, and what it cannot see: references that
//! lead nowhere. Rules that need the catalogue of metrics are in `tests/dashboards.rs` of the repository.

use std::collections::BTreeSet;

use railscope_dashboards::files;
use serde_json::{Value, json};

/// Variables of Grafana's own.
const BUILT_IN: &[&str] = &[
    "__all",
    "__rate_interval",
    "__range",
    "__data",
    "__field",
    "__value",
    "__url_time_range",
];
/// Labels that name something of one cluster: their value is a variable, never written down.
const NAMES: &[&str] = &["cluster", "node", "leaf", "su", "instance", "hpc_job"];

fn dashboards() -> Vec<(String, Value)> {
    let all = files().into_iter();
    let all = all.filter(|(path, _)| path.ends_with(".json"));
    all.map(|(path, text)| {
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        (path, json)
    })
    .collect()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// Calls `see` with every value and its key, depth first.
fn walk(key: &str, value: &Value, see: &mut impl FnMut(&str, &Value)) {
    see(key, value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| walk(key, value, see)),
        Value::Array(all) => all.iter().for_each(|value| walk(key, value, see)),
        _ => {}
    }
}

/// Names after `$` or `${` in a text; `$1` is a group of a regular expression.
fn variables(text: &str) -> Vec<&str> {
    let uses = text
        .split('$')
        .skip(1)
        .map(|rest| rest.trim_start_matches('{'));
    let names = uses.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names
        .filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty())
        .collect()
}

#[test]
fn every_data_source_is_the_variable() {
    for (path, dashboard) in dashboards() {
        walk("", &dashboard, &mut |key, value| {
            if key == "datasource" && value.is_object() {
                let wanted = json!({ "type": "prometheus", "uid": "${datasource}" });
                assert_eq!(*value, wanted, "{path}");
            }
        });
        let annotations = list(&dashboard, "/annotations/list").iter();
        let variables = list(&dashboard, "/templating/list").iter();
        let asking = variables.filter(|variable| variable["type"] == "query");
        for holder in annotations.chain(asking) {
            assert!(
                holder["datasource"].is_object(),
                "{path}: {}",
                holder["name"]
            );
        }
    }
}

#[test]
fn every_variable_that_is_used_is_declared_and_every_declared_one_is_used() {
    for (path, dashboard) in dashboards() {
        let declared = list(&dashboard, "/templating/list").iter();
        let declared: BTreeSet<_> = declared.map(|variable| text(variable, "/name")).collect();
        let mut used = BTreeSet::new();
        walk("", &dashboard, &mut |key, value| {
            // The regular expression of a variable, and the patterns of overrides, end with "$".
            if let (Some(text), false) = (value.as_str(), ["regex", "options"].contains(&key)) {
                used.extend(variables(text).into_iter().map(str::to_owned));
            }
        });
        let unknown: Vec<_> = used
            .iter()
            .filter(|name| !declared.contains(name.as_str()) && !BUILT_IN.contains(&name.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
        let idle: Vec<_> = declared
            .iter()
            .filter(|name| !used.contains(**name))
            .collect();
        assert!(idle.is_empty(), "{path}: nothing reads {idle:?}");
    }
}

#[test]
fn no_query_names_a_cluster_a_node_or_a_job() {
    for (path, dashboard) in dashboards() {
        walk("", &dashboard, &mut |key, value| {
            let (true, Some(query)) = (["expr", "definition"].contains(&key), value.as_str())
            else {
                return;
            };
            for name in NAMES {
                for operator in ["=", "=~", "!~"] {
                    let [first, later] =
                        ["{", " "].map(|before| format!("{before}{name}{operator}\""));
                    let uses = query
                        .split(&first)
                        .skip(1)
                        .chain(query.split(&later).skip(1));
                    for rest in uses {
                        assert!(
                            rest.starts_with('$'),
                            "{path}: {name}{operator}\"{rest:.20}"
                        );
                    }
                }
            }
        });
    }
}

#[test]
fn queries_of_a_panel_have_names_of_their_own() {
    for (path, dashboard) in dashboards() {
        for panel in list(&dashboard, "/panels") {
            let names = list(panel, "/targets")
                .iter()
                .map(|target| text(target, "/refId"));
            let mut known = BTreeSet::new();
            let twice: Vec<_> = names
                .filter(|name| name.is_empty() || !known.insert(*name))
                .collect();
            assert!(twice.is_empty(), "{path}: {}: {twice:?}", panel["title"]);
        }
    }
}

#[test]
fn columns_are_labels_or_values_of_the_queries() {
    for (path, dashboard) in dashboards() {
        for panel in list(&dashboard, "/panels") {
            let queries: Vec<_> = list(panel, "/targets")
                .iter()
                .map(|target| text(target, "/expr"))
                .collect();
            let is_matrix = list(panel, "/transformations")
                .iter()
                .any(|step| step["id"] == "groupingToMatrix");
            let fields = list(panel, "/fieldConfig/overrides").iter();
            let fields = fields.filter(|field| field["matcher"]["id"] == "byName");
            for field in fields.map(|field| text(field, "/matcher/options")) {
                let is_value = match field.strip_prefix("Value #") {
                    Some(name) => list(panel, "/targets")
                        .iter()
                        .any(|target| target["refId"] == name),
                    None => field == "Value" && queries.len() == 1,
                };
                let is_label = queries.iter().any(|query| query.contains(field));
                assert!(
                    is_matrix || is_value || is_label,
                    "{path}: {}: no {field}",
                    panel["title"]
                );
            }
        }
    }
}

#[test]
fn thresholds_begin_below_everything_and_rise() {
    let mut count = 0;
    for (path, dashboard) in dashboards() {
        walk("", &dashboard, &mut |key, value| {
            if key == "steps" && value.is_array() {
                let steps = list(value, "");
                let values: Vec<_> = steps.iter().map(|step| step["value"].as_f64()).collect();
                assert!(
                    values.first().is_some_and(Option::is_none),
                    "{path}: {value}"
                );
                assert!(
                    values.is_sorted_by(|low, high| low < high),
                    "{path}: {value}"
                );
                count += 1;
            }
        });
    }
    assert!(count > 50, "{count}");
}

#[test]
fn names_of_variables_are_found_in_texts() {
    let found = variables("${a:queryparam}&var-b=${__data.fields.c} $d{x} \"$1\" ^e$");
    assert_eq!(found, ["a", "__data", "d"]);
}

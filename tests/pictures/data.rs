//! Prometheus' results for the queries of a dashboard, sent as by Grafana.

use std::collections::BTreeMap;

use serde_json::Value;

use super::look::{escaped, list, text};
use crate::support::encoded;

/// One series: an instant result has one point.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curve {
    pub(crate) labels: BTreeMap<String, String>,
    /// Seconds and value.
    pub(crate) points: Vec<(f64, f64)>,
    /// Seconds between two points.
    pub(crate) step: f64,
}

impl Curve {
    /// The last value that is a number.
    pub(crate) fn last(&self) -> Option<f64> {
        let values = self.points.iter().rev().map(|(_, value)| *value);
        values.into_iter().find(|value| value.is_finite())
    }

    /// Its name by a format such as `rail {{rail}}`; without one, its labels.
    pub(crate) fn name(&self, format: &str) -> String {
        if format.is_empty() {
            let labels = self
                .labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{value}\""));
            return labels.collect::<Vec<_>>().join(", ");
        }
        let mut name = format.to_owned();
        for (label, value) in &self.labels {
            name = name.replace(&format!("{{{{{label}}}}}"), value);
        }
        // A label that is not there is empty.
        while let Some((before, rest)) = name.split_once("{{") {
            name = format!(
                "{before}{}",
                rest.split_once("}}").map_or("", |(_, after)| after)
            );
        }
        name
    }
}

/// The source of results, and the time range.
pub(crate) struct Prometheus<'a> {
    /// Returns the response of an API path, such as `/api/v1/query?query=up`.
    pub(crate) ask: &'a dyn Fn(&str) -> Result<Value, String>,
    /// Unix seconds.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Scrape interval, as configured in Grafana's data source, seconds.
    pub(crate) interval: f64,
}

impl Prometheus<'_> {
    /// The series of a query of a panel that is so many pixels wide.
    pub(crate) fn curves(
        &self,
        target: &Value,
        variables: &Variables,
        width: f64,
    ) -> Result<Vec<Curve>, String> {
        let shortest = seconds(text(target, "/interval")).unwrap_or(self.interval);
        let step = ((self.to - self.from) / width).max(shortest).ceil();
        let rates = (step + self.interval).max(4.0 * self.interval);
        let query = variables.put_into(text(target, "/expr"));
        let query = query.replace("$__rate_interval", &format!("{rates}s"));
        let query = query.replace("$__range", &format!("{}s", (self.to - self.from).ceil()));
        let query = encoded(&query);
        if target["instant"] == true {
            return self.answer(
                &format!("/api/v1/query?query={query}&time={}", self.to),
                step,
            );
        }
        // Grafana's points are at multiples of the step.
        let [from, to] = [self.from, self.to].map(|time| (time / step).floor() * step);
        let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step={step}");
        self.answer(&path, step)
    }

    fn answer(&self, path: &str, step: f64) -> Result<Vec<Curve>, String> {
        let answer = (self.ask)(path)?;
        let series = list(&answer, "/data/result").iter();
        Ok(series.map(|series| curve(series, step)).collect())
    }

    /// Values of a variable's query, `label_values(SELECTOR, LABEL)`, each as the regular expression leaves it.
    fn values(&self, definition: &str, regex: &str) -> Result<Vec<String>, String> {
        let inner = definition
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'));
        let Some((selector, label)) = inner.and_then(|inner| inner.rsplit_once(", ")) else {
            return Err(format!("{definition}: not label_values(SELECTOR, LABEL)"));
        };
        let regex = regex
            .trim_matches('/')
            .replace("\\/", "/")
            .replace('\\', "\\\\");
        let kept = if regex.is_empty() {
            String::from("(.*)")
        } else {
            format!("{regex}.*")
        };
        let range = (self.to - self.from).ceil();
        let query = format!(
            r#"group by (kept) (label_replace(last_over_time({selector}[{range}s]), "kept", "$1", "{label}", "{kept}"))"#
        );
        let path = format!("/api/v1/query?query={}&time={}", encoded(&query), self.to);
        let curves = self.answer(&path, 0.0)?;
        let mut values: Vec<_> = curves
            .into_iter()
            .filter_map(|mut curve| curve.labels.remove("kept"))
            .collect();
        values.sort();
        Ok(values)
    }
}

fn curve(series: &Value, step: f64) -> Curve {
    let labels = series["metric"].as_object().into_iter().flatten();
    let labels =
        labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let points = match series.get("value") {
        Some(one) => std::slice::from_ref(one),
        None => list(series, "/values"),
    };
    let points = points.iter().filter_map(|point| {
        let value = point[1].as_str()?.parse().ok()?;
        Some((point[0].as_f64()?, value))
    });
    Curve {
        labels: labels.collect(),
        points: points.collect(),
        step,
    }
}

/// Seconds of a length such as `60s` or `1d`.
fn seconds(length: &str) -> Option<f64> {
    let unit = length.chars().last()?;
    let number: f64 = length.strip_suffix(unit)?.parse().ok()?;
    let unit = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86_400.0,
        'w' => 604_800.0,
        _ => return None,
    };
    Some(number * unit)
}

/// What is chosen of one variable.
#[derive(Debug, Clone)]
struct Choice {
    /// As used in queries.
    value: String,
    shown: String,
    /// All that could be chosen.
    values: Vec<String>,
}

/// What is chosen at the top of a dashboard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables(BTreeMap<String, Choice>);

impl Variables {
    #[cfg(test)]
    pub(crate) fn of(name: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|value| String::from(*value)).collect();
        let choice = Choice {
            value: String::from(".*"),
            shown: String::from("All"),
            values,
        };
        Self(BTreeMap::from([(name.to_owned(), choice)]))
    }

    /// The same with one value of one variable.
    pub(crate) fn with(&self, (name, value): (String, String)) -> Self {
        let mut all = self.clone();
        let choice = Choice {
            value: value.clone(),
            shown: value,
            values: Vec::new(),
        };
        all.0.insert(name, choice);
        all
    }

    pub(crate) fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], |choice| &choice.values)
    }

    /// The query with values in place of variables.
    pub(crate) fn put_into(&self, query: &str) -> String {
        self.put(query, |choice| &choice.value)
    }

    /// The same for readers.
    pub(crate) fn put_into_title(&self, title: &str) -> String {
        self.put(title, |choice| &choice.shown)
    }

    fn put(&self, text: &str, part: impl Fn(&Choice) -> &str) -> String {
        let mut names: Vec<_> = self.0.keys().collect();
        // $incident is the beginning of $incident_node.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let mut text = text.to_owned();
        for name in names {
            text = text.replace(&format!("${name}"), part(&self.0[name]));
        }
        text
    }

    /// The line at the top that shows what is chosen.
    pub(crate) fn shown(&self, dashboard: &Value) -> String {
        let variables = list(dashboard, "/templating/list").iter();
        let visible = variables.filter(|variable| variable["hide"] != 2);
        let shown = visible.filter_map(|variable| {
            let choice = self.0.get(text(variable, "/name"))?;
            let label = escaped(text(variable, "/label"));
            Some(format!(
                "<span>{label}</span> <b>{}</b>",
                escaped(&choice.shown)
            ))
        });
        shown.collect::<Vec<_>>().join(" &nbsp; ")
    }
}

/// The values of all variables of a dashboard.
pub(crate) fn chosen(
    dashboard: &Value,
    prometheus: &Prometheus<'_>,
    set: &[(&str, &str)],
    errors: &mut Vec<String>,
) -> Variables {
    let mut variables = Variables::default();
    for variable in list(dashboard, "/templating/list") {
        let name = text(variable, "/name");
        let values = match text(variable, "/type") {
            "query" => {
                let definition = variables.put_into(text(variable, "/definition"));
                let found = prometheus.values(&definition, text(variable, "/regex"));
                found.unwrap_or_else(|error| {
                    errors.push(error);
                    Vec::new()
                })
            }
            _ => Vec::new(),
        };
        let set = set.iter().find(|(wanted, _)| *wanted == name);
        let (value, shown) = match (set, text(variable, "/type")) {
            (Some((_, value)), _) => (String::from(*value), String::from(*value)),
            (None, "query") if variable["multi"] == true => {
                (String::from(".*"), String::from("All"))
            }
            (None, "custom") => ["/current/value", "/current/text"]
                .map(|place| text(variable, place).to_owned())
                .into(),
            (None, "datasource") => [String::from("Prometheus"), String::from("Prometheus")].into(),
            (None, _) => {
                let first = values.first().cloned().unwrap_or_default();
                (first.clone(), first)
            }
        };
        variables.0.insert(
            name.to_owned(),
            Choice {
                value,
                shown,
                values,
            },
        );
    }
    variables
}

#[test]
fn a_legend_is_made_of_labels() {
    let labels = [("rail", "3"), ("leaf", "a")].map(|(name, value)| (name.into(), value.into()));
    let curve = Curve {
        labels: labels.into(),
        ..Curve::default()
    };
    assert_eq!(curve.name("rail {{rail}}{{none}}!"), "rail 3!");
    assert_eq!(curve.name(""), r#"leaf="a", rail="3""#);
}

#[test]
fn queries_hold_values_and_whole_steps() {
    let asked = std::cell::RefCell::new(Vec::new());
    let prometheus = Prometheus {
        ask: &|path| {
            asked.borrow_mut().push(path.to_owned());
            Ok(
                serde_json::json!({ "data": { "result": [{ "metric": { "a": "b" }, "values": [[40.0, "1.5"], [60.0, "NaN"]] }] } }),
            )
        },
        from: 47.0,
        to: 1047.0,
        interval: 5.0,
    };
    let target =
        serde_json::json!({ "expr": "rate(x{n=~\"$node\", m=~\"$node_b\"}[$__rate_interval])" });
    let variables = Variables::of("node", &[]).with((String::from("node_b"), String::from("c")));
    let curves = prometheus
        .curves(&target, &variables, 50.0)
        .expect("an answer");
    let query = encoded(r#"rate(x{n=~".*", m=~"c"}[25s])"#);
    assert_eq!(
        *asked.borrow(),
        [format!(
            "/api/v1/query_range?query={query}&start=40&end=1040&step=20"
        )]
    );
    assert_eq!(
        (curves.len(), curves[0].points.len(), curves[0].last()),
        (1, 2, Some(1.5))
    );
    assert_eq!(
        ["60s", "1d", "", "x"].map(seconds),
        [Some(60.0), Some(86_400.0), None, None]
    );
}

//! `/api/v1/detectors`: what every detector checks, with its parameters; also used by the command line.

use axum::Json;
use axum::extract::{Path, State as Shared};
use serde::Serialize;

use super::params::{Nothing, Params, Refusal};
use crate::classes::CLASSES;
use crate::detect::registry::{Described, describe};
use crate::serve::router::{App, runbook};

/// The response.
#[derive(Debug, Serialize)]
pub struct Detectors {
    /// In the order in which they run, then the root cause.
    pub detectors: Vec<Detector>,
}

/// A detector.
#[derive(Debug, Serialize)]
pub struct Detector {
    /// Its name.
    pub name: &'static str,
    /// What it can report.
    pub rules: Vec<Rule>,
}

/// A class that a detector names.
#[derive(Debug, Serialize)]
pub struct Rule {
    /// The class, as in alerts and incidents.
    pub class: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// How bad it is usually.
    pub severity: &'static str,
    /// The signal that it rests on, where a detector has several rules of one class.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub signal: &'static str,
    /// What is checked.
    pub check: &'static str,
    /// The threshold as text.
    pub threshold: String,
    /// The parameters, each with its unit and source; none for a state that is reported.
    pub thresholds: Vec<Threshold>,
    /// What would clear it.
    pub clears: &'static str,
    /// What to do.
    pub action: &'static str,
    /// Address of the runbook.
    pub runbook: String,
}

/// A threshold of a detector.
#[derive(Debug, Serialize)]
pub struct Threshold {
    /// What it limits.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit: `s`, `1/s`, `ratio`, `times`, or of what it is a count.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

impl Rule {
    fn of(described: Described, pattern: &str) -> Self {
        let Described {
            rule, explanation, ..
        } = described;
        let thresholds = rule.thresholds.into_iter();
        Self {
            class: rule.class.name,
            title: rule.class.title,
            severity: rule.class.severity.as_str(),
            signal: rule.signal,
            check: explanation.check,
            threshold: explanation.threshold,
            thresholds: thresholds
                .map(|one| Threshold {
                    what: one.what,
                    value: one.value,
                    unit: one.unit,
                    source: one.source,
                })
                .collect(),
            clears: explanation.clears,
            action: rule.class.action,
            runbook: runbook(pattern, rule.class.name),
        }
    }
}

impl Detectors {
    /// All detectors; with a name, that detector or those that emit the class of this name. `pattern` is the address of a
    /// runbook, in which `{class}` is replaced by the class.
    ///
    /// # Errors
    /// What was expected, if the name is neither a detector nor a class.
    pub fn of(name: Option<&str>, pattern: &str) -> Result<Self, String> {
        let all = describe();
        let expected = || {
            let mut names: Vec<&str> = all.iter().map(|one| one.detector).collect();
            names.dedup();
            let classes: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
            format!(
                "a detector ({}) or a class ({})",
                names.join(", "),
                classes.join(", ")
            )
        };
        let is_wanted = |one: &Described| {
            name.is_none_or(|name| [one.detector, one.rule.class.name].contains(&name))
        };
        if !all.iter().any(is_wanted) {
            return Err(expected());
        }
        let mut detectors: Vec<Detector> = Vec::new();
        for one in all.into_iter().filter(is_wanted) {
            let name = one.detector;
            let rule = Rule::of(one, pattern);
            match detectors.last_mut().filter(|last| last.name == name) {
                Some(last) => last.rules.push(rule),
                None => detectors.push(Detector {
                    name,
                    rules: vec![rule],
                }),
            }
        }
        Ok(Self { detectors })
    }
}

pub(crate) async fn list(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<Detectors>, Refusal> {
    answer(None, &state.runbook)
}

pub(crate) async fn one(
    Shared(state): App,
    Path(name): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Detectors>, Refusal> {
    answer(Some(&name), &state.runbook)
}

fn answer(name: Option<&str>, pattern: &str) -> Result<Json<Detectors>, Refusal> {
    let none = |_| {
        Refusal::not_found(
            "detector or class",
            name.unwrap_or_default(),
            "/api/v1/detectors",
        )
    };
    Detectors::of(name, pattern).map(Json).map_err(none)
}

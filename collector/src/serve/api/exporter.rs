//! An exporter and how it was last reached, as the API shows it.

use railscope_model::fabric::Timestamp;
use serde::Serialize;

use crate::config;
use crate::status::{ScrapeResult, TargetState};

/// How a node's exporter was last reached.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    /// Its kind, as in the configuration.
    exporter: String,
    url: String,
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Target {
    pub(crate) fn of(target: &config::Target, state: &TargetState, now: Timestamp) -> Self {
        Self {
            exporter: state.exporter(target).to_owned(),
            url: target.url.clone(),
            up: state.up,
            last: state.last.map(ScrapeResult::as_str),
            age_seconds: state.last_ok.map(|at| now.seconds_since(at)),
            problem: state.problem.clone(),
        }
    }
}

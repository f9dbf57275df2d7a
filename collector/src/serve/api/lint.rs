//! `/api/v1/topology/lint`: what is wrong with the wiring.

use axum::Json;
use axum::extract::State as Shared;
use serde::Serialize;

use super::params::{Page, Params, Refusal};
use crate::clock::unix_seconds;
use crate::fabric::lint::Finding;
use crate::serve::router::{App, snapshot};
use crate::serve::wire::Listed;

/// The response.
#[derive(Debug, Serialize)]
pub(crate) struct Lint {
    cluster: String,
    /// Unix time of the tick.
    at: f64,
    /// Whether a wiring plan reports what should be.
    has_plan: bool,
    findings: Listed<LintFinding>,
}

/// One finding.
#[derive(Debug, Serialize)]
struct LintFinding {
    rule: &'static str,
    severity: &'static str,
    /// The first is where to go.
    parts: Vec<String>,
    sentence: String,
    evidence: Vec<String>,
    action: &'static str,
}

impl LintFinding {
    fn of(finding: &Finding) -> Self {
        Self {
            rule: finding.rule.name,
            severity: finding.rule.severity.word(),
            parts: finding.parts.iter().map(ToString::to_string).collect(),
            sentence: finding.sentence.clone(),
            evidence: finding.evidence.clone(),
            action: finding.rule.action,
        }
    }
}

pub(crate) async fn lint(
    Shared(state): App,
    Params(page): Params<Page>,
) -> Result<Json<Lint>, Refusal> {
    let snapshot = snapshot(&state)?;
    Ok(Json(Lint {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        has_plan: state.has_plan,
        findings: Listed::of(snapshot.view.lint.iter(), page.limit(), LintFinding::of),
    }))
}

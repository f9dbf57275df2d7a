//! `/api/v1/topology/diff`: what is otherwise at one time than at another, out of the log of changes.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::params::{Expected, Limit, Params, Refusal};
use crate::clock::{inside, unix_seconds};
use crate::maintenance::moment;
use crate::serve::api::structure::Changed;
use crate::serve::router::{App, snapshot};
use crate::serve::wire::Listed;

/// `from`, `to` and `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Span {
    from: String,
    to: Option<String>,
    #[serde(default)]
    limit: Limit,
}

impl Expected for Span {
    const EXPECTED: &'static str = "from=TIME, to=TIME or nothing for now, and limit=N with N from 1 to 20000; a TIME is 2026-11-22T05:00:00Z or seconds of Unix time";
}

/// The response.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    cluster: String,
    /// Unix time.
    from: f64,
    to: f64,
    differences: Listed<Changed>,
}

pub(crate) async fn diff(
    Shared(state): App,
    Params(asked): Params<Span>,
) -> Result<Json<Difference>, Refusal> {
    let snapshot = snapshot(&state)?;
    let refuse = |field: &str, error: String| {
        let expected = Span::EXPECTED.to_owned();
        Refusal::new(
            StatusCode::BAD_REQUEST,
            format!("query: {field}: {error}"),
            expected,
        )
    };
    let now = snapshot.view.now;
    let from = moment(&asked.from).map(inside);
    let from = from.map_err(|error| refuse("from", error))?;
    let to = match &asked.to {
        Some(to) => moment(to)
            .map(inside)
            .map_err(|error| refuse("to", error))?,
        None => now,
    };
    if to < from {
        return Err(refuse("to", String::from("it is before from")));
    }
    let log = &snapshot.view.changes;
    if let Some(kept) = log.kept_since().filter(|kept| from < *kept) {
        return Err(Refusal::new(
            StatusCode::GONE,
            format!("changes before {} are no longer stored", unix_seconds(kept)),
            String::from("a from that is not before that"),
        ));
    }
    let differences = log.between(from, to);
    Ok(Json(Difference {
        cluster: state.cluster.clone(),
        from: unix_seconds(from),
        to: unix_seconds(to),
        differences: Listed::of(differences.iter(), asked.limit.get(), |change| {
            Changed::of(to, change)
        }),
    }))
}

//! `/api/v1/maintenance`: maintenance windows, readable by all and announced with the token.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;

use super::params::{Nothing, Params, Refusal};
use super::token;
use crate::clock;
use crate::maintenance::{MOST, RawWindow, WindowWire, moved};
use crate::serve::router::{App, snapshot};
use crate::status::State;

/// `/api/v1/maintenance`
#[derive(Debug, Serialize)]
pub(crate) struct Maintenance {
    cluster: String,
    at: f64,
    windows: Vec<WindowWire>,
}

pub(crate) async fn list(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<Maintenance>, Refusal> {
    let snapshot = snapshot(&state)?;
    let now = clock::shown(snapshot.view.now);
    let windows = snapshot.view.maintenance.iter();
    Ok(Json(Maintenance {
        cluster: state.cluster.clone(),
        at: now.as_seconds(),
        windows: windows
            .map(|window| WindowWire::of(&moved(window, clock::shown), now))
            .collect(),
    }))
}

pub(crate) async fn announce(
    Shared(state): App,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<WindowWire>), Refusal> {
    authorise(&state, &headers)?;
    let wrong = |error: String| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            error,
            String::from(
                "{\"parts\": [\"host/n7\"], \"until\": \"2026-11-22T05:00:00Z\"}, and from and why if you like",
            ),
        )
    };
    let raw: RawWindow =
        serde_json::from_slice(&body).map_err(|error| wrong(format!("body: {error}")))?;
    let now = clock::shown(state.now());
    let window = Arc::new(raw.check(now).map_err(wrong)?);
    let shown = WindowWire::of(&window, now);
    let mut posted = state.posted();
    posted.retain(|other| !other.is_over(now) && *other != window);
    if posted.len() >= MOST {
        return Err(Refusal::new(
            StatusCode::INSUFFICIENT_STORAGE,
            format!("{} windows are announced already", posted.len()),
            format!("at most {MOST} at a time"),
        ));
    }
    posted.push(window);
    Ok((StatusCode::CREATED, Json(shown)))
}

pub(crate) async fn withdraw(
    Shared(state): App,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    authorise(&state, &headers)?;
    let mut posted = state.posted();
    let before = posted.len();
    posted.retain(|window| window.id() != id);
    if posted.len() == before {
        return Err(Refusal::not_found(
            "window that was announced here",
            &id,
            "/api/v1/maintenance",
        ));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Clients with the token may add windows; without a configured token, none may.
fn authorise(state: &State, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = &state.maintenance_token else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            String::from("announcing work over the API is off"),
            String::from("web.maintenance_token_file in the collector's configuration"),
        ));
    };
    token::check(headers, token, "web.maintenance_token_file")
}

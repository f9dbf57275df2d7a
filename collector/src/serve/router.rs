//! The collector's HTTP side: JSON API, web page, metrics and service discovery, all read from one snapshot.

use crate::serve::api::detectors;
use crate::serve::api::export;
use crate::serve::api::jobs;
use crate::serve::api::lint;
use crate::serve::api::listings as json;
use crate::serve::api::maintenance;
use crate::serve::api::otlp;
use crate::serve::api::plan_diff as difference;
use crate::serve::api::probes;
use crate::serve::api::push::MOST_BODY_BYTES;
use crate::serve::api::remote_write;
use crate::serve::api::structure as shape;
use crate::serve::api::tails;
use crate::serve::metrics;
use crate::serve::phrases::span;
use crate::serve::web as page;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};

use crate::serve::api::params::Refusal;
use crate::status::{Snapshot, State};

/// What every handler gets.
pub(crate) type App = Shared<Arc<State>>;

const ROUTES: &str = "/, /incidents/{id}, /metrics, /api/v1/{incidents, incidents/{id}, maintenance, fabric, topology, topology/{structure, paths, traffic, changes, diff, lint, export}, detectors, detectors/{name}, jobs, jobs/{name}, nodes, nodes/{node}, probes, sd, write}, /v1/metrics, /-/healthy or /-/ready";

/// All routes of the collector.
pub fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(page::overview))
        .route("/incidents/{id}", get(page::incident))
        .route("/tail", get(page::tail))
        .route("/assets/page.css", get(page::style))
        .route("/assets/page.js", get(page::script))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/incidents", get(json::incidents))
        .route("/api/v1/incidents/{id}", get(json::incident))
        .route(
            "/api/v1/maintenance",
            get(maintenance::list).post(maintenance::announce),
        )
        .route("/api/v1/maintenance/{id}", delete(maintenance::withdraw))
        .route("/api/v1/fabric", get(json::fabric))
        .route("/api/v1/topology", get(json::topology))
        .route("/api/v1/topology/lint", get(lint::lint))
        .route("/api/v1/topology/structure", get(shape::structure))
        .route("/api/v1/topology/paths", get(shape::paths))
        .route("/api/v1/topology/traffic", get(shape::traffic))
        .route("/api/v1/topology/changes", get(shape::changes))
        .route("/api/v1/topology/diff", get(difference::diff))
        .route("/api/v1/topology/export", get(export::export))
        .route("/api/v1/detectors", get(detectors::list))
        .route("/api/v1/detectors/{name}", get(detectors::one))
        .route("/api/v1/jobs", get(jobs::list))
        .route("/api/v1/jobs/{*name}", get(jobs::one))
        .route("/api/v1/nodes", get(json::nodes))
        .route("/api/v1/nodes/{node}", get(json::node))
        .route("/api/v1/probes", get(probes::list))
        .route("/api/v1/tail", get(tails::tails))
        .route("/api/v1/sd", get(json::service_discovery))
        .route(
            "/api/v1/write",
            post(remote_write::write).layer(DefaultBodyLimit::max(MOST_BODY_BYTES)),
        )
        .route(
            "/v1/metrics",
            post(otlp::http).layer(DefaultBodyLimit::max(MOST_BODY_BYTES)),
        )
        .route(
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            post(otlp::grpc),
        )
        .route(
            "/-/healthy",
            get(|| async { "Railscope collector is healthy.\n" }),
        )
        .route("/-/ready", get(ready))
        .fallback(not_found)
        .with_state(state)
}

async fn ready(Shared(state): App) -> Response {
    if state.snapshot().is_none() {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not ready: the first analysis has not ended.\n",
        )
            .into_response()
    } else if !state.targets().known {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not ready: not every file of targets has been read.\n",
        )
            .into_response()
    } else if let Some(age) = state.analysis_late() {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "Not ready: the last analysis began {} ago, expected every {}.\n",
                span(age),
                span(state.analysis_interval.as_secs_f64())
            ),
        )
            .into_response()
    } else {
        "Railscope collector is ready.\n".into_response()
    }
}

async fn not_found(uri: Uri, headers: HeaderMap) -> Response {
    let content = headers.get(header::CONTENT_TYPE);
    if content.is_some_and(|content| content.as_bytes().starts_with(b"application/grpc")) {
        let why = format!("no method {}", uri.path());
        return tonic::Status::unimplemented(why).into_http();
    }
    let refusal = Refusal::new(
        StatusCode::NOT_FOUND,
        format!("no page {:?}", uri.path()),
        format!("one of {ROUTES}"),
    );
    refusal.into_response()
}

/// The newest snapshot, or the response that there is none yet.
pub(crate) fn snapshot(state: &State) -> Result<Arc<Snapshot>, Refusal> {
    state.snapshot().ok_or_else(|| {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            String::from("the first analysis has not ended"),
            String::from("a try again in a few seconds; /-/ready shows when"),
        )
    })
}

/// The address of a class' runbook.
pub(crate) fn runbook(pattern: &str, class: &str) -> String {
    pattern.replace("{class}", class)
}

#[cfg(test)]
mod tests;

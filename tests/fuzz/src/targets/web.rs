//! Requests to the collector's API.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use railscope_collector::api::router;
use railscope_collector::config::Config;
use railscope_collector::core::analyzer::Analyzer;
use railscope_collector::state::{Snapshot, State};
use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_model::fabric::Timestamp;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

/// A small fabric: hosts `gpu-01` and more on four rails.
pub(crate) const FABRIC: &str = include_str!("../../../fabrics/rail-2tier.ibnetdiscover");

/// When everything is read.
pub(crate) const NOW: Timestamp = Timestamp(1_754_493_083_000);

fn now() -> Timestamp {
    NOW
}

/// A collector that knows a small fabric.
fn collector() -> &'static (Runtime, Router) {
    static COLLECTOR: OnceLock<(Runtime, Router)> = OnceLock::new();
    COLLECTOR.get_or_init(|| {
        let mut analyzer = Analyzer::default();
        analyzer.take_subnet(parse_ibnetdiscover(FABRIC), NOW);
        let mut state = State::new(&Config::default(), now);
        state.maintenance_token = Some("token".into());
        state.publish(Snapshot::new(analyzer.tick(NOW)));
        let runtime = Builder::new_current_thread().enable_all().build();
        (runtime.expect("a runtime"), router(Arc::new(state)))
    })
}

/// The first line is the path with its query, after `POST ` a request with the rest as its body; never an error of
/// the server.
pub(crate) fn api(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, body) = text.split_once('\n').unwrap_or((&text, ""));
    let (method, path) = match path.strip_prefix("POST ") {
        Some(path) => (Method::POST, path),
        None => (Method::GET, path),
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("/{}", path.trim_start_matches('/')))
        .header("authorization", "Bearer token")
        .body(Body::from(body.to_owned()));
    let Ok(request) = request else { return };
    let (runtime, router) = collector();
    let answer = runtime.block_on(router.clone().oneshot(request));
    let status = answer.map_or(StatusCode::OK, |answer| answer.status());
    assert!(!status.is_server_error(), "{status}");
}

//! Requests to the collector's API.

use std::sync::{Arc, Mutex, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::config::{Config, Push};
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::serve::router::router;
use railscope_collector::sources::push::Format;
use railscope_collector::sources::push::fragments::Batch;
use railscope_collector::sources::push::remote_write::Version;
use railscope_collector::status::{Snapshot, State};
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

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// The API over the result of a tick.
fn api_over(view: ClusterView) -> Router {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let mut state = State::new(CONFIG.get_or_init(Config::default), now);
    state.maintenance_token = Some("token".into());
    state.publish(Snapshot::new(view));
    router(Arc::new(state))
}

/// A collector with a small fabric.
fn collector() -> &'static (Runtime, Router) {
    static COLLECTOR: OnceLock<(Runtime, Router)> = OnceLock::new();
    COLLECTOR.get_or_init(|| {
        let mut analyzer = Analyzer::default();
        analyzer.take_subnet(parse_ibnetdiscover(FABRIC), NOW);
        (runtime(), api_over(analyzer.tick(NOW)))
    })
}

/// The most common requests.
const PAGES: &[&str] = &[
    "/",
    "/metrics",
    "/api/v1/incidents",
    "/api/v1/nodes",
    "/api/v1/jobs",
    "/api/v1/topology/lint",
    "/api/v1/topology/structure",
    "/api/v1/topology/traffic",
    "/api/v1/topology/changes",
    "/api/v1/topology/export?to=graphml",
    "/api/v1/topology/export?to=slurm-tree",
];

/// Shows a tick as the web page and the API do.
pub(crate) fn show(view: ClusterView) {
    let (runtime, _) = collector();
    let router = api_over(view);
    for page in PAGES {
        let request = Request::builder().uri(*page).body(Body::empty());
        let answer = runtime.block_on(router.clone().oneshot(request.expect("a request")));
        let status = answer.map_or(StatusCode::OK, |answer| answer.status());
        assert!(!status.is_server_error(), "{page}: {status}");
    }
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

/// A write request; its first byte is the version.
pub(crate) fn remote_write(bytes: &[u8]) {
    let Some((version, body)) = bytes.split_first() else {
        return;
    };
    let version = match version {
        b'2' => Version::Two,
        _ => Version::One,
    };
    read_pushed(Format::RemoteWrite(version), body);
}

/// A request with metrics by OTLP; its first byte is `z` if it is compressed.
pub(crate) fn otlp(bytes: &[u8]) {
    let Some((format, body)) = bytes.split_first() else {
        return;
    };
    let format = match format {
        b'z' => Format::OtlpGzip,
        _ => Format::Otlp,
    };
    read_pushed(format, body);
}

fn read_pushed(format: Format, body: &[u8]) {
    let body = Bytes::copy_from_slice(body);
    let settings = (&Push::default(), &Mutex::default());
    let Ok(batch) = Batch::read(format, &body, settings, NOW) else {
        return;
    };
    for fragment in batch.fragments.values() {
        assert_eq!(fragment.text.lines().count(), fragment.samples);
        for line in railscope_model::exposition::parse(&fragment.text) {
            line.expect("valid text");
        }
    }
}

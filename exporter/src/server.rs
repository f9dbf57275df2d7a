//! The exporter's HTTP side: `/metrics`, a landing page and a health check, behind TLS and passwords if configured.

mod auth;
mod security;
mod tls;
mod web_config;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use railscope_model::exposition::MediaType;
use railscope_model::metric::Profile;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use security::{SecurityError, WebSecurity};
pub use web_config::{Pem, WebConfigError};

use crate::runtime::{Exporter, PROFILES};
use tls::SecuredListener;

/// How long a shutdown waits for requests in flight. Idle connections are closed at once.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Serves the exporter on a listener until `shutdown` is done, on the caller's tokio runtime.
///
/// Requests in flight then get `SHUTDOWN_GRACE` to end; connections that a client keeps open do not
/// delay it. The exporter itself continues sampling until it is dropped.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    exporter: Arc<Exporter>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_app(router(exporter), listener, shutdown).await
}

/// Serves the exporter as [`serve`] does, protected as in `web-config.yml`, which is checked again
/// periodically while it serves.
///
/// # Errors
/// The listener failed.
pub async fn serve_secured(
    exporter: Arc<Exporter>,
    listener: TcpListener,
    security: Arc<WebSecurity>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let protect = middleware::from_fn_with_state(Arc::clone(&security), auth::protect);
    let app = router(exporter).layer(protect);
    let listener = SecuredListener::new(listener, Arc::clone(&security))?;
    tokio::select! {
        result = serve_app(app, listener, shutdown) => result,
        () = security.keep_fresh() => Ok(()),
    }
}

async fn serve_app<L: Listener<Addr: std::fmt::Debug>>(
    app: Router,
    listener: L,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (asked, was_asked) = oneshot::channel::<()>();
    let serving = axum::serve(listener, app).with_graceful_shutdown(async move {
        shutdown.await;
        drop(asked);
    });
    let grace_is_over = async {
        // Ends when the sender is dropped, which is the shutdown request.
        was_asked.await.ok();
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        result = serving => result,
        () = grace_is_over => Ok(()),
    }
}

/// The exporter's routes, for a caller that serves more than them.
pub fn router(exporter: Arc<Exporter>) -> Router {
    Router::new()
        .route("/", get(landing_page))
        .route("/metrics", get(metrics))
        .route(
            "/-/healthy",
            get(|| async { "Railscope exporter is healthy.\n" }),
        )
        .fallback(not_found)
        .with_state(exporter)
}

async fn metrics(
    State(exporter): State<Arc<Exporter>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let profile = match profile_of(query.as_deref().unwrap_or_default()) {
        Ok(profile) => profile,
        Err(expected) => return (StatusCode::BAD_REQUEST, expected).into_response(),
    };
    let media_type = MediaType::negotiate(text(&headers, header::ACCEPT));
    let gzipped = accepts_gzip(text(&headers, header::ACCEPT_ENCODING).unwrap_or_default());
    let body = exporter.page().body(profile, media_type, gzipped);
    let described = [
        (header::CONTENT_TYPE, media_type.content_type()),
        (header::VARY, "Accept, Accept-Encoding"),
    ];
    if gzipped {
        (described, [(header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        (described, body).into_response()
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The profile that a query requests, or the error message with the valid values.
fn profile_of(query: &str) -> Result<Profile, String> {
    let known = PROFILES
        .map(|(name, _)| format!("profile={name}"))
        .join(" or ");
    let mut profile = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != "profile" {
            return Err(format!(
                "unknown query parameter {key:?}: expected {known}, or none\n"
            ));
        }
        let named = PROFILES.iter().find(|(name, _)| *name == value);
        let Some((_, named)) = named else {
            return Err(format!("unknown profile {value:?}: expected {known}\n"));
        };
        if profile.replace(*named).is_some() {
            return Err(format!("duplicate profile: expected {known} once\n"));
        }
    }
    Ok(profile.unwrap_or_default())
}

/// Whether an `Accept-Encoding` header names gzip and does not refuse it (`gzip;q=0`).
fn accepts_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts
            .filter_map(|parameter| parameter.strip_prefix("q="))
            .any(|q| q.parse() == Ok(0.0));
        gzip && !refused
    })
}

async fn landing_page() -> Html<&'static str> {
    Html(concat!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Railscope exporter</title></head>\n",
        "<body><h1>Railscope exporter</h1>\n<p>Version ",
        env!("CARGO_PKG_VERSION"),
        "</p>\n<ul>\n",
        "<li><a href=\"/metrics\">Metrics</a></li>\n",
        "<li><a href=\"/metrics?profile=full\">Metrics of every link and hop</a></li>\n",
        "<li><a href=\"/-/healthy\">Health</a></li>\n",
        "</ul></body></html>\n"
    ))
}

async fn not_found(uri: Uri) -> (StatusCode, String) {
    let path = uri.path();
    let said = format!("no page {path:?}: expected /, /metrics or /-/healthy\n");
    (StatusCode::NOT_FOUND, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_a_profile_or_is_told_what_to_ask() {
        assert_eq!(profile_of(""), Ok(Profile::Default));
        assert_eq!(profile_of("profile=default"), Ok(Profile::Default));
        assert_eq!(profile_of("profile=full&"), Ok(Profile::Full));
        for (query, names) in [
            ("profile=all", "\"all\""),
            ("profile", "\"\""),
            ("profil=full", "\"profil\""),
            ("profile=full&profile=full", "duplicate"),
        ] {
            let said = profile_of(query).unwrap_err();
            assert!(said.contains(names), "{query}: {said}");
            assert!(said.contains("profile=default or profile=full"), "{said}");
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_ask_for_it() {
        for (header, gzip) in [
            ("gzip", true),
            ("zstd, br;q=0.5, GZIP;q=0.2", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("identity, br", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(header), gzip, "{header:?}");
        }
    }
}

//! Sends one encoded request, by gRPC or HTTP, and classifies the response.
//!
//! Both protocols use one HTTP client of hyper-util and one TLS configuration, so that neither reqwest nor tonic's
//! transport brings its own.

pub(crate) mod answer;
mod connect;
pub(crate) mod grpc;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tonic::body::Body;

use crate::settings::{Protocol, Target};
use crate::stats::Signal;
pub(crate) use answer::Outcome;
use connect::Connector;

/// A target that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A file that cannot be read.
    #[error("cannot read {path} for TLS to the OTLP receiver")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file without valid certificates or without a key.
    #[error(
        "cannot use {path} for TLS to the OTLP receiver: expected {expected} in PEM format: {problem}"
    )]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// Why it cannot be used.
        problem: String,
    },
    /// The system has no certificates to trust.
    #[error(
        "cannot find the system's certificates: expected one of {0}; set a certificate for the OTLP receiver"
    )]
    NoRoots(String),
    /// Certificate and key do not make a TLS client.
    #[error("cannot configure TLS to the OTLP receiver")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

/// Maximum bytes read of a response; a longer one counts as one without details.
const ANSWER_BYTES: usize = 64 * 1024;
/// Time without traffic after which the receiver of an HTTP/2 connection is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Time without a request after which a connection is closed.
const IDLE: Duration = Duration::from_secs(90);

type HttpClient = Client<Connector, Body>;

/// The connection to the receiver of one signal.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    client: HttpClient,
    signal: Signal,
    protocol: Protocol,
    endpoint: Uri,
    headers: HeaderMap,
    gzip: bool,
}

impl Wire {
    /// Reads certificates; connects at the first request.
    pub(crate) fn new(target: &Target, signal: Signal) -> Result<Self, WireError> {
        let tls = match target.endpoint.scheme_str() {
            Some("https") => Some(tls::config(target)?),
            _ => None,
        };
        let connector = Connector::new(tls, target.timeout);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .http2_only(target.protocol == Protocol::Grpc)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .build(connector);
        let mut headers = HeaderMap::new();
        let agent = concat!(
            "OTel-OTLP-Exporter-Rust Railscope/",
            env!("CARGO_PKG_VERSION")
        );
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in &target.headers {
            headers.insert(name, value.clone());
        }
        Ok(Self {
            client,
            signal,
            protocol: target.protocol,
            endpoint: target.endpoint.clone(),
            headers,
            gzip: target.gzip,
        })
    }

    /// Sends one encoded request. The caller sets the time limit.
    pub(crate) async fn send(&self, message: Bytes) -> Outcome {
        match self.protocol {
            Protocol::Grpc => grpc::send(self, message).await,
            Protocol::Http => self.post(message).await,
        }
    }

    async fn post(&self, message: Bytes) -> Outcome {
        let request = match self.http_request(message) {
            Ok(request) => request,
            Err(error) => return Outcome::Rejected(format!("cannot build the request: {error}")),
        };
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => return Outcome::Retry(None, text_of(&error)),
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await;
        let body = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        answer::of_http(&Response::from_parts(head, body))
    }

    fn http_request(&self, message: Bytes) -> Result<Request<Body>, Box<dyn std::error::Error>> {
        let mut request = Request::post(self.endpoint.clone()).body(())?;
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        let message = if self.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Bytes::from(railscope_model::exposition::gzip(&message)?)
        } else {
            message
        };
        Ok(request.map(|()| Body::new(Full::new(message))))
    }
}

/// An error with its causes.
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// The value of `Retry-After`: seconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: a date of the receiver is compared with the clock"
    )]
    let now = std::time::SystemTime::now();
    Some(date.duration_since(now).unwrap_or_default())
}

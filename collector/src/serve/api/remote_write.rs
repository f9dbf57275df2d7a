//! `POST /api/v1/write`: Prometheus' remote write, versions 1.0 and 2.0.

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::params::Refusal;
use super::push::{body, off, status, with_retry_after};
use super::token;
use crate::serve::router::App;
use crate::sources::push::remote_write::Version;
use crate::sources::push::{Format, Intake, Protocol, Refused, RequestResult};

/// Response headers that version 2.0 requires.
const WRITTEN: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

pub(crate) async fn write(Shared(state): App, request: Request) -> Response {
    let Some(intake) = &state.push else {
        return off().into_response();
    };
    let version = match check(intake, request.headers()) {
        Ok(version) => version,
        Err((result, refusal)) => {
            intake.count(Protocol::RemoteWrite, result);
            return refusal.into_response();
        }
    };
    let body = match body(request).await {
        Ok(body) => body,
        Err((result, rejection)) => {
            intake.count(Protocol::RemoteWrite, result);
            return rejection.into_response();
        }
    };
    let accepted = intake
        .accept(Format::RemoteWrite(version), body, &state)
        .await;
    let (result, answer) = match accepted {
        Ok(counts) => {
            let written = [counts.accepted, 0, 0].map(|count| count.to_string());
            let names = WRITTEN.map(HeaderName::from_static);
            let headers: [_; 3] =
                std::array::from_fn(|at| (names[at].clone(), written[at].clone()));
            let answer = (StatusCode::NO_CONTENT, headers).into_response();
            (RequestResult::Ok, answer)
        }
        Err(refused) => refuse(&refused),
    };
    intake.count(Protocol::RemoteWrite, result);
    answer
}

/// Checks token and headers of a request; returns its version.
fn check(intake: &Intake, headers: &HeaderMap) -> Result<Version, (RequestResult, Refusal)> {
    if let Some(token) = intake.token() {
        token::check(headers, token, "push.token_file")
            .map_err(|refusal| (RequestResult::Unauthorized, refusal))?;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let unsupported = |error: String, expected: &str| {
        let result = RequestResult::Unsupported;
        let refusal = Refusal::new(status(result), error, expected.to_owned());
        (result, refusal)
    };
    let encoding = text(header::CONTENT_ENCODING).unwrap_or_default();
    if !encoding.eq_ignore_ascii_case("snappy") {
        let error = format!("Content-Encoding: {encoding:?}");
        return Err(unsupported(error, "snappy"));
    }
    let content = text(header::CONTENT_TYPE).unwrap_or_default();
    version(content).ok_or_else(|| {
        unsupported(
            format!("Content-Type: {content:?}"),
            "application/x-protobuf, and proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request",
        )
    })
}

/// The version by the content type.
fn version(content: &str) -> Option<Version> {
    let mut parts = content.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !media_type.eq_ignore_ascii_case("application/x-protobuf") {
        return None;
    }
    match parts.find_map(|part| part.strip_prefix("proto=")) {
        None | Some("prometheus.WriteRequest") => Some(Version::One),
        Some("io.prometheus.write.v2.Request") => Some(Version::Two),
        Some(_) => None,
    }
}

fn refuse(refused: &Refused) -> (RequestResult, Response) {
    let result = RequestResult::from(refused);
    let expected = String::from("a write request of Prometheus' remote write protocol");
    let answer = Refusal::new(status(result), refused.to_string(), expected).into_response();
    (result, with_retry_after(Some(result), answer))
}

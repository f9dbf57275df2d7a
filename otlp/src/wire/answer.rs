//! Meaning of a receiver's response: accepted, rejected or to be retried (OTLP 1.x, sections "failures").

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use prost::Message;
use tonic::{Code, Status};

use super::retry_after;

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Accepted; this many items were rejected, for this reason.
    Accepted(u64, String),
    /// Rejected for good, for this reason.
    Rejected(String),
    /// Failed for now, with the delay that the receiver requests.
    Retry(Option<Duration>, String),
}

/// `Export*ServiceResponse` of all three signals, which are equal on the wire.
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`, the details of an error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<AnyMessage>,
}

impl RpcStatus {
    pub(crate) fn new(message: String) -> Self {
        Self {
            message,
            details: Vec::new(),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct AnyMessage {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A successful response. One that cannot be decoded is a success without details.
pub(super) fn accepted(message: Bytes) -> Outcome {
    let partial = ExportResponse::decode(message)
        .ok()
        .and_then(|response| response.partial_success);
    let partial = partial.unwrap_or_default();
    Outcome::Accepted(
        u64::try_from(partial.rejected).unwrap_or(0),
        partial.error_message,
    )
}

/// The outcome of an HTTP request.
pub(super) fn of_http(response: &Response<Bytes>) -> Outcome {
    let status = response.status();
    if status.is_success() {
        return accepted(response.body().clone());
    }
    let details = RpcStatus::decode(response.body().clone())
        .map(|status| status.message)
        .unwrap_or_default();
    let reason = format!(
        "HTTP status {status}{}{details}",
        if details.is_empty() { "" } else { ": " }
    );
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Outcome::Retry(retry_after(response.headers()), reason),
        _ => Outcome::Rejected(reason),
    }
}

/// The outcome of a gRPC error.
pub(super) fn of_grpc(status: &Status) -> Outcome {
    let reason = format!("gRPC status {:?}: {}", status.code(), status.message());
    let delay = retry_delay(status);
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Outcome::Retry(delay, reason),
        // Without a delay the receiver cannot recover, by the specification.
        Code::ResourceExhausted if delay.is_some() => Outcome::Retry(delay, reason),
        _ => Outcome::Rejected(reason),
    }
}

fn retry_delay(status: &Status) -> Option<Duration> {
    let details = RpcStatus::decode(status.details()).ok()?.details;
    let info = details
        .iter()
        .find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    Some(Duration::new(
        seconds,
        u32::try_from(delay.nanos).unwrap_or(0).min(999_999_999),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_statuses_of_the_specification_are_retried() {
        /// None: not retried; else the requested delay.
        type Expected = Option<Option<u64>>;
        let cases: [(u16, Option<&str>, Expected); 9] = [
            (400, None, None),
            (401, None, None),
            (413, Some("5"), None),
            (500, None, None),
            (429, None, Some(None)),
            (502, Some("nonsense"), Some(None)),
            (503, Some(" 7 "), Some(Some(7))),
            (504, Some("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Some(0))),
            (307, Some("1"), None),
        ];
        for (status, retry_after, expected) in cases {
            let mut response = Response::builder().status(status);
            if let Some(retry_after) = retry_after {
                response = response.header("retry-after", retry_after);
            }
            let found = match of_http(&response.body(Bytes::new()).expect("a response")) {
                Outcome::Retry(delay, _) => Some(delay.map(|delay| delay.as_secs())),
                _ => None,
            };
            assert_eq!(found, expected, "{status} {retry_after:?}");
        }
    }

    #[test]
    fn grpc_codes_are_retried_as_the_specification_has_them() {
        for (code, is_retried) in [
            (Code::Unavailable, true),
            (Code::DeadlineExceeded, true),
            (Code::Cancelled, true),
            (Code::Aborted, true),
            (Code::OutOfRange, true),
            (Code::DataLoss, true),
            (Code::ResourceExhausted, false),
            (Code::Unknown, false),
            (Code::Unauthenticated, false),
            (Code::Unimplemented, false),
        ] {
            let outcome = of_grpc(&Status::new(code, "why"));
            assert_eq!(
                matches!(outcome, Outcome::Retry(..)),
                is_retried,
                "{code:?}"
            );
        }
    }
}

//! Common parts of the responses of all protocols for pushed samples.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::params::Refusal;
use crate::sources::push::RequestResult;

/// Limit on the size of a request, compressed.
pub(crate) const MOST_BODY_BYTES: usize = 16 << 20;
/// Seconds after which a sender should retry.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// The response without the table.
pub(super) fn off() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        String::from("pushing samples is off"),
        String::from("[push] in the collector's configuration"),
    )
}

/// Reads the body, after token and headers were checked: an unknown sender's is not read.
pub(super) async fn body(request: Request) -> Result<Bytes, (RequestResult, BytesRejection)> {
    let body = Bytes::from_request(request, &()).await;
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => (RequestResult::TooLarge, rejection),
        // The sender ended it early.
        _ => (RequestResult::Malformed, rejection),
    })
}

/// The HTTP status of a result.
pub(super) fn status(result: RequestResult) -> StatusCode {
    match result {
        RequestResult::Ok => StatusCode::OK,
        RequestResult::Unauthorized => StatusCode::UNAUTHORIZED,
        RequestResult::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        RequestResult::Malformed => StatusCode::BAD_REQUEST,
        RequestResult::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        RequestResult::Busy => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Adds `Retry-After` to the response to an overload.
pub(super) fn with_retry_after(result: Option<RequestResult>, mut answer: Response) -> Response {
    if result == Some(RequestResult::Busy) {
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    answer
}

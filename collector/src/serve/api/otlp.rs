//! Metrics by OTLP: `POST /v1/metrics`, and the same by gRPC.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use railscope_otlp::receive::{BytesCodec, failure, response};
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

use super::push::{MOST_BODY_BYTES, OFF, status, with_retry_after};
use super::token;
use crate::serve::router::App;
use crate::sources::push::fragments::Counts;
use crate::sources::push::{Format, Intake, Protocol, RequestResult};
use crate::status::State;

const PROTOBUF: &str = "application/x-protobuf";

/// Why a request failed.
struct Failure {
    /// None if pushing samples is off: then nothing is counted.
    result: Option<RequestResult>,
    reason: String,
}

impl Failure {
    fn new(result: RequestResult, reason: String) -> Self {
        Self {
            result: Some(result),
            reason,
        }
    }

    /// The same for gRPC. Senders retry `UNAVAILABLE`, and no other of these.
    fn code(&self) -> Code {
        match self.result {
            None => Code::Unimplemented,
            Some(RequestResult::Unauthorized) => Code::Unauthenticated,
            Some(RequestResult::TooLarge) => Code::ResourceExhausted,
            Some(RequestResult::Busy) => Code::Unavailable,
            Some(_) => Code::InvalidArgument,
        }
    }
}

/// By HTTP with protobuf.
pub(crate) async fn http(Shared(state): App, headers: HeaderMap, body: Bytes) -> Response {
    let content = [(header::CONTENT_TYPE, PROTOBUF)];
    match accept(&state, &headers, format(&headers), body).await {
        Ok(message) => (content, message).into_response(),
        Err(Failure { result, reason }) => {
            let status = result.map_or(StatusCode::NOT_FOUND, status);
            let answer = (status, content, failure(reason)).into_response();
            with_retry_after(result, answer)
        }
    }
}

/// The format by the headers.
fn format(headers: &HeaderMap) -> Result<Format, String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let content = text(header::CONTENT_TYPE).unwrap_or_default();
    if content.split(';').next().map(str::trim) != Some(PROTOBUF) {
        return Err(format!("Content-Type: {content:?}: expected {PROTOBUF}"));
    }
    match text(header::CONTENT_ENCODING).unwrap_or_default() {
        "" | "identity" => Ok(Format::Otlp),
        "gzip" => Ok(Format::OtlpGzip),
        other => Err(format!(
            "Content-Encoding: {other:?}: expected gzip or none"
        )),
    }
}

/// By gRPC.
pub(crate) async fn grpc(Shared(state): App, request: Request) -> Response {
    let mut server = Grpc::new(BytesCodec)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MOST_BODY_BYTES);
    server.unary(Export(state), request).await.map(Body::new)
}

/// The method `Export` of the metrics service.
struct Export(Arc<State>);

impl UnaryService<Bytes> for Export {
    type Response = Bytes;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<Bytes>, Status>> + Send + 'static>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let state = Arc::clone(&self.0);
        Box::pin(async move {
            let (metadata, _, body) = request.into_parts();
            let headers = metadata.into_headers();
            match accept(&state, &headers, Ok(Format::Otlp), body).await {
                Ok(message) => Ok(tonic::Response::new(message)),
                Err(failed) => Err(Status::new(failed.code(), failed.reason)),
            }
        })
    }
}

/// Queues a request; returns the message of the answer.
async fn accept(
    state: &State,
    headers: &HeaderMap,
    format: Result<Format, String>,
    body: Bytes,
) -> Result<Bytes, Failure> {
    let Some(intake) = &state.push else {
        return Err(Failure {
            result: None,
            reason: format!("{}: expected {}", OFF[0], OFF[1]),
        });
    };
    let accepted = queue(intake, state, headers, format, body).await;
    let failed = accepted.as_ref().err().and_then(|failed| failed.result);
    intake.count(Protocol::Otlp, failed.unwrap_or(RequestResult::Ok));
    let counts = accepted?;
    let reason = format!(
        "{} without an instance, {} older than 300 s, from the future or repeated, {} unsupported",
        counts.unassigned, counts.out_of_window, counts.unsupported
    );
    let rejected = counts.unassigned + counts.out_of_window + counts.unsupported;
    Ok(response(rejected, &reason))
}

async fn queue(
    intake: &Intake,
    state: &State,
    headers: &HeaderMap,
    format: Result<Format, String>,
    body: Bytes,
) -> Result<Counts, Failure> {
    if let Some(token) = intake.token() {
        token::check(headers, token, "push.token_file")
            .map_err(|refusal| Failure::new(RequestResult::Unauthorized, refusal.into_error()))?;
    }
    let format = format.map_err(|reason| Failure::new(RequestResult::Unsupported, reason))?;
    let accepted = intake.accept(format, body, state).await;
    accepted.map_err(|refused| Failure::new(RequestResult::from(&refused), refused.to_string()))
}

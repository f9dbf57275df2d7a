//! Metrics by OTLP: `POST /v1/metrics`, and the same by gRPC.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use railscope_otlp::receive::{BytesCodec, failure, response};
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};

use super::push::{MOST_BODY_BYTES, body, off, status, with_retry_after};
use super::token;
use crate::serve::router::App;
use crate::sources::push::{Format, Intake, Protocol, RequestResult};
use crate::status::State;

const PROTOBUF: &str = "application/x-protobuf";

/// Why a request failed: the result that is counted, and the reason. No result if pushing samples is off.
struct Failure(Option<RequestResult>, String);

impl Failure {
    fn off() -> Self {
        Self(None, off().into_error())
    }
}

impl From<(RequestResult, String)> for Failure {
    fn from((result, reason): (RequestResult, String)) -> Self {
        Self(Some(result), reason)
    }
}

/// By HTTP with protobuf.
pub(crate) async fn http(Shared(state): App, request: Request) -> Response {
    let content = [(header::CONTENT_TYPE, PROTOBUF)];
    match accept(&state, request).await {
        Ok(message) => {
            count(&state, RequestResult::Ok);
            (content, message).into_response()
        }
        Err(Failure(result, reason)) => {
            if let Some(result) = result {
                count(&state, result);
            }
            let status = result.map_or(StatusCode::NOT_FOUND, status);
            let answer = (status, content, failure(reason)).into_response();
            with_retry_after(result, answer)
        }
    }
}

async fn accept(state: &State, request: Request) -> Result<Bytes, Failure> {
    let headers = request.headers();
    let intake = authorized(state, headers)?;
    let format = format(headers).map_err(|reason| (RequestResult::Unsupported, reason))?;
    let body = body(request).await;
    let body = body.map_err(|(result, rejection)| (result, rejection.body_text()))?;
    queue(intake, state, format, body).await
}

/// The format by the headers.
fn format(headers: &HeaderMap) -> Result<Format, String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let content = text(header::CONTENT_TYPE).unwrap_or_default();
    let media_type = content.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(PROTOBUF) {
        return Err(format!("Content-Type: {content:?}: expected {PROTOBUF}"));
    }
    let encoding = text(header::CONTENT_ENCODING).unwrap_or_default();
    match &*encoding.to_ascii_lowercase() {
        "" | "identity" => Ok(Format::Otlp),
        "gzip" => Ok(Format::OtlpGzip),
        other => Err(format!(
            "Content-Encoding: {other:?}: expected gzip or none"
        )),
    }
}

/// By gRPC.
pub(crate) async fn grpc(Shared(state): App, request: Request) -> Response {
    // Before anything is decompressed.
    if let Err(failed) = authorized(&state, request.headers()) {
        if let Some(result) = failed.0 {
            count(&state, result);
        }
        return Status::from(failed).into_http();
    }
    let mut server = Grpc::new(BytesCodec)
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(MOST_BODY_BYTES);
    let call = Export(Arc::clone(&state));
    let mut answer = server.unary(call, request).await.map(Body::new);
    let code = Status::from_header_map(answer.headers()).map(|status| status.code());
    count(&state, code.map_or(RequestResult::Ok, result_of));
    // The library's codes for too large messages and invalid gzip: senders of OTLP would retry the first.
    let code = match code {
        Some(Code::OutOfRange) => Some(Code::ResourceExhausted),
        Some(Code::Internal) => Some(Code::InvalidArgument),
        _ => None,
    };
    if let Some(code) = code {
        let code = HeaderValue::from(code as i32);
        answer.headers_mut().insert(Status::GRPC_STATUS, code);
    }
    answer
}

/// The result that is counted for an error.
fn result_of(code: Code) -> RequestResult {
    match code {
        Code::Unimplemented => RequestResult::Unsupported,
        Code::OutOfRange | Code::ResourceExhausted => RequestResult::TooLarge,
        Code::Unavailable => RequestResult::Busy,
        _ => RequestResult::Malformed,
    }
}

/// Senders retry `UNAVAILABLE`, and no other of these codes.
impl From<Failure> for Status {
    fn from(Failure(result, reason): Failure) -> Self {
        let code = match result {
            None => Code::Unimplemented,
            Some(RequestResult::Unauthorized) => Code::Unauthenticated,
            Some(RequestResult::TooLarge) => Code::ResourceExhausted,
            Some(RequestResult::Busy) => Code::Unavailable,
            Some(_) => Code::InvalidArgument,
        };
        Self::new(code, reason)
    }
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
            let intake = state.push.as_ref().ok_or_else(Failure::off)?;
            let accepted = queue(intake, &state, Format::Otlp, request.into_inner()).await;
            Ok(tonic::Response::new(accepted?))
        })
    }
}

/// The intake, for a sender with its token.
fn authorized<'a>(state: &'a State, headers: &HeaderMap) -> Result<&'a Intake, Failure> {
    let intake = state.push.as_ref().ok_or_else(Failure::off)?;
    if let Some(token) = intake.token() {
        token::check(headers, token, "push.token_file")
            .map_err(|refusal| (RequestResult::Unauthorized, refusal.into_error()))?;
    }
    Ok(intake)
}

fn count(state: &State, result: RequestResult) {
    if let Some(intake) = &state.push {
        intake.count(Protocol::Otlp, result);
    }
}

/// Queues a request; returns the message of the response.
async fn queue(
    intake: &Intake,
    state: &State,
    format: Format,
    body: Bytes,
) -> Result<Bytes, Failure> {
    let accepted = intake.accept(format, body, state).await;
    let counts =
        accepted.map_err(|refused| (RequestResult::from(&refused), refused.to_string()))?;
    let reason = format!(
        "{} without an instance or made by rules, {} older than 300 s, from the future or repeated, {} unsupported",
        counts.unassigned, counts.out_of_window, counts.unsupported
    );
    let rejected = counts.unassigned + counts.out_of_window + counts.unsupported;
    Ok(response(rejected, &reason))
}

//! An OTLP receiver on the loopback: gRPC and HTTP on one port, with or without TLS; it can refuse, reject and block.

use std::future::pending;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Code, Status, async_trait};

/// What the receiver does with requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mode {
    /// Accepts all.
    Accept,
    /// Accepts all but so many items of each request.
    Partial(i64),
    /// 503 or UNAVAILABLE, with a delay in seconds to wait.
    Unavailable(Option<u64>),
    /// 429 or RESOURCE_EXHAUSTED, by gRPC without a delay.
    Exhausted,
    /// 400 or INVALID_ARGUMENT.
    Reject,
    /// Never responds.
    Hang,
}

/// What the receiver got.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) metrics: Vec<ExportMetricsServiceRequest>,
    pub(crate) logs: Vec<ExportLogsServiceRequest>,
    pub(crate) traces: Vec<ExportTraceServiceRequest>,
    /// Paths and headers of all requests, refused ones included.
    pub(crate) requests: Vec<(String, HeaderMap)>,
}

#[derive(Debug)]
struct Shared {
    mode: Mutex<Mode>,
    got: Mutex<Got>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

/// A running receiver. It ends with the runtime of the test.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Starts on a free port.
    pub(crate) async fn start(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self::serve(listener, address, mode)
    }

    /// Serves the connections of any listener.
    pub(crate) fn serve<L>(listener: L, address: SocketAddr, mode: Mode) -> Self
    where
        L: axum::serve::Listener,
        L::Addr: std::fmt::Debug,
    {
        let shared = Arc::new(Shared {
            mode: Mutex::new(mode),
            got: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
        });
        let receiver = Self { address, shared };
        let app = receiver.router();
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }

    fn router(&self) -> Router {
        let gzip = CompressionEncoding::Gzip;
        let grpc = Routes::new(MetricsServiceServer::new(self.clone()).accept_compressed(gzip))
            .add_service(LogsServiceServer::new(self.clone()).accept_compressed(gzip))
            .add_service(TraceServiceServer::new(self.clone()).accept_compressed(gzip));
        let http = Router::new()
            .route("/v1/metrics", post(http_metrics))
            .route("/v1/logs", post(http_logs))
            .route("/v1/traces", post(http_traces))
            .with_state(self.clone());
        let all = http.fallback_service(grpc.into_axum_router());
        all.layer(from_fn_with_state(self.clone(), behave))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().expect("lock") = mode;
    }

    /// Reads what arrived.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Got) -> T) -> T {
        read(&self.shared.got.lock().expect("lock"))
    }

    /// The most requests that were in flight simultaneously.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.shared.most_in_flight.load(Ordering::SeqCst)
    }

    /// Waits until a condition holds, 20 s at most.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Got) -> bool) {
        for _ in 0..400 {
            if self.with(&holds) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not within 20 s: {what}");
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        self.with(|got| {
            let resources = got
                .metrics
                .iter()
                .flat_map(|request| &request.resource_metrics);
            let scopes = resources.flat_map(|resource| &resource.scope_metrics);
            scopes.flat_map(|scope| scope.metrics.clone()).collect()
        })
    }

    pub(crate) fn logs(&self) -> Vec<LogRecord> {
        self.with(|got| {
            let resources = got.logs.iter().flat_map(|request| &request.resource_logs);
            let scopes = resources.flat_map(|resource| &resource.scope_logs);
            scopes.flat_map(|scope| scope.log_records.clone()).collect()
        })
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.with(|got| {
            let resources = got
                .traces
                .iter()
                .flat_map(|request| &request.resource_spans);
            let scopes = resources.flat_map(|resource| &resource.scope_spans);
            scopes.flat_map(|scope| scope.spans.clone()).collect()
        })
    }

    fn mode(&self) -> Mode {
        self.shared.mode.lock().expect("lock").clone()
    }

    fn keep(&self, keep: impl FnOnce(&mut Got)) -> Option<i64> {
        keep(&mut self.shared.got.lock().expect("lock"));
        match self.mode() {
            Mode::Partial(rejected) => Some(rejected),
            _ => None,
        }
    }

    fn metrics_response(
        &self,
        request: ExportMetricsServiceRequest,
    ) -> ExportMetricsServiceResponse {
        let partial = self.keep(|got| got.metrics.push(request));
        let partial_success = partial.map(|rejected_data_points| ExportMetricsPartialSuccess {
            rejected_data_points,
            error_message: "too old".to_owned(),
        });
        ExportMetricsServiceResponse { partial_success }
    }

    fn logs_response(&self, request: ExportLogsServiceRequest) -> ExportLogsServiceResponse {
        let partial = self.keep(|got| got.logs.push(request));
        let partial_success = partial.map(|rejected_log_records| ExportLogsPartialSuccess {
            rejected_log_records,
            error_message: "too long".to_owned(),
        });
        ExportLogsServiceResponse { partial_success }
    }

    fn traces_response(&self, request: ExportTraceServiceRequest) -> ExportTraceServiceResponse {
        let partial = self.keep(|got| got.traces.push(request));
        let partial_success = partial.map(|rejected_spans| ExportTracePartialSuccess {
            rejected_spans,
            error_message: "too many".to_owned(),
        });
        ExportTraceServiceResponse { partial_success }
    }
}

/// Counts a request while it is in flight.
struct Flight(Arc<Shared>);

impl Flight {
    fn new(shared: &Arc<Shared>) -> Self {
        let now = shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_in_flight.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn behave(State(receiver): State<Receiver>, request: Request, next: Next) -> Response {
    let _flight = Flight::new(&receiver.shared);
    let seen = (request.uri().path().to_owned(), request.headers().clone());
    let is_grpc = seen.0.starts_with("/opentelemetry");
    receiver.keep(|got| got.requests.push(seen));
    let refuse = |status: StatusCode, code: Code| match is_grpc {
        true => Status::new(code, "refused").into_http(),
        false => status.into_response(),
    };
    match receiver.mode() {
        Mode::Accept | Mode::Partial(_) => next.run(request).await,
        Mode::Hang => pending().await,
        Mode::Reject => refuse(StatusCode::BAD_REQUEST, Code::InvalidArgument),
        Mode::Exhausted => refuse(StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
        Mode::Unavailable(None) => refuse(StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
        Mode::Unavailable(Some(seconds)) if is_grpc => {
            Status::with_details(Code::Unavailable, "refused", retry_info(seconds).into())
                .into_http()
        }
        Mode::Unavailable(Some(seconds)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", seconds.to_string())],
        )
            .into_response(),
    }
}

/// `google.rpc.Status` with `google.rpc.RetryInfo`, written byte by byte: fields of short length-delimited values.
fn retry_info(seconds: u64) -> Vec<u8> {
    let field = |tag: u8, value: &[u8]| {
        [
            &[tag << 3 | 2, u8::try_from(value.len()).expect("short")],
            value,
        ]
        .concat()
    };
    let delay = field(1, &[8, u8::try_from(seconds).expect("short")]);
    let any = [
        field(1, b"type.googleapis.com/google.rpc.RetryInfo"),
        field(2, &delay),
    ]
    .concat();
    field(3, &any)
}

#[async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, Status> {
        Ok(tonic::Response::new(
            self.metrics_response(request.into_inner()),
        ))
    }
}

#[async_trait]
impl LogsService for Receiver {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        Ok(tonic::Response::new(
            self.logs_response(request.into_inner()),
        ))
    }
}

#[async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, Status> {
        Ok(tonic::Response::new(
            self.traces_response(request.into_inner()),
        ))
    }
}

async fn http_metrics(
    State(receiver): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> Vec<u8> {
    receiver
        .metrics_response(decode(&headers, &body))
        .encode_to_vec()
}

async fn http_logs(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    receiver
        .logs_response(decode(&headers, &body))
        .encode_to_vec()
}

async fn http_traces(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Vec<u8> {
    receiver
        .traces_response(decode(&headers, &body))
        .encode_to_vec()
}

fn decode<T: Message + Default>(headers: &HeaderMap, body: &[u8]) -> T {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut plain = Vec::new();
    if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        flate2::read::GzDecoder::new(body)
            .read_to_end(&mut plain)
            .expect("gzip");
    } else {
        plain.extend_from_slice(body);
    }
    T::decode(&*plain).expect("protobuf")
}

/// Attributes as `name=value`, in order of names.
pub(crate) fn show(attributes: &[KeyValue]) -> Vec<String> {
    let mut all: Vec<_> = attributes
        .iter()
        .map(|pair| format!("{}={}", pair.key, show_value(pair.value.as_ref())))
        .collect();
    all.sort();
    all
}

fn show_value(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::ArrayValue(list)) => {
            let all: Vec<_> = list
                .values
                .iter()
                .map(|value| show_value(Some(value)))
                .collect();
            format!("[{}]", all.join(","))
        }
        other => format!("{other:?}"),
    }
}

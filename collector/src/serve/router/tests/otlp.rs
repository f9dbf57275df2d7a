//! Responses to senders of OTLP metrics, by HTTP and by gRPC.

use std::io::Write as _;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::uri::PathAndQuery;
use flate2::Compression;
use flate2::write::GzEncoder;
use railscope_otlp::Converter;
use railscope_otlp::receive::BytesCodec;
use tonic::codec::CompressionEncoding;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use super::push::server;
use super::{get_text, now, serve, small};

const PROTOBUF: &str = "application/x-protobuf";

/// A request with one point, of a host with this name if it is not empty.
fn request(host: &str) -> Bytes {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(now().0);
    let host = ("host.name".to_owned(), host.to_owned());
    let converted = Converter::new(at).convert("a 1\n", at);
    converted.request(&[host]).into()
}

fn body() -> Bytes {
    request("n1")
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

async fn post(at: &str, token: &str, headers: [&str; 2], body: Vec<u8>) -> (u16, Bytes) {
    let answer = reqwest::Client::new()
        .post(format!("{at}/v1/metrics"))
        .bearer_auth(token)
        .header("content-type", headers[0])
        .header("content-encoding", headers[1])
        .body(body)
        .send()
        .await
        .expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.bytes().await.expect("a body"))
}

async fn call(at: &str, token: &str, body: Bytes) -> Result<Bytes, Status> {
    let channel = Endpoint::from_shared(at.to_owned()).expect("an address");
    let channel = channel.connect().await.expect("a connection");
    let mut client = tonic::client::Grpc::new(channel).send_compressed(CompressionEncoding::Gzip);
    client.ready().await.expect("ready");
    let mut request = Request::new(body);
    let value = format!("Bearer {token}").parse().expect("a header");
    request.metadata_mut().insert("authorization", value);
    let path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let path = PathAndQuery::from_static(path);
    let answer = client.unary(request, path, BytesCodec).await?;
    Ok(answer.into_inner())
}

#[tokio::test]
async fn metrics_are_accepted_by_http_and_by_grpc() {
    let (at, _inbox) = server().await;
    let plain = post(&at, "secret", [PROTOBUF, "identity"], body().to_vec()).await;
    assert_eq!(plain, (200, Bytes::new()));
    let compressed = post(&at, "secret", [PROTOBUF, "gzip"], gzip(&body())).await;
    assert_eq!(compressed, (200, Bytes::new()));
    let called = call(&at, "secret", body()).await.expect("accepted");
    assert!(called.is_empty());
    let unassigned = request("");
    let (status, answer) = post(&at, "secret", [PROTOBUF, ""], unassigned.to_vec()).await;
    assert_eq!(status, 200);
    assert!(answer.windows(4).any(|part| part == b"1 wi"), "{answer:?}");
    let (_, exposition) = get_text(format!("{at}/metrics")).await;
    for line in [
        "railscope_collector_push_requests_total{protocol=\"otlp\",result=\"ok\"} 4",
        "railscope_collector_push_samples_total{protocol=\"otlp\",result=\"accepted\"} 3",
        "railscope_collector_push_samples_total{protocol=\"otlp\",result=\"unassigned\"} 1",
        "railscope_collector_push_samples_total{protocol=\"remote_write\",result=\"accepted\"} 0",
    ] {
        assert!(exposition.contains(line), "{line}: {exposition}");
    }
}

#[tokio::test]
async fn a_refused_request_has_a_status_message() {
    let (at, _inbox) = server().await;
    let valid = || body().to_vec();
    let bomb = gzip(&vec![0; 17 << 20]);
    for (token, headers, body, status, expected) in [
        ("", [PROTOBUF, ""], valid(), 401, "push.token_file"),
        (
            "secret",
            ["application/json", ""],
            valid(),
            415,
            "expected application/x-protobuf",
        ),
        (
            "secret",
            [PROTOBUF, "zstd"],
            valid(),
            415,
            "expected gzip or none",
        ),
        ("secret", [PROTOBUF, "gzip"], valid(), 400, "not gzip"),
        (
            "secret",
            [PROTOBUF, ""],
            vec![0xff; 9],
            400,
            "not a request",
        ),
        (
            "secret",
            [PROTOBUF, "gzip"],
            bomb,
            413,
            "bytes decompressed",
        ),
        ("secret", [PROTOBUF, ""], vec![0; 17 << 20], 413, ""),
    ] {
        let (answered, message) = post(&at, token, headers, body).await;
        let message = String::from_utf8_lossy(&message).into_owned();
        assert_eq!(answered, status, "{expected}: {message}");
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[tokio::test]
async fn a_refused_call_has_a_code() {
    let (at, _inbox) = server().await;
    let code = |answer: Result<Bytes, Status>| answer.expect_err("refused").code();
    assert_eq!(code(call(&at, "", body()).await), Code::Unauthenticated);
    let invalid = Bytes::from_static(&[0xff; 9]);
    assert_eq!(
        code(call(&at, "secret", invalid).await),
        Code::InvalidArgument
    );
    let bomb = Bytes::from(vec![0; 17 << 20]);
    assert_eq!(
        code(call(&at, "secret", bomb).await),
        Code::ResourceExhausted
    );
    let huge = post(&at, "secret", [PROTOBUF, ""], vec![0; 17 << 20]).await;
    assert_eq!(huge.0, 413);
    let (_, exposition) = get_text(format!("{at}/metrics")).await;
    for (result, count) in [("unauthorized", 1), ("malformed", 1), ("too_large", 2)] {
        let line =
            format!("push_requests_total{{protocol=\"otlp\",result=\"{result}\"}} {count}\n");
        assert!(exposition.contains(&line), "{line}: {exposition}");
    }
    let full = loop {
        // The queue is not read.
        if let Err(full) = call(&at, "secret", body()).await {
            break full.code();
        }
    };
    assert_eq!(full, Code::Unavailable);
    let (status, _) = post(&at, "secret", [PROTOBUF, ""], body().to_vec()).await;
    assert_eq!(status, 503);
    let off = serve(small()).await;
    assert_eq!(code(call(&off, "", body()).await), Code::Unimplemented);
    assert_eq!(post(&off, "", [PROTOBUF, ""], body().to_vec()).await.0, 404);
}

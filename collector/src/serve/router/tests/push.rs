//! Responses to senders of samples.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{get_text, now, serve, small};
use crate::config::Push;
use crate::sources::push::remote_write::Version;
use crate::sources::push::remote_write::testing::body;
use crate::sources::push::{Format, Inbox, Refused, open};

const ONE: &str = "application/x-protobuf";
const TWO: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// A collector with remote write and a token, and the queue of its requests.
pub(super) async fn server() -> (String, Inbox) {
    let mut state = small();
    let (intake, inbox) = open(Push {
        token: Some("secret".into()),
        ..Push::default()
    });
    state.push = Some(intake);
    (serve(state).await, inbox)
}

struct Request {
    token: &'static str,
    encoding: &'static str,
    content: &'static str,
    body: Vec<u8>,
}

fn request(version: Version) -> Request {
    let labels = [("__name__", "a"), ("instance", "n1:1")];
    let at = i64::try_from(now().0).expect("a time");
    Request {
        token: "secret",
        encoding: "snappy",
        content: if version == Version::One { ONE } else { TWO },
        body: body(version, &[(&labels, 1.0, at), (&labels[..1], 1.0, at)]),
    }
}

async fn push(at: &str, request: Request) -> (u16, HeaderMap, String) {
    let answer = reqwest::Client::new()
        .post(format!("{at}/api/v1/write"))
        .bearer_auth(request.token)
        .header("content-encoding", request.encoding)
        .header("content-type", request.content)
        .body(request.body)
        .send()
        .await
        .expect("an answer");
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, answer.text().await.expect("text"))
}

#[tokio::test]
async fn both_versions_are_accepted_with_the_number_of_samples() {
    let (at, _inbox) = server().await;
    for version in [Version::One, Version::Two] {
        let (status, headers, said) = push(&at, request(version)).await;
        assert_eq!((status, &*said), (204, ""), "{version:?}");
        let written = &headers["x-prometheus-remote-write-samples-written"];
        assert_eq!(written, "1", "one of two has a label instance");
    }
    let (_, page) = get_text(format!("{at}/metrics")).await;
    for line in [
        "railscope_collector_push_requests_total{protocol=\"remote_write\",result=\"ok\"} 2",
        "railscope_collector_push_samples_total{protocol=\"remote_write\",result=\"accepted\"} 2",
        "railscope_collector_push_samples_total{protocol=\"remote_write\",result=\"unassigned\"} 2",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

#[tokio::test]
async fn a_refusal_has_status_and_reason() {
    let (at, _inbox) = server().await;
    let one = || request(Version::One);
    let huge = vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    for (request, status, expected) in [
        (Request { token: "", ..one() }, 401, "push.token_file"),
        (
            Request {
                encoding: "zstd",
                ..one()
            },
            415,
            "snappy",
        ),
        (
            Request {
                content: "application/json",
                ..one()
            },
            415,
            "application/x-protobuf",
        ),
        (
            Request {
                content: "application/x-protobuf;proto=a.B",
                ..one()
            },
            415,
            "WriteRequest",
        ),
        (
            Request {
                body: Vec::from("?"),
                ..one()
            },
            400,
            "Snappy",
        ),
        (
            Request {
                body: huge,
                ..one()
            },
            413,
            "bytes decompressed",
        ),
        (
            Request {
                body: vec![0; 17 << 20],
                ..one()
            },
            413,
            "",
        ),
    ] {
        let (answered, _, said) = push(&at, request).await;
        assert_eq!(answered, status, "{expected}: {said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[tokio::test]
async fn the_body_of_an_unknown_sender_is_not_waited_for() {
    let (at, _inbox) = server().await;
    let address = at.strip_prefix("http://").expect("an address");
    for path in ["/api/v1/write", "/v1/metrics"] {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {ONE}\r\nContent-Length: 1000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("written");
        let mut status = [0; 12];
        let answer = stream.read_exact(&mut status);
        let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
        answer.expect("an answer at once").expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 401", "{path}");
    }
}

#[tokio::test]
async fn a_full_queue_is_answered_with_503() {
    // The queue is not read.
    let (at, _inbox) = server().await;
    let mut taken = 0;
    let (status, headers, _) = loop {
        let answer = push(&at, request(Version::One)).await;
        if answer.0 != 204 {
            break answer;
        }
        taken += 1;
    };
    assert_eq!((status, taken), (503, 16));
    assert_eq!(headers[RETRY_AFTER], "1");
    let (status, _) = get_text(format!("{at}/metrics")).await;
    assert_eq!(status, StatusCode::OK, "other requests are not delayed");
}

#[tokio::test(start_paused = true)]
async fn sixteen_requests_wait_a_second_for_a_place_and_others_are_refused_at_once() {
    // The queue is not read.
    let (intake, _inbox) = open(Push::default());
    let at = Arc::new((intake, small()));
    let accept = || {
        let at = Arc::clone(&at);
        let body = request(Version::One).body.into();
        async move {
            at.0.accept(Format::RemoteWrite(Version::One), body, &at.1)
                .await
        }
    };
    for _ in 0..16 {
        accept().await.expect("a place in the queue");
    }
    let began = Instant::now();
    let mut requests: JoinSet<_> = (0..20).map(|_| accept()).collect();
    let mut waited = Vec::new();
    while let Some(answer) = requests.join_next().await {
        let answer = answer.expect("an answer");
        assert!(matches!(answer, Err(Refused::Busy)), "{answer:?}");
        waited.push(began.elapsed().as_secs());
    }
    assert_eq!(waited, [[0; 4].as_slice(), &[1; 16]].concat());
}

#[tokio::test]
async fn it_is_off_by_default() {
    let at = serve(small()).await;
    let (status, _, said) = push(&at, request(Version::One)).await;
    assert_eq!(status, 404);
    assert!(said.contains("[push]"), "{said}");
}

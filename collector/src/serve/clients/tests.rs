//! Slow clients are closed in time, and never delay others.

use std::net::SocketAddr;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct Server {
    at: SocketAddr,
    counts: Arc<Counts>,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

async fn start(limits: Limits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let slow = || async {
        sleep(SECOND).await;
        "late"
    };
    let routes = Router::new().route("/", get(|| async { "fast" }));
    let routes = routes.route("/slow", get(slow));
    let (stop, stopped) = oneshot::channel::<()>();
    let counts = Arc::new(Counts::default());
    let counted = Arc::clone(&counts);
    let ended = tokio::spawn(async move {
        let stopped = async {
            stopped.await.ok();
        };
        serve(listener, routes, limits, counted, stopped).await;
    });
    Server {
        at,
        counts,
        stop,
        ended,
    }
}

fn limits(connections: usize) -> Limits {
    Limits {
        connections,
        first_request: 5 * SECOND,
        idle: 5 * SECOND,
    }
}

async fn connect(server: &Server, begin: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.at).await.expect("connected");
    stream.write_all(begin.as_bytes()).await.expect("sent");
    stream
}

/// Sends a request and reads until the response has this end.
async fn ask(stream: &mut TcpStream, path: &str, end: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let byte = timeout(3 * SECOND, stream.read_u8()).await;
        answer.push(byte.expect("in time").expect("an answer"));
    }
}

/// Waits until the server closes the connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let read = timeout(3 * SECOND, stream.read_to_end(&mut rest)).await;
    read.is_ok() && rest.is_empty()
}

#[tokio::test]
async fn at_the_limit_the_client_that_waits_longest_is_replaced() {
    let server = start(limits(4)).await;
    let mut slow = Vec::new();
    // The start of HTTP/1, of HTTP/2, and nothing at all.
    for begin in ["GET / HT", "PRI * HT", "", "GET /"] {
        slow.push(connect(&server, begin).await);
    }
    for _ in 0..3 {
        let mut honest = connect(&server, "").await;
        ask(&mut honest, "/", "fast").await;
        drop(honest);
    }
    assert!(is_closed(&mut slow[0]).await, "the oldest");
    assert_eq!(server.counts.closed()[0], ("timeout", 0));
    assert!((1..=3).contains(&server.counts.closed()[1].1));
}

#[tokio::test]
async fn a_client_whose_request_is_being_answered_is_replaced_last() {
    let server = start(limits(2)).await;
    let mut honest = connect(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(SECOND / 10).await;
    for _ in 0..20 {
        connect(&server, "GET").await;
    }
    let mut answer = [0; 15];
    let read = timeout(3 * SECOND, honest.read_exact(&mut answer)).await;
    read.expect("in time").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn a_client_that_does_not_complete_a_request_is_closed_in_time() {
    let mut limits = limits(4);
    limits.first_request = SECOND / 5;
    let server = start(limits).await;
    let mut slow = connect(&server, "GET / HTTP/1.1\r\nhost").await;
    let mut honest = connect(&server, "").await;
    ask(&mut honest, "/", "fast").await;
    assert!(is_closed(&mut slow).await);
    assert_eq!(server.counts.closed(), [("timeout", 1), ("limit", 0)]);
    // It has sent a request: it may wait longer.
    sleep(SECOND / 5).await;
    ask(&mut honest, "/slow", "late").await;
    assert_eq!(server.counts.open(), 1);
}

#[tokio::test]
async fn a_shutdown_lets_requests_end_and_closes_the_others() {
    let server = start(limits(4)).await;
    let mut slow = connect(&server, "GET / HT").await;
    let mut idle = connect(&server, "").await;
    ask(&mut idle, "/", "fast").await;
    let mut honest = connect(&server, "GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(SECOND / 10).await;
    server.stop.send(()).expect("running");
    let mut answer = [0; 15];
    honest.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    assert!(is_closed(&mut idle).await);
    // A half request is not waited for longer than its time: `run_beside` ends after its grace.
    slow.write_all(b"x").await.ok();
    drop(slow);
    let ended = timeout(3 * SECOND, server.ended).await;
    assert!(ended.is_ok());
}

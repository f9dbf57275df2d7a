//! Clients of the collector's own server that never complete a request.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Collector, targets};

const CLIENTS: usize = 2_000;
/// The begins of their requests: HTTP/1, HTTP/2, a body that does not come, and nothing.
const BEGINS: [&str; 4] = [
    "GET /metrics HTTP/1.1\r\nx: ",
    "PRI * HTTP/2.0\r\n",
    "POST /api/v1/maintenance HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n",
    "",
];

/// Connects, and again when it is closed; sends a byte now and then.
async fn dribble(address: String, begin: &'static str) {
    loop {
        if let Ok(mut peer) = TcpStream::connect(&address).await {
            let mut sent = peer.write_all(begin.as_bytes()).await;
            while sent.is_ok() {
                sleep(Duration::from_millis(500)).await;
                sent = peer.write_all(b"x").await;
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_slow_clients_delay_neither_the_web_server_nor_the_scrapes() {
    let address = targets::start().await;
    let collector = Collector::start(&format!(
        "[scrape]\ninterval = \"500ms\"\n[analysis]\ninterval = \"200ms\"\n[[targets]]\nnode = \"good\"\nurl = \"http://{address}/good\"\n"
    ))
    .await;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let address = collector.at.replace("http://", "");
        clients.spawn(dribble(address, BEGINS[number % BEGINS.len()]));
    }
    for _ in 0..10 {
        for path in ["/metrics", "/-/ready"] {
            let (status, text) = collector.get(path).await;
            assert!(
                status == 200 || path == "/-/ready",
                "{path}: {status} {text}"
            );
        }
        sleep(Duration::from_millis(150)).await;
    }
    let nodes = collector.nodes().await;
    let target = &nodes["good"]["target"];
    assert!(
        target["age_seconds"].as_f64().is_some_and(|age| age < 5.0),
        "{target}"
    );
    assert_eq!(collector.get("/-/ready").await.0, 200);
    clients.shutdown().await;
    collector.stop().await;
}

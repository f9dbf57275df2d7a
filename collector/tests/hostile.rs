//! Hostile targets of all kinds at once, with one valid target: each is classified, and the valid one is scraped normally.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use railscope_collector::config::Config;
use railscope_collector::service::run;
use railscope_model::exposition::gzip;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

const GOOD: &str = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";
/// Kinds of targets with their expected results.
const KINDS: &[(&str, &[&str])] = &[
    ("good", &["ok"]),
    ("comments", &["empty"]),
    ("empty", &["empty"]),
    ("html", &["html"]),
    ("other", &["unrecognized"]),
    ("broken", &["malformed"]),
    ("binary", &["malformed"]),
    ("long-line", &["malformed"]),
    ("many-labels", &["malformed"]),
    ("no-gzip", &["malformed"]),
    ("missing", &["malformed"]),
    ("redirect", &["malformed"]),
    ("cut-gzip", &["malformed", "unreachable"]),
    ("cut", &["malformed", "unreachable"]),
    ("garbage", &["unreachable"]),
    ("closes", &["unreachable"]),
    ("drip", &["timeout"]),
    ("silent", &["timeout"]),
    ("bomb", &["too_large"]),
    ("endless", &["too_large"]),
    ("distinct", &["partial"]),
    ("half", &["partial"]),
    ("twice", &["ok"]),
    ("reversed", &["ok"]),
];

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{head}\r\n");
    [head.as_bytes(), body].concat()
}

fn zipped(text: &[u8], keep: usize) -> Vec<u8> {
    let zipped = gzip(text).expect("gzip");
    let part = &zipped[..zipped.len().min(keep)];
    answer("content-encoding: gzip\r\n", part)
}

/// Response of a target of this kind.
fn bytes(kind: &str) -> Vec<u8> {
    let plain = |text: &str| answer("", text.as_bytes());
    let series = |device: usize| GOOD.replace("mlx5_0", &format!("mlx5_{device}"));
    match kind {
        "comments" => plain("# HELP a b\n# TYPE a gauge\n"),
        "empty" => plain(""),
        "html" => plain("<!DOCTYPE html>\n<html><body>Sign in 200</body></html>\n"),
        "other" => plain("up 1\nnothing_that_railscope_knows 2\n"),
        "broken" => plain(&"broken{\n".repeat(20_000)),
        "binary" => answer("", &[0xff; 1000]),
        "long-line" => plain(&"x".repeat(500_000)),
        "many-labels" => {
            let labels: String = (0..10_000).map(|one| format!("l{one}=\"\",")).collect();
            plain(&GOOD.replace('{', &format!("{{{labels}")))
        }
        "no-gzip" => answer("content-encoding: gzip\r\n", GOOD.as_bytes()),
        "missing" => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "redirect" => {
            let to = b"HTTP/1.1 302 Found\r\nlocation: /redirect\r\ncontent-length: 0\r\n\r\n";
            to.to_vec()
        }
        "cut-gzip" => zipped(GOOD.repeat(1000).as_bytes(), 40),
        "cut" => [
            b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n",
            GOOD.as_bytes(),
        ]
        .concat(),
        "garbage" => b"\x15\x03\x03\x00\x02\x02\x28".to_vec(),
        "bomb" => zipped(&vec![b'\n'; 5 << 20], usize::MAX),
        "distinct" => plain(&(0..25_000).map(series).collect::<String>()),
        "half" => plain(&format!("{GOOD}broken{{\n")),
        "twice" => plain(&GOOD.repeat(2)),
        "reversed" => plain(&(0..500).rev().map(series).collect::<String>()),
        _ => plain(GOOD),
    }
}

async fn serve(mut peer: TcpStream) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(peer.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request);
    let kind = request.split(['/', ' ', '?']).nth(2).unwrap_or_default();
    let endless = b"HTTP/1.1 200 OK\r\n\r\n";
    match kind {
        "closes" => Ok(()),
        "silent" => std::future::pending().await,
        "drip" => {
            peer.write_all(endless).await?;
            loop {
                peer.write_all(b"a").await?;
                sleep(Duration::from_millis(200)).await;
            }
        }
        "endless" => {
            peer.write_all(endless).await?;
            loop {
                peer.write_all(GOOD.as_bytes()).await?;
            }
        }
        other => peer.write_all(&bytes(other)).await,
    }
}

async fn targets() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address").to_string();
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            tokio::spawn(serve(peer));
        }
    });
    address
}

/// State of each node, after all have been scraped.
async fn nodes(at: &str) -> BTreeMap<String, Value> {
    loop {
        let answer = reqwest::get(format!("{at}/api/v1/nodes"))
            .await
            .expect("answer");
        let text = answer.text().await.expect("text");
        let nodes: Value = serde_json::from_str(&text).expect("JSON");
        let items = nodes["items"].as_array().cloned().unwrap_or_default();
        let scraped = |node: &Value| node["target"]["last"].is_string();
        if items.len() == KINDS.len() && items.iter().all(scraped) {
            let name = |node: &Value| node["node"].as_str().unwrap_or_default().to_owned();
            return items.into_iter().map(|node| (name(&node), node)).collect();
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hostile_target_is_classified_and_does_not_affect_the_others() {
    let address = targets().await;
    let mut config = String::from(
        "[scrape]\ninterval = \"4s\"\ntimeout = \"3s\"\nmax_body_bytes = 4000000\n[analysis]\ninterval = \"500ms\"\n",
    );
    for (kind, _) in KINDS {
        config += &format!("[[targets]]\nnode = \"{kind}\"\nurl = \"http://{address}/{kind}\"\n");
    }
    let config = Config::parse(&config, std::path::Path::new("c.toml")).expect("valid");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let at = format!("http://{}", listener.local_addr().expect("address"));
    let (stop, stopped) = oneshot::channel::<()>();
    let service = tokio::spawn(run(config, listener, async move {
        stopped.await.ok();
    }));
    let nodes = tokio::time::timeout(Duration::from_secs(60), nodes(&at)).await;
    let nodes = nodes.expect("each is scraped");
    for (kind, expected) in KINDS {
        let (node, target) = (&nodes[*kind], &nodes[*kind]["target"]);
        let last = target["last"].as_str().unwrap_or_default();
        assert!(expected.contains(&last), "{kind}: {node}");
        let is_read = matches!(last, "ok" | "partial");
        assert_eq!(target["up"], Value::from(is_read), "{kind}: {node}");
        // An unreadable target yields no state of its node.
        let is_known = node["state"] != "unknown";
        assert!(is_read || !is_known, "{kind}: {node}");
    }
    stop.send(()).expect("running");
    let ended = tokio::time::timeout(Duration::from_secs(10), service).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
}

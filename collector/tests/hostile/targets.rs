//! Targets with all kinds of invalid responses: one server, whose path is the kind of its response.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use railscope_model::exposition::gzip;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const GOOD: &str = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";
/// The name and boot time that the valid target reports.
const MACHINE: &str = "railscope_node_info{node=\"good\"} 1\nrailscope_node_boot_time_seconds 7\n";
/// Whether the target [`FAULTY`] has its fault.
pub(super) static IS_FAULTY: AtomicBool = AtomicBool::new(false);
/// A valid target with two ports; one port goes down when [`IS_FAULTY`] is set.
pub(super) const FAULTY: &str = "faulty";
/// Pause between two parts of a slow response.
const PAUSE: Duration = Duration::from_millis(200);

/// Kinds of targets with their expected results.
pub(super) const KINDS: &[(&str, &[&str])] = &[
    ("good", &["ok"]),
    (FAULTY, &["ok"]),
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
    ("other-node", &["other_node"]),
    ("changed-types", &["ok"]),
    ("infinities", &["ok", "partial"]),
    ("far-times", &["ok"]),
    ("long-label", &["malformed"]),
    ("alternates", &["ok", "html"]),
    ("utf-16", &["malformed"]),
    ("unknown-coding", &["malformed"]),
    ("error-page", &["malformed"]),
    ("short-length", &["malformed"]),
    ("two-lengths", &["unreachable"]),
    ("bad-chunks", &["unreachable", "malformed"]),
    ("banner", &["unreachable"]),
    ("no-head", &["unreachable"]),
    ("endless-head", &["unreachable"]),
    ("endless-interim", &["unreachable", "timeout"]),
    ("slow-head", &["timeout"]),
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

/// The page of the target [`FAULTY`].
fn faulty() -> String {
    let up = u8::from(!IS_FAULTY.load(Ordering::Relaxed));
    format!(
        "railscope_node_info{{node=\"{FAULTY}\"}} 1\n\
         railscope_node_boot_time_seconds 7\n\
         {GOOD}\
         railscope_rdma_port_up{{device=\"mlx5_1\",port=\"1\"}} {up}\n"
    )
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
        "bomb" => zipped(&vec![b'\n'; 3 << 20], usize::MAX),
        "distinct" => plain(&(0..25_000).map(series).collect::<String>()),
        "half" => plain(&format!("{GOOD}broken{{\n")),
        "twice" => plain(&GOOD.repeat(2)),
        "reversed" => plain(&(0..500).rev().map(series).collect::<String>()),
        FAULTY => plain(&faulty()),
        "good" | "other-node" => plain(&format!("{MACHINE}{GOOD}")),
        other => nonsense(other),
    }
}

/// Responses whose values, encoding or frame are wrong.
fn nonsense(kind: &str) -> Vec<u8> {
    let plain = |text: &str| answer("", text.as_bytes());
    let head = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{GOOD}").into_bytes();
    match kind {
        "changed-types" => plain(&format!(
            "# TYPE railscope_rdma_port_up histogram\n{GOOD}# TYPE railscope_rdma_port_up counter\n"
        )),
        "infinities" => plain(
            &["NaN", "+Inf", "-Inf", "1e999", "-0", "1"]
                .map(|value| GOOD.replace("} 1", &format!("}} {value}")))
                .concat(),
        ),
        "far-times" => plain(&GOOD.replace("} 1", "} 1 9223372036854775807")),
        "long-label" => plain(&GOOD.replace("mlx5_0", &"x".repeat(1_000_000))),
        "utf-16" => {
            let units = GOOD.encode_utf16().flat_map(u16::to_le_bytes);
            answer(
                "",
                &[0xff, 0xfe].into_iter().chain(units).collect::<Vec<_>>(),
            )
        }
        "unknown-coding" => answer("content-encoding: br\r\n", &[0x8b; 500]),
        "error-page" => format!(
            "HTTP/1.1 500 Oh\r\ncontent-length: {}\r\n\r\n{GOOD}",
            GOOD.len()
        )
        .into_bytes(),
        "short-length" => head("content-length: 12"),
        "two-lengths" => head("content-length: 12\r\ncontent-length: 13"),
        "bad-chunks" => head("transfer-encoding: chunked"),
        "banner" => b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        "no-head" => GOOD.repeat(100).into_bytes(),
        _ => plain(GOOD),
    }
}

/// Sends a head, then the same part for ever.
async fn endless(peer: &mut TcpStream, head: &str, part: &str, pause: Duration) -> io::Result<()> {
    peer.write_all(head.as_bytes()).await?;
    loop {
        peer.write_all(part.as_bytes()).await?;
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

async fn serve(mut peer: TcpStream, number: usize) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(peer.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request);
    let kind = request.split(['/', ' ', '?']).nth(2).unwrap_or_default();
    let head = "HTTP/1.1 200 OK\r\n";
    let body = "HTTP/1.1 200 OK\r\n\r\n";
    let header = "x-y: z\r\n".repeat(1_000);
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let many = GOOD.repeat(1_000);
    let now = Duration::ZERO;
    match kind {
        "closes" => Ok(()),
        "silent" => std::future::pending().await,
        "drip" => endless(&mut peer, body, "a", PAUSE).await,
        "endless" => endless(&mut peer, body, &many, now).await,
        "slow-head" => endless(&mut peer, head, "x", PAUSE).await,
        "endless-head" => endless(&mut peer, head, &header, now).await,
        "endless-interim" => endless(&mut peer, "", interim, PAUSE / 100).await,
        "alternates" if number.is_multiple_of(2) => peer.write_all(&bytes("html")).await,
        other => peer.write_all(&bytes(other)).await,
    }
}

/// Starts the server; returns its address.
pub(super) async fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address").to_string();
    tokio::spawn(async move {
        let mut number = 0;
        while let Ok((peer, _)) = listener.accept().await {
            number += 1;
            tokio::spawn(serve(peer, number));
        }
    });
    address
}

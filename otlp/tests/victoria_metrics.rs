//! A real VictoriaMetrics accepts an exposition by OTLP and returns it by name.
//!
//! Debian's package (1.79) is older than its OTLP receiver; the variable `VICTORIA_METRICS` can name a newer program.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::start::{EXPOSITION, at, start};

/// Kills the process that the test started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            let _status = self.0.wait();
        }
    }
}

fn skip(why: &str) {
    let line = format!("SKIPPED: victoria_metrics: {why}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr");
}

/// The program, if it is installed and has an OTLP receiver.
fn program() -> Result<String, String> {
    let program =
        std::env::var("VICTORIA_METRICS").unwrap_or_else(|_| "victoria-metrics".to_owned());
    let help = Command::new(&program).arg("-help").output();
    let help = help.map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = [help.stdout, help.stderr].concat();
    match String::from_utf8_lossy(&text).contains("opentelemetry") {
        true => Ok(program),
        false => Err(format!(
            "{program} has no OTLP receiver: expected version 1.92 or later"
        )),
    }
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.0 200").then_some(text)
}

/// Queries until the response contains a text, 30 s at most.
async fn until(address: &str, path: &str, expected: &str) {
    for _ in 0..300 {
        if get(address, path).is_some_and(|text| text.contains(expected)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "not within 30 s: {path} {expected}: {:?}",
        get(address, path)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victoria_metrics_returns_what_was_sent_by_otlp() {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skip(&why),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address")
        .port();
    let address = format!("127.0.0.1:{port}");
    let child = Command::new(program)
        .arg(format!("-httpListenAddr={address}"))
        .arg(format!("-storageDataPath={}", folder.path().display()))
        .arg("-search.latencyOffset=0s")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("VictoriaMetrics");
    let _running = Running(child);
    until(&address, "/health", "OK").await;
    let url = format!("http://{address}/opentelemetry/v1/metrics");
    let mut otlp = start(&[
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &url),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
    ]);
    otlp.export_metrics(at(1_700_000_000), || EXPOSITION.to_owned());
    let stats = otlp.shutdown().await.metrics;
    assert_eq!((stats.items_sent, stats.dropped()), (4, 0), "{stats:?}");
    for (series, value) in [
        (
            "{__name__=\"hw.network.io\",network.io.direction=\"receive\"}",
            "\"2000\"",
        ),
        ("{__name__=\"hw.power\",hw.id=\"gpu/0\"}", "\"71.5\""),
        ("{__name__=\"railscope.gpu_power_limit_watts\"}", "\"700\""),
    ] {
        let escaped: String = series.bytes().map(|byte| format!("%{byte:02x}")).collect();
        until(
            &address,
            &format!("/api/v1/query?nocache=1&query={escaped}"),
            value,
        )
        .await;
    }
}

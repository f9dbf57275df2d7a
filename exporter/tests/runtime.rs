//! The exporter as a whole: isolation of samplers, and the exposition as a scraper sees it.

use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use railscope_exporter::sampler::{Presence, SampleError, Sampler};
use railscope_exporter::{Exporter, Limits, serve};
use railscope_model::exposition::Format;
use railscope_model::metric::{
    GPU_PERFORMANCE_STATE, NODE, NODE_CPUS, NODE_NUMA_NODES, Profile, SOURCE_AGE, SOURCE_DURATION,
    SOURCE_LATE,
};
use railscope_model::reading::{Labels, NodeReading, Status};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const PERIOD: Duration = Duration::from_millis(20);
const LIMITS: Limits = Limits {
    stale_periods: 2,
    stale_at_least: Duration::from_millis(400),
};

/// Counts its samples, and adds one series that only the full profile shows.
struct Steady(AtomicU64);

/// Reads a number from a FIFO: blocks, like a driver, until one is written.
struct Fifo(PathBuf);

/// Fails, for ever.
struct Broken(io::ErrorKind);

/// Gets the age of its values from elsewhere.
struct Relayed;

impl Sampler for Steady {
    fn name(&self) -> &'static str {
        "steady"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        reading.push(&NODE_CPUS, &Labels::default(), count);
        reading.push(&NODE, &Labels::new(["own", "6.1", "x86_64", "", ""]), true);
        reading.push(&GPU_PERFORMANCE_STATE, &Labels::new(["0"]), 2_u32);
        Ok(Presence::Present)
    }
}

impl Sampler for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let text = std::fs::read_to_string(&self.0).map_err(|cause| SampleError {
            what: self.0.display().to_string(),
            cause,
        })?;
        let value: u64 = text.trim().parse().expect("a number");
        reading.push(&NODE_NUMA_NODES, &Labels::default(), value);
        Ok(Presence::Present)
    }
}

impl Sampler for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn sample(&mut self, _reading: &mut NodeReading) -> Result<Presence, SampleError> {
        Err(SampleError {
            what: "/sys/broken".to_owned(),
            cause: self.0.into(),
        })
    }
}

impl Sampler for Relayed {
    fn name(&self) -> &'static str {
        "relayed"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let labels = Labels::new([self.name()]);
        reading.push(&SOURCE_AGE, &labels, 100.0);
        reading.push(&SOURCE_DURATION, &labels, 7.0);
        reading.push(&SOURCE_LATE, &labels, 50.0);
        reading.push_status(self.name(), "3", Status::Timeout);
        Ok(Presence::Present)
    }
}

fn start(samplers: Vec<Box<dyn Sampler>>) -> Exporter {
    Exporter::start_samplers(samplers, LIMITS, None).expect("threads start")
}

fn steady() -> Box<dyn Sampler> {
    Box::new(Steady(AtomicU64::new(1)))
}

fn text(exporter: &Exporter, profile: Profile) -> String {
    let body = exporter.page().body(profile, Format::Text, false);
    String::from_utf8(body.to_vec()).expect("UTF-8")
}

/// The value of a series in the default profile. Without labels it may be written with or without `{}`.
fn value(exporter: &Exporter, series: &str) -> Option<f64> {
    value_in(Profile::Default, exporter, series)
}

fn full_value(exporter: &Exporter, series: &str) -> Option<f64> {
    value_in(Profile::Full, exporter, series)
}

fn value_in(profile: Profile, exporter: &Exporter, series: &str) -> Option<f64> {
    let page = text(exporter, profile).replace("{} ", " ");
    let value = |line: &str| {
        line.strip_prefix(series)?
            .strip_prefix(' ')
            .map(str::to_owned)
    };
    let value = page.lines().find_map(value)?;
    Some(value.parse().expect("a number"))
}

fn status(exporter: &Exporter, source: &str, device: &str, status: &str) -> bool {
    let labels = format!(r#"{{source="{source}",device="{device}",status="{status}"}}"#);
    value(exporter, &format!("railscope_source_status{labels}")) == Some(1.0)
}

fn age(exporter: &Exporter, source: &str) -> f64 {
    let series = format!(r#"railscope_source_age_seconds{{source="{source}"}}"#);
    value(exporter, &series).expect("every source has an age")
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn fifo() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    (dir, path)
}

#[test]
fn a_sampler_that_hangs_costs_only_itself_and_recovers() {
    let (_dir, path) = fifo();
    let exporter = start(vec![Box::new(Fifo(path.clone())), steady()]);
    assert!(!status(&exporter, "fifo", "", "ok"), "nothing was read yet");

    std::fs::write(&path, "4").expect("the sampler reads");
    eventually("the value is on the page", || {
        value(&exporter, "railscope_node_numa_nodes") == Some(4.0)
    });
    assert!(status(&exporter, "fifo", "", "ok"));

    // From here on the FIFO blocks.
    eventually("the status says so", || {
        status(&exporter, "fifo", "", "timeout")
    });
    assert_eq!(value(&exporter, "railscope_node_numa_nodes"), None, "stale");
    assert!(!status(&exporter, "fifo", "", "ok"));
    assert!(age(&exporter, "fifo") > LIMITS.stale_at_least.as_secs_f64());
    let older = age(&exporter, "fifo");
    let count = value(&exporter, "railscope_node_cpus");
    eventually("the age grows", || age(&exporter, "fifo") > older);
    assert!(status(&exporter, "steady", "", "ok"));
    assert!(
        value(&exporter, "railscope_node_cpus") > count,
        "others stay fresh"
    );

    std::fs::write(&path, "5").expect("the sampler reads again");
    eventually("the new value is on the page", || {
        value(&exporter, "railscope_node_numa_nodes") == Some(5.0)
    });
    assert!(status(&exporter, "fifo", "", "ok"));
    assert!(age(&exporter, "fifo") < older);
}

#[test]
fn stopping_leaves_a_sampler_that_hangs_behind() {
    let (_dir, path) = fifo();
    let exporter = start(vec![Box::new(Fifo(path)), steady()]);
    let begun = Instant::now();
    drop(exporter);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn stopping_does_not_wait_for_a_period() {
    let exporter = start(vec![steady()]);
    let begun = Instant::now();
    drop(exporter);
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_sampler_that_fails_says_so_and_counts() {
    for (kind, said) in [
        (io::ErrorKind::Other, "failed"),
        (io::ErrorKind::PermissionDenied, "denied"),
        (io::ErrorKind::InvalidData, "unparsed"),
    ] {
        let exporter = start(vec![Box::new(Broken(kind)), steady()]);
        eventually(said, || status(&exporter, "broken", "", said));
        let errors = r#"railscope_source_errors_total{source="broken"}"#;
        eventually("errors are counted", || {
            value(&exporter, errors) > Some(2.0)
        });
        eventually("the steady sampler is ok", || {
            status(&exporter, "steady", "", "ok")
        });
    }
}

#[test]
fn a_sampler_that_knows_the_age_of_its_values_is_believed() {
    let exporter = start(vec![Box::new(Relayed)]);
    eventually("read", || status(&exporter, "relayed", "", "ok"));
    assert!(age(&exporter, "relayed") >= 100.0);
    let duration = r#"railscope_source_duration_seconds{source="relayed"}"#;
    assert_eq!(full_value(&exporter, duration), Some(7.0));
    let late = r#"railscope_source_late_seconds_total{source="relayed"}"#;
    assert!(full_value(&exporter, late).is_some_and(|late| (50.0..100.0).contains(&late)));
    assert!(status(&exporter, "relayed", "3", "timeout"));
    assert_eq!(
        value(&exporter, "railscope_exporter_dropped_samples_total"),
        Some(0.0)
    );
}

#[test]
fn the_page_counts_its_own_series_and_holds_each_once() {
    let exporter = start(vec![steady()]);
    eventually("read", || status(&exporter, "steady", "", "ok"));
    for (name, profile) in [("default", Profile::Default), ("full", Profile::Full)] {
        let page = text(&exporter, profile);
        let series: Vec<_> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.rsplit_once(' ').expect("a value").0)
            .collect();
        let unique: HashSet<_> = series.iter().collect();
        assert_eq!(unique.len(), series.len());
        let own = format!(
            "railscope_exporter_series{{profile=\"{name}\"}} {}\n",
            series.len()
        );
        assert!(page.contains(&own), "{own}{page}");
    }
}

#[test]
fn the_configured_node_name_stands_in_place_of_the_host_name() {
    let named = Exporter::start_samplers(vec![steady()], LIMITS, Some("rack7-n3".to_owned()));
    let exporter = named.expect("threads start");
    let info = r#"railscope_node_info{node="rack7-n3",kernel="6.1""#;
    eventually("named", || text(&exporter, Profile::Default).contains(info));
    assert!(!text(&exporter, Profile::Default).contains(r#"node="own""#));
}

#[test]
fn scrapers_share_one_rendering() {
    let exporter = start(Vec::new());
    let page = exporter.page();
    assert!(Arc::ptr_eq(&page, &exporter.page()), "nothing new was read");
    thread::sleep(Duration::from_millis(1100));
    assert!(!Arc::ptr_eq(&page, &exporter.page()), "ages have grown");
}

/// What a scraper gets: status, headers in lower case, body.
struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }
}

fn get(address: SocketAddr, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
    )
    .expect("sends");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("receives");
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("headers end");
    let headers = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    Answer {
        status: headers[9..12].parse().expect("a status"),
        body: bytes[end + 4..].to_vec(),
        headers,
    }
}

/// Serves on a free port while `scrape` runs, and stops. Returns how long stopping took.
fn while_served(exporter: Exporter, scrape: impl FnOnce(SocketAddr) + Send) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = runtime.spawn(serve(Arc::new(exporter), listener, async {
        stopped.await.ok();
    }));
    scrape(address);
    let begun = Instant::now();
    stop.send(()).expect("still served");
    runtime
        .block_on(serving)
        .expect("no panic")
        .expect("no error");
    begun.elapsed()
}

#[test]
fn metrics_come_in_the_format_profile_and_encoding_that_was_asked_for() {
    let exporter = start(vec![steady()]);
    eventually("read", || status(&exporter, "steady", "", "ok"));
    while_served(exporter, |address| {
        let plain = get(address, "/metrics", "");
        assert_eq!(plain.status, 200);
        assert!(
            plain
                .headers
                .contains("content-type: text/plain; version=0.0.4; charset=utf-8")
        );
        assert!(plain.headers.contains("vary: accept, accept-encoding"));
        assert!(!plain.headers.contains("content-encoding"));
        assert!(plain.text().contains("\nrailscope_node_cpus"));
        assert!(!plain.text().contains("railscope_gpu_performance_state"));

        let prometheus = "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.4\r\nAccept-Encoding: gzip\r\n";
        let zipped = get(address, "/metrics?profile=full", prometheus);
        assert_eq!(zipped.status, 200);
        assert!(
            zipped.headers.contains(
                "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"
            )
        );
        assert!(zipped.headers.contains("content-encoding: gzip"));
        let mut text = String::new();
        let mut unzipped = flate2::read::GzDecoder::new(&*zipped.body);
        unzipped.read_to_string(&mut text).expect("gzip");
        assert!(
            text.contains("railscope_gpu_performance_state{gpu=\"0\"} 2\n"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));

        let kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let framed = get(
            address,
            "/metrics",
            &format!("Accept: {kind}, text/plain;q=0.5\r\n"),
        );
        let expected = format!("content-type: {}", kind.to_ascii_lowercase());
        assert!(framed.headers.contains(&expected), "{}", framed.headers);
        let help = NODE_CPUS.help.as_bytes();
        assert!(framed.body.windows(help.len()).any(|bytes| bytes == help));
    });
}

#[test]
fn a_wrong_request_is_told_what_to_ask() {
    while_served(start(vec![steady()]), |address| {
        for (path, status, sentence) in [
            (
                "/metrics?profile=big",
                400,
                "expected profile=default or profile=full",
            ),
            (
                "/metrics?collect=rdma",
                400,
                "expected profile=default or profile=full, or none",
            ),
            ("/metric", 404, "expected /, /metrics or /-/healthy"),
            ("/-/healthy", 200, "healthy"),
            ("/", 200, "<a href=\"/metrics\">"),
        ] {
            let answer = get(address, path, "");
            assert_eq!(answer.status, status, "{path}");
            assert!(
                answer.text().contains(sentence),
                "{path}: {}",
                answer.text()
            );
        }
        assert!(
            get(address, "/", "")
                .text()
                .contains(env!("CARGO_PKG_VERSION"))
        );
    });
}

#[test]
fn stopping_does_not_wait_for_clients_that_keep_their_connection() {
    let mut kept = Vec::new();
    let stopping = while_served(start(vec![steady()]), |address| {
        for sent in ["GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n", "GET /met", ""] {
            let mut stream = TcpStream::connect(address).expect("connects");
            stream.write_all(sent.as_bytes()).expect("sends");
            if sent.ends_with("\r\n\r\n") {
                stream.read_exact(&mut [0; 12]).expect("answers");
            }
            kept.push(stream);
        }
    });
    assert!(stopping < Duration::from_secs(10), "{stopping:?}");
}

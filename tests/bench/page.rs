//! Cost of the web page and the API at 100,000 GPUs: the collector's own routes over loopback, of a simulated cluster.
//!
//! `RAILSCOPE_NODES=128 cargo bench -p railscope --bench page` for fewer than 12,500 nodes. With Chromium installed
//! it also prints how long that takes to load and draw the web page, beside an empty one.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use railscope_collector::analyzer::Analyzer;
use railscope_collector::config::Config;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::serve::router::router;
use railscope_collector::status::{Snapshot, State};
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::show::lldp;
use railscope_simulator::show::readings::{Exporters, switches};
use railscope_simulator::spec::ClusterSpec;

const NODES: u16 = 12_500;
const START: Timestamp = Timestamp(1_800_000_000_000);
/// Ticks of 10 s: incidents are open after two.
const TICKS: u64 = 4;
/// Faults to show on the web page.
const CAUSES: [&str; 4] = ["gpu-thermal", "port-down", "uplink-down", "switch-down"];
const REQUESTS: usize = 200;
/// How often the fabric is built from readings.
const BUILT: usize = 5;
/// How often a browser draws the web page.
const DRAWN: usize = 5;
const PATHS: [&str; 6] = [
    "/",
    "/api/v1/incidents",
    "/api/v1/nodes",
    "/api/v1/topology",
    "/api/v1/topology/structure",
    "/metrics",
];

fn main() {
    // `cargo test --benches` only checks that it can be built.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let nodes = std::env::var("RAILSCOPE_NODES").ok();
    let nodes = nodes.map_or(NODES, |nodes| {
        nodes.parse().expect("RAILSCOPE_NODES: a number")
    });
    let state = watched(nodes);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(async move { axum::serve(listener, router(Arc::new(state))).await });
    println!("{:<28} {:>9} {:>9} {:>9}", "path", "kB", "p50 ms", "p99 ms");
    for path in PATHS {
        let mut bytes = 0;
        let mut times: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let begun = Instant::now();
                bytes = get(address, path);
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let (half, high) = (times[REQUESTS / 2], times[REQUESTS * 99 / 100]);
        println!(
            "{path:<28} {:>9.1} {half:>9.2} {high:>9.2}",
            bytes as f64 / 1e3
        );
    }
    in_a_browser(&format!("http://{address}/"));
}

/// The collector's state after some ticks of a cluster in which things break.
fn watched(nodes: u16) -> State {
    let spec = format!(
        "nodes = {nodes}\ntransport = \"roce\"\nswitches = {{ radix = 64, tiers = 3 }}\n\
         wiring = {{ kind = \"rail-only\", nodes_per_su = 32 }}"
    );
    let spec: ClusterSpec = toml::from_str(&spec).expect("a description");
    let mut cluster = Cluster::new(spec, 1).expect("a cluster");
    for (seed, cause) in (1..).zip(CAUSES) {
        let fault = examples::fault(&cluster, cause, seed, 1.0).expect(cause);
        cluster.inject(fault).expect(cause);
    }
    let exporters = Exporters::of(&cluster);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    let config = Config::parse("", std::path::Path::new("bench.toml")).expect("valid");
    let now = || START.plus_seconds(10.0 * TICKS as f64);
    let state = State::new(&config, now);
    for tick in 0..=TICKS {
        let seconds = 10 * tick;
        let at = START.plus_seconds(seconds as f64);
        cluster.advance(Duration::from_secs(seconds));
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, at);
        }
        for (switch, reading) in switches(&cluster) {
            analyzer.ingest_switch(&switch, &reading, at);
        }
        let told: BTreeMap<_, _> = lldp::switches(&cluster).into_iter().collect();
        for (switch, text) in told {
            analyzer.take_switch(&switch, parse_neighbors(&text), at);
        }
        let begun = Instant::now();
        let view = analyzer.tick(at);
        println!(
            "tick at {seconds} s: {:.2?}, {} incidents",
            begun.elapsed(),
            view.incidents.len()
        );
        state.publish(Snapshot::new(view));
    }
    let times = (0..BUILT).map(|_| {
        let begun = Instant::now();
        let built = black_box(analyzer.built(now()));
        let took = begun.elapsed();
        drop(built);
        took
    });
    let mut times: Vec<_> = times.collect();
    times.sort();
    println!(
        "fabric from readings, with LLDP, the middle of {BUILT}: {:.2?}",
        times[BUILT / 2]
    );
    state
}

/// Fetches a page; its bytes with the head.
fn get(address: SocketAddr, path: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("sends");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{path}");
    answer.len()
}

/// The page and an empty one alternately, as a browser's first start reads its program from the disk.
fn in_a_browser(page: &str) {
    let urls = ["about:blank", page];
    let rounds: Option<Vec<_>> = (0..DRAWN)
        .map(|_| Some([drawn(urls[0])?, drawn(urls[1])?]))
        .collect();
    let Some(rounds) = rounds else {
        println!("SKIPPED: drawing the page: no chromium here");
        return;
    };
    let [empty, page] = [0, 1].map(|which| {
        let mut times: Vec<_> = rounds.iter().map(|round| round[which]).collect();
        times.sort();
        times[DRAWN / 2]
    });
    println!(
        "Chromium, start to drawn, the middle of {DRAWN}: {page:.2?}, an empty page {empty:.2?}"
    );
}

/// How long Chromium takes from its start until the page is drawn; none where it is not installed.
fn drawn(url: &str) -> Option<Duration> {
    let folder = tempfile::tempdir().expect("a folder");
    let begun = Instant::now();
    let ended = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
        .args([
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
        ])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(format!(
            "--screenshot={}",
            folder.path().join("page.png").display()
        ))
        .arg(url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    ended.success().then(|| begun.elapsed())
}

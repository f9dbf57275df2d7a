//! A collector with more targets than its limit of open files allows: its own web server must go on answering.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Http, Process, RAILSCOPE, free_port, wait_for};

/// Targets, each with its own address: connections are kept by address.
const TARGETS: usize = 150;
const PATIENCE: Duration = Duration::from_secs(60);
/// Intervals during which the web server is queried after all targets were reached.
const ASKED: usize = 10;
const PAGE: &str = "# TYPE railscope_node_cpus gauge\nrailscope_node_cpus 4\n";

/// Serves all targets on one port of all addresses of the loopback interface; its connections stay open.
fn serve_targets() -> (tokio::runtime::Runtime, u16) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("0.0.0.0:0"));
    let listener = listener.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let routes = Router::new().route("/metrics", get(|| async { PAGE }));
    runtime.spawn(async move { axum::serve(listener, routes).await });
    (runtime, port)
}

/// A collector of all targets, started by a shell that sets its limits before.
struct Collector {
    process: Process,
    url: String,
    _folder: tempfile::TempDir,
}

impl Collector {
    fn start(limits: &str, port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = "[cluster]\nname = \"many\"\n[scrape]\ninterval = \"1s\"\n".to_owned();
        for target in 0..TARGETS {
            let address = format!("127.0.1.{}:{port}", target + 1);
            let url = format!("http://{address}/metrics");
            write!(
                config,
                "[[targets]]\nnode = \"n{target}\"\nurl = \"{url}\"\n"
            )
            .expect("text");
        }
        let file = folder.path().join("collector.toml");
        std::fs::write(&file, config).expect("a configuration");
        let address = format!("127.0.0.1:{}", free_port());
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("{limits}; exec \"$0\" \"$@\""))
            .args([RAILSCOPE, "collector", "--web.listen-address", &address])
            .arg("--config")
            .arg(&file);
        let process = Process::start("collector", folder.path(), &mut shell);
        Self {
            process,
            url: format!("http://{address}/metrics"),
            _folder: folder,
        }
    }

    /// Its metrics by series, over a connection that is new each time.
    fn metrics(&self) -> Result<BTreeMap<String, f64>, String> {
        let page = Http::new().get(&self.url)?;
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        Ok(samples.collect())
    }

    /// Waits until it has reached every target, and holds it to answering from then on.
    fn reaches_all_and_answers(&self) {
        let up = |metrics: &BTreeMap<String, f64>| {
            let targets = metrics.iter();
            let up = targets.filter(|(name, _)| name.starts_with("railscope_collector_target_up{"));
            up.filter(|(_, value)| **value == 1.0).count()
        };
        wait_for("answer with all targets up", PATIENCE, || {
            match up(&self.metrics()?) {
                TARGETS => Ok(()),
                up => Err(format!("{up} targets up: {}", self.process.tail())),
            }
        });
        for _ in 0..ASKED {
            let metrics = self.metrics().expect("the collector's own metrics");
            assert_eq!(up(&metrics), TARGETS, "{}", self.process.tail());
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Whether it reports that its limit is too low.
    fn is_short(&self) -> f64 {
        let metrics = self.metrics().expect("the collector's own metrics");
        metrics["railscope_collector_open_files_short"]
    }

    fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(folder).expect("procfs").count()
    }
}

#[test]
fn a_soft_limit_of_open_files_below_the_number_of_targets_is_raised() {
    let (_targets, port) = serve_targets();
    let collector = Collector::start("ulimit -Hn 1024; ulimit -Sn 64", port);
    collector.reaches_all_and_answers();
    assert!(collector.open_files() > TARGETS, "connections stay open");
    let log = collector.process.output();
    assert!(!log.contains("too few open files"), "{log}");
    assert_eq!(collector.is_short(), 0.0);
}

#[test]
fn under_a_hard_limit_below_the_number_of_targets_all_are_scraped_and_the_web_server_answers() {
    let (_targets, port) = serve_targets();
    let collector = Collector::start("ulimit -n 64", port);
    collector.reaches_all_and_answers();
    assert!(collector.open_files() < 64);
    let log = collector.process.output();
    let warnings = log.matches("too few open files for the targets").count();
    assert_eq!(warnings, 1, "{log}");
    assert_eq!(collector.is_short(), 1.0);
    assert!(!log.contains("scrape failed"), "{log}");
}

/// Connects so many clients that never complete a request, and again when they are closed, until it is over.
fn dribble(address: &str, clients: usize, is_over: &AtomicBool) {
    let mut streams: Vec<Option<TcpStream>> = (0..clients).map(|_| None).collect();
    while !is_over.load(Ordering::Relaxed) {
        for stream in &mut streams {
            let sent = stream.as_mut().map(|stream| stream.write_all(b"G"));
            if !matches!(sent, Some(Ok(()))) {
                *stream = TcpStream::connect(address).ok();
            }
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Ends what runs until this is set.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn more_slow_clients_than_the_limit_of_open_files_delay_neither_scrapes_nor_the_web_server() {
    // The clients of this test need more than the usual soft limit.
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("the hard limit");
    let (_targets, port) = serve_targets();
    let collector = Collector::start("ulimit -n 1024", port);
    let address = collector.url.replace("http://", "");
    let address = address.trim_end_matches("/metrics");
    collector.reaches_all_and_answers();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| dribble(address, 2_000, &is_over));
        thread::sleep(Duration::from_secs(2));
        // Ends the clients also if an assertion fails, so that the scope ends.
        let _ends = Ends(&is_over);
        collector.reaches_all_and_answers();
    });
    let metrics = collector.metrics().expect("the collector's own metrics");
    let replaced = metrics["railscope_collector_clients_closed_total{reason=\"limit\"}"];
    assert!(replaced > 0.0, "{replaced}");
    assert!(collector.open_files() < 1_024);
}

#[test]
fn the_units_allow_as_many_open_files_as_the_largest_site_needs() {
    for unit in ["railscope-collector.service", "railscope-exporter.service"] {
        let file = crate::support::root().join("packaging/systemd").join(unit);
        let text = std::fs::read_to_string(file).expect("a unit");
        let limit = text
            .lines()
            .find_map(|line| line.strip_prefix("LimitNOFILE="));
        let limit: u64 = limit.expect("a limit").parse().expect("a number");
        assert!(limit >= 65_536, "{unit}: {limit}");
    }
}

//! `railscope exporter` as a service: starts, is scraped, stops, and leaves no worker behind.

#![allow(clippy::expect_used)] // helpers of tests; clippy lets only the tests themselves

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use railscope_simulator::nvml::{NodeGpus, install};

const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");

/// A started exporter; killed if a test fails half way.
struct Exporter {
    process: Child,
    address: String,
}

impl Exporter {
    fn start(library: &Path) -> Self {
        Self::start_with(library, &[])
    }

    fn start_with(library: &Path, arguments: &[String]) -> Self {
        let mut process = Command::new(RAILSCOPE)
            .args(["exporter", "--web.listen-address", "127.0.0.1:0"])
            .args(arguments)
            .args(["--node.name", "rack7-n3", "--nvml.library"])
            .arg(library)
            .env("RAILSCOPE_NVML_PERIOD", "1s")
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut address = None;
        while address.is_none() {
            let mut line = String::new();
            assert!(
                log.read_line(&mut line).expect("a log") > 0,
                "ended before it listened"
            );
            let said = line.split_once("listening on http://");
            address = said.and_then(|(_, rest)| Some(rest.split_once('/')?.0.to_owned()));
        }
        // Somebody has to read the rest, or the exporter blocks on a full pipe.
        thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self {
            process,
            address: address.unwrap_or_default(),
        }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        answer
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether an NVML worker runs that was told to load this library.
fn worker_runs(library: &Path) -> bool {
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    let commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let library = library.to_string_lossy();
    commands
        .map(|command| String::from_utf8_lossy(&command).into_owned())
        .any(|command| command.contains("nvml-worker") && command.contains(&*library))
}

#[test]
fn it_serves_what_the_worker_reads_and_stops_when_asked() {
    for signal in ["-TERM", "-INT"] {
        let dir = tempfile::tempdir().expect("a folder");
        let library = install(dir.path(), &NodeGpus::h100(2)).expect("installs");
        let mut exporter = Exporter::start(&library);
        eventually("GPUs are on the page", || {
            exporter
                .get("/metrics")
                .contains("railscope_gpu_power_watts{gpu=\"1\"}")
        });
        assert!(
            exporter
                .get("/metrics")
                .contains("railscope_node_info{node=\"rack7-n3\"")
        );
        assert!(exporter.get("/-/healthy").starts_with("HTTP/1.1 200"));
        assert!(worker_runs(&library));
        let _kept_open = TcpStream::connect(&exporter.address).expect("connects");
        exporter.signal(signal);
        assert!(exporter.process.wait().expect("ends").success(), "{signal}");
        assert!(!worker_runs(&library), "{signal}");
    }
}

#[test]
fn a_worker_outlives_no_exporter_even_one_that_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let library = install(dir.path(), &NodeGpus::h100(1)).expect("installs");
    let exporter = Exporter::start(&library);
    eventually("the worker runs", || worker_runs(&library));
    exporter.signal("-KILL");
    eventually("the worker ends", || !worker_runs(&library));
}

#[test]
fn wrong_arguments_say_what_was_expected() {
    for (arguments, said) in [
        (
            &["--web.listen-address", "nonsense"][..],
            "expected host:port or :port",
        ),
        (&["--nvml.period", "0.1s"], "at least 1s"),
        (&["--log", "==="], "--log"),
        (
            &["--web.config.file", "/nowhere/web.yml"],
            "cannot read /nowhere/web.yml",
        ),
    ] {
        let output = Command::new(RAILSCOPE)
            .arg("exporter")
            .args(arguments)
            .output();
        let output = output.expect("runs");
        assert!(!output.status.success());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(said), "{error}");
    }
}

/// The contract of the default profile, on the whole page: 8 GPUs x 18 NVLinks, 8 NICs (and a ninth for
/// storage), every sampler, everything that only a second sample brings.
#[test]
fn the_default_page_of_a_whole_node_stays_within_600_series() {
    for machine in ["hgx-h100-ib", "hgx-h200-roce"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/machines")
            .join(machine);
        let dir = tempfile::tempdir().expect("a folder");
        let library = install(dir.path(), &NodeGpus::h100(8)).expect("installs");
        let below = |flag: &str, path: &str| format!("--path.{flag}={}", root.join(path).display());
        let roots = [
            below("sysfs", "sys"),
            below("procfs", "proc"),
            below("network-recordings", "network"),
        ];
        let exporter = Exporter::start_with(&library, &roots);
        let series = || {
            let page = exporter.get("/metrics");
            page.lines()
                .filter(|line| line.starts_with("railscope_"))
                .count()
        };
        // Peak rates need a window, GPUs a worker that has started: wait until nothing more appears.
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut most = 0;
        let mut quiet = 0;
        while quiet < 12 && Instant::now() < deadline {
            let now = series();
            quiet = if now > most { 0 } else { quiet + 1 };
            most = most.max(now);
            thread::sleep(Duration::from_millis(500));
        }
        println!("{machine}: {most} series");
        let full = exporter.get("/metrics?profile=full");
        assert!(
            full.contains("railscope_rdma_port_peak_transmit_bytes_per_second"),
            "{machine}"
        );
        assert!(full.contains("railscope_gpu_nvlinks_active"), "{machine}");
        assert!(most <= 600, "{machine}: {most} series by default");
    }
}

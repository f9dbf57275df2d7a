//! `railscope exporter` as a service: starts, is scraped, stops, and leaves no worker behind.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::service::{Exporter, RAILSCOPE};
use railscope_simulator::show::nvml::{NodeGpus, install};

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether an NVML worker runs that was configured to load this library.
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

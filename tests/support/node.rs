//! One node for tests: a copy of a fixture machine with simulated GPUs, and the real exporter that reads it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use railscope_simulator::show::nvml::{NodeGpus, install, update_state};

use super::{Process, RAILSCOPE, root, wait_for};

/// How long a test waits for anything that has to happen at all; machines that run tests are slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// A scrape that takes longer is blocked. Prometheus gives up after 10 s by default.
const SCRAPE_LIMIT: Duration = Duration::from_secs(10);

/// A node and its exporter.
pub(crate) struct Node {
    /// Its `sys`, `proc` and `network`.
    pub(crate) root: PathBuf,
    /// State of its GPUs; see [`Node::change_gpus`].
    pub(crate) gpus: NodeGpus,
    /// The exporter.
    pub(crate) process: Process,
    address: String,
    dir: tempfile::TempDir,
}

impl Node {
    /// Copies a fixture machine, gives it 8 GPUs and starts the exporter on it. `limits` is what a shell does
    /// before: `ulimit -n 128`, or nothing (`:`).
    pub(crate) fn start(machine: &str, limits: &str, arguments: &[&str]) -> Self {
        Self::start_with(machine, |_| (), limits, arguments)
    }

    /// As [`Node::start`], with something done to the machine before.
    pub(crate) fn start_with(
        machine: &str,
        prepare: impl FnOnce(&Path),
        limits: &str,
        arguments: &[&str],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let tree = dir.path().join("machine");
        copy(&root().join("tests/machines").join(machine), &tree);
        prepare(&tree);
        let gpus = NodeGpus::h100(8);
        let library = install(dir.path(), &gpus).expect("installs");
        // A debug build of the tests can try a release build of the binary.
        let binary = std::env::var("RAILSCOPE_BINARY").unwrap_or_else(|_| RAILSCOPE.to_owned());
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("{limits}; exec \"$@\""),
                "sh",
                &binary,
                "exporter",
            ])
            .args(["--web.listen-address", "127.0.0.1:0", "--node.name", "n1"])
            .arg("--nvml.library")
            .arg(library)
            .args(arguments)
            .env("RAILSCOPE_NVML_PERIOD", "1s");
        for (flag, below) in [
            ("sysfs", "sys"),
            ("procfs", "proc"),
            ("network-recordings", "network"),
        ] {
            command.arg(format!("--path.{flag}={}", tree.join(below).display()));
        }
        let mut process = Process::start("exporter", dir.path(), &mut command);
        process.wait_for_output("/metrics", PATIENCE);
        let output = process.output();
        let said = output
            .split_once("listening on http://")
            .expect("an address")
            .1;
        let address = said.split_once('/').expect("a path").0.to_owned();
        Self {
            root: tree,
            gpus,
            process,
            address,
            dir,
        }
    }

    /// Changes the state of the GPUs, while the worker runs.
    pub(crate) fn change_gpus(&mut self, change: impl FnOnce(&mut NodeGpus)) {
        change(&mut self.gpus);
        update_state(self.dir.path(), &self.gpus).expect("writes");
    }

    /// Scrapes a path; the body as it comes over the wire. Fails if there is no response in time.
    pub(crate) fn scrape(&self, path: &str, gzip: bool) -> Vec<u8> {
        let encoding = if gzip {
            "Accept-Encoding: gzip\r\n"
        } else {
            ""
        };
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream
            .set_read_timeout(Some(SCRAPE_LIMIT))
            .expect("a limit");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n{encoding}\r\n"
        )
        .expect("sends");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answers in time");
        assert!(
            answer.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("headers end");
        answer.split_off(end + 4)
    }

    /// Every series of an exposition, and its value.
    pub(crate) fn page(&self, path: &str) -> BTreeMap<String, f64> {
        let text = String::from_utf8(self.scrape(path, false)).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                (series.to_owned(), value.parse().expect("a number"))
            })
            .collect()
    }

    /// The value of one series of the full profile.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        self.page("/metrics?profile=full").get(series).copied()
    }

    /// Time since a source was last read to its end, seconds.
    pub(crate) fn age(&self, source: &str) -> f64 {
        let series = format!("railscope_source_age_seconds{{source=\"{source}\"}}");
        self.value(&series).expect("every source has an age")
    }

    /// Whether a source, or one device of it, has this status.
    pub(crate) fn has_status(&self, source: &str, device: &str, status: &str) -> bool {
        let series = format!(
            "railscope_source_status{{source=\"{source}\",device=\"{device}\",status=\"{status}\"}}"
        );
        self.value(&series).is_some()
    }

    /// Waits until something holds; fails with what it waited for.
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        wait_for(what, PATIENCE, || {
            holds(self).then_some(()).ok_or_else(|| self.process.tail())
        });
    }

    /// The NVML worker that runs now.
    pub(crate) fn worker(&self) -> Option<u32> {
        let children = format!("/proc/{0}/task", self.process.id());
        let tasks = fs::read_dir(children).ok()?.flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = lists
            .flat_map(|list| {
                list.split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        children.into_iter().find(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("nvml-worker")
        })
    }
}

/// Copies a tree with its links as they are.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .expect("cp");
    assert!(copied.success(), "cp {}", from.display());
}

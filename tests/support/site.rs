//! A demo under a real Prometheus and Alertmanager with the shipped rules.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Demo, Http, Process, Sink, encoded, free_port, root, wait_for, which};

/// How long a server may take to start.
const LIMIT: Duration = Duration::from_secs(60);

/// A command by the name of a Debian package's program.
pub(crate) fn tool(name: &str) -> Command {
    Command::new(which(name).unwrap_or_else(|| PathBuf::from(name)))
}

/// A shipped file with some texts replaced, each of which must be present.
pub(crate) fn adapted(file: &str, changes: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(root().join(file)).expect("a shipped file");
    for (from, to) in changes {
        assert!(text.contains(from), "{file} holds no {from:?} any more");
        text = text.replace(from, to);
    }
    text
}

/// Demo, Prometheus and Alertmanager, each on its own port.
pub(crate) struct Site {
    /// The cluster, its exporters and the collector.
    pub(crate) demo: Demo,
    /// The server that scrapes them.
    pub(crate) prometheus: Process,
    /// Its address, without a slash at the end.
    pub(crate) prometheus_url: String,
    _alertmanager: Process,
    /// The test's HTTP client.
    pub(crate) http: Http,
    _folder: tempfile::TempDir,
}

impl Site {
    /// Starts them; the demo with these arguments, and Alertmanager's receiver.
    pub(crate) fn start(sink: &Sink, arguments: &[&str]) -> Self {
        Self::start_with(sink, arguments, &[])
    }

    /// The same with other times in the rules.
    pub(crate) fn start_with(sink: &Sink, arguments: &[&str], times: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let http = Http::new();
        let [prometheus_at, alertmanager_at] =
            [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let demo = Demo::start(folder.path(), arguments);
        let demo_at = demo.url.trim_start_matches("http://");
        wait_for("collector", LIMIT, || {
            http.get(&format!("{}/-/ready", demo.url))
        });

        let alertmanager = alertmanager(folder.path(), &alertmanager_at, sink.port);
        let prometheus = prometheus(
            folder.path(),
            [&prometheus_at, &alertmanager_at, demo_at],
            times,
        );
        let prometheus_url = format!("http://{prometheus_at}");
        wait_for("Prometheus", LIMIT, || {
            http.get(&format!("{prometheus_url}/-/ready"))
        });
        Self {
            demo,
            prometheus,
            prometheus_url,
            _alertmanager: alertmanager,
            http,
            _folder: folder,
        }
    }

    /// Samples of an instant query.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let answer = self.http.json(&format!(
            "{}/api/v1/query?query={}",
            self.prometheus_url,
            encoded(expression)
        ))?;
        let samples = answer.pointer("/data/result").and_then(Value::as_array);
        samples
            .cloned()
            .ok_or_else(|| format!("{expression}: {answer}"))
    }
}

fn prometheus(
    folder: &Path,
    [at, alertmanager, collector]: [&str; 3],
    times: &[(&str, &str)],
) -> Process {
    let alerts = adapted("alerts/railscope.rules.yml", times);
    std::fs::write(folder.join("railscope.rules.yml"), alerts).expect("rules");
    // Seconds, as everything here.
    let recording = adapted(
        "alerts/railscope-recording.rules.yml",
        &[("interval: 30s", "interval: 2s")],
    );
    std::fs::write(folder.join("railscope-recording.rules.yml"), recording).expect("rules");
    let links = adapted(
        "alerts/railscope-links.rules.yml",
        &[("collector.example:10661", collector)],
    );
    std::fs::write(folder.join("railscope-links.rules.yml"), links).expect("rules");
    let config = adapted(
        "packaging/prometheus.example.yml",
        &[
            ("15s", "2s"),
            ("60s", "2s"),
            ("collector.example:10661", collector),
            ("alertmanager.example:9093", alertmanager),
            ("my-cluster", "demo"),
        ],
    );
    std::fs::write(folder.join("prometheus.yml"), config).expect("a configuration");
    let mut command = tool("prometheus");
    command
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=prometheus-data")
        .arg(format!("--web.listen-address={at}"));
    Process::start("prometheus", folder, command.stdin(Stdio::null()))
}

fn alertmanager(folder: &Path, at: &str, sink: u16) -> Process {
    let config = adapted(
        "alerts/alertmanager.example.yml",
        // Seconds, so that the test does not have to wait; grouping and inhibition stay.
        &[
            ("group_wait: 30s", "group_wait: 1s"),
            ("group_interval: 5m", "group_interval: 2s"),
            ("127.0.0.1:9095", &format!("127.0.0.1:{sink}")),
        ],
    );
    std::fs::write(folder.join("alertmanager.yml"), config).expect("a configuration");
    let mut command = tool("prometheus-alertmanager");
    command
        .arg("--config.file=alertmanager.yml")
        .arg("--storage.path=alertmanager-data")
        .arg(format!("--web.listen-address={at}"))
        .arg("--cluster.listen-address=");
    Process::start("alertmanager", folder, command.stdin(Stdio::null()))
}

//! Recordings stored in a real Prometheus and a real VictoriaMetrics, read back: the same incidents as of the recordings.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use railscope_collector::replay::pack::Pack;
use serde_json::Value;

use crate::push::scrape_config;
use crate::support::site::tool;
use crate::support::{Demo, Http, Process, RAILSCOPE, free_port, need, root, run, wait_for};

const LIMIT: Duration = Duration::from_secs(120);
/// Time between two scrapes of the recordings.
const INTERVAL_SECONDS: f64 = 10.0;
/// A fault that ends, and scrapes that failed before an exporter was restarted.
const PACKS: [&str; 2] = ["fault-ends", "lost-scrapes"];

/// Labels of each target by its instance, as Prometheus has them.
fn target_labels(pack: &Path) -> BTreeMap<String, Vec<(String, String)>> {
    let text = std::fs::read_to_string(pack.join("targets.json")).expect("targets");
    let groups: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let groups = groups.iter().map(|group| {
        let labels = group["labels"].as_object().expect("labels");
        let labels = labels.iter().filter(|(name, _)| !name.starts_with("__"));
        let labels: Vec<_> = labels
            .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
            .collect();
        let instance = group["labels"]["instance"].as_str().expect("an instance");
        (instance.to_owned(), labels)
    });
    groups.collect()
}

/// A sample as Prometheus stores it: with the labels of the target, and those of the exporter of the same name renamed.
fn stored(line: &str, target: &[(String, String)], time: &str) -> String {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let mut labels = format!(",{}", labels.trim_end().trim_end_matches('}'));
    let mut all = String::new();
    for (label, value) in target {
        let (own, renamed) = (format!(",{label}=\""), format!(",exported_{label}=\""));
        labels = labels.replace(&own, &renamed);
        write!(all, "{label}=\"{value}\",").expect("text");
    }
    all += labels.trim_start_matches(',');
    let all = all.trim_end_matches(',');
    format!("{}{{{all}}} {value} {time}\n", name.trim_end())
}

/// All scrapes of a recording as samples with times; `seconds` or milliseconds.
fn exported(pack: &Path, in_seconds: bool) -> String {
    let labels = target_labels(pack);
    let mut text = String::new();
    for line in Pack::open(pack)
        .expect("a pack")
        .scrapes()
        .expect("scrapes")
    {
        let (_, line) = line.expect("valid");
        let target = &labels[&line.origin.instance];
        let time = match in_seconds {
            true => format!("{:.3}", line.at.as_seconds()),
            false => line.at.0.to_string(),
        };
        let up = if line.answer.is_ok() { "up 1" } else { "up 0" };
        text += &stored(up, target, &time);
        let body = line.answer.unwrap_or_default();
        let samples = body
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        samples.for_each(|sample| text += &stored(sample, target, &time));
    }
    text
}

/// A Prometheus that has stored the recording, and its URL.
fn prometheus(pack: &Path, folder: &Path) -> (Process, String) {
    std::fs::write(folder.join("samples.om"), exported(pack, true) + "# EOF\n").expect("written");
    let mut blocks = tool("promtool");
    blocks.args(["tsdb", "create-blocks-from", "openmetrics"]);
    blocks.args([folder.join("samples.om"), folder.join("data")]);
    let (is_done, output) = run(&mut blocks, LIMIT);
    assert!(is_done, "{output}");
    std::fs::write(folder.join("prometheus.yml"), "scrape_configs: []\n").expect("written");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = tool("prometheus");
    command
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=data")
        .arg("--storage.tsdb.retention.time=100y")
        .arg(format!("--web.listen-address={address}"));
    let process = Process::start("prometheus", folder, command.stdin(Stdio::null()));
    let (http, url) = (Http::new(), format!("http://{address}"));
    wait_for("Prometheus", LIMIT, || http.get(&format!("{url}/-/ready")));
    (process, url)
}

/// A VictoriaMetrics that has stored the recording, and its URL.
fn victoria_metrics(pack: &Path, folder: &Path) -> (Process, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = tool("victoria-metrics");
    command
        .arg("-storageDataPath=data")
        .arg("-retentionPeriod=100y")
        .arg(format!("-httpListenAddr={address}"));
    let process = Process::start("victoria", folder, command.stdin(Stdio::null()));
    let (http, url) = (Http::new(), format!("http://{address}"));
    wait_for("VictoriaMetrics", LIMIT, || {
        http.get(&format!("{url}/health"))
    });
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let send = client
        .post(format!("{url}/api/v1/import/prometheus"))
        .body(exported(pack, false))
        .send();
    let status = http.block_on(send).expect("an answer").status();
    assert!(status.is_success(), "{status}");
    http.get(&format!("{url}/internal/force_flush"))
        .expect("flushed");
    (process, url)
}

/// What `railscope replay ARGUMENTS --json` prints.
fn replay(arguments: &[&str]) -> String {
    let mut command = Command::new(RAILSCOPE);
    let output = command.arg("replay").args(arguments).arg("--json").output();
    let output = output.expect("railscope runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    print!("{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// An incident without its id: component, class, severity, when it opened and closed.
type Incident = (String, String, String, f64, Option<f64>);

fn incidents(verdicts: &str) -> Vec<Incident> {
    let mut all = BTreeMap::<String, Incident>::new();
    for line in verdicts.lines() {
        let change: Value = serde_json::from_str(line).expect("JSON");
        let incident = &change["incident"];
        let text = |key: &str| incident[key].as_str().expect(key).to_owned();
        let time = change["t"].as_f64().expect("a time");
        let (component, class, severity) = (text("component"), text("class"), text("severity"));
        let one = (component, class, severity, time, None);
        let known = all.entry(text("id")).or_insert(one);
        if change["event"] == "closed" {
            known.4 = Some(time);
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by(|one, other| one.3.total_cmp(&other.3));
    all
}

/// Fails unless these are the same incidents, within one scrape interval.
fn are_the_same(name: &str, expected: &str, found: &str) {
    let all = format!("{name}\nrecording:\n{expected}\nread back:\n{found}");
    let (expected, found) = (incidents(expected), incidents(found));
    assert_eq!(expected.len(), found.len(), "{all}");
    let is_close = |one: f64, other: f64| (one - other).abs() <= INTERVAL_SECONDS;
    for (one, other) in expected.iter().zip(&found) {
        assert_eq!(
            (&one.0, &one.1, &one.2),
            (&other.0, &other.1, &other.2),
            "{all}"
        );
        assert!(is_close(one.3, other.3), "{all}");
        match (one.4, other.4) {
            (Some(one), Some(other)) => assert!(is_close(one, other), "{all}"),
            (None, None) => {}
            _ => panic!("{all}"),
        }
    }
    println!("{name}: {} incidents, equal", expected.len());
}

/// Stores these recordings, reads each of them back, and compares.
fn reads_back(start: impl Fn(&Path, &Path) -> (Process, String), packs: &[&str]) {
    for name in packs {
        let pack = root().join("tests/packs").join(name);
        let folder = tempfile::tempdir().expect("a folder");
        let (mut process, url) = start(&pack, folder.path());
        let expected = replay(&[&pack.to_string_lossy()]);
        let config = pack.join("railscope.toml").display().to_string();
        let saved = folder.path().join("saved").display().to_string();
        let with_login = url.replace("http://", "http://user:a-password@");
        let span = ["--from", "1764000000", "--to", "1764000700"];
        let from = [
            "--prometheus",
            &with_login,
            "--config",
            &config,
            "--save",
            &saved,
        ];
        let found = replay(&[&from[..], &span].concat());
        are_the_same(name, &expected, &found);
        assert_eq!(found, expected, "{name}: equal samples, equal verdicts");
        assert_eq!(replay(&[&saved]), found, "{name}: the saved recording");
        for file in Path::new(&saved).read_dir().expect("a recording") {
            let bytes = std::fs::read(file.expect("a file").path()).expect("bytes");
            let has = |word: &[u8]| bytes.windows(word.len()).any(|one| one == word);
            assert!(!has(b"a-password"), "{name}: a secret in the recording");
        }
        // Without a configuration: all exporters that a mapping recognizes, without fabric and plan.
        let found = replay(&[&["--prometheus", &url][..], &span].concat());
        let parts = |verdicts: &str| {
            let all = incidents(verdicts).into_iter();
            all.map(|one| (one.0, one.1)).collect::<Vec<_>>()
        };
        assert_eq!(
            parts(&found),
            parts(&expected),
            "{name}: without a configuration"
        );
        process.stop();
    }
}

/// Servers that scrape the demo themselves, each with its URL.
fn scraping(demo: &Demo, folder: &Path) -> Vec<(Process, String)> {
    std::fs::write(folder.join("scrape.yml"), scrape_config(demo)).expect("written");
    let start = |name: &str, config: &str, data: &str, listen: &str| {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = tool(name);
        command
            .args([config, data])
            .arg(format!("{listen}={address}"));
        let process = Process::start(name, folder, command.stdin(Stdio::null()));
        (process, format!("http://{address}"))
    };
    vec![
        start(
            "prometheus",
            "--config.file=scrape.yml",
            "--storage.tsdb.path=prometheus-data",
            "--web.listen-address",
        ),
        start(
            "victoria-metrics",
            "-promscrape.config=scrape.yml",
            "-storageDataPath=victoria-data",
            "-httpListenAddr",
        ),
    ]
}

#[test]
fn the_incident_of_a_demo_is_read_back_from_the_servers_that_scrape_it() {
    need!("prometheus", "victoria-metrics");
    let (folder, http) = (tempfile::tempdir().expect("a folder"), Http::new());
    let fault = ["--fault", "pcie-degraded", "--fault-after", "20s"];
    let mut demo = Demo::start(folder.path(), &[&["--nodes", "4"], &fault[..]].concat());
    let servers = scraping(&demo, folder.path());
    let incident = demo.wait_for_incident(&http, LIMIT);
    let since = incident["since"].as_f64().expect("a time");
    let [from, to] = [since - 60.0, since + 60.0].map(|time| time.to_string());
    for (process, url) in &servers {
        // Its last scrapes may not be stored yet.
        let found = wait_for("the incident", LIMIT, || {
            // VictoriaMetrics shows samples after a while.
            http.get(&format!("{url}/internal/force_flush")).ok();
            let found = incidents(&replay(&[
                "--prometheus",
                url,
                "--from",
                &from,
                "--to",
                &to,
            ]));
            let is_it =
                |one: &Incident| one.0 == incident["fault_domain"] && one.1 == incident["class"];
            let has_it = found.iter().any(is_it);
            has_it
                .then_some(found.clone())
                .ok_or_else(|| format!("{found:?}: {}", process.tail()))
        });
        assert_eq!(
            found.len(),
            1,
            "{url}: one fault, several incidents: {found:?}"
        );
        println!("{url}: {found:?}");
    }
    demo.stop();
}

#[test]
fn incidents_read_back_from_prometheus_are_those_of_the_recording() {
    need!("prometheus", "promtool");
    reads_back(prometheus, &PACKS[..1]);
}

#[test]
fn incidents_read_back_from_victoria_metrics_are_those_of_the_recording() {
    need!("victoria-metrics");
    reads_back(victoria_metrics, &PACKS[1..]);
}

#[test]
#[ignore = "slow: a minute in a debug build"]
fn slow_each_recording_is_read_back_from_each_server() {
    need!("prometheus", "promtool", "victoria-metrics");
    let all = [&PACKS[..], &["healthy"]].concat();
    reads_back(prometheus, &all);
    reads_back(victoria_metrics, &all);
}

//! A real Prometheus, a real vmagent and senders of OTLP push samples: the same incident as by scraping.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::otlp_sender::{self, By};
use crate::support::site::tool;
use crate::support::{Demo, Http, Process, RAILSCOPE, free_port, need, wait_for};

const DETECTED_WITHIN: Duration = Duration::from_secs(150);
const TOKEN: &str = "a-secret";

/// A collector without scrape targets, and its URL.
fn collector(folder: &Path, name: &str) -> (Process, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[cluster]\nname = {name:?}\n[web]\nlisten = \"{address}\"\n[analysis]\ninterval = \"2s\"\n\
         [push]\ntoken_file = \"token\"\n"
    );
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, config).expect("a configuration");
    std::fs::write(folder.join("token"), TOKEN).expect("a token");
    let mut command = Command::new(RAILSCOPE);
    command.arg("collector").arg("--config").arg(file);
    let process = Process::start(name, folder, command.stdin(Stdio::null()));
    (process, format!("http://{address}"))
}

/// Scrape configuration for Prometheus and vmagent.
pub(crate) fn scrape_config(demo: &Demo) -> String {
    format!(
        "global:\n  scrape_interval: 2s\nscrape_configs:\n  - job_name: railscope-exporter\n    params: {{profile: [full]}}\n    \
         http_sd_configs:\n      - url: {}/api/v1/sd\n",
        demo.url
    )
}

fn prometheus(folder: &Path, demo: &Demo, to: &str) -> Process {
    let config = scrape_config(demo)
        + &format!(
            "remote_write:\n  - url: {to}/api/v1/write\n    authorization: {{credentials: {TOKEN}}}\n    \
             queue_config: {{batch_send_deadline: 1s}}\n"
        );
    std::fs::write(folder.join("pushing.yml"), config).expect("a configuration");
    let mut command = tool("prometheus");
    command
        .arg("--config.file=pushing.yml")
        .arg("--storage.tsdb.path=pushing-data")
        .arg(format!("--web.listen-address=127.0.0.1:{}", free_port()));
    Process::start("prometheus", folder, command.stdin(Stdio::null()))
}

fn vmagent(folder: &Path, demo: &Demo, to: &str) -> Process {
    std::fs::write(folder.join("vmagent.yml"), scrape_config(demo)).expect("a configuration");
    let mut command = tool("vmagent");
    command
        .arg("-promscrape.config=vmagent.yml")
        .arg("-promscrape.httpSDCheckInterval=2s")
        .arg(format!("-remoteWrite.url={to}/api/v1/write"))
        .arg(format!("-remoteWrite.bearerToken={TOKEN}"))
        .arg("-remoteWrite.tmpDataPath=vmagent-data")
        .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port()));
    Process::start("vmagent", folder, command.stdin(Stdio::null()))
}

/// Part, class and GPUs of the incidents of a collector.
fn incidents(http: &Http, url: &str) -> Result<Vec<[Value; 3]>, String> {
    let answer = http.json(&format!("{url}/api/v1/incidents"))?;
    let list = answer["incidents"].as_array().ok_or("no list")?;
    let fields = |incident: &Value| {
        ["fault_domain", "class", "gpus_affected"].map(|field| incident[field].clone())
    };
    Ok(list.iter().map(fields).collect())
}

#[test]
fn pushed_samples_lead_to_the_same_incident() {
    need!("prometheus", "vmagent");
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, http) = (folder.path(), Http::new());
    let fault = ["--fault", "pcie-degraded", "--fault-after", "20s"];
    let mut demo = Demo::start(folder, &[&["--nodes", "8"], &fault[..]].concat());
    let (by_prometheus, first) = collector(folder, "by-prometheus");
    let (by_vmagent, second) = collector(folder, "by-vmagent");
    let (by_http, third) = collector(folder, "by-http");
    let (by_grpc, fourth) = collector(folder, "by-grpc");
    let _senders = [
        otlp_sender::start(By::Http, &demo.url, &third, TOKEN),
        otlp_sender::start(By::Grpc, &demo.url, &fourth, TOKEN),
    ];
    let _prometheus = prometheus(folder, &demo, &first);
    let _vmagent = vmagent(folder, &demo, &second);
    let scraped = demo.wait_for_incident(&http, DETECTED_WITHIN);
    let expected = ["fault_domain", "class", "gpus_affected"].map(|field| scraped[field].clone());
    for (process, url) in [
        (&by_prometheus, &first),
        (&by_vmagent, &second),
        (&by_http, &third),
        (&by_grpc, &fourth),
    ] {
        wait_for("the same incident", DETECTED_WITHIN, || {
            let found = incidents(&http, url)?;
            if found == [expected.clone()] {
                return Ok(());
            }
            let page = http.get(&format!("{url}/metrics"))?;
            let own = page
                .lines()
                .filter(|line| line.contains("_push_") && !line.starts_with('#'));
            let own: Vec<_> = own.collect();
            Err(format!("{found:?}\n{own:#?}\n{}", process.tail()))
        });
        let page = http.get(&format!("{url}/metrics")).expect("a page");
        for result in ["unauthorized", "malformed", "too_large"] {
            assert!(
                page.lines()
                    .any(|line| line.contains("_push_requests_total")
                        && line.contains(&format!("result=\"{result}\""))
                        && line.ends_with(" 0")),
                "{result}: {page}"
            );
        }
    }
    demo.stop();
}

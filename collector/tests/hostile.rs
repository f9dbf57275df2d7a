//! Hostile targets, hostile clients and a hostile disk: each is reported as what it is, and nothing else suffers.

mod clients;
mod disk;
mod targets;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use railscope_collector::config::Config;
use railscope_collector::service::{RunError, run};
use serde_json::Value;
use targets::{FAULTY, KINDS};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const INTERVAL_SECONDS: f64 = 4.0;

/// A running collector.
struct Collector {
    at: String,
    stop: oneshot::Sender<()>,
    service: JoinHandle<Result<(), RunError>>,
}

impl Collector {
    async fn start(config: &str) -> Self {
        let config = Config::parse(config, Path::new("c.toml")).expect("valid");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let at = format!("http://{}", listener.local_addr().expect("address"));
        let (stop, stopped) = oneshot::channel::<()>();
        let service = tokio::spawn(run(config, listener, async move {
            stopped.await.ok();
        }));
        Self { at, stop, service }
    }

    /// Status and body of a response, read over a new connection.
    async fn get(&self, path: &str) -> (u16, String) {
        let answer = timeout(
            Duration::from_secs(5),
            reqwest::get(format!("{}{path}", self.at)),
        );
        let answer = answer.await.expect("in time").expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("text"))
    }

    /// All nodes by name.
    async fn nodes(&self) -> BTreeMap<String, Value> {
        let (_, text) = self.get("/api/v1/nodes").await;
        let nodes: Value = serde_json::from_str(&text).expect("JSON");
        let items = nodes["items"].as_array().cloned().unwrap_or_default();
        let name = |node: &Value| node["node"].as_str().unwrap_or_default().to_owned();
        items.into_iter().map(|node| (name(&node), node)).collect()
    }

    /// Class and component of each open incident.
    async fn incidents(&self) -> Vec<(String, String)> {
        let (_, text) = self.get("/api/v1/incidents").await;
        let incidents: Value = serde_json::from_str(&text).expect("JSON");
        let incidents = incidents["incidents"].as_array().cloned();
        let text =
            |incident: &Value, field: &str| incident[field].as_str().unwrap_or_default().to_owned();
        let both = |one: &Value| (text(one, "class"), text(one, "fault_domain"));
        incidents.unwrap_or_default().iter().map(both).collect()
    }

    async fn stop(self) {
        self.stop.send(()).expect("running");
        let ended = timeout(Duration::from_secs(10), self.service).await;
        assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
    }
}

/// What does not match the expected result of this node's target.
fn differs(node: &Value, expected: &[&str]) -> Option<String> {
    let target = &node["target"];
    let last = target["last"].as_str().unwrap_or_default();
    let is_read = matches!(last, "ok" | "partial");
    // An unreadable target yields no state of its node, except where it was readable before.
    let is_known = node["state"] != "unknown" && expected.iter().all(|one| !one.starts_with("ok"));
    let is_right = expected.contains(&last) && target["up"] == is_read && (is_read || !is_known);
    (!is_right).then(|| format!("expected {expected:?}: {node}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hostile_target_is_classified_and_a_fault_beside_them_is_named() {
    let address = targets::start().await;
    let mut config = format!(
        "[scrape]\ninterval = \"{INTERVAL_SECONDS}s\"\ntimeout = \"2s\"\nmax_body_bytes = 2000000\n[analysis]\ninterval = \"500ms\"\n",
    );
    for (kind, _) in KINDS {
        config += &format!("[[targets]]\nnode = \"{kind}\"\nurl = \"http://{address}/{kind}\"\n");
    }
    let collector = Collector::start(&config).await;
    let mut wrong = Vec::new();
    let began = Instant::now();
    // Of one that was never read, the age is that of the collector.
    let is_current = |nodes: &BTreeMap<String, Value>| {
        let good = nodes.get("good");
        let age = good.and_then(|node| node["target"]["age_seconds"].as_f64());
        let age = age.unwrap_or_else(|| began.elapsed().as_secs_f64());
        assert!(
            age < 2.0 * INTERVAL_SECONDS,
            "the valid target is {age} s old"
        );
    };
    let all_as_expected = async {
        loop {
            let nodes = collector.nodes().await;
            is_current(&nodes);
            let node = |kind: &str| nodes.get(kind).unwrap_or(&Value::Null);
            let kinds = KINDS.iter();
            wrong = kinds
                .filter_map(|(kind, expected)| differs(node(kind), expected))
                .collect();
            if wrong.is_empty() {
                return;
            }
            sleep(Duration::from_millis(250)).await;
        }
    };
    let ended = timeout(Duration::from_secs(60), all_as_expected).await;
    assert!(ended.is_ok(), "{wrong:#?}");
    targets::IS_FAULTY.store(true, Ordering::Relaxed);
    let (held, mut is_named) = (Instant::now(), false);
    while held.elapsed().as_secs_f64() < 3.0 * INTERVAL_SECONDS || !is_named {
        let waited = held.elapsed().as_secs_f64();
        assert!(waited < 6.0 * INTERVAL_SECONDS, "no incident of the port");
        is_current(&collector.nodes().await);
        let found = collector.incidents().await;
        let port = [("port-down".to_owned(), format!("link/{FAULTY}:mlx5_1/1"))];
        assert!(found.is_empty() || found == port, "{found:?}");
        is_named |= !found.is_empty();
        sleep(Duration::from_millis(250)).await;
    }
    assert!(KINDS.len() > 33, "the two valid ones and 32 others");
    collector.stop().await;
}

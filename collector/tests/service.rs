//! The whole service against exporters that live in the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use railscope_collector::config::Config;
use railscope_collector::service::{RunError, run};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Serves these routes; their address.
async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address.to_string()
}

/// Serves a page for each node; `bad` has a line that cannot be read.
async fn exporters() -> String {
    let page = |Path(node): Path<String>| async move {
        let up = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";
        if node == "bad" {
            format!("{up}broken{{\n")
        } else {
            up.to_owned()
        }
    };
    serve(Router::new().route("/{node}/metrics", get(page))).await
}

/// A service that runs.
struct Running {
    stop: oneshot::Sender<()>,
    service: JoinHandle<Result<(), RunError>>,
}

impl Running {
    /// Starts it; its address, too.
    async fn start(config: Config) -> (String, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let at = format!("http://{}", listener.local_addr().expect("address"));
        let (stop, stopped) = oneshot::channel::<()>();
        let service = tokio::spawn(run(config, listener, async move {
            stopped.await.ok();
        }));
        (at, Self { stop, service })
    }

    /// It ends without an error, soon after it was told to.
    async fn stop(self) {
        self.stop.send(()).expect("running");
        let ended = tokio::time::timeout(Duration::from_secs(5), self.service).await;
        assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
    }
}

async fn json(url: &str) -> Value {
    let answer = reqwest::get(url).await.expect("answer");
    let text = answer.text().await.expect("text");
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_scrapes_what_file_sd_names_judges_it_and_stops_when_told() {
    let exporters = exporters().await;
    let folder = tempfile::tempdir().expect("folder");
    let group = |node: &str| {
        format!(
            "{{\"targets\": [\"{exporters}\"], \"labels\": {{\"node\": \"{node}\", \"__metrics_path__\": \"/{node}/metrics\"}}}}"
        )
    };
    let file = folder.path().join("targets.json");
    std::fs::write(&file, format!("[{}, {}]", group("good"), group("bad"))).expect("write");
    let config = "file_sd = [\"targets.json\"]\n[scrape]\ninterval = \"100ms\"\n[analysis]\ninterval = \"50ms\"\n";
    let config = Config::parse(config, &folder.path().join("c.toml")).expect("valid");
    let (at, running) = Running::start(config).await;

    let attempts = AtomicUsize::new(0);
    let seen = loop {
        let nodes = json(&format!("{at}/api/v1/nodes")).await;
        let items = nodes["items"].as_array().cloned().unwrap_or_default();
        let scraped = |node: &Value| node["target"]["last"].is_string();
        if items.len() == 2 && items.iter().all(scraped) {
            break items;
        }
        assert!(attempts.fetch_add(1, Ordering::Relaxed) < 200, "{nodes}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let target = |index: usize| &seen[index]["target"];
    assert_eq!(
        (&target(0)["last"], &target(0)["up"]),
        (&Value::from("partial"), &Value::from(true))
    );
    assert!(
        target(0)["problem"]
            .as_str()
            .is_some_and(|said| said.contains("line 2")),
        "{}",
        target(0)
    );
    assert_eq!(
        (&target(1)["last"], &target(1)["up"]),
        (&Value::from("ok"), &Value::from(true))
    );
    let metrics = reqwest::get(format!("{at}/metrics"))
        .await
        .expect("answer")
        .text()
        .await
        .expect("text");
    assert!(
        metrics.contains("railscope_collector_target_up{node=\"good\",exporter=\"railscope\"} 1"),
        "{metrics}"
    );
    let malformed = metrics.lines().find(|line| {
        line.starts_with("railscope_collector_ingested_samples_total{result=\"malformed\"}")
    });
    assert!(
        malformed.is_some_and(|line| !line.ends_with(" 0")),
        "bad lines are counted: {metrics}"
    );

    running.stop().await;
}

/// A node that is asked for its page when it says that a port has lost its link is asked again before its next turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_lost_a_port_is_asked_again_between_two_turns() {
    let (asked, mut was_asked) = mpsc::unbounded_channel();
    let scrapes = Arc::new(AtomicUsize::new(0));
    let page = move || {
        asked.send(Instant::now()).ok();
        let up = usize::from(scrapes.fetch_add(1, Ordering::Relaxed) == 0);
        async move { format!("railscope_rdma_port_up{{device=\"mlx5_0\",port=\"1\"}} {up}\n") }
    };
    let address = serve(Router::new().route("/metrics", get(page))).await;
    let config = format!(
        "[scrape]\ninterval = \"6s\"\n[[targets]]\nnode = \"n1\"\nurl = \"http://{address}/metrics\"\n"
    );
    let config = Config::parse(&config, std::path::Path::new("c.toml")).expect("valid");
    let (_, running) = Running::start(config).await;
    let mut times = Vec::new();
    while times.len() < 3 {
        times.push(was_asked.recv().await.expect("a scrape"));
    }
    let (turn, second_look) = (times[1] - times[0], times[2] - times[1]);
    assert!(second_look < turn / 2, "{turn:?} {second_look:?}");
    running.stop().await;
}

/// Pages of other exporters for one node, and of one that speaks of a subnet.
async fn foreign_exporters() -> String {
    let page = |Path(path): Path<String>| async move {
        let page = match path.as_str() {
            "dcgm" => include_str!("foreign/dcgm-exporter.prom"),
            "node" => include_str!("foreign/node_exporter.prom"),
            "ib" => include_str!("foreign/infiniband_exporter.prom"),
            _ => "railscope_gpu_power_watts{gpu=\"0\"} 700\n",
        };
        page.to_owned()
    };
    serve(Router::new().route("/{path}", get(page))).await
}

/// Pages of node_exporter; the host that each names is the path.
async fn hosts() -> String {
    let page = |Path(host): Path<String>| async move {
        let state = "node_infiniband_state_id{device=\"mlx5_0\",port=\"1\"} 4";
        format!("{state}\nnode_uname_info{{nodename=\"{host}\",release=\"6.1\"}} 1\n")
    };
    serve(Router::new().route("/{host}", get(page))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_leads_to_the_node_exporter_of_another_node_is_refused() {
    let at = hosts().await;
    let mut config = "[scrape]\ninterval = \"100ms\"\n[analysis]\ninterval = \"50ms\"\n".to_owned();
    for (node, host) in [("n1", "n1"), ("n2", "n2"), ("n3", "n3"), ("n4", "n2")] {
        let target = format!("node = \"{node}\"\nurl = \"http://{at}/{host}\"");
        config += &format!("[[targets]]\nkind = \"node_exporter\"\n{target}\n");
    }
    let config = Config::parse(&config, std::path::Path::new("c.toml")).expect("valid");
    let (at, running) = Running::start(config).await;
    let of = |node: &str, metric: &str| {
        format!("railscope_collector_target_{metric}{{node=\"{node}\",exporter=\"node_exporter\"")
    };
    let expected = [
        of("n2", "up") + "} 1",
        of("n4", "unreadable") + ",reason=\"other_node\"} 1",
    ];
    metrics_with(&at, &expected).await;
    running.stop().await;
}

/// The collector's metrics, once all these lines stand there.
async fn metrics_with(at: &str, lines: &[String]) -> String {
    for attempt in 1.. {
        let metrics = reqwest::get(format!("{at}/metrics")).await.expect("answer");
        let metrics = metrics.text().await.expect("text");
        let missing = lines.iter().find(|line| !metrics.contains(*line));
        let Some(missing) = missing else {
            return metrics;
        };
        assert!(attempt < 200, "{missing}\n{metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("the last attempt fails")
}

#[tokio::test(flavor = "multi_thread")]
async fn several_exporters_speak_for_one_node_and_one_for_a_subnet() {
    let exporters = foreign_exporters().await;
    let config = format!(
        "[scrape]\ninterval = \"100ms\"\n[analysis]\ninterval = \"50ms\"\n\
         [[targets]]\nnode = \"n1\"\nkind = \"railscope\"\nurl = \"http://{exporters}/own\"\n\
         [[targets]]\nnode = \"n1\"\nurl = \"http://{exporters}/dcgm\"\n\
         [[targets]]\nnode = \"n1\"\nkind = \"node_exporter\"\nurl = \"http://{exporters}/node\"\n\
         [[targets]]\nkind = \"infiniband_exporter\"\nurl = \"http://{exporters}/ib\"\n\
         [[targets]]\nswitch = \"leaf-1\"\nurl = \"http://{exporters}/own\"\n"
    );
    let config = Config::parse(&config, std::path::Path::new("c.toml")).expect("valid");
    let (at, running) = Running::start(config).await;
    let attempts = AtomicUsize::new(0);
    let node = loop {
        let nodes = json(&format!("{at}/api/v1/nodes")).await;
        let node = nodes["items"][0].clone();
        let all_up = |target: &Value| target["up"] == true;
        let more = node["more_targets"].as_array().cloned().unwrap_or_default();
        if all_up(&node["target"])
            && more.len() == 2
            && more.iter().all(all_up)
            && node["gpus"] == 2
            && node["nics"][0]["device"] == "mlx5_0"
        {
            break node;
        }
        assert!(attempts.fetch_add(1, Ordering::Relaxed) < 200, "{nodes}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(node["node"], "n1");
    let expected = [
        "railscope_collector_target_up{node=\"n1\",exporter=\"dcgm-exporter\"} 1".to_owned(),
        "railscope_collector_target_up{node=\"n1\",exporter=\"node_exporter\"} 1".to_owned(),
        "railscope_collector_target_up{node=\"n1\",exporter=\"railscope\"} 1".to_owned(),
        // What our own exporter says of the node that it runs on is nothing about a switch.
        "railscope_collector_target_up{node=\"leaf-1\",exporter=\"railscope\"} 0".to_owned(),
        format!(
            "railscope_collector_target_up{{node=\"http://{exporters}/ib\",exporter=\"infiniband_exporter\"}} 1"
        ),
    ];
    let metrics = metrics_with(&at, &expected).await;
    let sd = json(&format!("{at}/api/v1/sd")).await;
    let overruled = metrics
        .lines()
        .find(|line| line.contains("result=\"overruled\""));
    assert!(
        overruled.is_some_and(|line| !line.ends_with(" 0")),
        "{metrics}"
    );
    let paths: Vec<_> = sd
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| &group["labels"]["__metrics_path__"])
        .collect();
    assert_eq!(paths, ["/own"], "others have a job of their own: {sd}");

    running.stop().await;
}

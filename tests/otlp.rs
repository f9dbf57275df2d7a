//! Exporter and collector beside a real OTLP receiver: metrics, an incident's events and traces arrive under their names.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::get;

use crate::receiver::{Mode, Receiver, show};
use crate::support::RAILSCOPE;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// All of these are among those that arrived.
fn includes(arrived: impl Iterator<Item = String>, wanted: &[&str]) {
    let arrived: Vec<String> = arrived.collect();
    for name in wanted {
        assert!(arrived.iter().any(|one| one == name), "{name}: {arrived:?}");
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The program with these arguments, sending to the receiver twice a second.
fn start(arguments: &[&str], receiver: &Receiver) -> Running {
    let mut command = Command::new(RAILSCOPE);
    command
        .args(arguments)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url())
        .env("OTEL_METRIC_EXPORT_INTERVAL", "500")
        .env("OTEL_RESOURCE_ATTRIBUTES", "site=test")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running(command.spawn().expect("railscope"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_sends_its_page_under_the_names_of_the_conventions() {
    let receiver = Receiver::start(Mode::Accept).await;
    let port = format!(":{}", free_port());
    let _exporter = start(
        &[
            "exporter",
            "--no-nvml",
            "--node.name",
            "n1",
            "--web.listen-address",
            &port,
        ],
        &receiver,
    );
    receiver
        .until("two pages", |got| got.metrics.len() >= 2)
        .await;
    let names = receiver.metrics().into_iter().map(|metric| metric.name);
    includes(
        names,
        &[
            "railscope.exporter_build_info",
            "railscope.node_cpus",
            "railscope.otlp_exports",
        ],
    );
    let resource = receiver.with(|got| {
        let resource = got.metrics[0].resource_metrics[0].resource.clone();
        show(&resource.expect("a resource").attributes)
    });
    for attribute in [
        "service.name=railscope-exporter",
        "host.name=n1",
        "site=test",
    ] {
        assert!(
            resource.iter().any(|one| one == attribute),
            "{attribute}: {resource:?}"
        );
    }
}

/// A node with two ports, of which one is down while that is so.
async fn node(down: Arc<AtomicBool>) -> SocketAddr {
    let page = move || {
        let is_up = u8::from(!down.load(Ordering::Relaxed));
        let port = |device: &str, up: u8| {
            format!(
                "railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} {up}\n\
                 railscope_rdma_port_state{{device=\"{device}\",port=\"1\"}} {}\n",
                1 + 3 * up
            )
        };
        async move { port("mlx5_0", is_up) + &port("mlx5_1", 1) }
    };
    let exporter = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let at = exporter.local_addr().expect("an address");
    let app = Router::new().route("/metrics", get(page));
    tokio::spawn(async move { axum::serve(exporter, app).await });
    at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_sends_incidents_as_they_open_and_close_and_the_spans_of_its_work() {
    let receiver = Receiver::start(Mode::Accept).await;
    // A port that loses its link, and has it again.
    let is_down = Arc::new(AtomicBool::new(false));
    let at = node(Arc::clone(&is_down)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("collector.toml");
    let config = format!(
        "[cluster]\nname = \"c1\"\n[scrape]\ninterval = \"200ms\"\n[analysis]\ninterval = \"200ms\"\n\
         [[targets]]\nnode = \"n1\"\nurl = \"http://{at}/metrics\"\n"
    );
    std::fs::write(&file, config).expect("written");
    let port = format!(":{}", free_port());
    let file = file.display().to_string();
    let _collector = start(
        &[
            "collector",
            "--config",
            &file,
            "--web.listen-address",
            &port,
        ],
        &receiver,
    );
    receiver.until("spans", |got| !got.traces.is_empty()).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    is_down.store(true, Ordering::Relaxed);
    receiver
        .until("an incident", |got| !got.logs.is_empty())
        .await;
    is_down.store(false, Ordering::Relaxed);
    receiver.until("its end", |got| got.logs.len() >= 2).await;
    let events: Vec<String> = receiver
        .logs()
        .into_iter()
        .map(|log| log.event_name)
        .collect();
    assert_eq!(
        events.first().map(String::as_str),
        Some("railscope.incident.opened")
    );
    assert!(
        events
            .iter()
            .any(|event| event == "railscope.incident.closed"),
        "{events:?}"
    );
    let opened = show(&receiver.logs()[0].attributes);
    println!("{opened:#?}");
    assert!(
        opened
            .iter()
            .any(|one| one.contains("railscope.incident.component")),
        "{opened:?}"
    );
    let spans = receiver.spans().into_iter().map(|span| span.name);
    includes(spans, &["tick", "scrape"]);
    let names = receiver.metrics().into_iter().map(|metric| metric.name);
    includes(
        names,
        &[
            "railscope.collector_otlp_items",
            "railscope.collector_target_up",
        ],
    );
}

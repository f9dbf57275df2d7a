//! The API and the web page on a fixed view.

mod cluster;
mod curve;
mod graph;
mod health;
mod maintenance;
mod otlp;
mod ports;
mod probes;
mod push;
mod tail;
mod unknown;

use std::sync::Arc;

use axum::http::StatusCode;
use expect_test::expect_file;
use railscope_model::fabric::Timestamp;

use self::cluster::{Cluster, SEEN, START};
use super::*;
use crate::config::Config;

/// Three seconds after the newest tick.
fn now() -> Timestamp {
    Timestamp((START + SEEN + 3) * 1000)
}

/// Faults for demonstration.
fn faulty(cluster: Cluster) -> State {
    let lost: &[(&str, u16)] = &[("leaf-03", 5), ("leaf-02", 42)];
    let change = |index: usize, since: u64, page: String| {
        let page = match index {
            4 => page.replace(
                "rdma_port_up{device=\"mlx5_2\",port=\"1\"} 1",
                "rdma_port_up{device=\"mlx5_2\",port=\"1\"} 0",
            ),
            9 => page.replace(
                "pcie_link_width_lanes{pci=\"0000:13:00.0\"} 16",
                "pcie_link_width_lanes{pci=\"0000:13:00.0\"} 8",
            ),
            12 => page
                .replace(
                    "gpu_clock_hertz{gpu=\"6\",clock=\"sm\"} 1.98e9",
                    "gpu_clock_hertz{gpu=\"6\",clock=\"sm\"} 1.2e9",
                )
                .replace(
                    "event_seconds_total{gpu=\"6\",reason=\"hw_thermal\"} 0",
                    &format!("event_seconds_total{{gpu=\"6\",reason=\"hw_thermal\"}} {since}"),
                ),
            20 => page.replace(
                "device=\"mlx5_7\",port=\"1\",kind=\"symbol_error\"} 0",
                &format!(
                    "device=\"mlx5_7\",port=\"1\",kind=\"symbol_error\"}} {}",
                    since * 2
                ),
            ),
            27 => return None,
            _ => page,
        };
        Some(page)
    };
    cluster.watch(change, lost, now)
}

#[tokio::test]
#[ignore = "serves until killed, for a look at the page: LOOK=address:port, NODES=32, UNIT=16"]
async fn serve_for_a_look() {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let cluster = Cluster {
        nodes: number("NODES", 32),
        rails: 8,
        nodes_in_unit: number("UNIT", 16),
        spines: number("SPINES", 4),
    };
    let state = if std::env::var("WELL").is_ok() {
        cluster.watch(|_, _, page| Some(page), &[], now)
    } else {
        faulty(cluster)
    };
    let address = std::env::var("LOOK").unwrap_or_else(|_| String::from("127.0.0.1:10661"));
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .expect("address");
    axum::serve(listener, router(Arc::new(state)))
        .await
        .expect("served");
}

/// A small cluster of which one link is down and one GPU slow.
fn small() -> State {
    let cluster = Cluster {
        nodes: 6,
        rails: 2,
        nodes_in_unit: 6,
        spines: 1,
    };
    let change = |index: usize, since: u64, page: String| {
        Some(match index {
            2 => page.replace(
                "rdma_port_up{device=\"mlx5_1\",port=\"1\"} 1",
                "rdma_port_up{device=\"mlx5_1\",port=\"1\"} 0",
            ),
            4 => page
                .replace(
                    "gpu_clock_hertz{gpu=\"0\",clock=\"sm\"} 1.98e9",
                    "gpu_clock_hertz{gpu=\"0\",clock=\"sm\"} 0.99e9",
                )
                .replace(
                    "event_seconds_total{gpu=\"0\",reason=\"hw_thermal\"} 0",
                    &format!("event_seconds_total{{gpu=\"0\",reason=\"hw_thermal\"}} {since}"),
                ),
            _ => page,
        })
    };
    cluster.watch(change, &[("leaf-02", 3)], now)
}

/// A server with this state; returns its address.
async fn serve(state: State) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("port");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, router(Arc::new(state))).await });
    format!("http://{address}")
}

async fn get_text(url: String) -> (StatusCode, String) {
    let answer = reqwest::get(&url).await.expect("answer");
    let status = StatusCode::from_u16(answer.status().as_u16()).expect("status");
    (status, answer.text().await.expect("text"))
}

async fn get_pretty(url: String) -> String {
    let (status, text) = get_text(url).await;
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    format!(
        "{}\n{}\n",
        status.as_u16(),
        serde_json::to_string_pretty(&json).expect("JSON")
    )
}

#[tokio::test]
async fn the_json_api_says_what_the_view_says() {
    let at = serve(small()).await;
    for (path, expected) in [
        ("incidents", expect_file!["tests/incidents.txt"]),
        ("fabric", expect_file!["tests/fabric.txt"]),
        ("topology", expect_file!["tests/topology.txt"]),
        ("topology/structure", expect_file!["tests/structure.txt"]),
        (
            "topology/paths?from=leaf-01&to=leaf-02",
            expect_file!["tests/paths.txt"],
        ),
        (
            "topology/traffic?cable=link/leaf-01:41",
            expect_file!["tests/traffic.txt"],
        ),
        ("topology/changes", expect_file!["tests/changes.txt"]),
        (
            "topology/diff?from=1700000599&to=2023-11-14T22:25:00Z",
            expect_file!["tests/diff.txt"],
        ),
        ("jobs", expect_file!["tests/jobs.txt"]),
        ("jobs/4711", expect_file!["tests/job.txt"]),
        ("nodes/gpu-003", expect_file!["tests/node.txt"]),
        ("sd", expect_file!["tests/sd.txt"]),
    ] {
        expected.assert_eq(&get_pretty(format!("{at}/api/v1/{path}")).await);
    }
    let (_, list) = get_text(format!("{at}/api/v1/incidents")).await;
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let id = list["incidents"][1]["id"].as_str().expect("an id");
    expect_file!["tests/incident.txt"]
        .assert_eq(&get_pretty(format!("{at}/api/v1/incidents/{id}")).await);
}

/// Questions, and status, error and the beginning of what is known to be expected.
const WRONG: &[(&str, u16, &str, &str)] = &[
    (
        "/api/v1/incidents?state=open",
        400,
        "query: unknown field `state`",
        "no query parameters",
    ),
    (
        "/api/v1/incidents/12345678",
        404,
        "no open incident \"12345678\"",
        "one that /api/v1/incidents lists",
    ),
    (
        "/api/v1/jobs/4712",
        404,
        "no job \"4712\"",
        "one that /api/v1/jobs lists",
    ),
    (
        "/api/v1/nodes?limit=0",
        400,
        "query: limit \"0\" is not a number from 1 to 20000",
        "limit=N",
    ),
    (
        "/api/v1/nodes?limit=1&limit=2",
        400,
        "query: duplicate field `limit`",
        "limit=N",
    ),
    (
        "/api/v1/nodes/n%00",
        404,
        "no node \"n\\0\"",
        "one that /api/v1/nodes lists",
    ),
    (
        "/api/v1/topology?leaf=x",
        404,
        "no switch \"x\"",
        "one that /api/v1/topology lists",
    ),
    (
        "/api/v1/topology?leaf=leaf-01&node=gpu-001",
        400,
        "query: both leaf and node",
        "one of them",
    ),
    (
        "/api/v1/topology/paths?from=leaf-01",
        400,
        "query: missing field `to`",
        "from=SWITCH and to=SWITCH",
    ),
    (
        "/api/v1/topology/paths?from=leaf-01&to=x",
        404,
        "no switch \"x\"",
        "one that /api/v1/topology lists",
    ),
    (
        "/api/v1/topology/traffic?cable=link/gpu-001:mlx5_0/1",
        404,
        "no traffic over \"link/gpu-001:mlx5_0/1\"",
        "a cable between two switches",
    ),
    (
        "/api/v1/topology/changes?since=yesterday",
        400,
        "query: invalid float literal",
        "since=SECONDS",
    ),
    (
        "/api/v1/topology/diff?from=yesterday",
        400,
        "query: from: \"yesterday\": expected a time with its offset such as 2026-11-22T05:00:00Z, or seconds of Unix time",
        "from=TIME, to=TIME",
    ),
    (
        "/api/v1/topology/diff?from=2&to=1",
        400,
        "query: to: it is before from",
        "from=TIME, to=TIME",
    ),
    (
        "/api/v1/topology/export?to=svg",
        400,
        "query: unknown variant `svg`",
        "to=json, graphml",
    ),
    (
        "/api/v1/detectors/slow",
        404,
        "no detector or class \"slow\"",
        "one that /api/v1/detectors lists",
    ),
    (
        "/api/v2/nodes",
        404,
        "no page \"/api/v2/nodes\"",
        "one of /",
    ),
    (
        "/metrics?profile=full",
        400,
        "query: unknown field `profile`",
        "ports=only, ports=none",
    ),
];

#[tokio::test]
async fn a_detector_is_asked_for_by_its_name_or_by_a_class_that_it_names() {
    let at = serve(small()).await;
    for (name, detectors, class) in [
        ("slow-gpu", 1, "gpu-slow"),
        ("gpu-slow", 4, "gpu-slow"),
        ("fabric-storm", 1, "fabric-storm"),
    ] {
        let (_, text) = get_text(format!("{at}/api/v1/detectors/{name}")).await;
        let said: serde_json::Value = serde_json::from_str(&text).expect(name);
        let all = said["detectors"].as_array().expect(name);
        assert_eq!(all.len(), detectors, "{text}");
        let rule = &all[0]["rules"][0];
        assert_eq!(rule["class"], class);
        assert!(rule["thresholds"][0]["source"].is_string(), "{text}");
        let page = format!("/{class}.md");
        assert!(
            rule["runbook"]
                .as_str()
                .is_some_and(|at| at.ends_with(&page))
        );
    }
}

#[tokio::test]
async fn wrong_questions_get_a_sentence_in_json() {
    let at = serve(small()).await;
    for (path, status, error, expected) in WRONG {
        let (found, text) = get_text(format!("{at}{path}")).await;
        let said: serde_json::Value = serde_json::from_str(&text).expect(path);
        assert_eq!(
            (found.as_u16(), said["error"].as_str()),
            (*status, Some(*error)),
            "{path}"
        );
        let begins = said["expected"]
            .as_str()
            .is_some_and(|said| said.starts_with(expected));
        assert!(begins, "{path}: {said}");
    }
}

#[tokio::test]
async fn a_neighborhood_is_one_cable_around_a_switch_or_a_node_and_limits_say_what_they_leave_off()
{
    let at = serve(small()).await;
    for (query, switches, nodes, left_off) in [
        ("", 3, 0, 0),
        ("?leaf=leaf-01", 2, 6, 0),
        ("?leaf=leaf-01&limit=3", 2, 1, 5),
        ("?node=gpu-001", 2, 1, 0),
        ("?limit=1", 1, 0, 2),
    ] {
        let (_, text) = get_text(format!("{at}/api/v1/topology{query}")).await;
        let topology: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let tiers = topology["tiers"].as_array().expect("tiers");
        let found: usize = tiers
            .iter()
            .filter_map(|tier| tier["switches"].as_array())
            .map(Vec::len)
            .sum();
        let found_nodes = topology["nodes"].as_array().map_or(0, Vec::len);
        assert_eq!(
            (found, found_nodes, &topology["left_off"]),
            (switches, nodes, &left_off.into()),
            "{query}"
        );
    }
}

#[tokio::test]
async fn nothing_is_claimed_before_it_is_known() {
    let at = serve(State::new(&Config::default(), now)).await;
    for path in [
        "/api/v1/incidents",
        "/api/v1/nodes",
        "/api/v1/sd",
        "/-/ready",
        "/",
    ] {
        assert_eq!(
            get_text(format!("{at}{path}")).await.0,
            StatusCode::SERVICE_UNAVAILABLE,
            "{path}"
        );
    }
    for path in ["/metrics", "/-/healthy"] {
        assert_eq!(
            get_text(format!("{at}{path}")).await.0,
            StatusCode::OK,
            "{path}"
        );
    }
    let at = serve(small()).await;
    assert_eq!(get_text(format!("{at}/-/ready")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn metrics_come_in_every_format_compressed_and_name_every_incident() {
    let at = serve(small()).await;
    let (_, plain) = get_text(format!("{at}/metrics")).await;
    expect_file!["tests/metrics.txt"].assert_eq(&plain);
    for line in railscope_model::exposition::parse(&plain) {
        if let railscope_model::exposition::Line::Series(series) = line.expect("our own page") {
            let metric = railscope_model::metric::Metric::by_name(series.name).expect(series.name);
            assert_eq!(
                metric.writer,
                railscope_model::metric::Writer::Collector,
                "{}",
                metric.name
            );
        }
    }
    let client = reqwest::Client::builder()
        .no_gzip()
        .build()
        .expect("client");
    for kind in [
        "application/openmetrics-text; version=1.0.0",
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    ] {
        let request = client.get(format!("{at}/metrics")).header("Accept", kind);
        let request = request.header("Accept-Encoding", "gzip").send();
        let answer = request.await.expect("answer");
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        let found = answer.headers()["content-type"].to_str().expect("text");
        assert!(found.starts_with(kind), "{found}");
    }
}

#[tokio::test]
async fn the_page_names_every_incident_and_its_links_lead_somewhere() {
    let at = serve(small()).await;
    let (status, page) = get_text(format!("{at}/")).await;
    assert_eq!(status, StatusCode::OK);
    for expected in [
        "GPU runs slower than its peers",
        "GPU 0 of gpu-005",
        "Cable from gpu-003 mlx5_1/1 to leaf-02 port 3 (rail 1)",
        "class=\"t down\"",
        "title=\"mlx5_1 → leaf-02 port 3 (cable gone)",
        "alerts/runbooks/port-down.md",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let links: std::collections::BTreeSet<_> = page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|link| !link.starts_with("https://") && !link.starts_with("data:"))
        .collect();
    assert!(
        links
            .iter()
            .filter(|link| link.starts_with("incidents/"))
            .count()
            == 2,
        "{links:?}"
    );
    for link in links {
        let (status, text) = get_text(format!("{at}/{}", link.trim_start_matches("./"))).await;
        assert_eq!(status, StatusCode::OK, "{link}: {text}");
    }
}

#[tokio::test]
async fn a_name_from_the_network_cannot_become_markup() {
    let config = Config {
        cluster: String::from("<i>\"alpha\"</i>"),
        ..Config::default()
    };
    let state = State::new(&config, now);
    let name = "<script>alert('1')</script>";
    let node: railscope_model::identity::NodeName = name.parse().expect("names may hold anything");
    let mut analyzer = crate::analyzer::Analyzer::default();
    analyzer.set_targets(std::slice::from_ref(&node));
    let page = "railscope_rdma_port_info{device=\"\\\"><b>\",port=\"1\",pci=\"\",netdev=\"\",node_guid=\"\",port_guid=\"\",link_layer=\"\",driver=\"\",numa_node=\"\"} 1\n";
    analyzer.ingest(&node, page, now());
    state.publish(Snapshot::new(analyzer.tick(now())));
    let at = serve(state).await;
    let answer = reqwest::get(format!("{at}/")).await.expect("answer");
    let policy = answer.headers()["content-security-policy"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let html = answer.text().await.expect("text");
    assert!(
        html.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"),
        "{html}"
    );
    for markup in ["<script>alert", "<b>", "<i>"] {
        assert!(!html.contains(markup), "{markup}: {html}");
    }
    let (_, missing) = get_text(format!("{at}/incidents/%3Cb%3E")).await;
    assert!(!missing.contains("<b>"), "{missing}");
}

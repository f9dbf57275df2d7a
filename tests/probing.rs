//! The collector's list for a node is accepted by its exporter.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use railscope_collector::analyzer::Analyzer;
use railscope_collector::config::Config;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::serve::router::router;
use railscope_collector::status::{Snapshot, State};
use railscope_exporter::sources::probe::{MOST_FLOWS, ProbeList};
use railscope_model::fabric::Timestamp;
use railscope_model::metric::{NETDEV_ADDRESS, RDMA_PORT};
use railscope_model::reading::{Labels, NodeReading};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::show::lldp;
use railscope_simulator::show::readings::Exporters;
use railscope_simulator::spec::{ClusterSpec, Transport};
use tower::ServiceExt as _;

const NOW: Timestamp = Timestamp(1_754_493_083_000);
const NODES: u16 = 40;

/// The interfaces of the RDMA ports of a node get an address each, at which its exporter responds.
fn answer(node: usize, reading: &mut NodeReading) {
    let ports = reading.samples().iter();
    let ports = ports.filter(|sample| sample.metric == &RDMA_PORT);
    let netdevs: Vec<_> = ports
        .filter_map(|sample| sample.labels.values().nth(3).map(str::to_owned))
        .collect();
    for (rail, netdev) in netdevs.iter().enumerate() {
        let labels = Labels::new([netdev.clone(), format!("10.{rail}.0.{}", node + 1)]);
        reading.push(&NETDEV_ADDRESS, &labels, true);
    }
}

/// A collector that has seen a RoCE cluster whose exporters respond, and the names of its nodes.
fn collector() -> (Router, Vec<String>) {
    let spec = ClusterSpec {
        transport: Transport::Roce,
        ..ClusterSpec::demo(NODES).expect("a cluster")
    };
    let cluster = Cluster::new(spec, 1).expect("a cluster");
    let exporters = Exporters::of(&cluster);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    for (node, (name, mut reading)) in exporters.read(&cluster).enumerate() {
        answer(node, &mut reading);
        analyzer.ingest_reading(name, &reading, NOW);
    }
    for (switch, text) in lldp::switches(&cluster) {
        analyzer.take_switch(&switch, parse_neighbors(&text), NOW);
    }
    let state = State::new(&Config::default(), || NOW);
    state.publish(Snapshot::new(analyzer.tick(NOW)));
    let names = exporters.names().iter().map(ToString::to_string);
    (router(Arc::new(state)), names.collect())
}

#[tokio::test]
async fn a_list_that_the_collector_makes_is_one_that_an_exporter_takes() {
    let (router, names) = collector();
    assert_eq!(names.len(), usize::from(NODES));
    for node in &names {
        let path = format!("/api/v1/probes?node={node}");
        let request = Request::builder().uri(&path).body(Body::empty());
        let answer = router.clone().oneshot(request.expect("a request")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        let text = String::from_utf8(body.to_vec()).expect("text");
        let list = ProbeList::parse(&path, &text).expect("a list");
        let flows = list.targets.iter().map(|target| usize::from(target.flows));
        let flows: usize = flows.sum();
        assert!((1..=MOST_FLOWS).contains(&flows), "{path}: {flows} flows");
        for target in &list.targets {
            assert_ne!(target.peer_node, *node);
        }
    }
}

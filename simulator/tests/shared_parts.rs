//! Faults of what is shared: sockets, receive buffers, ports of virtual functions, storage. Each shows where it should.

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::examples;
use railscope_simulator::faults::{Fault, Truth};
use railscope_simulator::parts::port::Counter;
use railscope_simulator::spec::ClusterSpec;

const PORTS: usize = 8;

fn cluster() -> Cluster {
    Cluster::new(ClusterSpec::demo(8).expect("a spec"), 1).expect("a cluster")
}

/// The truth of a fault that begins at once, the nodes after a second, and the cluster 100 s later.
fn with(cause: &str) -> (Truth, Vec<Node>, Cluster) {
    let mut cluster = cluster();
    let fault = examples::fault(&cluster, cause, 7, 0.5).expect(cause);
    let truth = cluster.inject(fault).expect(cause);
    cluster.advance(Duration::from_secs(1));
    let before = cluster.nodes().to_vec();
    cluster.advance(Duration::from_secs(101));
    (truth, before, cluster)
}

/// Growth of a counter in 100 s, by NIC.
fn growth(before: &[Node], cluster: &Cluster, counter: Counter) -> Vec<u64> {
    let ports = |nodes: &[Node]| -> Vec<u64> {
        let ports = nodes.iter().flat_map(|node| &node.ports);
        ports.map(|port| port.get(counter)).collect()
    };
    let pairs = ports(before).into_iter().zip(ports(cluster.nodes()));
    pairs.map(|(before, after)| after - before).collect()
}

fn node_of(cluster: &Cluster, part: &Part) -> usize {
    let nodes = cluster.nodes().iter();
    let mut named = nodes.map(|node| Some(&node.name) == part.node());
    named.position(|it| it).expect("a node")
}

#[test]
fn the_port_of_a_noisy_neighbor_moves_more_than_its_job_and_its_peers() {
    let (truth, before, cluster) = with("noisy-neighbour");
    let bytes = growth(&before, &cluster, Counter::PortXmitData);
    let nics = &cluster.plan().nics;
    let culprit = nics.iter().position(|nic| nic.link_part() == truth.part);
    let culprit = culprit.expect("a NIC");
    let peer = bytes[(culprit + 1) % bytes.len()];
    // 40 % of 49 GB/s for 100 s, in words of 4 bytes.
    let expected = 0.4 * 49e9 * 100.0 / 4.0;
    let more = (bytes[culprit] - peer) as f64;
    assert!((more / expected - 1.0).abs() < 0.02, "{more} {expected}");
}

#[test]
fn receive_buffers_are_missed_at_the_host_and_noticed_by_those_who_send_to_it() {
    let (truth, before, cluster) = with("receiver-not-ready");
    let node = node_of(&cluster, &truth.part);
    let missed = growth(&before, &cluster, Counter::OutOfBuffer);
    let noticed = growth(&before, &cluster, Counter::RnrNakRetryErr);
    for (nic, (missed, noticed)) in missed.into_iter().zip(noticed).enumerate() {
        // 200 a second at each port; a ring has one sender for each receiver.
        let own = u64::from(nic / PORTS == node) * 20_000;
        assert!(missed.abs_diff(own) <= own / 100, "NIC {nic}: {missed}");
        let sends = truth
            .victims
            .contains(&cluster.plan().nics[nic].link_part());
        let expected = u64::from(sends) * 20_000;
        assert!(noticed.abs_diff(expected) <= 200, "NIC {nic}: {noticed}");
    }
}

#[test]
fn a_nic_that_works_for_the_other_socket_keeps_its_sender_waiting() {
    let (truth, before, cluster) = with("numa-affinity");
    let waits = growth(&before, &cluster, Counter::PortXmitWait);
    let most = (0..waits.len()).max_by_key(|nic| waits[*nic]);
    let victim = cluster.plan().nics[most.expect("NICs")].link_part();
    assert_eq!(truth.victims, [victim]);
}

#[test]
fn storage_that_hangs_stops_everybody_and_shows_on_every_node_alike() {
    let (truth, before, cluster) = with("storage-stall");
    assert_eq!((&truth.part, truth.slowdown), (&Part::SharedStorage, None));
    assert!(truth.victims.is_empty() && truth.accomplices.is_empty());
    for (before, after) in before.iter().zip(cluster.nodes()) {
        // 0.5 to 20.5 s, and 60.5 to 80.5 s, of which half a second was before.
        let waited = after.storage_seconds - before.storage_seconds;
        assert!((waited - 39.5).abs() < 1e-6, "{}: {waited}", after.name);
    }
    let (healthy, mut still) = (self::cluster(), cluster.steps());
    let usual = healthy.step_seconds().expect("a step");
    let moving = still as f64 * usual;
    assert!((moving - 61.0).abs() < 1.5, "{moving}");
    let mut cluster = cluster;
    cluster.advance(Duration::from_secs(121));
    still = cluster.steps();
    cluster.advance(Duration::from_secs(140));
    assert_eq!(cluster.steps(), still);
}

#[test]
fn storage_of_more_nodes_than_there_are_is_refused() {
    let fault = Fault {
        part: Part::SharedStorage,
        onset_seconds: 0.0,
        end_seconds: None,
        effect: toml::from_str(
            "cause = 'storage-stall'\nnodes = 9\nevery_seconds = 60.0\nseconds = 5.0",
        )
        .expect("an effect"),
    };
    let refused = cluster().inject(fault).expect_err("refused").to_string();
    assert!(
        refused.contains("found 9 nodes, expected 1 to 8"),
        "{refused}"
    );
}

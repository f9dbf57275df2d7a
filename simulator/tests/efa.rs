//! Nodes with EFA: four NICs carry a GPU's traffic, losses show in the few counters that there are, cables nowhere.

use std::time::Duration;

use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::examples;
use railscope_simulator::faults::{CAUSES, Fault, Truth};
use railscope_simulator::parts::efa::EfaCounter;
use railscope_simulator::parts::port::PortState;
use railscope_simulator::spec::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, RailsMeet, Transport, WiringSpec};

const NODES: u16 = 4;
const NICS: usize = 32;
/// Counters that only grow when packets are lost or not received.
const LOSSES: &[EfaCounter] = &[
    EfaCounter::RxDrops,
    EfaCounter::RetransBytes,
    EfaCounter::RetransPkts,
    EfaCounter::RetransTimeoutEvents,
    EfaCounter::ImpairedRemoteConnEvents,
    EfaCounter::UnresponsiveRemoteEvents,
];

fn spec() -> ClusterSpec {
    ClusterSpec {
        node: NodeKind::EfaP5,
        transport: Transport::Efa,
        ..ClusterSpec::demo(NODES).expect("a spec")
    }
}

fn cluster() -> Cluster {
    Cluster::new(spec(), 1).expect("a cluster")
}

fn counts(nodes: &[Node], counter: EfaCounter) -> Vec<u64> {
    let ports = nodes.iter().flat_map(|node| &node.ports);
    ports
        .map(|port| port.efa.as_deref().expect("EFA").get(counter))
        .collect()
}

/// Growth of a counter by NIC.
fn growth(before: &[Node], cluster: &Cluster, counter: EfaCounter) -> Vec<u64> {
    let pairs = counts(before, counter)
        .into_iter()
        .zip(counts(cluster.nodes(), counter));
    pairs.map(|(before, after)| after - before).collect()
}

/// The truth of a fault, the nodes before it, and the cluster 60 s later.
fn inject(mut cluster: Cluster, fault: Fault) -> (Truth, Vec<Node>, Cluster) {
    cluster.advance(Duration::from_secs(1));
    let before = cluster.nodes().to_vec();
    let truth = cluster.inject(fault).expect("a fault that can be");
    cluster.advance(Duration::from_secs(61));
    (truth, before, cluster)
}

fn fault(part: &str, effect: &str) -> Fault {
    Fault {
        part: part.parse().expect(part),
        onset_seconds: 1.0,
        end_seconds: None,
        effect: toml::from_str(effect).expect(effect),
    }
}

fn with(part: &str, effect: &str) -> (Truth, Vec<Node>, Cluster) {
    inject(cluster(), fault(part, effect))
}

/// NICs at which a counter grows, by node and number in it.
fn growing(before: &[Node], cluster: &Cluster, counter: EfaCounter) -> Vec<(usize, usize)> {
    let growth = growth(before, cluster, counter).into_iter().enumerate();
    let grown = growth.filter(|(_, by)| *by > 0);
    grown.map(|(nic, _)| (nic / NICS, nic % NICS)).collect()
}

#[test]
fn four_nics_of_100_gigabits_carry_what_one_of_400_does() {
    let hgx = Cluster::new(ClusterSpec::demo(NODES).expect("a spec"), 1).expect("a cluster");
    let mut efa = cluster();
    let step = |cluster: &Cluster| cluster.step_seconds().expect("runs");
    assert!((step(&efa) / step(&hgx) - 1.0).abs() < 0.01);
    efa.advance(Duration::from_secs(1));
    let before = efa.nodes().to_vec();
    efa.advance(Duration::from_secs(61));
    let steps = 60.0 / step(&efa);
    for counter in [EfaCounter::TxBytes, EfaCounter::RxBytes] {
        for bytes in growth(&before, &efa, counter) {
            let expected = steps * 7.35e9 / 4.0;
            assert!((bytes as f64 / expected - 1.0).abs() < 0.03, "{bytes}");
        }
    }
    for counter in LOSSES {
        assert_eq!(growing(&before, &efa, *counter), [], "{}", counter.name());
    }
}

#[test]
fn devices_are_named_by_their_place_and_no_two_have_one_guid() {
    let cluster = cluster();
    let nics = &cluster.plan().nics;
    let names = [0, 3, 4, 31].map(|nic| nics[nic].device.to_string());
    assert_eq!(names, ["rdmap71s0", "rdmap74s0", "rdmap88s0", "rdmap193s0"]);
    let mut guids: Vec<_> = nics.iter().map(|nic| nic.guid).collect();
    guids.sort();
    guids.dedup();
    assert_eq!(guids.len(), nics.len());
}

#[test]
fn a_cable_that_loses_packets_makes_its_senders_send_again() {
    let (truth, before, cluster) = with(
        "link/gpu-node-02:rdmap73s0/1",
        "cause = 'link-errors'\nsymbol_errors_per_second = 120.0",
    );
    assert!(truth.slowdown.expect("runs") > 1.0);
    // The node before it in the ring, its NIC of the same number; every fifth symbol error is a packet.
    let again = growing(&before, &cluster, EfaCounter::RetransPkts);
    assert_eq!(again, [(1, 2)]);
    let packets = growth(&before, &cluster, EfaCounter::RetransPkts)[NICS + 2];
    assert!((1_300..=1_500).contains(&packets), "{packets}");
    assert_eq!(
        growing(&before, &cluster, EfaCounter::UnresponsiveRemoteEvents),
        []
    );
}

#[test]
fn a_device_without_a_fabric_says_active_and_its_peers_find_it_unresponsive() {
    let (truth, before, cluster) = with("link/gpu-node-02:rdmap73s0/1", "cause = 'port-down'");
    assert_eq!(truth.slowdown, None);
    let port = &cluster.nodes()[2].ports[2];
    assert_eq!(
        (port.state, port.rate()),
        (PortState::Active, "100 Gb/sec (4X EDR)".to_owned())
    );
    for counter in [
        EfaCounter::RetransTimeoutEvents,
        EfaCounter::UnresponsiveRemoteEvents,
        EfaCounter::ImpairedRemoteConnEvents,
    ] {
        assert_eq!(growing(&before, &cluster, counter), [(1, 2)]);
    }
}

#[test]
fn a_receiver_without_buffers_drops_on_all_of_its_devices() {
    let (_, before, cluster) = with(
        "host/gpu-node-01",
        "cause = 'receiver-not-ready'\nper_second = 200.0",
    );
    let dropping = growing(&before, &cluster, EfaCounter::RxDrops);
    assert_eq!(dropping, (0..NICS).map(|nic| (1, nic)).collect::<Vec<_>>());
}

#[test]
fn a_gray_cable_of_the_cloud_shows_at_those_who_send_over_it() {
    // Two nodes behind the same leaves, so that half of the ring uses uplinks.
    let spec = ClusterSpec {
        wiring: WiringSpec::RailOptimized {
            nodes_per_su: 2,
            rails_meet: RailsMeet::Spine,
        },
        ..spec()
    };
    let cluster = Cluster::new(spec, 1).expect("a cluster");
    let fault = examples::fault(&cluster, "uplink-lossy", 3, 1.0).expect("an uplink");
    let (truth, before, cluster) = inject(cluster, fault);
    let named: Vec<_> = truth.victims.iter().map(ToString::to_string).collect();
    let nics = &cluster.plan().nics;
    let again = growing(&before, &cluster, EfaCounter::RetransPkts);
    let again: Vec<_> = again
        .into_iter()
        .map(|(node, nic)| nics[node * NICS + nic].link_part().to_string())
        .collect();
    assert!(!again.is_empty());
    assert_eq!(again, named);
}

#[test]
fn faults_that_need_a_cable_or_a_counter_of_ones_own_are_refused_with_a_reason() {
    let mut cluster = cluster();
    let link = "link/gpu-node-00:rdmap71s0/1";
    for (part, effect, reason) in [
        (
            link,
            "cause = 'port-degraded'\nrate = '1xEDR'",
            "has the rate that its driver reports",
        ),
        (
            link,
            "cause = 'noisy-neighbour'\nshare = 0.4",
            "no virtual functions",
        ),
        (
            link,
            "cause = 'miscabled-rail'\nwith = 'link/gpu-node-00:rdmap72s0/1'",
            "the cables behind the nodes of a cloud are not visible",
        ),
        (
            "nic/gpu-node-00:rdmap71s0",
            "cause = 'pfc-storm'",
            "EFA has no pause",
        ),
    ] {
        let problem = cluster
            .inject(fault(part, effect))
            .expect_err(effect)
            .problem;
        assert!(problem.contains(reason), "{effect}: {problem}");
    }
    let none: Vec<_> = CAUSES
        .iter()
        .filter(|cause| examples::fault(&cluster, cause, 5, 5.0).is_none())
        .collect();
    let of_infiniband = Cluster::new(ClusterSpec::demo(NODES).expect("a spec"), 1);
    let of_infiniband = of_infiniband.expect("a cluster");
    let more: Vec<_> = none
        .into_iter()
        .filter(|cause| examples::fault(&of_infiniband, cause, 5, 5.0).is_some())
        .collect();
    assert_eq!(
        more,
        [&"port-degraded", &"noisy-neighbour", &"miscabled-rail"]
    );
}

//! Probes see what is on their way and nothing else, and tell nodes from the network.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

use std::time::Duration;

use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::fault::Fault;
use railscope_simulator::probe::{Prober, Times, Way};
use railscope_simulator::spec::ClusterSpec;

const ETHERNET: &str = "nodes = 8\nnics_per_node = 2\ngpus_per_node = 2\ntransport = 'roce'\nrouting = 'ecmp'\n\
    wiring = { kind = 'rail-optimised', nodes_per_su = 4 }\nswitches = { radix = 32 }";

fn ethernet() -> Cluster {
    Cluster::new(toml::from_str::<ClusterSpec>(ETHERNET).expect("spec"), 1).expect("cluster")
}

fn infiniband() -> Cluster {
    Cluster::new(ClusterSpec::demo(8).expect("spec"), 1).expect("cluster")
}

/// The cluster some time after a fault began, with a prober that has seen it.
fn after(mut cluster: Cluster, fault: Fault) -> (Cluster, Prober) {
    let mut prober = Prober::new(&cluster);
    cluster.inject(fault).expect("fault");
    for second in [5, 10] {
        cluster.advance(Duration::from_secs(second));
        prober.follow(&cluster);
    }
    (cluster, prober)
}

fn fault(part: &str, effect: &str) -> Fault {
    Fault {
        part: part.parse().expect("part"),
        onset_seconds: 0.0,
        end_seconds: None,
        effect: toml::from_str(effect).expect("effect"),
    }
}

/// The shortest of what some probes measure: that which nothing stood before.
fn least(cluster: &Cluster, prober: &Prober, way: &Way, of: fn(&Times) -> f64) -> f64 {
    let times = (0..200).map(|index| of(&prober.times(cluster, way, index)));
    times.fold(f64::INFINITY, f64::min)
}

#[test]
fn a_lossy_uplink_is_seen_on_the_ways_over_it_and_on_no_other() {
    let cluster = ethernet();
    let uplink = cluster.plan().nics.len();
    let part = cluster.plan().cable_part(uplink).to_string();
    let (cluster, prober) = after(
        cluster,
        fault(&part, "cause = 'uplink-lossy'\nloss_ratio = 0.02"),
    );
    let nics = 0..cluster.plan().nics.len();
    let bounces = nics.clone().flat_map(|nic| {
        let off = prober.ceiling(nic);
        assert!(!off.is_empty());
        off.into_iter().map(move |switch| (nic, switch))
    });
    let bounces = bounces.filter_map(|(nic, switch)| prober.bounce(nic, switch, 0));
    let pairs = nics.clone().flat_map(|a| nics.clone().map(move |b| (a, b)));
    let pairs = pairs.filter(|(a, b)| a != b);
    let pairs = pairs.filter_map(|(a, b)| prober.way(a, b, 7));
    let mut seen = [0, 0];
    for way in bounces.chain(pairs) {
        let over = way.cables().expect("a known way").contains(&uplink);
        let lost = prober.lost(&cluster, &way, 10_000, 0);
        // 2 % in one direction or in both; 0.001 % of the others.
        assert_eq!(over, lost > 100, "{way:?}: {lost}");
        seen[usize::from(over)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn a_node_that_stands_still_shows_in_its_own_time_and_not_in_the_networks() {
    let cluster = infiniband();
    let stalls = examples::fault(&cluster, "host-stalls", 7, 0.0).expect("fault");
    let node = stalls.part.node().expect("a host").clone();
    let (cluster, prober) = after(cluster, stalls);
    let plan = cluster.plan();
    let on = |of_it: bool| {
        let mut nics = plan.nics.iter().filter(|nic| nic.rail == 0);
        let found = nics.find(|nic| (nic.node_name == node) == of_it);
        let found = found.expect("a NIC");
        plan.nic_index(found.node, 0)
    };
    let way = prober.way(on(false), on(true), 0).expect("a way");
    let times: Vec<Times> = (0..500).map(|i| prober.times(&cluster, &way, i)).collect();
    let most = |of: fn(&Times) -> f64| times.iter().map(of).fold(0.0, f64::max);
    // 3 ms at a time; queues are some microseconds.
    assert!(most(Times::responder_seconds) > 1e-3);
    assert!(most(Times::prober_seconds) < 100e-6);
    assert!(most(Times::network_seconds) < 100e-6);
}

#[test]
fn a_cable_in_another_rails_leaf_shows_as_more_hops() {
    let round_trip = |cluster: &Cluster, prober: &Prober| {
        let to = cluster.plan().nic_index(1, 0);
        let way = prober.way(0, to, 0).expect("a way");
        least(cluster, prober, &way, Times::network_seconds)
    };
    let healthy = infiniband();
    let usual = round_trip(&healthy, &Prober::new(&healthy));
    let [one, other] = [0, 1].map(|nic| healthy.plan().nics[nic].link_part());
    let effect = format!("cause = 'miscabled-rail'\nwith = '{other}'");
    let (cluster, prober) = after(infiniband(), fault(&one.to_string(), &effect));
    let now = round_trip(&cluster, &prober);
    // Four times a NIC and two times a switch; two switches more each way.
    assert!(
        (usual - (4.0 * 0.6e-6 + 2.0 * 0.3e-6)).abs() < 1e-9,
        "{usual}"
    );
    assert!(now - usual > 1.1e-6, "{usual} -> {now}");
}

#[test]
fn a_slow_port_shows_in_its_own_messages_and_in_no_others() {
    let cluster = infiniband();
    let slow = cluster.plan().nic_index(3, 2);
    let part = cluster.plan().nics[slow].link_part().to_string();
    let (cluster, prober) = after(
        cluster,
        fault(&part, "cause = 'port-degraded'\nrate = '1xNDR'"),
    );
    let talks = prober.talks(&cluster, 0);
    let seconds = |healthy: bool| {
        let is = |own: usize| own == slow;
        let talks = talks
            .iter()
            .filter(move |t| (is(t.from) || is(t.to)) != healthy);
        let cluster = &cluster;
        talks.map(move |talk| talk.seconds(cluster, 0))
    };
    assert_eq!(seconds(false).count(), 2);
    let fastest = seconds(false).fold(f64::INFINITY, f64::min);
    let slowest = seconds(true).fold(0.0, f64::max);
    assert!(fastest > 3.0 * slowest, "{fastest} {slowest}");
}

#[test]
fn probes_to_a_dark_port_have_no_way_until_it_is_lit_again() {
    let mut cluster = infiniband();
    let mut down = fault("link/gpu-node-01:mlx5_0/1", "cause = 'port-down'");
    down.part = cluster.plan().nics[cluster.plan().nic_index(1, 0)].link_part();
    (down.onset_seconds, down.end_seconds) = (2.0, Some(4.0));
    cluster.inject(down).expect("fault");
    let mut prober = Prober::new(&cluster);
    let to = cluster.plan().nic_index(1, 0);
    for (second, changed, lit) in [(1, false, true), (3, true, false), (5, true, true)] {
        cluster.advance(Duration::from_secs(second));
        assert_eq!(prober.follow(&cluster), changed, "{second}");
        assert_eq!(prober.way(0, to, 0).is_some(), lit, "{second}");
    }
}

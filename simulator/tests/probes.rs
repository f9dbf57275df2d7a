//! Probes measure their own path only, and distinguish nodes from the network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use railscope_model::metric::{
    Metric, PROBE_FLOW_LOST, PROBE_FLOW_SENT, PROBE_FLOW_SLOW, PROBE_HOP, PROBES_LOST, PROBES_SENT,
};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::faults::Fault;
use railscope_simulator::show::probe::{Prober, Times, Way};
use railscope_simulator::show::readings::{Exporters, Probing, addresses};
use railscope_simulator::spec::ClusterSpec;

const ETHERNET: &str = "nodes = 8\nnics_per_node = 2\ngpus_per_node = 2\ntransport = 'roce'\nrouting = 'ecmp'\n\
    wiring = { kind = 'rail-optimized', nodes_per_su = 4 }\nswitches = { radix = 32 }";

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

/// The shortest time of some probes: the one without queueing.
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
    // Four times a NIC and two times a switch; two switches more in each direction.
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

/// Labels and values of a metric in the expositions of all nodes, the node first.
fn series(exporters: &Exporters, cluster: &Cluster, metric: &Metric) -> BTreeMap<Vec<String>, f64> {
    let mut all = BTreeMap::new();
    for (node, reading) in exporters.read(cluster) {
        for sample in reading
            .samples()
            .iter()
            .filter(|sample| sample.metric == metric)
        {
            let labels = sample.labels.values().map(str::to_owned);
            let labels = std::iter::once(node.to_string()).chain(labels);
            all.insert(labels.collect(), sample.value.as_f64());
        }
    }
    all
}

/// Some seconds of probes after a fault began.
fn probed(mut cluster: Cluster, fault: Option<Fault>, probing: Probing) -> (Cluster, Exporters) {
    let mut exporters = Exporters::of(&cluster).probing(&cluster, probing);
    if let Some(fault) = fault {
        cluster.inject(fault).expect("fault");
    }
    for second in (10..=200).step_by(10) {
        cluster.advance(Duration::from_secs(second));
        exporters.probe(&cluster);
    }
    (cluster, exporters)
}

#[test]
fn exporters_count_every_probe_and_lose_none_on_a_healthy_fabric() {
    let (cluster, exporters) = probed(ethernet(), None, Probing::default());
    let sent = series(&exporters, &cluster, &PROBE_FLOW_SENT);
    // Three neighbors on the leaf, four NICs behind the other with four flows each.
    assert_eq!(sent.len(), 16 * (3 + 4 * 4));
    assert!(sent.values().all(|sent| *sent == 200.0));
    for metric in [&PROBE_FLOW_LOST, &PROBE_FLOW_SLOW] {
        let hits = series(&exporters, &cluster, metric);
        assert!(hits.keys().eq(sent.keys()));
        // A hundred thousandth gets lost.
        assert!(hits.values().sum::<f64>() < 10.0, "{}", metric.name);
    }
    let by_device = series(&exporters, &cluster, &PROBES_SENT);
    assert_eq!(by_device.len(), 16);
    assert_eq!(by_device.values().sum::<f64>(), sent.values().sum::<f64>());
    let known: BTreeSet<String> = addresses(cluster.plan()).map(|(at, ..)| at).collect();
    assert_eq!(known.len(), addresses(cluster.plan()).count(), "each once");
    let hops = series(&exporters, &cluster, &PROBE_HOP);
    // One switch within a leaf, three between leaves.
    assert_eq!(hops.len(), 16 * (3 + 3 * 4 * 4));
    assert!(hops.keys().all(|labels| known.contains(&labels[7])));
    let none = Probing {
        hops: false,
        ..Probing::default()
    };
    let (cluster, exporters) = probed(ethernet(), None, none);
    assert!(series(&exporters, &cluster, &PROBE_HOP).is_empty());
}

#[test]
fn what_a_cable_loses_or_holds_up_is_counted_by_the_flows_over_it() {
    for (effect, metric) in [
        (
            "cause = 'uplink-lossy'\nloss_ratio = 0.05",
            &PROBE_FLOW_LOST,
        ),
        (
            "cause = 'uplink-jitter'\npacket_ratio = 0.05\nseconds = 1e-3",
            &PROBE_FLOW_SLOW,
        ),
    ] {
        let cluster = ethernet();
        let uplink = cluster.plan().nics.len();
        let (leaf, part) = (
            cluster.plan().cables[uplink].ends[0],
            cluster.plan().cable_part(uplink),
        );
        let (cluster, exporters) = probed(
            cluster,
            Some(fault(&part.to_string(), effect)),
            Probing::default(),
        );
        let prober = Prober::new(&cluster);
        let hits = series(&exporters, &cluster, metric);
        let nic = |node: &str, device: &str| {
            let mut nics = cluster.plan().nics.iter();
            let own = |nic: &railscope_simulator::wiring::Nic| {
                (nic.node_name.as_str(), nic.device.as_str()) == (node, device)
            };
            nics.position(own).expect("a NIC")
        };
        let mut seen = [0, 0];
        for (labels, hits) in hits {
            let (from, to) = (nic(&labels[0], &labels[1]), nic(&labels[2], &labels[3]));
            let flow = labels[4].parse().expect("a number");
            let way = prober.way(from, to, flow).expect("a way");
            let over = way.cables().expect("a known way").contains(&uplink);
            // 5 % of 200, there, back or both.
            assert_eq!(over, hits > 1.0, "{labels:?}: {hits}, {leaf:?}");
            seen[usize::from(over)] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

#[test]
fn a_lossy_edge_loses_to_and_from_its_nic_and_a_restarted_exporter_begins_at_zero() {
    let cluster = ethernet();
    let part = cluster.plan().nics[3].link_part().to_string();
    let lossy = fault(&part, "cause = 'edge-lossy'\nloss_ratio = 0.05");
    let (mut cluster, mut exporters) = probed(cluster, Some(lossy), Probing::default());
    let (node, device) = (cluster.plan().nics[3].node_name.to_string(), "mlx5_1");
    for (labels, lost) in series(&exporters, &cluster, &PROBE_FLOW_LOST) {
        let own = |at: usize| labels[at] == node && labels[at + 1] == device;
        assert_eq!(own(0) || own(2), lost > 2.0, "{labels:?}: {lost}");
    }
    let restarted = usize::from(cluster.plan().nics[3].node);
    cluster.restart_exporter(restarted);
    for (second, least) in [(210, 0.0), (220, 10.0)] {
        cluster.advance(Duration::from_secs(second));
        exporters.probe(&cluster);
        let sent = series(&exporters, &cluster, &PROBE_FLOW_SENT);
        let own = sent.iter().filter(|(labels, _)| labels[0] == node);
        assert!(own.into_iter().all(|(_, sent)| *sent == least), "{second}");
    }
    let lost = series(&exporters, &cluster, &PROBES_LOST);
    assert!(lost[&vec![node, device.to_owned(), "udp".to_owned()]] < 30.0);
}

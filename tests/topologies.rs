//! Every kind of fabric that the simulator builds is what the collector judges it to be.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use railscope_collector::core::analyzer::Analyzer;
use railscope_collector::core::neighbours::{Neighbour, Told};
use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_collector::topology::{Confidence, Kind, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::ibnetdiscover::ibnetdiscover;
use railscope_simulator::readings::NodeRows;
use railscope_simulator::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, Group, Transport};
use railscope_simulator::wiring::Wiring;

use support::root;

const NOW: Timestamp = Timestamp(1_754_493_083_000);

fn spec(name: &str) -> ClusterSpec {
    let path = root()
        .join("tests/fabrics")
        .join(name)
        .with_extension("toml");
    let text = std::fs::read_to_string(&path).expect(name);
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn verdict(wiring: &Wiring) -> Verdict {
    let mut fabric = Fabric::default();
    let subnet = parse_ibnetdiscover(&ibnetdiscover(wiring, NOW));
    let merge = merge_subnet(&mut fabric, &subnet, NOW);
    judge(&fabric, &merge)
}

#[test]
fn the_collector_sees_what_the_simulator_wired() {
    for (name, kind, levels) in [
        ("rail-optimised-3tier", Kind::RailOptimised, 3),
        ("rail-optimised-cores", Kind::RailOptimised, 3),
        ("rail-only", Kind::RailOnly, 2),
        ("dual-plane", Kind::RailOptimised, 2),
        ("mixed-generations", Kind::RailOptimised, 2),
        ("fat-tree-oversubscribed", Kind::FatTree, 2),
        ("fat-tree-3tier", Kind::FatTree, 3),
        ("host-grouped", Kind::HostGrouped, 2),
        ("dragonfly", Kind::Dragonfly, 1),
    ] {
        let verdict = verdict(&Wiring::plan(&spec(name)).expect(name));
        assert_eq!(
            (&verdict.kind, verdict.levels),
            (&kind, levels),
            "{name}:\n{verdict}"
        );
        assert_eq!(verdict.confidence, Confidence::High, "{name}:\n{verdict}");
        println!("{name}: {verdict}");
    }
}

#[test]
fn a_fabric_of_any_nodes_is_the_same_fabric() {
    let of = |node: NodeKind, groups: &[Group]| ClusterSpec {
        node,
        groups: groups.to_vec(),
        ..ClusterSpec::demo(40).expect("a cluster")
    };
    // As many of the first unit's as it has, and a rack of trays with fewer rails.
    let others = [(NodeKind::DgxA100, 32), (NodeKind::Gb200Nvl72, 18)];
    // A cloud shows nobody its fabric.
    let seen = NodeKind::ALL
        .iter()
        .filter(|kind| kind.transport() == Transport::Infiniband);
    let alike = seen.map(|kind| of(*kind, &[]));
    let mixed = others.map(|(node, nodes)| of(NodeKind::HgxH100, &[Group { node, nodes }]));
    for spec in alike.chain(mixed) {
        let name = format!("{} {:?}", spec.node, spec.groups);
        let verdict = verdict(&Wiring::plan(&spec).expect("a plan"));
        assert_eq!(
            (&verdict.kind, verdict.levels, verdict.confidence),
            (&Kind::RailOptimised, 2, Confidence::High),
            "{name}:\n{verdict}"
        );
        println!("{name}: {verdict}");
    }
}

#[test]
fn of_a_fabric_that_nobody_sees_the_collector_says_that_it_does_not_know_it() {
    let spec = ClusterSpec {
        node: NodeKind::EfaP5,
        transport: Transport::Efa,
        ..ClusterSpec::demo(4).expect("a cluster")
    };
    let mut cluster = Cluster::new(spec, 1).expect("a cluster");
    let mut analyzer = Analyzer::default();
    let names: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| node.name.clone())
        .collect();
    analyzer.set_targets(&names);
    let rows = NodeRows::of(&cluster);
    let mut view = analyzer.tick(NOW);
    for seconds in (5..=120).step_by(5) {
        cluster.advance(Duration::from_secs(seconds));
        let at = NOW.plus_seconds(seconds as f64);
        for ((name, rows), node) in names.iter().zip(&rows).zip(cluster.nodes()) {
            analyzer.ingest_reading(name, &rows.read(node), at);
        }
        view = analyzer.tick(at);
    }
    let verdict = &view.verdict;
    assert!(matches!(verdict.kind, Kind::Unknown { .. }), "{verdict}");
    assert_eq!(
        (verdict.levels, verdict.hosts, verdict.gpus, verdict.nics),
        (0, 4, Some(32), 4 * 32),
        "{verdict}"
    );
    assert!(verdict.switches_by_tier.is_empty(), "{verdict}");
    assert_eq!(view.incidents.len(), 0, "{:?}", view.incidents);
    println!("{verdict}");
}

/// Cables as `part port - part port`, ports of switches as their LLDP names them.
fn cables(fabric: &Fabric) -> BTreeSet<String> {
    let mut cables = BTreeSet::new();
    for (_, a, b, link) in fabric.links() {
        if link.kind == LinkKind::Cable {
            let end = |id, port| {
                let part = &fabric.vertex(id).part;
                match (part, fabric.port_name(id, port)) {
                    (Part::Switch(_), PortName::Number(number)) => format!("{part} swp{number}"),
                    (_, port) => format!("{part} {port}"),
                }
            };
            let mut ends = [end(a, link.ports.0), end(b, link.ports.1)];
            ends.sort();
            cables.insert(ends.join(" - "));
        }
    }
    cables
}

/// What each switch hears of the others, as its LLDP tells it.
fn told(fabric: &Fabric) -> BTreeMap<SwitchName, Told> {
    let mut told: BTreeMap<SwitchName, Told> = BTreeMap::new();
    for (id, vertex) in fabric.vertices() {
        let Part::Switch(name) = &vertex.part else {
            continue;
        };
        let own = told.entry(name.clone()).or_default();
        for near in fabric.neighbours(id) {
            if let Part::Switch(far) = &fabric.vertex(near.peer).part {
                own.neighbours.push(Neighbour {
                    local: format!("swp{}", near.port),
                    chassis: format!("chassis of {far}"),
                    port: format!("swp{}", near.peer_port),
                    system: far.to_string(),
                    ..Neighbour::default()
                });
            }
        }
    }
    told
}

#[test]
fn of_a_roce_cluster_lldp_gives_the_very_graph_that_the_simulator_wired() {
    for name in ["rail-optimised-3tier", "rail-only", "host-grouped"] {
        let spec = ClusterSpec {
            transport: Transport::Roce,
            ..spec(name)
        };
        let cluster = Cluster::new(spec, 1).expect("a cluster");
        let truth = cluster.plan().fabric(NOW);
        let names: Vec<_> = cluster
            .nodes()
            .iter()
            .map(|node| node.name.clone())
            .collect();
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&names);
        let readings = NodeRows::of(&cluster).into_iter().zip(cluster.nodes());
        for (name, (rows, node)) in names.iter().zip(readings) {
            analyzer.ingest_reading(name, &rows.read(node), NOW);
        }
        let by_hosts = analyzer.tick(NOW);
        assert!(
            matches!(by_hosts.verdict.kind, Kind::Unknown { .. }),
            "{name}: what is above the leaves nobody has told\n{}",
            by_hosts.verdict
        );
        for (switch, told) in told(&truth) {
            analyzer.take_switch(&switch, Ok(told), NOW);
        }
        let view = analyzer.tick(NOW.plus_seconds(5.0));
        assert_eq!(cables(&view.fabric), cables(&truth), "{name}");
        let swept = verdict(cluster.plan());
        assert_eq!(
            (&view.verdict.kind, view.verdict.levels),
            (&swept.kind, swept.levels),
            "{name}:\n{}",
            view.verdict
        );
        assert_eq!(view.lldp.contradictions, [], "{name}");
        println!("{name}: {} cables, {}", view.lldp.cables, view.verdict.kind);
    }
}

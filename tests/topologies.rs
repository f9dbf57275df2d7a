//! Every kind of fabric that the simulator builds is classified as such by the collector.

use std::collections::BTreeSet;
use std::time::Duration;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{Confidence, Kind, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::fabric::{SwitchDown, UplinkDown};
use railscope_simulator::faults::{Effect, Fault};
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::lldp;
use railscope_simulator::show::readings::{Exporters, switches};
use railscope_simulator::spec::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, Group, Transport};
use railscope_simulator::wiring::Wiring;

use crate::support::root;

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
        ("rail-optimized-3tier", Kind::RailOptimized, 3),
        ("rail-optimized-cores", Kind::RailOptimized, 3),
        ("rail-only", Kind::RailOnly, 2),
        ("dual-plane", Kind::RailOptimized, 2),
        ("mixed-generations", Kind::RailOptimized, 2),
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
    // A cloud does not expose its fabric.
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
            (&Kind::RailOptimized, 2, Confidence::High),
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
    let exporters = Exporters::of(&cluster);
    analyzer.set_targets(exporters.names());
    let mut view = analyzer.tick(NOW);
    for seconds in (5..=120).step_by(5) {
        cluster.advance(Duration::from_secs(seconds));
        let at = NOW.plus_seconds(seconds as f64);
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, at);
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

/// Cables as `part port - part port`.
fn cables(fabric: &Fabric) -> BTreeSet<String> {
    let mut cables = BTreeSet::new();
    for (_, a, b, link) in fabric.links() {
        if link.kind == LinkKind::Cable {
            let end =
                |id, port| format!("{} {}", fabric.vertex(id).part, fabric.port_name(id, port));
            let mut ends = [end(a, link.ports.0), end(b, link.ports.1)];
            ends.sort();
            cables.insert(ends.join(" - "));
        }
    }
    cables
}

#[test]
fn of_a_roce_cluster_lldp_gives_the_very_graph_that_the_simulator_wired() {
    for name in ["rail-optimized-3tier", "rail-only", "host-grouped"] {
        let spec = ClusterSpec {
            transport: Transport::Roce,
            ..spec(name)
        };
        let cluster = Cluster::new(spec, 1).expect("a cluster");
        let truth = cluster.plan().fabric(NOW);
        let exporters = Exporters::of(&cluster);
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(exporters.names());
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, NOW);
        }
        let by_hosts = analyzer.tick(NOW);
        assert!(
            matches!(by_hosts.verdict.kind, Kind::Unknown { .. }),
            "{name}: what is above the leaves nobody has told\n{}",
            by_hosts.verdict
        );
        for (switch, text) in lldp::switches(&cluster) {
            analyzer.take_switch(&switch, parse_neighbors(&text), NOW);
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

/// What breaks, and the one incident about it with the GPUs whose paths lead over the part.
#[test]
fn switches_of_a_roce_cluster_that_break_are_named_with_the_gpus_routed_over_them() {
    let (uplink, spine) = ("link/leaf-su0-r2[swp57]", "switch/spine-1");
    for (part, effect, class, gpus) in [
        // Four nodes are connected to the leaf, with a GPU each on its rail.
        (uplink, Effect::UplinkDown(UplinkDown {}), "uplink-down", 4),
        // Rails meet at the spines: every GPU's paths lead over each of them.
        (spine, Effect::SwitchDown(SwitchDown {}), "switch-down", 64),
    ] {
        let fabric = "nodes = 8\ntransport = 'roce'\nswitches = { radix = 64, uplinks = 8 }\n\
                      wiring = { kind = 'rail-optimized', nodes_per_su = 4 }";
        let spec: ClusterSpec = toml::from_str(fabric).expect("a fabric");
        let mut cluster = Cluster::new(spec, 1).expect("a cluster");
        let fault = Fault {
            part: part.parse().expect("a part"),
            onset_seconds: 30.0,
            end_seconds: None,
            effect,
        };
        let truth = cluster.inject(fault).expect("a fault");
        let exporters = Exporters::of(&cluster);
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(exporters.names());
        let mut view = analyzer.tick(NOW);
        for seconds in (5..=120).step_by(5) {
            cluster.advance(Duration::from_secs(seconds));
            let at = NOW.plus_seconds(seconds as f64);
            for (name, reading) in exporters.read(&cluster) {
                analyzer.ingest_reading(name, &reading, at);
            }
            for (switch, reading) in switches(&cluster) {
                analyzer.ingest_switch(&switch, &reading, at);
            }
            // LLDP is read less often than counters, and reports the previous state until then.
            for (switch, text) in lldp::switches(&cluster) {
                if seconds % 60 == 5 {
                    analyzer.take_switch(&switch, parse_neighbors(&text), at);
                }
            }
            view = analyzer.tick(at);
        }
        let incidents = view.incidents.iter();
        let found: Vec<_> = incidents
            .map(|one| {
                (
                    one.class.name,
                    one.root.to_string(),
                    one.gpus_behind().count(),
                )
            })
            .collect();
        assert_eq!(found, [(class, truth.part.to_string(), gpus)]);
    }
}

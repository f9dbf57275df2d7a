//! Every kind of fabric that the simulator builds is what the collector judges it to be.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use railscope_collector::subnet::parse_ibnetdiscover;
use railscope_collector::topology::{Confidence, Kind, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};
use railscope_simulator::ibnetdiscover::ibnetdiscover;
use railscope_simulator::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, Group};
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
        ("dragonfly", Kind::Direct, 1),
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
    let alike = NodeKind::ALL.iter().map(|kind| of(*kind, &[]));
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

//! From a sweep to the classification, on our own small fabrics: `tests/fabrics` and generated ones.
use crate::topology_net as net;

use expect_test::{Expect, expect};
use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{Confidence, Kind, SubnetMerge, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, Timestamp, Witness};
use railscope_model::identity::{Guid, Part};

fn build(text: &str) -> (Fabric, SubnetMerge) {
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &parse_ibnetdiscover(text), Timestamp(1));
    (fabric, merge)
}

fn verdict(text: &str) -> Verdict {
    let (fabric, merge) = build(text);
    judge(&fabric, &merge)
}

/// The classification of a fixture, as an operator reads it. Update with `UPDATE_EXPECT=1`.
fn check(fixture: &str, expected: &Expect) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fabrics/");
    let text = std::fs::read_to_string(format!("{root}{fixture}.ibnetdiscover")).expect(fixture);
    expected.assert_eq(&verdict(&text).to_string());
}

#[test]
fn a_rail_optimized_fabric_is_seen_as_one() {
    check(
        "rail-2tier",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence high)
              switches   6: 4 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      4; 16 NICs
              evidence   4 of 4 host-bearing leaves carry one rail
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   4 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.2 Tb/s of 3.2 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 16 x 4xNDR; between switches 16 x 4xNDR
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 16 cables between switches join two leaves
        "#]],
    );
}

#[test]
fn a_fat_tree_is_no_rail_fabric() {
    check(
        "fat-tree-3tier",
        &expect![[r#"
            fat-tree, 3 levels (confidence high)
              switches   20: 8 leaves, 8 spines, 4 cores
              hosts      16; 16 NICs
              evidence   32 of 32 cables between switches join two tiers; 56 of 56 pairs of leaves tried are joined by a way up and down
              evidence   16 of 16 hosts have their NIC: HCA-1
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 8 leaves)
              tier 2     1.00 downlink/uplink bandwidth
              bisection  1.6 Tb/s of 1.6 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 16 x 4xHDR; between switches 32 x 4xHDR
              single     8 switches and 0 cables between switches cut off hosts: switch/edge-0-0 (2 hosts), switch/edge-0-1 (2 hosts), switch/edge-1-0 (2 hosts), switch/edge-1-1 (2 hosts) …
              ruled out  rails: hosts have one NIC each
              ruled out  dragonfly: 0 of 32 cables between switches join two leaves
        "#]],
    );
}

#[test]
fn a_missing_rail_is_named_by_host_rail_and_device() {
    check(
        "rail-missing",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence high)
              switches   6: 4 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      4; 15 NICs
              evidence   4 of 4 host-bearing leaves carry one rail
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   3 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     0.75 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.0 Tb/s of 3.0 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 15 x 4xNDR; between switches 16 x 4xNDR
              missing    rail 2 (mlx5_4) at 1 host: gpu-03
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 16 cables between switches join two leaves
        "#]],
    );
}

#[test]
fn crossed_cables_are_named_as_a_pair() {
    check(
        "rail-swapped",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence high)
              switches   6: 4 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      4; 16 NICs
              evidence   2 of 4 host-bearing leaves carry one rail; 2 carry one but for single cables
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   4 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.2 Tb/s of 3.2 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 16 x 4xNDR; between switches 16 x 4xNDR
              misplaced  gpu-02 mlx5_0 of rail 0 is connected to leaf-r1 of rail 1, not to leaf-r0 (swapped with gpu-02 mlx5_1)
              misplaced  gpu-02 mlx5_1 of rail 1 is connected to leaf-r0 of rail 0, not to leaf-r1 (swapped with gpu-02 mlx5_0)
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 16 cables between switches join two leaves
        "#]],
    );
}

#[test]
fn service_hosts_on_a_spine_and_a_management_leaf_bend_no_tier() {
    check(
        "rail-service",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence high)
              switches   7: 5 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      8: 4 compute, 4 service; 20 NICs
              service    few NICs by design: login-1 (1), login-2 (1), login-3 (1), ufm-01 (1)
              evidence   4 of 5 host-bearing leaves carry one rail; the other 1 no rail, only service or unnamed hosts
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   4 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.2 Tb/s of 3.2 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 20 x 4xNDR; between switches 18 x 4xNDR
              single     2 switches and 0 cables between switches cut off hosts: switch/mgmt-leaf (3 hosts), switch/spine-01 (1 host)
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 18 cables between switches join two leaves
        "#]],
    );
}

#[test]
fn a_truncated_sweep_is_partial_and_never_trusted() {
    check(
        "truncated",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence low)
            PARTIAL SWEEP: what follows is not the whole fabric
              switches   6: 4 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      4; 16 NICs
              evidence   4 of 4 host-bearing leaves carry one rail
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   4 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.2 Tb/s of 3.2 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 16 x 4xNDR; between switches 16 x 4xNDR
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 16 cables between switches join two leaves
              doubt      partial sweep: the text stops inside line 185
              doubt      partial sweep: 1 line of nodes or cables could not be read
              doubt      partial sweep: 9 nodes known only from the far end of a cable, such as "gpu-03 mlx5_0"
              doubt      partial sweep: 1 cable shown by one end only, such as port 2 of 0xfc6a1c0300a00080
              doubt      1 thing in the sweep's text could not be read or contradicts another
        "#]],
    );
}

#[test]
fn debris_costs_nothing_but_trust() {
    check(
        "debris",
        &expect![[r#"
            rail-optimized fat-tree, 2 levels (confidence low)
            PARTIAL SWEEP: what follows is not the whole fabric
              switches   6: 4 leaves, 2 spines; 6 aggregation nodes inside them
              hosts      4; 16 NICs
              evidence   4 of 4 host-bearing leaves carry one rail
              evidence   1 scalable unit, groups of hosts behind the same leaves
              evidence   3 of 4 hosts have all 4 NICs: mlx5_0 mlx5_1 mlx5_4 mlx5_5
              leaves     1.00 / 1.00 / 1.00 downlink/uplink bandwidth (min / median / max of 4 leaves)
              bisection  3.2 Tb/s of 3.2 Tb/s that half of the hosts can send (100 %)
              speeds     hosts 16 x 4xNDR; between switches 16 x 4xNDR
              single     1 switch and 0 cables between switches cut off hosts: switch/leaf-r1 (1 host)
              missing    rail 1 (mlx5_1) at 1 host: gpu-04; at 1 of them a NIC without a name is connected to that leaf
              ruled out  rail-only: cables between switches join 4 rails
              ruled out  host-grouped: 0 of 4 hosts have all their NICs on one switch, expected 90 %
              ruled out  dragonfly: 0 of 16 cables between switches join two leaves
              doubt      partial sweep: 1 warning of the sweeping tool
              doubt      5 things in the sweep's text could not be read or contradict each other
              doubt      1 NIC does not say which host it is in
        "#]],
    );
}

#[test]
fn an_empty_sweep_is_no_verdict() {
    for text in ["", "ibpanic: [1] no port\n"] {
        let verdict = verdict(text);
        assert!(matches!(verdict.kind, Kind::Unknown { .. }), "{verdict}");
        assert_eq!(verdict.confidence, Confidence::Low);
        assert!(
            verdict
                .to_string()
                .contains("no verdict: no switch and no NIC seen"),
            "{verdict}"
        );
        assert!(verdict.to_string().contains("PARTIAL"), "{verdict}");
    }
}

#[test]
fn exporters_names_win_over_the_subnets() {
    let mut net = Net::default();
    let leaf = net.switch("leaf");
    let ca = net.host(leaf, "localhost HCA-1");
    let mut fabric = Fabric::default();
    let nic = fabric.upsert(
        "nic/gpu-1:mlx5_0".parse().expect("part"),
        Equipment::Nic {
            guid: Some(Guid(net.guid(ca))),
            pci: None,
            rail: Some(3),
        },
    );
    let merge = merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
    assert_eq!((merge.nics, merge.known_nics), (1, 1));
    let parts: Vec<_> = fabric
        .vertices()
        .map(|(_, vertex)| vertex.part.to_string())
        .collect();
    assert_eq!(parts, ["nic/gpu-1:mlx5_0", "switch/leaf"]);
    assert_eq!(
        fabric.neighbors(nic).count(),
        1,
        "the cable is connected to the exporter's NIC"
    );
    assert!(matches!(
        fabric.vertex(nic).equipment,
        Equipment::Nic { rail: Some(3), .. }
    ));
}

#[test]
fn an_exporters_nic_of_that_name_with_another_guid_is_another_nic() {
    let mut net = Net::default();
    let leaf = net.switch("leaf");
    net.host(leaf, "gpu-1 mlx5_0");
    let mut fabric = Fabric::default();
    let part: Part = "nic/gpu-1:mlx5_0".parse().expect("part");
    let nic = fabric.upsert(
        part,
        Equipment::Nic {
            guid: Some(Guid(1)),
            pci: None,
            rail: None,
        },
    );
    merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
    assert_eq!(fabric.neighbors(nic).count(), 0);
    assert_eq!(fabric.count_parts()["nic"], 2);
}

#[test]
fn a_numbered_adapter_is_the_exporters_device_of_that_number() {
    assert_eq!(numbered(&[1, 2]), ["nic/gpu-1:mlx5_0", "nic/gpu-1:mlx5_4"]);
    // The exporters lack one: it may be any.
    assert_eq!(
        numbered(&[1, 2, 4]),
        ["nic/gpu-1:HCA-1", "nic/gpu-1:HCA-2", "nic/gpu-1:HCA-4"]
    );
}

/// The NICs on a leaf that are so described, of a node whose exporters report three.
fn numbered(numbers: &[usize]) -> Vec<String> {
    let mut net = Net::default();
    let leaf = net.switch("leaf");
    for number in numbers {
        net.host(leaf, &format!("gpu-1 HCA-{number}"));
    }
    let mut fabric = Fabric::default();
    let host = fabric.upsert("host/gpu-1".parse().expect("part"), Equipment::Host);
    for device in ["mlx5_5", "mlx5_0", "mlx5_4"] {
        let (guid, pci, rail) = (None, None, None);
        let part = format!("nic/gpu-1:{device}").parse().expect("part");
        let nic = fabric.upsert(part, Equipment::Nic { guid, pci, rail });
        let inside = Link::plain(LinkKind::Inside, Witness::Exporter, Timestamp(1));
        fabric.connect(nic, host, inside);
    }
    merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
    let leaf = fabric.find(&"switch/leaf".parse().expect("part"));
    let nics = fabric.neighbors(leaf.expect("the leaf"));
    let mut nics: Vec<_> = nics
        .map(|near| fabric.vertex(near.peer).part.to_string())
        .collect();
    nics.sort();
    nics
}

#[test]
fn machines_of_one_name_are_not_merged() {
    let mut net = Net::default();
    let leaf = net.switch("leaf");
    for description in [
        "localhost HCA-1",
        "localhost HCA-1",
        "localhost HCA-2",
        "ubuntu HCA-1",
        "MT4129 ConnectX7   Mellanox Technologies",
        "MT4129 ConnectX7   Mellanox Technologies",
    ] {
        net.host(leaf, description);
    }
    let (fabric, merge) = build(&net.text());
    let counts = fabric.count_parts();
    assert_eq!((counts["host"], counts["nic"]), (6, 6));
    assert_eq!(merge.duplicate_names.len(), 2);
    assert!(fabric.find(&"host/ubuntu".parse().expect("part")).is_some());
    assert!(
        fabric
            .find(&"host/localhost".parse().expect("part"))
            .is_none()
    );
}

#[test]
fn merging_the_same_sweep_again_changes_nothing() {
    let mut net = Net::default();
    net.rail_tree(8, 4, 8, 2);
    net.host(0, "localhost");
    net.host(0, "localhost");
    let subnet = parse_ibnetdiscover(&net.text());
    let (mut fabric, first) = build(&net.text());
    let shape = |fabric: &Fabric| (fabric.vertices().count(), fabric.links().count());
    let before = shape(&fabric);
    let second = merge_subnet(&mut fabric, &subnet, Timestamp(2));
    assert_eq!(shape(&fabric), before);
    assert_eq!((second.nics, second.cables), (first.nics, first.cables));
    let cables = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    let again = cables
        .filter(|(.., link)| link.seen() == Timestamp(2))
        .count();
    assert_eq!(again, second.cables);
}

#[test]
fn gpus_are_counted_where_exporters_tell_of_them() {
    let (mut fabric, merge) = build(&{
        let mut net = Net::default();
        net.rail_tree(4, 2, 4, 1);
        net.text()
    });
    assert_eq!(judge(&fabric, &merge).gpus, None);
    let host = fabric
        .find(&"host/gpu-00000".parse().expect("part"))
        .expect("host");
    let gpu = fabric.upsert(
        "gpu/gpu-00000:0".parse().expect("part"),
        Equipment::Gpu {
            uuid: None,
            pci: None,
        },
    );
    let inside = Link::plain(LinkKind::Inside, Witness::Exporter, Timestamp(1));
    fabric.connect(host, gpu, inside);
    assert_eq!(judge(&fabric, &merge).gpus, Some(1));
}

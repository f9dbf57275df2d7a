//! Tiers and topology types derived from structure; the names in these fabrics are only for the reader.
use crate::topology_net as net;

use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{Kind, SubnetMerge, Verdict, judge, merge_subnet, tiers};
use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;

fn build(text: &str) -> (Fabric, SubnetMerge) {
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &parse_ibnetdiscover(text), Timestamp(1));
    (fabric, merge)
}

fn verdict(text: &str) -> Verdict {
    let (fabric, merge) = build(text);
    judge(&fabric, &merge)
}

/// Tiers as a map from switch to tier, for switches whose name begins with a prefix.
fn tiers_of(net: &Net, prefix: &str) -> Vec<Option<u8>> {
    let (fabric, _) = build(&net.text());
    let tiers = tiers(&fabric);
    let named =
        |part: &Part| matches!(part, Part::Switch(name) if name.as_str().starts_with(prefix));
    let switches = fabric.vertices().filter(|(_, vertex)| named(&vertex.part));
    let mut found: Vec<_> = switches.map(|(id, _)| tiers.of(id)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Two pods of leaves and spines under cores.
fn three_tiers() -> (Net, Vec<usize>, Vec<usize>) {
    let mut net = Net::default();
    let cores: Vec<_> = (0..4).map(|n| net.switch(&format!("core-{n}"))).collect();
    let mut spines = Vec::new();
    for pod in 0..2 {
        let own: Vec<_> = (0..2)
            .map(|n| net.switch(&format!("spine-{pod}-{n}")))
            .collect();
        for leaf in 0..4 {
            let switch = net.switch(&format!("leaf-{pod}-{leaf}"));
            for host in 0..4 {
                net.host(switch, &format!("gpu-{pod}{host} mlx5_{leaf}"));
            }
            for spine in &own {
                net.link(switch, *spine);
            }
        }
        for (index, spine) in own.iter().enumerate() {
            for core in 0..2 {
                net.link(*spine, cores[index * 2 + core]);
            }
        }
        spines.extend(own);
    }
    // Cores of one plane connect to one spine of each pod; these two links join the planes.
    net.link(spines[0], cores[2]);
    net.link(spines[2], cores[2]);
    (net, spines, cores)
}

fn check_tiers(net: &Net, expected: &[(&str, u8)]) {
    for (prefix, tier) in expected {
        assert_eq!(tiers_of(net, prefix), [Some(*tier)], "{prefix}");
    }
}

const THREE: [(&str, u8); 3] = [("leaf", 1), ("spine", 2), ("core", 3)];

#[test]
fn tiers_follow_the_structure() {
    check_tiers(&three_tiers().0, &THREE);
}

#[test]
fn service_hosts_on_spines_and_cores_do_not_change_tiers() {
    let (mut net, spines, cores) = three_tiers();
    for (n, switch) in spines.iter().chain(&cores).enumerate() {
        net.host(*switch, &format!("storage-{n} mlx5_0"));
    }
    check_tiers(&net, &THREE);
}

#[test]
fn management_leaves_are_leaves_wherever_they_are_connected() {
    for on_core in [false, true] {
        let (mut net, spines, cores) = three_tiers();
        let leaf = net.switch("mgmt");
        for n in 0..3 {
            net.host(leaf, &format!("login-{n} mlx5_0"));
        }
        net.link(leaf, if on_core { cores[0] } else { spines[0] });
        net.link(leaf, if on_core { cores[1] } else { spines[0] });
        check_tiers(&net, &THREE);
        check_tiers(&net, &[("mgmt", 1)]);
    }
}

#[test]
fn a_branch_below_the_cores_counts_downwards() {
    let (mut net, _, cores) = three_tiers();
    let spine = net.switch("side-spine");
    let leaf = net.switch("side-leaf");
    net.link(spine, cores[0]);
    net.link(spine, leaf);
    net.host(leaf, "nfs-1 mlx5_0");
    check_tiers(&net, &THREE);
    check_tiers(&net, &[("side-spine", 2), ("side-leaf", 1)]);
}

#[test]
fn a_leaf_whose_hosts_are_off_stays_a_leaf() {
    let mut net = Net::default();
    let (_, spines) = net.rail_tree(16, 4, 8, 2);
    let dark = net.switch("dark");
    for spine in spines {
        net.link(dark, spine);
    }
    check_tiers(&net, &[("leaf", 1), ("dark", 1), ("spine", 2)]);
}

/// Six leaves with sixteen hosts each below four spines, and a fifth spine connected to the given number of leaves.
fn eleven_switches(joined_by_the_fifth: usize) -> (Net, usize) {
    let mut net = Net::default();
    let leaves: Vec<_> = (0..6).map(|n| net.switch(&format!("leaf-{n}"))).collect();
    for (n, leaf) in leaves.iter().enumerate() {
        for host in 0..16 {
            net.host(*leaf, &format!("n{n}{host:02} mlx5_0"));
        }
    }
    let spines: Vec<_> = (0..5).map(|n| net.switch(&format!("spine-{n}"))).collect();
    for spine in &spines[..4] {
        for leaf in &leaves {
            net.link(*leaf, *spine);
            net.link(*leaf, *spine);
        }
    }
    for leaf in &leaves[..joined_by_the_fifth] {
        net.link(*leaf, spines[4]);
    }
    (net, spines[4])
}

#[test]
fn a_spine_with_servers_of_the_site_is_a_spine() {
    for (joined, servers) in [(6, 5), (6, 1), (2, 1)] {
        let (mut net, spine) = eleven_switches(joined);
        for server in 0..servers {
            net.host(spine, &format!("storage-{server} mlx5_0"));
        }
        let verdict = verdict(&net.text());
        assert_eq!(verdict.switches_by_tier, [6, 5], "{joined} {servers}");
        let few: Vec<_> = verdict.odd_switches;
        let expected = ["spine-4 has 2 cables downwards; others of its tier have 12"];
        assert_eq!(few, &expected[..usize::from(joined == 2)]);
    }
}

#[test]
fn a_switch_without_hosts_and_one_with_two_uplinks_are_reported() {
    let (mut net, spine) = eleven_switches(6);
    let bare = net.switch("leaf-6");
    let poor = net.switch("leaf-7");
    for switch in 0..2 {
        net.link(poor, spine - 1 - switch);
    }
    for other in 0..5 {
        net.link(bare, spine - other);
    }
    for host in 0..16 {
        net.host(poor, &format!("p{host:02} mlx5_0"));
    }
    let verdict = verdict(&net.text());
    assert_eq!(verdict.switches_by_tier, [8, 5]);
    assert_eq!(
        verdict.odd_switches,
        [
            "leaf-6 has no hosts but is cabled as a leaf: a spare, or its hosts are off",
            "leaf-7 has 2 cables upwards; others of its tier have 9",
        ]
    );
}

#[test]
fn self_loops_do_not_count() {
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(8, 4, 8, 2);
    net.link(leaves[0][0], leaves[0][0]);
    check_tiers(&net, &[("leaf", 1), ("spine", 2)]);
    let verdict = verdict(&net.text());
    assert_eq!(verdict.self_loops.len(), 1);
    assert_eq!(verdict.self_loops[0].ports, (11.into(), 12.into()));
}

fn check_kind(net: &Net, expected: &Kind) {
    assert_eq!(verdict(&net.text()).kind, *expected);
}

#[test]
fn rails_that_nothing_joins_are_rail_only() {
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(16, 4, 8, 0);
    for (first, second) in leaves[0].iter().zip(&leaves[1]) {
        let spine = net.switch("spine");
        net.link(*first, spine);
        net.link(*second, spine);
    }
    check_kind(&net, &Kind::RailOnly);
}

#[test]
fn hosts_on_one_switch_each_are_host_grouped() {
    let mut net = Net::default();
    let spine = net.switch("spine");
    for leaf in 0..3 {
        let switch = net.switch(&format!("leaf-{leaf}"));
        net.link(switch, spine);
        for host in 0..12 {
            net.host(switch, &format!("n{leaf}{:02} mlx5_{}", host / 4, host % 4));
        }
    }
    check_kind(&net, &Kind::HostGrouped);
}

#[test]
fn switches_with_hosts_joined_to_each_other_are_a_direct_network() {
    let mut net = Net::default();
    let switches: Vec<_> = (0..6).map(|n| net.switch(&format!("router-{n}"))).collect();
    for (n, switch) in switches.iter().enumerate() {
        net.host(*switch, &format!("a{n} mlx5_0"));
        net.host(*switch, &format!("b{n} mlx5_0"));
        for other in &switches[..n] {
            net.link(*switch, *other);
        }
    }
    check_kind(&net, &Kind::Direct);
}

#[test]
fn one_switch_is_one_switch() {
    let mut net = Net::default();
    net.rail_tree(4, 1, 4, 0);
    check_kind(&net, &Kind::SingleSwitch);
}

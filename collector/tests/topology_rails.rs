//! Which rail a NIC, a leaf and a host without one are on, and which NIC is connected elsewhere.
use crate::topology_net as net;

use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{
    SubnetMerge, Verdict, assign_rails, judge, merge_subnet, wiring,
};
use railscope_model::fabric::{Equipment, Fabric, Timestamp};
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

/// Rails of all NICs of one host, as `device rail` by device.
fn rails_of(fabric: &Fabric, host: &str) -> Vec<String> {
    let mut rails: Vec<_> = fabric
        .vertices()
        .filter_map(|(_, vertex)| match (&vertex.part, &vertex.equipment) {
            (Part::Nic(node, device), Equipment::Nic { rail, .. }) if node.as_str() == host => {
                Some(format!(
                    "{device} {}",
                    rail.map_or("-".to_owned(), |rail| rail.to_string())
                ))
            }
            _ => None,
        })
        .collect();
    rails.sort();
    rails
}

#[test]
fn rails_go_by_name_against_the_majority_and_not_by_position() {
    let mut net = Net::default();
    let leaves: Vec<_> = (0..4).map(|n| net.switch(&format!("leaf-{n}"))).collect();
    for host in 0..6 {
        for (rail, device) in ["mlx5_2", "mlx5_3", "mlx5_10", "mlx5_11"]
            .iter()
            .enumerate()
        {
            if (host, rail) != (5, 1) {
                net.host(leaves[rail], &format!("gpu-{host} {device}"));
            }
        }
    }
    net.host(leaves[0], "login-1 mlx5_2");
    let (mut fabric, _) = build(&net.text());
    assert_eq!(assign_rails(&mut fabric), 23);
    assert_eq!(
        rails_of(&fabric, "gpu-0"),
        ["mlx5_10 2", "mlx5_11 3", "mlx5_2 0", "mlx5_3 1"]
    );
    assert_eq!(
        rails_of(&fabric, "gpu-5"),
        ["mlx5_10 2", "mlx5_11 3", "mlx5_2 0"]
    );
    assert_eq!(
        rails_of(&fabric, "login-1"),
        ["mlx5_2 -"],
        "a service host has no rail"
    );
    let wiring = wiring(&fabric);
    let missing: Vec<_> = wiring.missing.iter().map(ToString::to_string).collect();
    assert_eq!(missing, ["gpu-5 lacks rail 1 (mlx5_3)"]);
    assert!(wiring.misplaced.is_empty(), "{:?}", wiring.misplaced);
}

#[test]
fn rails_follow_pci_addresses_where_exporters_say_them() {
    let mut net = Net::default();
    net.rail_tree(4, 4, 4, 2);
    let mut fabric = Fabric::default();
    for host in 0..4 {
        for device in 0..4 {
            let pci = format!("0000:{:02x}:00.0", 0x80 - 0x10 * device)
                .parse()
                .expect("pci");
            let part = format!("nic/gpu-{host:05}:mlx5_{device}")
                .parse()
                .expect("part");
            fabric.upsert(
                part,
                Equipment::Nic {
                    guid: None,
                    pci: Some(pci),
                    rail: None,
                },
            );
        }
    }
    merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
    assign_rails(&mut fabric);
    assert_eq!(
        rails_of(&fabric, "gpu-00002"),
        ["mlx5_0 3", "mlx5_1 2", "mlx5_2 1", "mlx5_3 0"]
    );
    assert!(wiring(&fabric).misplaced.is_empty());
}

#[test]
fn a_host_called_like_compute_hosts_lacks_rails_and_is_no_service_host() {
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(16, 4, 16, 2);
    net.host(leaves[0][3], "gpu-00099 mlx5_3");
    net.host(leaves[0][3], "backup-1 mlx5_3");
    let verdict = verdict(&net.text());
    let missing: Vec<_> = verdict
        .wiring
        .missing
        .iter()
        .map(|m| (m.host.as_str(), m.rail))
        .collect();
    assert_eq!(
        missing,
        [("gpu-00099", 0), ("gpu-00099", 1), ("gpu-00099", 2)]
    );
    let service: Vec<_> = verdict
        .service_hosts
        .iter()
        .map(|s| s.host.as_str())
        .collect();
    assert_eq!(service, ["backup-1"]);
}

#[test]
fn a_cable_in_another_units_leaf_is_misplaced() {
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(16, 4, 8, 2);
    for rail in 0..4 {
        net.host(
            leaves[usize::from(rail == 2)][rail],
            &format!("gpu-00099 mlx5_{rail}"),
        );
    }
    let (fabric, _) = build(&net.text());
    let wiring = wiring(&fabric);
    assert_eq!(wiring.units, 2);
    let misplaced: Vec<_> = wiring.misplaced.iter().map(ToString::to_string).collect();
    assert_eq!(
        misplaced,
        ["gpu-00099 mlx5_2 of rail 2 is connected to leaf-1-2 of rail 2, not to leaf-0-2"]
    );
    let leaf = wiring.leaf_rails[0].leaf.clone();
    assert_eq!(
        wiring
            .rail_of_leaf(&leaf)
            .map(|leaf| (leaf.rail, leaf.nics)),
        Some((0, 9))
    );
}

#[test]
fn a_class_numbered_otherwise_is_not_called_miscabled() {
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(16, 4, 16, 2);
    for host in 0..8 {
        for (rail, leaf) in leaves[0].iter().enumerate() {
            net.host(*leaf, &format!("other-{host} mlx4_{}", 3 - rail));
        }
    }
    let (fabric, _) = build(&net.text());
    assert_eq!(wiring(&fabric).misplaced, []);
}

/// Eight hosts of four NICs, four on each of two leaves, except for NICs that are connected elsewhere: host, device, leaf.
fn racks(elsewhere: &[(usize, usize, usize)]) -> Vec<String> {
    let mut net = Net::default();
    let leaves: Vec<_> = (0..2).map(|n| net.switch(&format!("rack-{n}"))).collect();
    for (host, device) in (0..8).flat_map(|host| (0..4).map(move |device| (host, device))) {
        let moved = elsewhere
            .iter()
            .find(|(other, nic, _)| (*other, *nic) == (host, device));
        let leaf = moved.map_or(host / 4, |(.., leaf)| *leaf);
        net.host(leaves[leaf], &format!("gpu-{host} mlx5_{device}"));
    }
    let (mut fabric, _) = build(&net.text());
    assign_rails(&mut fabric);
    let misplaced = wiring(&fabric).misplaced;
    misplaced.iter().map(ToString::to_string).collect()
}

#[test]
fn where_hosts_have_one_leaf_a_nic_on_another_is_misplaced() {
    assert!(racks(&[]).is_empty());
    assert_eq!(
        racks(&[(1, 2, 1), (6, 0, 0)]),
        [
            "gpu-1 mlx5_2 of rail 2 is connected to rack-1, not to rack-0 (swapped with gpu-6 mlx5_0)",
            "gpu-6 mlx5_0 of rail 0 is connected to rack-0, not to rack-1 (swapped with gpu-1 mlx5_2)",
        ]
    );
    assert_eq!(
        racks(&[(3, 1, 1)]),
        ["gpu-3 mlx5_1 of rail 1 is connected to rack-1, not to rack-0"]
    );
}

#[test]
fn a_nic_that_hangs_elsewhere_on_many_hosts_is_meant_to() {
    assert!(racks(&[(0, 3, 1), (1, 3, 1), (2, 3, 1)]).is_empty());
    let halves: Vec<_> = (0..8)
        .flat_map(|host| [0, 1].map(|nic| (host, nic, 1 - host / 4)))
        .collect();
    assert!(racks(&halves).is_empty());
}

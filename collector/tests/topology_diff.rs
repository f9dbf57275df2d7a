//! What changed between two sweeps of a fabric, by the names of parts and ports.
use crate::topology_net as net;

use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{Change, Ends, diff, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};

fn fabric(text: &str) -> Fabric {
    let mut fabric = Fabric::default();
    merge_subnet(&mut fabric, &parse_ibnetdiscover(text), Timestamp(1));
    fabric
}

fn words(change: &Change) -> String {
    let ends = |ends: &Ends| {
        let [a, b] = ends;
        format!("{}:{}-{}:{}", a.part, a.port, b.part, b.port)
    };
    match change {
        Change::PartCame(part) => format!("+ {part}"),
        Change::PartWent(part) => format!("- {part}"),
        Change::CableCame(cable) => format!("+ {}", ends(cable)),
        Change::CableWent(cable) => format!("- {}", ends(cable)),
        Change::CableMoved { from, to } => format!("{} to {}", ends(from), ends(to)),
        Change::SpeedChanged { cable, from, to } => format!("{} {from} to {to}", ends(cable)),
    }
}

fn check(older: &str, newer: &str, expected: &[&str]) {
    let (older, newer) = (fabric(older), fabric(newer));
    let changes = diff(&older, &newer);
    assert_eq!(changes.iter().map(words).collect::<Vec<_>>(), expected);
}

/// Two leaves with two hosts each under a spine; cables of hosts as a test wires them, by leaf.
fn net(leaf_of: [usize; 4], hosts: usize) -> String {
    let mut net = Net::default();
    let spine = net.switch("spine");
    let leaves = [net.switch("leaf-a"), net.switch("leaf-b")];
    leaves.iter().for_each(|leaf| net.link(*leaf, spine));
    for (host, leaf) in leaf_of.iter().enumerate().take(hosts) {
        net.host(leaves[*leaf], &format!("n{host} mlx5_0"));
    }
    net.text()
}

#[test]
fn nothing_changed_is_no_change() {
    check(&net([0, 0, 1, 1], 4), &net([0, 0, 1, 1], 4), &[]);
}

#[test]
fn a_cable_in_another_switch_has_moved() {
    check(
        &net([0, 0, 1, 1], 4),
        &net([0, 0, 1, 0], 4),
        &["nic/n3:mlx5_0:1-switch/leaf-b:3 to nic/n3:mlx5_0:1-switch/leaf-a:4"],
    );
}

#[test]
fn two_swapped_cables_have_both_moved() {
    check(
        &net([0, 1, 1, 1], 2),
        &net([1, 0, 1, 1], 2),
        &[
            "nic/n0:mlx5_0:1-switch/leaf-a:2 to nic/n0:mlx5_0:1-switch/leaf-b:2",
            "nic/n1:mlx5_0:1-switch/leaf-b:2 to nic/n1:mlx5_0:1-switch/leaf-a:2",
        ],
    );
}

#[test]
fn a_host_that_went_takes_what_sat_in_it_and_its_cable() {
    check(
        &net([0, 0, 1, 1], 4),
        &net([0, 0, 1, 1], 3),
        &["- host/n3", "- nic/n3:mlx5_0:1-switch/leaf-b:3"],
    );
    check(
        &net([0, 0, 1, 1], 3),
        &net([0, 0, 1, 1], 4),
        &["+ host/n3", "+ nic/n3:mlx5_0:1-switch/leaf-b:3"],
    );
}

#[test]
fn another_speed_of_one_cable_is_named_with_both() {
    let whole = net([0, 0, 1, 1], 4);
    let port = "[2]\t\"H-";
    let line = whole
        .lines()
        .find(|line| line.starts_with(port))
        .expect("a port");
    let slowed = whole.replacen(line, &line.replace("4xNDR", "4xHDR"), 1);
    // The NIC's own line reports the same of the same cable.
    let nic = whole
        .lines()
        .filter(|line| line.starts_with("[1]("))
        .find(|line| line.contains("leaf-a"))
        .expect("a NIC");
    let slowed = slowed.replacen(nic, &nic.replace("4xNDR", "4xHDR"), 1);
    check(
        &whole,
        &slowed,
        &["nic/n0:mlx5_0:1-switch/leaf-a:2 4xNDR to 4xHDR"],
    );
}

/// A switch that reports rates only, beside a sweep.
#[test]
fn the_same_speed_by_its_ethernet_name_is_no_change() {
    let whole = net([0, 0, 1, 1], 4);
    check(&whole, &whole.replace("4xNDR", "400G"), &[]);
    let slower = diff(&fabric(&whole), &fabric(&whole.replace("4xNDR", "200G")));
    assert!(!slower.is_empty());
}

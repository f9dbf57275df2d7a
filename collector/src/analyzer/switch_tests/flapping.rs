//! Cables of switches whose links go down repeatedly.

use railscope_model::metric::{
    GPU, NIC_CARRIER, NIC_CARRIER_CHANGES, NIC_SPEED, NODE_BOOT_TIME, SWITCH_PORT_CARRIER_CHANGES,
    SWITCH_PORT_LINK_DOWNED, SWITCH_PORT_UP,
};
use railscope_model::reading::{Labels, NodeReading};

use super::{at, leaves};
use crate::detect::rules::flapping_port;

/// What is named after ten readings, in which port 1 of `a` is down in these, and its other end counts losses in those.
fn named(down: &[usize], counted: &[usize]) -> Vec<String> {
    let mut lab = leaves();
    let ends = [("a", "1"), ("s", "1"), ("b", "2")];
    for (switch, port) in ends {
        lab.add(switch, &SWITCH_PORT_UP, &[port], 1.0);
        lab.add(switch, &SWITCH_PORT_LINK_DOWNED, &[port], 4.0);
    }
    for reading in 0..10 {
        let is_down = |reading| down.contains(&reading);
        let was_down = reading > 0 && is_down(reading - 1);
        let change = f64::from(was_down) - f64::from(is_down(reading));
        lab.add("a", &SWITCH_PORT_UP, &["1"], change);
        let losses = f64::from(counted.contains(&reading));
        lab.add("s", &SWITCH_PORT_LINK_DOWNED, &["1"], 2.0 * losses);
        lab.read();
    }
    lab.said_by(flapping_port::build)
}

#[test]
fn a_cable_between_switches_that_goes_down_twice_flaps_by_either_end() {
    let flaps = ["port-flapping link/a:1"];
    assert_eq!(named(&[3, 6, 7], &[]), flaps);
    assert_eq!(named(&[], &[3, 6]), flaps);
    assert_eq!(named(&[3, 6], &[3, 6]), flaps, "once");
    assert!(named(&[3, 4, 5], &[]).is_empty(), "moved");
    assert!(named(&[], &[3]).is_empty(), "it bounced");
}

/// What is named where a leaf sees the link of a host go down twice, and the host reports when it started.
fn named_of_host(booted: Option<f64>) -> Vec<String> {
    let mut lab = leaves();
    lab.host("n0", ("a", 10));
    lab.add("a", &SWITCH_PORT_UP, &["10"], 1.0);
    for reading in 0..10 {
        let change = [0.0, 0.0, -1.0, 1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0][reading];
        lab.add("a", &SWITCH_PORT_UP, &["10"], change);
        lab.read();
        let mut node = NodeReading::default();
        if let Some(booted) = booted {
            node.push(
                &NODE_BOOT_TIME,
                &Labels::default(),
                at(booted).0 as f64 * 1e-3,
            );
        }
        let history = lab.history.node_mut(&"n0".parse().expect("a name"));
        history.ingest_reading(&node, at(lab.seconds));
    }
    lab.said_by(flapping_port::build)
}

#[test]
fn the_cable_of_a_host_that_only_its_switch_sees_go_down_flaps_unless_the_host_started_meanwhile() {
    assert_eq!(
        named_of_host(Some(-60.0)),
        ["port-flapping link/n0:mlx5_0/1"]
    );
    assert!(named_of_host(Some(40.0)).is_empty(), "it started");
    assert!(named_of_host(None).is_empty(), "it may have started");
}

/// What is named where port 1 of `a` counts so many changes of its carrier at these readings.
fn named_by_changes(changes: &[(usize, f64)]) -> Vec<String> {
    let mut lab = leaves();
    lab.add("a", &SWITCH_PORT_CARRIER_CHANGES, &["1"], 7.0);
    for reading in 0..10 {
        let now = changes.iter().filter(|(at, _)| *at == reading);
        let now = now.map(|(_, changes)| changes).sum();
        lab.add("a", &SWITCH_PORT_CARRIER_CHANGES, &["1"], now);
        lab.read();
    }
    lab.said_by(flapping_port::build)
}

#[test]
fn down_and_up_again_are_two_changes_of_a_carrier_and_one_loss() {
    let flaps = ["port-flapping link/a:1"];
    assert_eq!(named_by_changes(&[(3, 2.0), (6, 2.0)]), flaps);
    assert_eq!(named_by_changes(&[(3, 1.0), (4, 1.0), (6, 2.0)]), flaps);
    assert!(named_by_changes(&[(3, 1.0), (5, 1.0)]).is_empty(), "once");
    assert!(named_by_changes(&[(3, 8.0)]).is_empty(), "it bounced");
}

/// What is named where an interface of a host without RDMA devices, of this speed, is down in these readings.
fn named_of_interface(speed: f64, down: &[usize], changes: f64) -> Vec<String> {
    let mut lab = leaves();
    let mut counted = 0.0;
    for reading in 0..10 {
        lab.read();
        let is_down = down.contains(&reading);
        counted += if [3, 6].contains(&reading) {
            changes
        } else {
            0.0
        };
        let mut node = NodeReading::default();
        let netdev = Labels::new(["eth0"]);
        node.push(
            &NODE_BOOT_TIME,
            &Labels::default(),
            at(-60.0).0 as f64 * 1e-3,
        );
        node.push(
            &GPU,
            &Labels::new(["0", "", "", "", "", "", "", "", ""]),
            1.0,
        );
        node.push(&NIC_CARRIER, &netdev, f64::from(!is_down));
        node.push(&NIC_CARRIER_CHANGES, &netdev, counted);
        if !is_down {
            node.push(&NIC_SPEED, &netdev, speed);
        }
        let history = lab.history.node_mut(&"n0".parse().expect("a name"));
        history.ingest_reading(&node, at(lab.seconds));
    }
    lab.said_by(flapping_port::build)
}

#[test]
fn a_fast_interface_without_an_rdma_port_flaps_by_its_carrier() {
    let flaps = ["port-flapping link/n0:eth0/1"];
    assert_eq!(named_of_interface(1.25e10, &[3, 6], 0.0), flaps);
    assert_eq!(named_of_interface(1.25e10, &[], 2.0), flaps);
    assert!(named_of_interface(1.25e10, &[3, 4], 1.0).is_empty(), "once");
    assert!(
        named_of_interface(1.25e8, &[3, 6], 2.0).is_empty(),
        "management"
    );
}

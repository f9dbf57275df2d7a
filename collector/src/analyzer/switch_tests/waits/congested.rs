//! Leaves that back-pressure their hosts.

use railscope_model::metric::{
    NIC_PFC_PAUSE_SECONDS, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_WAIT,
    SWITCH_PORT_ECN_MARKED, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::analyzer::switch_tests::{Lab, at, leaves};
use crate::detect::rules::switch_ports;

/// What happens in the last 70 of 190 seconds. Before, all hosts' ports send [`BYTES`] and are paused for [`USUAL`].
#[derive(Clone, Copy)]
struct Scene {
    /// Share of the time for which leaf `a` pauses its hosts, and `b` its.
    paused: [f64; 2],
    /// How many of the six hosts of `a` it pauses so long.
    hosts: usize,
    /// What hosts send, compared with before.
    sent: f64,
    /// Share of the time for which a host of `a`, and the spine, pause it.
    pausing: [f64; 2],
    /// Share of the time for which the NIC of a host of `b` pauses that leaf, where switches do not count how long they are paused.
    elsewhere: Option<f64>,
    /// Packets that the first cable of `a` to the spine marks in ten seconds; the others mark ten.
    marked: f64,
    /// The same of its port to the first host.
    marked_to_host: f64,
    /// What a cable to the spine carries, compared with a host's port before.
    passes_on: f64,
}

const USUAL: f64 = 0.002;
const BYTES: f64 = 2e11;
/// Of a cable to the spine, bytes a second.
const SPEED: f64 = 5e10;
const SLOWED: Scene = Scene {
    paused: [0.15, USUAL],
    hosts: 6,
    sent: 0.6,
    pausing: [0.0; 2],
    elsewhere: None,
    marked: 10.0,
    marked_to_host: 10.0,
    passes_on: 1.0,
};

fn named(scene: Scene) -> Vec<String> {
    let mut lab = leaves();
    for host in 0..6_u16 {
        lab.host(&format!("a{host}"), ("a", 10 + host));
        lab.host(&format!("b{host}"), ("b", 10 + host));
    }
    let mut paused_elsewhere = 0.0;
    for round in 0..19 {
        let is_late = round >= 12;
        if let Some(share) = scene.elsewhere {
            paused_elsewhere += if is_late { 10.0 * share } else { 0.0 };
            for (node, paused) in [("a0", 0.0), ("b0", paused_elsewhere)] {
                let mut reading = NodeReading::default();
                let labels = Labels::new(["mlx5_0", "3", "transmit"]);
                reading.push(&NIC_PFC_PAUSE_SECONDS, &labels, paused);
                let history = lab.history.node_mut(&node.parse().expect("a name"));
                history.ingest_reading(&reading, at(lab.seconds + 10.0));
            }
        }
        for (leaf, paused) in [("a", scene.paused[0]), ("b", scene.paused[1])] {
            for host in 0..6 {
                let port = (10 + host).to_string();
                let is_slowed = is_late && (leaf == "b" || host < scene.hosts);
                let share = if is_slowed { paused } else { USUAL };
                let sent = if is_late { scene.sent } else { 1.0 };
                lab.add(leaf, &SWITCH_PORT_RECEIVE_BYTES, &[&port], BYTES * sent);
                lab.add(leaf, &SWITCH_PORT_TRANSMIT_BYTES, &[&port], BYTES * sent);
                let is_first = (leaf, host) == ("a", 0) && is_late;
                let marked = if is_first { scene.marked_to_host } else { 10.0 };
                lab.add(leaf, &SWITCH_PORT_ECN_MARKED, &[&port, "3"], marked);
                pause(&mut lab, leaf, &port, "transmit", share);
                let pauses = leaf == "a" && host == 0 && is_late;
                let share = if pauses { scene.pausing[0] } else { 0.0 };
                if scene.elsewhere.is_none() {
                    pause(&mut lab, leaf, &port, "receive", share);
                }
            }
            for port in ["1", "2", "3", "4"] {
                let is_first = (leaf, port) == ("a", "1") && is_late;
                let sent = BYTES * scene.passes_on;
                lab.add(leaf, &SWITCH_PORT_TRANSMIT_BYTES, &[port], sent);
                let speed = if round == 0 { SPEED } else { 0.0 };
                lab.add(leaf, &SWITCH_PORT_SPEED, &[port], speed);
                let share = if is_first { scene.pausing[1] } else { 0.0 };
                if scene.elsewhere.is_none() {
                    pause(&mut lab, leaf, port, "receive", share);
                }
                let marked = if is_first { scene.marked } else { 10.0 };
                lab.add(leaf, &SWITCH_PORT_ECN_MARKED, &[port, "3"], marked);
            }
        }
        lab.read();
    }
    lab.said_by(switch_ports::build)
}

/// A port is paused, or pauses its other end, for this share of ten seconds.
fn pause(lab: &mut Lab, switch: &str, port: &str, direction: &str, share: f64) {
    let labels = [port, "3", direction];
    lab.add(
        switch,
        &SWITCH_PORT_PFC_PAUSE_SECONDS,
        &labels,
        10.0 * share,
    );
}

#[test]
fn a_leaf_that_back_pressures_its_hosts_alone_is_named_or_the_cable_that_marks() {
    assert_eq!(named(SLOWED), ["path-slow switch/a"]);
    let marking = Scene {
        marked: 1e5,
        ..SLOWED
    };
    assert_eq!(named(marking), ["path-slow link/a:1"]);
    for (scene, why) in [
        (
            Scene { hosts: 2, ..SLOWED },
            "two hosts may wait for a receiver",
        ),
        (
            Scene {
                sent: 1.1,
                ..SLOWED
            },
            "the job is busier",
        ),
        (
            Scene {
                paused: [0.15; 2],
                ..SLOWED
            },
            "both leaves wait",
        ),
        (
            Scene {
                paused: [0.0055, USUAL],
                ..SLOWED
            },
            "little more than before",
        ),
        (
            Scene {
                pausing: [0.2, 0.0],
                ..SLOWED
            },
            "it waits for a receiver",
        ),
        (
            Scene {
                marked_to_host: 1e5,
                ..SLOWED
            },
            "the link to a host is slow",
        ),
        (
            Scene {
                pausing: [0.0, 0.2],
                ..SLOWED
            },
            "it waits for the spine",
        ),
        (
            Scene {
                passes_on: 0.0,
                ..SLOWED
            },
            "all traffic stays on the leaf",
        ),
        (
            Scene {
                passes_on: 2.0,
                ..SLOWED
            },
            "its cables are full",
        ),
    ] {
        assert!(named(scene).is_empty(), "{why}: {:?}", named(scene));
    }
}

#[test]
fn a_leaf_that_does_not_count_its_pauses_is_named_unless_a_receiver_elsewhere_pauses_the_fabric() {
    let scene = |share| Scene {
        elsewhere: Some(share),
        ..SLOWED
    };
    assert_eq!(named(scene(0.0)), ["path-slow switch/a"]);
    assert_eq!(named(scene(0.9)), [""; 0]);
}

/// What is named where the hosts of `a` wait for credits, so many ticks in ten seconds of the last 70, and a port of `a` to one of
/// them does as well.
fn named_by_credits(waits: f64, port_waits: f64) -> Vec<String> {
    let mut lab = leaves();
    for host in 0..6_u16 {
        lab.host(&format!("a{host}"), ("a", 10 + host));
        lab.host(&format!("b{host}"), ("b", 10 + host));
    }
    let mut counted = [[0.0; 2]; 2];
    for round in 0..19 {
        let is_late = round >= 12;
        for (leaf, place) in [("a", 0), ("b", 1)] {
            counted[place][0] += if is_late && leaf == "a" { waits } else { 1e6 };
            counted[place][1] += if is_late { 0.6 * BYTES } else { BYTES };
            for port in ["1", "2", "3", "4"] {
                lab.add(leaf, &SWITCH_PORT_TRANSMIT_BYTES, &[port], BYTES);
                let speed = if round == 0 { SPEED } else { 0.0 };
                lab.add(leaf, &SWITCH_PORT_SPEED, &[port], speed);
            }
            let waits = if is_late { port_waits } else { 0.0 };
            lab.add(leaf, &SWITCH_PORT_TRANSMIT_WAIT, &["10"], waits);
            for host in 0..6 {
                let mut reading = NodeReading::default();
                let port = Labels::new(["mlx5_0", "1"]);
                reading.push(&RDMA_PORT_TRANSMIT_WAIT, &port, counted[place][0]);
                reading.push(&RDMA_PORT_TRANSMIT_BYTES, &port, counted[place][1]);
                let node = format!("{leaf}{host}").parse().expect("a name");
                let history = lab.history.node_mut(&node);
                history.ingest_reading(&reading, at(lab.seconds + 10.0));
            }
        }
        lab.read();
    }
    lab.said_by(switch_ports::build)
}

#[test]
fn a_leaf_whose_hosts_wait_for_credits_is_named_unless_it_waits_for_one_of_them() {
    assert_eq!(named_by_credits(2e8, 0.0), ["path-slow switch/a"]);
    assert!(named_by_credits(1.2e6, 0.0).is_empty(), "as before");
    assert!(named_by_credits(2e8, 2e8).is_empty());
}

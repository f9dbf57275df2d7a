//! Findings from counters of single switch ports: errors, permanent pause.

use std::collections::BTreeSet;

use railscope_model::metric::{
    NIC, SWITCH_PORT_ECN_MARKED, SWITCH_PORT_ERRORS, SWITCH_PORT_PFC_PAUSE_SECONDS,
    SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_UP,
};

use railscope_model::identity::Part;

use railscope_model::reading::{Labels, NodeReading};

use super::{Lab, at, leaves};
use crate::classes::UPLINK_DOWN;
use crate::detect::detector::Evidence;
use crate::detect::detector::Explanation;
use crate::detect::rules::{degraded_link, error_counters, pause_circle, slow_receiver};
use crate::diagnose::incident::{Finding, describe, group};
use crate::stages::LeftOut;

/// Errors that ports count in ten seconds: switch, port, kind, number.
fn counting(errors: &[(&str, &str, &str, f64)]) -> Vec<String> {
    let mut lab = leaves();
    lab.host("n1", ("a", 10));
    lab.host("n2", ("b", 10));
    for port in ["1", "2", "3", "4", "10", "33"] {
        for switch in ["a", "b", "s"] {
            for kind in ["receive", "symbol_error"] {
                lab.add(switch, &SWITCH_PORT_ERRORS, &[port, kind], 0.0);
            }
        }
    }
    for _ in 0..13 {
        for (switch, port, kind, count) in errors {
            lab.add(switch, &SWITCH_PORT_ERRORS, &[port, kind], *count);
        }
        lab.read();
    }
    lab.said_by(error_counters::build)
}

#[test]
fn ports_of_other_switches_without_errors_are_peers_of_those_with_errors() {
    let all = ["1", "2", "10", "33"].map(|port| ("a", port, "symbol_error", 100.0));
    assert_eq!(counting(&all).len(), all.len());
}

#[test]
fn a_cable_on_which_a_switch_receives_broken_frames_is_named() {
    assert_eq!(
        counting(&[("a", "1", "receive", 20.0)]),
        ["link-errors link/a:1"]
    );
    assert_eq!(
        counting(&[("a", "10", "receive", 20.0)]),
        ["link-errors link/n1:mlx5_0/1"]
    );
    assert_eq!(
        counting(&[("s", "6", "symbol_error", 20.0)]),
        ["link-errors link/b:2"]
    );
    assert_eq!(
        counting(&[("a", "33", "receive", 20.0)]),
        ["link-errors link/a:33"],
        "its cable is not known"
    );
    assert!(counting(&[("a", "1", "receive", 0.2)]).is_empty());
}

#[test]
fn frames_that_came_broken_and_were_passed_on_are_of_the_first_cable_alone() {
    // From n1 over a and s to b and n2: each switch counts them.
    let passed_on = [
        ("a", "10", "receive", 20.0),
        ("s", "1", "receive", 12.0),
        ("b", "1", "receive", 12.0),
    ];
    assert_eq!(counting(&passed_on), ["link-errors link/n1:mlx5_0/1"]);
}

/// What a port does in each of ten seconds' readings: share of the time in pause by direction, packets marked, bytes sent.
pub(super) struct Port {
    pub(super) at: (&'static str, &'static str),
    pub(super) direction: &'static str,
    pub(super) paused: f64,
    pub(super) marked: f64,
    pub(super) bytes: f64,
}

pub(super) fn lab_of(ports: &[Port]) -> Lab {
    lab_after(0, [0.0; 2], ports)
}

/// The same after so many readings in which the ports were not paused, and marked and sent these shares of what they do.
pub(super) fn lab_after(readings: usize, before: [f64; 2], ports: &[Port]) -> Lab {
    let mut lab = leaves();
    lab.host("n1", ("a", 10));
    lab.host("n2", ("b", 10));
    for Port {
        at: (switch, port), ..
    } in ports
    {
        lab.add(switch, &SWITCH_PORT_SPEED, &[port], 50e9);
    }
    for reading in 0..readings + 9 {
        for own in ports {
            let (switch, port) = own.at;
            let (paused, marked, bytes) = if reading < readings {
                (0.0, before[0] * own.marked, before[1] * own.bytes)
            } else {
                (own.paused, own.marked, own.bytes)
            };
            let pause = [port, "3", own.direction];
            let paused = 10.0 * paused;
            lab.add(switch, &SWITCH_PORT_PFC_PAUSE_SECONDS, &pause, paused);
            lab.add(switch, &SWITCH_PORT_ECN_MARKED, &[port, "3"], marked);
            lab.add(switch, &SWITCH_PORT_TRANSMIT_BYTES, &[port], bytes);
        }
        lab.read();
    }
    lab
}

#[test]
fn a_port_that_pauses_a_switch_without_end_and_is_behind_no_pause_is_stuck() {
    let port = |at, paused| Port {
        at,
        direction: "receive",
        paused,
        marked: 0.0,
        bytes: 0.0,
    };
    // a waits for s, and s for b, of which no port is paused.
    let lanes = |of_b| {
        vec![
            port(("a", "1"), 1.0),
            port(("s", "5"), 1.0),
            port(("b", "10"), of_b),
        ]
    };
    let stuck = lab_of(&lanes(0.0)).said_by(pause_circle::build);
    assert_eq!(stuck, ["pfc-storm link/b:1"]);
    // The host on b drains nothing.
    assert!(lab_of(&lanes(1.0)).said_by(pause_circle::build).is_empty());
    // No source reads b.
    assert!(
        lab_of(&lanes(0.0)[..2])
            .said_by(pause_circle::build)
            .is_empty()
    );
}

#[test]
fn a_nic_that_pauses_its_switch_is_named_by_the_counter_of_the_switch() {
    // Before, and in the last 40 of 110 seconds.
    let told = |before: [f64; 4], then: [f64; 4]| {
        let mut lab = leaves();
        for host in 0..4_u16 {
            lab.host(&format!("n{host}"), ("b", 10 + host));
        }
        for reading in 0..11 {
            let shares = if reading < 7 { before } else { then };
            for (port, share) in ["10", "11", "12", "13"].into_iter().zip(shares) {
                let labels = [port, "3", "receive"];
                lab.add("b", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 10.0 * share);
                lab.add("b", &SWITCH_PORT_TRANSMIT_BYTES, &[port], 2e11);
            }
            lab.read();
        }
        lab.said_by(slow_receiver::build)
    };
    let none = [0.0; 4];
    let slow = ["slow-receiver nic/n0:mlx5_0"];
    assert_eq!(told(none, [0.3, 0.0, 0.005, 0.0]), slow);
    assert_eq!(told([0.02, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]), slow);
    let storm = told(none, [0.0, 0.95, 0.0, 0.0]);
    assert_eq!(storm, ["pfc-storm nic/n1:mlx5_0"]);
    assert!(told(none, [0.3, 0.2, 0.2, 0.2]).is_empty(), "all do");
    let always = [0.05, 0.0, 0.0, 0.0];
    assert!(told(always, always).is_empty(), "it always does so");
}

#[test]
fn pause_of_one_priority_says_nothing_of_the_past_of_another() {
    // Of a NIC by priority: before, and in the last 40 of 110 seconds.
    let told = |shares: [(&str, f64, f64); 2], has_address: bool| {
        let mut lab = leaves();
        for host in 0..8_u16 {
            lab.host(&format!("n{host}"), ("b", 10 + host));
        }
        let n0 = "n0".parse().expect("a name");
        for reading in 0..11 {
            for port in 10..18 {
                let port = port.to_string();
                for (priority, before, then) in shares {
                    let share = if reading < 7 { before } else { then };
                    let share = if port == "10" { share } else { 0.0 };
                    let labels = [&*port, priority, "receive"];
                    lab.add("b", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 10.0 * share);
                }
                lab.add("b", &SWITCH_PORT_TRANSMIT_BYTES, &[&port], 2e11);
            }
            lab.read();
            let mut reading = NodeReading::default();
            let place = if has_address { "0000:18:00.0" } else { "" };
            let labels = NIC.labels.iter().map(|label| match *label {
                "netdev" => "eth0",
                "device" => "mlx5_0",
                "pci" => place,
                _ => "",
            });
            reading.push(&NIC, &Labels::new(labels), true);
            let history = lab.history.node_mut(&n0);
            history.ingest_reading(&reading, at(lab.seconds));
        }
        lab.said_by(slow_receiver::build)
    };
    assert!(told([("0", 0.0, 0.0), ("3", 0.05, 0.05)], false).is_empty());
    let slow = ["slow-receiver nic/n0:mlx5_0"];
    assert_eq!(told([("0", 0.02, 0.02), ("3", 0.0, 0.08)], false), slow);
    // Its node reports where it is.
    let slow = ["slow-receiver pcie/n0:0000:18:00.0"];
    assert_eq!(told([("0", 0.02, 0.02), ("3", 0.0, 0.08)], true), slow);
}

#[test]
fn a_port_without_a_known_cable_that_sends_pause_without_end_is_stuck_unless_its_switch_is_paused()
{
    let told = |of_other: f64, bytes: f64| {
        let mut lab = leaves();
        lab.add("b", &SWITCH_PORT_SPEED, &["20"], 50e9);
        for _ in 0..9 {
            for (port, direction, share) in [("20", "transmit", 1.0), ("21", "receive", of_other)] {
                let labels = [port, "3", direction];
                lab.add("b", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 10.0 * share);
            }
            lab.add("b", &SWITCH_PORT_RECEIVE_BYTES, &["20"], 10.0 * bytes);
            lab.read();
        }
        lab.said_by(pause_circle::build)
    };
    assert_eq!(told(0.0, 0.0), ["pfc-storm link/b:20"]);
    assert!(told(0.4, 0.0).is_empty(), "it passes the pause on");
    assert_eq!(told(0.1, 0.0), ["pfc-storm link/b:20"]);
    assert!(told(0.0, 5e9).is_empty(), "something arrives");
}

#[test]
fn a_port_that_alone_halts_one_nic_is_stuck_unless_its_switch_is_congested_or_paused() {
    let told = |halted: f64, of_other: f64, of_uplink: f64, bytes: f64| {
        let mut lab = leaves();
        for host in 0..4_u16 {
            lab.host(&format!("n{host}"), ("b", 10 + host));
        }
        lab.add("b", &SWITCH_PORT_SPEED, &["1"], 50e9);
        for _ in 0..9 {
            let shares = [
                ("10", "transmit", halted),
                ("11", "transmit", of_other),
                ("12", "transmit", 0.0),
                ("13", "transmit", 0.0),
                ("1", "receive", of_uplink),
            ];
            for (port, direction, share) in shares {
                let labels = [port, "3", direction];
                lab.add("b", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 10.0 * share);
            }
            lab.add("b", &SWITCH_PORT_TRANSMIT_BYTES, &["1"], 10.0 * bytes);
            for port in ["10", "11", "12", "13"] {
                lab.add("b", &SWITCH_PORT_TRANSMIT_BYTES, &[port], 0.0);
            }
            lab.read();
        }
        lab.said_by(pause_circle::build)
    };
    assert_eq!(told(0.8, 0.0, 0.0, 1e9), ["pfc-storm link/n0:mlx5_0/1"]);
    assert!(told(0.3, 0.0, 0.0, 1e9).is_empty(), "for a short time");
    assert!(told(0.8, 0.2, 0.0, 1e9).is_empty(), "another NIC too");
    assert!(told(0.8, 0.0, 0.3, 1e9).is_empty(), "it passes pause on");
    let beside = ["pfc-storm link/n0:mlx5_0/1"];
    assert_eq!(told(0.8, 0.0, 0.1, 1e9), beside, "more than it is paused");
    assert_eq!(told(0.8, 0.02, 0.0, 1e9), beside);
    assert!(told(0.8, 0.0, 0.0, 45e9).is_empty(), "its uplink is full");
}

#[test]
fn a_port_that_alone_halts_another_switch_is_stuck_unless_a_port_is_full_or_has_a_queue() {
    // Of s to b; port 1 leads to a, is paused and sends and marks.
    let told = |halted: f64, of_other: f64, of_uplink: f64, bytes: f64, marked: f64| {
        let mut lab = leaves();
        let ports = ["1", "2", "3", "4", "5"];
        for port in ports {
            lab.add("s", &SWITCH_PORT_SPEED, &[port], 50e9);
        }
        for _ in 0..9 {
            let shares = [
                ("5", "transmit", halted),
                ("2", "transmit", of_other),
                ("3", "transmit", 0.0),
                ("1", "receive", of_uplink),
            ];
            for (port, direction, share) in shares {
                let labels = [port, "3", direction];
                lab.add("s", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 10.0 * share);
            }
            for port in ports {
                let (bytes, marked) = if port == "1" {
                    (bytes, marked)
                } else {
                    (1e9, 0.0)
                };
                lab.add("s", &SWITCH_PORT_TRANSMIT_BYTES, &[port], 10.0 * bytes);
                lab.add("s", &SWITCH_PORT_ECN_MARKED, &[port, "3"], 10.0 * marked);
            }
            lab.read();
        }
        lab.said_by(pause_circle::build)
    };
    let stuck = ["pfc-storm link/b:1"];
    assert_eq!(told(0.8, 0.0, 0.0, 1e9, 0.0), stuck);
    assert!(told(0.8, 0.2, 0.0, 1e9, 0.0).is_empty(), "another, too");
    assert!(told(0.8, 0.0, 0.0, 1e9, 1e5).is_empty(), "a queue");
    assert!(told(0.8, 0.0, 0.0, 45e9, 0.0).is_empty(), "full");
    assert!(told(0.55, 0.0, 0.0, 25e9, 0.0).is_empty(), "for so long");
    assert_eq!(told(0.8, 0.0, 0.0, 30e9, 0.0), stuck);
    assert!(
        told(0.8, 0.0, 0.2, 30e9, 0.0).is_empty(),
        "full but for its pause"
    );
}

#[test]
fn a_port_whose_speed_falls_is_named_until_it_is_back_whether_its_cable_is_known_or_not() {
    let mut lab = leaves();
    let mut detector = degraded_link::build();
    let mut told = |lab: &mut Lab, changes: &[(&str, &str, f64)]| {
        for (switch, port, by) in changes {
            lab.add(switch, &SWITCH_PORT_SPEED, &[port], *by);
        }
        lab.read();
        let mut out = Vec::new();
        detector.observe(&lab.view(), &mut out);
        let said = out
            .iter()
            .map(|own| format!("{} {}", own.class.name, own.part));
        said.collect::<Vec<_>>()
    };
    let all = [("a", "1", 50e9), ("s", "1", 50e9), ("a", "33", 50e9)];
    assert!(told(&mut lab, &all).is_empty());
    let fall = [("a", "1", -37.5e9), ("s", "1", -37.5e9), ("a", "33", -25e9)];
    let named = ["port-degraded link/a:1", "port-degraded link/a:33"];
    assert_eq!(told(&mut lab, &fall), named[..1]);
    // The other end of the second is not known, and could be a node's port.
    for _ in 0..2 {
        assert_eq!(told(&mut lab, &[]), named[..1]);
    }
    for _ in 0..60 {
        // For longer than the history reaches.
        assert_eq!(told(&mut lab, &[]), named);
    }
    assert_eq!(told(&mut lab, &[("a", "33", 25e9)]), named[..1]);
    let back = [("a", "1", 37.5e9), ("s", "1", 37.5e9)];
    assert!(told(&mut lab, &back).is_empty());
}

/// What is named while ports of `a`, of which no source reports the other ends, fall to a quarter of their speed for 100 s, and
/// a node's port ten seconds later to another speed; all are back at the end, the node's first. The switch is read every so many
/// times that the node is.
fn named_of_both_ends(of_switch: &[&str], of_node: f64, every: usize) -> BTreeSet<String> {
    let mut lab = leaves();
    let mut detector = degraded_link::build();
    let mut named = BTreeSet::new();
    let change = |lab: &mut Lab, by: f64| {
        for port in of_switch {
            lab.add("a", &SWITCH_PORT_SPEED, &[port], by);
        }
    };
    change(&mut lab, 50e9);
    for reading in 0..20 {
        match reading {
            5 => change(&mut lab, -37.5e9),
            15 => change(&mut lab, 37.5e9),
            _ => {}
        }
        let unread = (reading % every != 0).then(|| std::mem::take(&mut lab.said));
        lab.read();
        lab.said = unread.unwrap_or(lab.said);
        let is_slow = (6..14).contains(&reading);
        let speed = if is_slow { of_node } else { 50e9 };
        let page = format!(
            "railscope_rdma_port_up{{device=\"mlx5_0\",port=\"1\"}} 1\n\
             railscope_rdma_port_speed_bytes_per_second{{device=\"mlx5_0\",port=\"1\"}} {speed}\n"
        );
        let now = lab.view().now;
        let node = lab.history.node_mut(&"n9".parse().expect("a name"));
        node.ingest(&page, now);
        let mut out = Vec::new();
        detector.observe(&lab.view(), &mut out);
        let said = out
            .iter()
            .map(|own| format!("{} {}", own.class.name, own.part));
        named.extend(said);
    }
    named
}

#[test]
fn both_ends_of_a_cable_that_no_source_reports_are_named_once() {
    let node = "port-degraded link/n9:mlx5_0/1";
    let (one, two) = ("port-degraded link/a:33", "port-degraded link/a:34");
    assert!(named_of_both_ends(&["33"], 12.5e9, 1).iter().eq([node]));
    assert!(named_of_both_ends(&["33"], 25e9, 1).iter().eq([one, node]));
    assert!(named_of_both_ends(&["33"], 50e9, 1).iter().eq([one]));
    // For up to a minute, the switch still shows the speed before.
    assert!(named_of_both_ends(&["33"], 12.5e9, 6).iter().eq([node]));
    // It is read so late that the node's fall is 40 s ago.
    assert!(named_of_both_ends(&["33"], 12.5e9, 10).iter().eq([node]));
    // One of the two leads elsewhere, and it is not known which.
    let both = named_of_both_ends(&["33", "34"], 12.5e9, 1);
    assert!(both.iter().eq([one, two, node]));
}

#[test]
fn cables_between_the_same_switches_that_are_lost_together_are_one_incident_with_both_ends() {
    let mut lab = leaves();
    for port in 5..=12 {
        lab.cable(("a", port), ("t", port));
    }
    let lost = |port: &str| Finding {
        evidence: Evidence {
            detector: "degraded-link",
            signal: "",
            part: format!("link/a:{port}").parse().expect("a part"),
            class: &UPLINK_DOWN,
            effect: 1.0,
            statement: String::new(),
            victims: Vec::new(),
            related: Vec::new(),
            alike: Vec::new(),
        },
        explanation: Explanation {
            check: "",
            threshold: String::new(),
            clears: "",
        },
    };
    let findings = ["2", "4", "7"].map(lost).to_vec();
    let groups = group(
        &lab.fabric,
        findings,
        &Default::default(),
        |_| None,
        LeftOut::default(),
    );
    let named: Vec<String> = groups.keys().map(ToString::to_string).collect();
    assert_eq!(named, ["link/a:2", "link/a:7"]);
    let root: Part = "link/a:2".parse().expect("a part");
    let incident = describe(&lab.fabric, &root, groups[&root].clone(), at(0.0));
    let far_end = incident.far_end.expect("the other end");
    assert_eq!(far_end.to_string(), "link/s:2");
    assert_eq!(incident.related.len(), 1);
}

#[test]
fn a_cable_without_light_at_both_of_its_switches_is_down_before_the_next_sweep() {
    for (dark, swept, expected) in [
        (
            &[("a", "1"), ("s", "1")][..],
            5.0,
            &["uplink-down link/a:1"][..],
        ),
        // The sweep is as new, and shows it.
        (&[("a", "1"), ("s", "1")], 10.0, &[]),
        // One end, which may be the dying one, and ends of two cables.
        (&[("a", "1")], 5.0, &[]),
        (&[("a", "1"), ("s", "2")], 5.0, &[]),
        (&[("a", "9"), ("s", "9")], 5.0, &[]),
    ] {
        let mut lab = leaves();
        for (switch, port) in dark {
            lab.add(switch, &SWITCH_PORT_UP, &[port], 0.0);
        }
        lab.read();
        lab.swept = Some(at(swept));
        assert_eq!(
            lab.said_by(degraded_link::build),
            expected,
            "{dark:?} {swept}"
        );
    }
}

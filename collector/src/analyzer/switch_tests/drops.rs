//! Packets that switches drop at many of their ports.

use railscope_model::metric::{SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_PACKETS};

use super::{Lab, leaves};
use crate::detect::rules::switch_ports;

/// What is reported where one switch drops these shares of what its ports send, by port from 1.
fn dropping_in(mut lab: Lab, switch: &str, share: impl Fn(u16) -> f64) -> Vec<String> {
    lab.host("n1", ("a", 10));
    lab.host("n2", ("b", 10));
    for _ in 0..13 {
        for name in ["a", "b", "s"] {
            for port in 1..=8_u16 {
                let (label, sent) = (port.to_string(), 1e6 * f64::from(port));
                let share = if name == switch { share(port) } else { 0.0 };
                lab.add(name, &SWITCH_PORT_TRANSMIT_PACKETS, &[&label], sent);
                let labels = [&*label, "transmit"];
                lab.add(name, &SWITCH_PORT_DISCARDS, &labels, share * sent);
            }
        }
        lab.read();
    }
    lab.said_by(switch_ports::build)
}

fn dropping(switch: &str, share: impl Fn(u16) -> f64) -> Vec<String> {
    dropping_in(leaves(), switch, share)
}

#[test]
fn a_spine_that_drops_equally_at_all_ports_is_lossy_and_any_other_switch_has_wrong_queues() {
    for share in [1e-4, 1e-6] {
        assert_eq!(dropping("s", |_| share), ["uplink-lossy switch/s"]);
    }
    let at_some = |port| if port < 4 { 1e-4 } else { 1e-3 };
    assert_eq!(dropping("s", at_some), ["switch-qos switch/s"]);
    assert_eq!(dropping("a", |_| 1e-4), ["switch-qos switch/a"]);
    assert!(dropping("a", |_| 1e-6).is_empty());
    for too_few in [5e-8, 0.0] {
        assert!(dropping("s", |_| too_few).is_empty());
    }
    assert!(dropping("s", |port| if port < 3 { 1e-2 } else { 0.0 }).is_empty());
}

#[test]
fn a_line_card_that_drops_equally_at_ports_to_several_leaves_is_lossy() {
    let dropping = |ports: &[u16]| {
        let mut lab = Lab::default();
        for (at, leaf) in ["a", "b", "c", "d"].into_iter().enumerate() {
            for port in [1, 2] {
                lab.cable((leaf, port), ("s", 2 * at as u16 + port));
            }
        }
        let share = |port| if ports.contains(&port) { 8e-6 } else { 0.0 };
        dropping_in(lab, "s", share)
    };
    assert_eq!(dropping(&[2, 3, 4, 5]), ["uplink-lossy switch/s"]);
    // Those to two leaves may share a queue, and others have no card in common.
    assert_eq!(dropping(&[1, 2, 3]), [""; 0]);
    assert_eq!(dropping(&[1, 4, 6]), [""; 0]);
}

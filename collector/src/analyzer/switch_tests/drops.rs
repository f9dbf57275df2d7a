//! Packets that switches drop at many of their ports.

use railscope_model::metric::{SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_PACKETS};

use super::leaves;
use crate::detect::rules::switch_ports;

/// What is reported where one switch drops these shares of what its ports send, by port from 1.
fn dropping(switch: &str, share: impl Fn(u16) -> f64) -> Vec<String> {
    let mut lab = leaves();
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

#[test]
fn a_spine_that_drops_equally_at_all_ports_is_lossy_and_any_other_switch_has_wrong_queues() {
    assert_eq!(dropping("s", |_| 1e-4), ["uplink-lossy switch/s"]);
    let at_some = |port| if port < 4 { 1e-4 } else { 1e-3 };
    assert_eq!(dropping("s", at_some), ["switch-qos switch/s"]);
    assert_eq!(dropping("a", |_| 1e-4), ["switch-qos switch/a"]);
    for too_few in [1e-6, 0.0] {
        assert!(dropping("s", |_| too_few).is_empty());
    }
    assert!(dropping("s", |port| if port < 3 { 1e-2 } else { 0.0 }).is_empty());
}

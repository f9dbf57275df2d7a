//! Packets that switches drop at many of their ports.

use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::{Lab, leaves};
use crate::detect::rules::switch_ports;

/// What is reported where one switch drops these shares of what its ports send, by port from 1.
fn dropping_in(lab: Lab, switch: &str, share: impl Fn(u16) -> f64) -> Vec<String> {
    dropping_or_waiting_in(lab, None, switch, share)
}

/// The same where ports of a switch wait for credits for so many ticks.
fn dropping_or_waiting_in(
    mut lab: Lab,
    waits: Option<fn(&str) -> f64>,
    switch: &str,
    share: impl Fn(u16) -> f64,
) -> Vec<String> {
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
                if let Some(ticks) = waits {
                    lab.add(name, &SWITCH_PORT_TRANSMIT_WAIT, &[&label], ticks(name));
                }
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
    let of_infiniband = |waits| dropping_or_waiting_in(leaves(), Some(waits), "s", at_some);
    assert_eq!(of_infiniband(|_| 1e3), ["uplink-lossy switch/s"]);
    // Packets behind a slow receiver wait until they are dropped.
    let behind = |switch: &str| if switch == "s" { 1e6 } else { 1e3 };
    assert_eq!(of_infiniband(behind), ["switch-qos switch/s"]);
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

/// What ports do in ten seconds: switch and port, packets dropped in each reading, share of the full speed sent, share of the
/// time in pause; and the share that it sent before the reading in which a slow port begins to drop.
#[derive(Clone)]
struct Alone {
    at: (&'static str, &'static str),
    drops: fn(usize) -> f64,
    sent: f64,
    paused: f64,
    sent_before: Option<f64>,
}

/// The reading in which a slow port begins to drop.
const BEGINS: usize = 17;

impl Alone {
    fn slow(switch: &'static str, port: &'static str) -> Self {
        Self {
            at: (switch, port),
            drops: |round| if round < BEGINS { 0.0 } else { 50.0 },
            sent: 0.1,
            paused: 0.0,
            sent_before: None,
        }
    }

    fn sent_in(&self, round: usize) -> f64 {
        let before = self.sent_before.filter(|_| round < BEGINS);
        before.unwrap_or(self.sent)
    }
}

/// What is named where these ports of Ethernet, or of InfiniBand, drop and the others do not.
fn named(different: &[Alone], waits: bool) -> Vec<String> {
    let mut lab = leaves();
    lab.host("n2", ("b", 10));
    let ports = ["1", "2", "3", "4", "5", "10"];
    for switch in ["a", "b", "s"] {
        for port in ports {
            lab.add(switch, &SWITCH_PORT_SPEED, &[port], 50e9);
        }
    }
    for round in 0..30 {
        for switch in ["a", "b", "s"] {
            for port in ports {
                let own = different.iter().find(|own| own.at == (switch, port));
                let drops = own.map_or(0.0, |own| (own.drops)(round));
                let sent = own.map_or(0.1, |own| own.sent_in(round));
                let paused = own.map_or(0.0, |own| own.paused);
                let pause = [port, "3", "receive"];
                lab.add(switch, &SWITCH_PORT_DISCARDS, &[port, "transmit"], drops);
                lab.add(switch, &SWITCH_PORT_TRANSMIT_BYTES, &[port], 50e10 * sent);
                let paused = 10.0 * paused;
                lab.add(switch, &SWITCH_PORT_PFC_PAUSE_SECONDS, &pause, paused);
                if waits {
                    lab.add(switch, &SWITCH_PORT_TRANSMIT_WAIT, &[port], 1e3);
                }
            }
        }
        lab.read();
    }
    lab.said_by(switch_ports::build)
}

#[test]
fn a_port_between_switches_that_alone_drops_though_it_sends_little_is_named() {
    let slow = || Alone::slow("a", "1");
    assert_eq!(named(&[slow()], false), ["path-slow link/a:1"]);
    assert!(named(&[slow()], true).is_empty(), "credits");
    let full = Alone {
        sent: 0.8,
        ..slow()
    };
    assert!(named(&[full], false).is_empty(), "full");
    let paused = Alone {
        paused: 0.1,
        ..slow()
    };
    assert!(named(&[paused], false).is_empty(), "paused");
    let before = Alone {
        drops: |_| 50.0,
        ..slow()
    };
    assert!(named(&[before], false).is_empty(), "it always did");
    let burst = Alone {
        drops: |round| if round == 28 { 500.0 } else { 0.0 },
        ..slow()
    };
    assert!(named(&[burst], false).is_empty(), "a burst");
    let bursts = Alone {
        drops: |round| {
            if [19, 28].contains(&round) {
                500.0
            } else {
                0.0
            }
        },
        ..slow()
    };
    assert!(named(&[bursts], false).is_empty(), "two bursts");
    let more = Alone {
        sent: 0.15,
        ..slow()
    };
    assert!(named(&[more], false).is_empty(), "it has more to send");
    let idle = Alone {
        sent: 1e-5,
        ..slow()
    };
    assert!(named(&[idle], false).is_empty(), "idle");
    let few = Alone {
        drops: |round| if round < BEGINS { 0.0 } else { 1.0 },
        ..slow()
    };
    assert!(named(&[few], false).is_empty(), "one in a hundred million");
    assert!(named(&[Alone::slow("b", "10")], false).is_empty(), "a host");
    let many = ["1", "2", "3"].map(|port| Alone::slow("a", port));
    assert!(named(&many, false).is_empty(), "many");
}

#[test]
fn a_busy_port_that_alone_drops_is_named_if_another_sends_more_or_it_sent_more_before() {
    let named_of = |sent: f64, sent_before, drops: fn(usize) -> f64, other: f64| {
        let own = Alone {
            drops,
            sent,
            sent_before,
            ..Alone::slow("a", "1")
        };
        let busier = Alone {
            drops: |_| 0.0,
            sent: other,
            ..Alone::slow("a", "2")
        };
        named(&[own, busier], false)
    };
    let many: fn(usize) -> f64 = |round| if round < BEGINS { 0.0 } else { 500.0 };
    // Less than one of a million packets.
    let few: fn(usize) -> f64 = |round| if round < BEGINS { 0.0 } else { 20.0 };
    let found = ["path-slow link/a:1"];
    assert_eq!(named_of(0.7, None, many, 0.8), found, "another sends more");
    assert!(
        named_of(0.9, None, many, 0.95).is_empty(),
        "both are nearly full"
    );
    assert!(
        named_of(0.7, None, few, 0.8).is_empty(),
        "it drops hardly any"
    );
    assert_eq!(
        named_of(0.6, Some(0.9), few, 0.1),
        found,
        "it sent more before"
    );
    assert!(named_of(0.6, Some(0.7), few, 0.1).is_empty(), "hardly more");
}

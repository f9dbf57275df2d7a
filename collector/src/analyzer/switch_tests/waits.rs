//! InfiniBand: ports between switches that wait for credits; leaves that back-pressure their hosts.

mod congested;

use railscope_model::fabric::{Link, Witness};
use railscope_model::metric::{
    SWITCH_PORT_SATURATED, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::{Lab, at, leaves};
use crate::detect::rules::switch_ports;

/// Ticks in ten seconds of a port that waits as every busy port does, and of one whose cable lets too little through.
const USUAL: f64 = 1e7;
const LONG: f64 = 6e7;
/// Bytes in ten seconds, and in one at full speed.
const BYTES: f64 = 5e10;
const SPEED: f64 = 2.5e10;

/// A port, what it waited and sent in ten seconds at first, and what it waits and sends now.
struct Port {
    at: (&'static str, &'static str),
    waited: f64,
    sent: f64,
    waits: f64,
    bytes: f64,
}

impl Port {
    fn slow(switch: &'static str, port: &'static str) -> Self {
        Self {
            at: (switch, port),
            waited: USUAL,
            sent: BYTES,
            waits: LONG,
            bytes: BYTES,
        }
    }
}

/// What is named where these ports are different and all others between switches alike.
fn named(different: &[Port]) -> Vec<String> {
    named_unless(different, |_| {})
}

/// The same, with something else before the last reading.
fn named_unless(different: &[Port], last: impl Fn(&mut Lab)) -> Vec<String> {
    named_with(different, Some(SPEED), last)
}

/// The same, with the speed that the switches report of their ports.
fn named_with(different: &[Port], speed: Option<f64>, last: impl Fn(&mut Lab)) -> Vec<String> {
    let mut lab = leaves();
    lab.host("n0", ("b", 10));
    for port in 1..=4 {
        lab.cable(("c", port), ("s", 8 + port));
    }
    for (leaf, at) in ["a", "b", "c"].into_iter().zip(1..) {
        lab.cable((leaf, 5), ("t", at));
        lab.cable((leaf, 6), ("u", at));
    }
    let between = |switch, ports: &[&'static str]| {
        ports
            .iter()
            .map(move |port| (switch, *port))
            .collect::<Vec<_>>()
    };
    let leaf = ["1", "2", "3", "4", "5", "6"];
    let spine = [
        "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12",
    ];
    let mut all = between("a", &leaf);
    all.extend(between("b", &leaf));
    all.extend(between("c", &leaf));
    all.extend(between("s", &spine));
    all.extend(between("t", &spine[..3]));
    all.extend(between("u", &spine[..3]));
    all.push(("b", "10"));
    if let Some(speed) = speed {
        for (switch, port) in &all {
            lab.add(switch, &SWITCH_PORT_SPEED, &[port], speed);
        }
    }
    for round in 0..19 {
        for (switch, port) in &all {
            let own = different.iter().find(|own| own.at == (*switch, *port));
            let (waits, bytes) = match own {
                Some(own) if round >= 12 => (own.waits, own.bytes),
                Some(own) => (own.waited, own.sent),
                None => (USUAL, BYTES),
            };
            count(&mut lab, switch, port, [waits, bytes]);
        }
        if round == 18 {
            last(&mut lab);
        }
        lab.read();
    }
    lab.said_by(switch_ports::build)
}

fn count(lab: &mut Lab, switch: &str, port: &str, [waits, bytes]: [f64; 2]) {
    lab.add(switch, &SWITCH_PORT_TRANSMIT_WAIT, &[port], waits);
    lab.add(switch, &SWITCH_PORT_TRANSMIT_BYTES, &[port], bytes);
}

#[test]
fn a_cable_whose_port_waits_more_than_others_and_than_before_is_named() {
    let slow = || Port::slow("a", "1");
    assert!(named(&[]).is_empty());
    assert_eq!(named(&[slow()]), ["path-slow link/a:1"]);
    // The other end waits as well.
    assert_eq!(
        named(&[slow(), Port::slow("s", "1")]),
        ["path-slow link/a:1"; 2]
    );
    let always = Port {
        waited: LONG / 2.0,
        ..slow()
    };
    assert!(named(&[always]).is_empty(), "it always waited");
    let down = Port {
        waits: 0.0,
        bytes: 0.0,
        ..Port::slow("a", "3")
    };
    assert!(named(&[slow(), down]).is_empty(), "it has more to carry");
    let idle = Port {
        waited: 0.0,
        sent: 0.05 * BYTES,
        ..slow()
    };
    assert!(named(&[idle]).is_empty(), "it sent nothing before");
    let little = Port {
        waits: 2.0 * USUAL,
        ..slow()
    };
    assert!(named(&[little]).is_empty(), "little more than others");
    let more = Port {
        waits: 2.0 * LONG,
        bytes: 1.5 * BYTES,
        ..slow()
    };
    assert!(named(&[more]).is_empty(), "several flows share it");
    let less = Port {
        sent: 3.0 * BYTES,
        bytes: 1.5 * BYTES,
        ..slow()
    };
    assert_eq!(named(&[less]), ["path-slow link/a:1"]);
}

#[test]
fn a_port_that_waits_because_the_next_switch_does_is_not_named() {
    let slow = || Port::slow("s", "5");
    let host = Port::slow("b", "10");
    assert_eq!(named(&[slow()]), ["path-slow link/b:1"]);
    assert!(named(&[slow(), host]).is_empty(), "a slow receiver");
    let full = |waits| Port {
        at: ("b", "10"),
        waited: 0.0,
        sent: BYTES,
        waits,
        bytes: 9.0 * SPEED,
    };
    assert!(named(&[slow(), full(0.0)]).is_empty(), "too many senders");
}

#[test]
fn a_counter_that_has_stopped_accuses_nothing() {
    let stopped = |switch: &'static str, port: &'static str| {
        named_unless(&[Port::slow("s", "5")], move |lab| {
            lab.add(
                switch,
                &SWITCH_PORT_SATURATED,
                &[port, "port_xmit_wait"],
                1.0,
            );
        })
    };
    assert_eq!(stopped("a", "1"), ["path-slow link/b:1"]);
    assert!(stopped("s", "5").is_empty(), "its own");
    assert!(
        stopped("b", "10").is_empty(),
        "the host's port may wait unseen"
    );
    // A port without a link has no speed and sends nothing.
    let without_link = named_unless(&[Port::slow("s", "5")], |lab| {
        lab.host("n9", ("b", 11));
    });
    assert_eq!(without_link, ["path-slow link/b:1"]);
}

#[test]
fn where_a_switch_reports_no_speed_that_of_the_cable_tells_whether_a_port_is_full() {
    let swept = |lab: &mut Lab| {
        let cables = lab.fabric.links();
        let cables: Vec<_> = cables.map(|(_, a, b, link)| (a, b, link.ports)).collect();
        for (a, b, ports) in cables {
            let link = Link::cable(ports, "4xNDR".parse().ok(), Witness::Subnet, at(1.0));
            lab.fabric.connect(a, b, link);
        }
    };
    let slow = [Port::slow("s", "5")];
    assert_eq!(named_with(&slow, None, swept), ["path-slow link/b:1"]);
    assert!(named_with(&slow, None, |_| {}).is_empty(), "it may be full");
}

#[test]
fn many_ports_that_begin_to_wait_at_once_are_a_change_of_the_traffic() {
    let [a, b, c] = [("a", "1"), ("b", "5"), ("c", "6")];
    let slow = |(switch, port)| Port::slow(switch, port);
    let two = ["path-slow link/a:1", "path-slow link/b:5"];
    assert_eq!(named(&[a, b].map(slow)), two);
    assert!(named(&[a, b, c].map(slow)).is_empty());
}

#[test]
fn a_switch_that_two_others_wait_for_holds_both_up() {
    let two = || [("a", "1"), ("b", "2")].map(|(switch, port)| Port::slow(switch, port));
    assert!(named(&two()).is_empty());
    // The other end of one of them waits as well.
    let [a, b] = two();
    assert_eq!(
        named(&[a, b, Port::slow("s", "1")]),
        ["path-slow link/a:1"; 2]
    );
    let always = Port {
        waited: LONG,
        ..Port::slow("b", "2")
    };
    assert_eq!(
        named(&[Port::slow("a", "1"), always]),
        ["path-slow link/a:1"]
    );
}

#[test]
fn parallel_cables_that_wait_alike_lead_to_a_busy_switch() {
    let two = ["1", "2"].map(|port| Port::slow("a", port));
    assert!(named(&two).is_empty());
}

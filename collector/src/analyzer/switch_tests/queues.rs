//! Standing queues at switch ports.

use super::ports::{Port, lab_after};
use crate::detect::rules::switch_ports;

/// What is named where these queues are new.
fn named(ports: &[Port]) -> Vec<String> {
    lab_after(12, [0.0, 1.25], ports).said_by(switch_ports::build)
}

#[test]
fn a_queue_that_stands_at_a_port_which_sends_little_is_named_unless_the_port_is_paused_or_busy() {
    let queue = |at, paused, marked, bytes| {
        let port = Port {
            at,
            direction: "receive",
            paused,
            marked,
            bytes,
        };
        named(&[port])
    };
    // 10 % of its speed, and 10 % of the packets.
    let (marked, bytes) = (1.2e6, 5e10);
    assert_eq!(
        queue(("a", "1"), 0.0, marked, bytes),
        ["path-slow link/a:1"]
    );
    assert!(queue(("a", "1"), 0.2, marked, bytes).is_empty());
    assert!(queue(("a", "1"), 0.0, marked, 6.0 * bytes).is_empty());
    assert!(queue(("a", "1"), 0.0, marked / 1000.0, bytes).is_empty());
    assert!(
        queue(("a", "10"), 0.0, marked, bytes).is_empty(),
        "the host's own port"
    );
}

/// A port with a queue that sends this much, beside three without that send 5e10 bytes.
fn beside_others(bytes: f64) -> Vec<Port> {
    let port = |port, marked, bytes| Port {
        at: ("a", port),
        direction: "receive",
        paused: 0.0,
        marked,
        bytes,
    };
    let others = ["2", "3", "4"].map(|other| port(other, 0.0, 5e10));
    [port("1", 1.2e6, bytes)]
        .into_iter()
        .chain(others)
        .collect()
}

#[test]
fn a_queue_at_a_port_that_sends_more_than_the_others_is_of_flows_that_share_it() {
    let bytes = 5e10;
    let with_others = |bytes| named(&beside_others(bytes));
    assert_eq!(with_others(bytes), ["path-slow link/a:1"]);
    assert!(with_others(1.5 * bytes).is_empty());
}

/// A cable that becomes slower takes less of the same flows; however many flows it has, their number explains no queue.
#[test]
fn a_queue_at_a_port_that_sends_more_than_the_others_and_less_than_before_is_of_its_cable() {
    let at = |before, marked| {
        let mut ports = beside_others(7.5e10);
        ports[0].marked = marked;
        lab_after(12, before, &ports).said_by(switch_ports::build)
    };
    assert_eq!(at([0.1, 2.0], 1.2e6), ["path-slow link/a:1"]);
    assert!(at([0.1, 1.25], 1.2e6).is_empty(), "as much as before");
    // 0.7 % of the packets.
    assert_eq!(at([0.05, 2.0], 1.3e5), ["path-slow link/a:1"]);
    assert!(at([0.8, 2.0], 1.3e5).is_empty(), "as many as before");
}

#[test]
fn a_queue_is_named_only_where_most_ports_between_switches_mark_far_fewer_packets() {
    let port = |at, marked| Port {
        at,
        direction: "receive",
        paused: 0.0,
        marked,
        bytes: 5e10,
    };
    let with_others = |share: f64| {
        let others = [("a", "2"), ("a", "3"), ("b", "1"), ("b", "2")];
        let idle = [
            ("s", "1"),
            ("s", "2"),
            ("s", "3"),
            ("s", "4"),
            ("s", "5"),
            ("s", "6"),
        ];
        let mut all = vec![port(("a", "1"), 1.2e6)];
        all.extend(others.map(|at| port(at, share * 1.2e6)));
        all.extend(idle.map(|at| Port {
            bytes: 1e6,
            ..port(at, 0.0)
        }));
        named(&all)
    };
    assert_eq!(with_others(0.1), ["path-slow link/a:1"]);
    // Each of them has a queue by itself.
    assert!(with_others(0.5).is_empty());
}

#[test]
fn of_many_queues_at_once_only_one_at_a_port_that_sends_much_less_is_named() {
    let with_queues = |standing: usize, bytes: f64| {
        let ports = ["1", "2", "3", "4"];
        let ports = ["a", "b"]
            .into_iter()
            .flat_map(|leaf| ports.map(|port| (leaf, port)));
        let port = |(index, at)| Port {
            at,
            direction: "receive",
            paused: 0.0,
            marked: if index < standing { 1.2e6 } else { 0.0 },
            bytes: if index == 0 { bytes } else { 5e10 },
        };
        let all: Vec<_> = ports.enumerate().map(port).collect();
        named(&all)
    };
    let two = ["path-slow link/a:1", "path-slow link/a:2"];
    assert_eq!(with_queues(2, 5e10), two);
    assert!(with_queues(3, 5e10).is_empty());
    assert_eq!(with_queues(3, 2e10), ["path-slow link/a:1"]);
}

#[test]
fn a_queue_that_always_stands_while_a_job_runs_is_how_it_sends() {
    let at = |bytes, before, readings| {
        lab_after(readings, before, &beside_others(bytes)).said_by(switch_ports::build)
    };
    assert_eq!(at(5e10, [0.1, 1.25], 12), ["path-slow link/a:1"]);
    assert!(at(5e10, [1.0, 1.25], 12).is_empty());
    // The job has just begun.
    assert_eq!(at(5e10, [0.0, 0.0], 12), ["path-slow link/a:1"]);
    // What was before is not known: then only a port that sends much less than the others.
    assert!(at(5e10, [0.0, 0.0], 0).is_empty());
    assert_eq!(at(2e10, [0.0, 0.0], 0), ["path-slow link/a:1"]);
}

#[test]
fn a_link_with_half_of_its_lanes_has_a_queue_while_its_port_sends_up_to_half_of_its_speed() {
    // Of 50e9 bytes a second; the readings are 10 s apart.
    let at = |share: f64, marked: f64, before: f64| {
        let bytes = share * 5e11;
        let port = |port, marked| Port {
            at: ("a", port),
            direction: "receive",
            paused: 0.0,
            marked: marked * bytes / 4096.0,
            bytes,
        };
        let others = ["2", "3", "4"].map(|other| port(other, 0.001));
        let ports: Vec<_> = [port("1", marked)].into_iter().chain(others).collect();
        lab_after(12, [before, 1.25], &ports).said_by(switch_ports::build)
    };
    assert_eq!(at(0.4, 0.2, 0.01), ["path-slow link/a:1"]);
    assert!(at(0.6, 0.2, 0.01).is_empty(), "more than half");
    assert!(at(0.4, 0.05, 0.01).is_empty(), "a few packets");
    assert!(at(0.4, 0.2, 0.2).is_empty(), "many before");
}

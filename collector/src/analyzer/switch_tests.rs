//! What the counters of switches report: lost packets, cycles of pause, unused uplinks; on hand-made fabrics.

mod credits;
mod drops;
mod errors;
mod fallen;
mod flapping;
mod host_drops;
mod lost_links;
mod pause_frames;
mod ports;
mod queues;
mod uplinks;
mod waits;

use std::collections::BTreeMap;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::Part;
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_PFC_PAUSE_SECONDS,
    SWITCH_PORT_RECEIVE_PACKETS, SWITCH_PORT_SATURATED, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::detect::detector::{Build, Evidence, View};
use crate::detect::gpus::Gpus;
use crate::detect::pause_graph::PauseGraph;
use crate::detect::rules::{lossy_cable, pause_circle};
use crate::fabric::Routes;
use crate::fabric::addresses::Addresses;
use crate::jobs::job::Jobs;
use crate::stages::{LeftOut, Step};
use crate::store::History;

fn at(seconds: f64) -> Timestamp {
    Timestamp(1_700_000_000_000).plus_seconds(seconds)
}

type Counter = (&'static Metric, Vec<String>, f64);

/// A fabric and what its switches have reported.
#[derive(Default)]
struct Lab {
    fabric: Fabric,
    routes: Routes,
    addresses: Addresses,
    history: History,
    gpus: Gpus,
    jobs: Jobs,
    /// Counters by switch: metric, labels, value.
    said: BTreeMap<String, Vec<Counter>>,
    seconds: f64,
    swept: Option<Timestamp>,
    left_out: LeftOut,
}

impl Lab {
    fn switch(&mut self, name: &str) -> PartId {
        let part = Part::Switch(name.parse().expect("a name"));
        let equipment = Equipment::Switch {
            guid: None,
            ports: 0,
            description: String::new(),
        };
        let known = self.fabric.find(&part);
        known.unwrap_or_else(|| self.fabric.upsert(part, equipment))
    }

    /// Joins port `a.1` of a switch with port `b.1` of another.
    fn cable(&mut self, a: (&str, u16), b: (&str, u16)) {
        let [one, other] = [self.switch(a.0), self.switch(b.0)];
        let link = Link::cable((a.1, b.1), None, Witness::Subnet, at(0.0));
        self.fabric.connect(one, other, link);
    }

    /// A host with one NIC on a port of a switch.
    fn host(&mut self, name: &str, leaf: (&str, u16)) {
        let node: railscope_model::identity::NodeName = name.parse().expect("a name");
        let device = "mlx5_0".parse().expect("a device");
        let equipment = Equipment::Nic {
            guid: None,
            pci: None,
            rail: None,
        };
        let host = self
            .fabric
            .upsert(Part::Host(node.clone()), Equipment::Host);
        let nic = self.fabric.upsert(Part::Nic(node, device), equipment);
        let inside = Link::plain(LinkKind::Inside, Witness::Exporter, at(0.0));
        self.fabric.connect(host, nic, inside);
        let leaf = (self.switch(leaf.0), leaf.1);
        let link = Link::cable((1, leaf.1), None, Witness::Subnet, at(0.0));
        self.fabric.connect(nic, leaf.0, link);
    }

    fn add(&mut self, switch: &str, metric: &'static Metric, labels: &[&str], by: f64) {
        let labels: Vec<String> = labels.iter().map(|l| (*l).to_owned()).collect();
        let said = self.said.entry(switch.to_owned()).or_default();
        let known = said
            .iter_mut()
            .find(|(of, known, _)| std::ptr::eq(*of, metric) && *known == labels);
        match known {
            Some((.., value)) => *value += by,
            None => said.push((metric, labels, by)),
        }
    }

    /// Ten seconds pass, and every switch is read.
    fn read(&mut self) {
        self.seconds += 10.0;
        for (switch, said) in &self.said {
            let mut reading = NodeReading::default();
            for (metric, labels, value) in said {
                reading.push(metric, &Labels::new(labels), *value);
            }
            let history = self.history.switch_mut(&switch.parse().expect("a name"));
            history.ingest_reading(&reading, at(self.seconds));
        }
    }

    fn view(&self) -> View<'_> {
        View {
            fabric: &self.fabric,
            epoch: 0,
            routes: &self.routes,
            addresses: &self.addresses,
            waiting: &[],
            history: &self.history,
            gpus: &self.gpus,
            jobs: &self.jobs,
            misplaced: &[],
            subnet_seen: self.swept,
            now: at(self.seconds),
            left_out: self.left_out,
        }
    }

    /// `class part` of all that a detector reports.
    fn said_by(&self, detector: Build) -> Vec<String> {
        let mut out = Vec::new();
        let mut detector = detector();
        detector.observe(&self.view(), &mut out);
        assert!(
            out.iter()
                .all(|own| !detector.explain(own.class, own.signal).threshold.is_empty())
        );
        let text = |own: &Evidence| format!("{} {}", own.class.name, own.part);
        let mut said: Vec<String> = out.iter().map(text).collect();
        said.sort();
        said
    }
}

/// A million packets in ten seconds.
const MILLION: f64 = 1e6;

/// Leaves `a` and `b`, each with four cables to `s`: port n of a to port n of s, of b to port 4 + n.
fn leaves() -> Lab {
    let mut lab = Lab::default();
    for port in 1..=4 {
        lab.cable(("a", port), ("s", port));
        lab.cable(("b", port), ("s", 4 + port));
    }
    lab
}

/// What becomes of packets on one direction of a cable in one round.
struct Sent {
    sent: f64,
    received: f64,
    dropped: f64,
    broken: f64,
}

impl Sent {
    fn losing(share: f64) -> Self {
        Self {
            sent: MILLION,
            received: MILLION * (1.0 - share),
            dropped: 0.0,
            broken: 0.0,
        }
    }
}

/// Reads eight cables for so many rounds. `way`: round, leaf, port, whether it goes up.
fn packets(rounds: usize, way: impl Fn(usize, &str, u16, bool) -> Sent) -> Lab {
    let mut lab = leaves();
    for round in 0..rounds {
        for (leaf, port) in [("a", 0), ("b", 4)]
            .into_iter()
            .flat_map(|(l, first)| (1..=4).map(move |port| (l, (port, first + port))))
        {
            for up in [true, false] {
                let flow = way(round, leaf, port.0, up);
                let (low, high) = ((leaf, port.0.to_string()), ("s", port.1.to_string()));
                let (from, to) = if up { (&low, &high) } else { (&high, &low) };
                lab.add(from.0, &SWITCH_PORT_TRANSMIT_PACKETS, &[&from.1], flow.sent);
                lab.add(to.0, &SWITCH_PORT_RECEIVE_PACKETS, &[&to.1], flow.received);
                lab.add(
                    to.0,
                    &SWITCH_PORT_DISCARDS,
                    &[&to.1, "receive"],
                    flow.dropped,
                );
                lab.add(
                    to.0,
                    &SWITCH_PORT_ERRORS,
                    &[&to.1, "port_rcv_errors"],
                    flow.broken,
                );
            }
        }
        lab.read();
    }
    lab
}

/// One cable, up only or both directions.
fn of_a1(share: f64) -> impl Fn(usize, &str, u16, bool) -> Sent {
    move |_, leaf, port, _| Sent::losing(if (leaf, port) == ("a", 1) { share } else { 0.0 })
}

#[test]
fn a_cable_that_loses_packets_is_named_alone_and_one_that_loses_none_is_not() {
    for (share, expected) in [
        (0.0, &[][..]),
        (5e-6, &[]),
        (1e-4, &["uplink-lossy link/a:1"]),
        (0.05, &["uplink-lossy link/a:1"]),
    ] {
        let lab = packets(8, of_a1(share));
        assert_eq!(lab.said_by(lossy_cable::build), expected, "{share}");
    }
    // Three thirds need four readings.
    assert!(
        packets(3, of_a1(0.05))
            .said_by(lossy_cable::build)
            .is_empty()
    );
}

#[test]
fn what_the_readings_of_all_cables_are_off_hides_a_loss_that_is_no_larger() {
    // Each switch is read a little early or late: what one reading lacks the next one has.
    let noisy = |loss: f64| {
        packets(30, move |round, leaf, port, up| {
            let early = |round: usize| {
                let draw = (round * 7 + usize::from(port) * 3 + usize::from(up) * 5) % 11;
                draw as f64 / 11.0 * 0.01 * MILLION
            };
            let before = if round == 0 { 0.0 } else { early(round - 1) };
            let share = if (leaf, port) == ("a", 1) { loss } else { 0.0 };
            Sent {
                received: MILLION * (1.0 - share) - early(round) + before,
                ..Sent::losing(0.0)
            }
        })
    };
    for (loss, expected) in [
        (0.0, &[][..]),
        (1e-4, &[]),
        (5e-3, &["uplink-lossy link/a:1"]),
    ] {
        let lab = noisy(loss);
        assert_eq!(lab.said_by(lossy_cable::build), expected, "{loss}");
    }
}

#[test]
fn what_is_counted_elsewhere_or_by_all_or_once_is_no_secret_loss() {
    let is_a1 = |leaf: &str, port: u16| (leaf, port) == ("a", 1);
    // Dropped by the switch that received it: its buffers, not the cable.
    let lab = packets(8, |_, leaf, port, _| Sent {
        dropped: if is_a1(leaf, port) { 1e4 } else { 0.0 },
        ..Sent::losing(if is_a1(leaf, port) { 0.01 } else { 0.0 })
    });
    assert!(lab.said_by(lossy_cable::build).is_empty());
    // Corrupted in transit, and counted: errors have a separate class.
    let lab = packets(8, |_, leaf, port, _| Sent {
        broken: if is_a1(leaf, port) { 1e4 } else { 0.0 },
        ..Sent::losing(if is_a1(leaf, port) { 0.01 } else { 0.0 })
    });
    assert_eq!(lab.said_by(lossy_cable::build), ["link-errors link/a:1"]);
    // Every cable seems to lose: the two ends count differently.
    let lab = packets(8, |_, leaf, port, _| {
        Sent::losing(if is_a1(leaf, port) { 2e-3 } else { 1e-3 })
    });
    assert!(lab.said_by(lossy_cable::build).is_empty());
    // A step in one reading is not a continuing loss.
    let lab = packets(8, |round, leaf, port, _| {
        Sent::losing(if is_a1(leaf, port) && round == 5 {
            0.05
        } else {
            0.0
        })
    });
    assert!(lab.said_by(lossy_cable::build).is_empty());
    // Counters that were cleared in between report nothing.
    let mut lab = packets(8, of_a1(0.0));
    for port in 1..=4 {
        let port = port.to_string();
        lab.add("a", &SWITCH_PORT_RECEIVE_PACKETS, &[&port], -8e6);
    }
    lab.read();
    assert!(lab.said_by(lossy_cable::build).is_empty());
}

#[test]
fn a_counter_that_has_stopped_loses_nothing_and_a_switch_that_loses_on_most_cables_is_named() {
    let stopped = |_: usize, leaf: &str, port: u16, up: bool| Sent {
        received: if (leaf, port, up) == ("a", 1, false) {
            0.0
        } else {
            MILLION
        },
        ..Sent::losing(0.0)
    };
    let mut lab = packets(8, stopped);
    assert_eq!(lab.said_by(lossy_cable::build), ["uplink-lossy link/a:1"]);
    lab.add("a", &SWITCH_PORT_SATURATED, &["1", "port_rcv_packets"], 1.0);
    lab.read();
    assert!(lab.said_by(lossy_cable::build).is_empty());
    let lab = packets(8, |_, leaf, port, _| {
        Sent::losing(if leaf == "a" && port > 1 { 1e-3 } else { 0.0 })
    });
    assert_eq!(lab.said_by(lossy_cable::build), ["uplink-lossy switch/a"]);
}

/// Four switches in a ring, port 1 to the next and port 2 to the one before, each with a host on port 3.
fn ring() -> Lab {
    let mut lab = Lab::default();
    for place in 0..4 {
        let (own, next) = (format!("r{place}"), format!("r{}", (place + 1) % 4));
        lab.cable((&own, 1), (&next, 2));
        lab.host(&format!("n{place}"), (&own, 3));
    }
    lab
}

/// So many ports of a lab paused for a share of the time, with so many bytes in ten seconds.
fn paused(mut lab: Lab, ports: &[(&str, &str, &str, f64, f64)]) -> Lab {
    for (switch, port, ..) in ports {
        lab.add(switch, &SWITCH_PORT_SPEED, &[port], 50e9);
    }
    for _ in 0..5 {
        for (switch, port, direction, share, bytes) in ports {
            let labels = [*port, "3", *direction];
            lab.add(
                switch,
                &SWITCH_PORT_PFC_PAUSE_SECONDS,
                &labels,
                10.0 * share,
            );
            lab.add(switch, &SWITCH_PORT_TRANSMIT_BYTES, &[port], *bytes);
        }
        lab.read();
    }
    lab
}

#[test]
fn switches_that_wait_for_each_other_in_a_circle_are_a_deadlock_unless_something_moves_or_a_nic_is_at_its_end()
 {
    let circle = |share: f64, bytes: f64| -> Vec<_> {
        let of = move |switch| (switch, "1", "receive", share, bytes);
        ["r0", "r1", "r2", "r3"].map(of).to_vec()
    };
    let deadlock = ["pfc-deadlock switch/r0"];
    for (ports, expected) in [
        (circle(1.0, 0.0), &deadlock[..]),
        // A circle that is still moving is congestion.
        (circle(1.0, 100e9), &[]),
        (circle(0.5, 0.0), &[]),
        // Open: three of four wait, and the fourth does not.
        (circle(1.0, 0.0)[..3].to_vec(), &[]),
        // The host at r2 drains nothing: all back-pressure comes from that host.
        (
            [circle(1.0, 0.0), vec![("r2", "3", "receive", 1.0, 0.0)]].concat(),
            &[],
        ),
    ] {
        let lab = paused(ring(), &ports);
        assert_eq!(lab.said_by(pause_circle::build), expected, "{ports:?}");
    }
    let mut lab = paused(ring(), &circle(1.0, 0.0));
    lab.left_out = [Step::PauseWalk].into_iter().collect();
    assert!(lab.said_by(pause_circle::build).is_empty(), "nobody walks");
}

#[test]
fn what_came_down_to_a_leaf_does_not_go_up_again_and_makes_no_circle() {
    let mut lab = Lab::default();
    for (leaf, port) in [("l0", 1), ("l1", 2)] {
        lab.cable((leaf, 1), ("s0", port));
        lab.cable((leaf, 2), ("s1", port));
        lab.host(&format!("n{port}"), (leaf, 3));
    }
    // Up over s0, down to l1, up over s1, down to l0.
    let lanes = [("l0", "1"), ("s0", "2"), ("l1", "2"), ("s1", "1")];
    let lanes = lanes.map(|(switch, port)| (switch, port, "receive", 1.0, 0.0));
    assert!(paused(lab, &lanes).said_by(pause_circle::build).is_empty());
}

#[test]
fn hosts_whose_pause_leads_to_a_nic_are_held_by_it_and_others_are_not() {
    // n2 drains slowly: r2 waits for it, r1 for r2, and n1 for r1. n0 is paused by r0, which waits for no port.
    let lab = paused(
        ring(),
        &[
            ("r2", "3", "receive", 0.4, 1e9),
            ("r1", "1", "receive", 0.2, 1e9),
            ("r1", "3", "transmit", 0.1, 1e9),
            ("r0", "3", "transmit", 0.1, 1e9),
        ],
    );
    let nic = |name: &str| {
        let part = Part::Nic(
            name.parse().expect("a name"),
            "mlx5_0".parse().expect("a device"),
        );
        lab.fabric.find(&part).expect("a NIC")
    };
    let graph = PauseGraph::of(&lab.view());
    assert_eq!(
        graph.held_by(nic("n2")).into_iter().collect::<Vec<_>>(),
        [nic("n1")]
    );
    assert!(graph.held_by(nic("n3")).is_empty());
}

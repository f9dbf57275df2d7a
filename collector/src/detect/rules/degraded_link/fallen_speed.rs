//! Ports that run slower than they did before: of these no peers are needed, and no cable need be known.
//!
//! Both ends of a cable run slower at once. Where no source reports which two ports those are, a switch port is taken for the
//! other end of a node's port that fell with it, from the same speed to the same speed.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{
    Metric, NIC_CARRIER, NIC_SPEED, RDMA_PORT_SPEED, RDMA_PORT_UP, SWITCH_PORT_SPEED,
    SWITCH_PORT_UP,
};

use super::{DOWN_KEPT_SECONDS, TOLERANCE, are_alike, evidence, gigabits};
use crate::assemble::netdev::{MIN_SPEED, has_gpus, has_no_rdma_port, has_rdma_nic};
use crate::classes::PORT_DEGRADED;
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::{cable_at, link_at};
use crate::detect::registry::Threshold;
use crate::store::{NodeHistory, Window};

/// A port of a node or of a switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    Node(NodeName, RdmaPort),
    /// An interface of a node without GPUs that reports no RDMA port, such as a hypervisor or a storage server.
    Interface(NodeName, String),
    /// With the name of the port as its exporter has it.
    Switch(SwitchName, String),
}

/// Maximum time between the speed drops seen at the two ends of a cable: two scrapes of the slower source, within these limits. For so
/// long a switch port without a known cable waits for the other end.
const APART_SECONDS: f64 = 30.0;
const MOST_APART_SECONDS: f64 = 120.0;

/// That time as thresholds.
pub(super) fn apart() -> [Threshold; 2] {
    [
        Threshold::new(
            "time within which both ends of a cable that no source reports fall to the same speed: two scrapes of the slower source, but at least",
            APART_SECONDS,
            "s",
            "two scrapes at 15 s (a choice)",
        ),
        Threshold::new(
            "and at most",
            MOST_APART_SECONDS,
            "s",
            "two scrapes at a minute (a choice)",
        ),
    ]
}

/// Two scrapes of a port's source.
fn two_scrapes(view: &View<'_>, port: &Port) -> f64 {
    let [of_speed, _] = metrics(port);
    let window = with_labels(view, port, |history, labels| {
        history.window(of_speed, labels)
    });
    let step = window.map_or(0.0, |window| window.longest_step(MOST_APART_SECONDS));
    (2.0 * step).clamp(APART_SECONDS, MOST_APART_SECONDS)
}

/// What a port did before it fell.
#[derive(Debug)]
struct Before {
    /// Bytes per second.
    speed: f64,
    /// When the fall was seen.
    since: Timestamp,
    /// When a port was last taken for the other end of this one's cable, which no source reports.
    paired: Option<Timestamp>,
}

/// Ports whose speed fell while they were watched. History is minutes long, a port may stay slow for days.
#[derive(Debug, Default)]
pub(super) struct FallenSpeeds {
    before: BTreeMap<Port, Before>,
}

impl FallenSpeeds {
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.notice(view);
        let now = view.now;
        self.before.retain(|port, before| {
            let is_slow = speed(view, port).is_none_or(|now| now < TOLERANCE * before.speed);
            is_slow && now.seconds_since(before.since) <= DOWN_KEPT_SECONDS
        });
        self.pair(view);
        for (port, before) in &self.before {
            let (Some(now), Some((part, name))) = (speed(view, port), described(view, port)) else {
                continue;
            };
            // The other end of the cable, or the peers of the port, have reported it.
            let is_known = |one: &Evidence| one.part == part && one.class == &PORT_DEGRADED;
            let recently = |at: Timestamp| view.now.seconds_since(at) < two_scrapes(view, port);
            let waits = matches!(port, Port::Switch(..))
                && !has_known_cable(view, port)
                && (recently(before.since)
                    || before
                        .paired
                        .is_some_and(|at| recently(at) || !read_since(view, port, at)));
            if !waits && !out.iter().any(is_known) {
                let statement = format!(
                    "{name} runs at {} Gb/s; it ran at {} Gb/s before.",
                    gigabits(now),
                    gigabits(before.speed)
                );
                let effect = 1.0 - now / before.speed;
                let signal = metrics(port)[0].name;
                out.push(evidence(
                    view,
                    part,
                    &PORT_DEGRADED,
                    signal,
                    effect,
                    statement,
                ));
            }
        }
    }

    /// Pairs each switch port without a known cable with a node's port without one that fell with it, from the same speed to the
    /// same. Where more ports of switches fell than of nodes, it is not known which of them belong to the nodes: none is paired.
    fn pair(&mut self, view: &View<'_>) {
        let ends = self.before.iter().filter_map(|(port, before)| {
            let now = speed(view, port).filter(|_| !has_known_cable(view, port))?;
            let scrapes = two_scrapes(view, port);
            Some((port.clone(), (before.since, scrapes), [before.speed, now]))
        });
        let (of_nodes, of_switches): (Vec<_>, Vec<_>) =
            ends.partition(|(port, ..)| !matches!(port, Port::Switch(..)));
        for (port, (since, own), speeds) in &of_switches {
            let fell_alike = |ends: &[(Port, (Timestamp, f64), [f64; 2])]| {
                let alike = ends.iter().filter(|(_, (at, scrapes), of)| {
                    let apart = at.seconds_since(*since).max(since.seconds_since(*at));
                    apart <= own.max(*scrapes) && are_alike(speeds, of, TOLERANCE)
                });
                alike.count()
            };
            let nodes = fell_alike(&of_nodes);
            if nodes > 0 && nodes >= fell_alike(&of_switches) {
                let before = self.before.get_mut(port);
                before
                    .into_iter()
                    .for_each(|one| one.paired = Some(view.now));
            }
        }
    }

    /// Remembers the ports whose speed has just fallen.
    fn notice(&mut self, view: &View<'_>) {
        let mut fallen = Vec::new();
        for (node, history) in view.history.fresh_nodes(view.now) {
            for (labels, window) in history.moving(&RDMA_PORT_SPEED) {
                let mut labels = labels.values();
                let device = labels.next().and_then(|device| device.parse().ok());
                let number = labels.next().and_then(|port| port.parse().ok());
                if let (Some(device), Some(port)) = (device, number) {
                    let port = Port::Node(node.clone(), RdmaPort { device, port });
                    fallen.extend(highest(window).map(|speed| (port, speed)));
                }
            }
            let is_bare = has_no_rdma_port(history) && !has_rdma_nic(view.fabric, node);
            if is_bare && !has_gpus(history) {
                let of_node = interfaces(history);
                fallen.extend(
                    of_node.map(|(name, speed)| {
                        (Port::Interface(node.clone(), name.to_owned()), speed)
                    }),
                );
            }
        }
        for (switch, history) in view.history.fresh_switches(view.now) {
            for (labels, window) in history.moving(&SWITCH_PORT_SPEED) {
                if let Some(name) = labels.values().next() {
                    let port = Port::Switch(switch.clone(), name.to_owned());
                    fallen.extend(highest(window).map(|speed| (port, speed)));
                }
            }
        }
        for (port, before) in fallen {
            if speed(view, &port).is_some_and(|now| now < TOLERANCE * before) {
                let since = view.now;
                let known = self.before.entry(port).or_insert(Before {
                    speed: before,
                    since,
                    paired: None,
                });
                known.speed = known.speed.max(before);
            }
        }
    }
}

/// How drivers' and systemd's names of physical interfaces begin. The speed of a bridge, a bond or a VLAN is that of the interfaces
/// below it, and changes with them.
const PHYSICAL: [&str; 2] = ["en", "eth"];

/// Physical interfaces of a node whose speed changed, each with the highest it had.
fn interfaces(history: &NodeHistory) -> impl Iterator<Item = (&str, f64)> {
    history.moving(&NIC_SPEED).filter_map(|(labels, window)| {
        let is_physical = |name: &&str| {
            !name.contains('.') && PHYSICAL.iter().any(|begin| name.starts_with(begin))
        };
        let name = labels.values().next().filter(is_physical)?;
        let speed = highest(window).filter(|speed| *speed >= MIN_SPEED)?;
        Some((name, speed))
    })
}

fn highest(window: Window<'_>) -> Option<f64> {
    window.values().max_by(f64::total_cmp)
}

/// Whether any source reports which port is at the other end.
fn has_known_cable(view: &View<'_>, port: &Port) -> bool {
    match port {
        Port::Node(node, port) => {
            let link = Part::HostLink(node.clone(), port.clone());
            view.fabric.find_cable(&link).is_some()
        }
        Port::Interface(..) => false,
        Port::Switch(switch, name) => cable_at(view.fabric, switch, name).is_some(),
    }
}

/// Whether its speed was read after this moment: a switch that is read once a minute still shows the speed before.
fn read_since(view: &View<'_>, port: &Port, at: Timestamp) -> bool {
    let newest = || {
        let Port::Switch(switch, name) = port else {
            return None;
        };
        let history = view.history.switch(switch)?;
        let (newest, _) = history.window(&SWITCH_PORT_SPEED, &[name])?.latest()?;
        Some(newest)
    };
    newest().is_some_and(|newest| newest > at)
}

/// Its speed and whether it is up.
fn metrics(port: &Port) -> [&'static Metric; 2] {
    match port {
        Port::Node(..) => [&RDMA_PORT_SPEED, &RDMA_PORT_UP],
        Port::Interface(..) => [&NIC_SPEED, &NIC_CARRIER],
        Port::Switch(..) => [&SWITCH_PORT_SPEED, &SWITCH_PORT_UP],
    }
}

/// The speed of a port that is up; a port that is down shows one that means nothing.
fn speed(view: &View<'_>, port: &Port) -> Option<f64> {
    let [speed, up] = metrics(port);
    with_labels(view, port, |history, labels| {
        let is_up = history.value(up, labels) != Some(0.0);
        history
            .value(speed, labels)
            .filter(|speed| is_up && *speed > 0.0)
    })
}

/// Reads what a port's source has reported, with the labels of the port.
fn with_labels<'a, T>(
    view: &View<'a>,
    port: &Port,
    read: impl FnOnce(&'a NodeHistory, &[&str]) -> Option<T>,
) -> Option<T> {
    match port {
        Port::Node(node, RdmaPort { device, port }) => {
            let labels = [device.as_str(), &port.to_string()];
            read(view.history.node(node)?, &labels)
        }
        Port::Interface(node, name) => read(view.history.node(node)?, &[name]),
        Port::Switch(switch, port) => read(view.history.switch(switch)?, &[port]),
    }
}

/// The part that a port belongs to, its cable if that is known, and its name as the beginning of a sentence.
fn described(view: &View<'_>, port: &Port) -> Option<(Part, String)> {
    match port {
        Port::Node(node, port) => Some((
            Part::HostLink(node.clone(), port.clone()),
            format!("Port {port} of {node}"),
        )),
        Port::Interface(node, name) => {
            let device = name.parse().ok()?;
            Some((
                Part::HostLink(node.clone(), RdmaPort { device, port: 1 }),
                format!("Interface {name} of {node}"),
            ))
        }
        Port::Switch(switch, name) => Some((
            link_at(view.fabric, switch, name)?,
            format!("Port {name} of {switch}"),
        )),
    }
}

//! Ports that run slower than they did before: of these no peers are needed, and no cable need be known.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{
    Metric, RDMA_PORT_SPEED, RDMA_PORT_UP, SWITCH_PORT_SPEED, SWITCH_PORT_UP,
};

use super::{DOWN_KEPT_SECONDS, TOLERANCE, evidence, gigabits};
use crate::classes::PORT_DEGRADED;
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::link_at;
use crate::store::{NodeHistory, Window};

/// A port of a node or of a switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Port {
    Node(NodeName, RdmaPort),
    /// With the name of the port as its exporter has it.
    Switch(SwitchName, String),
}

/// What a port did before it fell.
#[derive(Debug)]
struct Before {
    /// Bytes per second.
    speed: f64,
    /// When the fall was seen.
    since: Timestamp,
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
        for (port, before) in &self.before {
            let (Some(now), Some((part, name))) = (speed(view, port), described(view, port)) else {
                continue;
            };
            // The other end of the cable, or the peers of the port, have reported it.
            let is_known = |one: &Evidence| one.part == part && one.class == &PORT_DEGRADED;
            if !out.iter().any(is_known) {
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
                });
                known.speed = known.speed.max(before);
            }
        }
    }
}

fn highest(window: Window<'_>) -> Option<f64> {
    window.values().max_by(f64::total_cmp)
}

/// Its speed and whether it is up.
fn metrics(port: &Port) -> [&'static Metric; 2] {
    match port {
        Port::Node(..) => [&RDMA_PORT_SPEED, &RDMA_PORT_UP],
        Port::Switch(..) => [&SWITCH_PORT_SPEED, &SWITCH_PORT_UP],
    }
}

/// The speed of a port that is up; a port that is down shows one that means nothing.
fn speed(view: &View<'_>, port: &Port) -> Option<f64> {
    let read = |history: &NodeHistory, labels: &[&str]| {
        let [speed, up] = metrics(port);
        let is_up = history.value(up, labels) != Some(0.0);
        history
            .value(speed, labels)
            .filter(|speed| is_up && *speed > 0.0)
    };
    match port {
        Port::Node(node, RdmaPort { device, port }) => {
            let labels = [device.as_str(), &port.to_string()];
            read(view.history.node(node)?, &labels)
        }
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
        Port::Switch(switch, name) => Some((
            link_at(view.fabric, switch, name)?,
            format!("Port {name} of {switch}"),
        )),
    }
}

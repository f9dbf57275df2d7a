//! Links that are down, or run slower or narrower than their peers: cables and PCIe.

mod dark;
mod pcie;

use std::collections::BTreeMap;

use railscope_model::fabric::{Link, LinkId, LinkKind, PartId, Presence, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{Metric, RDMA_PORT_SPEED, RDMA_PORT_UP};
use railscope_model::units::BYTES_PER_SECOND_PER_GBIT;

use super::peers::{self, MAJORITY, MIN_PEERS, norm};
use crate::core::ablation::Step;
use crate::core::classes::{Class, PCIE_DEGRADED, PORT_DEGRADED, PORT_DOWN, UPLINK_DOWN};
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::inventory::gpus_behind;
use crate::core::rules::{Rule, Threshold};

/// A rate this far below the norm counts as below it: rates are exact, this only absorbs rounding.
const TOLERANCE: f64 = 0.99;

/// A port that has been down for so long was switched off, not broken.
const DOWN_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

#[derive(Default)]
struct DegradedLink {
    /// Ports that were up and fell, and when. History is minutes long, a dead switch may stay dead for days.
    fallen: BTreeMap<(NodeName, RdmaPort), Timestamp>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<DegradedLink>::default()
}

impl Detector for DegradedLink {
    fn name(&self) -> &'static str {
        "degraded-link"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.ports_down(view, out);
        ports_slow(view, out);
        cables_lost(view, out);
        dark::cables_without_light(view, out);
        cables_slow(view, out);
        pcie::narrow_or_slow(view, out);
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        let (check, clears) = if [&PORT_DOWN, &UPLINK_DOWN].contains(&class) {
            (
                "A port is not ACTIVE, a cable is gone from the subnet or without light at both of its switches, or its neighbour is silent and its port dark, while it was there before or its peers are up.",
                "The port is ACTIVE again, and the subnet or LLDP shows the cable.",
            )
        } else if class == &PCIE_DEGRADED {
            (
                "A PCIe link runs with fewer lanes, or under load at a lower speed, than it could and than its peers do.",
                "The link trains to what its peers run with.",
            )
        } else {
            (
                "A link runs below the rate of its peers.",
                "The link trains to the rate of its peers.",
            )
        };
        let threshold = format!(
            "below what {:.0} % of at least {MIN_PEERS} peers reach; link rates are exact, so any step below counts",
            100.0 * MAJORITY
        );
        Explanation {
            check,
            threshold,
            clears,
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let kept = Threshold::new(
            "how long a port that fell is remembered",
            DOWN_KEPT_SECONDS,
            "s",
            "what is down for longer was switched off, not broken (a choice)",
        );
        let rounding = Threshold::new(
            "share of the norm that still counts as the norm",
            TOLERANCE,
            "ratio",
            "rates are exact, this absorbs rounding",
        );
        let down = || [peers::thresholds(), vec![kept.clone()]].concat();
        let slow = [peers::thresholds(), vec![rounding]].concat();
        let pcie = [slow.clone(), vec![pcie::busy()]].concat();
        vec![
            Rule::new(&PORT_DOWN, down()),
            Rule::new(&UPLINK_DOWN, Vec::new()),
            Rule::new(&PORT_DEGRADED, slow),
            Rule::new(&PCIE_DEGRADED, pcie),
        ]
    }
}

fn evidence(
    view: &View<'_>,
    part: Part,
    class: &'static Class,
    signal: &'static str,
    effect: f64,
    statement: String,
) -> Evidence {
    let victims = gpus_behind(view.fabric, &part);
    Evidence {
        detector: "degraded-link",
        signal,
        part,
        class,
        effect,
        statement,
        victims,
        related: Vec::new(),
    }
}

/// One value of one port of one node.
struct PortValue {
    node: NodeName,
    port: RdmaPort,
    value: f64,
    /// How many ports the node has: a login server with one NIC is no peer of a GPU server with eight.
    shape: usize,
}

/// One value of every port of every fresh node.
fn by_port(view: &View<'_>, metric: &'static Metric) -> Vec<PortValue> {
    let mut values = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let shape = history.series(&RDMA_PORT_UP).count();
        for (labels, window) in history.series(metric) {
            let mut labels = labels.values();
            let (device, port) = (labels.next().map(str::parse), labels.next().map(str::parse));
            if let (Some(Ok(device)), Some(Ok(port)), Some(value)) = (device, port, window.value())
            {
                values.push(PortValue {
                    node: node.clone(),
                    port: RdmaPort { device, port },
                    value,
                    shape,
                });
            }
        }
    }
    values
}

/// The same port of all nodes of one shape.
fn cohorts<'a>(view: &View<'_>, values: &'a [PortValue]) -> Vec<Vec<&'a PortValue>> {
    let mut cohorts: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let has_role = !view.left_out.has(Step::RoleCohort);
    for value in values {
        cohorts
            .entry(has_role.then_some((value.shape, &value.port)))
            .or_default()
            .push(value);
    }
    cohorts.into_values().collect()
}

impl DegradedLink {
    /// Ports that are not ACTIVE although most peers are, or although they were themselves. A port that was
    /// never up on a cluster where its peers are down too is simply not used.
    fn ports_down(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.fallen
            .retain(|_, since| view.now.seconds_since(*since) <= DOWN_KEPT_SECONDS);
        let ports = by_port(view, &RDMA_PORT_UP);
        for peers in cohorts(view, &ports) {
            let peers_are_up = norm(peers.iter().map(|peer| peer.value)) == Some(1.0);
            let up = peers.iter().filter(|peer| peer.value == 1.0).count();
            for PortValue {
                node, port, value, ..
            } in peers.iter().copied()
            {
                let has_fallen = self.has_fallen(view, (node, port), *value);
                if *value == 0.0 && (has_fallen || peers_are_up) {
                    let statement = format!(
                        "Port {port} of {node} is down; {up} of {} nodes have it up.",
                        peers.len()
                    );
                    out.push(evidence(
                        view,
                        Part::HostLink(node.clone(), port.clone()),
                        &PORT_DOWN,
                        RDMA_PORT_UP.name,
                        1.0,
                        statement,
                    ));
                }
            }
        }
    }

    /// Whether a port is down now and was up before; it is remembered until it is up again.
    fn has_fallen(
        &mut self,
        view: &View<'_>,
        (node, port): (&NodeName, &RdmaPort),
        up: f64,
    ) -> bool {
        if up != 0.0 {
            if !self.fallen.is_empty() {
                self.fallen.remove(&(node.clone(), port.clone()));
            }
            return false;
        }
        let key = (node.clone(), port.clone());
        if self.fallen.contains_key(&key) {
            return true;
        }
        let labels = [port.device.as_str(), &port.port.to_string()];
        let history = view.history.node(node);
        let window = history.and_then(|history| history.window(&RDMA_PORT_UP, &labels));
        let was_up = window.is_some_and(|window| window.values().any(|up| up == 1.0));
        if was_up {
            self.fallen.insert(key, view.now);
        }
        was_up
    }
}

/// Ports that run below the rate of the same port on other nodes.
fn ports_slow(view: &View<'_>, out: &mut Vec<Evidence>) {
    let is_up = |port: &PortValue| {
        let labels = [port.port.device.as_str(), &port.port.port.to_string()];
        let history = view.history.node(&port.node);
        // Where nobody says whether the port is up, its rate still speaks.
        history
            .and_then(|history| history.value(&RDMA_PORT_UP, &labels))
            .is_none_or(|up| up == 1.0)
    };
    // A port that is down shows a rate that means nothing.
    let mut ports = by_port(view, &RDMA_PORT_SPEED);
    ports.retain(is_up);
    for peers in cohorts(view, &ports) {
        let Some(norm) = norm(peers.iter().map(|peer| peer.value)) else {
            continue;
        };
        for PortValue {
            node,
            port,
            value: rate,
            ..
        } in peers.iter().filter(|peer| peer.value < TOLERANCE * norm)
        {
            let statement = format!(
                "Port {port} of {node} runs at {} Gb/s; its peers on {} nodes run at {} Gb/s.",
                gigabits(*rate),
                peers.len() - 1,
                gigabits(norm)
            );
            let part = Part::HostLink(node.clone(), port.clone());
            out.push(evidence(
                view,
                part,
                &PORT_DEGRADED,
                RDMA_PORT_SPEED.name,
                1.0 - rate / norm,
                statement,
            ));
        }
    }
}

/// Network people speak of gigabits.
fn gigabits(bytes_per_second: f64) -> f64 {
    (bytes_per_second / BYTES_PER_SECOND_PER_GBIT * 10.0).round() / 10.0
}

/// Cables that are lost: an earlier sweep of the subnet saw them and the last complete one did not, or a
/// neighbour is silent and the port towards it down.
fn cables_lost(view: &View<'_>, out: &mut Vec<Evidence>) {
    let is_lost =
        |link: &Link| link.kind == LinkKind::Cable && link.seen_by.presence() == Presence::Lost;
    for (id, a, b, link) in view.fabric.links().filter(|(.., link)| is_lost(link)) {
        let Some(part) = view.fabric.cable_part(id) else {
            continue;
        };
        let end = |id, port: u16| {
            let port = view.fabric.port_name(id, port);
            format!("{} port {port}", view.fabric.vertex(id).part)
        };
        let swept = link.seen_by.of(Witness::Subnet).and(view.subnet_seen);
        let (signal, what) = match swept {
            Some(swept) => (
                "subnet",
                format!(
                    "is gone from the subnet; it was last seen {:.0} s before the newest sweep",
                    swept.seconds_since(link.seen())
                ),
            ),
            None => (
                "lldp",
                format!(
                    "has no light; its ends last heard each other by LLDP {:.0} s ago",
                    view.now.seconds_since(link.seen())
                ),
            ),
        };
        let statement = format!(
            "The cable between {} and {} {what}.",
            end(a, link.ports.0),
            end(b, link.ports.1),
        );
        let class = if matches!(part, Part::SwitchLink(..)) {
            &UPLINK_DOWN
        } else {
            &PORT_DOWN
        };
        out.push(evidence(view, part, class, signal, 1.0, statement));
    }
}

/// Cables that the subnet shows slower than those bought and laid with them: for a host port the same
/// device of hosts of the same shape, for a cable between switches the other such cables of either switch.
fn cables_slow(view: &View<'_>, out: &mut Vec<Evidence>) {
    let mut cohorts: BTreeMap<String, Vec<(LinkId, f64)>> = BTreeMap::new();
    for (id, a, b, link) in view.fabric.links() {
        // A lost cable's speed is of another day.
        // What exporters say of their ports is judged port by port.
        let by_subnet = link.seen_by.of(Witness::Subnet);
        let is_there = by_subnet.is_some_and(|said| said.says == Presence::Present);
        let (LinkKind::Cable, Some(speed), true) = (link.kind, link.speed, is_there) else {
            continue;
        };
        let host_end = [a, b]
            .into_iter()
            .find(|end| matches!(view.fabric.vertex(*end).part, Part::Nic(..)));
        let keys = match host_end {
            Some(_) if view.left_out.has(Step::RoleCohort) => vec![String::from("nic")],
            Some(nic) => vec![host_cohort(view, nic)],
            None => [a, b]
                .map(|end| view.fabric.vertex(end).part.to_string())
                .to_vec(),
        };
        for key in keys {
            cohorts
                .entry(key)
                .or_default()
                .push((id, speed.bytes_per_second()));
        }
    }
    let mut slow = BTreeMap::new();
    for members in cohorts.values() {
        let Some(norm) = norm(members.iter().map(|(_, rate)| *rate)) else {
            continue;
        };
        for (id, rate) in members.iter().filter(|(_, rate)| *rate < TOLERANCE * norm) {
            slow.insert(*id, (*rate, norm, members.len() - 1));
        }
    }
    for (id, (rate, norm, peers)) in slow {
        let Some(part) = view.fabric.cable_part(id) else {
            continue;
        };
        let statement = format!(
            "The subnet shows {part} at {} Gb/s; {peers} cables of its kind run at {} Gb/s.",
            gigabits(rate),
            gigabits(norm)
        );
        out.push(evidence(
            view,
            part,
            &PORT_DEGRADED,
            "subnet",
            1.0 - rate / norm,
            statement,
        ));
    }
}

/// Hosts with as many NICs, and the same device of each.
fn host_cohort(view: &View<'_>, nic: PartId) -> String {
    let Part::Nic(node, device) = &view.fabric.vertex(nic).part else {
        return String::new();
    };
    let host = view.fabric.find(&Part::Host(node.clone()));
    let is_nic = |part: &Part| matches!(part, Part::Nic(..));
    let inside = host
        .into_iter()
        .flat_map(|host| view.fabric.neighbours(host))
        .map(|near| near.peer);
    let shape = inside
        .filter(|peer| is_nic(&view.fabric.vertex(*peer).part))
        .count();
    format!("nic {device} of {shape}")
}

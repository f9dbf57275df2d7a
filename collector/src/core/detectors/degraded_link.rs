//! Links that are down, or run slower or narrower than their peers: cables and PCIe.

use std::collections::BTreeMap;

use railscope_model::fabric::{Link, LinkId, LinkKind, PartId, Presence, Witness};
use railscope_model::identity::{NodeName, Part, PciAddress, RdmaPort};
use railscope_model::metric::{
    GPU_UTILIZATION, Metric, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH,
    PCIE_LINK_WIDTH_MAX, RDMA_PORT_SPEED, RDMA_PORT_UP,
};
use railscope_model::reading::Labels;
use railscope_model::units::BYTES_PER_SECOND_PER_GBIT;

use super::peers::{MAJORITY, MIN_PEERS, norm};
use crate::core::classes::{Class, PCIE_DEGRADED, PORT_DEGRADED, PORT_DOWN, UPLINK_DOWN};
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::history::{NodeHistory, Window};
use crate::core::inventory::{endpoints, gpus_behind};

/// A GPU below this utilisation may have trained its PCIe link down to save power.
const BUSY_UTILIZATION: f64 = 0.5;
/// A rate this far below the norm counts as below it: rates are exact, this only absorbs rounding.
const TOLERANCE: f64 = 0.99;

struct DegradedLink;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(DegradedLink)
}

impl Detector for DegradedLink {
    fn name(&self) -> &'static str {
        "degraded-link"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        ports_down(view, out);
        ports_slow(view, out);
        cables_lost(view, out);
        cables_slow(view, out);
        pcie_narrow_or_slow(view, out);
    }

    fn explain(&self, evidence: &Evidence) -> Explanation {
        let (check, clears) = if [&PORT_DOWN, &UPLINK_DOWN].contains(&evidence.class) {
            (
                "A port is not ACTIVE, a cable is gone from the subnet, or its neighbour is silent and its port dark, while it was there before or its peers are up.",
                "The port is ACTIVE again, and the subnet or LLDP shows the cable.",
            )
        } else if evidence.class == &PCIE_DEGRADED {
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
fn cohorts(values: &[PortValue]) -> BTreeMap<(usize, &RdmaPort), Vec<&PortValue>> {
    let mut cohorts: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for value in values {
        cohorts
            .entry((value.shape, &value.port))
            .or_default()
            .push(value);
    }
    cohorts
}

/// Ports that are not ACTIVE although most peers are, or although they were themselves. A port that was
/// never up on a cluster where its peers are down too is simply not used.
fn ports_down(view: &View<'_>, out: &mut Vec<Evidence>) {
    let ports = by_port(view, &RDMA_PORT_UP);
    for ((_, port), peers) in cohorts(&ports) {
        let peers_are_up = norm(peers.iter().map(|peer| peer.value)) == Some(1.0);
        let up = peers.iter().filter(|peer| peer.value == 1.0).count();
        for PortValue { node, .. } in peers.iter().filter(|peer| peer.value == 0.0) {
            let labels = [port.device.as_str(), &port.port.to_string()];
            let window = view
                .history
                .node(node)
                .and_then(|history| history.window(&RDMA_PORT_UP, &labels));
            let was_up = window.is_some_and(|window| window.values().any(|up| up == 1.0));
            if was_up || peers_are_up {
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
    for ((_, port), peers) in cohorts(&ports) {
        let Some(norm) = norm(peers.iter().map(|peer| peer.value)) else {
            continue;
        };
        for PortValue {
            node, value: rate, ..
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

/// One endpoint's PCIe link: what it runs with against what it could.
struct PcieEnd {
    node: NodeName,
    pci: PciAddress,
    /// `gpu` or `nic`: the cohort.
    kind: String,
    /// GPU ordinal or RDMA device.
    name: String,
    lanes: Option<f64>,
    max_lanes: Option<f64>,
    speed: Option<f64>,
    max_speed: Option<f64>,
    /// Whether its speed may be judged: an idle GPU trains down.
    busy: bool,
}

/// The functions of a card share one link, which is judged and named by the lowest.
fn pcie_ends(view: &View<'_>) -> Vec<PcieEnd> {
    let mut ends = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let mut of_node: BTreeMap<_, PcieEnd> = BTreeMap::new();
        let endpoints = endpoints(history);
        let [max_lanes, speed, max_speed] =
            [&PCIE_LINK_WIDTH_MAX, &PCIE_LINK_SPEED, &PCIE_LINK_SPEED_MAX]
                .map(|metric| by_address(history, metric));
        for (labels, width) in history.series(&PCIE_LINK_WIDTH) {
            let at = labels.values().next().unwrap_or_default();
            let judged = |(kind, _): &&(&str, &str)| matches!(*kind, "gpu" | "nic");
            let Some((kind, name)) = endpoints.get(at).filter(judged) else {
                continue;
            };
            let Ok(pci) = at.parse::<PciAddress>() else {
                continue;
            };
            let end = PcieEnd {
                node: node.clone(),
                pci,
                busy: *kind != "gpu" || is_busy(history, name),
                kind: (*kind).to_owned(),
                name: (*name).to_owned(),
                lanes: width.value(),
                max_lanes: max_lanes.get(at).copied(),
                speed: speed.get(at).copied(),
                max_speed: max_speed.get(at).copied(),
            };
            let card = (pci.domain, pci.bus, pci.device);
            let lower = of_node.get(&card).map(|other| other.pci.function);
            if lower.is_none_or(|lower| pci.function < lower) {
                of_node.insert(card, end);
            }
        }
        ends.extend(of_node.into_values());
    }
    ends
}

/// Newest values of a metric by the PCI address that is its only label.
fn by_address<'a>(history: &'a NodeHistory, metric: &'static Metric) -> BTreeMap<&'a str, f64> {
    let series = history.series(metric);
    let value = |(labels, window): (&'a Labels, Window<'a>)| {
        Some((labels.values().next()?, window.value()?))
    };
    series.filter_map(value).collect()
}

fn is_busy(history: &NodeHistory, gpu: &str) -> bool {
    history
        .value(&GPU_UTILIZATION, &[gpu])
        .is_some_and(|utilization| utilization >= BUSY_UTILIZATION)
}

/// PCIe links of GPUs and NICs below what they could and their peers do.
fn pcie_narrow_or_slow(view: &View<'_>, out: &mut Vec<Evidence>) {
    let ends = pcie_ends(view);
    for end in &ends {
        // A slot may be narrow by design, so a link is held against peers that could do as much.
        let peers = || ends.iter().filter(|peer| peer.kind == end.kind);
        let lanes = below(end.lanes, end.max_lanes, || {
            peers()
                .filter(|peer| peer.max_lanes == end.max_lanes)
                .filter_map(|peer| peer.lanes)
                .collect()
        });
        let speed = below(end.speed.filter(|_| end.busy), end.max_speed, || {
            let alike = |peer: &&PcieEnd| peer.busy && peer.max_speed == end.max_speed;
            peers()
                .filter(alike)
                .filter_map(|peer| peer.speed)
                .collect()
        });
        let narrow = lanes.is_some();
        let shortfalls = [lanes, speed];
        let mut what = shortfalls
            .iter()
            .zip([("lanes", 1.0), ("GT/s", 1e-9)])
            .filter_map(|(shortfall, (unit, scale))| {
                shortfall
                    .as_ref()
                    .map(|s| format!("{:.0} of {:.0} {unit}", s.value * scale, s.norm * scale))
            });
        let Some(first) = what.next() else { continue };
        let what = what.fold(first, |all, more| format!("{all} and {more}"));
        let left: f64 = shortfalls
            .iter()
            .flatten()
            .map(|s| s.value / s.norm)
            .product();
        let at_norm = shortfalls
            .iter()
            .flatten()
            .map(|s| s.at_norm)
            .min()
            .unwrap_or(0);
        let statement = format!(
            "The PCIe link of {} {} ({}) in {} runs with {what}; {at_norm} peers run with all of it.",
            end.kind, end.name, end.pci, end.node
        );
        let signal = if narrow {
            PCIE_LINK_WIDTH.name
        } else {
            PCIE_LINK_SPEED.name
        };
        let part = Part::PcieLink(end.node.clone(), end.pci);
        out.push(evidence(
            view,
            part,
            &PCIE_DEGRADED,
            signal,
            1.0 - left,
            statement,
        ));
    }
}

/// How far a value is below what peers reach.
struct Shortfall {
    value: f64,
    norm: f64,
    /// Peers that reach the norm.
    at_norm: usize,
}

/// The shortfall of a value that is below both what it could be and the norm of its peers.
fn below(
    value: Option<f64>,
    max: Option<f64>,
    peers: impl FnOnce() -> Vec<f64>,
) -> Option<Shortfall> {
    let value = value?;
    // Without a maximum of its own (a hypervisor hides it) the peers alone decide.
    if max.is_some_and(|max| value >= TOLERANCE * max) {
        return None;
    }
    let peers = peers();
    let norm = norm(peers.iter().copied())?;
    let at_norm = peers
        .iter()
        .filter(|peer| **peer >= TOLERANCE * norm)
        .count();
    (value < TOLERANCE * norm).then_some(Shortfall {
        value,
        norm,
        at_norm,
    })
}

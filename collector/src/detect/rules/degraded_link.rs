//! Links that are down, or run slower or narrower than their peers: cables and PCIe.

mod cables;
mod dark;
mod fallen_pair;
mod fallen_speed;
mod interfaces;
mod pcie;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cables::Cables;
use fallen_pair::FallenPairs;
use fallen_speed::FallenSpeeds;
use foldhash::fast::FixedState;
use interfaces::FallenInterfaces;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{Metric, RDMA_DEVICE, RDMA_PORT_SPEED, RDMA_PORT_UP};
use railscope_model::reading::Labels;
use railscope_model::units::BYTES_PER_SECOND_PER_GBIT;

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PCIE_DEGRADED, PORT_DEGRADED, PORT_DOWN, UPLINK_DOWN};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus;
use crate::detect::models::Models;
use crate::detect::peers::{self, MAJORITY, MIN_PEERS, norm};
use crate::detect::registry::{Rule, Threshold};
use crate::stages::Step;
use crate::store::per_node_cache::Kept;
use crate::store::{NodeHistory, Window};

/// A rate this far below the norm counts as below it: rates are exact, this only absorbs rounding.
const TOLERANCE: f64 = 0.99;

/// A port that has been down for so long was switched off, not broken.
const DOWN_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

#[derive(Default)]
struct DegradedLink {
    /// Ports that were up and fell, and when. History is minutes long, a dead switch may stay dead for days.
    fallen: BTreeMap<(NodeName, RdmaPort), Timestamp>,
    /// Rests on what ports report about being up, and of their rate, and on what devices there are.
    ports: Kept<[u64; 3], Ports>,
    pcie: pcie::Links,
    cables: Cables,
    fallen_speeds: FallenSpeeds,
    fallen_pairs: FallenPairs,
    fallen_interfaces: FallenInterfaces,
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
        self.ports.begin();
        for (_, history) in view.history.fresh_nodes(view.now) {
            let rests_on = [&RDMA_PORT_UP, &RDMA_PORT_SPEED, &RDMA_DEVICE]
                .map(|one| history.values_since(one));
            self.ports.refresh(history, rests_on, || Ports::of(history));
        }
        let nodes = view.history.fresh_nodes(view.now);
        let ports = |(node, history)| Some((node, self.ports.of(history)?));
        let ports: Vec<(&NodeName, &Ports)> = nodes.filter_map(ports).collect();
        ports_down(&mut self.fallen, view, &ports, out);
        ports_slow(view, &ports, out);
        self.cables.refresh(view);
        self.cables.lost(view, out);
        dark::cables_without_light(view, out);
        out.extend(self.cables.slow.iter().cloned());
        self.fallen_speeds.find(view, out);
        self.fallen_pairs.find(view, out);
        self.fallen_interfaces.find(view, out);
        FallenInterfaces::find_slow(view, out);
        self.pcie.narrow_or_slow(view, out);
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        let (check, clears) = if [&PORT_DOWN, &UPLINK_DOWN].contains(&class) {
            (
                "A port is not ACTIVE, the link of an interface of a node without known RDMA ports went down, a cable is missing from the subnet or down at both of its switches, two switch ports without a known cable of which each received what the other sent went down together, or the LLDP neighbor of a cable is silent and its port is down, although it was up before or its peers are up.",
                "The port is ACTIVE again, and the subnet or LLDP shows the cable; or both switch ports are up again.",
            )
        } else if class == &PCIE_DEGRADED {
            (
                "A PCIe link runs with fewer lanes, or under load at a lower speed, than it supports and than its peers have.",
                "The link trains to the lanes and speed of its peers.",
            )
        } else {
            (
                "A link runs below the rate of its peers, or below its own earlier rate.",
                "The link trains to the rate of its peers, or to its own earlier rate.",
            )
        };
        let threshold = format!(
            "below the value that {:.0} % of at least {MIN_PEERS} peers reach; link rates are exact, so any lower rate counts",
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
            "time for which a failed port is remembered",
            DOWN_KEPT_SECONDS,
            "s",
            "a port that is down for longer was switched off, not broken (a choice)",
        );
        let rounding = Threshold::new(
            "share of the peers' rate that still counts as equal",
            TOLERANCE,
            "ratio",
            "rates are exact; this absorbs rounding",
        );
        let own = vec![kept, interfaces::slowest()];
        let down = [peers::thresholds(), own, gpus::restarts().to_vec()].concat();
        let slow = [peers::thresholds(), vec![rounding]].concat();
        let pcie = [slow.clone(), vec![pcie::busy()]].concat();
        vec![
            Rule::new(&PORT_DOWN, down),
            Rule::new(&UPLINK_DOWN, fallen_pair::thresholds()),
            Rule::new(
                &PORT_DEGRADED,
                [
                    slow,
                    fallen_speed::apart().to_vec(),
                    cables::design().to_vec(),
                ]
                .concat(),
            ),
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
        alike: Vec::new(),
    }
}

/// Whether the smaller of each two values is at least this share of the larger.
fn are_alike(a: &[f64; 2], b: &[f64; 2], share: f64) -> bool {
    let mut pairs = a.iter().zip(b);
    pairs.all(|(a, b)| a.min(*b) >= share * a.max(*b))
}

/// One value of one port.
#[derive(Debug)]
struct PortValue {
    port: RdmaPort,
    /// Model of its device if that matters: other models have other rates. Empty where no exporter reports it.
    model: String,
    value: f64,
}

/// What the ports of one node report.
#[derive(Debug)]
struct Ports {
    /// How many ports the node has: a login server with one NIC is no peer of a GPU server with eight.
    shape: usize,
    up: Vec<PortValue>,
    /// A port that is down shows a rate that means nothing, and is omitted.
    rates: Vec<PortValue>,
}

impl Ports {
    fn of(history: &NodeHistory) -> Self {
        let is_up = |rate: &PortValue| {
            let labels = [rate.port.device.as_str(), &rate.port.port.to_string()];
            // Where no source reports whether the port is up, its rate is still evidence.
            let up = history.value(&RDMA_PORT_UP, &labels);
            up.is_none_or(|up| up == 1.0)
        };
        let models = Models::of(history);
        let mut rates = by_port(history, &RDMA_PORT_SPEED, |device| models.nic(device));
        rates.retain(is_up);
        Self {
            shape: history.series(&RDMA_PORT_UP).count(),
            up: by_port(history, &RDMA_PORT_UP, |_| ""),
            rates,
        }
    }
}

/// One value of every port of a node.
fn by_port<'a>(
    history: &'a NodeHistory,
    metric: &'static Metric,
    model_of: impl Fn(&str) -> &'a str,
) -> Vec<PortValue> {
    let value = |(labels, window): (&Labels, Window<'_>)| {
        let mut labels = labels.values();
        let (device, port) = (labels.next()?, labels.next()?.parse().ok()?);
        let model = model_of(device).to_owned();
        let device = device.parse().ok()?;
        Some(PortValue {
            port: RdmaPort { device, port },
            model,
            value: window.value()?,
        })
    };
    history.series(metric).filter_map(value).collect()
}

type Peer<'a> = (&'a NodeName, &'a PortValue);

/// The same port of all nodes of one shape, and of one model.
fn cohorts<'a>(
    view: &View<'_>,
    nodes: &[(&'a NodeName, &'a Ports)],
    of: impl Fn(&'a Ports) -> &'a [PortValue],
) -> Vec<Vec<Peer<'a>>> {
    let mut cohorts: HashMap<_, Vec<Peer<'_>>, FixedState> = HashMap::default();
    let has_role = !view.left_out.has(Step::RoleCohort);
    for (node, ports) in nodes {
        for value in of(ports) {
            let role = has_role.then_some((ports.shape, &value.port, &value.model));
            cohorts.entry(role).or_default().push((node, value));
        }
    }
    let mut cohorts: Vec<_> = cohorts.into_iter().collect();
    cohorts.sort_by_key(|(role, _)| *role);
    cohorts.into_iter().map(|(_, peers)| peers).collect()
}

/// Ports that are not ACTIVE although most peers are, or although they were themselves. A port that was
/// never up on a cluster where its peers are down too is simply not used.
fn ports_down(
    fallen: &mut BTreeMap<(NodeName, RdmaPort), Timestamp>,
    view: &View<'_>,
    nodes: &[(&NodeName, &Ports)],
    out: &mut Vec<Evidence>,
) {
    fallen.retain(|_, since| view.now.seconds_since(*since) <= DOWN_KEPT_SECONDS);
    let down = |(_, ports): &(&NodeName, &Ports)| ports.up.iter().any(|port| port.value == 0.0);
    if fallen.is_empty() && !nodes.iter().any(down) {
        return;
    }
    for peers in cohorts(view, nodes, |ports| &ports.up) {
        let peers_are_up = norm(peers.iter().map(|(_, peer)| peer.value)) == Some(1.0);
        let up = peers.iter().filter(|(_, peer)| peer.value == 1.0).count();
        for (node, PortValue { port, value, .. }) in peers.iter().copied() {
            let has_fallen = has_fallen(fallen, view, (node, port), *value);
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
    fallen: &mut BTreeMap<(NodeName, RdmaPort), Timestamp>,
    view: &View<'_>,
    (node, port): (&NodeName, &RdmaPort),
    up: f64,
) -> bool {
    if up != 0.0 {
        if !fallen.is_empty() {
            fallen.remove(&(node.clone(), port.clone()));
        }
        return false;
    }
    let key = (node.clone(), port.clone());
    if fallen.contains_key(&key) {
        return true;
    }
    let labels = [port.device.as_str(), &port.port.to_string()];
    let history = view.history.node(node);
    let window = history.and_then(|history| history.window(&RDMA_PORT_UP, &labels));
    let was_up = window.is_some_and(|window| window.values().any(|up| up == 1.0));
    if was_up {
        fallen.insert(key, view.now);
    }
    was_up
}

/// Ports that run below the rate of the same port on other nodes.
fn ports_slow(view: &View<'_>, nodes: &[(&NodeName, &Ports)], out: &mut Vec<Evidence>) {
    let mut slow: Vec<(Peer<'_>, f64, usize)> = Vec::new();
    for peers in cohorts(view, nodes, |ports| &ports.rates) {
        if let Some(norm) = norm(peers.iter().map(|(_, peer)| peer.value)) {
            let below = peers.iter().filter(|(_, own)| own.value < TOLERANCE * norm);
            slow.extend(below.map(|own| (*own, norm, peers.len() - 1)));
        }
    }
    if slow.is_empty() {
        return;
    }
    let rates = slow.iter();
    let rates = rates.map(|((node, own), ..)| (*node, own.port.device.as_str(), own.value));
    let links = nodes.iter().map(|(node, ports)| (*node, ports.rates.len()));
    let others = generations(rates, &links.collect());
    for ((node, own), norm, peers) in slow {
        if others.contains(&(node, own.port.device.as_str())) {
            continue;
        }
        let (port, rate) = (&own.port, own.value);
        let statement = format!(
            "Port {port} of {node} runs at {} Gb/s; its peers on {peers} nodes run at {} Gb/s.",
            gigabits(rate),
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

/// Slow links of nodes of another generation, or behind other switches: half of the node's links, at least two, are slow, and most
/// of these exactly as the same links of another such node are; its others may run at these rates, too. `slow`: node, device and
/// rate of each slow link; `links`: how many each node has.
fn generations<'a>(
    slow: impl Iterator<Item = (&'a NodeName, &'a str, f64)>,
    links: &BTreeMap<&NodeName, usize>,
) -> BTreeSet<(&'a NodeName, &'a str)> {
    let mut by_node: BTreeMap<&NodeName, BTreeMap<&str, u64>> = BTreeMap::new();
    for (node, device, rate) in slow {
        let slow = by_node.entry(node).or_default();
        slow.insert(device, rate.to_bits());
    }
    by_node.retain(|node, slow| {
        let all = links.get(node).copied().unwrap_or(0);
        slow.len() > 1 && 2 * slow.len() >= all
    });
    let mut nodes_with: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for (device, rate) in by_node.values().flatten() {
        *nodes_with.entry((*device, *rate)).or_default() += 1;
    }
    let mut found = BTreeSet::new();
    for (node, slow) in by_node {
        let alike = slow
            .iter()
            .filter(|(device, rate)| nodes_with[&(**device, **rate)] > 1);
        let alike: Vec<u64> = alike.map(|(_, rate)| *rate).collect();
        if alike.len() as f64 >= MAJORITY * slow.len() as f64 {
            let own = slow.into_iter().filter(|(_, rate)| alike.contains(rate));
            found.extend(own.map(|(device, _)| (node, device)));
        }
    }
    found
}

/// Network speeds are given in gigabits.
fn gigabits(bytes_per_second: f64) -> f64 {
    (bytes_per_second / BYTES_PER_SECOND_PER_GBIT * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow links of a generation, where these nodes of four links have such rates; 0 is a cable that is not plugged in.
    fn found(nodes: &[(&str, [f64; 4])]) -> Vec<String> {
        let names = nodes.iter().map(|(name, _)| name.parse().expect("a name"));
        let names: Vec<NodeName> = names.collect();
        let devices = ["d0", "d1", "d2", "d3"];
        let rates = names.iter().zip(nodes).flat_map(|(name, (_, rates))| {
            let slow = devices.into_iter().zip(*rates);
            let slow = slow.filter(|(_, rate)| *rate > 0.0 && *rate < 4.0);
            slow.map(move |(device, rate)| (name, device, rate))
        });
        let links = names
            .iter()
            .zip(nodes)
            .map(|(name, (_, rates))| (name, rates.iter().filter(|rate| **rate > 0.0).count()));
        let found = generations(rates, &links.collect());
        let found = found
            .iter()
            .map(|(node, device)| format!("{node} {device}"));
        found.collect()
    }

    #[test]
    fn a_generation_is_known_by_most_links_of_two_nodes() {
        let old = [2.0; 4];
        let all = [
            "a d0", "a d1", "a d2", "a d3", "b d0", "b d1", "b d2", "b d3",
        ];
        assert_eq!(found(&[("a", old), ("b", old)]), all);
        assert!(found(&[("a", old)]).is_empty());
        // A cable of one of them is not plugged in, or slower than its generation.
        for last in [0.0, 1.0] {
            let other = [2.0, 2.0, 2.0, last];
            assert_eq!(found(&[("a", old), ("b", other)]), all[..7]);
        }
        // The same link of two nodes is slow.
        let one = [4.0, 4.0, 4.0, 2.0];
        assert!(found(&[("a", one), ("b", one)]).is_empty());
    }
}

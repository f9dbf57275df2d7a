//! What exporters would report about the probes that they send to each other.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use railscope_model::identity::{PortName, SwitchName};
use railscope_model::metric::{
    LATENCY_BOUNDS_NANOS, PROBE_FLOW_LOST, PROBE_FLOW_SENT, PROBE_FLOW_SLOW, PROBE_HOP,
    PROBE_PATH_LOST, PROBE_PATH_QUANTILE, PROBE_PATH_RTT, PROBES_LOST, PROBES_SENT,
};
use railscope_model::path_class::PathClass;
use railscope_model::reading::{Histogram, Labels, NodeReading};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::show::probe::{Prober, Way};
use crate::spec::Transport;
use crate::wiring::{Device, Wiring};

/// Which probes the exporters of a cluster send. Serde-able, so that it can be in a scenario:
///
/// ```toml
/// [probes]
/// far = 4
/// flows = 4
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probing {
    /// NICs of the same leaf that a NIC probes.
    pub near: usize,
    /// NICs of other leaves, of the same rail where that has several leaves.
    pub far: usize,
    /// Flows to each of those.
    pub flows: u8,
    /// Time between two probes of a flow.
    pub interval_seconds: f64,
    /// A longer round trip is slow.
    pub slow_seconds: f64,
    /// Whether routers identify themselves to probes. InfiniBand switches never do.
    pub hops: bool,
}

impl Default for Probing {
    /// Four and four, as the collector makes lists; once a second.
    fn default() -> Self {
        Self {
            near: 4,
            far: 4,
            flows: 4,
            interval_seconds: 1.0,
            slow_seconds: 1e-4,
            hops: true,
        }
    }
}

/// One flow.
#[derive(Debug)]
struct Flow {
    node: u16,
    from: usize,
    to: usize,
    number: u8,
    labels: Labels,
    path_class: PathClass,
    way: Option<Way>,
    hops: Vec<Labels>,
    /// Sent, lost and slow.
    counts: [u64; 3],
}

/// Counts by the bounds of latencies, and those beyond the last.
type Counts = [u64; LATENCY_BOUNDS_NANOS.len() + 1];

/// Window of exporters' quantiles, seconds.
const QUANTILES_SECONDS: f64 = 300.0;

/// Round trips of one node on paths of one class.
#[derive(Debug, Clone, Default)]
struct RoundTrips {
    lost: u64,
    counts: Counts,
    seconds: f64,
    /// The counts at earlier times, oldest first.
    before: VecDeque<(f64, Counts)>,
}

impl RoundTrips {
    fn add(&mut self, seconds: f64, count: u32) {
        let bounds = LATENCY_BOUNDS_NANOS.map(|nanos| nanos as f64 / 1e9);
        let place = bounds.partition_point(|bound| *bound < seconds);
        self.counts[place] += u64::from(count);
        self.seconds += seconds * f64::from(count);
    }

    /// Notes how the counts stand now.
    fn note(&mut self, now: f64) {
        self.before.push_back((now, self.counts));
        let is_old = |(at, _): &(f64, Counts)| now - at > QUANTILES_SECONDS;
        while self.before.front().is_some_and(is_old) {
            self.before.pop_front();
        }
    }

    /// A quantile of the last minutes, seconds: the upper bound of its bucket. None without any round trip.
    fn quantile(&self, q: f64) -> Option<f64> {
        let (_, before) = self.before.front()?;
        let lately = self.counts.iter().zip(before).map(|(now, then)| now - then);
        let lately: Vec<u64> = lately.collect();
        let all: u64 = lately.iter().sum();
        let mut below = 0;
        let bucket = lately.iter().position(|count| {
            below += count;
            below as f64 >= q * all as f64
        });
        let last = LATENCY_BOUNDS_NANOS.len() - 1;
        let bound = LATENCY_BOUNDS_NANOS[bucket?.min(last)];
        (all > 0).then_some(bound as f64 / 1e9)
    }
}

/// The probes of all nodes.
#[derive(Debug)]
pub(in crate::show) struct Probes {
    probing: Probing,
    prober: Prober,
    /// Those of a node stand together.
    flows: Vec<Flow>,
    round_trips: BTreeMap<(u16, PathClass), RoundTrips>,
    /// Restarts of each node's exporter that have been seen.
    restarts: Vec<u32>,
    seconds: f64,
    looks: u64,
}

/// The address of a switch's port: one for each, as in a fabric whose every cable is a subnet.
fn address(switch: usize, port: u16) -> String {
    let number = 0x0a00_0000 | (switch as u32) << 10 | u32::from(port);
    Ipv4Addr::from(number).to_string()
}

/// Addresses of all ports of switches that have cables.
pub fn addresses(wiring: &Wiring) -> impl Iterator<Item = (String, SwitchName, PortName)> {
    let ends = wiring.cables.iter().flat_map(|cable| cable.ends);
    ends.filter_map(|(device, port)| {
        let Device::Switch(switch) = device else {
            return None;
        };
        let name = wiring.switches[switch].name.clone();
        Some((address(switch, port), name, wiring.port_name(port)))
    })
}

impl Probes {
    /// Makes the lists from the plan.
    pub(in crate::show) fn new(cluster: &Cluster, probing: Probing) -> Self {
        let mut probes = Self {
            probing,
            prober: Prober::new(cluster),
            flows: flows(cluster.plan(), probing),
            round_trips: BTreeMap::new(),
            restarts: cluster
                .nodes()
                .iter()
                .map(|node| node.exporter_restarts)
                .collect(),
            seconds: 0.0,
            looks: 0,
        };
        probes.find_ways(cluster);
        // Unreachable targets are not listed.
        probes.flows.retain(|flow| flow.way.is_some());
        probes
    }

    fn find_ways(&mut self, cluster: &Cluster) {
        let tell = self.probing.hops && cluster.spec().transport == Transport::Roce;
        for flow in &mut self.flows {
            flow.way = self.prober.way(flow.from, flow.to, flow.number.into());
            let way = flow.way.as_ref().filter(|_| tell);
            let routers = way.and_then(|way| way.routers(cluster.wiring()));
            let hops = (1..).zip(routers.into_iter().flatten());
            let hops = hops.map(|(hop, (switch, port)): (u8, _)| {
                flow.labels.with(hop).with(address(switch, port))
            });
            flow.hops = hops.collect();
        }
    }

    /// Sends the probes of the time since it was called last.
    pub(in crate::show) fn follow(&mut self, cluster: &Cluster) {
        if self.prober.follow(cluster) {
            self.find_ways(cluster);
        }
        let seconds = cluster.seconds();
        let turns = |seconds: f64| (seconds / self.probing.interval_seconds).floor();
        let sent = (turns(seconds) - turns(self.seconds)).max(0.0) as u32;
        self.seconds = seconds;
        self.looks += 1;
        for flow in &mut self.flows {
            let node = usize::from(flow.node);
            let restarts = cluster.nodes()[node].exporter_restarts;
            // What an exporter counts begins again with it.
            if cluster.is_away(flow.from) || restarts != self.restarts[node] {
                flow.counts = [0; 3];
                self.round_trips.remove(&(flow.node, flow.path_class));
                continue;
            }
            let way = flow.way.as_ref().filter(|_| !cluster.is_away(flow.to));
            let (mut lost, mut slow) = (sent, 0);
            let place = (flow.node, flow.path_class);
            let round_trips = self.round_trips.entry(place).or_default();
            if let Some(way) = way {
                let (prober, looks) = (&self.prober, self.looks);
                let slow_seconds = self.probing.slow_seconds;
                lost = prober.lost(cluster, way, sent, looks);
                slow = prober.slow(cluster, way, (sent - lost, slow_seconds), looks);
                let usual = prober.times(cluster, way, looks).network_seconds();
                round_trips.add(usual.min(slow_seconds), sent - lost - slow);
                if slow > 0 {
                    let late = prober.slow_seconds(cluster, way, slow_seconds, looks);
                    round_trips.add(usual.min(slow_seconds) + late, slow);
                }
            }
            round_trips.lost += u64::from(lost);
            for (count, more) in flow.counts.iter_mut().zip([sent, lost, slow]) {
                *count += u64::from(more);
            }
        }
        for round_trips in self.round_trips.values_mut() {
            round_trips.note(seconds);
        }
        let restarts = cluster.nodes().iter().map(|node| node.exporter_restarts);
        self.restarts = restarts.collect();
    }

    /// What the exporter of a node reports about its probes.
    pub(in crate::show) fn push(&self, reading: &mut NodeReading, node: usize) {
        let of_node = |flow: &Flow| usize::from(flow.node);
        let begin = self.flows.partition_point(|flow| of_node(flow) < node);
        let end = self.flows.partition_point(|flow| of_node(flow) <= node);
        let flows = &self.flows[begin..end];
        let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for flow in flows {
            let device = flow.labels.values().next().unwrap_or_default();
            let sums = sums.entry(device).or_default();
            *sums = [sums[0] + flow.counts[0], sums[1] + flow.counts[1]];
        }
        for (place, metric) in [&PROBES_SENT, &PROBES_LOST].into_iter().enumerate() {
            for (device, sums) in &sums {
                reading.push(metric, &Labels::new([&**device, "udp"]), sums[place]);
            }
        }
        self.push_classes(reading, node);
        let metrics = [&PROBE_FLOW_SENT, &PROBE_FLOW_LOST, &PROBE_FLOW_SLOW];
        for (place, metric) in metrics.into_iter().enumerate() {
            for flow in flows {
                reading.push(metric, &flow.labels, flow.counts[place]);
            }
        }
        for hop in flows.iter().flat_map(|flow| &flow.hops) {
            reading.push(&PROBE_HOP, hop, true);
        }
    }
}

impl Probes {
    fn push_classes(&self, reading: &mut NodeReading, node: usize) {
        let bounds = LATENCY_BOUNDS_NANOS.map(|nanos| nanos as f64 / 1e9);
        for ((of_node, path_class), round_trips) in &self.round_trips {
            let counts = round_trips.counts.to_vec();
            // Counts fit the bounds by their type.
            if usize::from(*of_node) == node
                && let Ok(histogram) = Histogram::new(&bounds, counts, round_trips.seconds)
            {
                let labels = Labels::new([path_class.name(), "udp"]);
                reading.push(&PROBE_PATH_RTT, &labels, histogram);
                reading.push(&PROBE_PATH_LOST, &labels, round_trips.lost);
                for (name, q) in [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999)] {
                    if let Some(seconds) = round_trips.quantile(q) {
                        reading.push(&PROBE_PATH_QUANTILE, &labels.with(name), seconds);
                    }
                }
            }
        }
    }
}

/// The flows of every NIC, node by node: to the next NICs of its leaf, and to some of other leaves.
fn flows(plan: &Wiring, probing: Probing) -> Vec<Flow> {
    let mut leaves: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let leaf_of = |nic: usize| match plan.cable_of(nic)?.ends[1].0 {
        Device::Switch(leaf) => Some(leaf),
        Device::Nic(_) => None,
    };
    for nic in 0..plan.nics.len() {
        if let Some(leaf) = leaf_of(nic) {
            leaves.entry(leaf).or_default().push(nic);
        }
    }
    let mut flows = Vec::new();
    for from in 0..plan.nics.len() {
        let Some(leaf) = leaf_of(from) else { continue };
        let ring = &leaves[&leaf];
        let at = ring.iter().position(|nic| *nic == from).unwrap_or_default();
        for step in 1..ring.len().min(probing.near + 1) {
            flows.push(flow(plan, (from, ring[(at + step) % ring.len()]), 0));
        }
        let alike = |nic: &&usize| {
            let (own, other) = (&plan.nics[from], &plan.nics[**nic]);
            (own.rail, own.plane) == (other.rail, other.plane)
        };
        let others = || leaves.iter().filter(|(other, _)| **other != leaf);
        let of_rail = others().map(|(_, nics)| nics.iter().filter(alike).copied());
        let mut far: Vec<Vec<usize>> = of_rail.map(Iterator::collect).collect();
        far.retain(|nics| !nics.is_empty());
        if far.is_empty() {
            far = others().map(|(_, nics)| nics.clone()).collect();
        }
        let count = far.iter().map(Vec::len).sum::<usize>().min(probing.far);
        for step in 0..if far.is_empty() { 0 } else { count } {
            // Each NIC of a leaf begins with another leaf, so that every pair of leaves is probed.
            let nics = &far[(at * count + step) % far.len()];
            let to = nics[(at + step / far.len()) % nics.len()];
            flows.extend((0..probing.flows).map(|number| flow(plan, (from, to), number)));
        }
    }
    flows
}

/// How far apart two NICs are by the plan.
fn path_class(plan: &Wiring, from: usize, to: usize) -> PathClass {
    let leaf_of = |nic: usize| plan.cable_of(nic).map(|cable| cable.ends[1].0);
    let of = |nic: usize| (leaf_of(nic), Some(plan.nics[nic].rail.into()));
    let leaves = |nic: usize| {
        plan.hosts[usize::from(plan.nics[nic].node)]
            .nics
            .clone()
            .map(leaf_of)
    };
    PathClass::between(of(from), of(to), || {
        leaves(from).any(|leaf| leaves(to).any(|other| other == leaf))
    })
}

fn flow(plan: &Wiring, (from, to): (usize, usize), number: u8) -> Flow {
    let (own, peer) = (&plan.nics[from], &plan.nics[to]);
    let ends = [
        own.device.as_str(),
        peer.node_name.as_str(),
        peer.device.as_str(),
    ];
    Flow {
        node: own.node,
        from,
        to,
        number,
        labels: Labels::new(ends).with(number).with("udp"),
        path_class: path_class(plan, from, to),
        way: None,
        hops: Vec::new(),
        counts: [0; 3],
    }
}

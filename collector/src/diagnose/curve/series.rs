//! Finds the series that a piece of evidence rests on and the same series of the part's peers, and reads their values.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, PartId, Timestamp};
use railscope_model::identity::{GpuIndex, NodeName, Part, PciAddress, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{GPU, Kind, Metric, NIC, RDMA_PORT, Writer};
use railscope_model::reading::Labels;

use super::{MOST_PEERS, Seen, band};
use crate::assemble::node_parts::endpoints;
use crate::detect::detector::Plotted;
use crate::detect::port_series::cable_at;
use crate::jobs::job::Job;
use crate::store::source_id::Subject;
use crate::store::{History, Increase, NodeHistory, STALE_AFTER_SECONDS, Window};

/// Labels that name a part. All others of a metric report what is counted, and peers have the same.
const NAMES: [&str; 6] = ["gpu", "device", "port", "pci", "netdev", "link"];
/// Nodes or switches of which peers are taken.
const MOST_OWNERS: usize = 64;
/// A job of fewer nodes has too few peers.
const FEWEST_NODES: usize = 4;
/// Most series of one part that are compared to find the one that decides.
const MOST_OWN: usize = 256;
/// The time over which a counter's rate is compared with its peers'.
const COMPARED_SECONDS: f64 = 120.0;

/// One series of a node or a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Series {
    /// Whose history has it.
    pub(super) owner: Subject,
    pub(super) labels: Labels,
}

impl Series {
    /// What was reported of it lately.
    pub(super) fn window<'a>(
        &self,
        history: &'a History,
        metric: &'static Metric,
    ) -> Option<Window<'a>> {
        let mut series = history_of(history, &self.owner)?.series(metric);
        let (_, window) = series.find(|(labels, _)| **labels == self.labels)?;
        Some(window)
    }
}

/// The series of a part, and those of its peers.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) own: Series,
    pub(super) peers: Vec<Series>,
}

/// The history of a node or a switch.
pub(super) fn history_of<'a>(history: &'a History, owner: &Subject) -> Option<&'a NodeHistory> {
    match owner {
        Subject::Node(node) => history.node(node),
        Subject::Switch(switch) => history.switch(switch),
    }
}

/// Value of a series at a given time: of a gauge the newest value before it, of a counter the rate up to its
/// newest reading before it.
pub(super) fn reading(window: Window<'_>, metric: &Metric, at: Timestamp) -> Option<f64> {
    let is_new = |told: Timestamp| at.seconds_since(told) <= STALE_AFTER_SECONDS;
    if metric.kind != Kind::Counter {
        let (told, value) = window.told().find(|(told, _)| *told <= at)?;
        return is_new(told).then_some(value);
    }
    let mut counts = window.counts().skip_while(|count| count.at > at);
    let (newer, older) = (counts.next()?, counts.next()?);
    let seconds = newer.at.seconds_since(older.at);
    let rate = (newer.count - older.count) / seconds;
    // Before a reset nothing is known.
    (is_new(newer.at) && seconds > 0.0 && rate.is_finite()).then_some(rate)
}

/// What peers have in common: the values of the labels that name no part, of a switch's port whether it leads to a host,
/// and of a PCIe link the kind of its device. A GPU has other links than a NIC.
type Key<'a> = (Vec<&'a str>, Option<bool>, Option<&'a str>);

/// A series, whose it is, and what was reported of it.
#[derive(Clone, Copy)]
struct Told<'a, 'b> {
    owner: &'b Subject,
    labels: &'a Labels,
    window: Window<'a>,
    /// What is at its PCI address.
    kind: Option<&'a str>,
}

/// The series that a signal of a part refers to. If the part has several, the one that differs most from its peers.
pub(super) fn find(seen: Seen<'_>, part: &Part, plotted: Plotted) -> Option<Found> {
    let metric = plotted.metric;
    let places = places(seen, part, metric);
    let own = places.iter().flat_map(|place| {
        let all = told(seen, &place.owner, plotted);
        all.filter(move |one| place.names.include(metric, one.labels))
    });
    let own: Vec<Told<'_, '_>> = own.take(MOST_OWN).collect();
    let keys: BTreeSet<Key<'_>> = own.iter().map(|one| key(seen, metric, one)).collect();
    if keys.is_empty() {
        return None;
    }
    let owners = owners(seen, &places);
    let mut peers = peers(seen, &places, plotted, &keys, &owners);
    let off = |one: &Told<'_, '_>| {
        let levels = peers.get(&key(seen, metric, one)).into_iter().flatten();
        let usual = band(levels.map(|(_, level)| *level).collect());
        let usual = usual.map_or(0.0, |usual| usual.median);
        level(metric, one.window).map_or(-1.0, |level| (level - usual).abs())
    };
    // Of equals the first.
    let (best, _) = own
        .iter()
        .rev()
        .map(|one| (one, off(one)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let peers = peers.remove(&key(seen, metric, best)).unwrap_or_default();
    Some(Found {
        own: Series {
            owner: best.owner.clone(),
            labels: best.labels.clone(),
        },
        peers: peers
            .into_iter()
            .take(MOST_PEERS)
            .map(|(series, _)| series)
            .collect(),
    })
}

/// Series of a node or switch that a signal may refer to.
fn told<'a, 'b>(
    seen: Seen<'a>,
    owner: &'b Subject,
    plotted: Plotted,
) -> impl Iterator<Item = Told<'a, 'b>> {
    let history = history_of(seen.history, owner);
    let has_address = plotted.metric.label("pci").is_some();
    let kinds = history.filter(|_| has_address).map(kinds);
    let all = history.into_iter();
    let all = all.flat_map(move |history| history.series(plotted.metric));
    let is_kind = move |labels: &Labels| {
        plotted
            .kind
            .is_none_or(|kind| labels.values().last() == Some(kind))
    };
    let kind_of = move |labels: &Labels| {
        let pci = labels.get(plotted.metric.label("pci")?)?;
        kinds.as_ref()?.get(pci).copied()
    };
    all.filter(move |(labels, _)| is_kind(labels))
        .map(move |(labels, window)| Told {
            owner,
            labels,
            window,
            kind: kind_of(labels),
        })
}

/// What is at each PCI address of a node.
fn kinds(history: &NodeHistory) -> BTreeMap<&str, &str> {
    let named = endpoints(history).into_iter();
    named.map(|(pci, (kind, _))| (pci, kind)).collect()
}

/// Series of other parts with one of these keys, and what they have now.
fn peers<'a>(
    seen: Seen<'a>,
    places: &[Place],
    plotted: Plotted,
    keys: &BTreeSet<Key<'_>>,
    owners: &[Subject],
) -> BTreeMap<Key<'a>, Vec<(Series, f64)>> {
    let metric = plotted.metric;
    let share = MOST_PEERS.div_ceil(owners.len().max(1));
    let mut peers: BTreeMap<Key<'a>, Vec<(Series, f64)>> = BTreeMap::new();
    for (number, owner) in owners.iter().enumerate() {
        let mut by_key: BTreeMap<Key<'a>, Vec<(Series, f64)>> = BTreeMap::new();
        for one in told(seen, owner, plotted) {
            let Told { labels, window, .. } = one;
            let mut own = places.iter().filter(|place| place.owner == *owner);
            if own.any(|place| place.names.include(metric, labels)) {
                continue;
            }
            let key = key(seen, metric, &one);
            if let Some(level) = level(metric, window).filter(|_| keys.contains(&key)) {
                let (owner, labels) = (owner.clone(), labels.clone());
                let of_key = by_key.entry(key).or_default();
                of_key.push((Series { owner, labels }, level));
            }
        }
        for (key, mut series) in by_key {
            // Other places in each node: the first GPU of all may be the coolest of all.
            let first = number * share % series.len().max(1);
            series.rotate_left(first);
            series.truncate(share);
            peers.entry(key).or_default().extend(series);
        }
    }
    peers
}

/// What a series is compared by: its newest value, or how fast it has risen.
fn level(metric: &Metric, window: Window<'_>) -> Option<f64> {
    if metric.kind == Kind::Counter {
        window.increase(COMPARED_SECONDS).map(Increase::rate)
    } else {
        window.value()
    }
}

fn key<'a>(seen: Seen<'_>, metric: &Metric, one: &Told<'a, '_>) -> Key<'a> {
    let all = metric.labels.iter().zip(one.labels.values());
    let others = all.filter(|(name, _)| !NAMES.contains(name));
    let others = others.map(|(_, value)| value).collect();
    let faces_host = faces_host(seen.fabric, one.owner, metric, one.labels);
    (others, faces_host, one.kind)
}

/// Whether a switch's port leads to a host; none if it is not a port.
fn faces_host(fabric: &Fabric, owner: &Subject, metric: &Metric, labels: &Labels) -> Option<bool> {
    let Subject::Switch(switch) = owner else {
        return None;
    };
    let far = cable_at(fabric, switch, labels.get(metric.label("port")?)?)?;
    Some(matches!(fabric.vertex(far.peer).part, Part::Nic(..)))
}

/// By label, the values that name a part; without any, everything is of it.
#[derive(Debug, Default)]
struct Names(BTreeMap<&'static str, BTreeSet<String>>);

impl Names {
    fn of<const N: usize>(names: [(&'static str, String); N]) -> Self {
        let mut all = Self::default();
        all.extend(names);
        all
    }

    fn extend(&mut self, names: impl IntoIterator<Item = (&'static str, String)>) {
        for (name, value) in names {
            if !value.is_empty() {
                self.0.entry(name).or_default().insert(value);
            }
        }
    }

    /// Whether a series is the part's: its labels name it, and nothing else.
    fn include(&self, metric: &Metric, labels: &Labels) -> bool {
        let mut named = self.0.is_empty();
        for (name, value) in metric.labels.iter().zip(labels.values()) {
            let Some(known) = self.0.get(name) else {
                continue;
            };
            let pci = (*name == "pci").then(|| value.parse::<PciAddress>().ok());
            let is_it = match pci.flatten() {
                Some(pci) => known.contains(&pci.to_string()),
                None => known.contains(value),
            };
            if !is_it {
                return false;
            }
            named = true;
        }
        named
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.first().map(String::as_str)
    }
}

/// A node or switch that reports of a part, and what it calls it.
#[derive(Debug)]
struct Place {
    owner: Subject,
    names: Names,
}

/// The sources of such a metric of a part.
fn places(seen: Seen<'_>, part: &Part, metric: &Metric) -> Vec<Place> {
    let fabric = seen.fabric;
    let ports: Vec<(PartId, u16)> = match part {
        Part::Switch(switch) => {
            return vec![Place {
                owner: Subject::Switch(switch.clone()),
                names: Names::default(),
            }];
        }
        Part::SwitchLink(..) => {
            let ends = fabric.find_cable(part).into_iter();
            ends.flat_map(|(near, far)| [(near, far.port), (far.peer, far.peer_port)])
                .collect()
        }
        _ if metric.writer == Writer::Switch => far_ends(seen, part),
        _ => {
            let owner = part.node().cloned().map(Subject::Node).into_iter();
            let place = |owner| Place {
                owner,
                names: names(seen, part),
            };
            return owner.map(place).collect();
        }
    };
    let place = |(switch, port): (PartId, u16)| match &fabric.vertex(switch).part {
        Part::Switch(name) => Some(Place {
            owner: Subject::Switch(name.clone()),
            names: Names::of([("port", fabric.port_name(switch, port).to_string())]),
        }),
        _ => None,
    };
    ports.into_iter().filter_map(place).collect()
}

/// Ports of switches that a part of a node is cabled to.
fn far_ends(seen: Seen<'_>, part: &Part) -> Vec<(PartId, u16)> {
    let fabric = seen.fabric;
    let Some(node) = part.node() else {
        return Vec::new();
    };
    let nics: Vec<PartId> = match part {
        Part::Host(_) => fabric.nics(node).collect(),
        _ => {
            let devices = names(seen, part).0.remove("device").unwrap_or_default();
            let devices = devices
                .iter()
                .filter_map(|device| device.parse::<RdmaDevice>().ok());
            devices
                .filter_map(|device| fabric.find(&Part::Nic(node.clone(), device)))
                .collect()
        }
    };
    let port = match part {
        Part::HostLink(_, port) => Some(u16::from(port.port)),
        _ => None,
    };
    let cables = nics.into_iter().flat_map(|nic| fabric.cables(nic));
    cables
        .filter(|far| port.is_none_or(|port| far.port == port))
        .map(|far| (far.peer, far.peer_port))
        .collect()
}

/// What its node calls a part.
fn names(seen: Seen<'_>, part: &Part) -> Names {
    let history = part.node().and_then(|node| seen.history.node(node));
    let mut names = match part {
        Part::Host(_) | Part::Switch(_) | Part::SwitchLink(..) | Part::SharedStorage => {
            return Names::default();
        }
        Part::Gpu(_, gpu) => Names::of([("gpu", gpu.to_string())]),
        Part::NvLink(_, link) => {
            return Names::of([
                ("gpu", link.gpu.to_string()),
                ("link", link.link.to_string()),
            ]);
        }
        Part::PcieLink(_, pci) => Names::of([("pci", pci.to_string())]),
        // Some exporters know of no device behind an interface.
        Part::Nic(_, device) => Names::of([
            ("device", device.to_string()),
            ("netdev", device.to_string()),
        ]),
        Part::HostLink(_, port) => Names::of([
            ("device", port.device.to_string()),
            ("port", port.port.to_string()),
        ]),
    };
    let Some(history) = history else {
        return names;
    };
    let text = |labels: &Labels, label| labels.get(label).unwrap_or_default().to_owned();
    let has = |name, value: &str| names.0.get(name).is_some_and(|known| known.contains(value));
    let mut aliases: Vec<(&'static str, String)> = Vec::new();
    for (labels, _) in history.series(&GPU) {
        let [gpu, pci] = [label!(GPU, "gpu"), label!(GPU, "pci")].map(|label| text(labels, label));
        if has("gpu", &gpu) || has("pci", &pci) {
            aliases.extend([("gpu", gpu), ("pci", pci)]);
        }
    }
    for (labels, _) in history.series(&RDMA_PORT) {
        let label = [
            label!(RDMA_PORT, "device"),
            label!(RDMA_PORT, "pci"),
            label!(RDMA_PORT, "netdev"),
            label!(RDMA_PORT, "port"),
        ];
        let [device, pci, netdev, port] = label.map(|label| text(labels, label));
        let is_port = match part {
            Part::HostLink(_, own) => device == own.device.as_str() && port == own.port.to_string(),
            _ => has("device", &device) || has("pci", &pci),
        };
        if is_port {
            aliases.extend([("device", device), ("netdev", netdev)]);
        }
    }
    for (labels, _) in history.series(&NIC) {
        let label = [
            label!(NIC, "netdev"),
            label!(NIC, "pci"),
            label!(NIC, "device"),
        ];
        let [netdev, pci, device] = label.map(|label| text(labels, label));
        let is_port = matches!(part, Part::HostLink(..));
        if !is_port && (has("device", &device) || has("pci", &pci)) {
            aliases.push(("netdev", netdev));
        }
    }
    names.extend(aliases);
    names
}

/// Nodes or switches whose series peers are taken of: the part's own first, then others of its job, or of all, evenly.
fn owners(seen: Seen<'_>, places: &[Place]) -> Vec<Subject> {
    let Some(first) = places.first().map(|place| &place.owner) else {
        return Vec::new();
    };
    let others: Vec<Subject> = match first {
        Subject::Switch(_) => {
            let switches = seen.history.fresh_switches(seen.now);
            let all: Vec<_> = switches.map(|(switch, _)| switch).collect();
            evenly(&all)
                .map(|switch| Subject::Switch((*switch).clone()))
                .collect()
        }
        Subject::Node(node) => {
            let nodes: Vec<_> = match job(seen, node, &places[0].names) {
                Some(job) => job.nodes.keys().collect(),
                None => {
                    let nodes = seen.history.fresh_nodes(seen.now);
                    nodes.map(|(node, _)| node).collect()
                }
            };
            evenly(&nodes)
                .map(|node| Subject::Node((*node).clone()))
                .collect()
        }
    };
    let others = others.into_iter().filter(|owner| owner != first);
    [first.clone()].into_iter().chain(others).collect()
}

/// At most [`MOST_OWNERS`] of these, as far apart as they can be.
fn evenly<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let taken = all.len().min(MOST_OWNERS);
    (0..taken).filter_map(move |number| all.get(number * all.len() / taken))
}

/// The job of a part, if it has nodes enough.
fn job<'a>(seen: Seen<'a>, node: &NodeName, names: &Names) -> Option<&'a Job> {
    let gpu = names
        .one("gpu")
        .and_then(|gpu| gpu.parse::<GpuIndex>().ok());
    let of_gpu = gpu.and_then(|gpu| seen.jobs.on(node)(gpu));
    let of_nic = || {
        let device = names.one("device")?.parse().ok()?;
        seen.jobs.of_nic(node, &device)
    };
    of_gpu
        .or_else(of_nic)
        .filter(|job| job.nodes.len() >= FEWEST_NODES)
}

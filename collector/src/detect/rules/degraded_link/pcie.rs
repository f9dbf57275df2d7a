//! PCIe links of GPUs and NICs that run with fewer lanes or slower than they could and their peers do.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{NodeName, Part, PciAddress};
use railscope_model::metric::{
    GPU, GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH, GPU_PCIE_LINK_WIDTH_MAX, GPU_UTILIZATION,
    Metric, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH, PCIE_LINK_WIDTH_MAX, PCIE_PATH,
    RDMA_DEVICE, RDMA_PORT,
};
use railscope_model::reading::Labels;

use super::{TOLERANCE, evidence};
use crate::assemble::node_parts::endpoints;
use crate::classes::PCIE_DEGRADED;
use crate::detect::detector::{Evidence, View};
use crate::detect::models::Models;
use crate::detect::peers::norm;
use crate::detect::registry::Threshold;
use crate::store::per_node_cache::Kept;
use crate::store::{NodeHistory, Window};

/// What [`pcie_ends`] reads.
const RESTS_ON: [&Metric; 11] = [
    &GPU,
    &RDMA_DEVICE,
    &RDMA_PORT,
    &PCIE_PATH,
    &PCIE_LINK_WIDTH,
    &PCIE_LINK_WIDTH_MAX,
    &PCIE_LINK_SPEED,
    &PCIE_LINK_SPEED_MAX,
    &GPU_PCIE_LINK_GENERATION,
    &GPU_PCIE_LINK_WIDTH,
    &GPU_PCIE_LINK_WIDTH_MAX,
];
/// A GPU below this utilization may have trained its PCIe link down to save power.
const BUSY_UTILIZATION: f64 = 0.5;

/// From when on a GPU's PCIe link must run at full speed.
pub(super) fn busy() -> Threshold {
    Threshold::new(
        "GPU utilization from which its link must run at full speed",
        BUSY_UTILIZATION,
        "ratio",
        "an idle GPU lowers its link speed to save power (a choice)",
    )
}

/// One endpoint's PCIe link: what it runs with against what it could.
#[derive(Debug)]
struct PcieEnd {
    /// None of a GPU whose exporter reports no addresses.
    pci: Option<PciAddress>,
    /// `gpu` or `nic`: the cohort.
    kind: String,
    /// GPU ordinal or RDMA device.
    name: String,
    /// Its model; empty where no exporter reports it.
    model: String,
    lanes: Option<f64>,
    max_lanes: Option<f64>,
    speed: Option<f64>,
    max_speed: Option<f64>,
}

impl PcieEnd {
    /// Whether its speed may be evaluated: an idle GPU trains down.
    fn is_busy(&self, history: &NodeHistory) -> bool {
        self.kind != "gpu" || is_busy(history, &self.name)
    }

    /// Its lanes. A driver may report fewer of an idle GPU.
    fn known_lanes(&self, history: &NodeHistory) -> Option<f64> {
        self.lanes
            .filter(|_| self.pci.is_some() || self.is_busy(history))
    }

    /// Its peers in what has this maximum.
    fn cohort(&self, max: Option<f64>) -> Cohort<'_> {
        (&self.kind, max.map(f64::to_bits).ok_or(&self.model))
    }

    /// Whether it is a peer in this cohort. If its maximum is not reported, a link that runs as fast counts as one: the
    /// exporter's default profile has the maximum of links only that fall short of it.
    fn is_of(&self, cohort: Cohort<'_>, max: Option<f64>, value: Option<f64>) -> bool {
        let runs_with = (self.kind.as_str(), Ok(value.unwrap_or(0.0).to_bits()));
        self.cohort(max) == cohort || max.is_none() && runs_with == cohort
    }

    /// Whether it could do better: without a separate maximum (a hypervisor hides it) the peers alone decide.
    fn falls_short(&self) -> bool {
        let short = |value: Option<f64>, max: Option<f64>| {
            value.is_some_and(|value| max.is_none_or(|max| value < TOLERANCE * max))
        };
        short(self.lanes, self.max_lanes) || short(self.speed, self.max_speed)
    }
}

/// Determines the peers of a link: those with the same maximum, or of the same model where
/// no source reports the maximum.
type Cohort<'a> = (&'a str, Result<u64, &'a str>);

/// What a cohort's links run with, and how many of them do.
type Norms<'a> = BTreeMap<Cohort<'a>, Option<(f64, usize)>>;

/// The links of all nodes.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Rests on what is where, and what it runs with and could.
    kept: Kept<[u64; RESTS_ON.len()], Vec<PcieEnd>>,
}

/// The functions of a card share one link, which is evaluated and named by the lowest.
fn pcie_ends(history: &NodeHistory) -> Vec<PcieEnd> {
    let mut ends: BTreeMap<_, PcieEnd> = BTreeMap::new();
    let endpoints = endpoints(history);
    let models = Models::of(history);
    let [lanes, max_lanes, speed, max_speed] = [
        &PCIE_LINK_WIDTH,
        &PCIE_LINK_WIDTH_MAX,
        &PCIE_LINK_SPEED,
        &PCIE_LINK_SPEED_MAX,
    ]
    .map(|metric| by_address(history, metric));
    // An exporter may report the speed alone.
    let known: BTreeSet<&str> = lanes.keys().chain(speed.keys()).copied().collect();
    for at in known {
        let judged = |(kind, _): &&(&str, &str)| matches!(*kind, "gpu" | "nic");
        let Some((kind, name)) = endpoints.get(at).filter(judged) else {
            continue;
        };
        let Ok(pci) = at.parse::<PciAddress>() else {
            continue;
        };
        let end = PcieEnd {
            pci: Some(pci),
            kind: (*kind).to_owned(),
            name: (*name).to_owned(),
            model: match *kind {
                "gpu" => models.gpu(name),
                _ => models.nic(name),
            }
            .to_owned(),
            lanes: lanes.get(at).copied(),
            max_lanes: max_lanes.get(at).copied(),
            speed: speed.get(at).copied(),
            max_speed: max_speed.get(at).copied(),
        };
        let card = (pci.domain, pci.bus, pci.device);
        let lower = ends.get(&card).and_then(|other| other.pci);
        if lower.is_none_or(|lower| pci.function < lower.function) {
            ends.insert(card, end);
        }
    }
    let mut ends: Vec<PcieEnd> = ends.into_values().collect();
    let unplaced = unplaced(history, &endpoints, &models);
    ends.extend(unplaced);
    ends
}

/// The links of GPUs without a known address: old versions of exporters report none. Only those with peers: of a known model, or
/// maximum. Their speed could be that of the node's fastest, for a board may limit all.
fn unplaced(
    history: &NodeHistory,
    endpoints: &BTreeMap<&str, (&str, &str)>,
    models: &Models<'_>,
) -> Vec<PcieEnd> {
    let is_known = |gpu: &str| endpoints.values().any(|known| *known == ("gpu", gpu));
    let reported = [&GPU_PCIE_LINK_WIDTH, &GPU_PCIE_LINK_GENERATION];
    let reported = reported.map(|metric| history.series(metric));
    let gpus = reported.into_iter().flatten();
    let gpus: BTreeSet<&str> = gpus
        .filter_map(|(labels, _)| labels.values().next())
        .filter(|gpu| !is_known(gpu))
        .collect();
    let speeds = gpus.iter().filter_map(|gpu| generation_speed(history, gpu));
    let fastest = speeds.reduce(f64::max);
    let end = |gpu: &str| PcieEnd {
        pci: None,
        kind: "gpu".to_owned(),
        name: gpu.to_owned(),
        model: models.gpu(gpu).to_owned(),
        lanes: history.value(&GPU_PCIE_LINK_WIDTH, &[gpu]),
        max_lanes: history.value(&GPU_PCIE_LINK_WIDTH_MAX, &[gpu]),
        speed: generation_speed(history, gpu).filter(|_| !models.gpu(gpu).is_empty()),
        max_speed: fastest,
    };
    let has_peers = |end: &PcieEnd| end.max_lanes.is_some() || !end.model.is_empty();
    gpus.into_iter().map(end).filter(has_peers).collect()
}

/// Transfers per second by the generation that the GPU's driver reports.
fn generation_speed(history: &NodeHistory, gpu: &str) -> Option<f64> {
    // PCI Express Base Specification.
    let transfers = [2.5e9, 5e9, 8e9, 16e9, 32e9, 64e9];
    let generation = history.value(&GPU_PCIE_LINK_GENERATION, &[gpu])?;
    let place = (generation as usize).checked_sub(1)?;
    transfers.get(place).copied()
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

impl Links {
    /// PCIe links of GPUs and NICs below what they could and their peers do.
    pub(super) fn narrow_or_slow(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.kept.begin();
        let mut short = Vec::new();
        for (_, history) in view.history.fresh_nodes(view.now) {
            let rests_on = RESTS_ON.map(|metric| history.values_since(metric));
            self.kept.refresh(history, rests_on, || pcie_ends(history));
        }
        for (node, history) in view.history.fresh_nodes(view.now) {
            let ends = self.kept.of(history).into_iter().flatten();
            let ends = ends.filter(|end| end.falls_short());
            short.extend(ends.map(|end| (node, history, end)));
        }
        let (mut lanes, mut speeds) = (Norms::new(), Norms::new());
        for (node, history, end) in short {
            let of_lanes = end.cohort(end.max_lanes);
            let of_speed = end.cohort(end.max_speed);
            let shortfalls = [
                below(end.known_lanes(history), end.max_lanes, || {
                    *lanes.entry(of_lanes).or_insert_with(|| {
                        self.norm(view, |_, peer| {
                            let alike = peer.is_of(of_lanes, peer.max_lanes, peer.lanes);
                            peer.lanes.filter(|_| alike)
                        })
                    })
                }),
                below(
                    end.speed.filter(|_| end.is_busy(history)),
                    end.max_speed,
                    || {
                        *speeds.entry(of_speed).or_insert_with(|| {
                            self.norm(view, |history, peer| {
                                let alike = peer.is_of(of_speed, peer.max_speed, peer.speed);
                                peer.speed.filter(|_| alike && peer.is_busy(history))
                            })
                        })
                    },
                ),
            ];
            out.extend(found(view, node, end, &shortfalls));
        }
    }

    /// What the links of a cohort run with, and how many of them do.
    fn norm(
        &self,
        view: &View<'_>,
        value: impl Fn(&NodeHistory, &PcieEnd) -> Option<f64>,
    ) -> Option<(f64, usize)> {
        let mut values = Vec::new();
        for (_, history) in view.history.fresh_nodes(view.now) {
            let ends = self.kept.of(history).into_iter().flatten();
            values.extend(ends.filter_map(|peer| value(history, peer)));
        }
        let norm = norm(values.iter().copied())?;
        let reach = values.iter().filter(|value| **value >= TOLERANCE * norm);
        Some((norm, reach.count()))
    }
}

/// Evidence on a link, if it falls short of anything.
fn found(
    view: &View<'_>,
    node: &NodeName,
    end: &PcieEnd,
    [lanes, speed]: &[Option<Shortfall>; 2],
) -> Option<Evidence> {
    let shortfalls = || [lanes, speed].into_iter().flatten();
    let words = |shortfall: &Option<Shortfall>, unit: &str, scale: f64| {
        let s = shortfall.as_ref()?;
        Some(format!(
            "{:.0} of {:.0} {unit}",
            s.value * scale,
            s.norm * scale
        ))
    };
    let what = [words(lanes, "lanes", 1.0), words(speed, "GT/s", 1e-9)];
    let mut what = what.into_iter().flatten();
    let first = what.next()?;
    let what = what.fold(first, |all, more| format!("{all} and {more}"));
    let left: f64 = shortfalls().map(|s| s.value / s.norm).product();
    let at_norm = shortfalls().map(|s| s.at_norm).min().unwrap_or(0);
    let address = end.pci.map_or_else(String::new, |pci| format!(" ({pci})"));
    let statement = format!(
        "The PCIe link of {} {}{address} in {node} runs with {what}; {at_norm} peers are not degraded.",
        end.kind, end.name
    );
    let signal = match (end.pci, lanes) {
        (None, Some(_)) => GPU_PCIE_LINK_WIDTH.name,
        (None, None) => GPU_PCIE_LINK_GENERATION.name,
        (Some(_), Some(_)) => PCIE_LINK_WIDTH.name,
        (Some(_), None) => PCIE_LINK_SPEED.name,
    };
    let part = match end.pci {
        Some(pci) => Part::PcieLink(node.clone(), pci),
        None => Part::Gpu(node.clone(), end.name.parse().ok()?),
    };
    Some(evidence(
        view,
        part,
        &PCIE_DEGRADED,
        signal,
        1.0 - left,
        statement,
    ))
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
    norm: impl FnOnce() -> Option<(f64, usize)>,
) -> Option<Shortfall> {
    let value = value?;
    if max.is_some_and(|max| value >= TOLERANCE * max) {
        return None;
    }
    let (norm, at_norm) = norm()?;
    (value < TOLERANCE * norm).then_some(Shortfall {
        value,
        norm,
        at_norm,
    })
}

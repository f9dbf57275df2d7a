//! PCIe links of GPUs and NICs that run with fewer lanes or slower than they could and their peers do.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, PciAddress};
use railscope_model::metric::{
    GPU_UTILIZATION, Metric, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH,
    PCIE_LINK_WIDTH_MAX,
};
use railscope_model::reading::Labels;

use super::{TOLERANCE, evidence};
use crate::core::classes::PCIE_DEGRADED;
use crate::core::detector::{Evidence, View};
use crate::core::detectors::peers::norm;
use crate::core::history::{NodeHistory, Window};
use crate::core::inventory::endpoints;
use crate::core::rules::Threshold;

/// A GPU below this utilisation may have trained its PCIe link down to save power.
const BUSY_UTILIZATION: f64 = 0.5;

/// From when on a GPU's PCIe link must run at full speed.
pub(super) fn busy() -> Threshold {
    Threshold::new(
        "utilisation from which a GPU's link must run at full speed",
        BUSY_UTILIZATION,
        "ratio",
        "an idle GPU trains its link down to save power (a choice)",
    )
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
pub(super) fn narrow_or_slow(view: &View<'_>, out: &mut Vec<Evidence>) {
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

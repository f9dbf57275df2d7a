//! GPUs that report about themselves, or by their silence, that they are broken: lost, with bad memory, with NVLinks
//! down.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use railscope_model::metric::{
    GPU, GPU_ROW_REMAP_FAILED, GPU_ROW_REMAP_PENDING, GPU_SRAM_THRESHOLD_EXCEEDED, GPU_TEMPERATURE,
    GPU_UTILIZATION, GPU_XID_EVENTS, Metric, NVLINKS_ACTIVE,
};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, GPU_LOST, GPU_MEMORY, NVLINK_DOWN};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::Listed;
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS, norm};
use crate::detect::registry::{Rule, Threshold};
use crate::detect::rules::gpu_xid::COUNTED_BEFORE;
use crate::store::per_node_cache::Kept;

/// XIDs after which a GPU does no more work until it is reset or its node restarted: fallen off the bus (79), its
/// system processor does not respond or has failed (119, 120), contained so badly that it must be reset (95)
/// (NVIDIA XID catalogue).
const FATAL_XIDS: &[&str] = &["79", "95", "119", "120"];

/// Newest scrapes on which such an XID must be new: then the silence is its doing, and no scrape that came out
/// short.
const NEW_PAGES: usize = 2;

#[derive(Default)]
struct GpuHealth {
    /// Rests on the GPUs that are listed, on which of them report anything, and on what they report about memory and
    /// links.
    kept: Kept<[u64; 7], Health>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuHealth>::default()
}

/// What the GPUs of a node report about themselves.
#[derive(Debug, Default)]
struct Health {
    /// Whether any does not respond, or has bad memory.
    is_bad: bool,
    /// Active NVLinks, by product.
    links: BTreeMap<String, Vec<f64>>,
}

impl Health {
    fn of(node: &[Listed<'_>]) -> Self {
        let bad = |gpu: &Listed<'_>| !answers(gpu) || bad_memory(gpu).next().is_some();
        let mut links: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for gpu in node {
            let of_product = links.entry(gpu.product.to_owned()).or_default();
            of_product.extend(gpu.value(&NVLINKS_ACTIVE));
        }
        Self {
            is_bad: node.iter().any(bad),
            links,
        }
    }
}

impl Detector for GpuHealth {
    fn name(&self) -> &'static str {
        "gpu-health"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.kept.begin();
        for (node, history) in view.history.fresh_nodes(view.now) {
            let [util, temperature] =
                [&GPU_UTILIZATION, &GPU_TEMPERATURE].map(|one| history.presence_since(one));
            let [gpu, failed, pending, sram, links] = [
                &GPU,
                &GPU_ROW_REMAP_FAILED,
                &GPU_ROW_REMAP_PENDING,
                &GPU_SRAM_THRESHOLD_EXCEEDED,
                &NVLINKS_ACTIVE,
            ]
            .map(|one| history.values_since(one));
            let rests_on = [gpu, util, temperature, failed, pending, sram, links];
            self.kept.refresh(history, rests_on, || {
                let node: Vec<_> = view.gpus.of_node(view, node, history).collect();
                Health::of(&node)
            });
        }
        let nodes = view.history.fresh_nodes(view.now);
        let health = |(node, history)| Some((node, history, self.kept.of(history)?));
        let nodes: Vec<_> = nodes.filter_map(health).collect();
        let listed = |node, history| view.gpus.of_node(view, node, history).collect::<Vec<_>>();
        let bad = nodes.iter().filter(|(.., health)| health.is_bad);
        let bad: Vec<_> = bad
            .map(|(node, history, _)| listed(node, history))
            .collect();
        bad.iter().for_each(|node| lost(node, view, out));
        bad.iter().flatten().for_each(|gpu| memory(gpu, out));
        let norms = norms(nodes.iter().map(|(.., health)| *health));
        let lacks = |health: &Health| {
            let mut links = health.links.iter();
            links.any(|(product, links)| {
                let norm = norms.get(product.as_str());
                norm.is_some_and(|norm| links.iter().any(|links| links < norm))
            })
        };
        for (node, history, _) in nodes.iter().filter(|(.., health)| lacks(health)) {
            nvlinks(&listed(node, history), &norms, view, out);
        }
    }

    fn explain(&self, class: &Class, signal: &str) -> Explanation {
        if signal == GPU_SRAM_THRESHOLD_EXCEEDED.name {
            Explanation {
                check: "The uncorrected errors of the GPU's SRAM (caches, registers, shared memory) exceed NVIDIA's threshold, as reported by the driver or DCGM.",
                threshold: String::from("any; the driver applies the threshold"),
                clears: "The GPU has been replaced: the count covers its lifetime.",
            }
        } else if class == &GPU_LOST {
            Explanation {
                check: "The driver lists the GPU but gets no value from it, while another GPU of the node responds.",
                threshold: String::from(
                    "no value at all: a state, not a measurement; immediately if a fatal XID was just reported",
                ),
                clears: "The GPU responds again.",
            }
        } else if class == &NVLINK_DOWN {
            Explanation {
                check: "The GPU has fewer active NVLinks than its peers.",
                threshold: format!(
                    "below the number that {:.0} % of at least {MIN_PEERS} GPUs of its type have; if as many GPUs of a node lack links, the node is reported",
                    100.0 * MAJORITY
                ),
                clears: "The GPU has as many active NVLinks as its peers.",
            }
        } else {
            Explanation {
                check: "The GPU reports that the remap of a memory row is pending or has failed.",
                threshold: String::from("any (NVIDIA GPU memory error management: row remapping)"),
                clears: "The GPU has been reset and no row remap is pending.",
            }
        }
    }

    fn rules(&self) -> Vec<Rule> {
        vec![
            Rule::new(
                &GPU_LOST,
                vec![Threshold::new(
                    "newest scrapes with a new fatal XID, for which the first analysis cycle opens the incident",
                    NEW_PAGES as f64,
                    "scrapes",
                    "the XID and the missing values may be one scrape apart (a choice)",
                )],
            ),
            Rule::new(&GPU_MEMORY, Vec::new()),
            Rule {
                class: &GPU_MEMORY,
                signal: GPU_SRAM_THRESHOLD_EXCEEDED.name,
                thresholds: Vec::new(),
            },
            Rule::new(&NVLINK_DOWN, peers::thresholds()),
        ]
    }
}

fn evidence(
    part: Part,
    class: &'static Class,
    signal: &'static str,
    effect: f64,
    statement: String,
) -> Evidence {
    Evidence {
        detector: "gpu-health",
        signal,
        class,
        effect,
        statement,
        victims: Vec::new(),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

fn answers(gpu: &Listed<'_>) -> bool {
    let temperature = || gpu.history.value(&GPU_TEMPERATURE, &[gpu.label(), "gpu"]);
    gpu.value(&GPU_UTILIZATION).or_else(temperature).is_some()
}

/// GPUs without a value on a node whose driver responds for others.
fn lost(node: &[Listed<'_>], view: &View<'_>, out: &mut Vec<Evidence>) {
    let answering = node.iter().filter(|gpu| answers(gpu)).count();
    if answering == 0 {
        return;
    }
    for gpu in node.iter().filter(|gpu| !answers(gpu)) {
        let (why, is_new) = fatal_xids(gpu);
        let statement = format!(
            "GPU {} of {} does not respond; {answering} of the node's {} GPUs do.{why}",
            gpu.index,
            gpu.node,
            node.len()
        );
        let signal = if is_new {
            GPU_XID_EVENTS.name
        } else {
            GPU_UTILIZATION.name
        };
        let mut lost = evidence(gpu.part(), &GPU_LOST, signal, 1.0, statement);
        lost.victims = gpus_behind(view.fabric, &Part::Host(gpu.node.clone()));
        out.push(lost);
    }
}

/// The XIDs that report that a GPU is gone, as a sentence, and whether one of them is new.
fn fatal_xids(gpu: &Listed<'_>) -> (String, bool) {
    let told = gpu.history.series(&GPU_XID_EVENTS);
    let told = told.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let of_it = labels.next() == Some(gpu.label());
        let xid = labels.next().filter(|_| of_it)?;
        Some((xid, labels.next(), window))
    });
    let fatal: Vec<_> = told.filter(|(xid, ..)| FATAL_XIDS.contains(xid)).collect();
    // A first event has no zero before it.
    let is_new = fatal.iter().any(|(_, source, window)| {
        let mut newest = window.values().rev().take(NEW_PAGES);
        let is_first = || window.counts().count() <= NEW_PAGES;
        *source != Some(COUNTED_BEFORE) && is_first() || newest.any(|rise| rise > 0.0)
    });
    let mut fatal: Vec<_> = fatal.into_iter().map(|(xid, ..)| xid).collect();
    fatal.sort_unstable();
    fatal.dedup();
    let said = match fatal[..] {
        [] => String::new(),
        _ => format!(" Its driver reported XID {}.", fatal.join(", ")),
    };
    (said, is_new)
}

/// What a GPU reports of its memory: what it is, and what NVIDIA asks for.
fn bad_memory(gpu: &Listed<'_>) -> impl Iterator<Item = (&'static Metric, &'static str)> {
    let remap = [
        (
            &GPU_ROW_REMAP_FAILED,
            "could not remap a memory row: run the field diagnostic, and have it replaced",
        ),
        (
            &GPU_ROW_REMAP_PENDING,
            "needs a reset to remap a memory row",
        ),
    ];
    let is_set = |metric: &&'static Metric| gpu.value(metric) == Some(1.0);
    let sram = (
        &GPU_SRAM_THRESHOLD_EXCEEDED,
        "has more uncorrected SRAM errors than NVIDIA's threshold: drain it, run the field diagnostic, and have it replaced",
    );
    let remap = remap.into_iter().find(|(metric, _)| is_set(metric));
    let sram = Some(sram).filter(|(metric, _)| is_set(metric));
    remap.into_iter().chain(sram)
}

fn memory(gpu: &Listed<'_>, out: &mut Vec<Evidence>) {
    out.extend(bad_memory(gpu).map(|(metric, what)| {
        let statement = format!("GPU {} of {} {what}.", gpu.index, gpu.node);
        evidence(gpu.part(), &GPU_MEMORY, metric.name, 0.0, statement)
    }));
}

/// A GPU with fewer active NVLinks than its peers.
struct Lacking<'a> {
    gpu: &'a Listed<'a>,
    active: f64,
    norm: f64,
}

impl<'a> Lacking<'a> {
    fn of(gpu: &'a Listed<'a>, norm: f64) -> Option<Self> {
        let active = gpu.value(&NVLINKS_ACTIVE)?;
        (active < norm).then_some(Self { gpu, active, norm })
    }

    fn share(&self) -> f64 {
        1.0 - self.active / self.norm
    }
}

/// How many NVLinks GPUs have, by product: one may be sold without a bridge on some of them, so the peers report how
/// many there should be.
fn norms<'a>(nodes: impl Iterator<Item = &'a Health>) -> BTreeMap<&'a str, f64> {
    let mut active: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (product, links) in nodes.flat_map(|health| &health.links) {
        active.entry(product).or_default().extend(links);
    }
    let active = active.into_iter();
    active
        .filter_map(|(product, links)| Some((product, norm(links)?)))
        .collect()
}

/// NVLinks of a node that are down: of single GPUs, or, where most GPUs lack some, of what all of them are connected to.
fn nvlinks(
    node: &[Listed<'_>],
    norms: &BTreeMap<&str, f64>,
    view: &View<'_>,
    out: &mut Vec<Evidence>,
) {
    let lacking: Vec<_> = node
        .iter()
        .filter_map(|gpu| Lacking::of(gpu, *norms.get(gpu.product)?))
        .collect();
    let shared = node.len() >= MIN_PEERS && lacking.len() as f64 >= MAJORITY * node.len() as f64;
    match lacking.first() {
        Some(first) if shared => out.push(node_lacks(first, lacking.len(), node.len(), view)),
        _ => out.extend(lacking.iter().map(|lacking| gpu_lacks(lacking, view))),
    }
}

fn node_lacks(first: &Lacking<'_>, lacking: usize, gpus: usize, view: &View<'_>) -> Evidence {
    let Lacking { gpu, active, norm } = first;
    let statement = format!(
        "{lacking} of {gpus} GPUs of {} lack NVLinks (GPU {} has {active} of {norm}): a shared component failed, such as an NVSwitch.",
        gpu.node, gpu.index
    );
    let host = Part::Host(gpu.node.clone());
    Evidence {
        victims: gpus_behind(view.fabric, &host),
        ..evidence(
            host,
            &NVLINK_DOWN,
            NVLINKS_ACTIVE.name,
            first.share(),
            statement,
        )
    }
}

fn gpu_lacks(lacking: &Lacking<'_>, view: &View<'_>) -> Evidence {
    let Lacking { gpu, active, norm } = lacking;
    let statement = format!(
        "GPU {} of {} has {active} of {norm} NVLinks; most of its peers have all.",
        gpu.index, gpu.node
    );
    Evidence {
        victims: gpus_behind(view.fabric, &Part::Host(gpu.node.clone())),
        ..evidence(
            gpu.part(),
            &NVLINK_DOWN,
            NVLINKS_ACTIVE.name,
            lacking.share(),
            statement,
        )
    }
}

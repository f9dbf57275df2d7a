//! GPUs that need longer for the work of their peers, although their clock is normal.
//!
//! All GPUs of a synchronous job do the same work in a step, so that the one that is slow computes for longer
//! and waits less: its tensor cores are active for more of the time, at the same clock. Time active times
//! clock is the work that it does, and equal among equals.
//!
//! Where the exporter sums it up, sums are compared ([`counted`]), else samples ([`sampled`]).
//!
//! A GPU whose memory is slow, or some of whose SMs are, does the same tensor operations in more time: its tensor cores are
//! as active as those of others, and its SMs, or its memory, are active for longer.
//!
//! A rank that has more to do is no slow GPU. Work that is spread unevenly moves on with the data, so that a GPU is named
//! only when it has stayed behind ([`episodes`]).

mod counted;
mod episodes;
mod rules;
mod sampled;
mod shared;
mod waiting;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::{
    GPU_DRAM_BANDWIDTH, GPU_MEMORY_USED, GPU_SM_ACTIVE, GPU_TENSOR_ACTIVE, Metric,
};

use self::counted::Counted;
use self::episodes::{Episodes, Key, cohort};
use self::rules::{rules, threshold};
use self::sampled::Sampled;
use self::shared::{discard_many, more_memory};
use self::waiting::has_more_to_do;
use crate::classes::{Class, GPU_SLOW};
use crate::detect::cohort::Usual;
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::{Listed, by_job, by_node};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Rule;
use crate::stages::Step;

/// Excess over the node's median from which a GPU is slow, and seconds over which sums must show it: far off for a short
/// time, or less for longer.
const SUMS: [(f64, f64); 2] = [(0.03, 30.0), (0.015, 90.0)];
/// Share of those seconds that scrapes must report.
const MIN_SEEN: f64 = 2.0 / 3.0;
/// Excess where there are only samples, and how many of the newest must all show it. The driver
/// reports activity in steps of 0.1 %, and clocks in steps of 0.75 %.
const SAMPLED: [(f64, usize); 2] = [(0.08, 2), (0.03, 3)];
/// Time that the samples must reach back, if that takes more of them. An exporter reads each GPU separately, once a
/// second, and later where it is busy: for seconds after work has changed, a scrape has some GPUs as they were
/// before.
const MIN_SECONDS: f64 = 4.5;
/// Samples used to estimate by how much the GPUs of a node differ: maximum, and the fewest that
/// report.
const SAMPLES: (usize, usize) = (8, 4);
/// Seconds by which the sums of two GPUs on a scrape may end apart, at least: the exporter's worker
/// reads each once a second, and the exporter adds what it read once a second.
const READ_APART: f64 = 2.0;
/// Length of the pieces of the time that report how steady work is: long enough for a few steps.
const PIECE_SECONDS: f64 = 5.0;
/// Threshold above the spread of the node's GPUs, in standard deviations: short windows that begin at different
/// times within a step differ, whatever the GPUs do.
const ABOVE_SPREAD: f64 = 3.0;
/// The same of the GPUs of its job, or of all of its model: a node has too few GPUs to show how far healthy ones differ. Of
/// 100,000 normal values, 0.3 lie so far above the mean.
const ABOVE_SPREAD_OF_ALL: f64 = 4.5;
/// GPUs that such a comparison needs, four nodes of eight: the spread of fewer is off by more than a fifth.
const MIN_ALL: usize = 32;
/// GPUs of all jobs that differ by more, as a standard deviation, do different work, such as independent inference; those of one
/// job share it unequally, as experts do.
const WIDEST_SPREAD: f64 = 0.025;
/// Standard deviation of normal values, in median absolute deviations.
const STANDARD: f64 = 1.4826;
/// A GPU that computes less than this of the time runs no step that could be compared.
const MIN_ACTIVE: f64 = 0.05;
/// How long a GPU must have been behind: twice as long as uneven work was seen to stay on one rank.
const HELD_SECONDS: f64 = 45.0;
/// The same in a job or node whose other GPUs were behind for less than this and are not any more.
const MOVED_SECONDS: f64 = 120.0;
/// Share of a job's GPUs, at least two, or two of one node, that have had more work for so long, from which work is unequal, and how
/// long that is remembered of a job, and of a node, whose jobs change.
const UNEQUAL_SHARE: f64 = 0.05;
const UNEQUAL_FOR_SECONDS: f64 = 20.0;
const UNEQUAL_SECONDS: f64 = 3600.0;
const UNEQUAL_ON_NODE_SECONDS: f64 = 300.0;
/// Excess of the memory's activity from which it is slow, whatever the samples: ranks differ a little in their data.
const MEMORY: f64 = 0.1;
/// By how much tensor work of a GPU whose SMs or memory are active for longer may differ from that of the others, and be the
/// same work.
const SAME_WORK: f64 = 0.05;
/// The same of SMs that differ by [`TIMES_AS_MUCH`]: means of samples that are shorter than a step scatter.
const LOOSELY_SAME_WORK: f64 = 0.2;
/// Difference of the SMs' activity, in differences of the tensor work. More work shows in both alike.
const TIMES_AS_MUCH: f64 = 2.0;
/// Excess of the mean activity of SMs from which a GPU is slow, the newest seconds that it is the mean of, at most, and the
/// samples, at least. Samples that are shorter than a step show a slow GPU only while the others wait for it.
const MEANS: (f64, f64, usize) = (0.15, 120.0, 4);

#[derive(Default)]
struct GpuWork {
    episodes: Episodes,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuWork>::default()
}

impl Detector for GpuWork {
    fn name(&self) -> &'static str {
        "gpu-work"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut gpus = view.gpus.listed(view);
        gpus.retain(Listed::is_busy);
        let cohorts: Vec<_> = by_node(&gpus).flat_map(by_job).collect();
        let by_tensor: Vec<_> = cohorts.iter().filter_map(|gpus| Node::of(gpus)).collect();
        let [by_sm, by_memory] = [&GPU_SM_ACTIVE, &GPU_DRAM_BANDWIDTH].map(|activity| {
            let nodes = cohorts.iter();
            nodes
                .filter_map(|gpus| Node::beside(gpus, activity))
                .collect::<Vec<_>>()
        });
        let mut behind = found(view, &by_tensor, SUMS.len());
        // Those of samples, and that of means.
        let lanes = SAMPLED.len() + 1;
        let mut of_memory = found(view, &by_memory, lanes);
        of_memory.retain(|key, _| {
            work_differs(&by_tensor, key).is_some_and(|differs| differs <= SAME_WORK)
        });
        let of_work: BTreeMap<_, _> = behind.iter().chain(&of_memory).collect();
        let of_work = of_work.iter().map(|(key, found)| (*key, found.worker.gpu));
        self.episodes.note_work(view.now, of_work);
        let is_equal = |found: &Found<'_>| !self.episodes.is_unequal(&found.worker.gpu);
        behind.retain(|_, found| is_equal(found));
        of_memory.retain(|_, found| is_equal(found));
        let mut of_sm = found(view, &by_sm, lanes);
        of_sm.retain(|key, found| does_same_work(&by_tensor, key, found.excess));
        for gpus in &cohorts {
            discard_many(&mut of_sm, gpus);
        }
        for (key, found) in of_sm.into_iter().chain(of_memory) {
            behind.entry(key).or_insert(found);
        }
        follow(
            &mut self.episodes,
            view,
            [&by_tensor, &by_sm, &by_memory],
            &behind,
        );
        let lasting = behind.values();
        let lasting = lasting.filter(|found| self.episodes.is_lasting(&found.worker.key()));
        let has_more_to_do =
            |found: &&Found<'_>| has_more_to_do(&found.worker.gpu, &cohorts, found.excess);
        let slow = lasting.filter(|found| !has_more_to_do(found));
        out.extend(slow.map(evidence));
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A busy GPU's tensor cores, or its SMs or memory for the same tensor work, are persistently active for longer than those of the other GPUs of its node and job at the same clock, and than those of the same GPU on other nodes of the job.",
            threshold: threshold(),
            clears: "It is active for no longer than its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        rules()
    }
}

/// Whether a lane compares means: the one after those of samples.
fn is_of_means(lane: usize) -> bool {
    lane == SAMPLED.len()
}

/// Adds for how long GPUs have been behind.
fn follow(
    episodes: &mut Episodes,
    view: &View<'_>,
    [by_tensor, by_sm, by_memory]: [&[Node<'_>]; 3],
    behind: &Behind<'_>,
) {
    let is_compared = |(node, index): &&Key| {
        let has = |of: &Node<'_>, lane: usize| {
            let mut workers = of.workers(lane).into_iter();
            of.name() == Some(node) && workers.any(|worker| worker.gpu.index == *index)
        };
        let means = SAMPLED.len();
        let mut beside = by_sm.iter().chain(by_memory);
        by_tensor.iter().any(|of| has(of, 0)) || beside.any(|of| has(of, means))
    };
    let others = episodes.keys().filter(|key| !behind.contains_key(key));
    let recovered: BTreeSet<_> = others.filter(is_compared).cloned().collect();
    let behind = behind.iter();
    let behind = behind.map(|(key, found)| {
        let cohort = cohort(&found.worker.gpu);
        (key.clone(), (cohort, found.seconds))
    });
    episodes.update(view.now, &behind.collect(), &recovered);
}

/// GPUs that are behind, each as the first lane found it.
type Behind<'a> = BTreeMap<Key, Found<'a>>;

/// A GPU that does more than its peers.
struct Found<'a> {
    worker: Worker<'a>,
    /// Its excess over GPUs of its role.
    excess: f64,
    /// What shows it.
    activity: &'static Metric,
    /// For how long it is so, at least.
    seconds: f64,
}

/// What the GPUs of a node, or those that one job has there, have reported about their work.
enum Node<'a> {
    /// By lane; none of a lane without enough samples.
    Counted([Option<Counted<'a>>; SUMS.len()]),
    Sampled(Sampled<'a>),
    /// What is active beside the tensor cores: SMs, or memory.
    Beside(Sampled<'a>),
}

/// A busy GPU and what it does, as a multiple of what the middle one of its node does.
#[derive(Clone, Copy)]
struct Worker<'a> {
    gpu: Listed<'a>,
    /// Share of the time in which its tensor cores, its SMs or its memory are active.
    active: f64,
    ratio: f64,
    /// The mean of the same over all samples, of which `ratio` may be the minimum.
    usual: f64,
}

impl<'a> Worker<'a> {
    fn key(&self) -> Key {
        (self.gpu.node.clone(), self.gpu.index)
    }

    /// What it may be compared with on other nodes.
    fn role(&self) -> (&'a str, GpuIndex) {
        (self.gpu.product, self.gpu.index)
    }
}

impl<'a> Node<'a> {
    /// `None` of GPUs that report nothing comparable.
    fn of(gpus: &[Listed<'a>]) -> Option<Self> {
        if gpus.iter().any(Counted::is_told_by) {
            let lanes = SUMS.map(|(_, seconds)| Counted::of(gpus, seconds));
            return Some(Self::Counted(lanes));
        }
        Sampled::of(gpus, &GPU_TENSOR_ACTIVE).map(Self::Sampled)
    }

    /// The same by what is active beside the tensor cores.
    fn beside(gpus: &[Listed<'a>], activity: &'static Metric) -> Option<Self> {
        Sampled::of(gpus, activity).map(Self::Beside)
    }

    fn name(&self) -> Option<&'a NodeName> {
        match self {
            Self::Counted(lanes) => lanes.iter().flatten().find_map(Counted::node),
            Self::Sampled(node) | Self::Beside(node) => node.node(),
        }
    }

    fn activity(&self) -> &'static Metric {
        match self {
            Self::Counted(_) => &GPU_TENSOR_ACTIVE,
            Self::Sampled(node) | Self::Beside(node) => node.activity(),
        }
    }

    /// What a GPU of it does on average, as a multiple of what the middle one does.
    fn mean_ratio(&self, index: GpuIndex) -> Option<f64> {
        let workers = match self {
            Self::Counted(lanes) => lanes[0].as_ref()?.workers(),
            Self::Sampled(node) | Self::Beside(node) => {
                let means = node.by_mean(1.0);
                // Scrapes may be too far apart for means.
                let few = means.is_empty().then(|| node.workers(SAMPLED[0].1));
                few.unwrap_or(means)
            }
        };
        let mut workers = workers.into_iter();
        workers
            .find(|worker| worker.gpu.index == index)
            .map(|worker| worker.ratio)
    }

    /// The excess from which a GPU is slow.
    fn least_excess(&self, lane: usize) -> f64 {
        let of_lane = match self {
            Self::Counted(_) => SUMS[lane].0,
            _ if is_of_means(lane) => MEANS.0,
            Self::Sampled(_) | Self::Beside(_) => SAMPLED[lane].0,
        };
        of_lane.max(if self.is_of_memory() { MEMORY } else { 0.0 })
    }

    fn is_of_memory(&self) -> bool {
        self.activity() == &GPU_DRAM_BANDWIDTH
    }

    fn workers(&self, lane: usize) -> Vec<Worker<'a>> {
        match self {
            Self::Counted(lanes) => lanes[lane].as_ref().map_or(vec![], Counted::workers),
            Self::Sampled(node) | Self::Beside(node) if is_of_means(lane) => node.by_mean(1.0),
            Self::Sampled(node) | Self::Beside(node) => node.workers(SAMPLED[lane].1),
        }
    }

    /// Whether the excess of a lane has lasted for the whole window of the lane.
    fn is_throughout(&self, lane: usize, found: &Worker<'_>, excess: f64) -> bool {
        match self {
            Self::Counted(lanes) => lanes[lane]
                .as_ref()
                .is_some_and(|node| node.does_more_throughout(&found.gpu, excess)),
            Self::Sampled(node) | Self::Beside(node) if is_of_means(lane) => {
                let mut lately = node.by_mean(1.0 / 3.0).into_iter();
                lately.any(|worker| {
                    worker.gpu.index == found.gpu.index && worker.ratio > 1.0 + excess / 3.0
                })
            }
            // The least of its samples has it.
            Self::Sampled(_) | Self::Beside(_) => true,
        }
    }

    /// For how long a GPU that a lane finds has been behind, at least, s: it is so in the first and in the last third.
    fn looks_back(&self, lane: usize) -> f64 {
        match self {
            Self::Counted(_) => SUMS[lane].1 / 3.0,
            Self::Sampled(_) | Self::Beside(_) => 0.0,
        }
    }

    /// The excess that may come from nothing but the time at which this GPU was read; `None` if that cannot be determined. Only evaluated
    /// for an outlier.
    fn doubt(&self, lane: usize, gpu: &Listed<'_>) -> Option<f64> {
        let (ratios, misread) = match self {
            Self::Counted(lanes) => {
                let node = lanes[lane].as_ref()?;
                (node.ratios(), node.misread(gpu)?)
            }
            Self::Sampled(node) | Self::Beside(node) if is_of_means(lane) => {
                let ratios = node.by_mean(1.0).into_iter().map(|worker| worker.ratio);
                (ratios.collect(), 0.0)
            }
            Self::Sampled(node) | Self::Beside(node) => (node.ratios()?, 0.0),
        };
        let spread = median(ratios.into_iter().map(|ratio| (ratio - 1.0).abs()))?;
        Some(misread.max(ABOVE_SPREAD * STANDARD * spread))
    }
}

/// By how much the tensor work of a GPU differs from that of the median GPU of its node, on average, as a share of that.
fn work_differs(nodes: &[Node<'_>], (node, index): &Key) -> Option<f64> {
    let mut of_it = nodes.iter().filter(|of| of.name() == Some(node));
    let ratio = of_it.find_map(|of| of.mean_ratio(*index))?;
    Some((ratio - 1.0).abs())
}

/// Whether the tensor work of a GPU, whose SMs are busy for longer by `excess`, is that of the others.
fn does_same_work(nodes: &[Node<'_>], key: &Key, excess: f64) -> bool {
    work_differs(nodes, key).is_some_and(|differs| {
        let loosely = differs <= LOOSELY_SAME_WORK && excess >= TIMES_AS_MUCH * differs;
        differs <= SAME_WORK || loosely
    })
}

/// Standard deviation of what the GPUs of a job, or of all of a model, do, as a share of what the middle one of their node
/// does.
fn spreads_of<'a: 'b, 'b>(workers: impl Iterator<Item = &'b Worker<'a>>) -> Usual<&'a str> {
    let differences = workers.map(|worker| {
        let differs = (worker.usual - 1.0).abs();
        (worker.gpu.job, worker.gpu.product, differs)
    });
    Usual::new(differences, |differences| {
        let enough = differences.len() >= MIN_ALL;
        let middle = enough.then(|| median(differences))??;
        Some(STANDARD * middle)
    })
}

/// GPUs that exceed the threshold of one of the first `lanes`.
fn found<'a>(view: &View<'_>, nodes: &[Node<'a>], lanes: usize) -> Behind<'a> {
    let mut behind = Behind::new();
    for lane in 0..lanes {
        found_by(view, nodes, lane, &mut behind);
    }
    behind
}

/// GPUs that exceed the threshold of this lane, in addition to those found before.
fn found_by<'a>(view: &View<'_>, nodes: &[Node<'a>], lane: usize, behind: &mut Behind<'a>) {
    let workers = nodes.iter().flat_map(|node| {
        let workers = node.workers(lane).into_iter();
        workers.map(move |worker| (worker, node))
    });
    let workers: Vec<_> = workers.collect();
    // The same GPU of every node may have more to do by design: the first rank that also writes the log.
    let has_role = !view.left_out.has(Step::RoleCohort);
    let ratios = workers.iter().filter(|_| has_role);
    let ratios = ratios.map(|(worker, _)| (worker.gpu.job, worker.role(), worker.ratio));
    let usual = Usual::new(ratios, |ratios| {
        (ratios.len() >= MIN_PEERS).then(|| median(ratios))?
    });
    let of_role = |worker: &Worker<'_>| usual.of(worker.gpu.job, &worker.role());
    // Evaluated only where one stands out.
    let spreads = OnceCell::new();
    let spread = |gpu: &Listed<'_>| {
        let spreads = spreads.get_or_init(|| spreads_of(workers.iter().map(|(worker, _)| worker)));
        let of_job = spreads.of_job(gpu.job, &gpu.product).copied();
        let of_all = || Some(spreads.of_all(&gpu.product)?.min(WIDEST_SPREAD));
        of_job.or_else(of_all).unwrap_or(0.0)
    };
    for (worker, node) in &workers {
        let of_role = of_role(worker);
        // One rank of a small job may have data that no other has, such as an average of the weights.
        if of_role.is_none() && has_role && node.is_of_memory() {
            continue;
        }
        // The least of several samples is below 1 for most, the more so the less their windows agree.
        let usual = of_role.unwrap_or(1.0).max(1.0);
        let excess = worker.ratio / usual - 1.0;
        let stands_out = excess >= node.least_excess(lane);
        let is_beyond = |doubt: f64| excess >= doubt;
        if stands_out
            && is_beyond(ABOVE_SPREAD_OF_ALL * spread(&worker.gpu))
            && node.doubt(lane, &worker.gpu).is_some_and(is_beyond)
            && node.is_throughout(lane, worker, node.least_excess(lane))
        {
            let activity = node.activity();
            let key = worker.key();
            let found = Found {
                worker: *worker,
                excess,
                activity,
                seconds: node.looks_back(lane),
            };
            behind.entry(key).or_insert(found);
        }
    }
}

fn evidence(found: &Found<'_>) -> Evidence {
    let gpu = &found.worker.gpu;
    let part = gpu.part();
    let excess = 100.0 * found.excess;
    let active = 100.0 * found.worker.active;
    let named = format!("GPU {} of {}", gpu.index, gpu.node);
    let mut statement = if found.activity == &GPU_SM_ACTIVE {
        format!(
            "{named} needs longer than the node's other GPUs for the same tensor work at the same clock: its SMs are active {active:.1} % of the time, {excess:.0} % more than theirs; slow memory or slow SMs cause this."
        )
    } else if found.activity == &GPU_DRAM_BANDWIDTH {
        format!(
            "The memory of {named} is active for longer than that of the node's other GPUs for the same tensor work: {active:.1} % of the time, {excess:.0} % more than theirs. It is slow, unless its rank has more data than theirs."
        )
    } else {
        format!(
            "{named} needs {excess:.0} % longer than the node's other GPUs at the same clock: its tensor cores are active {active:.1} % of the time. It is slow, unless its rank has more work than theirs."
        )
    };
    let mut signal = found.activity;
    if let Some(more) = more_memory(gpu) {
        signal = &GPU_MEMORY_USED;
        statement += &format!(
            " It holds {:.1} GB more than any of them: another process may share it, or its rank has more data.",
            more / 1e9
        );
    }
    Evidence {
        detector: "gpu-work",
        signal: signal.name,
        class: &GPU_SLOW,
        // What takes so much longer does so much less in a time.
        effect: found.excess / (1.0 + found.excess),
        statement,
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

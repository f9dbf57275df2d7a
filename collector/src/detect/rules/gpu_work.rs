//! GPUs that need longer for the work of their peers, although their clock is well.
//!
//! All GPUs of a synchronous job do the same work in a step, so that the one that is slow computes for longer
//! and waits less: its tensor cores are active for more of the time, at the same clock. Time active times
//! clock is the work that it does, and equal among equals (detection method, section 3.4, exporter only).
//!
//! Where the exporter sums it up, sums are compared ([`counted`]), else samples ([`sampled`]).

mod counted;
mod rules;
mod sampled;

use railscope_model::identity::GpuIndex;
use railscope_model::metric::GPU_TENSOR_ACTIVE;

use self::counted::Counted;
use self::rules::{rules, threshold};
use self::sampled::Sampled;
use crate::classes::{Class, GPU_SLOW};
use crate::detect::cohort::Usual;
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::{Gpus, Listed, by_job, by_node};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Rule;
use crate::stages::Step;

/// Excess over the node's median from which a GPU is slow, and seconds over which sums must show it: far off for a short
/// time, or less for longer (the lanes of the detection method, section 3.3).
const SUMS: [(f64, f64); 2] = [(0.03, 30.0), (0.015, 90.0)];
/// Share of those seconds that pages must tell.
const MIN_SEEN: f64 = 2.0 / 3.0;
/// Excess where there are only samples, and how many of the newest must all show it. The driver tells activity in tenths of
/// a per cent, and clocks in steps of three quarters of one.
const SAMPLED: [(f64, usize); 2] = [(0.08, 2), (0.03, 3)];
/// Time that the samples must reach back, if that takes more of them. An exporter reads each GPU by itself, once a
/// second, and later where it is busy: for seconds after work has changed, a page has some GPUs as they were before.
const MIN_SECONDS: f64 = 4.5;
/// Samples that are looked at to see what the GPUs of a node differ by, at most, and the fewest that tell.
const SAMPLES: (usize, usize) = (8, 4);
/// Seconds by which the sums of two GPUs on a page may end apart, at least: the exporter's worker reads each once a second,
/// and the exporter takes up what it read once a second.
const READ_APART: f64 = 2.0;
/// Length of the pieces of the time that tell how steady work is: long enough for a few steps.
const PIECE_SECONDS: f64 = 5.0;
/// How far beyond what the GPUs of its node differ by, in standard deviations: short windows that begin at different
/// moments of a step differ, whatever the GPUs do.
const ABOVE_SPREAD: f64 = 3.0;
/// Standard deviation of normal values, in median absolute deviations.
const STANDARD: f64 = 1.4826;
/// A GPU that computes less than this of the time runs no step that could be compared.
const MIN_ACTIVE: f64 = 0.05;

#[derive(Default)]
struct GpuWork {
    gpus: Gpus,
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
        self.gpus.refresh(view);
        let mut gpus = self.gpus.listed(view);
        gpus.retain(Listed::is_busy);
        let nodes = by_node(&gpus).flat_map(by_job);
        let nodes: Vec<_> = nodes.filter_map(|peers| Node::of(&peers)).collect();
        for lane in 0..SUMS.len() {
            judge(view, &nodes, lane, out);
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A busy GPU's tensor cores are active for longer than those of its node and job at the same clock, and than those of the same GPU of other nodes of the job.",
            threshold: threshold(),
            clears: "It needs no longer than its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        rules()
    }
}

/// What the GPUs of a node, or those that one job has there, have told of their work.
enum Node<'a> {
    /// By lane; none of one that they have not told enough for.
    Counted([Option<Counted<'a>>; SUMS.len()]),
    Sampled(Sampled<'a>),
}

/// A busy GPU and what it does, as a multiple of what the middle one of its node does.
struct Worker<'a> {
    gpu: Listed<'a>,
    /// Share of the time in which its tensor cores are active.
    active: f64,
    ratio: f64,
}

impl<'a> Worker<'a> {
    /// What it may be held against on other nodes.
    fn role(&self) -> (&'a str, GpuIndex) {
        (self.gpu.product, self.gpu.index)
    }
}

impl<'a> Node<'a> {
    /// `None` of GPUs that tell nothing that could be compared.
    fn of(gpus: &[Listed<'a>]) -> Option<Self> {
        if gpus.iter().any(Counted::is_told_by) {
            let lanes = SUMS.map(|(_, seconds)| Counted::of(gpus, seconds));
            return Some(Self::Counted(lanes));
        }
        Sampled::of(gpus).map(Self::Sampled)
    }

    /// The excess from which a GPU is slow.
    fn least_excess(&self, lane: usize) -> f64 {
        match self {
            Self::Counted(_) => SUMS[lane].0,
            Self::Sampled(_) => SAMPLED[lane].0,
        }
    }

    fn workers(&self, lane: usize) -> Vec<Worker<'a>> {
        match self {
            Self::Counted(lanes) => lanes[lane].as_ref().map_or(vec![], Counted::workers),
            Self::Sampled(node) => node.workers(SAMPLED[lane].1),
        }
    }

    /// The excess that may be nothing but when and how this GPU was read; none if that cannot be told. Only asked where
    /// one stands out.
    fn doubt(&self, lane: usize, gpu: &Listed<'_>) -> Option<f64> {
        let (ratios, misread) = match self {
            Self::Counted(lanes) => {
                let node = lanes[lane].as_ref()?;
                (node.ratios(), node.misread(gpu)?)
            }
            Self::Sampled(node) => (node.ratios()?, 0.0),
        };
        let spread = median(ratios.into_iter().map(|ratio| (ratio - 1.0).abs()))?;
        Some(misread.max(ABOVE_SPREAD * STANDARD * spread))
    }
}

/// GPUs that are off by as much as the lane asks for, if one before has not named them.
fn judge(view: &View<'_>, nodes: &[Node<'_>], lane: usize, out: &mut Vec<Evidence>) {
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
    let named: Vec<_> = out.iter().map(|evidence| evidence.part.clone()).collect();
    let is_named = |worker: &Worker<'_>| named.contains(&worker.gpu.part());
    for (worker, node) in workers {
        // The least of several samples is below 1 for most, the more so the less their windows agree.
        let usual = usual.of(worker.gpu.job, &worker.role());
        let usual = usual.unwrap_or(1.0).max(1.0);
        let excess = worker.ratio / usual - 1.0;
        let stands_out = excess >= node.least_excess(lane);
        let is_beyond = |doubt: f64| excess >= doubt;
        if stands_out && node.doubt(lane, &worker.gpu).is_some_and(is_beyond) && !is_named(&worker)
        {
            out.push(evidence(&worker, excess));
        }
    }
}

fn evidence(worker: &Worker<'_>, excess: f64) -> Evidence {
    let part = worker.gpu.part();
    Evidence {
        detector: "gpu-work",
        signal: GPU_TENSOR_ACTIVE.name,
        class: &GPU_SLOW,
        // What takes so much longer does so much less in a time.
        effect: excess / (1.0 + excess),
        statement: format!(
            "GPU {} of {} needs {:.0} % longer than the others of its node for the same work at the same clock: its tensor cores are active {:.1} % of the time.",
            worker.gpu.index,
            worker.gpu.node,
            100.0 * excess,
            100.0 * worker.active
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

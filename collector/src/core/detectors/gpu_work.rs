//! GPUs that need longer for the work of their peers, although their clock is well.
//!
//! All GPUs of a synchronous job do the same work in a step, so that the one that is slow computes for longer
//! and waits less: its tensor cores are active for more of the time, at the same clock. Time active times
//! clock is the work that it does, and equal among equals (detection method, section 3.4, exporter only).

use railscope_model::identity::GpuIndex;
use railscope_model::metric::GPU_TENSOR_ACTIVE;

use super::gpus::{Gpus, Listed, by_job, by_node};
use super::peers::{self, MIN_PEERS, median};
use crate::core::ablation::Step;
use crate::core::classes::{Class, GPU_SLOW};
use crate::core::cohort::Usual;
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::rules::{Rule, Threshold};

/// Excess over the node's median from which a GPU counts as slow, and how many of the newest samples must all say so:
/// what is far off needs fewer (the fast lane of the detection method, section 3.3). The driver tells activity in tenths
/// of a per cent, and clocks in steps of three quarters of one.
const LANES: [(f64, usize); 2] = [(0.08, 2), (0.03, 3)];
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

/// A busy GPU and what it does, as a multiple of what the others of its node do.
struct Worker<'a> {
    gpu: Listed<'a>,
    active: f64,
    ratio: f64,
}

impl<'a> Worker<'a> {
    /// What it may be held against on other nodes.
    fn role(&self) -> (&'a str, GpuIndex) {
        (self.gpu.product, self.gpu.index)
    }
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
        let nodes: Vec<_> = nodes.map(|peers| told(&peers)).collect();
        for lane in LANES {
            judge(view, &nodes, lane, out);
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A busy GPU's tensor cores are active for longer than those of its node and job at the same clock, and than those of the same GPU of other nodes of the job.",
            threshold: LANES.map(|(excess, points)| {
                format!("{:.0} % above the median of at least {MIN_PEERS} GPUs of the node in each of {points} samples", 100.0 * excess)
            }).join(", or ") + " (activity is told in tenths of a per cent, clocks in steps of 0.75 %)",
            clears: "It needs no longer than its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut thresholds = peers::thresholds();
        for (excess, samples) in LANES {
            thresholds.push(Threshold::new(
                format!("work above the median in each of {samples} samples"),
                excess,
                "ratio",
                "fast lane of the detection method, section 3.3; activity is told in tenths of a per cent, clocks in steps of 0.75 %",
            ));
        }
        thresholds.push(Threshold::new(
            "activity of the median GPU of the node",
            MIN_ACTIVE,
            "ratio",
            "a GPU that computes less runs no step that could be compared (a choice)",
        ));
        vec![Rule::new(&GPU_SLOW, thresholds)]
    }
}

/// GPUs that are off by so much in so many samples, if a lane before has not named them.
fn judge(
    view: &View<'_>,
    nodes: &[Vec<Told<'_>>],
    (min_excess, points): (f64, usize),
    out: &mut Vec<Evidence>,
) {
    let workers: Vec<_> = nodes
        .iter()
        .flat_map(|told| compare(told, points))
        .collect();
    // The same GPU of every node may have more to do by design: the first rank that also writes the log.
    let has_role = !view.left_out.has(Step::RoleCohort);
    let ratios = workers.iter().filter(|_| has_role);
    let ratios = ratios.map(|worker| (worker.gpu.job, worker.role(), worker.ratio));
    let usual = Usual::new(ratios, |ratios| {
        (ratios.len() >= MIN_PEERS).then(|| median(ratios))?
    });
    let named: Vec<_> = out.iter().map(|evidence| evidence.part.clone()).collect();
    let is_named = |worker: &Worker<'_>| named.contains(&worker.gpu.part());
    for worker in workers {
        let usual = usual.of(worker.gpu.job, &worker.role()).unwrap_or(1.0);
        let excess = worker.ratio / usual - 1.0;
        if excess >= min_excess && !is_named(&worker) {
            out.push(evidence(&worker, excess));
        }
    }
}

/// What a GPU has told of its work.
struct Told<'a> {
    gpu: Listed<'a>,
    /// The newest first, as many as a lane looks at.
    active: [Option<f64>; LANES[1].1],
    clock: f64,
}

/// Of the GPUs of a node, those that tell activity and clock.
fn told<'a>(node: &[Listed<'a>]) -> Vec<Told<'a>> {
    let told = |gpu: &Listed<'a>| {
        let mut newest = gpu.tensor_active()?.values().rev();
        Some(Told {
            gpu: *gpu,
            active: std::array::from_fn(|_| newest.next()),
            clock: gpu.clock_hertz()?,
        })
    };
    node.iter().filter_map(told).collect()
}

/// What each GPU of a node does against the middle one of them: the least that it did in any of the newest
/// samples, so that one that was taken while the job stopped or began says nothing.
fn compare<'a>(node: &[Told<'a>], points: usize) -> Vec<Worker<'a>> {
    let mut ratios = vec![Some(f64::INFINITY); node.len()];
    for point in 0..points {
        let active = |told: &Told<'_>| told.active.get(point).copied().flatten();
        let work = |told: &Told<'_>| Some(active(told)? * told.clock);
        let middle = median(node.iter().filter_map(work)).unwrap_or(0.0);
        let busy = median(node.iter().filter_map(active)).unwrap_or(0.0);
        if node.iter().filter_map(active).count() < MIN_PEERS || busy < MIN_ACTIVE {
            return Vec::new();
        }
        for (ratio, told) in ratios.iter_mut().zip(node) {
            *ratio = ratio
                .zip(work(told))
                .map(|(least, work)| least.min(work / middle));
        }
    }
    let workers = node.iter().zip(ratios);
    workers
        .filter_map(|(told, ratio)| {
            Some(Worker {
                gpu: told.gpu,
                active: told.active[0]?,
                ratio: ratio?,
            })
        })
        .collect()
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
        part,
    }
}

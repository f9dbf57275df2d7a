//! GPUs that need longer for the work of their peers, although their clock is well.
//!
//! All GPUs of a synchronous job do the same work in a step, so that the one that is slow computes for longer
//! and waits less: its tensor cores are active for more of the time, at the same clock. Time active times
//! clock is the work that it does, and equal among equals (detection method, section 3.4, exporter only).

use railscope_model::identity::GpuIndex;
use railscope_model::metric::GPU_TENSOR_ACTIVE;

use super::gpus::{Listed, by_job, by_node, listed};
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

struct GpuWork;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(GpuWork)
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
        let mut gpus = listed(view);
        gpus.retain(Listed::is_busy);
        for lane in LANES {
            judge(view, &gpus, lane, out);
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
    gpus: &[Listed<'_>],
    (min_excess, points): (f64, usize),
    out: &mut Vec<Evidence>,
) {
    let nodes = by_node(gpus).flat_map(by_job);
    let workers: Vec<_> = nodes.flat_map(|peers| compare(&peers, points)).collect();
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

/// What each GPU of a node does against the middle one of them: the least that it did in any of the newest
/// samples, so that one that was taken while the job stopped or began says nothing.
fn compare<'a>(node: &[Listed<'a>], points: usize) -> Vec<Worker<'a>> {
    let mut workers: Vec<Worker<'_>> = Vec::new();
    for point in 0..points {
        let work: Vec<_> = node
            .iter()
            .filter_map(|gpu| {
                let active = gpu.history.window(&GPU_TENSOR_ACTIVE, &[gpu.label])?;
                let active = active.values().rev().nth(point)?;
                Some((*gpu, active, active * gpu.clock_hertz()?))
            })
            .collect();
        let middle = median(work.iter().map(|(.., work)| *work)).unwrap_or(0.0);
        let busy = median(work.iter().map(|(_, active, _)| *active)).unwrap_or(0.0);
        if work.len() < MIN_PEERS || busy < MIN_ACTIVE {
            return Vec::new();
        }
        let of_point = work.into_iter().map(|(gpu, active, work)| Worker {
            gpu,
            active,
            ratio: work / middle,
        });
        if point == 0 {
            workers = of_point.collect();
            continue;
        }
        let of_point: Vec<_> = of_point.collect();
        workers.retain_mut(|worker| {
            let same = of_point
                .iter()
                .find(|other| other.gpu.index == worker.gpu.index);
            if let Some(other) = same {
                worker.ratio = worker.ratio.min(other.ratio);
            }
            same.is_some()
        });
    }
    workers
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

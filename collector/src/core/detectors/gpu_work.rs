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
/// Time that the samples must reach back, if that takes more of them. An exporter reads each GPU by itself, once a
/// second, and later where it is busy: for seconds after work has changed, a page has some GPUs as they were before.
const MIN_SECONDS: f64 = 4.5;
/// Samples that are looked at, at most: those of [`MIN_SECONDS`] at one a second, and some more.
const MOST_SAMPLES: usize = 8;
/// How far beyond what the GPUs of its node differ by in these samples, in standard deviations: short windows that
/// begin at different moments of a step differ, whatever the GPUs do.
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

/// A busy GPU and what it does, as a multiple of what the others of its node do.
struct Worker<'a> {
    gpu: Listed<'a>,
    active: f64,
    ratio: f64,
    /// By how much the ratios of all GPUs of the node differ from 1, as a standard deviation.
    spread: f64,
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
        let nodes = nodes.map(|peers| peers.iter().filter_map(Told::by).collect());
        let nodes: Vec<Vec<_>> = nodes.collect();
        for lane in LANES {
            judge(view, &nodes, lane, out);
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A busy GPU's tensor cores are active for longer than those of its node and job at the same clock, and than those of the same GPU of other nodes of the job.",
            threshold: LANES.map(|(excess, points)| {
                format!("{:.0} % above the median of at least {MIN_PEERS} GPUs of the node in each of {points} samples", 100.0 * excess)
            }).join(", or ") + &format!(", in all samples of {MIN_SECONDS} s, and {ABOVE_SPREAD:.0} standard deviations of what the node's GPUs differ by (activity is told in tenths of a per cent, clocks in steps of 0.75 %)"),
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
        thresholds.extend([
            Threshold::new(
                "time that the samples must reach back",
                MIN_SECONDS,
                "s",
                "exporters read GPUs one by one, so that for seconds after a change some are told as they were (seen on a busy machine)",
            ),
            Threshold::new(
                "samples that are looked at, at most",
                MOST_SAMPLES as f64,
                "samples",
                "those of that time at one a second, and some more",
            ),
            Threshold::new(
                "beyond what the GPUs of the node differ by",
                ABOVE_SPREAD,
                "standard deviations",
                "short windows begin at different moments of a step (a choice)",
            ),
            Threshold::new(
                "standard deviation",
                STANDARD,
                "median absolute deviations",
                "that of normal values",
            ),
        ]);
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
        // The least of several samples is below 1 for most, the more so the less their windows agree.
        let usual = usual.of(worker.gpu.job, &worker.role());
        let usual = usual.unwrap_or(1.0).max(1.0);
        let excess = worker.ratio / usual - 1.0;
        let least = min_excess.max(ABOVE_SPREAD * worker.spread);
        if excess >= least && !is_named(&worker) {
            out.push(evidence(&worker, excess));
        }
    }
}

/// What a GPU has told of its work.
struct Told<'a> {
    gpu: Listed<'a>,
    /// The newest first.
    active: [Option<f64>; MOST_SAMPLES],
    /// How many of them reach back [`MIN_SECONDS`]; none if they do not.
    needed: Option<usize>,
    clock: f64,
}

impl<'a> Told<'a> {
    /// `None` of a GPU that does not tell its activity or its clock.
    fn by(gpu: &Listed<'a>) -> Option<Self> {
        let told = gpu.tensor_active()?.told();
        let (mut active, mut needed) = ([None; MOST_SAMPLES], None);
        let mut newest = None;
        for (number, ((at, value), place)) in (1..).zip(told.zip(&mut active)) {
            let newest = *newest.get_or_insert(at);
            if newest.seconds_since(at) >= MIN_SECONDS {
                needed.get_or_insert(number);
            }
            *place = Some(value);
        }
        Some(Self {
            gpu: *gpu,
            active,
            needed,
            clock: gpu.clock_hertz()?,
        })
    }

    fn work(&self, sample: usize) -> Option<f64> {
        Some(self.active[sample]? * self.clock)
    }
}

/// What each GPU of a node does against the middle one of them: the least that it did in any of the newest
/// samples, so that one that was taken while the job stopped or began says nothing.
fn compare<'a>(node: &[Told<'a>], samples: usize) -> Vec<Worker<'a>> {
    let needed = node.iter().filter_map(|told| told.needed).max();
    let Some(needed) = needed else {
        return Vec::new();
    };
    let mut least = vec![Some(f64::INFINITY); node.len()];
    let mut off = Vec::new();
    for sample in 0..samples.max(needed) {
        let active = || node.iter().filter_map(|told| told.active[sample]);
        let busy = median(active()).unwrap_or(0.0);
        if active().count() < MIN_PEERS || busy < MIN_ACTIVE {
            return Vec::new();
        }
        let work = node.iter().filter_map(|told| told.work(sample));
        let middle = median(work).unwrap_or(0.0);
        for (least, told) in least.iter_mut().zip(node) {
            let ratio = told.work(sample).map(|work| work / middle);
            off.extend(ratio.map(|ratio| (ratio - 1.0).abs()));
            *least = least.zip(ratio).map(|(least, ratio)| least.min(ratio));
        }
    }
    let spread = STANDARD * median(off).unwrap_or(0.0);
    let workers = node.iter().zip(least);
    workers
        .filter_map(|(told, ratio)| {
            Some(Worker {
                gpu: told.gpu,
                active: told.active[0]?,
                ratio: ratio?,
                spread,
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

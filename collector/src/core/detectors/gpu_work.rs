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
/// Samples that are looked at to see what the GPUs of a node differ by, at most, and the fewest that tell.
const SAMPLES: (usize, usize) = (8, 4);
/// Time over which cycles of tensor cores are compared in place of samples, where the driver counts them, and the least of
/// it that must have been seen. Nothing falls between two counts, so that it matters little when in a step they are read.
const COUNTED_SECONDS: (f64, f64) = (30.0, 20.0);
/// How far beyond what the GPUs of its node differ by in all samples, in standard deviations: short windows that
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
struct Worker<'a, 'b> {
    gpu: Listed<'a>,
    active: f64,
    ratio: f64,
    node: &'b Node<'a>,
}

impl<'a> Worker<'a, '_> {
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
        let nodes: Vec<_> = nodes.map(|peers| Node::of(&peers)).collect();
        for lane in LANES {
            judge(view, &nodes, lane, out);
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A busy GPU's tensor cores are active for longer than those of its node and job at the same clock, and than those of the same GPU of other nodes of the job.",
            threshold: LANES.map(|(excess, points)| {
                format!("{:.0} % above the median of at least {MIN_PEERS} GPUs of the node in each of {points} samples", 100.0 * excess)
            }).join(", or ") + &format!(", in all samples of {MIN_SECONDS} s, or as much by cycles over {:.0} s where the driver counts them, and {ABOVE_SPREAD:.0} standard deviations of what the node's GPUs differ by (activity is told in tenths of a per cent, clocks in steps of 0.75 %)", COUNTED_SECONDS.0),
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
                "samples that tell what GPUs of a node differ by, at most",
                SAMPLES.0 as f64,
                "samples",
                "of eight GPUs 64 values (a choice)",
            ),
            Threshold::new(
                "fewest of them",
                SAMPLES.1 as f64,
                "samples",
                "of fewer values a median is an accident (a choice)",
            ),
            Threshold::new(
                "time over which cycles of tensor cores are compared, where they are counted",
                COUNTED_SECONDS.0,
                "s",
                "ten times what GPUs are read apart, so that a change of a tenth between two reads shows as 1 % (a choice)",
            ),
            Threshold::new(
                "least of it that must have been seen",
                COUNTED_SECONDS.1,
                "s",
                "for the same reason",
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
    nodes: &[Node<'_>],
    (min_excess, samples): (f64, usize),
    out: &mut Vec<Evidence>,
) {
    let workers = nodes.iter().filter_map(|node| node.workers(samples));
    let workers: Vec<_> = workers.flatten().collect();
    // The same GPU of every node may have more to do by design: the first rank that also writes the log.
    let has_role = !view.left_out.has(Step::RoleCohort);
    let ratios = workers.iter().filter(|_| has_role);
    let ratios = ratios.map(|worker| (worker.gpu.job, worker.role(), worker.ratio));
    let usual = Usual::new(ratios, |ratios| {
        (ratios.len() >= MIN_PEERS).then(|| median(ratios))?
    });
    let named: Vec<_> = out.iter().map(|evidence| evidence.part.clone()).collect();
    let is_named = |worker: &Worker<'_, '_>| named.contains(&worker.gpu.part());
    for worker in workers {
        // The least of several samples is below 1 for most, the more so the less their windows agree.
        let usual = usual.of(worker.gpu.job, &worker.role());
        let usual = usual.unwrap_or(1.0).max(1.0);
        let excess = worker.ratio / usual - 1.0;
        let is_beyond = |spread| excess >= ABOVE_SPREAD * spread;
        let stands_out = excess >= min_excess && worker.node.spread().is_some_and(is_beyond);
        if stands_out && !is_named(&worker) {
            out.push(evidence(&worker, excess));
        }
    }
}

/// What a GPU has told of its work.
struct Told<'a> {
    gpu: Listed<'a>,
    /// The newest first.
    active: [Option<f64>; SAMPLES.0],
    /// How many of them reach back [`MIN_SECONDS`]; none if they do not.
    needed: Option<usize>,
    /// Cycles of its tensor cores a second, where they are counted.
    cycles: Option<f64>,
    clock: f64,
}

impl<'a> Told<'a> {
    /// `None` of a GPU that does not tell its activity or its clock.
    fn by(gpu: &Listed<'a>) -> Option<Self> {
        let told = gpu.tensor_active()?.told();
        let (mut active, mut needed) = ([None; SAMPLES.0], None);
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
            cycles: cycles(gpu),
            clock: gpu.clock_hertz()?,
        })
    }

    /// What it did in a sample; no number if it did not tell.
    fn work(&self, sample: usize) -> f64 {
        self.active[sample].map_or(f64::NAN, |active| active * self.clock)
    }
}

/// Cycles a second in which the tensor cores of a GPU were active, over [`COUNTED_SECONDS`].
fn cycles(gpu: &Listed<'_>) -> Option<f64> {
    let (seconds, least) = COUNTED_SECONDS;
    let rise = gpu.tensor_cycles()?.increase(seconds)?;
    (rise.seconds >= least).then(|| rise.rate())
}

/// What the GPUs of a node, or those that one job has there, do against the middle one of them.
struct Node<'a> {
    told: Vec<Told<'a>>,
    /// The newest samples that reach back [`MIN_SECONDS`] on each of them.
    needed: Option<usize>,
    /// By cycles, where all count them.
    by_cycles: Option<Vec<f64>>,
    /// Else by sample, the newest first, and GPU; no number of one that did not tell. None where they did too little.
    by_sample: Vec<Option<Vec<f64>>>,
}

impl<'a> Node<'a> {
    fn of(gpus: &[Listed<'a>]) -> Self {
        let told: Vec<_> = gpus.iter().filter_map(Told::by).collect();
        let by_cycles = by_cycles(&told);
        let needed = told.iter().filter_map(|told| told.needed).max();
        // Without enough of them nothing is judged.
        let samples = match (&by_cycles, needed) {
            (None, Some(needed)) => needed.max(LANES[1].1),
            _ => 0,
        };
        let by_sample = (0..samples).map(|sample| by_sample(&told, sample));
        Self {
            by_sample: by_sample.collect(),
            needed,
            by_cycles,
            told,
        }
    }

    /// What each GPU does: by cycles, else the least that it did in any of the newest samples, so that one that was
    /// taken while the job stopped or began says nothing.
    fn workers(&self, samples: usize) -> Option<impl Iterator<Item = Worker<'a, '_>>> {
        let ratios = match &self.by_cycles {
            Some(ratios) => ratios.clone(),
            None => self.least(samples)?,
        };
        let workers = self.told.iter().zip(ratios);
        Some(workers.filter_map(|(told, ratio)| {
            Some(Worker {
                gpu: told.gpu,
                active: told.active[0]?,
                ratio: (!ratio.is_nan()).then_some(ratio)?,
                node: self,
            })
        }))
    }

    fn least(&self, samples: usize) -> Option<Vec<f64>> {
        let mut least = vec![f64::INFINITY; self.told.len()];
        for ratios in self.by_sample.get(..samples.max(self.needed?))? {
            for (least, ratio) in least.iter_mut().zip(ratios.as_ref()?) {
                // Of who has not told one of them nothing is known.
                let known = !least.is_nan() && !ratio.is_nan();
                *least = if known { least.min(*ratio) } else { f64::NAN };
            }
        }
        Some(least)
    }

    /// By how much its GPUs differ from the middle one, as a standard deviation; none of too few samples. Only asked
    /// where one stands out.
    fn spread(&self) -> Option<f64> {
        let mut ratios = self.by_cycles.clone().unwrap_or_default();
        if self.by_cycles.is_none() {
            let samples = (0..SAMPLES.0).filter_map(|sample| by_sample(&self.told, sample));
            let samples: Vec<_> = samples.collect();
            (samples.len() >= SAMPLES.1).then_some(())?;
            ratios.extend(samples.into_iter().flatten());
        }
        let told = ratios.into_iter().filter(|ratio| !ratio.is_nan());
        Some(STANDARD * median(told.map(|ratio| (ratio - 1.0).abs()))?)
    }
}

/// Cycles of each GPU against those of the middle one; none unless all of them count cycles.
fn by_cycles(node: &[Told<'_>]) -> Option<Vec<f64>> {
    let cycles: Vec<f64> = node.iter().map(|told| told.cycles).collect::<Option<_>>()?;
    let middle = median(cycles.iter().copied())?;
    let busy = median(node.iter().filter_map(|told| told.active[0]))?;
    if node.len() < MIN_PEERS || middle <= 0.0 || busy < MIN_ACTIVE {
        return None;
    }
    Some(cycles.into_iter().map(|cycles| cycles / middle).collect())
}

/// Work of each GPU against that of the middle one, in one sample; none if they did too little.
fn by_sample(node: &[Told<'_>], sample: usize) -> Option<Vec<f64>> {
    let active = || node.iter().filter_map(|told| told.active[sample]);
    if active().count() < MIN_PEERS || median(active())? < MIN_ACTIVE {
        return None;
    }
    let mut ratios: Vec<f64> = node.iter().map(|told| told.work(sample)).collect();
    let middle = median(ratios.iter().copied().filter(|work| !work.is_nan()))?;
    ratios.iter_mut().for_each(|ratio| *ratio /= middle);
    Some(ratios)
}

fn evidence(worker: &Worker<'_, '_>, excess: f64) -> Evidence {
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

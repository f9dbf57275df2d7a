//! Work by samples of activity, where nobody sums it up: what exporters of others tell.

use railscope_model::identity::NodeName;
use railscope_model::metric::Metric;

use super::{MIN_ACTIVE, MIN_SECONDS, SAMPLED, SAMPLES, Worker};
use crate::detect::gpus::Listed;
use crate::detect::peers::{MIN_PEERS, median};

/// What a GPU has told of its work.
struct Told<'a> {
    gpu: Listed<'a>,
    /// The newest first.
    active: [Option<f64>; SAMPLES.0],
    /// How many of them reach back [`MIN_SECONDS`]; none if they do not.
    needed: Option<usize>,
    clock: f64,
}

impl<'a> Told<'a> {
    /// `None` of a GPU that does not report this activity or its clock.
    fn by(gpu: &Listed<'a>, activity: &'static Metric) -> Option<Self> {
        let told = gpu.window(activity)?.unbroken();
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
            clock: gpu.clock_hertz()?,
        })
    }

    /// What it did in a sample; no number if it did not tell.
    fn work(&self, sample: usize) -> f64 {
        self.active[sample].map_or(f64::NAN, |active| active * self.clock)
    }
}

/// Samples of the GPUs of a node against the middle one of them.
pub(super) struct Sampled<'a> {
    told: Vec<Told<'a>>,
    /// The newest samples that reach back [`MIN_SECONDS`] on each of them.
    needed: usize,
    /// By sample, the newest first, and GPU; no number of one that did not tell. None where they did too little.
    ratios: Vec<Option<Vec<f64>>>,
}

impl<'a> Sampled<'a> {
    /// By samples of this activity. `None` before they reach back far enough.
    pub(super) fn of(gpus: &[Listed<'a>], activity: &'static Metric) -> Option<Self> {
        let told = gpus.iter().filter_map(|gpu| Told::by(gpu, activity));
        let told: Vec<_> = told.collect();
        let needed = told.iter().filter_map(|told| told.needed).max()?;
        let samples = 0..needed.max(SAMPLED[1].1);
        Some(Self {
            ratios: samples.map(|sample| ratios(&told, sample)).collect(),
            needed,
            told,
        })
    }

    pub(super) fn node(&self) -> Option<&'a NodeName> {
        self.told.first().map(|told| told.gpu.node)
    }

    /// The least that each GPU did in any of the newest samples, so that one that was taken while the job stopped or
    /// began says nothing.
    pub(super) fn workers(&self, samples: usize) -> Vec<Worker<'a>> {
        let least = self.least(samples).unwrap_or_default();
        let workers = self.told.iter().zip(least);
        let workers = workers.filter_map(|(told, ratio)| {
            Some(Worker {
                gpu: told.gpu,
                active: told.active[0]?,
                ratio: (!ratio.is_nan()).then_some(ratio)?,
            })
        });
        workers.collect()
    }

    fn least(&self, samples: usize) -> Option<Vec<f64>> {
        let mut least = vec![f64::INFINITY; self.told.len()];
        for ratios in self.ratios.get(..samples.max(self.needed))? {
            for (least, ratio) in least.iter_mut().zip(ratios.as_ref()?) {
                // Of who has not told one of them nothing is known.
                let known = !least.is_nan() && !ratio.is_nan();
                *least = if known { least.min(*ratio) } else { f64::NAN };
            }
        }
        Some(least)
    }

    /// Of all GPUs in all samples that are looked at; none of too few.
    pub(super) fn ratios(&self) -> Option<Vec<f64>> {
        let samples = (0..SAMPLES.0).filter_map(|sample| ratios(&self.told, sample));
        let samples: Vec<_> = samples.collect();
        let told = samples.iter().flatten().copied();
        (samples.len() >= SAMPLES.1).then(|| told.filter(|ratio| !ratio.is_nan()).collect())
    }
}

/// Work of each GPU against that of the middle one, in one sample; none if they did too little.
fn ratios(node: &[Told<'_>], sample: usize) -> Option<Vec<f64>> {
    let active = || node.iter().filter_map(|told| told.active[sample]);
    if active().count() < MIN_PEERS || median(active())? < MIN_ACTIVE {
        return None;
    }
    let mut ratios: Vec<f64> = node.iter().map(|told| told.work(sample)).collect();
    let middle = median(ratios.iter().copied().filter(|work| !work.is_nan()))?;
    ratios.iter_mut().for_each(|ratio| *ratio /= middle);
    Some(ratios)
}

//! Work by samples of activity, where no exporter sums it up: what other projects' exporters
//! report.

use railscope_model::identity::NodeName;
use railscope_model::metric::{GPU_DRAM_BANDWIDTH, Metric};

use super::{MEANS, MIN_ACTIVE, MIN_SECONDS, SAMPLED, SAMPLES, Worker};
use crate::detect::gpus::Listed;
use crate::detect::peers::{MIN_PEERS, median};
use crate::store::Window;

/// What a GPU has reported about its work.
struct Told<'a> {
    gpu: Listed<'a>,
    /// The newest first.
    active: [Option<f64>; SAMPLES.0],
    /// How many of them reach back [`MIN_SECONDS`]; none if they do not.
    needed: Option<usize>,
    clock: f64,
}

/// Whether what is active does more at a higher clock of the SMs. Memory has its own clock.
fn is_clocked(activity: &Metric) -> bool {
    activity != &GPU_DRAM_BANDWIDTH
}

impl<'a> Told<'a> {
    /// `None` of a GPU that does not report this activity, or the clock of what is active.
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
            clock: if is_clocked(activity) {
                gpu.clock_hertz()?
            } else {
                1.0
            },
        })
    }

    /// Mean activity and clock of the newest part of [`MEANS`]' time, a share of it; none of too few samples.
    fn means(&self, activity: &'static Metric, share: f64) -> Option<(f64, f64)> {
        let (seconds, least) = (share * MEANS.1, share * MEANS.2 as f64);
        let of = |window: Window<'_>| {
            let mut newest = None;
            let told = window.unbroken();
            let lately =
                told.take_while(|(at, _)| newest.get_or_insert(*at).seconds_since(*at) <= seconds);
            mean(lately.map(|(_, value)| value))
        };
        let (active, samples) = of(self.gpu.window(activity)?)?;
        let (clock, _) = if is_clocked(activity) {
            of(self.gpu.clock()?)?
        } else {
            (1.0, 0.0)
        };
        (samples >= least).then_some((active, clock))
    }

    /// What it did in a sample; no number if it did not report.
    fn work(&self, sample: usize) -> f64 {
        self.active[sample].map_or(f64::NAN, |active| active * self.clock)
    }
}

/// Samples of the GPUs of a node against the middle one of them.
pub(super) struct Sampled<'a> {
    activity: &'static Metric,
    told: Vec<Told<'a>>,
    /// The newest samples that reach back [`MIN_SECONDS`] on each of them.
    needed: usize,
    /// By sample, the newest first, and GPU; no number of one that did not report. None where they did too
    /// little.
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
            activity,
            told,
        })
    }

    pub(super) fn activity(&self) -> &'static Metric {
        self.activity
    }

    pub(super) fn node(&self) -> Option<&'a NodeName> {
        self.told.first().map(|told| told.gpu.node)
    }

    /// The least that each GPU did in any of the newest samples, so that a sample taken while the job stopped or
    /// began reports nothing.
    pub(super) fn workers(&self, samples: usize) -> Vec<Worker<'a>> {
        let least = self.least(samples).unwrap_or_default();
        let workers = self.told.iter().zip(least).enumerate();
        let workers = workers.filter_map(|(place, (told, ratio))| {
            Some(Worker {
                gpu: told.gpu,
                active: told.active[0]?,
                ratio: (!ratio.is_nan()).then_some(ratio)?,
                usual: self.mean(place)?,
            })
        });
        workers.collect()
    }

    /// What a GPU did on average over the samples that report it.
    fn mean(&self, place: usize) -> Option<f64> {
        let ratios = self.ratios.iter().flatten().map(|ratios| ratios[place]);
        let (mean, _) = mean(ratios.filter(|ratio| !ratio.is_nan()))?;
        Some(mean)
    }

    /// What each GPU did on average over the newest part of [`MEANS`]' time, a share of it. Without GPUs that report too little
    /// of it; empty where too few are left, or compute too little.
    pub(super) fn by_mean(&self, share: f64) -> Vec<Worker<'a>> {
        let means = self.told.iter().filter_map(|told| {
            let (active, clock) = told.means(self.activity, share)?;
            Some((told.gpu, active, active * clock))
        });
        let means: Vec<_> = means.collect();
        let computes = median(means.iter().map(|(_, active, _)| *active));
        let middle = median(means.iter().map(|(.., work)| *work));
        let (Some(computes), Some(middle)) = (computes, middle) else {
            return Vec::new();
        };
        if means.len() < MIN_PEERS || computes < MIN_ACTIVE {
            return Vec::new();
        }
        let workers = means.into_iter().map(|(gpu, active, work)| Worker {
            gpu,
            active,
            ratio: work / middle,
            usual: work / middle,
        });
        workers.collect()
    }

    fn least(&self, samples: usize) -> Option<Vec<f64>> {
        let mut least = vec![f64::INFINITY; self.told.len()];
        for ratios in self.ratios.get(..samples.max(self.needed))? {
            for (least, ratio) in least.iter_mut().zip(ratios.as_ref()?) {
                // A GPU that has not reported one of them is unknown.
                let known = !least.is_nan() && !ratio.is_nan();
                *least = if known { least.min(*ratio) } else { f64::NAN };
            }
        }
        Some(least)
    }

    /// Of all GPUs in all samples evaluated; none of too few.
    pub(super) fn ratios(&self) -> Option<Vec<f64>> {
        let samples = (0..SAMPLES.0).filter_map(|sample| ratios(&self.told, sample));
        let samples: Vec<_> = samples.collect();
        let told = samples.iter().flatten().copied();
        (samples.len() >= SAMPLES.1).then(|| told.filter(|ratio| !ratio.is_nan()).collect())
    }
}

/// Mean of values, and their number; none of an empty list.
fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| (sum / count, count))
}

/// Work of each GPU relative to the median GPU in one sample; none if they did too little.
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

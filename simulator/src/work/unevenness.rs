//! How the steps of a job differ from each other: noise by step and by node, whatever the ticks of the simulation are.

use crate::noise::Noise;
use crate::work::workload::{GarbageCollection, Workload};

/// Standard deviation of what all ranks of a step have in common, as a share of its compute. The middle half of
/// 2,400 logged steps is as wide as 1.4 thousandths (`docs/anchors.md`).
const STEP_NOISE: f64 = 1.2e-3;
/// One step in so many is a long one, by 2 to 4 %: of the logged steps 9 in 1,000 are.
const LONG_STEP_CHANCE: f64 = 0.01;
const LONG_STEP: (f64, f64) = (0.02, 0.04);
/// Spread of the lengths of pauses: standard deviation of their logarithm (an engineering choice).
const PAUSE_SPREAD: f64 = 0.5;
/// Steps over which the usual length is a mean.
const SAMPLED_STEPS: u64 = 32;

/// The noise of one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unevenness {
    noise: Noise,
    imbalance: f64,
    pauses: Option<GarbageCollection>,
}

impl Unevenness {
    /// Of a job with this stream of noise.
    pub(crate) const fn new(noise: Noise, workload: &Workload) -> Self {
        Self {
            noise,
            imbalance: workload.imbalance,
            pauses: workload.garbage_collection,
        }
    }

    /// Work of all ranks in a step, as a share of the usual: the data, the room's temperature, and now and then
    /// something that delays all ranks. A step is a little like those around it.
    pub(crate) fn common(self, step: u64) -> f64 {
        let (own, slow, long) = (
            self.noise.part(0).normal(step),
            self.noise.part(1).normal(step / 4),
            self.noise.part(2),
        );
        // Weights whose squares add up to 1.
        let usual = 1.0 + STEP_NOISE * (0.9 * own + 0.19_f64.sqrt() * slow);
        if long.uniform(step) < LONG_STEP_CHANCE {
            let (least, most) = LONG_STEP;
            usual + least + (most - least) * long.part(0).uniform(step)
        } else {
            usual
        }
    }

    /// Work of the node at a place of the job in a step, as a share of what it has on average.
    pub(crate) fn of(self, step: u64, place: usize) -> f64 {
        let draw = self.noise.part(3).part(step).normal(place as u64);
        (1.0 + self.imbalance * draw).max(0.05)
    }

    /// Time for which the programs of the node at a place of the job collect garbage in a step.
    pub(crate) fn pause_seconds(self, step: u64, place: usize) -> f64 {
        let Some(pauses) = self.pauses else {
            return 0.0;
        };
        let of_step = self.noise.part(4).part(step);
        let own = of_step.part(place as u64);
        let chance = if pauses.together { of_step } else { own };
        if chance.uniform(0) * pauses.every_steps < 1.0 {
            pauses.seconds * (PAUSE_SPREAD * own.normal(1)).exp()
        } else {
            0.0
        }
    }

    /// Whether nodes differ in the work that they have.
    pub(crate) fn is_of_nodes(self) -> bool {
        self.imbalance > 0.0
    }

    fn varies(self) -> bool {
        self.is_of_nodes() || self.pauses.is_some()
    }

    /// Time until the slowest rank has computed a step, given what each node needs on average.
    pub(crate) fn compute_seconds(
        self,
        step: u64,
        workload: &Workload,
        node_seconds: &[f64],
    ) -> f64 {
        self.common(step) * self.slowest_seconds(step, workload, node_seconds)
    }

    fn slowest_seconds(self, step: u64, workload: &Workload, node_seconds: &[f64]) -> f64 {
        if !self.varies() {
            return workload.compute_seconds(node_seconds);
        }
        let own = (0..).zip(node_seconds);
        let own: Vec<f64> = own
            .map(|(place, seconds)| {
                seconds * self.of(step, place) + self.pause_seconds(step, place)
            })
            .collect();
        workload.compute_seconds(&own)
    }

    /// The same on average over many steps. The draws are the same whatever the nodes need, so that what a fault
    /// costs does not depend on them.
    pub(crate) fn usual_compute_seconds(self, workload: &Workload, node_seconds: &[f64]) -> f64 {
        if !self.varies() {
            return workload.compute_seconds(node_seconds);
        }
        // Of steps that no job comes to.
        let steps = (0..SAMPLED_STEPS).map(|step| u64::MAX - step);
        let sum: f64 = steps
            .map(|step| self.slowest_seconds(step, workload, node_seconds))
            .sum();
        sum / SAMPLED_STEPS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{autocorrelation, quantile, variation};

    fn uneven(imbalance: f64) -> Unevenness {
        let workload = Workload {
            imbalance,
            ..Workload::default()
        };
        Unevenness::new(Noise::new(1), &workload)
    }

    #[test]
    fn steps_vary_as_logged_ones_long_on_one_side_and_hardly_like_those_before() {
        let steps: Vec<f64> = (0..20_000).map(|step| uneven(0.0).common(step)).collect();
        let beyond = |share: f64| quantile(&steps, share).expect("some") - 1.0;
        // The log: CoV 0.37 %; -0.37 %, +0.21 %, +1.52 % and +3.57 % at 0.1, 90, 99 and 99.9 %.
        assert!((0.0025..0.0045).contains(&variation(&steps).expect("some")));
        assert!((-0.005..-0.003).contains(&beyond(0.001)));
        assert!((0.001..0.003).contains(&beyond(0.9)));
        assert!((0.03..0.045).contains(&beyond(0.999)));
        let like = autocorrelation(&steps, 1).expect("some");
        assert!((0.0..0.2).contains(&like), "{like}");
    }

    #[test]
    fn a_step_is_as_long_as_its_slowest_node_and_the_usual_one_as_long_as_the_mean() {
        let (uneven, workload) = (uneven(0.1), Workload::default());
        let nodes = [1.0; 24];
        let steps = (0..4000).map(|step| uneven.compute_seconds(step, &workload, &nodes));
        let mean = steps.sum::<f64>() / 4000.0;
        // The largest of 24 normal numbers is 1.95 standard deviations above the mean.
        assert!((mean - 1.195).abs() < 0.01, "{mean}");
        let usual = uneven.usual_compute_seconds(&workload, &nodes);
        assert!((usual - mean).abs() < 0.03, "{usual} {mean}");
    }

    #[test]
    fn a_node_that_is_a_little_slower_hides_among_its_peers() {
        let (uneven, workload) = (uneven(0.01), Workload::default());
        let usual = |slow: f64| {
            let mut nodes = [1.0; 128];
            nodes[7] = slow;
            uneven.usual_compute_seconds(&workload, &nodes)
        };
        let cost = |slow: f64| usual(slow) / usual(1.0) - 1.0;
        assert!(cost(1.01) < 0.004, "{}", cost(1.01));
        assert!((0.06..0.09).contains(&cost(1.1)), "{}", cost(1.1));
    }
}

//! How long the steps of one training job took: what its exporter counts of them.

use std::collections::VecDeque;

/// Steps of which quantiles are taken.
pub const REMEMBERED_STEPS: usize = 1_000;
/// Minimum number of steps for a median by which a step can be called long.
const MIN_STEPS: usize = 30;
/// A step is long from this multiple of the median on (a choice: well above the 1 to 3 % by which steps of a quiet job
/// differ in public traces).
pub const LONG_STEP_RATIO: f64 = 1.1;
/// Quantiles that are exported, with their label.
pub const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.99, "0.99"), (0.999, "0.999")];

/// Times of the last steps of a job, and what was counted since the beginning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepTimes {
    recent: VecDeque<f64>,
    steps: u64,
    excess_seconds: f64,
}

impl StepTimes {
    /// Adds a step of so many seconds. A step longer than [`LONG_STEP_RATIO`] times the median of those before
    /// adds what it took beyond the median to the excess, at most the median itself: a checkpoint or an evaluation counts
    /// as one lost step.
    pub fn push(&mut self, seconds: f64) {
        if self.recent.len() >= MIN_STEPS
            && let Some(median) = self.quantile(0.5)
            && seconds > LONG_STEP_RATIO * median
        {
            self.excess_seconds += (seconds - median).min(median);
        }
        self.remember(seconds);
        self.steps += 1;
    }

    /// Adds a step from before the counting began: it is used for the quantiles only.
    pub fn remember(&mut self, seconds: f64) {
        if self.recent.len() == REMEMBERED_STEPS {
            self.recent.pop_front();
        }
        self.recent.push_back(seconds);
    }

    /// Steps that were counted.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Seconds by which long steps exceeded the median.
    pub const fn excess_seconds(&self) -> f64 {
        self.excess_seconds
    }

    /// The quantile `q` of the last [`REMEMBERED_STEPS`] steps, seconds: the smallest time that at least this share of them
    /// did not exceed (nearest rank). None without a step.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.recent.len().checked_sub(1)?;
        let rank = (q * self.recent.len() as f64).ceil() as usize;
        let mut times: Vec<f64> = self.recent.iter().copied().collect();
        let place = rank.saturating_sub(1).min(last);
        Some(*times.select_nth_unstable_by(place, f64::total_cmp).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_last_thousand_steps() {
        let mut times = StepTimes::default();
        assert_eq!(times.quantile(0.5), None);
        times.push(5.0);
        assert_eq!(
            (times.quantile(0.5), times.quantile(0.999)),
            (Some(5.0), Some(5.0))
        );
        for step in 1..=REMEMBERED_STEPS {
            times.push(step as f64 / 1000.0);
        }
        let told = QUANTILES.map(|(q, _)| times.quantile(q).expect("steps"));
        assert_eq!(told, [0.5, 0.99, 0.999]);
        assert_eq!(times.steps(), 1001);
    }

    #[test]
    fn only_long_steps_add_excess_and_a_pause_adds_one_median() {
        let mut times = StepTimes::default();
        // Too few steps to know what is usual.
        times.push(9.0);
        for _ in 0..MIN_STEPS {
            times.push(2.0);
        }
        assert_eq!(times.excess_seconds(), 0.0);
        times.push(2.1);
        assert_eq!(times.excess_seconds(), 0.0);
        times.push(2.5);
        assert_eq!(times.excess_seconds(), 0.5);
        times.push(60.0);
        assert_eq!(times.excess_seconds(), 2.5);
        // Steps before the counting began are not counted as excess.
        times.remember(60.0);
        assert_eq!((times.excess_seconds(), times.steps()), (2.5, 34));
    }
}

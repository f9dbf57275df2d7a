//! Counts of probes: how many, how long they took, the longest of the last minute and quantiles of the last five.

use std::collections::VecDeque;

use hdrhistogram::Histogram as Sketch;

use crate::sources::clock::SECOND;

/// Upper bounds of the times that are distinguished, nanoseconds.
pub use railscope_model::metric::LATENCY_BOUNDS_NANOS as BOUNDS_NANOS;
/// How long the longest time is kept: a minute, so that no usual scrape misses it.
const KEPT_SECONDS: u64 = 60;

/// How many took how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Times up to each of [`BOUNDS_NANOS`] and above the one before; the last is beyond all.
    pub counts: [u64; BOUNDS_NANOS.len() + 1],
    /// All of them added up, nanoseconds.
    pub sum_nanos: u64,
}

impl Times {
    /// Notes one.
    pub fn note(&mut self, nanos: u64) {
        let place = BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        self.counts[place] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// Notes all of these.
    pub fn add(&mut self, others: &Self) {
        for (count, other) in self.counts.iter_mut().zip(others.counts) {
            *count += other;
        }
        self.sum_nanos = self.sum_nanos.saturating_add(others.sum_nanos);
    }
}

/// The longest time of each of the last seconds, nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent(VecDeque<(u64, u64)>);

impl Recent {
    /// Notes one that ended now.
    pub(super) fn note(&mut self, now_nanos: u64, nanos: u64) {
        let second = now_nanos / SECOND;
        match self.0.back_mut() {
            Some((last, longest)) if *last == second => *longest = nanos.max(*longest),
            _ => self.0.push_back((second, nanos)),
        }
        self.forget(second);
    }

    /// The longest of the last minute; none if there was none at all.
    pub(super) fn longest(&mut self, now_nanos: u64) -> Option<u64> {
        self.forget(now_nanos / SECOND);
        self.0.iter().map(|(_, nanos)| *nanos).max()
    }

    fn forget(&mut self, second: u64) {
        let is_old = |(then, _): &(u64, u64)| second.saturating_sub(*then) >= KEPT_SECONDS;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }
}

/// Quantiles that are reported about the round trips of a class of paths.
pub const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
/// Minutes over which they are taken, the running one included: enough for a p99.9 of 3,000 probes at ten a second.
const SKETCHED_MINUTES: usize = 5;
/// The shortest and the longest time that a sketch resolves, nanoseconds: one, and the longest
/// timeout.
const SKETCHED_NANOS: (u64, u64) = (1, 10_000_000_000);
/// Decimal digits of a sketch: `hdrhistogram` then groups times above 256 ns that differ by less than one part in 128, so that
/// the middle of a group is off by at most 0.4 %.
const DIGITS: u8 = 2;

/// Round trips of the last four to five minutes, for their quantiles: one sketch for each minute, and the sum of them.
#[derive(Debug)]
pub(super) struct Sketched {
    minutes: VecDeque<(u64, Sketch<u32>)>,
    all: Sketch<u32>,
}

impl Default for Sketched {
    fn default() -> Self {
        Self {
            minutes: VecDeque::new(),
            all: sketch(),
        }
    }
}

impl Sketched {
    /// Notes one that ended now.
    pub(super) fn note(&mut self, now_nanos: u64, nanos: u64) {
        self.forget(now_nanos);
        let minute = minute(now_nanos);
        if self.minutes.back().is_none_or(|(last, _)| *last != minute) {
            self.minutes.push_back((minute, sketch()));
        }
        if let Some((_, of_minute)) = self.minutes.back_mut() {
            of_minute.saturating_record(nanos);
            self.all.saturating_record(nanos);
        }
    }

    /// The quantiles, nanoseconds, in the order of [`QUANTILES`]; none without any round trip.
    pub(super) fn quantiles(&mut self, now_nanos: u64) -> Option<[u64; QUANTILES.len()]> {
        self.forget(now_nanos);
        let middle = |q| {
            // A sketch reports the greatest time of a group.
            let greatest = self.all.value_at_quantile(q);
            self.all.lowest_equivalent(greatest).midpoint(greatest)
        };
        (!self.all.is_empty()).then(|| QUANTILES.map(middle))
    }

    fn forget(&mut self, now_nanos: u64) {
        let oldest = (minute(now_nanos) + 1).saturating_sub(SKETCHED_MINUTES as u64);
        while self.minutes.front().is_some_and(|(then, _)| *then < oldest) {
            let gone = self.minutes.pop_front();
            // What was added can be taken away; if not, beginning again loses minutes, not truth.
            if gone.is_some_and(|(_, gone)| self.all.subtract(&gone).is_err()) {
                *self = Self::default();
            }
        }
    }
}

const fn minute(nanos: u64) -> u64 {
    nanos / (60 * SECOND)
}

#[expect(clippy::expect_used, reason = "constant bounds that a test builds")]
fn sketch() -> Sketch<u32> {
    Sketch::new_with_bounds(SKETCHED_NANOS.0, SKETCHED_NANOS.1, DIGITS).expect("bounds that rise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_up_to_its_bound() {
        for (nanos, place) in [
            (0, 0),
            (5_000, 0),
            (5_001, 1),
            (100_000_000, 9),
            (u64::MAX, 10),
        ] {
            let mut times = Times::default();
            times.note(nanos);
            assert_eq!(times.counts[place], 1, "{nanos}");
            assert_eq!(times.sum_nanos, nanos);
        }
    }

    #[test]
    fn the_longest_stays_for_a_minute_and_then_leaves() {
        let mut recent = Recent::default();
        assert_eq!(recent.longest(0), None);
        recent.note(5 * SECOND, 9);
        recent.note(5 * SECOND + 1, 3);
        recent.note(20 * SECOND, 4);
        assert_eq!(recent.longest(64 * SECOND), Some(9));
        assert_eq!(recent.longest(65 * SECOND), Some(4));
        assert_eq!(recent.longest(80 * SECOND), None);
    }

    #[test]
    fn quantiles_are_those_of_five_minutes_within_the_stated_error() {
        let mut sketched = Sketched::default();
        assert_eq!(sketched.quantiles(0), None);
        // 2 % take a millisecond, in the first minute ten.
        for (minute, slow) in [(0, 10_000_000), (1, 1_000_000), (5, 1_000_000)] {
            for probe in 0..1_000 {
                let nanos = if probe % 50 == 0 {
                    slow
                } else {
                    20_000 + probe
                };
                sketched.note(minute * 60 * SECOND, nanos);
            }
        }
        let [half, p99, p999] = sketched.quantiles(5 * 60 * SECOND).expect("quantiles");
        let is_near = |found: u64, truth: f64| (found as f64 / truth - 1.0).abs() <= 0.004;
        assert!(is_near(half, 20_500.0), "{half}");
        assert!(is_near(p99, 1_000_000.0), "{p99}: the first minute is over");
        assert!(is_near(p999, 1_000_000.0), "{p999}");
        assert_eq!(sketched.quantiles(20 * 60 * SECOND), None);
        sketched.note(20 * 60 * SECOND, u64::MAX);
        let [longest, ..] = sketched.quantiles(20 * 60 * SECOND).expect("quantiles");
        assert!(
            is_near(longest, 1e10),
            "{longest}: longer times count as the longest"
        );
    }
}

//! Adds up delta sums: each point is the change since the previous one, and mappings and detectors read cumulative counters.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::RandomState;
use railscope_model::fabric::Timestamp;

/// A series without points for this long is removed. Its next point starts at zero, which is a counter reset.
const FORGOTTEN_SECONDS: f64 = 3_600.0;
/// Limit on the number of series. Points of further ones are omitted.
const MOST_SERIES: usize = 1_000_000;

/// The totals of all delta series.
#[derive(Debug, Default)]
pub struct Deltas {
    totals: HashMap<u64, Total, RandomState>,
    hasher: RandomState,
    /// When idle series were last removed.
    cleaned: Timestamp,
}

#[derive(Debug)]
struct Total {
    value: f64,
    /// End of the latest interval, in nanoseconds since 1970.
    until: u64,
    last_seen: Timestamp,
}

impl Deltas {
    /// The total of a series with the change in the interval that ends at `until`, in nanoseconds since 1970. None if that
    /// interval is not after the previous one (a retry of the sender), or if there are too many series.
    pub(super) fn add(
        &mut self,
        series: impl Hash,
        change: f64,
        until: u64,
        now: Timestamp,
    ) -> Option<f64> {
        if now.seconds_since(self.cleaned) > FORGOTTEN_SECONDS {
            self.totals
                .retain(|_, total| now.seconds_since(total.last_seen) <= FORGOTTEN_SECONDS);
            self.cleaned = now;
        }
        let key = self.hasher.hash_one(series);
        if self.totals.len() >= MOST_SERIES && !self.totals.contains_key(&key) {
            return None;
        }
        let total = self.totals.entry(key).or_insert(Total {
            value: 0.0,
            until: 0,
            last_seen: now,
        });
        if until <= total.until {
            return None;
        }
        total.value += change;
        (total.until, total.last_seen) = (until, now);
        Some(total.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_add_up_and_a_retry_counts_once() {
        let mut deltas = Deltas::default();
        let now = Timestamp(1_000_000);
        let mut add = |change, until| deltas.add("a", change, until, now);
        let seen = [
            add(2.0, 10),
            add(3.0, 20),
            add(3.0, 20),
            add(1.0, 5),
            add(0.5, 30),
        ];
        assert_eq!(seen, [Some(2.0), Some(5.0), None, None, Some(5.5)]);
        assert_eq!(deltas.add("b", 1.0, 10, now), Some(1.0));
    }

    #[test]
    fn an_idle_series_starts_again() {
        let mut deltas = Deltas::default();
        deltas.add("a", 2.0, 10, Timestamp(0));
        let later = Timestamp(3_700_000);
        assert_eq!(deltas.add("a", 2.0, 20, later), Some(2.0));
    }
}

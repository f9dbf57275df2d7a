//! Counts of probes: how many, how long they took, and the longest of the last minute.

use std::collections::VecDeque;

use crate::sources::clock::SECOND;

/// Upper bounds of the times that are told apart, nanoseconds: 1 us to 100 ms in steps of 1-2-5. A round trip in an
/// idle fabric takes 5 to 50 us with the software timestamps of both ends, a full switch buffer of 64 MB at 400 Gb/s
/// takes 1.3 ms, and a path that is paused any time.
pub const BOUNDS_NANOS: [u64; 16] = crate::sources::timer::BOUNDS_NANOS;
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

/// At most so many a second, and a tenth of a second's worth at once.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u64,
    /// Nanoseconds' worth of what may still be taken.
    left_nanos: u64,
    at_nanos: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(per_second: u64, now_nanos: u64) -> Self {
        Self {
            per_second,
            left_nanos: SECOND / 10,
            at_nanos: now_nanos,
        }
    }

    /// Takes one, if there is one left.
    pub(super) fn take(&mut self, now_nanos: u64) -> bool {
        let since = now_nanos.saturating_sub(self.at_nanos);
        self.at_nanos = now_nanos;
        self.left_nanos = self.left_nanos.saturating_add(since).min(SECOND / 10);
        let one = SECOND / self.per_second;
        let is_left = self.left_nanos >= one;
        if is_left {
            self.left_nanos -= one;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_up_to_its_bound() {
        for (nanos, place) in [
            (0, 0),
            (1_000, 0),
            (1_001, 1),
            (100_000_000, 15),
            (u64::MAX, 16),
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
    fn a_bucket_gives_so_many_a_second_and_a_tenth_at_once() {
        let mut bucket = Bucket::new(100, 0);
        let mut taken = |now| (0..1000).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(0), 10);
        assert_eq!(taken(SECOND / 20), 5);
        assert_eq!(taken(10 * SECOND), 10);
        // A clock that goes back gives nothing away.
        assert_eq!(taken(9 * SECOND), 0);
    }
}

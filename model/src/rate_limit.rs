//! A rate limit: so many events a second, with bursts of at most 0.1 s' worth.

const SECOND: u64 = 1_000_000_000;

/// At most so many a second, and 0.1 s' worth at once.
#[derive(Debug)]
pub struct Bucket {
    per_second: u64,
    /// Nanoseconds' worth of what may still be taken.
    left_nanos: u64,
    at_nanos: u64,
}

impl Bucket {
    /// A full one; `per_second` is 10 or more.
    pub fn new(per_second: u64, now_nanos: u64) -> Self {
        Self {
            per_second,
            left_nanos: SECOND / 10,
            at_nanos: now_nanos,
        }
    }

    /// Takes one, if there is one left.
    pub fn take(&mut self, now_nanos: u64) -> bool {
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
    fn a_bucket_gives_so_many_a_second_and_a_tenth_at_once() {
        let mut bucket = Bucket::new(100, 0);
        let mut taken = |now| (0..1000).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(0), 10);
        assert_eq!(taken(SECOND / 20), 5);
        assert_eq!(taken(10 * SECOND), 10);
        // A clock that goes back adds no credit.
        assert_eq!(taken(9 * SECOND), 0);
    }
}

//! Counts of latencies in cells so narrow that both histograms follow: the one with fixed bounds and the native one.

use super::{Histogram, HistogramError, Native};
use crate::metric::LATENCY_BOUNDS_NANOS;

/// Schema of all native histograms: each bound of a bucket is `2^(2^-4)` times the one below. A quantile from it differs from the
/// true value by at most 4.4 %; the fixed bounds leave a factor of 2 to 2.5. Prometheus can merge buckets
/// (`native_histogram_min_bucket_factor`), but not split them.
pub const NATIVE_SCHEMA: u32 = 4;
/// What native histograms count as zero, seconds: `2^-20`, 0.95 us. No round trip between nodes is shorter, and no stall.
pub const NATIVE_ZERO_SECONDS: f64 = 1.0 / (1 << -FIRST_OCTAVE) as f64;

/// The exponents of the powers of two between which a native histogram has buckets: 0.95 us to 16 s, above the longest timeout
/// of a probe.
const FIRST_OCTAVE: i32 = -20;
const LAST_OCTAVE: i32 = 4;
/// Buckets between a latency and its double.
const BUCKETS_OF_OCTAVE: usize = 1 << NATIVE_SCHEMA;
/// Bounds of a native histogram: of what counts as zero, and of every bucket but the last.
const NATIVE_BOUNDS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * BUCKETS_OF_OCTAVE + 1;
/// Index of the first bucket above what counts as zero.
const FIRST_BUCKET: i32 = FIRST_OCTAVE * BUCKETS_OF_OCTAVE as i32 + 1;

static NATIVE_BOUNDS_NANOS: [u64; NATIVE_BOUNDS] = native_bounds();
/// Upper bounds of all cells but the last, which has none: those of both histograms.
static CELL_BOUNDS_NANOS: [u64; CELLS - 1] = merged(&native_bounds(), &LATENCY_BOUNDS_NANOS);
const CELLS: usize = NATIVE_BOUNDS + LATENCY_BOUNDS_NANOS.len() + 1;

/// Counts of latencies since some beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    /// [`Self::CELLS`] of them.
    cells: Box<[u64]>,
    sum_nanos: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::from_cells(|_| 0, 0)
    }
}

impl Latencies {
    /// Number of cells.
    pub const CELLS: usize = CELLS;

    /// The cell that counts a latency.
    pub fn cell_of(nanos: u64) -> usize {
        CELL_BOUNDS_NANOS.partition_point(|bound| *bound < nanos)
    }

    /// Counts that were kept elsewhere: of each cell, and the sum of all latencies.
    pub fn from_cells(count: impl Fn(usize) -> u64, sum_nanos: u64) -> Self {
        Self {
            cells: (0..CELLS).map(count).collect(),
            sum_nanos,
        }
    }

    /// Counts one.
    pub fn note(&mut self, nanos: u64) {
        self.cells[Self::cell_of(nanos)] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// All of them added up, nanoseconds.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos
    }

    /// How many were longer than one of [`LATENCY_BOUNDS_NANOS`].
    pub fn above(&self, nanos: u64) -> u64 {
        self.cells[Self::cell_of(nanos) + 1..].iter().sum()
    }

    /// How many there were up to each of [`LATENCY_BOUNDS_NANOS`] and above the one before; the last count is of those beyond all.
    pub fn by_bound(&self) -> Vec<u64> {
        self.between(&LATENCY_BOUNDS_NANOS)
    }

    /// Both histograms, in seconds.
    ///
    /// # Errors
    /// More latencies than 64 bits count.
    pub fn histogram(&self) -> Result<Histogram, HistogramError> {
        let bounds = LATENCY_BOUNDS_NANOS.map(|nanos| nanos as f64 / 1e9);
        let histogram = Histogram::new(&bounds, self.by_bound(), self.sum_nanos as f64 / 1e9)?;
        let counts = self.between(&NATIVE_BOUNDS_NANOS);
        let buckets = (FIRST_BUCKET..).zip(counts.iter().skip(1).copied());
        histogram.with_native(Native {
            zero: counts.first().copied().unwrap_or_default(),
            buckets: buckets.filter(|(_, count)| *count > 0).collect(),
        })
    }

    /// Counts between bounds, each of which is a bound of a cell.
    fn between(&self, bounds: &[u64]) -> Vec<u64> {
        let mut begin = 0;
        let ends = bounds.iter().map(|bound| Self::cell_of(*bound) + 1);
        let counts = ends.chain([CELLS]).map(|end| {
            let cells = begin..end;
            begin = end;
            self.cells[cells].iter().sum()
        });
        counts.collect()
    }
}

/// The largest integer of nanoseconds in a bucket.
const fn native_bounds() -> [u64; NATIVE_BOUNDS] {
    /// `2^(2^-4)`.
    const FACTOR: f64 = 1.044_273_782_427_413_8;
    let mut bounds = [0; NATIVE_BOUNDS];
    let (mut place, mut octave, mut bound) = (0, NATIVE_ZERO_SECONDS * 1e9, 0.0);
    while place < NATIVE_BOUNDS {
        if place % BUCKETS_OF_OCTAVE == 0 {
            // Powers of two are exact: rounding errors do not grow from one octave to the next.
            bound = octave;
            octave *= 2.0;
        }
        bounds[place] = bound as u64;
        bound *= FACTOR;
        place += 1;
    }
    bounds
}

/// Two rising lists as one.
const fn merged<const N: usize>(some: &[u64], others: &[u64]) -> [u64; N] {
    let mut all = [0; N];
    let (mut place, mut other) = (0, 0);
    while place + other < N {
        let is_next = other == others.len() || place < some.len() && some[place] <= others[other];
        if is_next {
            all[place + other] = some[place];
            place += 1;
        } else {
            all[place + other] = others[other];
            other += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bound of a bucket by the definition of the format, seconds.
    fn bound(index: i32) -> f64 {
        2_f64.powf(f64::from(index) / BUCKETS_OF_OCTAVE as f64)
    }

    #[test]
    fn every_latency_is_in_the_bucket_that_the_format_gives_it_and_in_the_one_with_fixed_bounds() {
        let near = |bound: &u64| [bound - 1, *bound, bound + 1];
        let bounds = CELL_BOUNDS_NANOS.iter().flat_map(near);
        for nanos in bounds.chain([0, 1, 33_333, u64::MAX]) {
            let mut latencies = Latencies::default();
            latencies.note(nanos);
            assert_eq!((latencies.count(), latencies.sum_nanos()), (1, nanos));
            let fixed = LATENCY_BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
            assert_eq!(latencies.by_bound()[fixed], 1, "{nanos}");
            let histogram = latencies.histogram().expect("a histogram");
            let native = histogram.native().expect("a native one");
            let seconds = nanos as f64 / 1e9;
            match native.buckets[..] {
                [] => {
                    assert_eq!(native.zero, 1);
                    assert!(seconds <= NATIVE_ZERO_SECONDS, "{nanos}");
                }
                [(index, 1)] => {
                    assert!(seconds > bound(index - 1), "{nanos}: {index}");
                    let is_last = index == FIRST_BUCKET + NATIVE_BOUNDS as i32 - 1;
                    assert!(seconds <= bound(index) || is_last, "{nanos}: {index}");
                }
                _ => panic!("{nanos}: {native:?}"),
            }
        }
    }

    #[test]
    fn cells_rise_and_begin_and_end_where_they_are_said_to() {
        assert!(CELL_BOUNDS_NANOS.is_sorted_by(|lower, upper| lower < upper));
        assert_eq!(CELL_BOUNDS_NANOS.first(), Some(&953));
        assert_eq!(CELL_BOUNDS_NANOS.last(), Some(&16_000_000_000));
        assert_eq!(bound(FIRST_BUCKET - 1), NATIVE_ZERO_SECONDS);
    }

    #[test]
    fn what_is_above_a_bound_is_counted_exactly() {
        let mut latencies = Latencies::default();
        for nanos in [49_999, 50_000, 50_001, 200_001] {
            latencies.note(nanos);
        }
        assert_eq!(
            [50_000, 200_000].map(|nanos| latencies.above(nanos)),
            [2, 1]
        );
        let copied = Latencies::from_cells(|cell| latencies.cells[cell], latencies.sum_nanos());
        assert_eq!(copied, latencies);
    }
}

//! A histogram: how often a measurement fell between two bounds, fixed ones and, of some, those of a native histogram.

use serde::{Deserialize, Serialize};

use crate::metric::HistogramPart;

/// Counts of measurements between fixed bounds, since some beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    native: Option<Native>,
}

/// The same measurements in the buckets of a Prometheus native histogram of schema [`NATIVE_SCHEMA`](super::NATIVE_SCHEMA).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// Measurements up to [`NATIVE_ZERO_SECONDS`](super::NATIVE_ZERO_SECONDS).
    pub zero: u64,
    /// Index and count of each bucket that is not empty, by index. Bucket `i` holds what is above `b^(i - 1)` and up to
    /// `b^i`, where `b` is `2^(2^-schema)`.
    pub buckets: Vec<(i32, u64)>,
}

/// Numbers that make no histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// A bound is not a number, or not above the one before it.
    #[error("bounds of a histogram must be finite and rise")]
    Bounds,
    /// There must be one count for each bound and one beyond the last.
    #[error("expected {expected} counts, found {found}")]
    Counts {
        /// One more than there are bounds.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// The counts together do not fit 64 bits, or the sum is not a number.
    #[error("a histogram's totals are out of range")]
    Totals,
    /// The native buckets do not rise, or hold more or fewer measurements than the others.
    #[error(
        "the native buckets of a histogram must rise and hold as many measurements as the others"
    )]
    Native,
}

impl Histogram {
    /// `counts[i]` measurements above `bounds[i - 1]` and up to `bounds[i]`; the last count is of those
    /// beyond every bound. Bounds and sum are in the metric's unit.
    ///
    /// # Errors
    /// Bounds that do not rise, counts that are not one more, totals out of range.
    pub fn new(bounds: &[f64], counts: Vec<u64>, sum: f64) -> Result<Self, HistogramError> {
        if !bounds.iter().all(|bound| bound.is_finite())
            || !bounds.is_sorted_by(|lower, upper| lower < upper)
        {
            return Err(HistogramError::Bounds);
        }
        if counts.len() != bounds.len() + 1 {
            return Err(HistogramError::Counts {
                expected: bounds.len() + 1,
                found: counts.len(),
            });
        }
        let total = counts
            .iter()
            .try_fold(0_u64, |sum, count| sum.checked_add(*count));
        if total.is_none() || !sum.is_finite() {
            return Err(HistogramError::Totals);
        }
        Ok(Self {
            bounds: bounds.to_vec(),
            counts,
            sum,
            native: None,
        })
    }

    /// The histogram with native buckets of the same measurements.
    ///
    /// # Errors
    /// Indexes that do not rise, or another number of measurements.
    pub fn with_native(self, native: Native) -> Result<Self, HistogramError> {
        let mut counts = native.buckets.iter().map(|(_, count)| *count);
        let total = counts.try_fold(native.zero, u64::checked_add);
        let rises = native
            .buckets
            .is_sorted_by(|lower, upper| lower.0 < upper.0);
        if !rises || total != Some(self.count()) {
            return Err(HistogramError::Native);
        }
        Ok(Self {
            native: Some(native),
            ..self
        })
    }

    /// The native buckets, where the measurements were counted so finely.
    pub fn native(&self) -> Option<&Native> {
        self.native.as_ref()
    }

    /// How many measurements.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All measurements added up.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound with the measurements between it and the one before; the last bound is infinite.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied())
    }

    /// Each bound with the measurements up to it, as `_bucket` series count; the last bound is infinite.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        self.buckets().map(move |(bound, count)| {
            below += count;
            (bound, below)
        })
    }

    /// Every series of the histogram: which it is, its bound if it is a bucket, its value.
    pub fn series(&self) -> impl Iterator<Item = (HistogramPart, Option<f64>, f64)> {
        let totals = [
            (HistogramPart::Sum, None, self.sum),
            (HistogramPart::Count, None, self.count() as f64),
        ];
        let buckets = self
            .cumulative()
            .map(|(bound, count)| (HistogramPart::Bucket, Some(bound), count as f64));
        totals.into_iter().chain(buckets)
    }
}

/// A histogram on the wire, not yet checked.
#[derive(Serialize, Deserialize)]
struct Wire {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    native: Option<Native>,
}

impl TryFrom<Wire> for Histogram {
    type Error = HistogramError;

    fn try_from(wire: Wire) -> Result<Self, HistogramError> {
        let histogram = Self::new(&wire.bounds, wire.counts, wire.sum)?;
        match wire.native {
            Some(native) => histogram.with_native(native),
            None => Ok(histogram),
        }
    }
}

impl From<Histogram> for Wire {
    fn from(histogram: Histogram) -> Self {
        Self {
            bounds: histogram.bounds,
            counts: histogram.counts,
            sum: histogram.sum,
            native: histogram.native,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rising_bounds_with_one_more_count_make_a_histogram() {
        let new = |bounds: &[f64], counts: &[u64], sum| {
            Histogram::new(bounds, counts.to_vec(), sum).map(|histogram| histogram.count())
        };
        let counts = |expected, found| Err(HistogramError::Counts { expected, found });
        assert_eq!(new(&[1.0, 2.0], &[3, 0, 4], 9.0), Ok(7));
        assert_eq!(new(&[], &[5], 9.0), Ok(5));
        assert_eq!(new(&[1.0, 2.0], &[3, 0], 9.0), counts(3, 2));
        assert_eq!(new(&[], &[], 0.0), counts(1, 0));
        for bounds in [
            [2.0, 1.0],
            [1.0, 1.0],
            [1.0, f64::INFINITY],
            [f64::NAN, 1.0],
        ] {
            assert_eq!(new(&bounds, &[0; 3], 0.0), Err(HistogramError::Bounds));
        }
        assert_eq!(
            new(&[1.0], &[u64::MAX, 1], 0.0),
            Err(HistogramError::Totals)
        );
        assert_eq!(new(&[1.0], &[0, 1], f64::NAN), Err(HistogramError::Totals));
    }

    #[test]
    fn native_buckets_rise_and_hold_the_same_measurements() {
        let with = |zero, buckets: &[(i32, u64)]| {
            let histogram = Histogram::new(&[1.0], vec![3, 4], 9.5).expect("a histogram");
            let buckets = buckets.to_vec();
            let native = histogram.with_native(Native { zero, buckets });
            native.map(|histogram| histogram.native().is_some())
        };
        assert_eq!(with(1, &[(-3, 2), (5, 4)]), Ok(true));
        assert_eq!(with(7, &[]), Ok(true));
        for (zero, buckets) in [
            (0, &[(-3, 2), (5, 4)][..]),
            (1, &[(5, 4), (-3, 2)]),
            (1, &[(5, 4), (5, 2)]),
            (1, &[(5, u64::MAX), (6, 7)]),
        ] {
            assert_eq!(
                with(zero, buckets),
                Err(HistogramError::Native),
                "{buckets:?}"
            );
        }
    }

    #[test]
    fn buckets_count_everything_up_to_their_bound() {
        let histogram = Histogram::new(&[0.5, 1.0], vec![3, 0, 4], 9.5).expect("a histogram");
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(0.5, 3), (1.0, 3), (f64::INFINITY, 7)]);
        assert_eq!(histogram.series().count(), 5);
    }
}

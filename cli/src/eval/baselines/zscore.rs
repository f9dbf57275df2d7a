//! Plain z-scores: whatever differs from its peers, at once.

use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Frame, Layout};
use super::Baseline;

/// Fewest peers of which a standard deviation reports anything.
const MIN_PEERS: usize = 4;

/// Any signal more than a number of standard deviations from the mean of its peers.
pub(super) struct ZScore {
    layout: Arc<Layout>,
    limit: f64,
}

impl ZScore {
    pub(super) fn new(layout: Arc<Layout>, limit: f64) -> Self {
        Self { layout, limit }
    }
}

impl Baseline for ZScore {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let mut named = Vec::new();
        for column in Column::ALL {
            let values = frame.column(*column);
            let Some((mean, deviation)) = moments(values) else {
                continue;
            };
            let parts = self.layout.parts(column.signal().entity);
            for (value, part) in values.iter().zip(parts) {
                let z = (value - mean).abs() / deviation;
                if z > self.limit {
                    named.push(Naming::page(part.clone(), z));
                }
            }
        }
        named
    }
}

/// Mean and standard deviation of what is there; none of too few, or if all are alike.
pub(super) fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let there = || values.iter().copied().filter(|value| !value.is_nan());
    let count = there().count();
    if count < MIN_PEERS {
        return None;
    }
    let mean = there().sum::<f64>() / count as f64;
    let variance = there().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
    // What differs by rounding only does not differ.
    (variance.sqrt() > 1e-9 * mean.abs()).then(|| (mean, variance.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_leave_out_what_is_absent_and_say_nothing_of_equals() {
        let (mean, deviation) = moments(&[1.0, f64::NAN, 3.0, 1.0, 3.0]).expect("four values");
        assert_eq!((mean, deviation), (2.0, 1.0));
        assert_eq!(moments(&[2.0; 8]), None);
        assert_eq!(moments(&[1.0, 2.0, 3.0]), None);
    }
}

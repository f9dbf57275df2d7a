//! Peers: what most of those that should behave alike do.

use crate::detect::registry::Threshold;

/// Fewest peers that make a judgment: with three, one bad part is a third of the truth.
pub(crate) const MIN_PEERS: usize = 4;
/// Share of the peers that must agree before the rest is called odd.
pub(crate) const MAJORITY: f64 = 0.7;

/// These two, as thresholds.
pub(crate) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "minimum number of peers",
            MIN_PEERS as f64,
            "components",
            "with three, one bad component is a third of the sample (a choice)",
        ),
        Threshold::new(
            "share of the peers that must agree",
            MAJORITY,
            "ratio",
            "a clear majority: an even split defines no norm (a choice)",
        ),
    ]
}

/// The middle value; `None` of nothing. Values that are no numbers sort last.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// What the cohort normally gives, if there are enough peers and most of them agree that it is at least this:
/// the largest value that [`MAJORITY`] of the peers reach.
pub(crate) fn norm(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    if values.len() < MIN_PEERS {
        return None;
    }
    let odd = ((values.len() as f64) * (1.0 - MAJORITY)).floor() as usize;
    Some(*values.select_nth_unstable_by(odd, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_needs_peers_and_a_majority() {
        assert_eq!(norm([16.0, 16.0, 8.0]), None);
        assert_eq!(norm([16.0, 16.0, 16.0, 8.0]), Some(16.0));
        assert_eq!(
            norm([16.0, 16.0, 8.0, 8.0]),
            Some(8.0),
            "half is no majority"
        );
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    }
}

//! Peers: what most of those that should behave alike do.

use crate::detect::registry::Threshold;

/// Fewest peers that make a comparison: with three, one bad part is a third of them.
pub(crate) const MIN_PEERS: usize = 4;
/// Share of the peers that must agree before the rest is called odd.
pub(crate) const MAJORITY: f64 = 0.7;

/// If at least this many parts are expected to have so many events by chance, one that has them is no exception.
const CHANCE: f64 = 0.1;

/// [`CHANCE`] as a threshold.
pub(crate) fn chance() -> Threshold {
    Threshold::new(
        "components with as many events by chance, fewer than",
        CHANCE,
        "components",
        "single events that happen now here, now there are no fault of one component: a Poisson distribution with the rate of the others (a choice)",
    )
}

/// Whether one of so many parts has so many events in a window by chance, if each has on average `mean` of them.
pub(crate) fn is_by_chance(events: f64, mean: f64, parts: usize) -> bool {
    let (mut term, mut below, mut fewer) = ((-mean).exp(), 0.0, 0.0);
    while fewer < events && term > 0.0 {
        below += term;
        fewer += 1.0;
        term *= mean / fewer;
    }
    parts as f64 * (1.0 - below) >= CHANCE
}

/// Mean number of events of a part, where so many of all have had one at all. Few parts with very many do not change it.
pub(crate) fn mean_events(some: usize, parts: usize) -> f64 {
    let share = some as f64 / parts.max(some + 1) as f64;
    -(-share).ln_1p()
}

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
    fn an_event_that_others_have_too_is_chance_and_many_are_not() {
        let mean = mean_events(4, 100);
        assert!((mean - 0.0408).abs() < 1e-4, "{mean}");
        assert!(is_by_chance(1.0, mean, 100));
        assert!(!is_by_chance(3.0, mean, 100));
        assert!(!is_by_chance(1.0, mean_events(0, 100), 100));
        // All have some: that many are not expected of any.
        let mean = mean_events(100, 100);
        assert!(is_by_chance(10.0, mean, 100));
        assert!(!is_by_chance(30.0, mean, 100));
        assert!(!is_by_chance(1e12, mean, 100));
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    }
}

//! Latency of paths as probes measure it: by class of path, with the components and the pairs of NICs that have the most
//! slow probes.

use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::path_class::PathClass;

/// Round-trip times above which the share of probes is reported, seconds. A collective step of a few milliseconds begins
/// to feel 200 us; 1 ms is what a full switch buffer takes to drain (detection method, section 2.1).
pub const STALLS_SECONDS: [f64; 3] = [50e-6, 200e-6, 1e-3];
/// How often all of it is summed up anew: people do not read faster.
pub const SUMMED_EVERY_SECONDS: f64 = 10.0;
/// Components that are compared: those with the most slow probes.
pub const LOOKED_AT: usize = 256;
/// Components and pairs that are listed.
pub const LISTED: usize = 20;

/// What probes measured in the last minutes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tails {
    /// Classes of paths that were probed, in the order of [`PathClass::ALL`].
    pub classes: Vec<ClassTail>,
    /// Components whose flows have more slow probes than others of their class, the most unlikely first.
    pub components: Vec<Slow<Part>>,
    /// Pairs of NICs, likewise.
    pub pairs: Vec<Slow<Pair>>,
}

/// Paths of one class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassTail {
    /// Which.
    pub path_class: PathClass,
    /// How the probes travel: `udp`.
    pub transport: String,
    /// Nodes that probed such paths.
    pub nodes: usize,
    /// Probes without an answer in time.
    pub lost: f64,
    /// Round trips of the others.
    pub round_trips: Distribution,
    /// The largest p99.9 of any node, seconds, and that node.
    pub worst_node: Option<(f64, NodeName)>,
}

/// Share of slow probes of one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow<T> {
    /// What the probes have in common.
    pub of: T,
    /// Answered probes.
    pub probes: f64,
    /// Those of them that were slow: above the threshold of the list of probes.
    pub slow: f64,
    /// Slow probes expected of as many probes of the same classes of paths.
    pub expected: f64,
}

impl<T> Slow<T> {
    /// Share of the probes that was slow.
    pub fn ratio(&self) -> f64 {
        self.slow / self.probes
    }

    /// Slow probes above what was expected, in standard deviations of a Poisson count.
    pub(crate) fn excess(&self) -> f64 {
        (self.slow - self.expected) / self.expected.max(1.0).sqrt()
    }
}

/// A NIC that sends probes and one that answers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The node that sends.
    pub node: NodeName,
    /// Its NIC.
    pub device: RdmaDevice,
    /// The node that answers.
    pub peer_node: NodeName,
    /// Its NIC.
    pub peer_device: RdmaDevice,
    /// How far apart they are.
    pub path_class: PathClass,
}

/// Counts up to bounds that rise; the last bound is infinite.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Distribution {
    /// Bound in seconds, and how many measurements are not above it.
    buckets: Vec<(f64, f64)>,
}

/// A quantile of counts between bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// Estimate: linear within the bucket, as Prometheus' `histogram_quantile`. Seconds; of the bucket without an upper
    /// bound its lower bound.
    pub seconds: f64,
    /// The truth is not below this, seconds.
    pub at_least: f64,
    /// The truth is not above this, seconds; infinite beyond the last bound.
    pub at_most: f64,
}

impl Distribution {
    /// Of cumulative counts by bound, in any order. Counts that fall as the bound rises, as they can while counters of
    /// several nodes are added, are raised to the one before.
    pub fn new(mut buckets: Vec<(f64, f64)>) -> Self {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below: f64 = 0.0;
        for (_, count) in &mut buckets {
            below = below.max(*count);
            *count = below;
        }
        Self { buckets }
    }

    /// How many measurements there are.
    pub fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// The quantile `q` of 0.0 to 1.0; none without any measurement.
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let rank = q * self.count();
        let place = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (at_most, count) = self.buckets[place];
        let (at_least, below) = place
            .checked_sub(1)
            .map_or((0.0, 0.0), |before| self.buckets[before]);
        let inside = (rank - below) / (count - below);
        let seconds = if at_most.is_finite() {
            at_least + (at_most - at_least) * inside
        } else {
            at_least
        };
        (count > 0.0).then_some(Quantile {
            seconds,
            at_least,
            at_most,
        })
    }

    /// Share of the measurements above one of the bounds; none if it is no bound, or without any measurement.
    pub fn share_above(&self, bound: f64) -> Option<f64> {
        let at = |one: &&(f64, f64)| (one.0 / bound - 1.0).abs() < 1e-9;
        let (_, count) = self.buckets.iter().find(at)?;
        let all = self.count();
        (all > 0.0).then(|| 1.0 - count / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_bucket() {
        let buckets = vec![
            (f64::INFINITY, 1_000.0),
            (1e-5, 500.0),
            (1e-3, 998.0),
            (1e-4, 990.0),
        ];
        let round_trips = Distribution::new(buckets);
        assert_eq!(round_trips.count(), 1_000.0);
        for (q, seconds, at_least, at_most) in [
            (0.25, 5e-6, 0.0, 1e-5),
            (0.5, 1e-5, 0.0, 1e-5),
            (0.99, 1e-4, 1e-5, 1e-4),
            (0.994, 5.5e-4, 1e-4, 1e-3),
            (0.999, 1e-3, 1e-3, f64::INFINITY),
        ] {
            let found = round_trips.quantile(q).expect("a quantile");
            assert!(
                (found.seconds / seconds - 1.0).abs() < 1e-9,
                "{q}: {found:?}"
            );
            assert_eq!((found.at_least, found.at_most), (at_least, at_most), "{q}");
        }
        let share = round_trips.share_above(1e-4).expect("a share");
        assert!((share - 0.01).abs() < 1e-12);
        assert_eq!(round_trips.share_above(2e-4), None, "no bound");
    }

    #[test]
    fn nothing_measured_has_no_quantile_and_counts_that_fall_are_raised() {
        for empty in [vec![], vec![(1e-5, 0.0), (f64::INFINITY, 0.0)]] {
            let empty = Distribution::new(empty);
            assert_eq!((empty.quantile(0.5), empty.share_above(1e-5)), (None, None));
        }
        let falls = Distribution::new(vec![(1e-5, 5.0), (1e-4, 3.0), (f64::INFINITY, 6.0)]);
        assert_eq!(falls.share_above(1e-4), Some(1.0 - 5.0 / 6.0));
    }
}

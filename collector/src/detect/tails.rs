//! Latency of paths as probes measure it: by class of path, with the components and the pairs of NICs that have the most
//! slow probes.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::path_class::PathClass;

/// Round-trip times above which the share of probes is reported, seconds. A collective step of a few milliseconds is
/// affected by 200 us; 1 ms is the time in which a full switch buffer drains.
pub const STALLS_SECONDS: [f64; 3] = [50e-6, 200e-6, 1e-3];
/// How often all of it is summed up again: people do not read faster.
pub const SUMMED_EVERY_SECONDS: f64 = 10.0;
/// Components and pairs that are listed.
pub const LISTED: usize = 20;

/// What probes measured in the last minutes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tails {
    /// Time of the summary; it covers the 150 s before.
    pub at: Timestamp,
    /// Classes of paths that were probed, in the order of [`PathClass::ALL`].
    pub classes: Vec<ClassTail>,
    /// What makes the slow probes.
    pub causes: Causes,
    /// Share of the cabling that the probes cover.
    pub coverage: Coverage,
    /// Components whose flows have more slow probes than all paths of their class, those of the largest excess first.
    pub components: Vec<Slow<Part>>,
    /// Pairs of NICs, likewise.
    pub pairs: Vec<Slow<Pair>>,
}

/// Paths of one class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassTail {
    /// Which.
    pub path_class: PathClass,
    /// How the probes travel: `udp` or `rdma`.
    pub transport: String,
    /// Nodes with answered probes of such paths.
    pub nodes: usize,
    /// Probes without a reply in time.
    pub lost: f64,
    /// Round trips of answered probes whose time is known.
    pub round_trips: Distribution,
    /// The largest p99.9 of any node, seconds, and that node.
    pub worst_node: Option<(f64, NodeName)>,
}

/// Kind of component that makes probes slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The host that sends them, or both its ends.
    Host,
    /// A NIC with its PCIe link and its cable.
    Edge,
    /// A cable between switches.
    Cable,
    /// A switch.
    Switch,
}

impl Cause {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Edge => "nic or its cable",
            Self::Cable => "cable between switches",
            Self::Switch => "switch",
        }
    }
}

/// How many slow probes which kind of component explains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Causes {
    /// All slow probes.
    pub slow: f64,
    /// As many as there would be if all paths had the share of those over which nothing stands out.
    pub usual: f64,
    /// Those that components of a kind explain.
    pub explained: BTreeMap<Cause, f64>,
    /// Hosts among them, the worst first.
    pub hosts: Vec<StalledHost>,
}

impl Causes {
    /// The same with the slow probes of flows at which nothing stands out, which are as usual.
    #[must_use]
    pub(super) fn of_all(mut self, slow: f64) -> Self {
        self.usual += (slow - self.slow).max(0.0);
        self.slow = slow;
        self
    }

    /// Slow probes that neither chance nor any component explains.
    pub fn unexplained(&self) -> f64 {
        let explained: f64 = self.explained.values().sum();
        (self.slow - self.usual - explained).max(0.0)
    }
}

/// A host that makes its probes slow.
#[derive(Debug, Clone, PartialEq)]
pub struct StalledHost {
    /// Which.
    pub node: NodeName,
    /// Slow probes that it explains.
    pub slow: f64,
    /// Timers of the host that fire more than 200 us late, per second: where they do, the cause is its processors or its
    /// hypervisor, else its NICs or PCIe. None where it watches no timers.
    pub timer_stalls_per_second: Option<f64>,
}

/// Cables that probes cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Between hosts and switches.
    pub host_cables: Probed,
    /// Between switches, where routers report the path of a flow.
    pub switch_cables: Probed,
}

/// How many of some cables are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probed {
    /// By at least one flow, for certain.
    pub probed: usize,
    /// All of them.
    pub all: usize,
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

    /// Nothing counted yet.
    pub(super) const fn none_of(of: T) -> Self {
        Self {
            of,
            probes: 0.0,
            slow: 0.0,
            expected: 0.0,
        }
    }

    /// The same counts under its display name; none if it has no name.
    pub(super) fn named<U>(self, name: impl FnOnce(T) -> Option<U>) -> Option<Slow<U>> {
        Some(Slow {
            of: name(self.of)?,
            probes: self.probes,
            slow: self.slow,
            expected: self.expected,
        })
    }

    /// How unlikely this number of slow probes is by chance, in standard deviations of a normal variable: the square root of the
    /// deviance of a Poisson count, with the sign of the difference. Simultaneous slow probes are correlated, so that
    /// chance makes larger values than independent probes would.
    pub fn excess(&self) -> f64 {
        let Self { slow, expected, .. } = self;
        let log = if *slow > 0.0 {
            slow * (slow / expected).ln()
        } else {
            0.0
        };
        let deviance = 2.0 * (log - (slow - expected));
        deviance.max(0.0).sqrt().copysign(slow - expected)
    }
}

/// A NIC that sends probes and one that replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The node that sends.
    pub node: NodeName,
    /// Its NIC.
    pub device: RdmaDevice,
    /// The node that replies.
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

//! The numbers of the rule about a leaf that back-pressures its hosts.

use super::super::past::{self, NEW};
use super::super::waiting_cable::{FULL, MIN_TICKS, WAIT_SECONDS};
use super::Means;
use crate::classes::PATH_SLOW;
use crate::detect::ecn_marks::packet_size;
use crate::detect::registry::{Rule, Threshold};

/// Least share of the time for which a host's port is paused.
pub(super) const MIN_PAUSED: f64 = 0.005;
/// Most that a host sends, compared with before: a bottleneck slows the job.
pub(super) const MOST_SENT: f64 = 0.8;
/// Fewest hosts, and least share of the leaf's hosts' ports that send.
pub(super) const MIN_HOSTS: usize = 3;
pub(super) const MOST_OF_LEAF: f64 = 0.5;
/// Most that the hosts of any other leaf, or a port of the leaf itself, wait more than before, compared with the hosts of the leaf.
pub(super) const ELSEWHERE: f64 = 1.0 / 3.0;
/// Least share of what these hosts send that the leaf sends to other switches.
pub(super) const PASSED_ON: f64 = 0.1;
/// A port that sends less than this share of the leaf's median host is idle.
pub(super) const IDLE: f64 = 0.01;
/// Least share of its packets that a cable to a switch marks where it is named, and how many times that of the others.
pub(super) const MARKED: (f64, f64) = (2e-4, 10.0);

/// The rule as text.
pub(in super::super) fn words() -> String {
    format!(
        "the leaf pauses the ports of at least {MIN_HOSTS} hosts, {:.0} % of the hosts' ports that send, for {:.1} % of the time (InfiniBand: they wait for its credits for {:.0} million ticks a second) over {:.0} s and over the newest {:.0} s, {NEW:.0} times as long as before, while they send at most {:.0} % of what they sent; the hosts of every other leaf, and the leaf's own ports, wait at most {:.0} % as much longer, and it sends at least {:.0} % of what they send to other switches, over cables none of which carries {:.0} % of its speed; a cable of the leaf to a switch is named if it marks {:.2} % of its packets, {:.0} times as much as the others; if a port to a host marks so, none is named",
        100.0 * MOST_OF_LEAF,
        100.0 * MIN_PAUSED,
        1e-6 * MIN_TICKS,
        WAIT_SECONDS[0],
        WAIT_SECONDS[1],
        100.0 * MOST_SENT,
        100.0 * ELSEWHERE,
        100.0 * PASSED_ON,
        100.0 * FULL,
        100.0 * MARKED.0,
        MARKED.1
    )
}

/// The rule's numbers.
pub(in super::super) fn rules() -> [Rule; 2] {
    [Means::Pause, Means::Credits].map(|means| {
        let thresholds = of_hosts().into_iter().chain(of_leaves());
        Rule {
            signal: means.signal().name,
            ..Rule::new(&PATH_SLOW, thresholds.chain(past::numbers()).collect())
        }
    })
}

/// The numbers of a host's port.
fn of_hosts() -> Vec<Threshold> {
    vec![
        Threshold::new("over", WAIT_SECONDS[0], "s", "several readings (a choice)"),
        Threshold::new(
            "and also over the newest",
            WAIT_SECONDS[1],
            "s",
            "it still waits (a choice)",
        ),
        Threshold::new(
            "share of the time for which it is paused",
            MIN_PAUSED,
            "ratio",
            "bursts pause for less (a choice)",
        ),
        Threshold::new(
            "or ticks for which it waits for credits",
            MIN_TICKS,
            "1/s",
            "10 % of the time of the slowest counters known (a choice)",
        ),
        Threshold::new(
            "bytes sent, compared with before, at most",
            MOST_SENT,
            "ratio",
            "a busier job sends more (a choice)",
        ),
    ]
}

/// The numbers of a leaf.
fn of_leaves() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "hosts that it back-pressures, at least",
            MIN_HOSTS as f64,
            "hosts",
            "one or two may wait for a receiver (a choice)",
        ),
        Threshold::new(
            "their ports as a share of those of the leaf's hosts that send",
            MOST_OF_LEAF,
            "ratio",
            "flows of some hosts may use other cables (a choice)",
        ),
        Threshold::new(
            "bytes sent by one of these, compared with the median one that waits, at least",
            IDLE,
            "ratio",
            "what is idle waits for nothing (a choice)",
        ),
        Threshold::new(
            "wait above that before of another leaf's hosts, or of a port of the leaf, compared with the leaf's hosts, at most",
            ELSEWHERE,
            "ratio",
            "a slow receiver or a busy spine back-pressures several leaves (a choice)",
        ),
        Threshold::new(
            "bytes that the leaf sends to other switches, compared with those that these hosts send, at least",
            PASSED_ON,
            "ratio",
            "else its cables to switches slow nothing (a choice)",
        ),
        Threshold::new(
            "share of its speed that each of these cables carries, at most",
            FULL,
            "ratio",
            "a busy cable lets no more through (a choice)",
        ),
        packet_size(),
        Threshold::new(
            "share of packets that the cable named marks, at least",
            MARKED.0,
            "ratio",
            "other queues mark, too (a choice)",
        ),
        Threshold::new(
            "the same, compared with the median of the leaf's other cables to switches",
            MARKED.1,
            "times",
            "other queues mark, too (a choice)",
        ),
    ]
}

//! The numbers of the comparison of work.

use crate::core::classes::GPU_SLOW;
use crate::core::detectors::peers::{self, MIN_PEERS};
use crate::core::rules::{Rule, Threshold};

/// Excess over the node's median from which a GPU counts as slow, and how many of the newest samples must all say so:
/// what is far off needs fewer (the fast lane of the detection method, section 3.3). The driver tells activity in tenths
/// of a per cent, and clocks in steps of three quarters of one. Sums need no number of samples.
pub(super) const LANES: [(f64, usize); 2] = [(0.08, 2), (0.03, 3)];
/// Time that the samples must reach back, if that takes more of them. An exporter reads each GPU by itself, once a
/// second, and later where it is busy: for seconds after work has changed, a page has some GPUs as they were before.
pub(super) const MIN_SECONDS: f64 = 4.5;
/// Samples that are looked at to see what the GPUs of a node differ by, at most, and the fewest that tell.
pub(super) const SAMPLES: (usize, usize) = (8, 4);
/// Time over which sums are compared, and that where pages come too rarely for it.
pub(super) const SECONDS: [f64; 2] = [30.0, 90.0];
/// The least of it that pages must tell.
pub(super) const LEAST_SECONDS: f64 = 20.0;
/// Seconds by which the sums of two GPUs on a page may end apart: the exporter's worker reads each once a second, and the
/// exporter takes up what it read once a second.
pub(super) const READ_APART: f64 = 2.0;
/// Pieces of the time that tell how steady work is.
pub(super) const PIECES: usize = 3;
/// How far beyond what the GPUs of its node differ by, in standard deviations: short windows that begin at different
/// moments of a step differ, whatever the GPUs do.
pub(super) const ABOVE_SPREAD: f64 = 3.0;
/// Standard deviation of normal values, in median absolute deviations.
pub(super) const STANDARD: f64 = 1.4826;
/// A GPU that computes less than this of the time runs no step that could be compared.
pub(super) const MIN_ACTIVE: f64 = 0.05;

/// The numbers in words.
pub(super) fn threshold() -> String {
    let [seconds, _] = SECONDS;
    let lanes = LANES.map(|(excess, points)| {
        format!(
            "{:.0} % above the median of at least {MIN_PEERS} GPUs of the node in each of {points} samples",
            100.0 * excess
        )
    });
    format!(
        "{:.0} % above the median of at least {MIN_PEERS} GPUs of the node over {seconds:.0} s, by what the exporter sums up, and more than {READ_APART} s of unsteady work can make of it; where nobody sums up {}, in all samples of {MIN_SECONDS} s; and {ABOVE_SPREAD:.0} standard deviations of what the node's GPUs differ by (activity is told in tenths of a per cent, clocks in steps of 0.75 %)",
        100.0 * LANES[1].0,
        lanes.join(", or ")
    )
}

pub(super) fn rules() -> Vec<Rule> {
    let mut thresholds = peers::thresholds();
    for (excess, samples) in LANES {
        thresholds.push(Threshold::new(
            format!("work above the median in each of {samples} samples"),
            excess,
            "ratio",
            "fast lane of the detection method, section 3.3; activity is told in tenths of a per cent, clocks in steps of 0.75 %",
        ));
    }
    thresholds.extend(of_samples());
    thresholds.extend(of_sums());
    thresholds.extend([
        Threshold::new(
            "beyond what the GPUs of the node differ by",
            ABOVE_SPREAD,
            "standard deviations",
            "short windows begin at different moments of a step (a choice)",
        ),
        Threshold::new(
            "standard deviation",
            STANDARD,
            "median absolute deviations",
            "that of normal values",
        ),
        Threshold::new(
            "activity of the median GPU of the node",
            MIN_ACTIVE,
            "ratio",
            "a GPU that computes less runs no step that could be compared (a choice)",
        ),
    ]);
    vec![Rule::new(&GPU_SLOW, thresholds)]
}

fn of_samples() -> [Threshold; 3] {
    [
        Threshold::new(
            "time that the samples must reach back",
            MIN_SECONDS,
            "s",
            "exporters read GPUs one by one, so that for seconds after a change some are told as they were (seen on a busy machine)",
        ),
        Threshold::new(
            "samples that tell what GPUs of a node differ by, at most",
            SAMPLES.0 as f64,
            "samples",
            "of eight GPUs 64 values (a choice)",
        ),
        Threshold::new(
            "fewest of them",
            SAMPLES.1 as f64,
            "samples",
            "of fewer values a median is an accident (a choice)",
        ),
    ]
}

fn of_sums() -> [Threshold; 5] {
    [
        Threshold::new(
            "time over which sums are compared, where the exporter sums up",
            SECONDS[0],
            "s",
            "ten times what GPUs are read apart, so that a change of a tenth between two reads shows as 1 % (a choice)",
        ),
        Threshold::new(
            "that where pages come too rarely for it",
            SECONDS[1],
            "s",
            "three scrapes at 30 s (a choice)",
        ),
        Threshold::new(
            "least of it that must have been seen",
            LEAST_SECONDS,
            "s",
            "for the same reason",
        ),
        Threshold::new(
            "what sums of two GPUs may end apart",
            READ_APART,
            "s",
            "the exporter's worker reads each GPU once a second, and the exporter takes it up once a second",
        ),
        Threshold::new(
            "pieces of the time that tell how steady work is",
            PIECES as f64,
            "pieces",
            "two scrapes each, at 5 s (a choice)",
        ),
    ]
}

//! The numbers of the comparison of work.

use crate::core::classes::GPU_SLOW;
use crate::core::detectors::peers::{self, MIN_PEERS};
use crate::core::rules::{Rule, Threshold};

/// Ways to be called slow: far off for a short time, or less for longer (the lanes of the detection method, section 3.3).
pub(super) const LANES: usize = 2;
/// Excess over the node's median, and seconds over which sums must show it.
pub(super) const SUMS: [(f64, f64); LANES] = [(0.03, 30.0), (0.015, 90.0)];
/// Share of those seconds that pages must tell.
pub(super) const MIN_SEEN: f64 = 2.0 / 3.0;
/// Excess where there are only samples, and how many of the newest must all show it. The driver tells activity in tenths of
/// a per cent, and clocks in steps of three quarters of one.
pub(super) const SAMPLED: [(f64, usize); LANES] = [(0.08, 2), (0.03, 3)];
/// Time that the samples must reach back, if that takes more of them. An exporter reads each GPU by itself, once a
/// second, and later where it is busy: for seconds after work has changed, a page has some GPUs as they were before.
pub(super) const MIN_SECONDS: f64 = 4.5;
/// Samples that are looked at to see what the GPUs of a node differ by, at most, and the fewest that tell.
pub(super) const SAMPLES: (usize, usize) = (8, 4);
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
    let sums = SUMS.map(|(excess, seconds)| format!("{:.1} % over {seconds:.0} s", 100.0 * excess));
    let samples = SAMPLED
        .map(|(excess, samples)| format!("{:.0} % in each of {samples} samples", 100.0 * excess));
    format!(
        "above the median of at least {MIN_PEERS} GPUs of the node by {}, by what the exporter sums up, and by more than being read {READ_APART} s apart can make of work that is not steady; where nobody sums up by {}, and in all of {MIN_SECONDS} s; and by {ABOVE_SPREAD:.0} standard deviations of what the node's GPUs differ by",
        sums.join(" or "),
        samples.join(" or ")
    )
}

pub(super) fn rules() -> Vec<Rule> {
    let mut thresholds = peers::thresholds();
    thresholds.extend(of_sums());
    thresholds.extend(of_samples());
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

fn of_sums() -> Vec<Threshold> {
    let lanes = SUMS.map(|(excess, seconds)| {
        Threshold::new(
            format!("work above the median over {seconds:.0} s"),
            excess,
            "ratio",
            "lanes of the detection method, section 3.3: the time is fifteen times and more what GPUs are read apart (a choice)",
        )
    });
    let others = [
        Threshold::new(
            "share of that time that pages must tell",
            MIN_SEEN,
            "ratio",
            "a scrape may fail (a choice)",
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
    ];
    lanes.into_iter().chain(others).collect()
}

fn of_samples() -> Vec<Threshold> {
    let lanes = SAMPLED.map(|(excess, samples)| {
        Threshold::new(
            format!("work above the median in each of {samples} samples, where nobody sums up"),
            excess,
            "ratio",
            "lanes of the detection method, section 3.3; activity is told in tenths of a per cent, clocks in steps of 0.75 %",
        )
    });
    let others = [
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
    ];
    lanes.into_iter().chain(others).collect()
}

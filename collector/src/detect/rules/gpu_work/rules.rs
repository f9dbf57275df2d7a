//! The numbers of the comparison of work.

use super::{
    ABOVE_SPREAD, HELD_SECONDS, MIN_ACTIVE, MIN_SECONDS, MIN_SEEN, MOVED_SECONDS, PIECE_SECONDS,
    READ_APART, SAME_WORK, SAMPLED, SAMPLES, STANDARD, SUMS,
};
use crate::classes::GPU_SLOW;
use crate::detect::peers;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::tensor_activity::MAX_LATE;
use crate::store::MAX_STEP;

/// The numbers in words.
pub(super) fn threshold() -> String {
    let sums = SUMS.map(|(excess, seconds)| format!("{:.1} % over {seconds:.0} s", 100.0 * excess));
    let samples = SAMPLED
        .map(|(excess, samples)| format!("{:.0} % in each of {samples} samples", 100.0 * excess));
    format!(
        "above the median of at least {MIN_PEERS} GPUs of the node by {}, by what the exporter sums up, and by more than being read {READ_APART} s apart can make of work that is not steady, and by more than its clock has changed unless cycles are counted; where nobody sums up by {}, and in all of {MIN_SECONDS} s; and by {ABOVE_SPREAD:.0} standard deviations of what the node's GPUs differ by; for {HELD_SECONDS:.0} s, or {MOVED_SECONDS:.0} s where others were behind for less",
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
    thresholds.extend(of_time());
    vec![Rule::new(&GPU_SLOW, thresholds)]
}

fn of_time() -> [Threshold; 3] {
    [
        Threshold::new(
            "time for which a GPU must have been behind",
            HELD_SECONDS,
            "s",
            "work that is spread unevenly was seen to move on to other ranks after 20 s (a choice)",
        ),
        Threshold::new(
            "the same where another GPU of its job was behind for less",
            MOVED_SECONDS,
            "s",
            "there work moves (a choice)",
        ),
        Threshold::new(
            "tensor work above or below the median, of a GPU whose SMs are active for longer",
            SAME_WORK,
            "ratio",
            "a GPU that does other work is no peer (a choice)",
        ),
    ]
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
            "share of that time by which reads of the node's GPUs may begin late, summed",
            MAX_LATE,
            "ratio",
            "an exporter that waits for a CPU reads each GPU at another moment; reads less than 0.1 s late do not count (a choice)",
        ),
        Threshold::new(
            "longest step between two scrapes",
            MAX_STEP,
            "usual steps",
            "one scrape may fail, two in a row are a gap (a choice)",
        ),
        Threshold::new(
            "share of that time that pages must tell",
            MIN_SEEN,
            "ratio",
            "a scrape may fail (a choice)",
        ),
        Threshold::new(
            "what sums of two GPUs may end apart, at least",
            READ_APART,
            "s",
            "the exporter's worker reads each GPU once a second, and the exporter takes it up once a second; more where the exporter says so",
        ),
        Threshold::new(
            "pieces of the time that tell how steady work is",
            PIECE_SECONDS,
            "s",
            "a few steps, and a scrape (a choice)",
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

//! The numbers of the comparison of work.

use super::{
    ABOVE_SPREAD, ABOVE_SPREAD_OF_ALL, HELD_SECONDS, LOOSELY_SAME_WORK, MEANS, MEMORY, MIN_ACTIVE,
    MIN_ALL, MIN_SECONDS, MIN_SEEN, MOVED_SECONDS, PIECE_SECONDS, READ_APART, SAME_WORK, SAMPLED,
    SAMPLES, STANDARD, SUMS, TIMES_AS_MUCH, UNEQUAL_FOR_SECONDS, UNEQUAL_ON_NODE_SECONDS,
    UNEQUAL_SECONDS, UNEQUAL_SHARE, WIDEST_SPREAD,
};
use crate::classes::GPU_SLOW;
use crate::detect::peers;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::tensor_activity::MAX_LATE;
use crate::store::MAX_STEP;

/// The numbers as text.
pub(super) fn threshold() -> String {
    let sums = SUMS.map(|(excess, seconds)| format!("{:.1} % over {seconds:.0} s", 100.0 * excess));
    let samples = SAMPLED
        .map(|(excess, samples)| format!("{:.0} % in each of {samples} samples", 100.0 * excess));
    format!(
        "above the median of at least {MIN_PEERS} GPUs of the node by {} (cumulative counters of the exporter), by more than reads {READ_APART} s apart can cause when work varies, and by more than the GPU's clock has changed, unless cycles are counted; without cumulative counters, by {}, over at least {MIN_SECONDS} s, or {:.0} % in the mean activity of the SMs or the memory over {:.0} s (for memory never less than {:.0} %, and only with as many nodes in the job); and by {ABOVE_SPREAD:.0} standard deviations of the differences among the node's GPUs and {ABOVE_SPREAD_OF_ALL} of those among the GPUs of its job; for {HELD_SECONDS:.0} s, or {MOVED_SECONDS:.0} s if other GPUs were behind for less; not by tensor cores or memory where {:.0} % of its job's GPUs, at least two, were behind at once in the last {:.0} minutes, or two GPUs of one node in the last {:.0}",
        sums.join(" or "),
        samples.join(" or "),
        100.0 * MEANS.0,
        MEANS.1,
        100.0 * MEMORY,
        100.0 * UNEQUAL_SHARE,
        UNEQUAL_SECONDS / 60.0,
        UNEQUAL_ON_NODE_SECONDS / 60.0
    )
}

pub(super) fn rules() -> Vec<Rule> {
    let mut thresholds = peers::thresholds();
    thresholds.extend(of_sums());
    thresholds.extend(of_samples());
    thresholds.extend(super::shared::thresholds());
    thresholds.extend(super::waiting::thresholds());
    thresholds.extend([
        Threshold::new(
            "excess above the differences among the node's GPUs",
            ABOVE_SPREAD,
            "standard deviations",
            "short windows start at different points of a step (a choice)",
        ),
        Threshold::new(
            "the same above the differences among all GPUs of its job, or of its model",
            ABOVE_SPREAD_OF_ALL,
            "standard deviations",
            "of 100,000 normal values, 0.3 lie above; a few GPUs of one node do not show how much healthy ones differ (a choice)",
        ),
        Threshold::new(
            "minimum number of these GPUs",
            MIN_ALL as f64,
            "GPUs",
            "four nodes of eight; the spread of fewer is off by more than a fifth (a choice)",
        ),
        Threshold::new(
            "largest standard deviation that is taken for that of healthy GPUs of several jobs",
            WIDEST_SPREAD,
            "ratio",
            "GPUs that differ by more do different work (a choice)",
        ),
        Threshold::new(
            "standard deviation",
            STANDARD,
            "median absolute deviations",
            "the factor for a normal distribution",
        ),
        Threshold::new(
            "activity of the memory above the median",
            MEMORY,
            "ratio",
            "slow HBM in simulated clusters of five other authors shows 12 % and more (a choice)",
        ),
        Threshold::new(
            "activity of the median GPU of the node",
            MIN_ACTIVE,
            "ratio",
            "a GPU that computes less runs no step that can be compared (a choice)",
        ),
    ]);
    thresholds.extend(of_time());
    vec![Rule::new(&GPU_SLOW, thresholds)]
}

fn of_time() -> [Threshold; 9] {
    [
        Threshold::new(
            "time for which a GPU must have been behind",
            HELD_SECONDS,
            "s",
            "unevenly distributed work was seen to move to other ranks after 20 s (a choice)",
        ),
        Threshold::new(
            "the same time if another GPU of its job was behind for less",
            MOVED_SECONDS,
            "s",
            "in such a job the work moves (a choice)",
        ),
        Threshold::new(
            "share of a job's GPUs, at least two, or two GPUs of one node, that have more work at once, from which work is unequal",
            UNEQUAL_SHARE,
            "ratio",
            "experts of different load; faults are rarer (a choice)",
        ),
        Threshold::new(
            "time for which they must have had it",
            UNEQUAL_FOR_SECONDS,
            "s",
            "longer than a change of phase (a choice)",
        ),
        Threshold::new(
            "time for which unequal work of a job is remembered",
            UNEQUAL_SECONDS,
            "s",
            "its ranks have it by design (a choice)",
        ),
        Threshold::new(
            "the same of a node",
            UNEQUAL_ON_NODE_SECONDS,
            "s",
            "its jobs change (a choice)",
        ),
        Threshold::new(
            "largest difference in tensor work from the median, for a GPU whose SMs or memory are active for longer",
            SAME_WORK,
            "ratio",
            "a GPU that does different work is not a peer (a choice)",
        ),
        Threshold::new(
            "the same where its SMs differ by more than twice as much",
            LOOSELY_SAME_WORK,
            "ratio",
            "means of samples that are shorter than a step scatter (a choice)",
        ),
        Threshold::new(
            "how much more its SMs must differ then",
            TIMES_AS_MUCH,
            "times",
            "more work shows in both alike (a choice)",
        ),
    ]
}

fn of_sums() -> Vec<Threshold> {
    let lanes = SUMS.map(|(excess, seconds)| {
        Threshold::new(
            format!("work above the median over {seconds:.0} s"),
            excess,
            "ratio",
            "the time is at least 15 times the offset between reads of GPUs (a choice)",
        )
    });
    let others = [
        Threshold::new(
            "largest summed delay of reads of the node's GPUs, as a share of that time",
            MAX_LATE,
            "ratio",
            "an exporter that waits for a CPU reads each GPU at a different time; delays below 0.1 s do not count (a choice)",
        ),
        Threshold::new(
            "longest step between two scrapes",
            MAX_STEP,
            "usual steps",
            "one scrape may fail, two in a row are a gap (a choice)",
        ),
        Threshold::new(
            "share of that time that scrapes must cover",
            MIN_SEEN,
            "ratio",
            "a scrape may fail (a choice)",
        ),
        Threshold::new(
            "assumed offset between the reads of two GPUs, at least",
            READ_APART,
            "s",
            "the exporter's worker reads each GPU once per second, and the exporter reads the worker once per second; more if the exporter reports it",
        ),
        Threshold::new(
            "interval that measures how steady the work is",
            PIECE_SECONDS,
            "s",
            "a few steps, and one scrape (a choice)",
        ),
    ];
    lanes.into_iter().chain(others).collect()
}

fn of_samples() -> Vec<Threshold> {
    let lanes = SAMPLED.map(|(excess, samples)| {
        Threshold::new(
            format!(
                "work above the median in each of {samples} samples, without cumulative counters"
            ),
            excess,
            "ratio",
            "activity has a resolution of 0.1 %, clocks of 0.75 % (a choice)",
        )
    });
    let others = [
        Threshold::new(
            "mean activity of SMs above the median of the node's GPUs",
            MEANS.0,
            "ratio",
            "samples of a second show a slow GPU only while the others wait for it (a choice)",
        ),
        Threshold::new(
            "time of that mean, at most",
            MEANS.1,
            "s",
            "several steps (a choice)",
        ),
        Threshold::new(
            "samples of that mean, at least",
            MEANS.2 as f64,
            "samples",
            "as many phases of the step (a choice)",
        ),
        Threshold::new(
            "time that the samples must cover",
            MIN_SECONDS,
            "s",
            "exporters read GPUs one by one, so some values are outdated for seconds after a change (seen on a busy machine)",
        ),
        Threshold::new(
            "maximum number of samples to measure the differences among a node's GPUs",
            SAMPLES.0 as f64,
            "samples",
            "64 values for eight GPUs (a choice)",
        ),
        Threshold::new(
            "minimum number of these samples",
            SAMPLES.1 as f64,
            "samples",
            "a median of fewer values is not reliable (a choice)",
        ),
    ];
    lanes.into_iter().chain(others).collect()
}

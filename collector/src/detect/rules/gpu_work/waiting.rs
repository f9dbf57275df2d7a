//! Whether the other GPUs wait for a GPU that works for longer. The driver reports a rank that waits in a collective as utilized,
//! because its kernel spins. GPUs that are idle for as much of the time as they work less have less work.

use railscope_model::metric::GPU_UTILIZATION;

use crate::detect::gpus::Listed;
use crate::detect::peers::median;
use crate::detect::registry::Threshold;

/// Utilization from which a GPU is hardly ever idle.
const UTILIZED: f64 = 0.9;
/// Difference in utilization, as a share of the difference in work: half way between GPUs that wait, which are utilized as much,
/// and GPUs that have less work.
const SHARE: f64 = 0.5;
/// Least difference in utilization: a mean of a few samples, each a whole percent, is no more exact.
const LEAST: f64 = 0.05;
/// Time over which utilization is compared: a sample of the driver covers a second or less.
const SECONDS: f64 = 60.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 4] {
    [
        Threshold::new(
            "mean utilization of the other GPUs, below which they may have less work",
            UTILIZED,
            "ratio",
            "a rank that waits in a collective is utilized (a choice)",
        ),
        Threshold::new(
            "difference in utilization from which they do, as a share of the difference in work",
            SHARE,
            "ratio",
            "half way between waiting and idle GPUs (a choice)",
        ),
        Threshold::new(
            "and at least",
            LEAST,
            "ratio",
            "a mean of a few samples, each a whole percent, is no more exact (a choice)",
        ),
        Threshold::new(
            "over the last",
            SECONDS,
            "s",
            "a sample of the driver covers a second or less (a choice)",
        ),
    ]
}

/// Whether a GPU that works longer than the others of its node and job, by this share, has more work: they are idle meanwhile.
pub(super) fn has_more_to_do(gpu: &Listed<'_>, cohorts: &[Vec<Listed<'_>>], excess: f64) -> bool {
    let is_it = |one: &Listed<'_>| one.node == gpu.node && one.index == gpu.index;
    let Some(cohort) = cohorts.iter().find(|cohort| cohort.iter().any(is_it)) else {
        return false;
    };
    let others = cohort.iter().filter(|one| !is_it(one));
    let (Some(own), Some(others)) = (utilization(gpu), median(others.filter_map(utilization)))
    else {
        return false;
    };
    others < UTILIZED && own - others >= LEAST.max(SHARE * excess * others)
}

/// Mean utilization of the last [`SECONDS`].
fn utilization(gpu: &Listed<'_>) -> Option<f64> {
    let lately = gpu.lately(&GPU_UTILIZATION, SECONDS);
    let (sum, samples) = lately.fold((0.0, 0.0), |(sum, samples), (_, value)| {
        (sum + value, samples + 1.0)
    });
    (samples > 0.0).then(|| sum / samples)
}

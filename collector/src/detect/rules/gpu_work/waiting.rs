//! Whether the GPUs beside one that does more wait for it. A rank that waits in a collective spins in its kernel, so that the
//! driver reports it as utilized. GPUs that are idle for as much of the time as they do less have less to do.

use railscope_model::metric::GPU_UTILIZATION;

use crate::detect::gpus::Listed;
use crate::detect::peers::median;
use crate::detect::registry::Threshold;

/// Utilization from which a GPU has hardly any idle time.
const UTILIZED: f64 = 0.9;
/// Share of the excess that the excess of the utilization must reach: half way between GPUs that wait, which are utilized alike,
/// and GPUs that have less to do.
const SHARE: f64 = 0.5;
/// And beyond what chance makes of a few samples of whole percents.
const LEAST: f64 = 0.05;
/// The time over which utilization is compared: the driver samples the newest second or less.
const SECONDS: f64 = 60.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 4] {
    [
        Threshold::new(
            "mean utilization of the other GPUs, below which they may have less to do",
            UTILIZED,
            "ratio",
            "a rank that waits in a collective is utilized (a choice)",
        ),
        Threshold::new(
            "excess of its own utilization over theirs, in its excess, from which they have",
            SHARE,
            "ratio",
            "half way between waiting and idle GPUs (a choice)",
        ),
        Threshold::new(
            "and at least",
            LEAST,
            "ratio",
            "a mean of a few samples of whole percents (a choice)",
        ),
        Threshold::new(
            "over the last",
            SECONDS,
            "s",
            "a sample of the driver covers a second or less (a choice)",
        ),
    ]
}

/// Whether the other GPUs of its node and job are idle for as much of the time as this GPU exceeds them by `excess`.
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

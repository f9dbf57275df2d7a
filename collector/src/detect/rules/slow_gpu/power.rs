//! GPUs at their power limit: how much they draw, and how far their clocks fall, over the phases of a step.

use railscope_model::metric::{GPU_POWER, GPU_UTILIZATION};

use crate::detect::gpus::Listed;
use crate::detect::registry::Threshold;

/// What equal chips reach within one power limit differs by more: 8 % on average, up to 22 % (Sinha et al., SC 2022).
pub(super) const CAPPED_CHIPS_DIFFER: f64 = 0.15;
/// A GPU whose power limit is so much below that of its peers is throttled by its own limit;
/// where limits are not known, one that draws so much less power.
pub(super) const LOWER_LIMIT: f64 = 0.05;

/// Share of its power limit that a GPU draws at most for its clock to show what the limit allows.
pub(super) const AT_LIMIT: f64 = 0.9;

/// Time in which a GPU reaches the most power that it draws in a step, and the samples of it, at least.
pub(super) const POWER_SECONDS: f64 = 60.0;
const POWER_SAMPLES: usize = 4;

/// Utilization from which a GPU reaches its power limit, if it does: one with pauses, such as one that serves requests, has its
/// clock limited in bursts, and draws less on average.
const WITHOUT_PAUSE: f64 = 0.9;

/// The most that it drew lately: within a step, power rises to the limit and falls again. `None` where it paused within that
/// time: its peers may have drawn more meanwhile.
pub(super) fn power(gpu: &Listed<'_>) -> Option<f64> {
    let power = gpu.window(&GPU_POWER)?;
    let newest = power.latest()?.0;
    let lately = power.told_within(newest, POWER_SECONDS);
    let lately: Vec<f64> = lately.map(|(_, watts)| watts).collect();
    let mut utilization = gpu
        .window(&GPU_UTILIZATION)?
        .told_within(newest, POWER_SECONDS);
    let works = utilization.all(|(_, share)| share >= WITHOUT_PAUSE);
    let enough = works && lately.len() >= POWER_SAMPLES;
    enough.then(|| lately.into_iter().reduce(f64::max))?
}

/// Its lowest clock of the same time while it worked. In a step, a GPU computes at its power limit, and waits for others at
/// a higher clock: the newest samples of two GPUs may be of different phases.
pub(super) fn lowest_clock(gpu: &Listed<'_>) -> Option<f64> {
    let clocks = gpu.clock()?;
    let newest = clocks.latest()?.0;
    let mut seen = gpu.busy_within(2.0 * POWER_SECONDS).peekable();
    let clocks = clocks.told_within(newest, POWER_SECONDS);
    let busy = clocks.filter_map(|(at, hertz)| {
        // Newest first: what was seen last before this.
        while seen.next_if(|(later, _)| *later > at).is_some() {}
        seen.peek()
            .is_some_and(|(_, is_busy)| *is_busy)
            .then_some(hertz)
    });
    busy.reduce(f64::min)
}

/// The numbers of GPUs at their power limit.
pub(super) fn capped() -> [Threshold; 6] {
    [
        Threshold::new(
            "SM clock below the median peer that reaches the same power limit, for sw_power_cap",
            CAPPED_CHIPS_DIFFER,
            "ratio",
            "equal chips differ by 8 % on average, by 22 % at most (Sinha et al., SC 2022)",
        ),
        Threshold::new(
            "power of these peers, compared with the limit, or with the highest power of any where limits are unknown",
            AT_LIMIT,
            "ratio",
            "one that waits or works less runs at a higher clock (a choice)",
        ),
        Threshold::new(
            "power limit, or power where limits are unknown, below the median peer",
            LOWER_LIMIT,
            "ratio",
            "the power of equal chips at one limit differs by less (a choice)",
        ),
        Threshold::new(
            "time whose highest power is compared",
            POWER_SECONDS,
            "s",
            "a step has phases of high and of low power (a choice)",
        ),
        Threshold::new(
            "utilization all that time",
            WITHOUT_PAUSE,
            "ratio",
            "a GPU that pauses is at its limit in bursts, and draws less on average (a choice)",
        ),
        Threshold::new(
            "minimum number of its samples in that time",
            POWER_SAMPLES as f64,
            "samples",
            "fewer may all fall into the phase of low power (a choice)",
        ),
    ]
}

//! GPUs at their power limit: how much they draw, and how far their clocks fall, over the phases of a step.

use railscope_model::metric::GPU_POWER;

use crate::detect::gpus::Listed;
use crate::detect::registry::Threshold;

/// What equal chips reach within one power limit differs by more: 8 % on average, up to 22 % (Sinha et al., SC 2022).
pub(super) const CAPPED_CHIPS_DIFFER: f64 = 0.15;
/// A GPU whose power limit is so much below that of its peers is throttled by its own limit;
/// where limits are not known, one that draws so much less power.
pub(super) const LOWER_LIMIT: f64 = 0.05;

/// Time in which a GPU reaches the most power that it draws in a step, and the samples of it, at least.
pub(super) const POWER_SECONDS: f64 = 60.0;
const POWER_SAMPLES: usize = 4;

/// Power of GPUs that wait for one that computes, compared with it: of an H100, 170 to 300 W of 650.
pub(super) const WAITING: f64 = 0.6;

/// The most that it drew lately: within a step, power rises to the limit and falls again. `None` where it began to work
/// within that time: its peers may have drawn more before.
pub(super) fn power(gpu: &Listed<'_>) -> Option<f64> {
    let power = gpu.window(&GPU_POWER)?;
    let newest = power.latest()?.0;
    let lately = power.told_within(newest, POWER_SECONDS);
    let lately: Vec<f64> = lately.map(|(_, watts)| watts).collect();
    let (_, was_busy) = gpu.busy_within(POWER_SECONDS).last()?;
    let enough = was_busy && lately.len() >= POWER_SAMPLES;
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
pub(super) fn capped() -> [Threshold; 5] {
    [
        Threshold::new(
            "power of its peers, compared with it, below which they wait",
            WAITING,
            "ratio",
            "an H100 that waits draws less than half of its limit (a choice)",
        ),
        Threshold::new(
            "SM clock below the median peer with the same power limit, for sw_power_cap",
            CAPPED_CHIPS_DIFFER,
            "ratio",
            "equal chips differ by 8 % on average, by 22 % at most (Sinha et al., SC 2022)",
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
            "minimum number of its samples in that time",
            POWER_SAMPLES as f64,
            "samples",
            "fewer may all fall into the phase of low power (a choice)",
        ),
    ]
}

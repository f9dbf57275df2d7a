//! GPUs at their power limit: how much they draw, and how far their clocks fall, over the phases of a step.

use railscope_model::identity::NodeName;
use railscope_model::metric::{
    GPU_CLOCK, GPU_DRAM_BANDWIDTH, GPU_POWER, GPU_POWER_LIMIT, GPU_UTILIZATION,
};

use super::{AtLimit, at_limit, wide_job};
use crate::detect::cohort::Usual;
use crate::detect::gpus::Listed;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Threshold;

/// What nodes with too little power or too low a limit are found by.
pub(super) const CHECK: &str = "The SM clocks of most busy GPUs of a node are below those of equal busy GPUs, for one reason; or they fell together, with their power, while they worked.";

/// What equal chips reach within one power limit differs by more: 8 % on average, up to 22 % (Sinha et al., SC 2022).
pub(super) const CAPPED_CHIPS_DIFFER: f64 = 0.15;
/// A GPU whose power limit is so much below that of its peers is throttled by its own limit;
/// where limits are not known, one that draws so much less power.
pub(super) const LOWER_LIMIT: f64 = 0.05;
/// Share of a GPU's power from which one that draws it runs at the same clock, if it is as good: one that waits or has lighter
/// work runs at a higher one.
pub(super) const AS_MUCH: f64 = 0.9;
/// GPUs of these whose median clock is taken: those with the most similar power.
pub(super) const SAMPLE: usize = 64;

/// By how much the memory of a GPU is active for longer than that of the median peer, from which its work is heavier: at its
/// power limit it then runs at a lower clock. How long the memory takes does not depend on that clock.
const HEAVIER: f64 = 0.1;
/// The same as a share of the time: where memory is hardly active, a small difference is a large share.
const LONGER: f64 = 0.02;

/// Time in which a GPU reaches the most power that it draws in a step, and the samples of it, at least.
pub(super) const POWER_SECONDS: f64 = 60.0;
const POWER_SAMPLES: usize = 4;

/// Such times over which memory activity is measured where scrapes are slow: a minute between scrapes gives four samples.
const SLOW_SCRAPES: f64 = 4.0;

/// Utilization from which a GPU reaches its power limit, if it does, and the share of the time for which it must have had that:
/// one that pauses often, such as one that serves requests, has its clock limited in bursts, and draws less on average.
const WITHOUT_PAUSE: f64 = 0.9;
const MOST_OF_TIME: f64 = 0.5;

/// By how much its clock has risen within so many seconds while firmware still settles.
const RISING: f64 = 0.05;
const SETTLING_SECONDS: f64 = 45.0;

/// Whether it has worked without pause for most of the time lately.
pub(super) fn works_without_pause(gpu: &Listed<'_>) -> bool {
    let (mut all, mut working) = (0.0, 0.0);
    for (_, share) in gpu.lately(&GPU_UTILIZATION, POWER_SECONDS) {
        all += 1.0;
        working += f64::from(u8::from(share >= WITHOUT_PAUSE));
    }
    working > MOST_OF_TIME * all
}

/// Share of the time in which its memory is active; over a longer time where scrapes are slow, and `None` of few samples.
pub(super) fn memory_activity(gpu: &Listed<'_>) -> Option<f64> {
    let over = |seconds| {
        let shares = gpu.lately(&GPU_DRAM_BANDWIDTH, seconds);
        let shares: Vec<f64> = shares.map(|(_, share)| share).collect();
        let enough = shares.len() >= POWER_SAMPLES;
        enough.then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    over(POWER_SECONDS).or_else(|| over(SLOW_SCRAPES * POWER_SECONDS))
}

/// Whether its memory is active for longer than is usual, so that it has heavier work.
pub(super) fn is_heavier(own: Option<f64>, usual: Option<(f64, usize)>) -> bool {
    let known = own.zip(usual);
    known.is_some_and(|(own, (usual, _))| own > (usual + LONGER).max((1.0 + HEAVIER) * usual))
}

/// Whether its power limit was constant over the window: power and clocks under another limit cannot be
/// compared with those under this one.
pub(super) fn has_steady_limit(gpu: &Listed<'_>) -> bool {
    let mut limits = gpu.lately(&GPU_POWER_LIMIT, POWER_SECONDS);
    let newest = limits.next();
    newest.is_none_or(|(_, newest)| limits.all(|(_, watts)| watts.round() == newest.round()))
}

/// The most power that it drew lately: within a step, it rises to the limit and falls again. Zero where it is not known.
fn drawn(gpu: &Listed<'_>) -> f64 {
    let watts = gpu.lately(&GPU_POWER, POWER_SECONDS);
    watts.map(|(_, watts)| watts).fold(0.0, f64::max)
}

/// The same where it shows what the GPU may draw. `None` where it began to work within the window or paused for much of it: its
/// peers may have drawn more during that time.
pub(super) fn power(gpu: &Listed<'_>) -> Option<f64> {
    let samples = gpu.lately(&GPU_POWER, POWER_SECONDS).count();
    let (_, was_busy) = gpu.busy_within(POWER_SECONDS).last()?;
    (was_busy && samples >= POWER_SAMPLES && works_without_pause(gpu)).then(|| drawn(gpu))
}

/// Its lowest clock of the same time while it worked. In a step, a GPU computes at its power limit, and waits for others at
/// a higher clock: the newest samples of two GPUs may be of different phases.
fn lowest_clock(gpu: &Listed<'_>) -> Option<f64> {
    let mut seen = gpu.busy_within(2.0 * POWER_SECONDS).peekable();
    let clocks = gpu.lately(&GPU_CLOCK, POWER_SECONDS);
    let busy = clocks.filter_map(|(at, hertz)| {
        // Newest first: what was seen last before this.
        while seen.next_if(|(later, _)| *later > at).is_some() {}
        seen.peek()
            .is_some_and(|(_, is_busy)| *is_busy)
            .then_some(hertz)
    });
    busy.reduce(f64::min)
}

/// Whether its clock rises from sample to sample: its firmware has not settled after its load changed.
pub(super) fn is_settling(gpu: &Listed<'_>) -> bool {
    let clocks = gpu.lately(&GPU_CLOCK, SETTLING_SECONDS);
    // Newest first.
    let clocks: Vec<f64> = clocks.map(|(_, hertz)| hertz).collect();
    let [newest, _, .., oldest] = clocks[..] else {
        return false;
    };
    clocks.is_sorted_by(|later, earlier| later >= earlier) && newest >= (1.0 + RISING) * oldest
}

/// What a GPU drew at most, W, and its lowest clock, Hz, lately.
type Drawn = (f64, f64);

/// Busy GPUs by model and power limit, those that drew least first.
pub(super) struct Capped<'a> {
    alike: Usual<AtLimit<'a>, Vec<Drawn>>,
    of_node: Usual<(&'a NodeName, AtLimit<'a>), Vec<Drawn>>,
}

/// What GPUs under each power limit draw and run at.
pub(super) fn by_power<'a>(gpus: &[Listed<'a>]) -> Capped<'a> {
    let drawn = gpus
        .iter()
        .filter(|gpu| has_steady_limit(gpu))
        .filter_map(|gpu| Some((gpu, (drawn(gpu), lowest_clock(gpu)?))));
    let drawn: Vec<_> = drawn.collect();
    let in_order = |mut gpus: Vec<Drawn>| {
        gpus.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(gpus)
    };
    let alike = drawn.iter();
    let alike = alike.map(|(gpu, own)| (wide_job(gpu), at_limit(gpu), *own));
    let of_node = drawn.iter();
    let of_node = of_node.map(|(gpu, own)| (gpu.job, (gpu.node, at_limit(gpu)), *own));
    Capped {
        alike: Usual::new(alike, in_order),
        of_node: Usual::new(of_node, in_order),
    }
}

/// The median lowest clock of the GPUs with the power most similar to this GPU's, of its job if they are enough, and their
/// number, including it. Otherwise the lower of two medians, of all GPUs and of the GPUs of its node and job: within one
/// power limit heavier work runs at a lower clock.
pub(super) fn clock_of_its_power<'a>(
    capped: &Capped<'a>,
    gpu: &Listed<'a>,
) -> Option<(f64, usize)> {
    let (watts, limit) = (drawn(gpu), at_limit(gpu));
    let near = |gpus: &Vec<Drawn>| usual_near(gpus, watts);
    let own = capped.alike.of_job(wide_job(gpu), &limit).and_then(near);
    own.or_else(|| {
        let all = capped.alike.of_all(&limit).and_then(near)?;
        let on_node = (gpu.node, limit);
        let mut node = capped.of_node.cohorts(gpu.job, &on_node);
        // Below its power limit a GPU is slowed by another cause.
        let reaches = limit.1.is_none_or(|limit| watts >= AS_MUCH * limit as f64);
        let lower = node.find_map(near).filter(|node| reaches && node.0 < all.0);
        Some(lower.unwrap_or(all))
    })
}

/// The median clock of the GPUs with the most similar power, and their number.
fn usual_near(gpus: &[Drawn], watts: f64) -> Option<(f64, usize)> {
    let first = gpus.partition_point(|(other, _)| *other < AS_MUCH * watts);
    let own = gpus.partition_point(|(other, _)| *other < watts);
    let begin = own.saturating_sub(SAMPLE / 2).max(first);
    let end = gpus.len().min(begin + SAMPLE);
    let near = &gpus[begin..end];
    let clocks = near.iter().map(|(_, hertz)| *hertz);
    (near.len() >= MIN_PEERS).then(|| Some((median(clocks)?, near.len())))?
}

/// The numbers of GPUs at their power limit.
pub(super) fn capped() -> [Threshold; 11] {
    [
        Threshold::new(
            "SM clock below the median peer with the same power limit, for sw_power_cap",
            CAPPED_CHIPS_DIFFER,
            "ratio",
            "equal chips differ by 8 % on average, by 22 % at most (Sinha et al., SC 2022)",
        ),
        Threshold::new(
            "power of these peers, compared with its own, at least",
            AS_MUCH,
            "ratio",
            "one that waits or works less runs at a higher clock (a choice)",
        ),
        Threshold::new(
            "GPUs of these whose median is taken, those that draw most nearly as much",
            SAMPLE as f64,
            "GPUs",
            "more change the median little (a choice)",
        ),
        Threshold::new(
            "time in which its memory is active, compared with the median peer, from which its work is heavier",
            1.0 + HEAVIER,
            "times",
            "at one power limit heavier work runs at a lower clock; memory does not depend on that clock (a choice)",
        ),
        Threshold::new(
            "the same as a share of the time, and",
            LONGER,
            "ratio",
            "where memory is hardly active, a small difference is a large share (a choice)",
        ),
        Threshold::new(
            "time over which that is measured where scrapes are slow, in times of the usual one",
            SLOW_SCRAPES,
            "times",
            "a minute between scrapes gives four samples",
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
            "utilization of a GPU that works without pause",
            WITHOUT_PAUSE,
            "ratio",
            "one that pauses is at its limit in bursts, and draws less on average (a choice)",
        ),
        Threshold::new(
            "share of that time for which it must do so, more than",
            MOST_OF_TIME,
            "ratio",
            "a training job pauses for checkpoints (a choice)",
        ),
        Threshold::new(
            "minimum number of samples of memory activity, and of power where limits are unknown",
            POWER_SAMPLES as f64,
            "samples",
            "fewer may all fall into the phase of low power (a choice)",
        ),
    ]
}

/// The numbers of GPUs whose clock is not compared yet.
pub(super) fn settling() -> [Threshold; 2] {
    [
        Threshold::new(
            "rise of its clock from which it is not compared, at a power cap",
            RISING,
            "ratio",
            "firmware settles after its load has changed, and what holds a clock down does not (a choice)",
        ),
        Threshold::new(
            "within",
            SETTLING_SECONDS,
            "s",
            "several scrapes (a choice)",
        ),
    ]
}

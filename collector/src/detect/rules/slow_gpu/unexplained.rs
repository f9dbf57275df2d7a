//! GPUs whose clock is low for no reason that is reported: many exporters report none.

use railscope_model::fabric::Timestamp;
use railscope_model::metric::{GPU_CLOCK, GPU_POWER};

use super::power::{AS_MUCH, is_settling};
use super::{POWER_CAP, SLOW_COMPUTE, SLOWDOWNS, active, has_reason};
use crate::classes::GPU_SLOW;
use crate::detect::detector::Evidence;
use crate::detect::gpus::{Listed, by_job};
use crate::detect::peers::{MAJORITY, MIN_PEERS, median};
use crate::detect::registry::Threshold;
use crate::store::Window;

/// What a slow GPU is found by, with a reported reason and without.
pub(super) const CHECK: &str = "A busy GPU's SM clock is below that of equal busy GPUs, and the driver reports a reason; or its memory clock, at no lower power, or its SM clock, at no higher power, is far below that of the other GPUs of its node and job.";
/// Smallest drop below the median of the node's GPUs. Chips of one product differ by several percent at a power limit.
pub(super) const MIN_DROP: f64 = 0.1;
/// For how long the clock must have been as low.
pub(super) const HELD_SECONDS: f64 = 30.0;

/// A clock that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    Sm,
    Memory,
}

impl Clock {
    fn of<'a>(self, gpu: &Listed<'a>) -> Option<Window<'a>> {
        match self {
            Self::Sm => gpu.clock(),
            Self::Memory => gpu.memory_clock(),
        }
    }
}

/// Those among busy GPUs of one node whose SM or memory clock is low, without those of `is_held`, which are found to be throttled for
/// a reported reason. A reason that most GPUs have, such as their power limit, explains the SM clock of each.
pub(super) fn find(
    now: Timestamp,
    node: &[Listed<'_>],
    is_held: impl Fn(&Listed<'_>) -> bool,
) -> Vec<Evidence> {
    let mut found = Vec::new();
    for mut gpus in by_job(node) {
        gpus.sort_by_key(|gpu| gpu.product);
        for gpus in gpus.chunk_by(|a, b| a.product == b.product) {
            of_sms(now, gpus, &is_held, &mut found);
            of_memories(now, gpus, &mut found);
        }
    }
    found
}

fn of_sms(
    now: Timestamp,
    gpus: &[Listed<'_>],
    is_held: &impl Fn(&Listed<'_>) -> bool,
    found: &mut Vec<Evidence>,
) {
    let Some(usual) = Usual::of(gpus, Clock::Sm) else {
        return;
    };
    let mut low = gpus.iter().filter(|gpu| usual.is_low(now, gpu)).peekable();
    if low.peek().is_none() {
        return;
    }
    let with_reason = gpus.iter().filter(|gpu| has_reason(gpu)).count();
    let is_shared = with_reason as f64 >= MAJORITY * gpus.len() as f64;
    let low = low.filter(|gpu| !(is_held(gpu) || is_shared && has_reason(gpu)));
    found.extend(low.filter_map(|gpu| evidence(gpu, &usual)));
}

/// A power cap lowers no clock of a memory.
fn of_memories(now: Timestamp, gpus: &[Listed<'_>], found: &mut Vec<Evidence>) {
    let Some(usual) = Usual::of(gpus, Clock::Memory) else {
        return;
    };
    let has_other_reason = |gpu: &Listed<'_>| {
        let mut others = SLOWDOWNS.iter().filter(|why| why.reason != POWER_CAP);
        others.any(|why| active(gpu, why).is_some())
    };
    let low = gpus
        .iter()
        .filter(|gpu| usual.is_low(now, gpu) && !has_other_reason(gpu));
    found.extend(low.filter_map(|gpu| evidence(gpu, &usual)));
}

/// What the GPUs do that one job has on a node, or those of the median node.
pub(super) struct Usual {
    pub(super) clock: Clock,
    pub(super) clock_hertz: f64,
    pub(super) power_watts: Option<f64>,
    /// How many GPUs or nodes they are.
    pub(super) gpus: usize,
}

impl Usual {
    /// `None` of too few, and of clocks that do not agree.
    fn of(gpus: &[Listed<'_>], clock: Clock) -> Option<Self> {
        let clocks = gpus.iter().filter_map(|gpu| clock.of(gpu)?.value());
        let clocks: Vec<_> = clocks.collect();
        let clock_hertz = median(clocks.iter().copied()).filter(|clock| *clock > 0.0)?;
        let is_alike = |clock: &&f64| (*clock / clock_hertz - 1.0).abs() <= SLOW_COMPUTE;
        let alike = clocks.iter().filter(is_alike).count();
        let agree = alike as f64 >= MAJORITY * clocks.len() as f64;
        let power = gpus.iter().filter_map(|gpu| gpu.value(&GPU_POWER));
        (clocks.len() >= MIN_PEERS && agree).then_some(Self {
            clock,
            clock_hertz,
            power_watts: median(power),
            gpus: clocks.len(),
        })
    }

    /// Whether a GPU has run far below the others while it computed, and not because it has more to do: at its power limit a GPU
    /// that works harder runs slower. An idle GPU has a low clock; a single idle sample falls between two steps.
    pub(super) fn is_low(&self, now: Timestamp, gpu: &Listed<'_>) -> bool {
        let Some(clock) = self.clock.of(gpu) else {
            return false;
        };
        let limit = (1.0 - MIN_DROP) * self.clock_hertz;
        let mut is_seen_so_long = false;
        let mut busy = gpu.busy_within(f64::INFINITY).peekable();
        let mut was_idle = false;
        for (at, clock) in clock.told() {
            while busy.next_if(|(then, _)| *then > at).is_some() {}
            if busy.peek().is_some_and(|(_, is_busy)| !is_busy) {
                if was_idle {
                    return false;
                }
                was_idle = true;
                continue;
            }
            was_idle = false;
            if clock > limit {
                return false;
            }
            if now.seconds_since(at) >= HELD_SECONDS {
                is_seen_so_long = true;
                break;
            }
        }
        let power = gpu.value(&GPU_POWER).zip(self.power_watts);
        is_seen_so_long
            && match self.clock {
                Clock::Sm => !is_settling(gpu) && power.is_none_or(|(own, usual)| own <= usual),
                // Firmware lowers the clock of a memory with little to do. One that is slow works while the others wait.
                Clock::Memory => power.is_some_and(|(own, usual)| own >= AS_MUCH * usual),
            }
    }
}

fn evidence(gpu: &Listed<'_>, usual: &Usual) -> Option<Evidence> {
    let clock_hertz = usual.clock.of(gpu)?.value()?;
    let (whose, power) = match usual.clock {
        Clock::Sm => ("", ", and it draws no more power"),
        Clock::Memory => ("The memory of ", ", and it draws no less power"),
    };
    let drop = 1.0 - clock_hertz / usual.clock_hertz;
    let part = gpu.part();
    Some(Evidence {
        detector: "slow-gpu",
        signal: GPU_CLOCK.name,
        class: &GPU_SLOW,
        effect: drop,
        statement: format!(
            "{whose}GPU {} of {} runs at {:.0} MHz, {:.0} % below the median {:.0} MHz of the {} busy GPUs of its node{power}; no reason is reported.",
            gpu.index,
            gpu.node,
            clock_hertz * 1e-6,
            100.0 * drop,
            usual.clock_hertz * 1e-6,
            usual.gpus
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "SM clock, or memory clock, below the median of the node's GPUs of its job, without a reason",
            MIN_DROP,
            "ratio",
            "chips of one product differ by several percent at their power limit (a choice)",
        ),
        Threshold::new(
            "for",
            HELD_SECONDS,
            "s",
            "several scrapes: a single one is not enough (a choice)",
        ),
    ]
}

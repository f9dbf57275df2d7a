//! GPUs that have become hotter than the others of their node within minutes, at the same load: their cooling has just failed.
//!
//! Some GPUs are always warmer than others, by their place in the air, and the more so the more they draw. So each is compared
//! with the others of its node now and before, while power and temperature of the others stay what they were.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::{GPU_POWER, GPU_TEMPERATURE};

use super::{ALIKE_POWER, mean};
use crate::detect::detector::View;
use crate::detect::gpus::{Listed, by_node};
use crate::detect::peers::median;
use crate::detect::registry::Threshold;

/// Rise against the others of the node, in kelvin, from which a GPU's cooling has failed.
const MIN_RISE: f64 = 6.0;
/// Samples of [`NOW`], of which fewer show only a rise of [`MORE`] times as much: the power of a GPU that serves requests varies, its
/// mean over few samples even more, and its temperature follows.
const MIN_SAMPLES: usize = 3;
const MORE: f64 = 2.0;
/// Share of it below which the GPU has recovered.
const STILL: f64 = 0.5;
/// Most that any other GPU may have become warmer or cooler meanwhile, in kelvin.
const STEADY: f64 = 3.0;
/// Excess over the node's median GPU below which a GPU is not evaluated.
const WARMER: f64 = 3.0;
/// Ages of samples that are compared, in seconds: the newest, and those from before a GPU warmed up.
const NOW: [f64; 2] = [0.0, 30.0];
const BEFORE: [f64; 2] = [90.0, 150.0];
/// Fewest other GPUs of the node.
const MIN_OTHERS: usize = 3;
/// How long a GPU is remembered as hot while it cannot be compared.
const REMEMBERED_SECONDS: f64 = 600.0;

/// The rule's own numbers.
pub(super) fn numbers() -> [Threshold; 10] {
    let choice = "longer than a GPU needs to warm up (a choice)";
    [
        Threshold::new(
            "or: rise against the other GPUs of its node",
            MIN_RISE,
            "K",
            "at a steady load, temperatures of GPUs change by 2 K at most (a choice)",
        ),
        Threshold::new(
            "samples in half a minute, for fewer of which it must rise by more",
            MIN_SAMPLES as f64,
            "samples",
            "the mean power of few samples does not show the load (a choice)",
        ),
        Threshold::new("that much more", MORE, "times", "a choice"),
        Threshold::new(
            "largest change of any of these",
            STEADY,
            "K",
            "beyond, the load or the room changes, and each GPU follows by how it is cooled (a choice)",
        ),
        Threshold::new(
            "share of that rise below which it has recovered",
            STILL,
            "ratio",
            "a temperature near the limit would open one incident after the other (a choice)",
        ),
        Threshold::new(
            "excess over the median GPU of the node, at least",
            WARMER,
            "K",
            "a GPU that was the coolest and is not the hottest has no heat to lose (a choice)",
        ),
        Threshold::new("from an age of", BEFORE[0], "s", choice),
        Threshold::new("to the newest", NOW[1], "s", choice),
        Threshold::new(
            "other GPUs of the node, at least",
            MIN_OTHERS as f64,
            "GPUs",
            "the median of fewer follows one of them",
        ),
        Threshold::new(
            "remembered while it cannot be compared",
            REMEMBERED_SECONDS,
            "s",
            "a job that pauses or a node that restarts (a choice)",
        ),
    ]
}

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "or {MIN_RISE:.0} K hotter against the median of the other GPUs of its node than {:.0} s before, while its power changed by less than {:.0} % and their temperatures by less than {STEADY:.0} K, until less than half of that is left",
        BEFORE[0],
        100.0 * ALIKE_POWER
    )
}

/// A GPU that has become hotter, and by how much.
pub(super) struct Risen<'a> {
    pub(super) gpu: Listed<'a>,
    /// Against the others of its node, K.
    pub(super) by: f64,
}

/// GPUs that have become hotter. History is minutes long, a GPU may stay hot for days.
#[derive(Debug, Default)]
pub(super) struct Rises(BTreeMap<(NodeName, GpuIndex), Hot>);

/// A GPU that is hot.
#[derive(Debug, Clone, Copy)]
struct Hot {
    /// Its excess over the others of its node before, K.
    before: f64,
    /// When it was last compared.
    last: Timestamp,
}

impl Rises {
    pub(super) fn find<'a>(&mut self, view: &View<'a>, gpus: &[Listed<'a>]) -> Vec<Risen<'a>> {
        let mut found = Vec::new();
        for node in by_node(gpus).filter(|node| node.len() > MIN_OTHERS) {
            let celsius: Vec<_> = node.iter().map(latest).collect();
            let Some(usual) = median(celsius.iter().copied().flatten()) else {
                continue;
            };
            for (gpu, own) in node.iter().zip(&celsius) {
                let is_warm = own.is_some_and(|own| own - usual >= WARMER);
                if !is_warm && self.0.is_empty() {
                    continue;
                }
                let key = (gpu.node.clone(), gpu.index);
                let known = self.0.get(&key).copied();
                if known.is_none() && !is_warm {
                    continue;
                }
                let Some(now) = excess(view, gpu, node, NOW) else {
                    continue;
                };
                let before = known.map(|hot| hot.before);
                let before = before.or_else(|| excess_before(view, gpu, node, now));
                let least = known.map_or(1.0, |_| STILL) * MIN_RISE;
                match before.filter(|before| now - before >= least) {
                    Some(before) => {
                        let last = view.now;
                        self.0.insert(key, Hot { before, last });
                        let by = now - before;
                        found.push(Risen { gpu: *gpu, by });
                    }
                    None => {
                        self.0.remove(&key);
                    }
                }
            }
        }
        self.0
            .retain(|_, hot| view.now.seconds_since(hot.last) <= REMEMBERED_SECONDS);
        found
    }
}

fn latest(gpu: &Listed<'_>) -> Option<f64> {
    gpu.window(&GPU_TEMPERATURE)?.value()
}

/// The median of a value over the other GPUs of a node.
fn of_others(
    gpu: &Listed<'_>,
    node: &[Listed<'_>],
    value: impl Fn(&Listed<'_>) -> Option<f64>,
) -> Option<f64> {
    let others = node.iter().filter(|other| other.index != gpu.index);
    let others: Vec<_> = others.filter_map(value).collect();
    (others.len() >= MIN_OTHERS).then(|| median(others))?
}

/// How much hotter a GPU was than the others of its node, K.
fn excess(view: &View<'_>, gpu: &Listed<'_>, node: &[Listed<'_>], ages: [f64; 2]) -> Option<f64> {
    let celsius = |gpu: &Listed<'_>| mean(view, gpu, &GPU_TEMPERATURE, ages);
    Some(celsius(gpu)? - of_others(gpu, node, celsius)?)
}

/// The same before a GPU became as hot as it is now, if it did so while the load and the room stayed the same: GPUs warm up by
/// more or less, each by how it is cooled.
fn excess_before(view: &View<'_>, gpu: &Listed<'_>, node: &[Listed<'_>], now: f64) -> Option<f64> {
    let celsius = gpu.window(&GPU_TEMPERATURE)?;
    let (oldest, _) = celsius.told_within(view.now, BEFORE[1]).last()?;
    let is_covered = view.now.seconds_since(oldest) >= f64::midpoint(BEFORE[0], BEFORE[1]);
    let before = excess(view, gpu, node, BEFORE).filter(|_| is_covered)?;
    let samples = celsius.told_within(view.now, NOW[1]).count();
    let least = if samples < MIN_SAMPLES { MORE } else { 1.0 } * MIN_RISE;
    if now - before < least {
        return None;
    }
    let others = node.iter().filter(|other| other.index != gpu.index);
    let mut changes = others.filter_map(|other| {
        let celsius = |ages| mean(view, other, &GPU_TEMPERATURE, ages);
        Some(celsius(NOW)? - celsius(BEFORE)?)
    });
    let watts = |ages| mean(view, gpu, &GPU_POWER, ages);
    let usual = watts(BEFORE)?;
    // Heat follows power by a minute or more.
    let mut meanwhile = [NOW, [NOW[1], BEFORE[0]]].into_iter();
    let is_alike = meanwhile
        .all(|ages| watts(ages).is_some_and(|watts| (watts / usual - 1.0).abs() <= ALIKE_POWER));
    let is_steady = changes.all(|change| change.abs() <= STEADY);
    (is_alike && is_steady).then_some(before)
}

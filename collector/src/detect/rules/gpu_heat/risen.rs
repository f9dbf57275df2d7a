//! GPUs that have become hotter than the others of their node within minutes, at the same load: their cooling has just failed.
//!
//! Some GPUs are always warmer than others, by their place in the air, and the more so the more they draw. So each is compared
//! with the others of its node now and before, while power and temperature of the others stay what they were.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::{GPU_POWER, GPU_TEMPERATURE};

use super::ALIKE_POWER;
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

/// Length of the spans of time of which a GPU's greatest excess is kept, in seconds, and how many. A GPU that was slowed warms up
/// for minutes when it no longer is, to what it was before.
const SPAN_SECONDS: u64 = 120;
const SPANS: usize = 10;
/// The newest spans, in which it became so hot.
const RISING_SPANS: u64 = 2;

/// Power of a GPU, as a multiple of that of the others of its node, from which it works alone: it is hotter for that, and warms up
/// for minutes after its work began.
const ALONE: f64 = 1.5;

/// The rule's own numbers.
pub(super) fn numbers() -> impl Iterator<Item = Threshold> {
    of_rise().into_iter().chain(of_past())
}

fn of_rise() -> [Threshold; 10] {
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

/// Those of what was usual before.
fn of_past() -> [Threshold; 4] {
    [
        Threshold::new(
            "spans of time in whose earlier ones it was not as hot",
            SPANS as f64,
            "spans",
            "a GPU that was slowed for 15 minutes was as hot before (a choice)",
        ),
        Threshold::new(
            "power in these and now, as a multiple of the other GPUs, below",
            ALONE,
            "times",
            "a GPU that works alone is hotter for that, the more so minutes after its work began (a choice)",
        ),
        Threshold::new(
            "length of such a span",
            SPAN_SECONDS as f64,
            "s",
            "a choice",
        ),
        Threshold::new(
            "newest ones, in which it became hot",
            RISING_SPANS as f64,
            "spans",
            "longer than a GPU needs to warm up (a choice)",
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
pub(super) struct Rises {
    hot: BTreeMap<(NodeName, GpuIndex), Hot>,
    /// Of each GPU of a node.
    peaks: HashMap<NodeName, Vec<(GpuIndex, Peaks)>, FixedState>,
}

/// The greatest excess of a GPU over the median GPU of its node, in K, by span of time.
#[derive(Debug, Clone, Copy)]
struct Peaks {
    newest: u64,
    spans: [f32; SPANS],
}

impl Peaks {
    fn new(span: u64) -> Self {
        let (newest, spans) = (span, [f32::NEG_INFINITY; SPANS]);
        Self { newest, spans }
    }

    fn go_to(&mut self, span: u64) {
        let passed = span.saturating_sub(self.newest).min(SPANS as u64);
        for span in span + 1 - passed..=span {
            self.spans[Self::place(span)] = f32::NEG_INFINITY;
        }
        self.newest = span.max(self.newest);
    }

    fn add(&mut self, span: u64, excess: f64) {
        let peak = &mut self.spans[Self::place(span)];
        *peak = peak.max(excess as f32);
    }

    /// Forgets the time in which it became hot.
    fn forget_rise(&mut self) {
        for age in 0..RISING_SPANS {
            self.spans[Self::place(self.newest.saturating_sub(age))] = f32::NEG_INFINITY;
        }
    }

    /// Before it became as hot as it is.
    fn earlier(&self) -> f64 {
        let ages = RISING_SPANS..SPANS as u64;
        let earlier = ages.map(|age| self.spans[Self::place(self.newest.saturating_sub(age))]);
        earlier.fold(f64::NEG_INFINITY, |most, peak| most.max(peak.into()))
    }

    fn place(span: u64) -> usize {
        (span % SPANS as u64) as usize
    }
}

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
        let span = view.now.0 / (1000 * SPAN_SECONDS);
        let mut found = Vec::new();
        for node in by_node(gpus).filter(|node| node.len() > MIN_OTHERS) {
            let celsius: Vec<_> = node.iter().map(latest).collect();
            let Some(usual) = median(celsius.iter().copied().flatten()) else {
                continue;
            };
            let (hot, peaks) = (&mut self.hot, self.peaks.entry(node[0].node.clone()));
            let peaks = peaks.or_default();
            for (gpu, own) in node.iter().zip(&celsius) {
                let Some(warmer) = own.map(|own| own - usual) else {
                    continue;
                };
                // Mostly none is hot, and no key is needed.
                let known = if hot.is_empty() {
                    None
                } else {
                    hot.get(&(gpu.node.clone(), gpu.index)).copied()
                };
                let peaks = peaks_of(peaks, gpu.index, span);
                if known.is_none() {
                    let is_warm = warmer >= WARMER;
                    if is_warm && !draws_as_much(gpu, node) {
                        continue;
                    }
                    peaks.add(span, warmer);
                    if !is_warm {
                        continue;
                    }
                }
                let risen = compare(hot, view, (gpu, node), known, peaks.earlier());
                if known.is_none() && risen.is_some() {
                    peaks.forget_rise();
                }
                found.extend(risen);
            }
        }
        self.hot
            .retain(|_, hot| view.now.seconds_since(hot.last) <= REMEMBERED_SECONDS);
        let is_recent = |(_, peaks): &(_, Peaks)| peaks.newest + SPANS as u64 > span;
        self.peaks.retain(|_, gpus| gpus.iter().any(is_recent));
        found
    }
}

/// Compares a GPU with the others of its node; `earlier` was its greatest excess before it rose.
fn compare<'a>(
    hot: &mut BTreeMap<(NodeName, GpuIndex), Hot>,
    view: &View<'a>,
    (gpu, node): (&Listed<'a>, &[Listed<'a>]),
    known: Option<Hot>,
    earlier: f64,
) -> Option<Risen<'a>> {
    let now = excess(view, gpu, node, NOW)?;
    let before = match known {
        Some(hot) => Some(hot.before),
        None if now - earlier < STILL * MIN_RISE => None,
        None => excess_before(view, gpu, node, now),
    };
    let least = known.map_or(1.0, |_| STILL) * MIN_RISE;
    let key = (gpu.node.clone(), gpu.index);
    let Some(before) = before.filter(|before| now - before >= least) else {
        hot.remove(&key);
        return None;
    };
    let last = view.now;
    hot.insert(key, Hot { before, last });
    let by = now - before;
    Some(Risen { gpu: *gpu, by })
}

/// The peaks of a GPU of a node in a span of time.
fn peaks_of(peaks: &mut Vec<(GpuIndex, Peaks)>, index: GpuIndex, span: u64) -> &mut Peaks {
    let place = peaks.iter().position(|(of, _)| *of == index);
    let place = place.unwrap_or_else(|| {
        peaks.push((index, Peaks::new(span)));
        peaks.len() - 1
    });
    let (_, peaks) = &mut peaks[place];
    peaks.go_to(span);
    peaks
}

/// Whether a GPU does not work alone: its power is about that of the others of its node.
fn draws_as_much(gpu: &Listed<'_>, node: &[Listed<'_>]) -> bool {
    let watts = |gpu: &Listed<'_>| gpu.window(&GPU_POWER)?.value();
    let pair = watts(gpu).zip(of_others(gpu, node, watts));
    pair.is_some_and(|(own, usual)| own <= ALONE * usual)
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
    let celsius = |gpu: &Listed<'_>| gpu.mean(&GPU_TEMPERATURE, view.now, ages);
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
        let celsius = |ages| other.mean(&GPU_TEMPERATURE, view.now, ages);
        Some(celsius(NOW)? - celsius(BEFORE)?)
    });
    let watts = |ages| gpu.mean(&GPU_POWER, view.now, ages);
    let usual = watts(BEFORE)?;
    // Heat follows power by a minute or more.
    let mut meanwhile = [NOW, [NOW[1], BEFORE[0]]].into_iter();
    let is_alike = meanwhile
        .all(|ages| watts(ages).is_some_and(|watts| (watts / usual - 1.0).abs() <= ALIKE_POWER));
    let is_steady = changes.all(|change| change.abs() <= STEADY);
    (is_alike && is_steady).then_some(before)
}

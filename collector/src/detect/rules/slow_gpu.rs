//! GPUs that their driver holds back while their peers run free, and nodes that hold back all of theirs.

mod evidence;
mod fallen_nodes;
mod hot_nodes;
mod limits;
mod power;
mod samples;
mod unexplained;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::hash::Hash;

use railscope_model::metric::{GPU_CLOCK_EVENT, GPU_CLOCK_EVENT_SECONDS, GPU_POWER_LIMIT};

use self::evidence::{of_one, of_whole_node, shared_cause};
use self::fallen_nodes::Fallen;
use self::limits::Lowered;
use self::power::{
    AS_MUCH, CAPPED_CHIPS_DIFFER, Capped, LOWER_LIMIT, POWER_SECONDS, SAMPLE, by_power, capped,
    clock_of_its_power, has_steady_limit, is_heavier, is_settling, memory_activity, power,
    settling, works_without_pause,
};
use self::samples::Samples;
use crate::classes::{Class, GPU_SLOW, HOST_COOLING, HOST_POWER, POWER_LIMIT};
use crate::detect::cohort::Usual;
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus;
use crate::detect::gpus::{Listed, by_node};
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::job::{Job, JobName};
use crate::stages::Step;

/// The window over which clock events are summed.
pub(crate) const WINDOW_SECONDS: f64 = 60.0;
/// Share of that window in which an event must have been active.
const MIN_EVENT_SHARE: f64 = 0.05;

/// Why a driver holds a clock down.
struct Slowdown {
    /// The event's name.
    reason: &'static str,
    /// Smallest drop of the SM clock below the median peer that is a fault.
    min_drop: f64,
    /// What is wrong with a node of which most GPUs are throttled so.
    of_node: &'static Class,
}

/// Two clock steps of an H100 are 1.5 %, and equal chips differ by that. The smallest drop of all [`SLOWDOWNS`].
const CHIPS_DIFFER: f64 = 0.02;
/// Below it compute is not slow.
const SLOW_COMPUTE: f64 = 0.05;

/// The event of a GPU at its power limit.
const POWER_CAP: &str = "sw_power_cap";

/// Events that slow a GPU down, worst first. No healthy GPU shows the first four, so that they count as soon as
/// the clock is lower than chips differ by; a power cap is normal under load, and its drop alone is evidence.
const SLOWDOWNS: &[Slowdown] = &[
    Slowdown {
        reason: "hw_power_brake",
        min_drop: CHIPS_DIFFER,
        of_node: &HOST_POWER,
    },
    Slowdown {
        reason: "hw_thermal",
        min_drop: CHIPS_DIFFER,
        of_node: &HOST_COOLING,
    },
    Slowdown {
        reason: "hw_slowdown",
        min_drop: CHIPS_DIFFER,
        of_node: &HOST_POWER,
    },
    Slowdown {
        reason: "sw_thermal",
        min_drop: CHIPS_DIFFER,
        of_node: &HOST_COOLING,
    },
    Slowdown {
        reason: POWER_CAP,
        min_drop: SLOW_COMPUTE,
        of_node: &POWER_LIMIT,
    },
];

#[derive(Default)]
struct SlowGpu {
    samples: Samples,
    fallen: Fallen,
}

/// Name of the detector.
pub(crate) const NAME: &str = "slow-gpu";

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<SlowGpu>::default()
}

/// A GPU that is throttled.
struct Held<'a> {
    gpu: &'a Listed<'a>,
    clock_hertz: f64,
    /// Clock of its peers, what it is of them, and how many they are.
    norm_hertz: f64,
    norm: &'static str,
    peers: usize,
    why: &'static Slowdown,
    /// For how long it was, as text.
    words: String,
}

impl Held<'_> {
    fn drop(&self) -> f64 {
        1.0 - self.clock_hertz / self.norm_hertz
    }
}

impl Detector for SlowGpu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut gpus = view.gpus.listed(view);
        // A GPU whose scrape is late shows another phase of the job, or an older power limit.
        let is_late = |gpu: &Listed<'_>| gpu.clock().is_some_and(|clock| clock.is_late(view.now));
        gpus.retain(|gpu| gpu.is_busy() && !is_late(gpu));
        if view.left_out.has(Step::RoleCohort) {
            gpus.iter_mut().for_each(|gpu| gpu.product = "");
        }
        let mut held = held_back(&gpus);
        self.samples.retain_seen_twice(&mut held, view.now);
        let throttled: BTreeSet<_> = held.iter().map(|held| held.gpu.node).collect();
        let unexplained = by_node(&gpus).filter(|node| !throttled.contains(node[0].node));
        let by_model = hot_nodes::by_model(unexplained);
        let hot = by_model.iter();
        let hot: Vec<_> = hot
            .flat_map(|of_model| hot_nodes::find(view.now, of_model))
            .collect();
        let mut fallen = self.fallen.find(view.now, &by_model);
        fallen.retain(|fallen| hot.iter().all(|hot| hot.part != fallen.part));
        out.extend(hot.into_iter().chain(fallen));
        let is_capped = held.iter().any(|held| held.why.reason == POWER_CAP);
        let lowered = is_capped.then(|| Lowered::of(&view.gpus.listed(view)));
        let lowered = lowered.unwrap_or_default();
        let mut capped = Vec::new();
        for node in by_node(&gpus) {
            let of_node: Vec<_> = held
                .iter()
                .filter(|held| Some(held.gpu.node) == node.first().map(|gpu| gpu.node))
                .collect();
            let host_can_be = !view.left_out.has(Step::HostComponent);
            let by_limit = || {
                lowered
                    .explains(&of_node, node.len())
                    .then_some(&POWER_LIMIT)
            };
            let cause = shared_cause(&of_node, node.len()).or_else(by_limit);
            match cause.filter(|_| host_can_be) {
                Some(class) if class == &POWER_LIMIT => capped.push((of_node, node.len())),
                Some(class) => out.push(of_whole_node(class, &of_node, node.len(), view)),
                None => {
                    out.extend(of_node.iter().map(|held| of_one(held)));
                    let is_held =
                        |gpu: &Listed<'_>| of_node.iter().any(|held| held.gpu.index == gpu.index);
                    out.extend(unexplained::find(view.now, node, is_held));
                }
            }
        }
        // A limit of one node is a mistake, a limit of several the site's choice.
        let alone = capped.len() == 1;
        for (of_node, gpus) in &capped {
            let is_shared = lowered.is_shared(of_node[0].gpu.node);
            if !is_shared.unwrap_or(!alone) {
                out.push(of_whole_node(&POWER_LIMIT, of_node, *gpus, view));
            }
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        Explanation {
            check: match class {
                _ if class == &GPU_SLOW => unexplained::CHECK,
                _ if class == &HOST_COOLING => hot_nodes::CHECK,
                _ => power::CHECK,
            },
            threshold: format!(
                "{:.0} % below the median of at least {MIN_PEERS} peers (of the GPU's job if the job has {MIN_PEERS} nodes) for thermal slowdown and power brake (healthy chips differ by less), {:.0} % for a power cap ({:.0} % below the lowest clocks that the {SAMPLE} peers with the same limit that drew most nearly as much, and at least {:.0} % of its power, had in {POWER_SECONDS:.0} s, unless the GPU's limit, or its power if limits are unknown, is {:.0} % below theirs (power below that of GPUs of its job, if its job is known); power is the highest of {POWER_SECONDS:.0} s, of GPUs that work without pause for most of it and whose limit has not changed in that time), with a clock event for {:.0} % of {WINDOW_SECONDS:.0} s, or in two samples where its time is not counted; if {:.0} % of a node's GPUs are slow, or its busy GPUs are and as many have a lower power limit than usual, the node is reported; the same limit on several nodes, or power caps where limits are unknown, count as the site's choice; without a reason, or with one that most of the node's GPUs have not, {:.0} % for {:.0} s",
                100.0 * CHIPS_DIFFER,
                100.0 * SLOW_COMPUTE,
                100.0 * CAPPED_CHIPS_DIFFER,
                100.0 * AS_MUCH,
                100.0 * LOWER_LIMIT,
                100.0 * MIN_EVENT_SHARE,
                100.0 * MAJORITY,
                100.0 * unexplained::MIN_DROP,
                unexplained::HELD_SECONDS
            ),
            clears: "The clock is equal to that of its peers again, or the driver no longer limits it.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let of = |class: &'static Class, reasons: &[&str], drop: f64, source| {
            let mut thresholds = peers::thresholds();
            thresholds.extend([
                Threshold::new(
                    format!(
                        "SM clock below the median peer, for {}",
                        reasons.join(" or ")
                    ),
                    drop,
                    "ratio",
                    source,
                ),
                Threshold::new(
                    "share of the window with the clock event",
                    MIN_EVENT_SHARE,
                    "ratio",
                    "an event that slows no GPU down is brief (a choice)",
                ),
                Threshold::new(
                    "window",
                    WINDOW_SECONDS,
                    "s",
                    "several scrapes, so that a single one has little weight (a choice)",
                ),
                gpus::busy(),
                samples::threshold(),
            ]);
            Rule::new(class, thresholds)
        };
        let chips = "two clock steps of an H100 are 1.5 %, and equal chips differ by as much";
        let slow = "a smaller difference slows jobs little (a choice)";
        let reasons = |of: &dyn Fn(&Slowdown) -> bool| -> Vec<&str> {
            let rows = SLOWDOWNS.iter().filter(|row| of(row));
            rows.map(|row| row.reason).collect()
        };
        let by_node = |class| reasons(&|row: &Slowdown| row.of_node == class);
        let sharp = reasons(&|row: &Slowdown| row.min_drop <= CHIPS_DIFFER);
        let mut slow_gpu = of(&GPU_SLOW, &sharp, CHIPS_DIFFER, chips);
        slow_gpu.thresholds.extend(unexplained::thresholds());
        let mut power_limit = of(&POWER_LIMIT, &by_node(&POWER_LIMIT), SLOW_COMPUTE, slow);
        power_limit.thresholds.extend(fallen_nodes::thresholds());
        for rule in [&mut power_limit, &mut slow_gpu] {
            rule.thresholds.extend(capped());
            rule.thresholds.extend(settling());
        }
        let reasons = by_node(&HOST_COOLING);
        let mut host_cooling = of(&HOST_COOLING, &reasons, CHIPS_DIFFER, chips);
        host_cooling.thresholds.push(hot_nodes::threshold());
        vec![
            slow_gpu,
            of(&HOST_POWER, &by_node(&HOST_POWER), CHIPS_DIFFER, chips),
            host_cooling,
            power_limit,
        ]
    }
}

/// The job in which a GPU's clock may be compared with others: its own if that spans enough nodes
/// to determine whether one of them is throttled as a whole. The load of a job determines how far power
/// limits throttle clocks.
fn wide_job<'a>(gpu: &Listed<'a>) -> Option<&'a Job> {
    gpu.job.filter(|job| job.nodes.len() >= MIN_PEERS)
}

/// Model of a GPU, and its power limit in watts where that is known.
type AtLimit<'a> = (&'a str, Option<u64>);

/// What is usual among busy GPUs, each computed when a GPU is the first to need it.
struct Norms<'a> {
    gpus: &'a [Listed<'a>],
    clock: OnceCell<Usual<&'a str, (f64, usize)>>,
    /// The clock under one power limit; of GPUs without a known limit, that of all such.
    clock_at_limit: OnceCell<Usual<AtLimit<'a>, (f64, usize)>>,
    capped: OnceCell<Capped<'a>>,
    /// How long memories under one power limit are active.
    memory: OnceCell<Usual<AtLimit<'a>, (f64, usize)>>,
    limit: OnceCell<Usual<&'a str, (f64, usize)>>,
    /// For where a limit is not known.
    power: OnceCell<Usual<AtWork<'a>, (f64, usize)>>,
}

/// Model of a GPU, and its job where that is not wide: what GPUs of other jobs draw cannot be compared with it.
type AtWork<'a> = (&'a str, Option<&'a JobName>);

fn at_work<'a>(gpu: &Listed<'a>) -> AtWork<'a> {
    let narrow = gpu.job.filter(|_| wide_job(gpu).is_none());
    (gpu.product, narrow.map(|job| &job.name))
}

/// The highest of the newest two readings: while all limits are lowered, those of other nodes may not have been read yet.
fn power_limit(gpu: &Listed<'_>) -> Option<f64> {
    let newest = gpu.window(&GPU_POWER_LIMIT)?.told().take(2);
    newest.map(|(_, watts)| watts).reduce(f64::max)
}

fn at_limit<'a>(gpu: &Listed<'a>) -> AtLimit<'a> {
    let limit = gpu.window(&GPU_POWER_LIMIT).and_then(|limit| limit.value());
    (gpu.product, limit.map(|watts| watts.round() as u64))
}

impl<'a> Norms<'a> {
    fn of(gpus: &'a [Listed<'a>]) -> Self {
        Self {
            gpus,
            clock: OnceCell::new(),
            clock_at_limit: OnceCell::new(),
            capped: OnceCell::new(),
            memory: OnceCell::new(),
            limit: OnceCell::new(),
            power: OnceCell::new(),
        }
    }

    /// Whether a GPU has a lower power limit than its peers; where limits are not known, whether it draws less power.
    fn is_limited(&self, gpu: &Listed<'a>) -> bool {
        let is_below = |own: Option<f64>, norm: Option<(f64, usize)>| {
            let (own, (norm, _)) = own.zip(norm)?;
            Some(own <= (1.0 - LOWER_LIMIT) * norm)
        };
        let by_limit = || {
            let limits = self.limit.get_or_init(|| usual_by(self.gpus, power_limit));
            is_below(power_limit(gpu), limits.of(wide_job(gpu), &gpu.product))
        };
        let by_power = || {
            let drawn = self
                .power
                .get_or_init(|| usual(self.gpus, |gpu| Some((at_work(gpu), power(gpu)?))));
            is_below(power(gpu), drawn.of(wide_job(gpu), &at_work(gpu)))
        };
        by_limit().or_else(by_power).unwrap_or(false)
    }

    /// The usual clock of its peers with their number, what it is of them, and the smallest drop below it that is a fault for
    /// this reason.
    fn clock(&self, gpu: &Listed<'a>, why: &Slowdown) -> Option<((f64, usize), &'static str, f64)> {
        if why.reason == POWER_CAP && !self.is_limited(gpu) {
            let at_limits = self
                .clock_at_limit
                .get_or_init(|| usual(self.gpus, |gpu| Some((at_limit(gpu), gpu.clock_hertz()?))));
            let newest = at_limits.of(wide_job(gpu), &at_limit(gpu))?;
            let is_far = gpu.clock_hertz()? <= (1.0 - CAPPED_CHIPS_DIFFER) * newest.0;
            if !is_far || !works_without_pause(gpu) || !has_steady_limit(gpu) {
                return None;
            }
            let memory = self.memory.get_or_init(|| {
                usual(self.gpus, |gpu| {
                    Some((at_limit(gpu), memory_activity(gpu)?))
                })
            });
            if is_heavier(
                memory_activity(gpu),
                memory.of(wide_job(gpu), &at_limit(gpu)),
            ) {
                return None;
            }
            let capped = self.capped.get_or_init(|| by_power(self.gpus));
            let norm = clock_of_its_power(capped, gpu)?;
            return Some((
                norm,
                "the median lowest clock of 60 s of GPUs that draw as much,",
                CAPPED_CHIPS_DIFFER,
            ));
        }
        let clocks = self
            .clock
            .get_or_init(|| usual_by(self.gpus, Listed::clock_hertz));
        let norm = clocks.of(wide_job(gpu), &gpu.product)?;
        Some((norm, "the median", why.min_drop))
    }
}

/// Median and number of a value, by model.
fn usual_by<'a>(
    gpus: &'a [Listed<'a>],
    value: fn(&Listed<'a>) -> Option<f64>,
) -> Usual<&'a str, (f64, usize)> {
    usual(gpus, |gpu| Some((gpu.product, value(gpu)?)))
}

/// Median and number of the values of GPUs that are alike.
fn usual<'a, R: Hash + Eq + Clone>(
    gpus: &'a [Listed<'a>],
    value: impl Fn(&Listed<'a>) -> Option<(R, f64)>,
) -> Usual<R, (f64, usize)> {
    let values = gpus.iter().filter_map(|gpu| {
        let (role, value) = value(gpu)?;
        Some((wide_job(gpu), role, value))
    });
    Usual::new(values, |values| {
        let count = values.len();
        (count >= MIN_PEERS).then(|| Some((median(values)?, count)))?
    })
}

/// GPUs below their peers, with the driver's reason.
fn held_back<'a>(gpus: &'a [Listed<'a>]) -> Vec<Held<'a>> {
    let norms = Norms::of(gpus);
    let clocks = gpus.iter().filter_map(Listed::clock_hertz);
    let highest = clocks.fold(0.0, f64::max);
    let held = |gpu: &'a Listed<'a>| {
        let clock_hertz = gpu.clock_hertz()?;
        // As most do: no peer has a clock that this one is far enough below.
        if 1.0 - clock_hertz / highest < CHIPS_DIFFER {
            return None;
        }
        let for_reason = |why: &'static Slowdown| {
            let ((norm_hertz, peers), norm, least) = norms.clock(gpu, why)?;
            let is_slow = 1.0 - clock_hertz / norm_hertz >= least
                && !(why.reason == POWER_CAP && is_settling(gpu));
            Some(Held {
                gpu,
                clock_hertz,
                norm_hertz,
                norm,
                peers: peers - 1,
                why,
                words: is_slow.then(|| active(gpu, why))??,
            })
        };
        SLOWDOWNS.iter().find_map(for_reason)
    };
    gpus.iter().filter_map(held).collect()
}

/// Whether the driver reports a reason for a low clock, be it a fault or not.
fn has_reason(gpu: &Listed<'_>) -> bool {
    SLOWDOWNS.iter().any(|why| active(gpu, why).is_some())
}

/// For how long an event throttled the GPU, as text; none if it did not.
fn active(gpu: &Listed<'_>, why: &Slowdown) -> Option<String> {
    let labels = [gpu.label(), why.reason];
    let seconds = gpu.history.window(&GPU_CLOCK_EVENT_SECONDS, &labels);
    match seconds.and_then(|window| window.increase(WINDOW_SECONDS)) {
        // The duration is the better witness: it misses nothing between two samples.
        Some(rise) => (rise.rate() >= MIN_EVENT_SHARE).then(|| {
            format!(
                "{} limited its clock for {:.0} % of the last {:.0} s",
                why.reason,
                100.0 * rise.rate(),
                rise.seconds
            )
        }),
        None => (gpu.history.value(&GPU_CLOCK_EVENT, &labels) == Some(1.0))
            .then(|| format!("{} limits its clock", why.reason)),
    }
}

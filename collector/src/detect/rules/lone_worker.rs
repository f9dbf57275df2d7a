//! GPUs that go on working while the others of their node begin to wait for them, where no activity of SMs or tensor cores is exported:
//! by default dcgm-exporter and nvidia-smi export none.
//!
//! In a synchronous job all GPUs do the same work in a step. When one becomes slow, at its usual clock, it works as before, and the
//! others wait for it: they draw less power, and their memory is active for less of the time, by as much as a step takes longer.
//! A GPU that waits in a collective is as utilized as before.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::{
    GPU_MEMORY_UTILIZATION, GPU_POWER, GPU_SM_ACTIVE, GPU_TENSOR_ACTIVE, GPU_UTILIZATION, Metric,
};

use crate::classes::{Class, GPU_SLOW};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::{Listed, by_job, by_node};
use crate::detect::peers::median;
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::job::JobName;

/// Ages of the samples that are compared, in seconds: two newest spans, so that the change has lasted, and those from before.
const NOW: [[f64; 2]; 2] = [[0.0, 25.0], [25.0, 50.0]];
const BEFORE: [f64; 2] = [65.0, 150.0];
/// Fewest other GPUs of the node and job.
const MIN_OTHERS: usize = 3;
/// Utilization of GPUs that work without pause, or wait.
const BUSY: f64 = 0.95;
/// How far the memory activity and the power of the others must have fallen, each.
const MEMORY_FELL: f64 = 0.08;
const POWER_FELL: f64 = 0.03;
/// The same, beyond which they do no work at all: one rank evaluates or saves the model for all.
const NO_WORK: f64 = 0.6;
/// How far those of the one may have fallen at most.
const KEPT: f64 = 0.03;
/// Memory activity of the one, as a multiple of that of the others, from which it stands out, and below which it has recovered.
const STANDS_OUT: f64 = 1.1;
const RECOVERED: f64 = 1.05;
/// Least memory activity before: it is exported in whole percents.
const MIN_ACTIVITY: f64 = 0.08;
/// Largest difference of its clock from that of the others.
const SAME_CLOCK: f64 = 0.02;
/// How long a GPU is remembered that cannot be compared: then another job may have begun.
const REMEMBERED_SECONDS: f64 = 120.0;
/// GPUs that begin to work alone within this time of each other have more work: it is spread unevenly.
const TOGETHER_SECONDS: f64 = 60.0;
/// How far the falls of the others may differ: those that wait for one GPU wait alike.
const ALIKE: f64 = 0.08;
/// How far a sample may be from the mean of its time, and the fewest samples of [`NOW`] and of [`BEFORE`]: of a step whose phases are longer
/// than a sample, few samples show nothing.
const STEADY: f64 = 0.1;
const MIN_SAMPLES: [usize; 2] = [3, 4];

type Key = (NodeName, GpuIndex);

/// Those that were found.
#[derive(Default)]
struct LoneWorker {
    found: BTreeMap<Key, Found>,
}

#[derive(Debug, Clone)]
struct Found {
    job: Option<JobName>,
    since: Timestamp,
    /// When it was last compared.
    last: Timestamp,
    /// How far the memory activity of the others fell.
    fell: f64,
    /// Whether others of its job began to work alone at the same time.
    is_shared: bool,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<LoneWorker>::default()
}

impl Detector for LoneWorker {
    fn name(&self) -> &'static str {
        "lone-worker"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut gpus = view.gpus.listed(view);
        gpus.retain(Listed::is_busy);
        let nodes =
            by_node(&gpus).filter(|node| node.len() > MIN_OTHERS && !has_activity(&node[0]));
        for cohort in nodes.flat_map(by_job) {
            self.compare(view.now, &cohort);
        }
        let now = view.now;
        self.found
            .retain(|_, found| now.seconds_since(found.last) <= REMEMBERED_SECONDS);
        for gpu in gpus.iter().filter(|_| !self.found.is_empty()) {
            let found = self.found.get(&(gpu.node.clone(), gpu.index));
            let found = found.filter(|found| found.last == now && !found.is_shared);
            out.extend(found.map(|found| evidence(gpu, found.fell)));
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "While a node works without pause, its GPUs but one begin to draw less power and to use their memory less, as GPUs do that wait; that one works as before, at the same clock. Only where no activity of SMs or tensor cores is exported.",
            threshold: format!(
                "for {:.0} s, against the time before: memory activity of all other GPUs of its node and job, at least {MIN_OTHERS}, {:.0} % lower or more, their power {:.0} % lower or more, its own by less than {:.0} %",
                NOW[1][1],
                100.0 * MEMORY_FELL,
                100.0 * POWER_FELL,
                100.0 * KEPT
            ),
            clears: "The memory of the others is as active as its own.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        vec![Rule::new(&GPU_SLOW, thresholds())]
    }
}

impl LoneWorker {
    /// Notes which GPU works alone among those of one node and job.
    fn compare(&mut self, now: Timestamp, cohort: &[Listed<'_>]) {
        let activity = |gpu: &Listed<'_>| gpu.mean(&GPU_MEMORY_UTILIZATION, now, NOW[0]);
        let most = cohort
            .iter()
            .filter_map(|gpu| Some((activity(gpu)?, gpu)))
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((most, one)) = most.filter(|_| cohort.len() > MIN_OTHERS) else {
            return;
        };
        let others: Vec<_> = cohort.iter().filter(|gpu| gpu.index != one.index).collect();
        let usual = median(others.iter().filter_map(|gpu| activity(gpu))).unwrap_or(0.0);
        let key = (one.node.clone(), one.index);
        let job = one.job.map(|job| &job.name);
        // Mostly none is known, and no key is needed.
        if !self.found.is_empty() {
            let is_of_it = |of: &Key| of.0 == key.0 && cohort.iter().any(|gpu| gpu.index == of.1);
            let is_lone = most >= RECOVERED * usual;
            self.found.retain(|of, found| {
                !is_of_it(of) || is_lone && *of == key && found.job.as_ref() == job
            });
            if let Some(found) = self.found.get_mut(&key) {
                found.last = now;
                return;
            }
        }
        if most >= STANDS_OUT * usual
            && others.iter().all(|other| other.product == one.product)
            && let Some(fell) = begins_to_work_alone(now, one, &others)
        {
            self.add(now, key, job.cloned(), fell);
        }
    }

    fn add(&mut self, now: Timestamp, key: Key, job: Option<JobName>, fell: f64) {
        let mut is_shared = false;
        for other in self.found.values_mut() {
            let may_be_of_it = other.job.is_none() || other.job == job;
            if may_be_of_it && now.seconds_since(other.since) <= TOGETHER_SECONDS {
                other.is_shared = true;
                is_shared = true;
            }
        }
        let found = Found {
            job,
            since: now,
            last: now,
            fell,
            is_shared,
        };
        self.found.insert(key, found);
    }
}

/// Whether detectors that know more evaluate a GPU.
fn has_activity(gpu: &Listed<'_>) -> bool {
    [&GPU_TENSOR_ACTIVE, &GPU_SM_ACTIVE]
        .iter()
        .any(|metric| gpu.window(metric).is_some())
}

/// How far the memory activity of the others fell, if they began to wait for the one.
fn begins_to_work_alone(now: Timestamp, one: &Listed<'_>, others: &[&Listed<'_>]) -> Option<f64> {
    let all = || others.iter().copied().chain([one]);
    let ages = || NOW.into_iter().chain([BEFORE]);
    let is_busy = |gpu: &Listed<'_>| {
        ages().all(|ages| {
            gpu.mean(&GPU_UTILIZATION, now, ages)
                .is_some_and(|busy| busy >= BUSY)
        })
    };
    let clock = |gpu: &Listed<'_>| gpu.clock()?.value();
    let usual_clock = median(others.iter().filter_map(|gpu| clock(gpu)))?;
    let has_same_clock =
        clock(one).is_some_and(|clock| (clock / usual_clock - 1.0).abs() <= SAME_CLOCK);
    if !has_same_clock || !all().all(|gpu| is_busy(gpu) && is_steady(now, gpu)) {
        return None;
    }
    // Shares by which each fell.
    let fell = |gpu: &Listed<'_>, metric: &'static Metric, least: f64, ages| {
        let before = gpu
            .mean(metric, now, BEFORE)
            .filter(|before| *before >= least)?;
        Some(1.0 - gpu.mean(metric, now, ages)? / before)
    };
    let mut of_others = Vec::new();
    for ages in NOW {
        let memory = |gpu: &Listed<'_>| fell(gpu, &GPU_MEMORY_UTILIZATION, MIN_ACTIVITY, ages);
        let power = |gpu: &Listed<'_>| fell(gpu, &GPU_POWER, 1.0, ages);
        if memory(one)? > KEPT || power(one)? > KEPT {
            return None;
        }
        for other in others {
            let memory = memory(other)?;
            if !(MEMORY_FELL..=NO_WORK).contains(&memory) || power(other)? < POWER_FELL {
                return None;
            }
            of_others.push(memory);
        }
    }
    let least = of_others.iter().copied().fold(f64::INFINITY, f64::min);
    let most = of_others.iter().copied().fold(0.0, f64::max);
    median(of_others).filter(|_| most - least <= ALIKE)
}

/// Whether the memory activity of a GPU is measured often enough, and each sample is near the mean of its time.
fn is_steady(now: Timestamp, gpu: &Listed<'_>) -> bool {
    let [first, second] = NOW;
    let spans = [[first[0], second[1]], BEFORE];
    let is_steady = |([from, to], least): ([f64; 2], usize)| {
        let window = gpu.window(&GPU_MEMORY_UTILIZATION)?;
        let samples = window.told_within(now, to);
        let samples = samples.filter(|(at, _)| now.seconds_since(*at) >= from);
        let samples: Vec<f64> = samples.map(|(_, activity)| activity).collect();
        let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
        let is_near = |sample: &f64| (sample / mean - 1.0).abs() <= STEADY;
        Some(samples.len() >= least && samples.iter().all(is_near))
    };
    let mut spans = spans.into_iter().zip(MIN_SAMPLES);
    spans.all(|span| is_steady(span) == Some(true))
}

fn evidence(gpu: &Listed<'_>, fell: f64) -> Evidence {
    let part = gpu.part();
    Evidence {
        detector: "lone-worker",
        signal: GPU_MEMORY_UTILIZATION.name,
        class: &GPU_SLOW,
        effect: fell,
        statement: format!(
            "GPU {} of {} works as before, and the other GPUs of its node and job began to wait for it at the same time: the activity of their memory fell by {:.0} %, and their power fell, at the same clock and utilization.",
            gpu.index,
            gpu.node,
            100.0 * fell
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

fn thresholds() -> Vec<Threshold> {
    [of_change(), of_time()].concat()
}

/// Those of what changes.
fn of_change() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "other GPUs of its node and job, at least",
            MIN_OTHERS as f64,
            "GPUs",
            "of fewer, it is not clear which one differs",
        ),
        Threshold::new(
            "utilization of all of them, at least",
            BUSY,
            "ratio",
            "a job that pauses may begin other work (a choice)",
        ),
        Threshold::new(
            "fall of the memory activity of the others, at least",
            MEMORY_FELL,
            "ratio",
            "it is exported in whole percents (a choice)",
        ),
        Threshold::new(
            "and at most",
            NO_WORK,
            "ratio",
            "beyond, one rank evaluates or saves the model for all (a choice)",
        ),
        Threshold::new(
            "fall of their power, at least",
            POWER_FELL,
            "ratio",
            "a GPU that waits draws less (a choice)",
        ),
        Threshold::new(
            "fall of its own memory activity and power, at most",
            KEPT,
            "ratio",
            "noise of the means (a choice)",
        ),
        Threshold::new(
            "memory activity before, at least",
            MIN_ACTIVITY,
            "ratio",
            "of less, a whole percent is too large a share (a choice)",
        ),
        Threshold::new(
            "its memory activity, compared with the others, at least",
            STANDS_OUT,
            "times",
            "as their fall (a choice)",
        ),
        Threshold::new(
            "until it is below",
            RECOVERED,
            "times",
            "half of that (a choice)",
        ),
        Threshold::new(
            "difference of its clock from that of the others, at most",
            SAME_CLOCK,
            "ratio",
            "a lower clock is another fault; chips differ by two steps (a choice)",
        ),
    ]
}

/// Those of when it is measured.
fn of_time() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "time for which they have waited: two spans, the newer of",
            NOW[0][1],
            "s",
            "unevenly distributed work was seen to move to other ranks after 20 s (a choice)",
        ),
        Threshold::new("and both of", NOW[1][1], "s", "as above"),
        Threshold::new("time before: from an age of", BEFORE[0], "s", "a choice"),
        Threshold::new("to", BEFORE[1], "s", "the stored history"),
        Threshold::new(
            "remembered while it cannot be compared",
            REMEMBERED_SECONDS,
            "s",
            "then another job may have begun (a choice)",
        ),
        Threshold::new(
            "time within which GPUs of one job that begin to work alone have more work",
            TOGETHER_SECONDS,
            "s",
            "the work of the job is spread unevenly (a choice)",
        ),
        Threshold::new(
            "difference of the falls of the others, at most",
            ALIKE,
            "ratio",
            "those that wait for one GPU wait alike (a choice)",
        ),
        Threshold::new(
            "difference of a sample of memory activity from the mean, at most",
            STEADY,
            "ratio",
            "samples of a step with long phases show the phases (a choice)",
        ),
        Threshold::new(
            "samples of the newest time, at least",
            MIN_SAMPLES[0] as f64,
            "samples",
            "fewer may show another phase (a choice)",
        ),
        Threshold::new(
            "samples of the time before, at least",
            MIN_SAMPLES[1] as f64,
            "samples",
            "as above",
        ),
    ]
}

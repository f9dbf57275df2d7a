//! GPU performance monitoring: what SMs, tensor cores, memory, PCIe and NVLink of a GPU or of its MIG
//! instances did between two samples, and its counters since the reboot.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::GpmSample;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::BYTES_PER_MEBIBYTE;

use super::calls::{Call, Calls, Of};
use super::newer::{MOST_GPM_METRICS, gpm_metrics};

/// Shorter windows are noise, and cost the job more samples. A little less than the worker's shortest period:
/// a sample that comes some milliseconds early is one all the same.
const SHORTEST_WINDOW: Duration = Duration::from_millis(900);
/// The same for a GPU instance: a GPU has up to seven, and each costs two calls a window.
const SHORTEST_INSTANCE_WINDOW: Duration = Duration::from_secs(5);
/// Longer ones report nothing of now, and the counters behind them may have wrapped.
const LONGEST_WINDOW: Duration = Duration::from_secs(600);

/// `NVML_GPM_METRIC_...` -> metric, and how its number becomes the value: percents and MiB/s
/// (<https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlGpmEnums.html>).
const METRICS: [(u32, &Metric, Convert); 8] = [
    (2, &m::GPU_SM_ACTIVE, PERCENT),
    (3, &m::GPU_SM_OCCUPANCY, PERCENT),
    (5, &m::GPU_TENSOR_ACTIVE, PERCENT),
    (10, &m::GPU_DRAM_BANDWIDTH, PERCENT),
    (20, &m::GPU_PCIE_TRANSMIT_RATE, MEBIBYTES),
    (21, &m::GPU_PCIE_RECEIVE_RATE, MEBIBYTES),
    (60, &m::GPU_NVLINK_RECEIVE_RATE, MEBIBYTES),
    (61, &m::GPU_NVLINK_TRANSMIT_RATE, MEBIBYTES),
];
/// The same of a GPU instance.
const INSTANCE_METRICS: [(u32, &Metric, Convert); 4] = [
    (2, &m::MIG_SM_ACTIVE, PERCENT),
    (3, &m::MIG_SM_OCCUPANCY, PERCENT),
    (5, &m::MIG_TENSOR_ACTIVE, PERCENT),
    (10, &m::MIG_DRAM_BANDWIDTH, PERCENT),
];
type Convert = fn(f64) -> f64;
const PERCENT: Convert = |percent| percent / 100.0;
const MEBIBYTES: Convert = |mebibytes| mebibytes * BYTES_PER_MEBIBYTE as f64;

/// Counters since the reboot: `NVML_GPM_METRIC_SM_CYCLES_ELAPSED`, `..._SM_CYCLES_ACTIVE` and
/// `..._MMA_CYCLES_ACTIVE`.
const CYCLES: [(u32, &Metric); 3] = [
    (248, &m::GPU_SM_ELAPSED_CYCLES),
    (249, &m::GPU_SM_ACTIVE_CYCLES),
    (250, &m::GPU_TENSOR_ACTIVE_CYCLES),
];
/// Counters of bytes since the reboot: `NVML_GPM_METRIC_PCIE_TX` and `..._RX`.
pub(super) const PCIE_TRANSMIT: u32 = 255;
pub(super) const PCIE_RECEIVE: u32 = 256;
/// `NVML_GPM_METRIC_NVLINK_L0_RX`, bytes since the reboot: two numbers a link, for so many links.
const FIRST_LINK: u32 = 261;
const LINKS: u32 = 18;

const SUPPORT: Call = ("gpm", Of::Feature);
const SAMPLE: Call = ("gpm_sample", Of::Feature);
const RATES: Call = ("gpm_metrics", Of::Feature);
const COUNTERS: Call = ("gpm_counters", Of::Feature);
const INSTANCE_SAMPLE: Call = ("gpm_mig_sample", Of::Feature);
const INSTANCE_RATES: Call = ("gpm_mig_metrics", Of::Feature);

/// Numbers of a link's counters: received and sent bytes. None for links that have none.
pub(super) fn link_counters(link: u32) -> Option<[u32; 2]> {
    (link < LINKS).then(|| [FIRST_LINK + 2 * link, FIRST_LINK + 2 * link + 1])
}

/// What is known of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counter {
    /// Nothing yet, or not now.
    Unknown,
    /// The GPU or its driver has none.
    Missing,
    /// Its value.
    Count(u64),
}

/// What a GPU does, and its GPU instances.
#[derive(Default)]
pub(super) struct Gpm {
    supported: bool,
    whole: Monitor,
    tensor: Tensor,
    /// Whether the links' counters are needed.
    wants_links: bool,
    /// The last reply; nothing before the first one, and while none arrives.
    counters: BTreeMap<u32, Counter>,
    instances: BTreeMap<u32, Monitor>,
}

/// The last sample of a GPU or GPU instance, and what the one before reported with it.
#[derive(Default)]
struct Monitor {
    before: Option<(GpmSample<'static>, Instant)>,
    values: Vec<(&'static Metric, f64)>,
}

/// Two samples and when they were taken.
struct Window<'a> {
    before: GpmSample<'static>,
    after: &'a GpmSample<'static>,
    begun: Instant,
    ended: Instant,
}

/// Activity of tensor cores, summed: windows follow each other without a gap.
#[derive(Default)]
struct Tensor {
    /// When the newest window that was summed ended; none before the first.
    until: Option<Instant>,
    monitored_seconds: f64,
    active_seconds: f64,
}

impl Tensor {
    /// Adds a window with this share of activity. Time since the last one, for which there was no sample or no data, is taken
    /// to have been like it, so that cycles that were counted meanwhile stand against all of their time.
    fn add(&mut self, begun: Instant, ended: Instant, active: f64) {
        let since = self.until.unwrap_or(begun);
        let gap = begun.duration_since(since);
        let since = if gap <= LONGEST_WINDOW { since } else { begun };
        let seconds = ended.duration_since(since).as_secs_f64();
        self.monitored_seconds += seconds;
        self.active_seconds += active * seconds;
        self.until = Some(ended);
    }

    fn push(&self, gpu: &Labels, reading: &mut NodeReading) {
        reading.push(&m::GPU_MONITORED_SECONDS, gpu, self.monitored_seconds);
        reading.push(&m::GPU_TENSOR_ACTIVE_SECONDS, gpu, self.active_seconds);
    }
}

impl Monitor {
    fn is_due(&self, shortest: Duration) -> bool {
        let before = self.before.as_ref();
        before.is_none_or(|(_, at)| at.elapsed() >= shortest)
    }

    /// Adds a sample. Returns the one before with it, unless they are too far apart.
    fn advance(&mut self, sample: Option<GpmSample<'static>>) -> Option<Window<'_>> {
        self.values.clear();
        let now = Instant::now();
        let before = mem::replace(&mut self.before, sample.map(|sample| (sample, now)));
        let (before, begun) = before?;
        let (after, ended) = self.before.as_ref()?;
        let window = Window {
            before,
            after,
            begun,
            ended: *ended,
        };
        (now.duration_since(begun) <= LONGEST_WINDOW).then_some(window)
    }

    /// Activity of tensor cores, if the last replies contained it.
    fn tensor_active(&self) -> Option<f64> {
        let mut values = self.values.iter();
        let told = values.find(|(metric, _)| *metric == &m::GPU_TENSOR_ACTIVE);
        told.map(|(_, share)| *share)
    }

    fn keep(
        &mut self,
        metrics: &[(u32, &'static Metric, Convert)],
        answers: impl IntoIterator<Item = Result<f64, NvmlError>>,
        calls: &mut Calls,
    ) {
        for ((_, metric, convert), answer) in metrics.iter().zip(answers) {
            match answer {
                Ok(value) if value.is_finite() && value >= 0.0 => {
                    self.values.push((metric, convert(value)));
                }
                // There is no such metric here, or the window held no data.
                Err(_) => {}
                Ok(_) => calls.count_failure(),
            }
        }
    }

    fn push(&self, labels: &Labels, reading: &mut NodeReading) {
        for (metric, value) in &self.values {
            reading.push(metric, labels, *value);
        }
    }
}

impl Gpm {
    /// Adds what the GPU did since the last sample, and its cycles. Adds nothing before Hopper, with the first
    /// sample, and while the GPU is partitioned: its instances report then.
    pub(super) fn sample(
        &mut self,
        device: &Device<'static>,
        gpu: &Labels,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        calls.section("gpm");
        let supported = || match device.gpm_support() {
            Ok(false) => Err(NvmlError::NotSupported),
            answer => answer,
        };
        self.supported = self.supported || calls.ask(SUPPORT, supported).is_some();
        if self.supported && self.whole.is_due(SHORTEST_WINDOW) {
            self.advance(device, calls);
        }
        self.whole.push(gpu, reading);
        if self.whole.before.is_some() && self.tensor.until.is_some() {
            self.tensor.push(gpu, reading);
        }
        for (id, metric) in CYCLES {
            if let Counter::Count(cycles) = self.counter(id, calls) {
                reading.push(metric, gpu, cycles);
            }
        }
    }

    /// Reads the links' counters as well from the next sample on.
    pub(super) fn want_links(&mut self) {
        self.wants_links = true;
    }

    /// When the counters were last read.
    pub(super) fn sampled_at(&self) -> Option<Instant> {
        self.whole.before.as_ref().map(|(_, at)| *at)
    }

    /// A counter by its number, as of the last sample.
    pub(super) fn counter(&self, id: u32, calls: &Calls) -> Counter {
        let refused = |call| !calls.wants(call) && calls.lost().is_none();
        if refused(SUPPORT) || refused(SAMPLE) || refused(RATES) || refused(COUNTERS) {
            return Counter::Missing;
        }
        self.counters.get(&id).copied().unwrap_or(Counter::Unknown)
    }

    fn advance(&mut self, device: &Device<'static>, calls: &mut Calls) {
        self.counters.clear();
        let useful = calls.wants(RATES);
        let sample = useful.then(|| calls.ask(SAMPLE, || device.gpm_sample()));
        let sample = sample.flatten();
        let Some(window) = self.whole.advance(sample) else {
            return;
        };
        let (begun, ended) = (window.begun, window.ended);
        let rates = METRICS.map(|(id, ..)| id);
        let mut counters = Vec::new();
        if calls.wants(COUNTERS) {
            counters.extend(CYCLES.map(|(id, _)| id));
            counters.extend([PCIE_TRANSMIT, PCIE_RECEIVE]);
            if self.wants_links {
                counters.extend(FIRST_LINK..FIRST_LINK + 2 * LINKS);
            }
        }
        let all: Vec<u32> = rates.into_iter().chain(counters.iter().copied()).collect();
        let ask = |ids: &[u32]| gpm_metrics(device.nvml(), &window.before, window.after, ids);
        let mut answer = calls.timed(|| ask(&all));
        if answer.is_err() && !counters.is_empty() {
            // A driver that does not support such numbers may refuse them all.
            let without = calls.timed(|| ask(&rates));
            if without.is_ok() {
                calls.note::<()>(COUNTERS, Err(NvmlError::NotSupported));
                answer = without;
            }
        }
        let mut answers = calls.note(RATES, answer).unwrap_or_default();
        let counted = answers.split_off(rates.len().min(answers.len()));
        self.whole.keep(&METRICS, answers, calls);
        if let Some(active) = self.whole.tensor_active() {
            self.tensor.add(begun, ended, active);
        }
        self.count(counters.into_iter().zip(counted), calls);
    }

    /// Reads counters. A driver that has none of them is not tried again soon.
    fn count(
        &mut self,
        answers: impl Iterator<Item = (u32, Result<f64, NvmlError>)>,
        calls: &mut Calls,
    ) {
        let mut refused = None;
        for (id, answer) in answers {
            let counter = match answer {
                // Beyond 2^53 the float that NVML counts in steps by more than one.
                Ok(count) if count.is_finite() && count >= 0.0 => Counter::Count(count as u64),
                Ok(_) => {
                    calls.count_failure();
                    Counter::Unknown
                }
                Err(NvmlError::NoData) => Counter::Unknown,
                Err(error) => {
                    refused = Some(error);
                    Counter::Missing
                }
            };
            self.counters.insert(id, counter);
        }
        let missing = |counter: &Counter| *counter == Counter::Missing;
        if let (Some(error), true) = (refused, self.counters.values().all(missing)) {
            calls.note::<()>(COUNTERS, Err(error));
        }
    }

    /// Adds what the GPU instances with these numbers did.
    pub(super) fn sample_instances(
        &mut self,
        device: &Device<'static>,
        gpu: &Labels,
        instances: &BTreeSet<u32>,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        calls.section("gpm_mig");
        self.instances.retain(|id, _| instances.contains(id));
        if !self.supported || !calls.wants(INSTANCE_SAMPLE) {
            return;
        }
        for id in instances {
            let monitor = self.instances.entry(*id).or_default();
            if monitor.is_due(SHORTEST_INSTANCE_WINDOW) {
                advance_instance(monitor, device, *id, calls);
            }
            monitor.push(&gpu.with(id), reading);
        }
    }
}

fn advance_instance(monitor: &mut Monitor, device: &Device<'static>, id: u32, calls: &mut Calls) {
    let sample = match calls.timed(|| device.gpm_mig_sample(id)) {
        // An administrator has just destroyed it.
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => None,
        answer => calls.note(INSTANCE_SAMPLE, answer),
    };
    let Some(window) = monitor.advance(sample) else {
        return;
    };
    let ids = INSTANCE_METRICS.map(|(id, ..)| id);
    let answers = calls.ask(INSTANCE_RATES, || {
        gpm_metrics(device.nvml(), &window.before, window.after, &ids)
    });
    monitor.keep(&INSTANCE_METRICS, answers.unwrap_or_default(), calls);
}

const _: () = assert!(METRICS.len() + CYCLES.len() + 2 + 2 * LINKS as usize <= MOST_GPM_METRICS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_link_with_counters_has_the_last_number_of_the_header() {
        for (link, expected) in [
            (0, Some([261, 262])),
            (17, Some([295, 296])),
            (18, None),
            (u32::MAX, None),
        ] {
            assert_eq!(link_counters(link), expected, "{link}");
        }
    }

    #[test]
    fn activity_is_summed_over_gaps_but_not_over_long_ones() {
        let (mut tensor, start) = (Tensor::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (begun, ended, active, expected) in [
            (0, 2, 0.5, (2.0, 1.0)),
            (2, 3, 1.0, (3.0, 2.0)),
            // A sample at 4 s failed.
            (5, 6, 0.5, (6.0, 3.5)),
            (1000, 1001, 1.0, (7.0, 4.5)),
        ] {
            tensor.add(at(begun), at(ended), active);
            let sums = (tensor.monitored_seconds, tensor.active_seconds);
            assert_eq!(sums, expected, "{begun} s to {ended} s");
        }
    }

    #[test]
    fn counters_are_missing_only_where_all_were_refused_and_unknown_until_then() {
        let refused = || Err(NvmlError::NotSupported);
        for (name, answers, expected, asked_again) in [
            (
                "counts",
                vec![Ok(5.0), refused()],
                [Counter::Count(5), Counter::Missing],
                true,
            ),
            (
                "an old driver",
                vec![refused(), refused()],
                [Counter::Missing, Counter::Missing],
                false,
            ),
            (
                "no data yet",
                vec![Err(NvmlError::NoData), refused()],
                [Counter::Unknown, Counter::Missing],
                true,
            ),
            (
                "nonsense",
                vec![Ok(-1.0), Ok(f64::NAN)],
                [Counter::Unknown, Counter::Unknown],
                true,
            ),
        ] {
            let (mut gpm, mut calls) = (Gpm::default(), Calls::default());
            assert_eq!(gpm.counter(PCIE_TRANSMIT, &calls), Counter::Unknown);
            gpm.count(
                [PCIE_TRANSMIT, PCIE_RECEIVE].into_iter().zip(answers),
                &mut calls,
            );
            let found = [PCIE_TRANSMIT, PCIE_RECEIVE].map(|id| gpm.counter(id, &calls));
            assert_eq!(found, expected, "{name}");
            assert_eq!(calls.wants(COUNTERS), asked_again, "{name}");
        }
    }
}

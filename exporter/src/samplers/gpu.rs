//! GPUs and NVLinks, by an NVML worker in a separate process.

use std::time::Duration;

use railscope_model::metric::{
    SOURCE_AGE, SOURCE_DURATION, SOURCE_ERRORS, SOURCE_LATE, SOURCE_STATUS,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use crate::mig_devices::MigDevices;
use crate::sampler::{Machine, NvmlAccess, Presence, SampleError, Sampler};
use crate::sources::nvml::SHORTEST_PERIOD;
use crate::sources::nvml::child::{LastWord, NvmlChild, Phase, View};

/// Name of the source, in labels.
const SOURCE: &str = "gpu";
/// What the worker wrote is merged this often, whatever its own period: merging costs no NVML call.
const MERGE_PERIOD: Duration = Duration::from_secs(1);
/// A GPU that has reported nothing for so many of the worker's periods, and at least so long, is blocked: its
/// values leave the exposition.
const STALE_PERIODS: u32 = 3;
const STALE_AT_LEAST: Duration = Duration::from_secs(5);
/// How long a sample waits for the first reading of a worker that has just been started.
const FIRST_WORDS: Duration = Duration::from_secs(2);

struct Gpu {
    access: Option<NvmlAccess>,
    child: Option<NvmlChild>,
    mig_devices: MigDevices,
}

/// Builds the sampler. The worker starts with the first sample.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    let mut access = machine.nvml.clone();
    if let Some(access) = &mut access {
        access.period = access.period.max(SHORTEST_PERIOD);
    }
    Box::new(Gpu {
        access,
        child: None,
        mig_devices: machine.mig_devices.clone(),
    })
}

impl Sampler for Gpu {
    fn name(&self) -> &'static str {
        SOURCE
    }

    fn period(&self) -> Duration {
        MERGE_PERIOD
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let Some(access) = &self.access else {
            return Ok(Presence::Absent(Status::Absent));
        };
        let child = match &mut self.child {
            Some(child) => child,
            none => none.insert(
                NvmlChild::start(access.clone()).map_err(|cause| SampleError {
                    what: "the thread that supervises the NVML worker".to_owned(),
                    cause,
                })?,
            ),
        };
        let stale_after = (access.period * STALE_PERIODS).max(STALE_AT_LEAST);
        let view = child.view(FIRST_WORDS);
        // Also for a blocked GPU: its devices stay the same.
        let last_words = view.gpus.values();
        self.mig_devices
            .learn(last_words.filter_map(|gpu| gpu.reading.as_deref()));
        Ok(merge(&view, stale_after, reading))
    }
}

/// Adds what all GPUs reported, each as long as it is fresh, and reports the state of the
/// source.
fn merge(view: &View, stale_after: Duration, reading: &mut NodeReading) -> Presence {
    let labels = Labels::new([SOURCE]);
    reading.push(&SOURCE_ERRORS, &labels, view.errors);
    let mut answering = 0_usize;
    let (mut oldest, mut slowest) = (Duration::ZERO, 0.0_f64);
    for (ordinal, gpu) in &view.gpus {
        let age = gpu.at.elapsed();
        oldest = oldest.max(age);
        slowest = slowest.max(gpu.seconds);
        let status = status_of(gpu, age > stale_after);
        if let (Some(values), true) = (&gpu.reading, status != Some(Status::Timeout)) {
            reading.extend(values);
            answering += 1;
            for (feature, status) in &gpu.missing {
                let device = format!("{ordinal}/{feature}");
                let labels = Labels::new([SOURCE, &device, status.as_str()]);
                reading.push_full(&SOURCE_STATUS, &labels, true);
            }
        }
        if let Some(status) = status {
            reading.push_status(SOURCE, &ordinal.to_string(), status);
        }
    }
    for (ordinal, (status, events)) in &view.events {
        reading.extend(events);
        if *status != Status::Ok {
            let device = format!("{ordinal}/events");
            let labels = Labels::new([SOURCE, &device, status.as_str()]);
            reading.push_full(&SOURCE_STATUS, &labels, true);
        }
    }
    // What the thread sees (this function) is always fast and fresh; the worker's lines report
    // more.
    reading.push(&SOURCE_AGE, &labels, oldest.as_secs_f64());
    let late = view.gpus.values().map(|gpu| gpu.late_seconds);
    reading.push(&SOURCE_LATE, &labels, late.sum::<f64>());
    if answering > 0 {
        reading.push(&SOURCE_DURATION, &labels, slowest);
    }
    match view.phase {
        Phase::Refused(why) => Presence::Absent(why),
        Phase::Running if view.gpus.is_empty() => Presence::Absent(Status::Absent),
        _ if answering > 0 => Presence::Present,
        Phase::Ended => Presence::Absent(Status::Failed),
        Phase::Starting | Phase::Running => Presence::Absent(Status::Timeout),
    }
}

/// Where a GPU's status differs from the source's.
fn status_of(gpu: &LastWord, stale: bool) -> Option<Status> {
    match gpu.status {
        _ if stale => Some(Status::Timeout),
        Status::Ok => None,
        other => Some(other),
    }
}

//! GPU performance monitoring: what SMs, tensor cores, memory, PCIe and NVLink did between two samples.

use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::GpmSample;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::BYTES_PER_MEBIBYTE;

use super::calls::{Calls, Of};
use super::structs::gpm_metrics;

/// Shorter windows are noise, and cost the job more samples.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// Longer ones say nothing of now, and the counters behind them may have wrapped.
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
type Convert = fn(f64) -> f64;
const PERCENT: Convert = |percent| percent / 100.0;
const MEBIBYTES: Convert = |mebibytes| mebibytes * BYTES_PER_MEBIBYTE as f64;

/// The last sample of one GPU, and what the one before said with it.
#[derive(Default)]
pub(super) struct Gpm {
    before: Option<(GpmSample<'static>, Instant)>,
    values: Vec<(&'static Metric, f64)>,
}

impl Gpm {
    /// Adds what the GPU did since the last sample. Adds nothing before Hopper, and with the first sample.
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
        if self.before.is_none() && calls.ask(("gpm", Of::Feature), supported).is_none() {
            self.values.clear();
            return;
        }
        let age = self.before.as_ref().map(|(_, at)| at.elapsed());
        if age.is_none_or(|age| age >= SHORTEST_WINDOW) {
            self.advance(device, calls);
        }
        for (metric, value) in &self.values {
            reading.push(metric, gpu, *value);
        }
    }

    fn advance(&mut self, device: &Device<'static>, calls: &mut Calls) {
        let now = Instant::now();
        let sample = calls.ask(("gpm_sample", Of::Feature), || device.gpm_sample());
        let before = std::mem::replace(&mut self.before, sample.map(|sample| (sample, now)));
        self.values.clear();
        let (Some((before, begun)), Some((after, _))) = (&before, &self.before) else {
            return;
        };
        if now.duration_since(*begun) > LONGEST_WINDOW {
            return;
        }
        let ids = METRICS.map(|(id, ..)| id);
        let values = calls.ask(("gpm_metrics", Of::Feature), || {
            gpm_metrics(device.nvml(), before, after, &ids)
        });
        for ((_, metric, convert), value) in METRICS.into_iter().zip(values.unwrap_or_default()) {
            match value {
                Ok(value) if value.is_finite() && value >= 0.0 => {
                    self.values.push((metric, convert(value)));
                }
                // This GPU has no such metric, or the window held no data.
                Err(_) => {}
                Ok(_) => calls.count_failure(),
            }
        }
    }
}

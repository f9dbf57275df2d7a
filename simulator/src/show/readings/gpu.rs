//! What NVML reports about a GPU, as the exporter shows it.

use railscope_model::metric::{
    GPU_CLOCK, GPU_CLOCK_EVENT_SECONDS, GPU_ENERGY, GPU_MONITORED_SECONDS, GPU_POWER,
    GPU_POWER_LIMIT, GPU_ROW_REMAP_PENDING, GPU_TEMPERATURE, GPU_TENSOR_ACTIVE,
    GPU_TENSOR_ACTIVE_SECONDS, GPU_UTILIZATION, Metric, NVLINKS, NVLINKS_ACTIVE,
};
use railscope_model::reading::Value;
use railscope_model::units::{MILLIS, NANOS};

use crate::parts::gpu::Gpu;

pub(super) type OfGpu = fn(&Gpu) -> Value;

/// Metric, second label if it has one, value. The driver reports whole percents, megahertz and
/// degrees, milliwatts and millijoules.
pub(super) const GPU_VALUES: &[(&Metric, Option<&str>, OfGpu)] = &[
    (&GPU_UTILIZATION, None, |gpu| {
        ((gpu.utilization * 100.0).round() / 100.0).into()
    }),
    (&GPU_CLOCK, Some("sm"), |gpu| {
        (gpu.clock_mhz.round() as u64 * 1_000_000).into()
    }),
    (&GPU_POWER, None, |gpu| {
        ((gpu.power_watts * 1e3).trunc() / MILLIS).into()
    }),
    (&GPU_POWER_LIMIT, None, |gpu| {
        ((gpu.limit_watts * 1e3).trunc() / MILLIS).into()
    }),
    (&GPU_ENERGY, None, |gpu| {
        ((gpu.energy_joules * 1e3).trunc() / MILLIS).into()
    }),
    (&GPU_TEMPERATURE, Some("gpu"), |gpu| {
        (gpu.temperature_celsius.round() as u64).into()
    }),
    (&GPU_CLOCK_EVENT_SECONDS, Some("sw_power_cap"), |gpu| {
        whole_nanoseconds(gpu.event_seconds[0])
    }),
    (&GPU_CLOCK_EVENT_SECONDS, Some("hw_thermal"), |gpu| {
        whole_nanoseconds(gpu.event_seconds[1])
    }),
    (&GPU_CLOCK_EVENT_SECONDS, Some("hw_power_brake"), |gpu| {
        whole_nanoseconds(gpu.event_seconds[2])
    }),
    (&GPU_CLOCK_EVENT_SECONDS, Some("sw_thermal"), |_| 0.0.into()),
    (&GPU_CLOCK_EVENT_SECONDS, Some("sync_boost"), |_| 0.0.into()),
    (&GPU_ROW_REMAP_PENDING, None, |gpu| {
        gpu.row_remap_pending.into()
    }),
    (&GPU_TENSOR_ACTIVE, None, |gpu| {
        ((gpu.tensor_active * 1e3).round() / 10.0 / 100.0).into()
    }),
    (&GPU_TENSOR_ACTIVE_SECONDS, None, |gpu| {
        gpu.tensor_seconds.into()
    }),
    (&GPU_MONITORED_SECONDS, None, |gpu| {
        gpu.monitored_seconds.into()
    }),
    (&NVLINKS, None, |gpu| u64::from(gpu.model.nvlinks).into()),
    (&NVLINKS_ACTIVE, None, |gpu| u64::from(gpu.nvlinks).into()),
];

/// Those that performance monitoring reports.
pub(super) const GPM_VALUES: [&Metric; 3] = [
    &GPU_TENSOR_ACTIVE,
    &GPU_TENSOR_ACTIVE_SECONDS,
    &GPU_MONITORED_SECONDS,
];

fn whole_nanoseconds(seconds: f64) -> Value {
    ((seconds * 1e9).trunc() / NANOS).into()
}

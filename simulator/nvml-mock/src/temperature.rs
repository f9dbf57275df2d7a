//! Temperatures.

use crate::ffi::code;
use crate::live::Gpu;
use crate::symbols::getters;

/// `NVML_TEMPERATURE_GPU`, the only sensor of these functions; memory is field 82.
pub(crate) const GPU_SENSOR: u32 = 0;

getters! {
    nvmlDeviceGetTemperature(sensor: u32) -> u32 = |gpu| match sensor {
        GPU_SENSOR => Ok(gpu.temperature_celsius),
        _ => Err(code::INVALID_ARGUMENT),
    };
    nvmlDeviceGetTemperatureThreshold(threshold: u32) -> u32 = |gpu| match threshold {
        0 => Ok(gpu.temperature_shutdown_celsius),
        1 => Ok(gpu.temperature_slowdown_celsius),
        2 => Ok(gpu.memory_temperature_max_celsius),
        3 => Ok(gpu.temperature_max_celsius),
        4..=7 => Err(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    };
}

/// Degrees left below a limit, as in the T.Limit readings of Ada and later.
pub(crate) fn margin(celsius: u32, limit_celsius: u32) -> i32 {
    limit_celsius
        .cast_signed()
        .saturating_sub(celsius.cast_signed())
}

/// The limits themselves, as margins below the highest operating temperature (fields 193 to 196).
pub(crate) fn limit_margin(gpu: &Gpu, limit_celsius: u32) -> i32 {
    margin(limit_celsius, gpu.temperature_max_celsius)
}

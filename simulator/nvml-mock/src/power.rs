//! Clocks, what slows them, and power.

use crate::ffi::{Code, ViolationTime, code};
use crate::live::Gpu;
use crate::symbols::{getters, pairs};

getters! {
    nvmlDeviceGetClockInfo(clock: u32) -> u32 = |gpu| clock_mhz(gpu, clock);
    nvmlDeviceGetMaxClockInfo(clock: u32) -> u32 = |gpu| clock_max_mhz(gpu, clock);
    nvmlDeviceGetMaxCustomerBoostClock(clock: u32) -> u32 = |gpu| clock_max_mhz(gpu, clock);
    // Current, application target, application default, highest boost; applications clocks are gone on this driver.
    nvmlDeviceGetClock(clock: u32, which: u32) -> u32 = |gpu| match which {
        0 => clock_mhz(gpu, clock),
        1 | 2 => Err(code::NOT_SUPPORTED),
        3 => clock_max_mhz(gpu, clock),
        _ => Err(code::INVALID_ARGUMENT),
    };
    nvmlDeviceGetCurrentClocksThrottleReasons() -> u64 = |gpu| Ok(gpu.clocks_event_reasons);
    nvmlDeviceGetSupportedClocksThrottleReasons() -> u64 = |gpu| Ok(gpu.clocks_event_reasons_supported);
    nvmlDeviceGetViolationStatus(policy: u32) -> ViolationTime = |gpu| violation(gpu, policy);

    nvmlDeviceGetPowerManagementMode() -> u32 = |_gpu| Ok(1);
    nvmlDeviceGetPowerUsage() -> u32 = |gpu| Ok(gpu.power_milliwatts);
    nvmlDeviceGetPowerManagementLimit() -> u32 = |gpu| Ok(gpu.power_limit_milliwatts);
    nvmlDeviceGetPowerManagementDefaultLimit() -> u32 = |gpu| Ok(gpu.power_limit_default_milliwatts);
    nvmlDeviceGetEnforcedPowerLimit() -> u32 = |gpu| Ok(gpu.power_limit_enforced_milliwatts);
}

pairs! {
    nvmlDeviceGetPowerManagementLimitConstraints -> (u32, u32) = |gpu| {
        Ok((gpu.power_limit_min_milliwatts, gpu.power_limit_max_milliwatts))
    };
}

fn clock_mhz(gpu: &Gpu, clock: u32) -> Result<u32, Code> {
    match clock {
        0 => Ok(gpu.clock_graphics_mhz),
        1 => Ok(gpu.clock_sm_mhz),
        2 => Ok(gpu.clock_memory_mhz),
        3 => Ok(gpu.clock_video_mhz),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

fn clock_max_mhz(gpu: &Gpu, clock: u32) -> Result<u32, Code> {
    match clock {
        0 => Ok(gpu.clock_graphics_max_mhz),
        1 => Ok(gpu.clock_sm_max_mhz),
        2 => Ok(gpu.clock_memory_max_mhz),
        3 => Ok(gpu.clock_video_max_mhz),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

/// Time lost to heat, in hardware or software.
pub(crate) fn thermal_nanoseconds(gpu: &Gpu) -> u64 {
    gpu.sw_thermal_nanoseconds
        .saturating_add(gpu.hw_thermal_nanoseconds)
}

fn violation(gpu: &Gpu, policy: u32) -> Result<ViolationTime, Code> {
    let violation_time = match policy {
        0 => gpu.sw_power_cap_nanoseconds,
        1 => thermal_nanoseconds(gpu),
        2 => gpu.sync_boost_nanoseconds,
        3..=5 | 10 | 11 => return Err(code::NOT_SUPPORTED),
        _ => return Err(code::INVALID_ARGUMENT),
    };
    Ok(ViolationTime {
        reference_time: crate::fields::microseconds_since_epoch().unsigned_abs(),
        violation_time,
    })
}

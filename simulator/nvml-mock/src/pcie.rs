//! The PCIe link of a GPU.

use std::thread;
use std::time::Duration;

use crate::ffi::{Code, code};
use crate::live::Gpu;
use crate::symbols::getters;

getters! {
    nvmlDeviceGetCurrPcieLinkGeneration() -> u32 = |gpu| Ok(gpu.pcie_generation);
    nvmlDeviceGetMaxPcieLinkGeneration() -> u32 = |gpu| Ok(gpu.pcie_generation_max);
    nvmlDeviceGetGpuMaxPcieLinkGeneration() -> u32 = |gpu| Ok(gpu.pcie_generation_max);
    nvmlDeviceGetCurrPcieLinkWidth() -> u32 = |gpu| Ok(gpu.pcie_width_lanes);
    nvmlDeviceGetMaxPcieLinkWidth() -> u32 = |gpu| Ok(gpu.pcie_width_max_lanes);
    nvmlDeviceGetPcieSpeed() -> u32 = |gpu| megatransfers(gpu.pcie_generation);
    // An enumeration that happens to count as the generations do.
    nvmlDeviceGetPcieLinkMaxSpeed() -> u32 = |gpu| Ok(gpu.pcie_generation_max);
    nvmlDeviceGetPcieReplayCounter() -> u32 = |gpu| Ok(gpu.pcie_replays);
    nvmlDeviceGetPcieThroughput(counter: u32) -> u32 = |gpu| throughput(gpu, counter);
}

/// Megatransfers per second and lane of a PCIe generation.
fn megatransfers(generation: u32) -> Result<u32, Code> {
    match generation {
        1 => Ok(2_500),
        2 => Ok(5_000),
        3 => Ok(8_000),
        4 => Ok(16_000),
        5 => Ok(32_000),
        6 => Ok(64_000),
        _ => Err(code::NOT_SUPPORTED),
    }
}

/// The driver measures for 20 ms here, so a caller that reads eight GPUs in a row must notice the delay.
fn throughput(gpu: &Gpu, counter: u32) -> Result<u32, Code> {
    if counter > 1 {
        return Err(code::INVALID_ARGUMENT);
    }
    thread::sleep(Duration::from_millis(20));
    Ok(if counter == 0 {
        gpu.pcie_transmit_kilobytes_per_second
    } else {
        gpu.pcie_receive_kilobytes_per_second
    })
}

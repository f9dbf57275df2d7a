//! A node's GPUs as its NVML tells them: the simulated values in the mock library's state.

use railscope_model::identity::PciAddress;

use super::layout::gpu_address;
use crate::gpu::{ClockEvent, Gpu};
use crate::noise::Noise;
use crate::nvml::{self, Event, Fault, NodeGpus};

/// `NVML_ERROR_GPU_IS_LOST`.
const GPU_IS_LOST: u32 = 15;

/// UUID of a GPU. The same for the same place in the cluster.
pub fn uuid(node: u16, gpu: u8) -> String {
    let noise = Noise::new(u64::from(node) << 8 | u64::from(gpu));
    let (high, low) = (noise.bits(0), noise.bits(1));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// What NVML says of a node's GPUs before anything happened. `node` is the node's ordinal.
pub(crate) fn fitted(node: u16, gpus: usize) -> NodeGpus {
    let mut state = NodeGpus::h100(gpus);
    for (ordinal, gpu) in (0..).zip(&mut state.gpus) {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = gpu_address(ordinal);
        gpu.pci_address = nvml::PciAddress {
            domain,
            bus,
            device,
            function,
        };
        gpu.uuid = uuid(node, ordinal);
        gpu.serial = format!("1650{node:04}{ordinal:05}");
        gpu.host_numa_node = u32::from(ordinal / 4);
    }
    state
}

/// Brings the state up to what the GPUs show now.
pub(super) fn show(state: &mut NodeGpus, gpus: &[Gpu]) {
    for (to, from) in state.gpus.iter_mut().zip(gpus) {
        let (watts, clock) = (from.power_watts, from.clock_mhz.round() as u32);
        to.gpu_utilization_percent = (from.utilization * 100.0).round() as u32;
        to.clock_sm_mhz = clock;
        to.clock_graphics_mhz = clock;
        to.power_milliwatts = (watts * 1e3) as u32;
        to.power_instant_milliwatts = to.power_milliwatts;
        to.energy_millijoules = (from.energy_joules * 1e3) as u64;
        to.temperature_celsius = from.temperature_celsius.round() as u32;
        let nanoseconds = from.event_seconds.map(|seconds| (seconds * 1e9) as u64);
        [
            to.sw_power_cap_nanoseconds,
            to.hw_thermal_nanoseconds,
            to.hw_power_brake_nanoseconds,
        ] = nanoseconds;
        to.clocks_event_reasons = from.event.map_or(0, ClockEvent::bits);
        to.gpm = true;
        to.gpm_tensor_active_permille = (from.tensor_active * 1e3).round() as u32;
        to.remapped_rows_pending = from.row_remap_pending;
        for (number, link) in (0..).zip(&mut to.links) {
            link.state = u32::from(number < from.nvlinks);
        }
        to.events = (1..)
            .zip(&from.xids)
            .map(|(sequence, xid)| Event::xid((*xid).into(), sequence))
            .collect();
        to.faults = if from.lost {
            vec![Fault::fail("*", GPU_IS_LOST)]
        } else {
            Vec::new()
        };
    }
}

//! MIG: the instances that a GPU is partitioned into.

use std::collections::BTreeSet;

use nvml_wrapper::Device;
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading};

use super::calls::{Calls, Of};
use super::structs::mig_ids;

/// More instances than any product allows (7): a larger number is invalid.
const MOST_INSTANCES: u32 = 64;

/// Adds the GPU's MIG mode and, while it is on, its instances; also returns the numbers of its GPU
/// instances. Nothing of them is remembered: an administrator may lay them out again at any time.
pub(super) fn sample(
    device: &Device<'_>,
    gpu: &Labels,
    calls: &mut Calls,
    reading: &mut NodeReading,
) -> BTreeSet<u32> {
    calls.section("mig");
    let mut seen = BTreeSet::new();
    let Some(mode) = calls.ask(("mig_mode", Of::Feature), || device.mig_mode()) else {
        return seen;
    };
    let enabled = mode.current == 1;
    reading.push(&m::GPU_MIG_ENABLED, gpu, enabled);
    if !enabled {
        return seen;
    }
    let count = calls.try_once(|| device.mig_device_count()).unwrap_or(0);
    for index in 0..count.min(MOST_INSTANCES) {
        // Free slots return "not found".
        let Some(mig) = calls.try_once(|| device.mig_device_by_index(index)) else {
            continue;
        };
        let Some((gpu_instance, compute_instance)) = calls.try_once(|| mig_ids(&mig)) else {
            continue;
        };
        let instance = gpu.with(gpu_instance);
        let uuid = calls.try_once(|| mig.uuid()).unwrap_or_default();
        let name = calls.try_once(|| mig.name()).unwrap_or_default();
        let info = instance
            .with(compute_instance)
            .with(uuid)
            .with(profile(&name));
        reading.push(&m::MIG, &info, true);
        // Memory belongs to the GPU instance: its other compute instances would report the same
        // again.
        if !seen.insert(gpu_instance) {
            continue;
        }
        if let Some(memory) = calls.try_once(|| mig.memory_info()) {
            let used = memory.total.saturating_sub(memory.free);
            reading.push(&m::MIG_MEMORY_USED, &instance, used);
            reading.push(&m::MIG_MEMORY_SIZE, &instance, memory.total);
        }
    }
    seen
}

/// The profile in a MIG device's name: `NVIDIA A100-SXM4-80GB MIG 1g.10gb` is `1g.10gb`.
fn profile(name: &str) -> &str {
    name.rsplit_once(" MIG ").map_or("", |(_, profile)| profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_end_of_the_name() {
        for (name, expected) in [
            ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1g.10gb"),
            ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", "1c.3g.40gb"),
            ("NVIDIA H100 80GB HBM3", ""),
            ("", ""),
        ] {
            assert_eq!(profile(name), expected, "{name}");
        }
    }
}

//! ECC and parity errors of a GPU's SRAM: caches, registers, shared memory.

use nvml_wrapper::Device;
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading};

use super::calls::{Calls, Of};
use super::structs::sram_errors;

/// Adds the errors and whether they exceed NVIDIA's threshold, by one call: older GPUs and drivers do not have it.
pub(super) fn sample(
    device: &Device<'_>,
    gpu: &Labels,
    calls: &mut Calls,
    reading: &mut NodeReading,
) {
    calls.section("sram");
    let Some(errors) = calls.ask(("sram_ecc", Of::Feature), || sram_errors(device)) else {
        return;
    };
    for (kind, count) in [
        ("corrected", errors.volatileCor),
        ("parity", errors.volatileUncParity),
        ("secded", errors.volatileUncSecDed),
    ] {
        reading.push(&m::GPU_SRAM_ERRORS, &gpu.with(kind), count);
    }
    for (unit, count) in [
        ("l2", errors.aggregateUncBucketL2),
        ("sm", errors.aggregateUncBucketSm),
        ("pcie", errors.aggregateUncBucketPcie),
        ("microcontroller", errors.aggregateUncBucketMcu),
        ("other", errors.aggregateUncBucketOther),
    ] {
        reading.push(&m::GPU_SRAM_LIFETIME_ERRORS, &gpu.with(unit), count);
    }
    let is_exceeded = errors.bThresholdExceeded != 0;
    reading.push_flag(&m::GPU_SRAM_THRESHOLD_EXCEEDED, gpu, is_exceeded);
}

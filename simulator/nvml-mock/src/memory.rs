//! Memory of a GPU, and the errors in it.

use crate::ffi::{Bar1Memory, Code, Handle, Memory, code, store};
use crate::live::{Gpu, on_gpu};
use crate::symbols::{getters, pairs};

const CORRECTED: u32 = 0;
const UNCORRECTED: u32 = 1;
const VOLATILE: u32 = 0;
const AGGREGATE: u32 = 1;
const DRAM: u32 = 2;
const SRAM: u32 = 7;

getters! {
    // The first version counts the driver's reserve as used.
    nvmlDeviceGetMemoryInfo() -> Memory = |gpu| Ok(Memory {
        total: gpu.memory_total_bytes,
        free: free(gpu),
        used: gpu.memory_used_bytes.saturating_add(gpu.memory_reserved_bytes),
    });
    nvmlDeviceGetBAR1MemoryInfo() -> Bar1Memory = |gpu| Ok(Bar1Memory {
        total: gpu.bar1_total_bytes,
        free: gpu.bar1_total_bytes.saturating_sub(gpu.bar1_used_bytes),
        used: gpu.bar1_used_bytes,
    });
    nvmlDeviceGetTotalEccErrors(kind: u32, counter: u32) -> u64 = |gpu| total(gpu, kind, counter);
    nvmlDeviceGetMemoryErrorCounter(kind: u32, counter: u32, location: u32) -> u64 = |gpu| {
        ecc_errors(gpu, kind, counter, location)
    };
    nvmlDeviceGetRetiredPagesPendingStatus() -> u32 = |gpu| {
        gpu.retired_pages_pending.map(u32::from).ok_or(code::NOT_SUPPORTED)
    };
}

pairs! {
    nvmlDeviceGetEccMode -> (u32, u32) = |gpu| Ok((gpu.ecc_mode.into(), gpu.ecc_mode_pending.into()));
}

pub(crate) fn free(gpu: &Gpu) -> u64 {
    gpu.memory_total_bytes
        .saturating_sub(gpu.memory_used_bytes)
        .saturating_sub(gpu.memory_reserved_bytes)
}

/// Errors by place. A Hopper supports DRAM and SRAM only, as nvidia-smi shows.
pub(crate) fn ecc_errors(gpu: &Gpu, kind: u32, counter: u32, location: u32) -> Result<u64, Code> {
    if !gpu.ecc_mode {
        return Err(code::NOT_SUPPORTED);
    }
    match (kind, counter, location) {
        (CORRECTED, VOLATILE, DRAM) => Ok(gpu.ecc_volatile_corrected_dram),
        (CORRECTED, VOLATILE, SRAM) => Ok(gpu.ecc_volatile_corrected_sram),
        (UNCORRECTED, VOLATILE, DRAM) => Ok(gpu.ecc_volatile_uncorrected_dram),
        (UNCORRECTED, VOLATILE, SRAM) => Ok(gpu.ecc_volatile_uncorrected_sram),
        (CORRECTED, AGGREGATE, DRAM) => Ok(gpu.ecc_aggregate_corrected_dram),
        (CORRECTED, AGGREGATE, SRAM) => Ok(gpu.ecc_aggregate_corrected_sram),
        (UNCORRECTED, AGGREGATE, DRAM) => Ok(gpu.ecc_aggregate_uncorrected_dram),
        (UNCORRECTED, AGGREGATE, SRAM) => Ok(gpu.ecc_aggregate_uncorrected_sram),
        (CORRECTED | UNCORRECTED, VOLATILE | AGGREGATE, 0..SRAM) => Err(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

/// Errors wherever they happened.
pub(crate) fn total(gpu: &Gpu, kind: u32, counter: u32) -> Result<u64, Code> {
    Ok(ecc_errors(gpu, kind, counter, DRAM)?.saturating_add(ecc_errors(gpu, kind, counter, SRAM)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    correctable: *mut u32,
    uncorrectable: *mut u32,
    pending: *mut u32,
    failed: *mut u32,
) -> Code {
    on_gpu("nvmlDeviceGetRemappedRows", device, |gpu| {
        // SAFETY: NVML's contract: each is null or valid for a write.
        unsafe {
            store(correctable, gpu.remapped_rows_correctable)?;
            store(uncorrectable, gpu.remapped_rows_uncorrectable)?;
            store(pending, gpu.remapped_rows_pending.into())?;
            store(failed, gpu.remapped_rows_failed.into())
        }
    })
}

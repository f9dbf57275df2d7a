//! Identity of a GPU: names, addresses, modes, and the processes on it.

use crate::ffi::{Code, Handle, PciInfo, ProcessInfo, Utilization, code, store};
use crate::live::{Gpu, on_gpu};
use crate::state::ProcessKind;
use crate::symbols::{getters, pairs, texts};

/// "Belongs to no instance".
const NO_INSTANCE: u32 = u32::MAX;

texts! {
    nvmlDeviceGetSerial = |gpu| &gpu.serial;
    nvmlDeviceGetBoardPartNumber = |gpu| &gpu.board_part_number;
    nvmlDeviceGetVbiosVersion = |gpu| &gpu.vbios_version;
    nvmlDeviceGetGspFirmwareVersion = |gpu| &gpu.node.driver;
}

getters! {
    nvmlDeviceGetIndex() -> u32 = |gpu| u32::try_from(gpu.index).map_err(|_| code::INVALID_ARGUMENT);
    nvmlDeviceGetMinorNumber() -> u32 = |gpu| Ok(gpu.minor_number);
    nvmlDeviceGetModuleId() -> u32 = |gpu| Ok(gpu.module_id);
    nvmlDeviceGetBrand() -> u32 = |gpu| Ok(gpu.brand);
    nvmlDeviceGetArchitecture() -> u32 = |gpu| Ok(gpu.architecture);
    nvmlDeviceGetNumGpuCores() -> u32 = |gpu| Ok(gpu.cores);
    nvmlDeviceGetPciInfo_v3() -> PciInfo = |gpu| {
        Ok(PciInfo::new(gpu.pci_address, gpu.pci_device_id, gpu.pci_subsystem_id))
    };
    nvmlDeviceGetPersistenceMode() -> u32 = |gpu| Ok(gpu.persistence_mode.into());
    nvmlDeviceGetPerformanceState() -> u32 = |gpu| Ok(gpu.performance_state);
    nvmlDeviceGetPowerState() -> u32 = |gpu| Ok(gpu.performance_state);
    nvmlDeviceGetVirtualizationMode() -> u32 = |gpu| Ok(gpu.virtualization_mode);
    nvmlDeviceGetMaxMigDeviceCount() -> u32 = |gpu| Ok(if gpu.mig_mode { 7 } else { 0 });
    nvmlDeviceGetComputeMode() -> u32 = |_gpu| Ok(0);
    nvmlDeviceGetMultiGpuBoard() -> u32 = |_gpu| Ok(0);
    nvmlDeviceGetUtilizationRates() -> Utilization = |gpu| {
        Ok(Utilization { gpu: gpu.gpu_utilization_percent, memory: gpu.memory_utilization_percent })
    };
}

pairs! {
    nvmlDeviceGetCudaComputeCapability -> (i32, i32) = |gpu| Ok((gpu.cuda_capability_major, gpu.cuda_capability_minor));
    nvmlDeviceGetMigMode -> (u32, u32) = |gpu| Ok((gpu.mig_mode.into(), gpu.mig_mode_pending.into()));
}

/// A bit set of the host's NUMA nodes, in words of a C `unsigned long`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: Handle,
    words: u32,
    set: *mut usize,
    _scope: u32,
) -> Code {
    on_gpu("nvmlDeviceGetMemoryAffinity", device, |gpu| {
        if set.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let (word, bit) = (
            gpu.host_numa_node / usize::BITS,
            gpu.host_numa_node % usize::BITS,
        );
        if word >= words {
            return Err(code::INSUFFICIENT_SIZE);
        }
        for (slot, index) in (0..words).enumerate() {
            // SAFETY: NVML's contract: `set` has `words` words.
            unsafe { store(set.add(slot), if index == word { 1 << bit } else { 0 }) }?;
        }
        Ok(())
    })
}

macro_rules! process_lists {
    ($( $name:ident = $kind:expr; )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, count: *mut u32, out: *mut ProcessInfo) -> Code {
            on_gpu(stringify!($name), device, |gpu| {
                // SAFETY: passed on as NVML's caller gave it.
                unsafe { list_processes(gpu, $kind, count, out) }
            })
        }
    )*};
}

process_lists! {
    nvmlDeviceGetComputeRunningProcesses_v3 = Some(ProcessKind::Compute);
    nvmlDeviceGetGraphicsRunningProcesses_v3 = Some(ProcessKind::Graphics);
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = None;
}

/// `count` is the capacity on input and the number on output.
///
/// # Safety
/// `count` is null or valid; `out` is null or has room for `*count` entries.
unsafe fn list_processes(
    gpu: &Gpu,
    kind: Option<ProcessKind>,
    count: *mut u32,
    out: *mut ProcessInfo,
) -> Result<(), Code> {
    if count.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and then readable by this function's contract.
    let room = usize::try_from(unsafe { count.read() }).unwrap_or(usize::MAX);
    let found: Vec<_> = gpu
        .processes
        .iter()
        .filter(|process| Some(process.kind) == kind)
        .collect();
    // SAFETY: as above.
    unsafe { store(count, u32::try_from(found.len()).unwrap_or(u32::MAX)) }?;
    if found.len() > room {
        return Err(code::INSUFFICIENT_SIZE);
    }
    for (slot, process) in found.into_iter().enumerate() {
        if out.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        let info = ProcessInfo {
            pid: process.pid,
            used_gpu_memory: process.used_bytes,
            gpu_instance_id: NO_INSTANCE,
            compute_instance_id: NO_INSTANCE,
        };
        // SAFETY: `slot` is below `*count`, for which there is room by this function's contract.
        unsafe { store(out.add(slot), info) }?;
    }
    Ok(())
}

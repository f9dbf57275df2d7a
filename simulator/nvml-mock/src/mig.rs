//! MIG devices: separate handles, which few functions accept.

use std::ffi::c_char;

use crate::ffi::{Code, Handle, code, device_handle, store, store_text};
use crate::live::{Gpu, answer, on_gpu, peek};
use crate::state::{MAX_GPUS, MAX_MIG_DEVICES, MigDevice};

/// The address of a slot is the handle of a MIG device, as the slots of GPUs are theirs.
static SLOTS: [u8; MAX_GPUS * MAX_MIG_DEVICES] = [0; MAX_GPUS * MAX_MIG_DEVICES];

/// GPU and place of the MIG device behind a handle.
fn places(handle: Handle) -> Option<(usize, usize)> {
    let slot = handle.addr().checked_sub(SLOTS.as_ptr().addr());
    let slot = slot.filter(|slot| *slot < SLOTS.len())?;
    Some((slot / MAX_MIG_DEVICES, slot % MAX_MIG_DEVICES))
}

/// Runs a call that takes the handle of a GPU or of a MIG device.
pub(crate) fn on_instance(
    function: &str,
    device: Handle,
    body: impl FnOnce(&Gpu, Option<&MigDevice>) -> Result<(), Code>,
) -> Code {
    let Some((gpu, place)) = places(device) else {
        return on_gpu(function, device, |gpu| body(gpu, None));
    };
    on_gpu(function, device_handle(gpu), |gpu| {
        // The administrator may have destroyed it since.
        let mig = gpu.mig.get(place).filter(|_| gpu.mig_mode);
        body(gpu, Some(mig.ok_or(code::INVALID_ARGUMENT)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: u32,
    out: *mut Handle,
) -> Code {
    on_gpu("nvmlDeviceGetMigDeviceHandleByIndex", device, |gpu| {
        if !gpu.mig_mode {
            return Err(code::NOT_SUPPORTED);
        }
        let index = usize::try_from(index).map_err(|_| code::INVALID_ARGUMENT)?;
        if index >= MAX_MIG_DEVICES {
            return Err(code::INVALID_ARGUMENT);
        }
        if index >= gpu.mig.len() {
            return Err(code::NOT_FOUND);
        }
        let slot = SLOTS
            .as_ptr()
            .wrapping_add(gpu.index * MAX_MIG_DEVICES + index);
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, slot.cast_mut().cast()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    mig: Handle,
    out: *mut Handle,
) -> Code {
    on_instance(
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
        mig,
        |gpu, mig| {
            mig.ok_or(code::INVALID_ARGUMENT)?;
            // SAFETY: NVML's contract: null or valid for a write.
            unsafe { store(out, device_handle(gpu.index)) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, out: *mut u32) -> Code {
    answer(peek().and_then(|_| {
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, places(device).is_some().into()) }
    }))
}

macro_rules! ids {
    ($( $name:ident = $field:ident; )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(mig: Handle, out: *mut u32) -> Code {
            on_instance(stringify!($name), mig, |_gpu, mig| {
                // SAFETY: NVML's contract: null or valid for a write.
                unsafe { store(out, mig.ok_or(code::NOT_SUPPORTED)?.$field) }
            })
        }
    )*};
}

ids! {
    nvmlDeviceGetGpuInstanceId = gpu_instance;
    nvmlDeviceGetComputeInstanceId = compute_instance;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, out: *mut c_char, length: u32) -> Code {
    on_instance("nvmlDeviceGetName", device, |gpu, mig| {
        let name = mig.map(|mig| format!("{} MIG {}", gpu.name, mig.profile));
        // SAFETY: NVML's contract: `out` is null or has `length` bytes.
        unsafe { store_text(out, length, name.as_deref().unwrap_or(&gpu.name)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, length: u32) -> Code {
    on_instance("nvmlDeviceGetUUID", device, |gpu, mig| {
        // The driver hashes; ours only have to differ.
        let uuid = mig.map(|mig| {
            let base = gpu.uuid.replacen("GPU-", "MIG-", 1);
            format!("{base}/{}/{}", mig.gpu_instance, mig.compute_instance)
        });
        // SAFETY: NVML's contract: `out` is null or has `length` bytes.
        unsafe { store_text(out, length, uuid.as_deref().unwrap_or(&gpu.uuid)) }
    })
}

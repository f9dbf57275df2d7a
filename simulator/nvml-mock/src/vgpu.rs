//! vGPU: instances on a host, by numbers that are unique on the node, and the licenses of a guest.

use std::ffi::c_char;

use crate::ffi::{Code, Handle, code, fixed, store, store_text, version};
use crate::live::{Gpu, answer, on_gpu, pass, peek};
use crate::newer::struct_version;
use crate::state::Vgpu;
use crate::symbols::getters;

/// `NVML_GPU_VIRTUALIZATION_MODE_VGPU` and `..._HOST_VGPU`.
const GUEST: u32 = 2;
const HOST: u32 = 3;

/// `count` is the capacity on input and the number on output.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetActiveVgpus(
    device: Handle,
    count: *mut u32,
    out: *mut u32,
) -> Code {
    on_gpu("nvmlDeviceGetActiveVgpus", device, |gpu| {
        host(gpu)?;
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and then readable by NVML's contract.
        let room = usize::try_from(unsafe { count.read() }).unwrap_or(usize::MAX);
        let found = u32::try_from(gpu.vgpus.len()).unwrap_or(u32::MAX);
        // SAFETY: as above.
        unsafe { store(count, found) }?;
        if gpu.vgpus.len() > room {
            return Err(code::INSUFFICIENT_SIZE);
        }
        for (slot, vgpu) in gpu.vgpus.iter().enumerate() {
            if out.is_null() {
                return Err(code::INVALID_ARGUMENT);
            }
            // SAFETY: `slot` is below `*count`, for which there is room by NVML's contract.
            unsafe { store(out.add(slot), vgpu.instance) }?;
        }
        Ok(())
    })
}

fn host(gpu: &Gpu) -> Result<(), Code> {
    let is_host = gpu.virtualization_mode == HOST;
    is_host.then_some(()).ok_or(code::NOT_SUPPORTED)
}

/// Runs a call with the number of an instance; faults of its GPU concern it.
fn on_vgpu(function: &str, instance: u32, body: impl FnOnce(&Vgpu) -> Result<(), Code>) -> Code {
    answer(peek().and_then(|node| {
        let holds = |vgpus: &[Vgpu]| vgpus.iter().any(|vgpu| vgpu.instance == instance);
        let gpu = node.gpus.iter().position(|gpu| holds(&gpu.vgpus));
        let node = pass(function, gpu)?;
        let mut vgpus = node.gpus.iter().flat_map(|gpu| &gpu.vgpus);
        let vgpu = vgpus.find(|vgpu| vgpu.instance == instance);
        body(vgpu.ok_or(code::NOT_FOUND)?)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetUUID(instance: u32, out: *mut c_char, size: u32) -> Code {
    on_vgpu("nvmlVgpuInstanceGetUUID", instance, |vgpu| {
        // SAFETY: NVML's contract: `out` is null or has `size` bytes.
        unsafe { store_text(out, size, &vgpu.uuid) }
    })
}

/// A VM's id counts as a UUID (1) where it looks like one, otherwise a domain (0).
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetVmID(
    instance: u32,
    out: *mut c_char,
    size: u32,
    kind: *mut u32,
) -> Code {
    on_vgpu("nvmlVgpuInstanceGetVmID", instance, |vgpu| {
        // SAFETY: NVML's contract: `out` is null or has `size` bytes, `kind` is null or valid for a write.
        unsafe {
            store_text(out, size, &vgpu.vm)?;
            store(kind, (vgpu.vm.matches('-').count() == 4).into())
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetFbUsage(instance: u32, out: *mut u64) -> Code {
    on_vgpu("nvmlVgpuInstanceGetFbUsage", instance, |vgpu| {
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, vgpu.used_bytes) }
    })
}

/// Every instance has its own type, with the same number.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetType(instance: u32, out: *mut u32) -> Code {
    on_vgpu("nvmlVgpuInstanceGetType", instance, |vgpu| {
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, vgpu.instance) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuTypeGetName(kind: u32, out: *mut c_char, size: *mut u32) -> Code {
    on_vgpu("nvmlVgpuTypeGetName", kind, |vgpu| {
        if size.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and then readable by NVML's contract; `out` is null or has so many bytes.
        unsafe { store_text(out, size.read(), &vgpu.name) }
    })
}

/// `nvmlVgpuLicenseInfo_t`.
#[repr(C)]
pub(crate) struct LicenseInfo {
    pub(crate) is_licensed: u8,
    pub(crate) license_expiry: Expiry,
    pub(crate) current_state: u32,
}

/// `nvmlVgpuLicenseExpiry_t` and `nvmlGridLicenseExpiry_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Expiry {
    pub(crate) year: u32,
    pub(crate) month: u16,
    pub(crate) day: u16,
    pub(crate) hour: u16,
    pub(crate) min: u16,
    pub(crate) sec: u16,
    pub(crate) status: u8,
}

/// `NVML_GRID_LICENSE_STATE_LICENSED`.
const LICENSED: u32 = 5;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlVgpuInstanceGetLicenseInfo_v2(
    instance: u32,
    out: *mut LicenseInfo,
) -> Code {
    on_vgpu("nvmlVgpuInstanceGetLicenseInfo_v2", instance, |vgpu| {
        // Until the guest has loaded its driver, NVML returns this text.
        let state = vgpu.license_state.ok_or(code::DRIVER_NOT_LOADED)?;
        let info = LicenseInfo {
            is_licensed: (state == LICENSED).into(),
            license_expiry: Expiry::default(),
            current_state: state,
        };
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, info) }
    })
}

/// `nvmlVgpuSchedulerGetState_t`; the union's two shapes are written as their words.
#[repr(C)]
pub(crate) struct SchedulerState {
    pub(crate) scheduler_policy: u32,
    pub(crate) arr_mode: u32,
    pub(crate) scheduler_params: [u32; 2],
}

/// `NVML_VGPU_SCHEDULER_ARR_ENABLE`.
const ARR_ENABLED: u32 = 2;
/// Average factor of adaptive round robin; the driver's own default.
const AVERAGE_FACTOR: u32 = 33;

getters! {
    nvmlDeviceGetVgpuSchedulerState() -> SchedulerState = |gpu| host(gpu).map(|()| SchedulerState {
        scheduler_policy: gpu.vgpu_scheduler_policy,
        arr_mode: gpu.vgpu_scheduler_adaptive,
        scheduler_params: match gpu.vgpu_scheduler_adaptive {
            ARR_ENABLED => [AVERAGE_FACTOR, gpu.vgpu_timeslice_nanoseconds],
            _ => [gpu.vgpu_timeslice_nanoseconds, 0],
        },
    });
    nvmlDeviceGetHostVgpuMode() -> u32 = |gpu| host(gpu).map(|()| 1);
    nvmlDeviceGetGridLicensableFeatures_v4() -> LicensableFeatures = |gpu| features(gpu);
}

/// `nvmlVgpuHeterogeneousMode_v1_t`.
#[repr(C)]
pub(crate) struct HeterogeneousMode {
    pub(crate) version: u32,
    pub(crate) mode: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetVgpuHeterogeneousMode(
    device: Handle,
    request: *mut HeterogeneousMode,
) -> Code {
    on_gpu("nvmlDeviceGetVgpuHeterogeneousMode", device, |gpu| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        let version = unsafe { version(request) }?;
        if version != struct_version::<HeterogeneousMode>(1) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        host(gpu)?;
        let mode = gpu.vgpu_heterogeneous.ok_or(code::NOT_SUPPORTED)?.into();
        // SAFETY: the version guarantees a complete struct.
        unsafe { store(request, HeterogeneousMode { version, mode }) }
    })
}

/// `nvmlGridLicensableFeature_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LicensableFeature {
    pub(crate) feature_code: u32,
    pub(crate) feature_state: u32,
    pub(crate) license_info: [c_char; 128],
    pub(crate) product_name: [c_char; 128],
    pub(crate) feature_enabled: u32,
    pub(crate) license_expiry: Expiry,
}

/// `nvmlGridLicensableFeatures_t`.
#[repr(C)]
pub(crate) struct LicensableFeatures {
    pub(crate) is_grid_license_supported: i32,
    pub(crate) licensable_features_count: u32,
    pub(crate) grid_licensable_features: [LicensableFeature; 3],
}

/// A guest has one feature that is switched on, and one that is not.
fn features(gpu: &Gpu) -> Result<LicensableFeatures, Code> {
    let feature = |code, enabled: bool| LicensableFeature {
        feature_code: code,
        feature_state: (enabled && gpu.license_held).into(),
        license_info: [0; 128],
        product_name: fixed(&gpu.license_product),
        feature_enabled: enabled.into(),
        license_expiry: Expiry::default(),
    };
    Ok(LicensableFeatures {
        is_grid_license_supported: (gpu.virtualization_mode == GUEST).into(),
        licensable_features_count: 2,
        grid_licensable_features: [feature(4, true), feature(2, false), feature(0, false)],
    })
}

//! The NVML calls about structs that `nvml-wrapper` does not wrap, or wraps with a loss: fabric, platform,
//! MIG ids, vGPUs, and events of every kind.
// Calls through the C function pointers that the wrapper loaded; see `raw` for the others.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::mem;
use std::time::Duration;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`.
const VERSION_MISMATCH: u32 = 25;
/// `NVML_ERROR_INSUFFICIENT_SIZE`: how lists report how long they are.
const INSUFFICIENT_SIZE: u32 = 7;
/// `NVML_VGPU_SCHEDULER_ARR_ENABLE`.
const ARR_ENABLED: u32 = 2;

/// `NVML_STRUCT_VERSION`: the size, and the version in the highest byte.
const fn version<T>(version: u32) -> u32 {
    // No struct of NVML comes near 2^24 bytes.
    size_of::<T>() as u32 | version << 24
}

/// Registration of a GPU with the NVLink fabric, as NVML counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fabric {
    pub(super) cluster_uuid: [u8; 16],
    pub(super) clique: u32,
    pub(super) state: u8,
    pub(super) status: u32,
    pub(super) health_mask: u32,
}

/// The GPU's place in an NVLink fabric, by the third version of the call or, on older drivers, the second.
///
/// # Errors
/// As NVML reports.
pub(super) fn fabric(device: &Device<'_>) -> Result<Fabric, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    // SAFETY: a C struct of integers, for which all zeros is a value.
    let mut info: sys::nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
    info.version = version::<sys::nvmlGpuFabricInfo_v3_t>(3);
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `info` is a struct of the version that it names.
    let mut code = unsafe { call(device.handle(), &raw mut info) };
    if code == VERSION_MISMATCH {
        info.version = version::<sys::nvmlGpuFabricInfo_v2_t>(2);
        // SAFETY: as above; the second version is the beginning of the third.
        code = unsafe { call(device.handle(), &raw mut info) };
    }
    nvml_try(code)?;
    Ok(Fabric {
        cluster_uuid: info.clusterUuid,
        clique: info.cliqueId,
        state: info.state,
        status: info.status,
        health_mask: info.healthMask,
    })
}

/// Where a GPU sits in a rack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    pub(super) fabric_guid: [u8; 16],
    pub(super) chassis_serial: [u8; 16],
    pub(super) slot: u8,
    pub(super) tray: u8,
    pub(super) host: u8,
    pub(super) peer_type: u8,
    pub(super) module: u8,
}

/// The GPU's place in the rack; Blackwell and later.
///
/// # Errors
/// As NVML reports.
pub(super) fn platform(device: &Device<'_>) -> Result<Platform, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetPlatformInfo.as_ref())?;
    // SAFETY: a C struct of integers, for which all zeros is a value.
    let mut info: sys::nvmlPlatformInfo_v2_t = unsafe { mem::zeroed() };
    info.version = version::<sys::nvmlPlatformInfo_v2_t>(2);
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `info` is a struct of the version that it names.
    nvml_try(unsafe { call(device.handle(), &raw mut info) })?;
    Ok(Platform {
        fabric_guid: info.ibGuid,
        chassis_serial: info.chassisSerialNumber,
        slot: info.slotNumber,
        tray: info.trayIndex,
        host: info.hostId,
        peer_type: info.peerType,
        module: info.moduleId,
    })
}

/// The socket of the GPU on its board.
///
/// # Errors
/// As NVML reports.
pub(super) fn module_id(device: &Device<'_>) -> Result<u32, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetModuleId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `id` is what the call may write to.
    nvml_try(unsafe { call(device.handle(), &raw mut id) })?;
    Ok(id)
}

/// Degrees Celsius left until the GPU slows itself down.
///
/// # Errors
/// As NVML reports.
pub(super) fn temperature_margin(device: &Device<'_>) -> Result<i32, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMarginTemperature.as_ref())?;
    let mut margin = sys::nvmlMarginTemperature_v1_t {
        version: version::<sys::nvmlMarginTemperature_v1_t>(1),
        marginTemperature: 0,
    };
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `margin` is a struct of the version that it names.
    nvml_try(unsafe { call(device.handle(), &raw mut margin) })?;
    Ok(margin.marginTemperature)
}

/// Errors of the GPU's SRAM (caches, registers, shared memory) by ECC and parity.
///
/// # Errors
/// As NVML reports.
pub(super) fn sram_errors(
    device: &Device<'_>,
) -> Result<sys::nvmlEccSramErrorStatus_v1_t, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetSramEccErrorStatus.as_ref())?;
    // SAFETY: a C struct of integers, for which all zeros is a value.
    let mut status: sys::nvmlEccSramErrorStatus_v1_t = unsafe { mem::zeroed() };
    status.version = version::<sys::nvmlEccSramErrorStatus_v1_t>(1);
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `status` is a struct of the version that it names.
    nvml_try(unsafe { call(device.handle(), &raw mut status) })?;
    Ok(status)
}

/// GPU instance and compute instance of a MIG device.
///
/// # Errors
/// As NVML reports.
pub(super) fn mig_ids(mig: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let nvml = mig.nvml();
    let gpu = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu_instance, mut compute_instance) = (0, 0);
    // SAFETY: the handle belongs to the library that the calls were loaded from, which the device borrows,
    // and both numbers are what they may write to.
    unsafe {
        nvml_try(gpu(mig.handle(), &raw mut gpu_instance))?;
        nvml_try(compute(mig.handle(), &raw mut compute_instance))?;
    }
    Ok((gpu_instance, compute_instance))
}

/// Numbers of the vGPU instances that run on a host's GPU.
///
/// # Errors
/// As NVML reports.
pub(super) fn active_vgpus(device: &Device<'_>) -> Result<Vec<u32>, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetActiveVgpus.as_ref())?;
    let mut count = 0;
    // SAFETY: the handle belongs to the library that `call` was loaded from; with room for none, the call
    // writes to `count` only.
    let code = unsafe { call(device.handle(), &raw mut count, std::ptr::null_mut()) };
    if code != INSUFFICIENT_SIZE {
        nvml_try(code)?;
    }
    let mut ids = vec![0; usize::try_from(count).map_err(|_| NvmlError::Unknown)?];
    if ids.is_empty() {
        return Ok(ids);
    }
    // SAFETY: as above, and `ids` has room for `count`.
    nvml_try(unsafe { call(device.handle(), &raw mut count, ids.as_mut_ptr()) })?;
    // One that ended in between is not listed any more.
    ids.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(ids)
}

/// How vGPUs share a GPU in time, as NVML counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scheduler {
    pub(super) policy: u32,
    pub(super) adaptive: u32,
    pub(super) timeslice_nanoseconds: u32,
}

/// The vGPU scheduler of a host's GPU. The wrapper's own leaves the time slice out.
///
/// # Errors
/// As NVML reports.
pub(super) fn vgpu_scheduler(device: &Device<'_>) -> Result<Scheduler, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetVgpuSchedulerState.as_ref())?;
    // SAFETY: a C struct of integers and a union of structs of them, for which all zeros is a value.
    let mut state: sys::nvmlVgpuSchedulerGetState_t = unsafe { mem::zeroed() };
    // SAFETY: the handle belongs to the library that `call` was loaded from, and `state` is what it may
    // write to.
    nvml_try(unsafe { call(device.handle(), &raw mut state) })?;
    let parameters = state.schedulerParams;
    // SAFETY: both members of the union are integers, and all of its bytes were set above.
    let timeslice = unsafe {
        match state.arrMode {
            ARR_ENABLED => parameters.vgpuSchedDataWithARR.timeslice,
            _ => parameters.vgpuSchedData.timeslice,
        }
    };
    Ok(Scheduler {
        policy: state.schedulerPolicy,
        adaptive: state.arrMode,
        timeslice_nanoseconds: timeslice,
    })
}

/// Whether vGPUs of several sizes may run on a host's GPU at once.
///
/// # Errors
/// As NVML reports.
pub(super) fn vgpu_heterogeneous(device: &Device<'_>) -> Result<bool, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetVgpuHeterogeneousMode.as_ref())?;
    let mut mode = sys::nvmlVgpuHeterogeneousMode_v1_t {
        version: version::<sys::nvmlVgpuHeterogeneousMode_v1_t>(1),
        mode: 0,
    };
    // SAFETY: the handle belongs to the library that `call` was loaded from, and `mode` is a struct of the
    // version that it names.
    nvml_try(unsafe { call(device.handle(), &raw mut mode) })?;
    Ok(mode.mode != 0)
}

/// A feature that is switched on in a vGPU guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LicensedFeature {
    pub(super) code: u32,
    pub(super) product: String,
    pub(super) licensed: bool,
}

/// The features of a vGPU guest that need a license and are switched on.
///
/// # Errors
/// As NVML reports; `NotSupported` where nothing needs one.
pub(super) fn licensed_features(device: &Device<'_>) -> Result<Vec<LicensedFeature>, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGridLicensableFeatures_v4.as_ref())?;
    // SAFETY: a C struct of integers and texts, for which all zeros is a value.
    let mut all: sys::nvmlGridLicensableFeatures_t = unsafe { mem::zeroed() };
    // SAFETY: the handle belongs to the library that `call` was loaded from, and `all` is what it may write to.
    nvml_try(unsafe { call(device.handle(), &raw mut all) })?;
    if all.isGridLicenseSupported == 0 {
        return Err(NvmlError::NotSupported);
    }
    let count = usize::try_from(all.licensableFeaturesCount).unwrap_or(usize::MAX);
    let features = all.gridLicensableFeatures.iter().take(count);
    let enabled = features.filter(|feature| feature.featureEnabled != 0);
    Ok(enabled
        .map(|feature| LicensedFeature {
            code: feature.featureCode,
            product: text(&feature.productName),
            licensed: feature.featureState != 0,
        })
        .collect())
}

/// A C text in a field of a struct, up to its closing zero or the field's end.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| byte.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Something that NVML reported: its type as `nvmlEventType...` counts, the XID where it is one, and the
/// address of the handle of the GPU that it happened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: u64,
    pub(super) data: u64,
    pub(super) device: usize,
}

/// The address of a GPU's handle, to compare with that of an [`Event`].
pub(super) fn handle_address(device: &Device<'_>) -> usize {
    // SAFETY: the handle is only compared, never used.
    unsafe { device.handle() }.addr()
}

/// The event set of one GPU. The wrapper's own loses event types that it does not support, and the whole set
/// when a GPU refuses one.
pub(super) struct EventSet {
    nvml: &'static Nvml,
    set: sys::nvmlEventSet_t,
}

impl EventSet {
    /// A set that waits for those of `wanted` (a sum of event types) that the GPU can report.
    ///
    /// # Errors
    /// As NVML reports; `NotSupported` if it can report none of them.
    pub(super) fn new(device: &Device<'static>, wanted: u64) -> Result<Self, NvmlError> {
        let nvml = device.nvml();
        let create = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let register = nvml_sym(nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        let supported = nvml_sym(nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let mut types = 0;
        // SAFETY: the handle belongs to the library that `supported` was loaded from, and `types` is what it
        // may write to.
        nvml_try(unsafe { supported(device.handle(), &raw mut types) })?;
        if types & wanted == 0 {
            return Err(NvmlError::NotSupported);
        }
        let mut set = std::ptr::null_mut();
        // SAFETY: `set` is what the call may write to.
        nvml_try(unsafe { create(&raw mut set) })?;
        let set = Self { nvml, set };
        // SAFETY: device and set belong to the library that `register` was loaded from.
        nvml_try(unsafe { register(device.handle(), types & wanted, set.set) })?;
        Ok(set)
    }

    /// Waits for the next event; none if the time passes without one.
    ///
    /// # Errors
    /// As NVML reports.
    pub(super) fn wait(&self, patience: Duration) -> Result<Option<Event>, NvmlError> {
        let wait = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let milliseconds = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: a C struct of integers and a pointer, for which all zeros is a value.
        let mut data: sys::nvmlEventData_t = unsafe { mem::zeroed() };
        // SAFETY: the set belongs to the library that `wait` was loaded from, and `data` is what the call may
        // write to.
        match nvml_try(unsafe { wait(self.set, &raw mut data, milliseconds) }) {
            Ok(()) => Ok(Some(Event {
                kind: data.eventType,
                data: data.eventData,
                device: data.device.addr(),
            })),
            Err(NvmlError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = nvml_sym(self.nvml.lib().nvmlEventSetFree.as_ref()) {
            // SAFETY: the set belongs to the library that `free` was loaded from, and nothing uses it any
            // more. A set that cannot be freed leaks a few bytes, once a lost GPU.
            unsafe { free(self.set) };
        }
    }
}

//! The NVML calls about structs that `nvml-wrapper` does not wrap, or wraps with a loss: fabric, platform,
//! MIG ids, events of every kind, and GPM metrics by number.
// Calls through the C function pointers that the wrapper loaded; see `raw` for the others.
#![allow(unsafe_code)]

use std::mem;
use std::time::Duration;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::GpmSample;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`.
const VERSION_MISMATCH: u32 = 25;

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
/// As NVML says.
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
/// As NVML says.
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
/// As NVML says.
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
/// As NVML says.
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

/// GPU instance and compute instance of a MIG device.
///
/// # Errors
/// As NVML says.
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

/// GPM metrics by their numbers, over the time between two samples, each in its number's place. The wrapper
/// knows numbers up to 97 only.
///
/// # Errors
/// The call as a whole failed; single metrics fail by themselves.
pub(super) fn gpm_metrics(
    nvml: &Nvml,
    before: &GpmSample<'_>,
    after: &GpmSample<'_>,
    ids: &[u32],
) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlGpmMetricsGet.as_ref())?;
    // SAFETY: a C struct of integers, floats and pointers, for which all zeros is a value. Boxed because it
    // holds room for 210 metrics.
    let mut request: Box<sys::nvmlGpmMetricsGet_t> = Box::new(unsafe { mem::zeroed() });
    request.version = sys::NVML_GPM_METRICS_GET_VERSION;
    request.numMetrics = u32::try_from(ids.len()).map_err(|_| NvmlError::InvalidArg)?;
    if ids.len() > request.metrics.len() {
        return Err(NvmlError::InvalidArg);
    }
    // SAFETY: the handles are only stored here; both samples outlive the call.
    (request.sample1, request.sample2) = unsafe { (before.handle(), after.handle()) };
    for (metric, id) in request.metrics.iter_mut().zip(ids) {
        metric.metricId = *id;
    }
    // SAFETY: `call` and the samples are of the library that `nvml` holds, and the request says how many of its
    // metrics are set.
    nvml_try(unsafe { call(&raw mut *request) })?;
    let metrics = request.metrics.iter().take(ids.len());
    Ok(metrics
        .map(|metric| nvml_try(metric.nvmlReturn).map(|()| metric.value))
        .collect())
}

/// Something that NVML told: its type as `nvmlEventType...` counts, and the XID where it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: u64,
    pub(super) data: u64,
}

/// The event set of one GPU. The wrapper's own loses event types that it does not know, and the whole set
/// when a GPU refuses one.
pub(super) struct EventSet {
    nvml: &'static Nvml,
    set: sys::nvmlEventSet_t,
}

impl EventSet {
    /// A set that waits for those of `wanted` (a sum of event types) that the GPU can tell.
    ///
    /// # Errors
    /// As NVML says; `NotSupported` if it can tell none of them.
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
    /// As NVML says.
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
            })),
            Err(NvmlError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = nvml_sym(self.nvml.lib().nvmlEventSetFree.as_ref()) {
            // SAFETY: the set belongs to the library that `free` was loaded from, and nobody uses it any more.
            // A set that cannot be freed leaks a few bytes, once a lost GPU.
            unsafe { free(self.set) };
        }
    }
}

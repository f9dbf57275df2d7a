//! GPU performance monitoring: samples that clients hold and free, and metrics over the time between two.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr::without_provenance_mut;
use std::sync::Mutex;
use std::time::Instant;

use crate::ffi::{Code, GpmSupport, Handle, code, store, version};
use crate::live::{Gpu, answer, lock, on_gpu, pass, peek};
use crate::state::GpuState;

/// `NVML_GPM_SUPPORT_VERSION` and `NVML_GPM_METRICS_GET_VERSION`: plain numbers, unlike the versions of other structs.
const SUPPORT_VERSION: u32 = 1;
const METRICS_VERSION: u32 = 1;
/// `NVML_GPM_METRIC_MAX` of the headers of driver 590.
pub(crate) const MOST_METRICS: usize = 210;

/// Samples handed out and not yet freed, with the GPU and the time they hold; the next one is one more than the highest.
static SAMPLES: Mutex<BTreeMap<usize, Option<(usize, Instant)>>> = Mutex::new(BTreeMap::new());

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, request: *mut GpmSupport) -> Code {
    on_gpu("nvmlGpmQueryDeviceSupport", device, |gpu| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        let version = unsafe { version(request) }?;
        if version != SUPPORT_VERSION {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: the version says that the struct is whole.
        unsafe {
            store(
                request,
                GpmSupport {
                    version,
                    is_supported_device: gpu.gpm.into(),
                },
            )
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut Handle) -> Code {
    answer(pass("nvmlGpmSampleAlloc", None).and_then(|_| {
        let mut samples = lock(&SAMPLES);
        let id = samples.last_key_value().map_or(0, |(id, _)| *id) + 1;
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, without_provenance_mut(id)) }?;
        samples.insert(id, None);
        Ok(())
    }))
}

/// Never fails by injection: clients call it from their destructors.
#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: Handle) -> Code {
    if lock(&SAMPLES).remove(&sample.addr()).is_some() {
        code::SUCCESS
    } else {
        code::INVALID_ARGUMENT
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: Handle, sample: Handle) -> Code {
    on_gpu("nvmlGpmSampleGet", device, |gpu| fill(gpu, sample))
}

fn fill(gpu: &Gpu, sample: Handle) -> Result<(), Code> {
    // A partitioned GPU is sampled by instance.
    if !gpu.gpm || gpu.mig_mode {
        return Err(code::NOT_SUPPORTED);
    }
    let mut samples = lock(&SAMPLES);
    let held = samples
        .get_mut(&sample.addr())
        .ok_or(code::INVALID_ARGUMENT)?;
    *held = Some((gpu.index, Instant::now()));
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: Handle, _instance: u32, _sample: Handle) -> Code {
    on_gpu("nvmlGpmMigSampleGet", device, |_gpu| {
        Err(code::NOT_SUPPORTED)
    })
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
pub(crate) struct Metric {
    pub(crate) metric_id: u32,
    pub(crate) nvml_return: Code,
    pub(crate) value: f64,
    pub(crate) names: [*mut c_char; 3],
}

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
pub(crate) struct MetricsGet {
    pub(crate) version: u32,
    pub(crate) num_metrics: u32,
    pub(crate) sample1: Handle,
    pub(crate) sample2: Handle,
    pub(crate) metrics: [Metric; MOST_METRICS],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut MetricsGet) -> Code {
    // SAFETY: passed on as NVML's caller gave it.
    answer(peek().and_then(|_| unsafe { metrics(request) }))
}

/// # Safety
/// `request` is null or points to a whole struct whose samples and ids are set.
unsafe fn metrics(request: *mut MetricsGet) -> Result<(), Code> {
    // SAFETY: by this function's contract.
    if unsafe { version(request) }? != METRICS_VERSION {
        return Err(code::ARGUMENT_VERSION_MISMATCH);
    }
    // SAFETY: not null, as `version` has checked, and whole by this function's contract.
    let request = unsafe { &mut *request };
    let held = |sample: Handle| lock(&SAMPLES).get(&sample.addr()).copied().flatten();
    let (Some((gpu, begin)), Some((other, end))) = (held(request.sample1), held(request.sample2))
    else {
        return Err(code::INVALID_ARGUMENT);
    };
    if gpu != other || end <= begin {
        return Err(code::INVALID_ARGUMENT);
    }
    let node = pass("nvmlGpmMetricsGet", Some(gpu))?;
    let gpu = node.gpus.get(gpu).ok_or(code::INVALID_ARGUMENT)?;
    let count = usize::try_from(request.num_metrics).map_err(|_| code::INVALID_ARGUMENT)?;
    for metric in request.metrics.iter_mut().take(count) {
        let value = value(gpu, metric.metric_id);
        metric.nvml_return = value.err().unwrap_or(code::SUCCESS);
        metric.value = value.unwrap_or(0.0);
    }
    Ok(())
}

/// Percents and MiB/s, as nvml.h says.
fn value(gpu: &GpuState, id: u32) -> Result<f64, Code> {
    let percent = |permille: u32| Ok(f64::from(permille) / 10.0);
    match id {
        2 => percent(gpu.gpm_sm_active_permille),
        3 => percent(gpu.gpm_sm_occupancy_permille),
        5 => percent(gpu.gpm_tensor_active_permille),
        10 => percent(gpu.gpm_dram_bandwidth_permille),
        20 => Ok(gpu.gpm_pcie_transmit_mebibytes_per_second.into()),
        21 => Ok(gpu.gpm_pcie_receive_mebibytes_per_second.into()),
        60 => Ok(gpu.gpm_nvlink_receive_mebibytes_per_second.into()),
        61 => Ok(gpu.gpm_nvlink_transmit_mebibytes_per_second.into()),
        1..=209 => Err(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

//! GPU performance monitoring: samples that clients hold and free, and metrics over the time between two.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr::without_provenance_mut;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::ffi::{Code, GpmSupport, Handle, code, store, version};
use crate::live::{Gpu, answer, lock, on_gpu, pass, peek};
use crate::state::GpuState;

/// `NVML_GPM_SUPPORT_VERSION` and `NVML_GPM_METRICS_GET_VERSION`: plain numbers, unlike the versions of other structs.
const SUPPORT_VERSION: u32 = 1;
const METRICS_VERSION: u32 = 1;
/// `NVML_GPM_METRIC_MAX` of nvml-wrapper-sys' header, and of the one in NVIDIA/DCGM 4.6. The version is 1 with both.
pub(crate) const MOST_METRICS: usize = 210;
const MOST_METRICS_OF_NEWER_DRIVERS: usize = 333;

/// What a sample holds.
#[derive(Clone, Copy)]
struct Held {
    gpu: usize,
    instance: Option<u32>,
    at: Instant,
    /// Nanoseconds that have gone by, and those of them with tensor operations.
    tensor: [u64; 2],
}

/// Samples allocated and not yet freed, with their content; the next one is one more than the highest.
static SAMPLES: Mutex<BTreeMap<usize, Option<Held>>> = Mutex::new(BTreeMap::new());

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, request: *mut GpmSupport) -> Code {
    on_gpu("nvmlGpmQueryDeviceSupport", device, |gpu| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        let version = unsafe { version(request) }?;
        if version != SUPPORT_VERSION {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: the version guarantees that the struct is complete.
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
    on_gpu("nvmlGpmSampleGet", device, |gpu| fill(gpu, None, sample))
}

fn fill(gpu: &Gpu, instance: Option<u32>, sample: Handle) -> Result<(), Code> {
    // A partitioned GPU is sampled by instance.
    if !gpu.gpm || gpu.mig_mode != instance.is_some() {
        return Err(code::NOT_SUPPORTED);
    }
    let exists = |id| gpu.mig.iter().any(|mig| mig.gpu_instance == id);
    if instance.is_some_and(|id| !exists(id)) {
        return Err(code::NOT_FOUND);
    }
    let mut samples = lock(&SAMPLES);
    let held = samples
        .get_mut(&sample.addr())
        .ok_or(code::INVALID_ARGUMENT)?;
    *held = Some(Held {
        gpu: gpu.index,
        instance,
        at: Instant::now(),
        tensor: [gpu.gpm_nanoseconds, gpu.gpm_tensor_active_nanoseconds],
    });
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: Handle, instance: u32, sample: Handle) -> Code {
    on_gpu("nvmlGpmMigSampleGet", device, |gpu| {
        fill(gpu, Some(instance), sample)
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
/// `request` is null or points to a complete struct whose samples and ids are set.
unsafe fn metrics(request: *mut MetricsGet) -> Result<(), Code> {
    // SAFETY: by this function's contract.
    if unsafe { version(request) }? != METRICS_VERSION {
        return Err(code::ARGUMENT_VERSION_MISMATCH);
    }
    // SAFETY: not null, as `version` has checked, and complete by this function's contract.
    let request = unsafe { &mut *request };
    let held = |sample: Handle| lock(&SAMPLES).get(&sample.addr()).copied().flatten();
    let (Some(begin), Some(end)) = (held(request.sample1), held(request.sample2)) else {
        return Err(code::INVALID_ARGUMENT);
    };
    if (begin.gpu, begin.instance) != (end.gpu, end.instance) || end.at <= begin.at {
        return Err(code::INVALID_ARGUMENT);
    }
    let node = pass("nvmlGpmMetricsGet", Some(end.gpu))?;
    let gpu = node.gpus.get(end.gpu).ok_or(code::INVALID_ARGUMENT)?;
    let count = usize::try_from(request.num_metrics).map_err(|_| code::INVALID_ARGUMENT)?;
    let asked = request
        .metrics
        .get_mut(..count)
        .ok_or(code::INVALID_ARGUMENT)?;
    let unknown = |metric: &Metric| !gpu.gpm_counters && metric.metric_id >= FIRST_COUNTER;
    if gpu.gpm_refuses_unknown && asked.iter().any(unknown) {
        return Err(code::INVALID_ARGUMENT);
    }
    for metric in asked {
        let value = match (end.instance, metric.metric_id) {
            (Some(id), metric) => value_of_instance(gpu, id, metric),
            (None, TENSOR_ACTIVE) => tensor_percent(gpu, begin, end),
            (None, metric) => value(gpu, metric),
        };
        metric.nvml_return = value.err().unwrap_or(code::SUCCESS);
        metric.value = value.unwrap_or(0.0);
    }
    if gpu.gpm_counters {
        let whole: *mut Metric = request.metrics.as_mut_ptr();
        for place in count..MOST_METRICS_OF_NEWER_DRIVERS {
            // SAFETY: a newer driver may clear all of the struct as its own header has it; a caller that passes
            // a shorter one has the memory behind it overwritten, as it would with the driver.
            unsafe { whole.add(place).write_bytes(0, 1) };
        }
    }
    Ok(())
}

/// `NVML_GPM_METRIC_ANY_TENSOR_UTIL`.
const TENSOR_ACTIVE: u32 = 5;

/// A state that has been the same for so long is treated as constant: it belongs to a test, not to a simulation that is late.
const STANDS_STILL: Duration = Duration::from_secs(3);

/// Share of the time between two samples with tensor operations: what the state has counted, and a share that it names where
/// it does not count.
fn tensor_percent(gpu: &GpuState, begin: Held, end: Held) -> Result<f64, Code> {
    let [elapsed, active] = [0, 1].map(|of| end.tensor[of].saturating_sub(begin.tensor[of]) as f64);
    if elapsed > 0.0 {
        Ok(100.0 * active / elapsed)
    } else if end.tensor[0] == 0 || same_for(&end) >= STANDS_STILL {
        Ok(f64::from(gpu.gpm_tensor_active_permille) / 10.0)
    } else {
        Err(code::NO_DATA)
    }
}

/// How long before this sample its GPU's time was the same already.
fn same_for(sample: &Held) -> Duration {
    /// By GPU: time that has gone by, and the first sample that showed it.
    static FIRST: Mutex<BTreeMap<usize, (u64, Instant)>> = Mutex::new(BTreeMap::new());
    let mut first = lock(&FIRST);
    let now = (sample.tensor[0], sample.at);
    let seen = first.entry(sample.gpu).or_insert(now);
    if seen.0 != sample.tensor[0] {
        *seen = now;
    }
    sample.at.saturating_duration_since(seen.1)
}

/// `NVML_GPM_METRIC_SM_CYCLES_ELAPSED`, the first of the counters since the reboot.
const FIRST_COUNTER: u32 = 248;

fn value_of_instance(gpu: &GpuState, instance: u32, id: u32) -> Result<f64, Code> {
    let mut migs = gpu.mig.iter();
    let mig = migs.find(|mig| mig.gpu_instance == instance);
    let mig = mig.ok_or(code::NOT_FOUND)?;
    match id {
        2 | 3 | 5 | 10 => Ok(f64::from(mig.active_permille) / 10.0),
        _ => Err(code::NOT_SUPPORTED),
    }
}

/// Percents and MiB/s, as documented in nvml.h.
fn value(gpu: &GpuState, id: u32) -> Result<f64, Code> {
    let percent = |permille: u32| Ok(f64::from(permille) / 10.0);
    match id {
        2 => percent(gpu.gpm_sm_active_permille),
        3 => percent(gpu.gpm_sm_occupancy_permille),
        10 => percent(gpu.gpm_dram_bandwidth_permille),
        20 => Ok(gpu.gpm_pcie_transmit_mebibytes_per_second.into()),
        21 => Ok(gpu.gpm_pcie_receive_mebibytes_per_second.into()),
        60 => Ok(gpu.gpm_nvlink_receive_mebibytes_per_second.into()),
        61 => Ok(gpu.gpm_nvlink_transmit_mebibytes_per_second.into()),
        248 if gpu.gpm_counters => Ok(gpu.gpm_sm_elapsed_cycles as f64),
        249 if gpu.gpm_counters => Ok(gpu.gpm_sm_active_cycles as f64),
        250 if gpu.gpm_counters => Ok(gpu.gpm_tensor_active_cycles as f64),
        255 if gpu.gpm_counters => Ok(gpu.gpm_pcie_transmit_bytes as f64),
        256 if gpu.gpm_counters => Ok(gpu.gpm_pcie_receive_bytes as f64),
        261..=296 if gpu.gpm_counters => {
            let place = usize::try_from((id - 261) / 2).map_err(|_| code::INVALID_ARGUMENT)?;
            let link = gpu.links.get(place).ok_or(code::NOT_SUPPORTED)?;
            let received = id % 2 == 1;
            Ok(if received {
                link.receive_bytes
            } else {
                link.transmit_bytes
            } as f64)
        }
        1..=209 => Err(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

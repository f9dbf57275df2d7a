//! NVML calls whose structs `nvml-wrapper-sys` does not have, or has too small: GPM metrics and PRM counters.
//!
//! Layouts are those of nvml.h as NVIDIA/DCGM ships it (`sdk/nvidia/nvml/dcgm_nvml.h` of DCGM 4.6).
// Calls through the C function pointers that the wrapper loaded; see `raw` for the others.
#![allow(unsafe_code)]

use std::mem;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::GpmSample;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

use super::raw::{Number, number};

/// `NVML_GPM_METRIC_MAX` of the newest header known: 98 with driver 525, 210 in the bindings, now 333. The
/// version in the struct is 1 with all of them, so a driver cannot determine how long ours is: it has to be as
/// long as the longest that a driver may clear or copy.
const GPM_ROOM: usize = 333;
/// `NVML_GPM_METRIC_MAX` of the oldest driver with GPM, which may refuse a request for more at once.
pub(super) const MOST_GPM_METRICS: usize = 98;

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct GpmRequest {
    version: u32,
    count: u32,
    before: sys::nvmlGpmSample_t,
    after: sys::nvmlGpmSample_t,
    metrics: [sys::nvmlGpmMetric_t; GPM_ROOM],
}

/// GPM metrics by their numbers, over the time between two samples, each in its number's place. The wrapper
/// supports numbers up to 97 only.
///
/// # Errors
/// The call as a whole failed; single metrics fail by themselves. `InvalidArg` for more than
/// [`MOST_GPM_METRICS`] numbers.
pub(super) fn gpm_metrics(
    nvml: &Nvml,
    before: &GpmSample<'_>,
    after: &GpmSample<'_>,
    ids: &[u32],
) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlGpmMetricsGet.as_ref())?;
    if ids.len() > MOST_GPM_METRICS {
        return Err(NvmlError::InvalidArg);
    }
    // SAFETY: a C struct of integers, floats and pointers, for which all zeros is a value. Boxed because it
    // is 16 KiB long.
    let mut request: Box<GpmRequest> = Box::new(unsafe { mem::zeroed() });
    request.version = sys::NVML_GPM_METRICS_GET_VERSION;
    request.count = u32::try_from(ids.len()).map_err(|_| NvmlError::InvalidArg)?;
    // SAFETY: the handles are only stored here; both samples outlive the call.
    (request.before, request.after) = unsafe { (before.handle(), after.handle()) };
    for (metric, id) in request.metrics.iter_mut().zip(ids) {
        metric.metricId = *id;
    }
    // SAFETY: `call` and the samples are of the library that `nvml` holds; the request reports how many of
    // its metrics are set, and is the bindings' struct with more room at its end.
    nvml_try(unsafe { call((&raw mut *request).cast()) })?;
    let metrics = request.metrics.iter().take(ids.len());
    Ok(metrics
        .map(|metric| nvml_try(metric.nvmlReturn).map(|()| metric.value))
        .collect())
}

/// `nvmlPRMCounter_v1_t`.
#[repr(C)]
struct PrmCounter {
    id: u32,
    local_port: u32,
    status: sys::nvmlReturn_t,
    value_type: sys::nvmlValueType_t,
    value: sys::nvmlValue_t,
}

/// `nvmlPRMCounterList_v1_t`.
#[repr(C)]
struct PrmCounterList {
    count: u32,
    counters: *mut PrmCounter,
}

type ReadPrmCounters =
    unsafe extern "C" fn(sys::nvmlDevice_t, *mut PrmCounterList) -> sys::nvmlReturn_t;

/// Counters of the GPU's register access interface, each a `nvmlPRMCounterId_t` and a local port, each in its
/// place. Blackwell and later, Linux only.
///
/// # Errors
/// The call as a whole failed; single counters fail by themselves.
pub(super) fn prm_counters(
    device: &Device<'_>,
    wanted: &[(u32, u32)],
) -> Result<Vec<Result<Number, NvmlError>>, NvmlError> {
    // SAFETY: the type is the function's of nvml.h. The bindings do not have it, so it is looked up in the
    // library that they hold.
    let call = unsafe {
        let library = &device.nvml().lib().__library;
        library.get::<ReadPrmCounters>(b"nvmlDeviceReadPRMCounters_v1\0")
    };
    let call = call.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let mut counters: Vec<_> = wanted
        .iter()
        .map(|(id, local_port)| PrmCounter {
            id: *id,
            local_port: *local_port,
            status: 0,
            value_type: 0,
            value: sys::nvmlValue_t { ullVal: 0 },
        })
        .collect();
    let mut list = PrmCounterList {
        count: u32::try_from(counters.len()).map_err(|_| NvmlError::InvalidArg)?,
        counters: counters.as_mut_ptr(),
    };
    // SAFETY: the handle belongs to the library that `call` was looked up in, and the list names `count`
    // initialized counters that the call may write to.
    nvml_try(unsafe { call(device.handle(), &raw mut list) })?;
    Ok(counters
        .iter()
        .map(|counter| {
            nvml_try(counter.status)?;
            number(counter.value_type, counter.value)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn the_gpm_request_is_the_bindings_struct_with_more_room() {
        type Theirs = sys::nvmlGpmMetricsGet_t;
        assert_eq!(align_of::<GpmRequest>(), align_of::<Theirs>());
        for (ours, theirs) in [
            (offset_of!(GpmRequest, version), offset_of!(Theirs, version)),
            (
                offset_of!(GpmRequest, count),
                offset_of!(Theirs, numMetrics),
            ),
            (offset_of!(GpmRequest, before), offset_of!(Theirs, sample1)),
            (offset_of!(GpmRequest, after), offset_of!(Theirs, sample2)),
            (offset_of!(GpmRequest, metrics), offset_of!(Theirs, metrics)),
        ] {
            assert_eq!(ours, theirs);
        }
        assert!(size_of::<GpmRequest>() >= size_of::<Theirs>());
    }

    #[test]
    fn a_prm_counter_lies_as_nvml_h_nests_it() {
        assert_eq!((size_of::<PrmCounter>(), align_of::<PrmCounter>()), (24, 8));
        assert_eq!(offset_of!(PrmCounter, local_port), 4);
        assert_eq!(offset_of!(PrmCounter, status), 8);
        assert_eq!(offset_of!(PrmCounter, value_type), 12);
        assert_eq!(offset_of!(PrmCounter, value), 16);
        assert_eq!(size_of::<PrmCounterList>(), 16);
    }
}

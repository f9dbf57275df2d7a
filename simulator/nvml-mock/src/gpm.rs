//! GPU performance monitoring: answers "this device cannot", with the samples that clients free on their way out.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Mutex;

use crate::ffi::{Code, GpmSupport, Handle, code, store, version};
use crate::live::{answer, lock, on_gpu, pass};

/// `NVML_GPM_SUPPORT_VERSION`: a plain number, unlike the versions of other structs.
const SUPPORT_VERSION: u32 = 1;

/// Samples handed out and not yet freed; the next one is one more than the highest.
static SAMPLES: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, request: *mut GpmSupport) -> Code {
    on_gpu("nvmlGpmQueryDeviceSupport", device, |_gpu| {
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
                    is_supported_device: 0,
                },
            )
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut Handle) -> Code {
    answer(pass("nvmlGpmSampleAlloc", None).and_then(|_| {
        let mut samples = lock(&SAMPLES);
        let id = samples.last().copied().unwrap_or(0) + 1;
        // SAFETY: NVML's contract: null or valid for a write.
        unsafe { store(out, without_provenance_mut(id)) }?;
        samples.insert(id);
        Ok(())
    }))
}

/// Never fails by injection: clients call it from their destructors.
#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: Handle) -> Code {
    if lock(&SAMPLES).remove(&sample.addr()) {
        code::SUCCESS
    } else {
        code::INVALID_ARGUMENT
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: Handle, _sample: Handle) -> Code {
    on_gpu("nvmlGpmSampleGet", device, |_gpu| Err(code::NOT_SUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(device: Handle, _instance: u32, _sample: Handle) -> Code {
    on_gpu("nvmlGpmMigSampleGet", device, |_gpu| {
        Err(code::NOT_SUPPORTED)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(_request: *mut c_void) -> Code {
    answer(pass("nvmlGpmMetricsGet", None).and(Err(code::NOT_SUPPORTED)))
}

//! Start and end, versions, error texts, and the functions that return a device handle.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

use crate::ffi::{Code, Handle, code, device_handle, store, store_text, text};
use crate::live::{USERS, answer, forget, on_node, pass, pass_uninitialized, peek};
use crate::state::{GpuState, NodeGpus, PciAddress};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: u32) -> Code {
    init("nvmlInitWithFlags")
}

/// Starts are counted, as NVML documents.
fn init(function: &str) -> Code {
    forget();
    answer(pass_uninitialized(function, None).map(|_| {
        USERS.fetch_add(1, Ordering::AcqRel);
    }))
}

/// Never fails by injection: clients call it while they drop the library.
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Code {
    let left = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| {
        users.checked_sub(1)
    });
    if left.is_ok() {
        code::SUCCESS
    } else {
        code::UNINITIALIZED
    }
}

/// Needs no start.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: Code) -> *const c_char {
    let texts: &[(Code, &CStr)] = &[
        (0, c"Success"),
        (1, c"Uninitialized"),
        (2, c"Invalid Argument"),
        (3, c"Not Supported"),
        (4, c"Insufficient Permissions"),
        (5, c"Already Initialized"),
        (6, c"Not Found"),
        (7, c"Insufficient Size"),
        (8, c"Insufficient External Power"),
        (9, c"Driver Not Loaded"),
        (10, c"Timeout"),
        (11, c"Interrupt Request Issue"),
        (12, c"NVML Shared Library Not Found"),
        (13, c"Function Not Found"),
        (14, c"Corrupted infoROM"),
        (15, c"GPU is lost"),
        (16, c"GPU requires restart"),
        (17, c"The operating system has blocked the request"),
        (18, c"RM has detected an NVML/RM version mismatch."),
        (19, c"In use by another client"),
        (20, c"Insufficient Memory"),
        (21, c"No data"),
        (25, c"Argument version mismatch"),
        (26, c"Requested functionality has been deprecated"),
        (27, c"System is not ready for the request"),
        (28, c"No GPUs were found"),
    ];
    let found = texts.iter().find(|(code, _)| *code == result);
    found.map_or(c"Unknown Error", |(_, text)| *text).as_ptr()
}

macro_rules! node_texts {
    ($( $name:ident = |$node:ident| $text:expr; )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(out: *mut c_char, length: u32) -> Code {
            on_node(stringify!($name), |$node| {
                // SAFETY: NVML's contract: `out` is null or has `length` bytes.
                unsafe { store_text(out, length, $text) }
            })
        }
    )*};
}

node_texts! {
    nvmlSystemGetDriverVersion = |node| &node.driver;
    nvmlSystemGetNVMLVersion = |node| &node.nvml;
}

macro_rules! node_getters {
    ($( $name:ident -> $out:ty = |$node:ident| $value:expr; )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(out: *mut $out) -> Code {
            on_node(stringify!($name), |$node| {
                // SAFETY: NVML's contract: `out` is null or points to the type in the signature.
                unsafe { store(out, $value) }
            })
        }
    )*};
}

node_getters! {
    nvmlSystemGetCudaDriverVersion -> i32 = |node| node.cuda;
    nvmlSystemGetCudaDriverVersion_v2 -> i32 = |node| node.cuda;
    nvmlDeviceGetCount_v2 -> u32 = |node| u32::try_from(node.gpus.len()).unwrap_or(u32::MAX);
    nvmlUnitGetCount -> u32 = |_node| 0;
    nvmlGetExcludedDeviceCount -> u32 = |_node| 0;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: *mut Handle) -> Code {
    // SAFETY: passed on as NVML's caller gave it.
    unsafe {
        hand_out(
            "nvmlDeviceGetHandleByIndex_v2",
            out,
            code::INVALID_ARGUMENT,
            |node| {
                usize::try_from(index)
                    .ok()
                    .filter(|&index| index < node.gpus.len())
            },
        )
    }
}

macro_rules! handles_by_text {
    ($( $name:ident = |$text:ident| $matches:expr; )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(wanted: *const c_char, out: *mut Handle) -> Code {
            // SAFETY: NVML's contract: null or a closed string.
            let $text = match unsafe { text(wanted) } {
                Ok(text) => text,
                Err(code) => return code,
            };
            // SAFETY: passed on as NVML's caller gave it.
            unsafe { hand_out(stringify!($name), out, code::NOT_FOUND, |node| node.gpus.iter().position($matches)) }
        }
    )*};
}

handles_by_text! {
    nvmlDeviceGetHandleByUUID = |wanted| |gpu: &GpuState| gpu.uuid == wanted;
    nvmlDeviceGetHandleBySerial = |wanted| |gpu: &GpuState| gpu.serial == wanted;
    nvmlDeviceGetHandleByPciBusId_v2 = |wanted| |gpu: &GpuState| wanted.parse::<PciAddress>() == Ok(gpu.pci_address);
}

/// Looks a GPU up; one that is lost fails here, and only for itself.
///
/// # Safety
/// `out` is null or valid for a write.
unsafe fn hand_out(
    function: &str,
    out: *mut Handle,
    missing: Code,
    find: impl FnOnce(&NodeGpus) -> Option<usize>,
) -> Code {
    answer(peek().and_then(|node| {
        let index = find(&node);
        pass(function, index)?;
        // SAFETY: by this function's contract.
        unsafe { store(out, device_handle(index.ok_or(missing)?)) }
    }))
}

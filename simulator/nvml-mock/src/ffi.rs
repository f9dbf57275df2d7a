//! What crosses the C boundary: handles, return codes, structs, and the few functions that touch a caller's memory.

use std::ffi::{CStr, c_char, c_void};

use crate::state::{MAX_GPUS, PciAddress};

/// `nvmlReturn_t`.
pub(crate) type Code = u32;

/// The return codes that the mock itself uses.
pub(crate) mod code {
    use super::Code;

    pub(crate) const SUCCESS: Code = 0;
    pub(crate) const UNINITIALIZED: Code = 1;
    pub(crate) const INVALID_ARGUMENT: Code = 2;
    pub(crate) const NOT_SUPPORTED: Code = 3;
    pub(crate) const NOT_FOUND: Code = 6;
    pub(crate) const INSUFFICIENT_SIZE: Code = 7;
    pub(crate) const DRIVER_NOT_LOADED: Code = 9;
    pub(crate) const TIMEOUT: Code = 10;
    pub(crate) const NO_DATA: Code = 21;
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Code = 25;
}

/// `nvmlDevice_t`, `nvmlEventSet_t` and `nvmlGpmSample_t`: opaque to the caller, never dereferenced here.
pub(crate) type Handle = *mut c_void;

/// The address of a GPU's slot is its handle: unlike an index it is never null, and no other copy of the library has it.
static SLOTS: [u8; MAX_GPUS] = [0; MAX_GPUS];

pub(crate) fn device_handle(index: usize) -> Handle {
    SLOTS.as_ptr().wrapping_add(index).cast_mut().cast()
}

pub(crate) fn device_index(handle: Handle) -> Option<usize> {
    handle
        .addr()
        .checked_sub(SLOTS.as_ptr().addr())
        .filter(|&index| index < MAX_GPUS)
}

/// Writes a result.
///
/// # Safety
/// `out` is null or valid for a write of `T`, as NVML demands of its callers.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and then valid by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its closing zero.
///
/// # Safety
/// `out` is null or valid for writes of `length` bytes.
pub(crate) unsafe fn store_text(out: *mut c_char, length: u32, text: &str) -> Result<(), Code> {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    if usize::try_from(length).is_ok_and(|length| length <= text.len()) {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: `length` bytes are valid, and the text with its zero is not longer; it cannot overlap our own string.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Reads a text from the caller.
///
/// # Safety
/// `text` is null or a string with a closing zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Code> {
    if text.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and then a closed string by this function's contract.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| code::INVALID_ARGUMENT)
}

/// Reads the first word of a versioned struct, which encodes its version and size.
///
/// # Safety
/// `request` is null or points to a struct whose first field is an initialized `version`.
pub(crate) unsafe fn version<T>(request: *const T) -> Result<u32, Code> {
    if request.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and then a readable u32 by this function's contract.
    Ok(unsafe { request.cast::<u32>().read() })
}

/// A text in a fixed field of a struct; what does not fit is cut.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (slot, byte) in field.iter_mut().zip(text.bytes().take(N.saturating_sub(1))) {
        *slot = byte.cast_signed();
    }
    field
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
    pub(crate) pci_device_id: u32,
    pub(crate) pci_subsystem_id: u32,
    pub(crate) bus_id: [c_char; 32],
}

impl PciInfo {
    /// Bus ids in upper case, as the driver writes them; the long one has eight digits of domain.
    pub(crate) fn new(at: PciAddress, pci_device_id: u32, pci_subsystem_id: u32) -> Self {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = at;
        Self {
            bus_id_legacy: fixed(&format!("{domain:04X}:{bus:02X}:{device:02X}.{function:X}")),
            domain,
            bus: bus.into(),
            device: device.into(),
            pci_device_id,
            pci_subsystem_id,
            bus_id: fixed(&format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}")),
        }
    }
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// `nvmlMemory_t`.
#[repr(C)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlBAR1Memory_t`.
#[repr(C)]
pub(crate) struct Bar1Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlProcessInfo_t`, third version of the functions.
#[repr(C)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: u32,
    pub(crate) used_gpu_memory: u64,
    pub(crate) gpu_instance_id: u32,
    pub(crate) compute_instance_id: u32,
}

/// `nvmlViolationTime_t`.
#[repr(C)]
pub(crate) struct ViolationTime {
    pub(crate) reference_time: u64,
    pub(crate) violation_time: u64,
}

/// `nvmlEventData_t`.
#[repr(C)]
pub(crate) struct EventData {
    pub(crate) device: Handle,
    pub(crate) event_type: u64,
    pub(crate) event_data: u64,
    pub(crate) gpu_instance_id: u32,
    pub(crate) compute_instance_id: u32,
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub(crate) struct GpmSupport {
    pub(crate) version: u32,
    pub(crate) is_supported_device: u32,
}

/// `nvmlFieldValue_t`. The union `value` is kept as its eight bytes; [`crate::fields`] writes them by type.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FieldValue {
    pub(crate) field_id: u32,
    pub(crate) scope_id: u32,
    pub(crate) timestamp: i64,
    pub(crate) latency_usec: i64,
    pub(crate) value_type: u32,
    pub(crate) nvml_return: Code,
    pub(crate) value: u64,
}

//! The NVML calls that `nvml-wrapper` does not wrap, or wraps with a loss: field values with a scope, the
//! first version of the memory sizes, and what is at the other end of an NVLink.
// The only unsafe code of the exporter: calls through the C function pointers that the wrapper loaded.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem;

use nvml_wrapper::Device;
use nvml_wrapper::FieldIdScheme;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings as sys;

/// A field to read: its id in the numbering of drivers before 580.82 (the one of
/// `nvml_wrapper::sys_exports::field_id`), and its scope (0, or a link).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: u32,
    pub(super) scope: u32,
}

/// A field's value in whatever width and sign NVML chose for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Number {
    /// The value as a count; none if it is negative or invalid.
    pub(super) fn count(self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            Self::Float(value) => (value >= 0.0 && value < u64::MAX as f64).then_some(value as u64),
        }
    }
}

/// Values of several fields in one call, each in its place in `fields`: newer drivers return another
/// id than the requested one, so ids do not identify them.
///
/// # Errors
/// The call as a whole failed; single fields fail by themselves.
pub(super) fn field_values(
    device: &Device<'_>,
    fields: &[Field],
) -> Result<Vec<Result<Number, NvmlError>>, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetFieldValues.as_ref())?;
    let scheme = nvml.field_id_scheme();
    let count = c_int::try_from(fields.len()).map_err(|_| NvmlError::InvalidArg)?;
    let mut values: Vec<_> = fields
        .iter()
        .map(|field| {
            // SAFETY: `call` points at nvmlFieldValue_t, a C struct of integers and a union of numbers,
            // for which all zeros is a value.
            let mut value = unsafe { zeroed_third_argument(call) };
            value.fieldId = driver_field_id(field.id, &scheme);
            value.scopeId = field.scope;
            value
        })
        .collect();
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `values` holds `count` initialized elements that the call may write to.
    nvml_try(unsafe { call(device.handle(), count, values.as_mut_ptr()) })?;
    Ok(values
        .iter()
        .map(|value| {
            nvml_try(value.nvmlReturn)?;
            number(value.valueType, value.value)
        })
        .collect())
}

/// The number in a union that NVML wrote.
///
/// # Errors
/// `UnexpectedVariant` for a type that nvml.h does not have.
pub(super) fn number(value_type: u32, value: sys::nvmlValue_t) -> Result<Number, NvmlError> {
    // SAFETY: nvmlValueType_t reports which member of the union NVML wrote, all eight bytes of which were
    // zero before, and every bit pattern of every member is a value of its type.
    Ok(unsafe {
        match value_type {
            0 => Number::Float(value.dVal),
            1 => Number::Unsigned(value.uiVal.into()),
            2 => Number::Unsigned(value.ulVal),
            3 => Number::Unsigned(value.ullVal),
            4 => Number::Signed(value.sllVal),
            5 => Number::Signed(value.siVal.into()),
            6 => Number::Unsigned(value.usVal.into()),
            other => return Err(NvmlError::UnexpectedVariant(other)),
        }
    })
}

/// Total and free device memory, bytes, by the call that every driver has.
///
/// # Errors
/// As NVML reports.
pub(super) fn memory_total_and_free(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: `call` points at nvmlMemory_t, a C struct of three integers.
    let mut memory = unsafe { zeroed_second_argument(call) };
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `memory` is what the call may write to.
    nvml_try(unsafe { call(device.handle(), &raw mut memory) })?;
    Ok((memory.total, memory.free))
}

/// What is at the other end of a link, as `nvmlIntNvLinkDeviceType_t` counts: 0 a GPU, 1 an IBM NPU, 2 an
/// NVSwitch. The wrapper's own function always returns "unknown": it lets NVML write into a temporary.
///
/// # Errors
/// As NVML reports.
pub(super) fn remote_device_type(device: &Device<'_>, link: u32) -> Result<u32, NvmlError> {
    let nvml = device.nvml();
    let call = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut kind = 0;
    // SAFETY: the handle belongs to the library that `call` was loaded from, which the device borrows, and
    // `kind` is what the call may write to.
    nvml_try(unsafe { call(device.handle(), link, &raw mut kind) })?;
    Ok(kind)
}

/// The id that the loaded driver uses for a field: 580.82 renumbered those from 251 on
/// (<https://docs.nvidia.com/deploy/nvml-api/known-issues.html>).
fn driver_field_id(id: u32, scheme: &FieldIdScheme) -> u32 {
    match (scheme, id) {
        (FieldIdScheme::V13Update1, 251..=255) => id + 18,
        (FieldIdScheme::V13Update1, 256..=273) => id - 5,
        _ => id,
    }
}

/// Zeroed memory of the type that a C function takes a pointer to. `nvml-wrapper` exports its functions but
/// not the names of its C structs, so the function's type has to name them.
///
/// # Safety
/// All zeros has to be a value of `T`.
unsafe fn zeroed_third_argument<A, B, T, R>(_: &unsafe extern "C" fn(A, B, *mut T) -> R) -> T {
    // SAFETY: the caller's promise.
    unsafe { mem::zeroed() }
}

/// As [`zeroed_third_argument`], for a function of two arguments.
///
/// # Safety
/// All zeros has to be a value of `T`.
unsafe fn zeroed_second_argument<A, T, R>(_: &unsafe extern "C" fn(A, *mut T) -> R) -> T {
    // SAFETY: the caller's promise.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_from_580_82_know_some_fields_by_another_id() {
        let (old, new) = (FieldIdScheme::V12, FieldIdScheme::V13Update1);
        for (id, renumbered) in [
            (74, 74),
            (250, 250),
            (251, 269),
            (253, 271),
            (256, 251),
            (273, 268),
        ] {
            assert_eq!(driver_field_id(id, &old), id);
            assert_eq!(driver_field_id(id, &new), renumbered);
        }
    }

    #[test]
    fn a_count_is_never_negative_nor_made_up() {
        assert_eq!(Number::Unsigned(u64::MAX).count(), Some(u64::MAX));
        assert_eq!(Number::Signed(-1).count(), None);
        assert_eq!(Number::Float(2.0).count(), Some(2));
        assert_eq!(Number::Float(f64::NAN).count(), None);
        assert_eq!(Number::Float(1e30).count(), None);
    }
}

//! What an old driver lacks: the feature `old-driver` leaves these symbols, and those of `fabric`, out.

use crate::ffi::{Code, Handle, code, store, version};
use crate::live::{Gpu, on_gpu};
use crate::memory::free;
use crate::mig::on_instance;
use crate::symbols::getters;
use crate::temperature::{GPU_SENSOR, margin};

getters! {
    nvmlDeviceGetNumaNodeId() -> u32 = |gpu| gpu.numa_node_id.ok_or(code::NOT_SUPPORTED);
    nvmlDeviceGetCurrentClocksEventReasons() -> u64 = |gpu| Ok(gpu.clocks_event_reasons);
    nvmlDeviceGetSupportedClocksEventReasons() -> u64 = |gpu| Ok(gpu.clocks_event_reasons_supported);
    nvmlDeviceGetTotalEnergyConsumption() -> u64 = |gpu| Ok(gpu.energy_millijoules);
}

/// `name: T version N = |gpu| result;` exports `name(device, T *request)`, where `request->version` must be N's.
macro_rules! versioned {
    ($( $(#[$meta:meta])* $name:ident : $ty:ty, version $version:expr, |$gpu:ident| $result:expr; )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: $crate::ffi::Handle, request: *mut $ty) -> $crate::ffi::Code {
            $crate::live::on_gpu(stringify!($name), device, |$gpu| {
                // SAFETY: NVML's contract: null, or a struct that begins with its version.
                if unsafe { $crate::ffi::version(request) }? != $version {
                    return Err($crate::ffi::code::ARGUMENT_VERSION_MISMATCH);
                }
                let result: Result<$ty, $crate::ffi::Code> = $result;
                // SAFETY: the version guarantees a complete `T`.
                unsafe { $crate::ffi::store(request, result?) }
            })
        }
    )*};
}

versioned! {
    nvmlDeviceGetMarginTemperature: MarginTemperature, version struct_version::<MarginTemperature>(1), |gpu| {
        Ok(MarginTemperature {
            version: struct_version::<MarginTemperature>(1),
            margin_temperature: margin(gpu.temperature_celsius, gpu.temperature_max_celsius),
        })
    };
}

/// The second version keeps the reserve apart: total = reserved + used + free, as nvidia-smi prints them. A MIG
/// device shows the memory of its GPU instance.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, request: *mut MemoryV2) -> Code {
    on_instance("nvmlDeviceGetMemoryInfo_v2", device, |gpu, mig| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        if unsafe { version(request) }? != struct_version::<MemoryV2>(2) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let memory = match mig {
            Some(mig) => MemoryV2 {
                version: struct_version::<MemoryV2>(2),
                total: mig.total_bytes,
                reserved: 0,
                free: mig.total_bytes.saturating_sub(mig.used_bytes),
                used: mig.used_bytes,
            },
            None => MemoryV2 {
                version: struct_version::<MemoryV2>(2),
                total: gpu.memory_total_bytes,
                reserved: gpu.memory_reserved_bytes,
                free: free(gpu),
                used: gpu.memory_used_bytes,
            },
        };
        // SAFETY: the version guarantees a complete struct.
        unsafe { store(request, memory) }
    })
}

versioned! {
    nvmlDeviceGetPlatformInfo: PlatformInfo, version struct_version::<PlatformInfo>(2), |gpu| platform(gpu);
}

fn platform(gpu: &Gpu) -> Result<PlatformInfo, Code> {
    if gpu.platform_chassis_serial.is_empty() {
        return Err(code::NOT_SUPPORTED);
    }
    let mut info = PlatformInfo {
        version: struct_version::<PlatformInfo>(2),
        ib_guid: [0; 16],
        chassis_serial_number: [0; 16],
        slot_number: gpu.platform_slot,
        tray_index: gpu.platform_tray,
        host_id: gpu.platform_host,
        peer_type: gpu.platform_peer_type,
        module_id: u8::try_from(gpu.module_id).map_err(|_| code::INVALID_ARGUMENT)?,
    };
    info.ib_guid[..8].copy_from_slice(&gpu.platform_guid);
    let serial = gpu.platform_chassis_serial.bytes();
    for (slot, byte) in info.chassis_serial_number.iter_mut().zip(serial) {
        *slot = byte;
    }
    Ok(info)
}

/// `nvmlPlatformInfo_v2_t`.
#[repr(C)]
pub(crate) struct PlatformInfo {
    pub(crate) version: u32,
    pub(crate) ib_guid: [u8; 16],
    pub(crate) chassis_serial_number: [u8; 16],
    pub(crate) slot_number: u8,
    pub(crate) tray_index: u8,
    pub(crate) host_id: u8,
    pub(crate) peer_type: u8,
    pub(crate) module_id: u8,
}

/// Unlike the other versioned structs, this one is also selected by its `sensor_type`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: Handle, request: *mut Temperature) -> Code {
    on_gpu("nvmlDeviceGetTemperatureV", device, |gpu| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        if unsafe { version(request) }? != struct_version::<Temperature>(1) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: the version guarantees a complete struct, and the caller has set its sensor.
        let sensor_type = unsafe { (*request).sensor_type };
        if sensor_type != GPU_SENSOR {
            return Err(code::INVALID_ARGUMENT);
        }
        let temperature = gpu.temperature_celsius.cast_signed();
        // SAFETY: as above.
        unsafe {
            store(
                request,
                Temperature {
                    version: struct_version::<Temperature>(1),
                    sensor_type,
                    temperature,
                },
            )
        }
    })
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlTemperature_v1_t`.
#[repr(C)]
pub(crate) struct Temperature {
    pub(crate) version: u32,
    pub(crate) sensor_type: u32,
    pub(crate) temperature: i32,
}

/// `nvmlMarginTemperature_v1_t`.
#[repr(C)]
pub(crate) struct MarginTemperature {
    pub(crate) version: u32,
    pub(crate) margin_temperature: i32,
}

/// `NVML_STRUCT_VERSION`: the size, and the version in the highest byte.
pub(crate) const fn struct_version<T>(version: u32) -> u32 {
    // No struct of NVML comes near 2^24 bytes.
    #[allow(clippy::cast_possible_truncation)]
    let size = size_of::<T>() as u32;
    size | version << 24
}

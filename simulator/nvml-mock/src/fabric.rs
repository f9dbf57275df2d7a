//! Membership in an NVLink domain that spans more than one board.

use crate::ffi::{Code, Handle, code, store, version};
use crate::live::on_gpu;
use crate::newer::struct_version;
use crate::symbols::getters;

getters! {
    nvmlDeviceGetGpuFabricInfo() -> FabricInfo = |gpu| Ok(FabricInfo {
        cluster_uuid: gpu.fabric_cluster_uuid,
        status: gpu.fabric_status,
        clique_id: gpu.fabric_clique_id,
        state: gpu.fabric_state,
    });
}

/// Fills the second and the third version of the struct; the third has a summary at its end.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(
    device: Handle,
    request: *mut FabricInfoV3,
) -> Code {
    on_gpu("nvmlDeviceGetGpuFabricInfoV", device, |gpu| {
        // SAFETY: NVML's contract: null, or a struct that begins with its version.
        let version = unsafe { version(request) }?;
        let whole = FabricInfoV3 {
            version,
            cluster_uuid: gpu.fabric_cluster_uuid,
            status: gpu.fabric_status,
            clique_id: gpu.fabric_clique_id,
            state: gpu.fabric_state,
            health_mask: gpu.fabric_health_mask,
            health_summary: gpu.fabric_health_summary,
        };
        if version == struct_version::<FabricInfoV3>(3) {
            // SAFETY: the version identifies the third struct.
            return unsafe { store(request, whole) };
        }
        if version != struct_version::<FabricInfoV2>(2) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let FabricInfoV3 {
            version,
            cluster_uuid,
            status,
            clique_id,
            state,
            health_mask,
            ..
        } = whole;
        let second = FabricInfoV2 {
            version,
            cluster_uuid,
            status,
            clique_id,
            state,
            health_mask,
        };
        // SAFETY: the version identifies the second struct.
        unsafe { store(request.cast(), second) }
    })
}

/// `nvmlGpuFabricInfo_t`.
#[repr(C)]
pub(crate) struct FabricInfo {
    pub(crate) cluster_uuid: [u8; 16],
    pub(crate) status: Code,
    pub(crate) clique_id: u32,
    pub(crate) state: u8,
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
pub(crate) struct FabricInfoV2 {
    pub(crate) version: u32,
    pub(crate) cluster_uuid: [u8; 16],
    pub(crate) status: Code,
    pub(crate) clique_id: u32,
    pub(crate) state: u8,
    pub(crate) health_mask: u32,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[repr(C)]
pub(crate) struct FabricInfoV3 {
    pub(crate) version: u32,
    pub(crate) cluster_uuid: [u8; 16],
    pub(crate) status: Code,
    pub(crate) clique_id: u32,
    pub(crate) state: u8,
    pub(crate) health_mask: u32,
    pub(crate) health_summary: u8,
}

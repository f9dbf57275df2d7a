//! NVLinks, by the functions that name a link; field values name it by their scope.

use crate::ffi::{Code, PciInfo, code};
use crate::state::LinkState;
use crate::symbols::getters;

/// `NVML_DEVICE_ARCH_BLACKWELL`, the first architecture with NVLink 5.
pub(crate) const BLACKWELL: u32 = 10;

getters! {
    // Asleep is healthy, so it counts as on.
    nvmlDeviceGetNvLinkState(link: u32) -> u32 = |gpu| gpu.link(link).map(|link| u32::from(link.state != 0));
    nvmlDeviceGetNvLinkVersion(link: u32) -> u32 = |gpu| gpu.link(link).map(|link| link.version);
    nvmlDeviceGetNvLinkCapability(link: u32, capability: u32) -> u32 = |gpu| match capability {
        0..=5 => gpu.link(link).map(|link| link.capabilities >> capability & 1),
        _ => Err(code::INVALID_ARGUMENT),
    };
    nvmlDeviceGetNvLinkRemotePciInfo_v2(link: u32) -> PciInfo = |gpu| {
        gpu.link(link).map(|link| PciInfo::new(link.remote_pci_address, link.remote_pci_device_id, 0))
    };
    nvmlDeviceGetNvLinkRemoteDeviceType(link: u32) -> u32 = |gpu| gpu.link(link).map(|link| link.remote_type);
    nvmlDeviceGetNvLinkErrorCounter(link: u32, counter: u32) -> u64 = |gpu| {
        gpu.link(link).and_then(|link| error_counter(link, counter, gpu.architecture))
    };
}

fn error_counter(link: &LinkState, counter: u32, architecture: u32) -> Result<u64, Code> {
    match counter {
        0 | 1 if architecture >= BLACKWELL => Err(code::NOT_SUPPORTED),
        0 => Ok(link.replay_errors),
        1 => Ok(link.recovery_errors),
        2 => Ok(link.crc_flit_errors),
        3 => Ok(link.crc_data_errors),
        4 => link.ecc_data_errors.ok_or(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_ARGUMENT),
    }
}

//! Functions that the driver has and an H100 of an HGX board does not support, as `nvidia-smi -q` shows ("N/A").

use crate::ffi::{Code, Handle, code};
use crate::live::on_gpu;

// The C calling conventions of Linux let a function ignore the arguments behind its first, so one shape serves all.
macro_rules! not_supported {
    ($( $name:ident; )*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle) -> Code {
            on_gpu(stringify!($name), device, |_gpu| Err(code::NOT_SUPPORTED))
        }
    )*};
}

not_supported! {
    nvmlDeviceGetApplicationsClock;
    nvmlDeviceGetBridgeChipInfo;
    nvmlDeviceGetDefaultApplicationsClock;
    nvmlDeviceGetDriverModel_v2;
    nvmlDeviceGetFanSpeed;
    nvmlDeviceGetFanSpeedRPM;
    nvmlDeviceGetFanSpeed_v2;
    nvmlDeviceGetGpuOperationMode;
    nvmlDeviceGetRetiredPages;
    nvmlDeviceGetRetiredPages_v2;
}

//! The mock NVML as its users meet it: loaded by path through nvml-wrapper, as the exporter loads the real one.
#![allow(
    unsafe_code,
    reason = "scoped field values and fabric information have no safe wrapper"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which fail that way"
)]

mod faults;
mod raw;
mod readings;

use std::path::Path;
use std::thread;
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use railscope_simulator::show::nvml::{NodeGpus, install, update_state};
use tempfile::TempDir;

/// One simulated node: a folder with its own copy of the library.
struct Node {
    dir: TempDir,
    nvml: Nvml,
}

impl Node {
    fn with(state: &NodeGpus) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = install(dir.path(), state).unwrap();
        Self {
            nvml: load(&library).unwrap(),
            dir,
        }
    }

    fn gpu(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).unwrap()
    }

    /// Writes a new state and waits as long as the mock may need to see it.
    fn update(&self, state: &NodeGpus) {
        update_state(self.dir.path(), state).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
}

fn load(library: &Path) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(library.as_os_str()).init()
}

fn field(gpu: &Device<'_>, id: u32, scope: u32) -> Result<(u32, u64), u32> {
    let get = gpu.nvml().lib().nvmlDeviceGetFieldValues.as_ref().unwrap();
    // SAFETY: one entry, its id and scope set; the handle is valid as long as `gpu` borrows its library.
    unsafe {
        let mut value: sys::nvmlFieldValue_t = std::mem::zeroed();
        (value.fieldId, value.scopeId) = (id, scope);
        assert_eq!(get(gpu.handle(), 1, &raw mut value), 0, "the call itself");
        assert_eq!((value.fieldId, value.scopeId), (id, scope));
        if value.nvmlReturn != 0 {
            return Err(value.nvmlReturn);
        }
        assert!(value.timestamp > 0);
        let number = match value.valueType {
            1 => value.value.uiVal.into(),
            3 => value.value.ullVal,
            5 => i64::from(value.value.siVal).cast_unsigned(),
            other => panic!("value type {other} of field {id}"),
        };
        Ok((value.valueType, number))
    }
}

/// By hand, because `NvLink::remote_device_type` of nvml-wrapper 0.13.0 drops the result and always returns "unknown".
fn remote_device_type(gpu: &Device<'_>, link: u32) -> u32 {
    let get = gpu
        .nvml()
        .lib()
        .nvmlDeviceGetNvLinkRemoteDeviceType
        .as_ref()
        .unwrap();
    let mut kind = u32::MAX;
    // SAFETY: the handle is valid as long as `gpu` borrows its library, and `kind` is a local.
    assert_eq!(unsafe { get(gpu.handle(), link, &raw mut kind) }, 0);
    kind
}

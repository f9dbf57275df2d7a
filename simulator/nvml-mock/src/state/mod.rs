//! The state file: the state of the GPUs of one node, as text and as types; compiled into the mock and the simulator.
//!
//! One line sets one value, a later line wins, and values without a line are as on a busy HGX H100. `#` starts a comment
//! line. `*` matches every GPU, link or function. Numbers are decimal, or hexadecimal after `0x`.
//!
//! ```text
//! gpus 8                                   how many; 8 without this line
//! driver 590.48.01                         a key of NodeGpus; crash = abort on the next call
//! gpu 0 temperature_celsius 45             a key of GpuState; `unsupported` where the key is optional
//! gpu * links 12                           NVLinks of a GPU
//! nvlink 0 5 state 0                       a key of LinkState: GPU, link, key, value
//! gpu 2 process compute 4242 1073741824    a process: pid, bytes
//! gpu 0 mig 3 0 1g.10gb 10468982784 0 850  a MIG device: GPU instance, compute instance, profile, bytes, used, active
//! gpu 0 vgpu 3251 <uuid> <vm> 0 5 GRID A100-10C  a vGPU: number, UUIDs of it and its VM, bytes, license, type
//! gpu 2 xid 79 1                           an event, delivered once; the last number distinguishes equal ones
//! gpu 2 event 0x4000 0 2                   an event by NVML's type and data
//! gpu 3 fail nvmlDeviceGetTemperature 15   nvmlReturn_t instead of an answer; also field.186, and *
//! gpu 3 spoil field.206 999                fails every call for several fields of which this one is in
//! gpu 3 hang *                             blocks until the line is gone
//! gpu 3 delay * 45000                      returns after so many milliseconds
//! fail nvmlInit_v2 18                      fail, hang and delay without a GPU concern the whole node
//! ```

mod faults;
mod gpu;
mod link;
mod mig;
mod pci;
mod text;
mod values;
mod vgpu;

pub use faults::{Effect, Event, Fault, Process, ProcessKind};
pub use gpu::{GpuState, HGX_LINKS};
pub use link::{LinkState, SWITCHES};
pub use mig::{MAX_MIG_DEVICES, MigDevice};
pub use pci::PciAddress;
pub use text::LineError;
pub use values::Value;
pub use vgpu::Vgpu;

use values::keyed_struct;

/// The state file's name, beside the library.
pub const STATE_FILE: &str = "nvml.state";

/// Most GPUs of a node.
pub const MAX_GPUS: usize = 64;

/// Most NVLinks of a GPU; current headers of DCGM allow 36.
pub const MAX_LINKS: usize = 36;

keyed_struct! {
    /// State of NVML on one node. Lines: `<key> <value>`, `gpus <count>`, `crash`, `fail|hang|delay <function|*> ...`.
    NodeGpus {
        /// Driver version; from 580.82 on, the field ids 251 to 273 have their second numbering.
        driver: String = "590.48.01".into(),
        /// NVML version.
        nvml: String = "13.590.48.01".into(),
        /// CUDA version: 1000 × major + 10 × minor.
        cuda: i32 = 13_010,
    }
    beside {
        /// GPUs in NVML's order.
        gpus: Vec<GpuState>,
        /// Faults that concern no single GPU, such as a failing `nvmlInit_v2`.
        faults: Vec<Fault>,
        /// The next call aborts the process.
        crash: bool,
    }
}

impl NodeGpus {
    /// GPUs of a node where the file does not set `gpus`.
    pub const DEFAULT_GPUS: usize = 8;

    /// A node with `count` H100, or [`MAX_GPUS`] if that is less.
    #[must_use]
    pub fn h100(count: usize) -> Self {
        Self {
            gpus: (0..count.min(MAX_GPUS)).map(GpuState::h100).collect(),
            ..Self::default()
        }
    }

    /// A node with `count` A100, or [`MAX_GPUS`] if that is less.
    #[must_use]
    pub fn a100(count: usize) -> Self {
        Self {
            gpus: (0..count.min(MAX_GPUS)).map(GpuState::a100).collect(),
            ..Self::default()
        }
    }

    /// A node with `count` B200, or [`MAX_GPUS`] if that is less.
    #[must_use]
    pub fn b200(count: usize) -> Self {
        Self {
            gpus: (0..count.min(MAX_GPUS)).map(GpuState::b200).collect(),
            ..Self::default()
        }
    }
}

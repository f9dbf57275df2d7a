//! NVML, loaded in a child process: a driver that blocks or crashes affects only that child.
//!
//! ```text
//! exporter --stdin (closed when the exporter ends)--> worker: one thread for each GPU
//!          <--stdout: one JSON line for each GPU and sample (`wire`)--
//! ```

mod c2c;
mod calls;
pub mod child;
mod events;
mod fields;
mod gpm;
mod gpu;
mod line_rate;
mod mig;
mod newer;
mod nvlink;
mod pcie_bytes;
mod place;
mod prm;
mod raw;
mod sram;
mod structs;
mod traffic;
mod vgpu;
mod windows;
pub mod wire;
mod worker;

pub use worker::{SHORTEST_PERIOD, WorkerError, run_worker};

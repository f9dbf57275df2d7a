//! NVML, loaded in a child process: a driver that hangs or crashes costs only that child.
//!
//! ```text
//! exporter --stdin (closed when the exporter ends)--> worker: one thread for each GPU
//!          <--stdout: one JSON line for each GPU and sample (`wire`)--
//! ```

mod calls;
pub mod child;
mod gpu;
mod nvlink;
mod raw;
pub mod wire;
mod worker;

pub use worker::{SHORTEST_PERIOD, WorkerError, run_worker};

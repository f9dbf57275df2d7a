//! The node exporter: what GPUs, PCIe links and RDMA ports of one machine say, as text for Prometheus.
//!
//! ```text
//! /sys /proc NVML -> sources -> samplers -> NodeReading -> exposition -> GET /metrics
//! ```
//!
//! [`sources`] touch the machine and nothing else does; each sampler in [`sampler::SAMPLERS`] turns one
//! source into readings, on a thread of its own, so that one that hangs costs only itself.

pub mod page;
pub mod runtime;
pub mod sampler;
pub mod samplers;
pub mod server;
pub mod sources;

pub use runtime::{Config, Exporter, Limits};
pub use sampler::{Machine, NvmlAccess};
pub use server::serve;
pub use sources::nvml::run_worker;

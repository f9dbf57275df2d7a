//! Samplers: one file for each source.

pub mod cpu;
pub mod deployment;
mod discovery;
pub mod ethernet;
pub mod gpu;
pub mod host;
pub mod jitter;
pub mod kernel_log;
pub mod lldp;
pub mod memory;
pub mod otlp;
pub mod pcie;
mod peaks;
pub mod placement;
mod pressure;
pub mod prober;
pub mod rdma;
pub mod responder;
pub mod scheduler;
pub mod sensors;
pub mod step_times;
pub mod storage;
pub mod vf;
pub mod workload;

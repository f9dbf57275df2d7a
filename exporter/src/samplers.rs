//! Samplers: one file for each source.

pub mod deployment;
mod discovery;
pub mod gpu;
pub mod host;
pub mod pcie;
pub mod placement;
pub mod rdma;
pub mod workload;

//! Samplers: one file for each source.

mod discovery;
pub mod gpu;
pub mod host;
pub mod kernel_log;
pub mod pcie;
pub mod placement;
pub mod rdma;

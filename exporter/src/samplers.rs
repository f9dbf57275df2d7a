//! Samplers: one file for each source.

mod discovery;
pub mod gpu;
pub mod host;
pub mod jitter;
pub mod pcie;
pub mod placement;
mod pressure;
pub mod rdma;
pub mod scheduler;
pub mod storage;

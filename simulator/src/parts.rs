//! Counters of the parts of a node.

pub mod efa;
pub mod ethernet;
pub mod gpu;
pub mod port;

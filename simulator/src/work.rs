//! Jobs: their work, nodes and times.

pub mod job;
pub mod placement;
pub mod schedule;
pub(crate) mod unevenness;
pub mod workload;

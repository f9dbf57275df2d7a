//! Jobs: who runs what, where and when.

pub mod job;
pub mod placement;
pub mod schedule;
pub(crate) mod unevenness;
pub mod workload;

//! The traffic of each flow, its links, and what delays it.

pub(crate) mod contention;
pub mod fairness;
pub(crate) mod pfc;
pub mod router;

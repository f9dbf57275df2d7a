//! Who sends how much over which links, and what holds it up.

pub(crate) mod contention;
pub mod fairness;
pub(crate) mod pfc;
pub mod router;

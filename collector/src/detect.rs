//! What is wrong, and by which rule.

pub mod cohort;
pub mod confirmation;
pub mod detector;
pub(crate) mod ecn_marks;
#[cfg(test)]
pub(crate) mod found;
pub(crate) mod gpus;
pub(crate) mod models;
pub mod pause_graph;
pub(crate) mod peers;
pub mod port_series;
pub mod registry;
pub mod rules;
pub mod tails;
pub mod tomography;

//! From findings to incidents.

pub mod curve;
pub mod incident;
pub mod observer;
pub mod pipeline;
pub mod stages;

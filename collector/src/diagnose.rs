//! From findings to incidents.

pub mod incident;
pub mod observer;
pub mod pipeline;
pub mod stages;

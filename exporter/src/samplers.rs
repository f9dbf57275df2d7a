//! Samplers: one file for each source.

pub mod host;

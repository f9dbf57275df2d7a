//! Detectors: one file for each, listed in [`DETECTORS`](super::detector::DETECTORS).

pub mod degraded_link;
pub mod link_errors;
pub mod miscabled_rail;
mod peers;
pub mod slow_gpu;

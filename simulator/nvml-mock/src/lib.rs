//! A `libnvidia-ml.so.1` without a GPU: serves the exporter's calls from the text file `nvml.state` beside it.
#![allow(
    unsafe_code,
    reason = "this library is a C interface: its callers hand over raw pointers"
)]

mod device;
mod events;
#[cfg(not(feature = "old-driver"))]
mod fabric;
mod ffi;
mod fields;
#[cfg(not(feature = "old-driver"))]
mod gpm;
mod live;
mod memory;
mod mig;
#[cfg(not(feature = "old-driver"))]
mod newer;
mod nvlink;
mod pcie;
mod power;
#[cfg(not(feature = "old-driver"))]
mod prm;
pub mod state;
mod symbols;
mod system;
mod temperature;
mod unsupported;
#[cfg(not(feature = "old-driver"))]
mod vgpu;

#[cfg(all(test, not(feature = "old-driver")))]
mod layout_tests;
#[cfg(test)]
mod state_tests;

//! The tests of the exporter from outside, as one program: linking one is faster than linking each.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)] // helpers of tests; clippy lets only the tests themselves

mod common;

mod check;
mod deployment;
mod drivers;
mod ethernet;
mod faults;
mod golden;
mod hardware;
mod host;
mod kernel_log;
mod listed;
mod lldp;
mod machines;
mod network;
mod nvml;
mod pcie_setup;
mod probe;
mod runtime;
mod step_times;
mod truth;
mod vf;
mod web_security;
#[cfg(feature = "kubernetes")]
mod workload;

//! The tests of the simulator from outside, as one program: linking one is faster than linking each.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)] // helpers of tests; clippy lets only the tests themselves

mod anchors;
mod efa;
mod jobs;
mod nvml_mock;
mod physics;
mod probes;
mod ranks;
mod roce;
mod route;
mod shapes;
mod shared_parts;
mod site;
mod trees;
mod wiring;

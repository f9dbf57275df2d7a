//! The tests of the collector from outside, as one program: linking one is faster than linking each.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)] // helpers of tests; clippy lets only the tests themselves

mod topology_net;

mod analysis;
mod flight_recorder;
mod foreign;
mod foreign_cables;
mod hostile;
mod lldp;
mod plan_captures;
mod plan_properties;
mod service;
mod subnet;
mod subnet_properties;
mod topology;
mod topology_captures;
mod topology_diff;
mod topology_kinds;
mod topology_rails;
mod topology_restart;
mod topology_routes;
mod topology_tiers;
mod wait_captures;

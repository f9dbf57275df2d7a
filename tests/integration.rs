//! The quick tests of the whole, as one program: linking one is faster than linking each. Tests that run real
//! servers are separate programs, `e2e_*`.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)] // helpers of tests; clippy lets only the tests themselves

#[path = "support/gpus.rs"]
mod gpus;
#[path = "support/foreign.rs"]
mod others;
#[path = "support/promql.rs"]
mod promql;
#[allow(dead_code)] // the tests of `otlp` use all of it
#[path = "../otlp/tests/receiver.rs"]
mod receiver;
#[path = "support/exporter.rs"]
mod service;
#[path = "support/smi.rs"]
mod smi;
#[path = "support/smi_rows.rs"]
mod smi_rows;
#[path = "support/sources.rs"]
mod sources;
mod support;
#[path = "support/world.rs"]
mod world;

mod alerts;
mod answers;
mod architecture;
mod check;
mod dashboard_links;
mod dashboard_pictures;
mod dashboards;
mod descriptors;
mod eval;
mod exporter;
mod foreign;
mod fuzz;
mod inputs;
mod jobs;
mod lint_faults;
mod machines;
mod node_faults;
mod nvml;
mod nvml_captures;
mod nvml_counters;
mod nvml_depth;
mod nvml_nvidia;
mod otlp;
mod packaging;
mod packs;
mod pictures;
mod probing;
mod readings;
mod replay;
mod simulate;
mod topologies;
mod topology;
mod topology_lint;
mod worlds;

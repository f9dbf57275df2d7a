//! The pure middle of the collector: history, detectors, root cause.
//!
//! Nothing below this module does IO, reads a clock, awaits or serialises: time comes in as an argument,
//! and the same input gives the same output, byte for byte, so that an incident can be replayed.

pub mod ablation;
pub mod addresses;
pub mod analyzer;
pub mod belief;
mod blame;
pub mod changes;
pub mod classes;
pub mod cohort;
pub mod detector;
pub mod detectors;
pub mod fusion;
pub mod history;
pub mod impact;
pub mod incident;
pub mod inventory;
pub mod jobs;
pub mod kept;
pub mod lost;
pub mod maintenance;
pub mod neighbours;
pub mod observer;
pub mod pause_graph;
pub mod port_series;
pub mod probing;
mod proof;
pub mod rules;
pub mod second_look;
mod signs;
pub mod sources;
pub mod speaker;
mod spreading;
pub mod storm;
mod tensor;
pub mod tomography;
pub mod tracker;
mod traffic;
pub mod view;
pub mod wait;

#[cfg(test)]
mod found;
#[cfg(test)]
mod probe_tests;
#[cfg(test)]
mod switch_tests;

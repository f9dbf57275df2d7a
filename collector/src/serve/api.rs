//! Responses of the API, one file per subject.

pub mod detectors;
pub(crate) mod export;
pub(crate) mod exporter;
pub(crate) mod jobs;
pub(crate) mod lint;
pub(crate) mod listings;
pub(crate) mod maintenance;
pub(crate) mod otlp;
pub(crate) mod params;
pub(crate) mod plan_diff;
pub(crate) mod probes;
pub(crate) mod push;
pub(crate) mod remote_write;
pub(crate) mod structure;
pub(crate) mod tails;
mod token;

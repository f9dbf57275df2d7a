//! The collector: exporters' text and the subnet as one fabric graph, findings and incidents on it.
//!
//! ```text
//! GET /metrics, subnet sweep -> ingest -> Fabric + History -> detectors -> root cause -> ClusterView -> API, page
//! ```

pub mod analyzer;
pub mod assemble;
pub mod classes;
pub(crate) mod clock;
pub mod cluster_view;
pub mod config;
pub mod detect;
pub mod diagnose;
pub mod fabric;
pub(crate) mod file_error;
pub mod health;
pub mod jobs;
pub mod maintenance;
pub mod mapping;
pub(crate) mod offline;
pub mod persist;
pub mod record;
pub mod replay;
pub mod serve;
pub mod service;
pub mod sources;
pub mod stages;
pub mod status;
pub mod store;

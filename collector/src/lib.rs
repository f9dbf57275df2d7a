//! The collector: exporters' text and the subnet as one fabric graph, findings and incidents on it.
//!
//! ```text
//! GET /metrics, subnet sweep -> ingest -> Fabric + History -> detectors -> root cause -> ClusterView -> API, page
//! ```

pub mod analyzer;
pub mod api;
pub mod assemble;
pub mod classes;
pub mod cluster_view;
pub mod collectives;
pub mod config;
pub mod detect;
pub mod diagnose;
pub mod fabric;
pub mod foreign;
pub mod incident_file;
pub mod jobs;
pub mod lldp_source;
pub mod maintenance;
pub(crate) mod offline;
mod past;
pub mod run;
pub mod scrape;
pub mod stages;
pub mod state;
pub mod state_file;
pub mod store;
pub mod subnet_source;
pub mod sweep;
pub mod targets;

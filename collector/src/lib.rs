//! The collector: exporters' text and the subnet as one fabric graph, findings and incidents on it.
//!
//! ```text
//! GET /metrics, subnet sweep -> ingest -> Fabric + History -> detectors -> root cause -> ClusterView -> API, page
//! ```

pub mod api;
pub mod collectives;
pub mod config;
pub mod core;
pub mod foreign;
pub mod incident_file;
pub mod lldp;
pub mod lldp_source;
pub mod maintenance;
mod past;
pub mod plans;
pub mod run;
pub mod scrape;
pub mod state;
pub mod state_file;
pub mod subnet;
pub mod subnet_source;
pub mod sweep;
pub mod targets;
pub mod topology;

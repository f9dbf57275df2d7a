//! The collector: exporters' text and the subnet as one fabric graph, findings and incidents on it.
//!
//! ```text
//! GET /metrics, subnet sweep -> ingest -> Fabric + History -> detectors -> root cause -> ClusterView -> API, page
//! ```

pub mod core;
pub mod subnet;
pub mod topology;

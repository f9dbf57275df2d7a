//! A cluster in a box: the hardware interfaces that Railscope reads, simulated at their real boundary.
//!
//! ```text
//! ClusterSpec -> Wiring -> Cluster (job, faults) -> ClusterTree: /sys /proc NVML of every node, subnet text
//! ```
//!
//! [`spec`], [`wiring`], [`cluster`] and [`statistics`] are pure: time comes in as an argument, noise from a seed.
//! [`machine`] and [`tree`] write files.

pub mod cluster;
pub mod conditions;
mod contention;
pub mod efa;
pub mod ethernet;
pub mod examples;
pub mod fairness;
pub mod fault;
pub mod gpu;
pub mod ibnetdiscover;
pub mod infiniband_exporter;
pub mod inspector;
pub mod job;
pub mod lldp;
pub mod machine;
pub mod noise;
pub mod nvml;
mod pause;
mod place;
pub mod placement;
pub mod plan;
pub mod port;
pub mod probe;
pub mod readings;
pub mod route;
pub mod schedule;
pub mod shape;
pub mod site;
pub mod snmp;
pub mod spec;
pub mod statistics;
pub mod tree;
mod unevenness;
pub mod wiring;
pub mod workload;

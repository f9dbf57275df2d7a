//! A cluster in a box: the hardware interfaces that Railscope reads, simulated at their real boundary.
//!
//! ```text
//! ClusterSpec -> Wiring -> Cluster (job, faults) -> ClusterTree: /sys /proc NVML of every node, subnet text
//! ```
//!
//! [`spec`], [`wiring`], [`cluster`] and [`statistics`] are pure: time comes in as an argument, noise from a seed.
//! [`show::machine`] and [`show::tree`] write files.

pub mod cluster;
pub mod conditions;
pub mod examples;
pub mod faults;
pub mod noise;
pub mod parts;
pub mod show;
pub mod spec;
pub mod statistics;
pub mod traffic;
pub mod wiring;
pub mod work;

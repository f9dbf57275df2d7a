//! The cluster in the formats of other tools: files, expositions, calls.

pub mod forwarding;
pub mod ibnetdiscover;
pub mod infiniband_exporter;
pub mod inspector;
pub mod lldp;
pub mod machine;
pub mod measured;
pub mod nvml;
pub mod plan;
pub mod probe;
pub mod readings;
pub mod snmp;
pub mod tree;

//! What the sources report, combined: one fabric, with the state of its components.

pub mod build;
pub(crate) mod cable_traffic;
pub mod changes;
pub mod lldp;
pub(crate) mod netdev;
pub mod node_parts;
pub(crate) mod peer_settings;
pub mod probe_targets;
pub mod retention;

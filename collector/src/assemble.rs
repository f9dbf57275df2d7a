//! What the sources report, put together: one fabric, and what is kept and known of its parts.

pub mod build;
pub(crate) mod cable_traffic;
pub mod changes;
pub mod lldp;
pub mod node_parts;
pub(crate) mod peer_settings;
pub mod probe_targets;
pub mod retention;

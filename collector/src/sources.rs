//! Everything that fetches.

pub mod collectives;
pub(crate) mod identity;
pub mod mad_sweep;
pub(crate) mod node_names;
pub mod push;
pub mod scrape;
pub mod subnet;
pub mod switch_lldp;
pub mod targets;

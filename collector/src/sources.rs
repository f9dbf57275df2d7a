//! Everything that fetches.

pub mod collectives;
pub mod mad_sweep;
pub mod remote_write;
pub mod scrape;
pub mod subnet;
pub mod switch_lldp;
pub mod targets;

//! The stages of the pipeline, one file each.

pub(crate) mod after_effects;
pub(crate) mod bonds;
pub(crate) mod disabled_ports;
pub(crate) mod hold_down;
pub(crate) mod immediate_open;
pub mod job_impact;
pub(crate) mod lost_links;
pub mod maintenance;
pub mod mass_link_loss;
pub(crate) mod nvlink_switches;
pub mod posterior;
pub(crate) mod reattribute;
pub(crate) mod reseats;
pub(crate) mod shared_nics;
mod short_of_cables;
pub(crate) mod virtual_functions;
pub(crate) mod whole_hosts;

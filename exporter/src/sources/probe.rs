//! Probes between NICs of different nodes: sender, responder, and times from the kernel's timestamps.
//!
//! A probe is a UDP datagram of 64 bytes ([`wire`]). It has the kernel's timestamp of when it left, when it reached the
//! other node, and when the reply arrived; the other node reports its processing time. So a round trip needs no common
//! clock and excludes both nodes' software. Each *flow* keeps its source port, so that switches that hash
//! five-tuples (ECMP) send all of its probes over the same path.

mod accounts;
mod clock;
mod control;
mod endpoint;
mod flow;
mod list;
mod nics;
mod planner;
mod port;
mod prober;
mod rdma;
mod responder;
mod socket;
mod tally;
mod trace;
mod way;
pub mod wire;

use std::net::SocketAddr;

pub use accounts::{ClassReport, DeviceReport};
pub use flow::Counts;
pub use list::{
    ListAccess, ListError, MOST_FLOWS, MOST_PROBES_PER_SECOND, ProbeList, Target, Told,
};
pub use nics::{LocalNic, interface_name, of_rdma};
pub use prober::{FlowReport, Prober, Report};
pub use rdma::{RdmaAccess, RdmaProber};
pub use responder::{Answered, MOST_ANSWERS_PER_SECOND, Responder};
pub use tally::{BOUNDS_NANOS, QUANTILES, Times};
pub use way::FlowKey;

/// Whether to respond to probes, and which targets to probe. By default neither.
#[derive(Debug, Clone, Default)]
pub struct ProbeAccess {
    /// Addresses to respond at; empty does not respond to probes.
    pub listen: Vec<SocketAddr>,
    /// Source of the list of targets; none sends no probes.
    pub list: Option<ListAccess>,
    /// The program that does the same by RDMA; none uses UDP only.
    pub rdma: Option<RdmaAccess>,
}

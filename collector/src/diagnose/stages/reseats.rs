//! Cables of idle nodes that lose their link: whoever reseats one drains the node first, so a ticket is for those that stay down.

use railscope_model::identity::Part;
use railscope_model::metric::{Metric, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_TRANSMIT_BYTES};

use crate::classes::{Class, LINK_ERRORS, PORT_DOWN};
use crate::diagnose::incident::Incident;
use crate::diagnose::stages::job_impact::{IDLE_SECONDS, does_nothing};
use crate::store::{History, Increase, NodeHistory};

/// What reseating looks like.
const CLASSES: [&Class; 2] = [&PORT_DOWN, &LINK_ERRORS];
/// How long reseating, cleaning or swapping may take (a choice).
pub(crate) const RESEAT_SECONDS: f64 = 300.0;
/// Bytes per second that keep-alives alone do not send (a choice).
const KEEP_ALIVE: f64 = 1e6;

/// Whether it is a cable whose node did not compute, and sent and received nothing, in the minute before.
pub(crate) fn may_be_reseated(incident: &Incident, history: &History) -> bool {
    let Part::HostLink(node, _) = &incident.root else {
        return false;
    };
    let node = history.node(node);
    CLASSES.contains(&incident.class)
        && node.is_some_and(|node| does_nothing(node) && carries_nothing(node))
}

/// Whether its RDMA ports have counters of bytes, and none has carried more than keep-alives.
fn carries_nothing(node: &NodeHistory) -> bool {
    let rates = |metric: &'static Metric| {
        let ports = node.series(metric);
        ports.map(|(_, window)| window.increase(IDLE_SECONDS).map(Increase::rate))
    };
    let mut rates = rates(&RDMA_PORT_RECEIVE_BYTES)
        .chain(rates(&RDMA_PORT_TRANSMIT_BYTES))
        .peekable();
    rates.peek().is_some() && rates.all(|rate| rate.is_some_and(|rate| rate < KEEP_ALIVE))
}

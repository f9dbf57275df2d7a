//! What arrives at each NIC's port, and how much of it is marked.

use railscope_model::identity::NodeName;
use railscope_model::metric::{RDMA_ECN_MARKED, RDMA_PORT_RECEIVE_BYTES};

use super::super::slow_receiver::pauses::{in_parts, sent_pause};
use super::{BUSY, MIN_BYTES, NEWEST_SECONDS, Port, WINDOW_SECONDS};
use crate::assemble::netdev::{nic_of, port_named};
use crate::detect::detector::View;
use crate::detect::ecn_marks::marked_share;
use crate::detect::peers::{MIN_PEERS, median};
use crate::store::{Increase, NodeHistory, Window};

/// What arrives at a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrivals {
    /// Bytes a second.
    pub(super) bytes: f64,
    /// Share of the packets that is marked.
    pub(super) marked: f64,
}

impl Arrivals {
    /// `None` if nothing arrives.
    pub(super) fn of(marks: Option<f64>, bytes: Option<f64>) -> Option<Self> {
        let bytes = bytes.filter(|bytes| *bytes > 0.0)?;
        let marked = marked_share(marks?, bytes);
        Some(Self { bytes, marked })
    }

    pub(super) fn lately([marks, bytes]: [Window<'_>; 2], seconds: f64) -> Option<Self> {
        let rate = |window: Window<'_>| window.newest_increase(seconds).map(Increase::rate);
        Self::of(rate(marks), rate(bytes))
    }

    /// In the newest part of the window, and in the rest of it; none if scrapes are so slow that there is no rest.
    pub(super) fn in_parts(windows: [Window<'_>; 2]) -> Option<[Self; 2]> {
        let parts = windows.map(|window| in_parts(window, NEWEST_SECONDS, WINDOW_SECONDS));
        let [marks, bytes] = parts.map(|parts| parts.map(|parts| parts.map(Increase::rate)));
        let (marks, bytes) = marks.zip(bytes)?;
        let of = |part: usize| Self::of(Some(marks[part]), Some(bytes[part]));
        Some([of(0)?, of(1)?])
    }
}

/// A port whose packets may be marked.
pub(super) struct Known<'a> {
    pub(super) node: &'a NodeName,
    pub(super) history: &'a NodeHistory,
    pub(super) port: [&'a str; 2],
    pub(super) windows: [Window<'a>; 2],
    pub(super) arrivals: Arrivals,
}

impl Known<'_> {
    pub(super) fn named(&self) -> Option<Port> {
        let [device, port] = self.port;
        Some((self.node.clone(), port_named(device, port)?))
    }

    /// The share of the time for which its NIC pauses the switch, or an interface of the node whose NIC is not known; `None` where
    /// that is not counted.
    pub(super) fn sent_pause(&self) -> Option<f64> {
        sent_pause(self.history, WINDOW_SECONDS, |netdev| {
            let nic = nic_of(self.history, netdev);
            nic.is_some_and(|(_, device)| [self.port[0], netdev].contains(&device.as_str()))
        })
    }
}

/// The ports at which much arrives.
pub(super) fn ports<'a>(view: &View<'a>) -> Vec<Known<'a>> {
    let nodes = view.history.fresh_nodes(view.now);
    let ports = nodes.flat_map(|(node, history)| {
        let series = history.series(&RDMA_ECN_MARKED);
        series.filter_map(move |(labels, marks)| {
            let mut labels = labels.values();
            let port = [labels.next()?, labels.next()?];
            let windows = [marks, history.window(&RDMA_PORT_RECEIVE_BYTES, &port)?];
            Some(Known {
                node,
                history,
                port,
                windows,
                arrivals: Arrivals::lately(windows, WINDOW_SECONDS)?,
            })
        })
    });
    let mut ports: Vec<Known<'_>> = ports.collect();
    let bytes = ports.iter().map(|port| port.arrivals.bytes);
    let mean = bytes.sum::<f64>() / ports.len() as f64;
    // One marked packet is a large share of a few.
    let least = MIN_BYTES.max(BUSY * mean);
    ports.retain(|port| port.arrivals.bytes >= least);
    ports
}

/// The median share of the other ports that receive as much as this one; none if they are too few.
pub(super) fn usual(ports: &[Known<'_>], own: &Known<'_>) -> Option<f64> {
    let peers = ports.iter().filter(|other| {
        let is_own = (other.node, other.port) == (own.node, own.port);
        !is_own && other.arrivals.bytes >= BUSY * own.arrivals.bytes
    });
    let peers: Vec<f64> = peers.map(|other| other.arrivals.marked).collect();
    (peers.len() >= MIN_PEERS).then(|| median(peers)).flatten()
}

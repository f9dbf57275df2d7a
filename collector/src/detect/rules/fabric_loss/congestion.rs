//! Losses that full queues explain: switches that drop what they cannot queue mark packets before, and the NICs of these flows
//! have more congestion notifications than others.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use railscope_model::identity::RdmaPort;
use railscope_model::metric::{RDMA_CNP, RDMA_PORT_TRANSMIT_BYTES};

use super::{LOSS_SECONDS, Loss};
use crate::assemble::netdev::port_named;
use crate::detect::detector::View;
use crate::detect::peers::median;
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory};

/// How many times the congestion notifications of the median NIC: where all have as many, one's losses have another cause.
const ABOVE_USUAL: f64 = 5.0;

/// Bytes a second from which a port sends: an idle one has no notifications.
const BUSY: f64 = 1e7;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "a loss counts as that of full queues if the NIC has as many congestion notifications as lost packets, and {ABOVE_USUAL:.0} times those of the median NIC that sends"
    )
}

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "congestion notifications, times those of the median NIC that sends, from which they explain the loss if they are as many as the lost packets",
            ABOVE_USUAL,
            "times",
            "a queue marks packets before it drops them (a choice)",
        ),
        Threshold::new(
            "bytes per second from which a NIC sends",
            BUSY,
            "bytes/s",
            "idle NICs have no notifications (a choice)",
        ),
    ]
}

/// Congestion notifications of all ports.
pub(super) struct Congestion<'a, 'v> {
    view: &'a View<'v>,
    /// Notifications a second of the median port that sends.
    usual: OnceCell<f64>,
}

impl<'a, 'v> Congestion<'a, 'v> {
    pub(super) fn of(view: &'a View<'v>) -> Self {
        let usual = OnceCell::new();
        Self { view, usual }
    }

    /// Marks those losses of a node whose ports have as many notifications, sent or received, and more than usual.
    pub(super) fn mark(&self, history: &NodeHistory, losses: &mut [Loss<'_>]) {
        if losses.is_empty() {
            return;
        }
        let ports = notifications(history);
        for loss in losses {
            let own = ports.get(&loss.port).copied();
            let own = own.filter(|own| *own > 0.0 && *own >= loss.rate);
            loss.is_congested = own.is_some_and(|own| own >= ABOVE_USUAL * self.usual());
        }
    }

    fn usual(&self) -> f64 {
        *self.usual.get_or_init(|| {
            let nodes = self.view.history.fresh_nodes(self.view.now);
            let all = nodes.flat_map(|(_, history)| {
                let ports = notifications(history).into_iter();
                let sending = ports.filter(|(port, _)| sends(history, port));
                sending.map(|(_, rate)| rate)
            });
            median(all).unwrap_or(0.0)
        })
    }
}

/// Whether a port sends [`BUSY`].
fn sends(history: &NodeHistory, port: &RdmaPort) -> bool {
    let labels = [port.device.as_str(), &port.port.to_string()];
    let sent = history.window(&RDMA_PORT_TRANSMIT_BYTES, &labels);
    let sent = sent.and_then(|sent| sent.newest_increase(LOSS_SECONDS[0]));
    sent.is_some_and(|sent| sent.rate() >= BUSY)
}

/// Congestion notifications a second that each port of a node sends and receives.
fn notifications(history: &NodeHistory) -> BTreeMap<RdmaPort, f64> {
    let mut ports = BTreeMap::new();
    for (labels, window) in history.series(&RDMA_CNP) {
        let mut labels = labels.values();
        let port = labels.next().zip(labels.next());
        if let Some(port) = port.and_then(|(device, port)| port_named(device, port)) {
            let rate = window.newest_increase(LOSS_SECONDS[0]).map(Increase::rate);
            *ports.entry(port).or_default() += rate.unwrap_or(0.0);
        }
    }
    ports
}

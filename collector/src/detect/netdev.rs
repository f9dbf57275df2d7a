//! Network interfaces and the RDMA ports that they belong to: on Ethernet the interface counts what goes wrong on a cable.

use railscope_model::identity::RdmaPort;
use railscope_model::metric::RDMA_PORT;

use crate::store::NodeHistory;

/// Every RDMA port of a node that has a network interface, with the interface's name.
fn pairs(history: &NodeHistory) -> impl Iterator<Item = ([&str; 2], &str)> {
    let netdev = RDMA_PORT.labels.iter().position(|label| *label == "netdev");
    history.series(&RDMA_PORT).filter_map(move |(labels, _)| {
        let name = labels
            .values()
            .nth(netdev?)
            .filter(|name| !name.is_empty())?;
        let mut labels = labels.values();
        Some(([labels.next()?, labels.next()?], name))
    })
}

/// The port of an interface; none if it carries no RDMA.
pub(crate) fn port_of(history: &NodeHistory, netdev: &str) -> Option<RdmaPort> {
    let ([device, port], _) = pairs(history).find(|(_, name)| *name == netdev)?;
    Some(RdmaPort {
        device: device.parse().ok()?,
        port: port.parse().ok()?,
    })
}

/// The interface of a port; none on InfiniBand.
pub(crate) fn of_port<'a>(history: &'a NodeHistory, port: [&str; 2]) -> Option<&'a str> {
    let (_, name) = pairs(history).find(|(of, _)| *of == port)?;
    Some(name)
}

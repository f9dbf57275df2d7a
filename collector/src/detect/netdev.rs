//! Network interfaces and the RDMA ports that they belong to: on Ethernet the interface counts what goes wrong on a cable.

use railscope_model::identity::{PciAddress, RdmaDevice, RdmaPort};
use railscope_model::metric::{NIC, NIC_PFC_FRAMES, RDMA_PORT};

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

/// PCI address and RDMA device of an interface. Some exporters know of no relation between the two: then the interface
/// itself names the NIC.
pub(crate) fn nic_of(
    history: &NodeHistory,
    netdev: &str,
) -> Option<(Option<PciAddress>, RdmaDevice)> {
    let known = history.series(&NIC).find_map(|(labels, _)| {
        let mut labels = labels.values();
        let is_it = labels.next() == Some(netdev);
        is_it.then_some((labels.next(), labels.next()))
    });
    let (pci, device) = known.unwrap_or_default();
    let device = device.filter(|device| !device.is_empty());
    let pci = pci.and_then(|pci| pci.parse().ok());
    Some((pci, device.unwrap_or(netdev).parse().ok()?))
}

/// The NIC of an interface if that carries RDMA. Where the exporter relates no interface to an RDMA device, one that counts
/// pause by priority carries it.
pub(crate) fn fabric_nic_of(history: &NodeHistory, netdev: &str) -> Option<RdmaDevice> {
    let devices = || {
        let nics = history.series(&NIC);
        nics.map(|(labels, _)| (labels.values().next(), labels.values().nth(2)))
    };
    let is_named = |device: Option<&str>| device.is_some_and(|device| !device.is_empty());
    if devices().any(|(_, device)| is_named(device)) {
        let (_, device) = devices().find(|(name, _)| *name == Some(netdev))?;
        return device.filter(|_| is_named(device))?.parse().ok();
    }
    let mut pauses = history.series(&NIC_PFC_FRAMES);
    let has_priorities = pauses.any(|(labels, _)| labels.values().next() == Some(netdev));
    has_priorities
        .then(|| nic_of(history, netdev))?
        .map(|(_, device)| device)
}

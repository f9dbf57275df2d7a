//! Interfaces of hosts whose links flap, where no RDMA port shows their state.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{NIC_CARRIER, NIC_CARRIER_CHANGES};

use super::{FlappingPort, down_and_up, falls, runs_since};
use crate::assemble::netdev::{port_named, port_without_rdma};
use crate::detect::detector::View;
use crate::store::NodeHistory;

impl FlappingPort {
    /// Fast interfaces of a node whose links went down while the node ran, each with its port and how often, but for moved cables: as
    /// scrapes have seen it, or as the kernel counts it.
    pub(super) fn lost_interfaces<'a>(
        &self,
        view: &View<'_>,
        (node, history): (&NodeName, &'a NodeHistory),
    ) -> Vec<(&'a str, RdmaPort, usize)> {
        let carriers = history.series(&NIC_CARRIER);
        let lost = carriers.filter_map(|(labels, up)| {
            let netdev = labels.values().next()?;
            let changes = history.window(&NIC_CARRIER_CHANGES, &[netdev]);
            let changes = changes.map_or(0, |changes| down_and_up(changes, Timestamp(0)));
            let losses = falls(up, Timestamp(0)).max(changes);
            let (oldest, _) = up.told().last()?;
            let port = (losses > 0).then(|| self.fast_port((node, history), netdev))??;
            let losses = self.unexplained((node, history), (oldest, [netdev, "1"]), losses);
            runs_since(view, node, oldest).then_some((netdev, port, losses))
        });
        lost.collect()
    }

    /// The port of a fast interface. One that is down has no speed: then it is one that flapped before.
    fn fast_port(
        &self,
        (node, history): (&NodeName, &NodeHistory),
        netdev: &str,
    ) -> Option<RdmaPort> {
        port_without_rdma(history, netdev).or_else(|| {
            let port = port_named(netdev, "1")?;
            let link = Part::HostLink(node.clone(), port.clone());
            self.flapping.contains(&link).then_some(port)
        })
    }
}

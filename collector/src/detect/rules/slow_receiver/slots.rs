//! One NIC that back-pressures its switch, and what is known of its place in the node.

use railscope_model::identity::Part;
use railscope_model::metric::PCIE_ACS_ON_PATH;

use super::{Holds, card, evidence};
use crate::classes::{NUMA_AFFINITY, PCIE_REDIRECTED, SLOW_RECEIVER};
use crate::detect::detector::{Evidence, View};
use crate::detect::gpus;

/// One NIC alone: what is between it and its GPUs is slow. Why, the node reports or leaves open.
pub(super) fn of_slot(view: &View<'_>, holds: &Holds<'_>) -> Evidence {
    let node = holds.node;
    let address = holds.pci.map(|pci| pci.to_string()).unwrap_or_default();
    let history = view.history.node(node);
    let of_link = |metric| history?.value(metric, &[&address]);
    let hops = of_link(&PCIE_ACS_ON_PATH).filter(|hops| *hops > 0.0);
    let across = history.and_then(|history| gpus::across_sockets(history, &holds.device));
    let (class, why) = match (hops, across) {
        (Some(hops), _) => (
            &PCIE_REDIRECTED,
            format!("{hops} ports above it redirect its packets for GPUs to the root complex"),
        ),
        (None, Some(gpu)) => (
            &NUMA_AFFINITY,
            format!("GPU {gpu}, which has no nearer NIC, is on the other socket"),
        ),
        (None, None) => (
            &SLOW_RECEIVER,
            "its PCIe link, or a component behind it, is slow: memory, the IOMMU, or a path over the other socket".to_owned(),
        ),
    };
    let statement = format!("{}; {why}.", holds.words);
    let part = holds.pci.map_or_else(
        || Part::Nic(node.clone(), holds.device.clone()),
        |pci| Part::PcieLink(node.clone(), card(view, node, pci)),
    );
    evidence(view, part, class, holds, statement)
}

//! Interfaces whose link no RDMA port shows: members of bonds, and those of nodes without RDMA ports.

use super::{devices, has_gpus, is_without_rdma, port_of};
use crate::store::NodeHistory;

/// Whether an RDMA device is that of a bond, as the drivers of mlx5 and bnxt name it.
pub(crate) fn is_bond(device: &str) -> bool {
    device.contains("_bond")
}

/// Which interfaces have a link whose state no RDMA port shows: the node reports no RDMA ports, or those of bonds, which are up as long
/// as one of their members is. None if there are none.
pub(crate) fn without_port_state(history: &NodeHistory) -> Option<impl Fn(&str) -> bool> {
    let are_alone = is_without_rdma(history);
    let has_bonds = !are_alone && has_gpus(history) && devices(history).any(is_bond);
    let may_be_member = |netdev: &str| !netdev.starts_with("ib") && !netdev.contains('.');
    let has_own_state = move |netdev: &str| {
        let own = port_of(history, netdev).filter(|own| !is_bond(own.device.as_str()));
        own.is_some_and(|own| devices(history).any(|one| one == own.device.as_str()))
    };
    let counts = move |netdev: &str| are_alone || may_be_member(netdev) && !has_own_state(netdev);
    (are_alone || has_bonds).then_some(counts)
}

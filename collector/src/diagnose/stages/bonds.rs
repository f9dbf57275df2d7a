//! What a bond counts and what the member of it counts whose cable is bad is one fault: that of the member's cable.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{NodeName, Part, RdmaPort};

use crate::assemble::netdev::is_bond;
use crate::diagnose::incident::Finding;
use crate::fabric::is_rdma_device;

/// The bonds of nodes, each with the interface of its node that is found to have the same fault. Which interfaces are members is
/// not known: of several bonds or interfaces none are joined.
pub(crate) fn members_of_bonds(findings: &[Finding]) -> BTreeMap<Part, Part> {
    let mut by_node: BTreeMap<(&NodeName, &str), [BTreeSet<&Part>; 2]> = BTreeMap::new();
    for evidence in findings.iter().map(|found| &found.evidence) {
        let Part::HostLink(node, RdmaPort { device, .. }) = &evidence.part else {
            continue;
        };
        let bonds_or_interfaces = match device.as_str() {
            device if is_bond(device) => 0,
            device if is_rdma_device(device) => continue,
            _ => 1,
        };
        let of_node = by_node.entry((node, evidence.class.name)).or_default();
        of_node[bonds_or_interfaces].insert(&evidence.part);
    }
    let pairs = by_node.into_values().filter_map(|[bonds, interfaces]| {
        let is_one = bonds.len() == 1 && interfaces.len() == 1;
        let (bond, interface) = bonds.first().zip(interfaces.first())?;
        is_one.then(|| ((*bond).clone(), (*interface).clone()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{LINK_ERRORS, PORT_DOWN};
    use crate::detect::found::{found, part};

    #[test]
    fn a_bond_belongs_to_the_only_interface_of_its_node_with_the_same_fault() {
        const BOND: &str = "link/n1:mlx5_bond_1/1";
        const MEMBER: &str = "link/n1:bond1p0/1";
        let of_bond = |others: &[&str]| {
            let others = others
                .iter()
                .map(|other| found("test", &LINK_ERRORS, other, &[]));
            let bond = found("test", &LINK_ERRORS, BOND, &[]);
            let findings: Vec<_> = others.chain([bond]).collect();
            members_of_bonds(&findings).remove(&part(BOND))
        };
        assert_eq!(of_bond(&[]), None);
        assert_eq!(of_bond(&[MEMBER]), Some(part(MEMBER)));
        for other in ["link/n2:bond1p0/1", "link/n1:mlx5_2/1"] {
            assert_eq!(of_bond(&[other]), None, "{other}");
            assert_eq!(of_bond(&[other, MEMBER]), Some(part(MEMBER)), "{other}");
        }
        // Of which bond the member is, is not known.
        for other in ["link/n1:bond2p0/1", "link/n1:mlx5_bond_2/1"] {
            assert_eq!(of_bond(&[other, MEMBER]), None, "{other}");
        }
        let findings = [
            found("test", &LINK_ERRORS, BOND, &[]),
            found("test", &PORT_DOWN, MEMBER, &[]),
        ];
        assert!(members_of_bonds(&findings).is_empty());
    }
}

//! NICs that back-pressure their switch while an incident of their PCIe link is open: the host's counters named the link, the switch's,
//! which may be read at other times, can only name the NIC.

use std::collections::BTreeMap;

use railscope_model::fabric::Fabric;
use railscope_model::identity::Part;

use crate::detect::rules::slow_receiver;
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::posterior::pci_of;

/// Moves the findings about such NICs to the PCIe link.
pub(crate) fn join(
    fabric: &Fabric,
    groups: &mut BTreeMap<Part, Vec<Finding>>,
    is_open: impl Fn(&Part) -> bool,
) {
    let waits = |found: &Finding| found.evidence.detector == slow_receiver::NAME;
    let moves = groups.iter().filter_map(|(root, findings)| {
        let Part::Nic(node, _) = root else {
            return None;
        };
        let pci = pci_of(fabric, fabric.find(root)?)?;
        let link = Part::PcieLink(node.clone(), pci);
        (findings.iter().all(waits) && is_open(&link) && !is_open(root))
            .then(|| (root.clone(), link))
    });
    for (nic, link) in moves.collect::<Vec<_>>() {
        let moved = groups.remove(&nic).unwrap_or_default();
        groups.entry(link).or_default().extend(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{LINK_ERRORS, SLOW_RECEIVER};
    use crate::detect::found::{found, part};
    use crate::diagnose::stages::reattribute::tests::fabric;

    const NIC: &str = "nic/n1:mlx5_0";
    const LINK: &str = "pcie/n1:0000:10:00.0";

    #[test]
    fn what_a_switch_finds_of_a_nic_belongs_to_the_open_incident_of_its_pcie_link() {
        let waits = || found(slow_receiver::NAME, &SLOW_RECEIVER, NIC, &[]);
        let errors = || found("error-counters", &LINK_ERRORS, NIC, &[]);
        let root = |findings: Vec<Finding>, open: &[&str]| {
            let mut groups = BTreeMap::from([(part(NIC), findings)]);
            let open: Vec<_> = open.iter().map(|name| part(name)).collect();
            join(&fabric(), &mut groups, |part| open.contains(part));
            let roots: Vec<_> = groups.keys().map(ToString::to_string).collect();
            roots.join(" ")
        };
        assert_eq!(root(vec![waits()], &[LINK]), LINK);
        assert_eq!(root(vec![waits()], &[]), NIC, "nothing else is known");
        assert_eq!(root(vec![waits()], &[LINK, NIC]), NIC, "it is open itself");
        assert_eq!(root(vec![waits(), errors()], &[LINK]), NIC);
    }
}

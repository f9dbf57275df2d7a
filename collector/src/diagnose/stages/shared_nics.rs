//! Hosts that share one NIC (multi-host adapters of sleds) share its cable: what several of them find at it is one fault.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, PartId};
use railscope_model::identity::Part;

use crate::diagnose::incident::Finding;

/// Cables and NICs that are found to have a fault and that are plugged into one port of a switch with those of other hosts, each
/// with the first of them by name. Those that something else explains (`has_root`) are left out: of a host that is off, for example.
pub(crate) fn shared_nics(
    fabric: &Fabric,
    findings: &[Finding],
    has_root: impl Fn(&Part) -> bool,
) -> BTreeMap<Part, Part> {
    let mut by_port: BTreeMap<(PartId, u16), BTreeSet<&Part>> = BTreeMap::new();
    let parts = findings.iter().map(|found| &found.evidence.part);
    for part in parts.filter(|part| !has_root(part)) {
        if let Some(port) = port_of_switch(fabric, part) {
            by_port.entry(port).or_default().insert(part);
        }
    }
    let mut roots = BTreeMap::new();
    for parts in by_port.into_values() {
        let hosts: BTreeSet<_> = parts.iter().filter_map(|part| part.node()).collect();
        if let (Some(first), true) = (parts.first(), hosts.len() > 1) {
            let first = *first;
            roots.extend(parts.iter().map(|part| ((*part).clone(), first.clone())));
        }
    }
    roots
}

/// The port of a switch into which a host's cable, or the only one of its NIC, is plugged.
fn port_of_switch(fabric: &Fabric, part: &Part) -> Option<(PartId, u16)> {
    let far = match part {
        Part::HostLink(..) => fabric.find_cable(part)?.1,
        Part::Nic(..) => {
            let near = fabric.find(part)?;
            let mut cables = fabric.cables(near);
            cables.next().filter(|_| cables.next().is_none())?
        }
        _ => return None,
    };
    let is_switch = matches!(fabric.vertex(far.peer).part, Part::Switch(_));
    is_switch.then_some((far.peer, far.peer_port))
}

#[cfg(test)]
mod tests {
    use railscope_model::fabric::{Equipment, Link, Timestamp, Witness};

    use super::*;
    use crate::classes::PORT_DEGRADED;
    use crate::detect::found::{found, part};

    #[test]
    fn what_two_hosts_find_at_the_cable_of_their_nic_is_one_fault() {
        let mut fabric = Fabric::default();
        let switch = Equipment::Switch {
            guid: None,
            ports: 64,
            description: String::new(),
        };
        let leaf = fabric.upsert(part("switch/leaf"), switch);
        for (host, port) in [("sled-a", 5), ("sled-b", 5), ("sled-off", 5), ("n7", 6)] {
            let (guid, pci, rail) = (None, None, None);
            let nic = part(&format!("nic/{host}:mlx5_0"));
            let nic = fabric.upsert(nic, Equipment::Nic { guid, pci, rail });
            let cable = Link::cable((1, port), None, Witness::Switch, Timestamp(1));
            fabric.connect(nic, leaf, cable);
        }
        let roots = |parts: &[&str]| {
            let found = |part: &&str| found("test", &PORT_DEGRADED, part, &[]);
            let findings: Vec<_> = parts.iter().map(found).collect();
            let off = part("link/sled-off:mlx5_0/1");
            let roots = shared_nics(&fabric, &findings, |part| *part == off).into_iter();
            let roots = roots.map(|(part, root)| format!("{part} {root}"));
            roots.collect::<Vec<_>>()
        };
        let [a, b, other] = [
            "link/sled-a:mlx5_0/1",
            "link/sled-b:mlx5_0/1",
            "link/n7:mlx5_0/1",
        ];
        assert_eq!(
            roots(&[b, other, a]),
            [format!("{a} {a}"), format!("{b} {a}")]
        );
        assert_eq!(
            roots(&["nic/sled-b:mlx5_0", a]),
            [
                "nic/sled-b:mlx5_0 nic/sled-b:mlx5_0",
                &format!("{a} nic/sled-b:mlx5_0")
            ]
        );
        assert!(roots(&[a, other, "nic/sled-a:mlx5_0"]).is_empty());
        assert!(roots(&[a, "link/sled-off:mlx5_0/1"]).is_empty());
    }
}

//! A virtual function has no cable of its own: what a virtual machine loses is lost at the port of its hypervisor.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{NIC_SRIOV, RDMA_DEVICE};

use crate::assemble::netdev::has_gpus;
use crate::classes::{Class, EDGE_LOSSY, LINK_ERRORS, PORT_DEGRADED, PORT_DOWN, PORT_FLAPPING};
use crate::diagnose::incident::Finding;
use crate::store::{History, NodeHistory};

/// PCI device ids of virtual functions of ConnectX-3 to ConnectX-5 Ex, ConnectX-6, and of all later ones, as the driver prints
/// them in `hca_type` (the PCI ID repository, vendor 15b3: 1004, 1014, 1016, 1018, 101a, 101c, 101e).
const VIRTUAL: [&str; 7] = [
    "MT4100", "MT4116", "MT4118", "MT4120", "MT4122", "MT4124", "MT4126",
];

/// What both ends of a faulty cable may show, and virtual functions behind it.
const OF_CABLES: [&Class; 5] = [
    &LINK_ERRORS,
    &EDGE_LOSSY,
    &PORT_FLAPPING,
    &PORT_DOWN,
    &PORT_DEGRADED,
];

/// Moves the findings about virtual functions to the physical port of the same device name, on a host without GPUs, that has a fault:
/// which virtual machine runs on which hypervisor is not known, and virtual machines list their functions in the order of
/// the ports. Of several such ports none takes them.
pub(crate) fn join(history: &History, now: Timestamp, groups: &mut BTreeMap<Part, Vec<Finding>>) {
    let of_cables = groups.iter().filter(|(_, findings)| {
        let mut classes = findings.iter().map(|found| found.evidence.class);
        classes.all(|class| OF_CABLES.contains(&class))
    });
    let ports = of_cables.filter_map(|(part, _)| {
        let (node, device) = port_of(part)?;
        let history = history.node(node)?;
        Some((part, device, history))
    });
    let (of_virtual, others): (Vec<_>, Vec<_>) =
        ports.partition(|(_, device, history)| is_virtual(history, device));
    let is_hypervisor = |history: &NodeHistory| history.is_current(now) && !has_gpus(history);
    let root_of = |device| {
        let mut roots = others
            .iter()
            .filter(|(_, of, history)| *of == device && is_hypervisor(history));
        let (root, ..) = roots.next()?;
        roots.next().is_none().then(|| (*root).clone())
    };
    let moves = of_virtual
        .iter()
        .filter_map(|(part, device, _)| Some(((*part).clone(), root_of(*device)?)));
    for (part, root) in moves.collect::<Vec<_>>() {
        let moved = groups.remove(&part).unwrap_or_default();
        groups.entry(root).or_default().extend(moved);
    }
}

fn port_of(part: &Part) -> Option<(&NodeName, &RdmaDevice)> {
    match part {
        Part::Nic(node, device) => Some((node, device)),
        Part::HostLink(node, port) => Some((node, &port.device)),
        _ => None,
    }
}

fn is_virtual(history: &NodeHistory, device: &RdmaDevice) -> bool {
    let has = |metric, name, label, is: fn(&str) -> bool| {
        let mut all = history.series(metric);
        all.any(|(labels, _)| {
            labels.get(name) == Some(device.as_str()) && labels.get(label).is_some_and(is)
        })
    };
    let (of_role, of_type) = (label!(NIC_SRIOV, "device"), label!(RDMA_DEVICE, "device"));
    has(&NIC_SRIOV, of_role, label!(NIC_SRIOV, "role"), |role| {
        role == "virtual"
    }) || has(
        &RDMA_DEVICE,
        of_type,
        label!(RDMA_DEVICE, "hca_type"),
        |kind| VIRTUAL.contains(&kind),
    )
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::GPU;
    use railscope_model::reading::{Labels, NodeReading};

    use super::*;
    use crate::classes::PFC_STORM;
    use crate::detect::found::{found, part};

    const VM: &str = "link/vm-1:mlx5_0/1";
    const HYPERVISOR: &str = "link/hv-1:mlx5_0/1";

    /// Two virtual machines and a host with GPUs, and two hosts without.
    fn history() -> History {
        let mut history = History::default();
        for (node, kind, has_gpus) in [
            ("vm-1", "MT4126", true),
            ("vm-2", "MT4126", true),
            ("n1", "MT4129", true),
            ("hv-1", "MT4129", false),
            ("hv-2", "MT4129", false),
        ] {
            let mut reading = NodeReading::default();
            for device in ["mlx5_0", "mlx5_1"] {
                // Railscope's own exporter reports the role.
                if node == "vm-2" {
                    let labels = Labels::new([device, "", "virtual", ""]);
                    reading.push(&NIC_SRIOV, &labels, true);
                } else {
                    let labels = Labels::new([device, "", "", kind]);
                    reading.push(&RDMA_DEVICE, &labels, true);
                }
            }
            if has_gpus {
                reading.push(&GPU, &Labels::new(["0"; 9]), true);
            }
            let node = node.parse().expect("a name");
            history
                .node_mut(&node)
                .ingest_reading(&reading, Timestamp(0));
        }
        history
    }

    /// The roots of these findings, with their number.
    fn joined(findings: &[(&'static Class, &str)]) -> Vec<String> {
        let mut groups: BTreeMap<Part, Vec<Finding>> = BTreeMap::new();
        for (class, named) in findings {
            let finding = found("test", class, named, &[]);
            groups.entry(part(named)).or_default().push(finding);
        }
        join(&history(), Timestamp(1_000), &mut groups);
        let lines = groups
            .iter()
            .map(|(root, findings)| format!("{root} {}", findings.len()));
        lines.collect()
    }

    #[test]
    fn what_virtual_functions_lose_is_lost_at_the_only_faulty_port_of_a_hypervisor() {
        let other_vm = "link/vm-2:mlx5_0/1";
        let found = joined(&[
            (&EDGE_LOSSY, VM),
            (&EDGE_LOSSY, other_vm),
            (&LINK_ERRORS, HYPERVISOR),
        ]);
        assert_eq!(found, [format!("{HYPERVISOR} 3")]);
    }

    #[test]
    fn nothing_is_moved_without_one_such_port_nor_from_a_host_with_a_cable() {
        let alone = [(&EDGE_LOSSY, VM)];
        assert_eq!(joined(&alone), [format!("{VM} 1")]);
        let of_hosts = [
            (&EDGE_LOSSY, "link/n1:mlx5_0/1"),
            (&LINK_ERRORS, HYPERVISOR),
        ];
        assert_eq!(joined(&of_hosts).len(), 2);
        let of_another = [(&EDGE_LOSSY, VM), (&LINK_ERRORS, "link/hv-1:mlx5_1/1")];
        assert_eq!(joined(&of_another).len(), 2);
        let other = "link/hv-2:mlx5_0/1";
        let of_two = [
            (&EDGE_LOSSY, VM),
            (&LINK_ERRORS, HYPERVISOR),
            (&LINK_ERRORS, other),
        ];
        assert_eq!(joined(&of_two).len(), 3);
        let storm = [(&PFC_STORM, "nic/vm-1:mlx5_0"), (&LINK_ERRORS, HYPERVISOR)];
        assert_eq!(joined(&storm).len(), 2);
    }
}

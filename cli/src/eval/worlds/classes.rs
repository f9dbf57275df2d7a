//! Maps the kind of a fault in a `truth.json` to the fault classes that describe it.

use railscope_collector::classes::CLASSES;

/// Which fault classes describe a kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// The class of this name.
    Name(&'static str),
    /// Each class whose name starts with this text.
    Prefix(&'static str),
    /// A class that does not exist yet: its name will contain these words between hyphens.
    Planned(&'static str),
}

use Pattern::{Name, Planned, Prefix};

impl Pattern {
    fn matches(self, class: &str) -> bool {
        match self {
            Name(name) => class == name,
            Prefix(prefix) => class.starts_with(prefix),
            Planned(words) => format!("-{class}-").contains(&format!("-{words}-")),
        }
    }
}

/// The kinds of fault in packs, each with the classes that are right for it. A kind without a class is an event that no
/// incident should report.
const KINDS: &[(&[&str], &[Pattern])] = &[
    // GPUs
    (
        &["gpu_thermal", "thermal"],
        &[Name("gpu-slow"), Name("host-cooling"), Name("gpu-thermal")],
    ),
    (
        &["gpu_silent_slow", "slow_sm", "slow_hbm"],
        &[Name("gpu-slow")],
    ),
    (
        &["power_cap"],
        &[Name("gpu-slow"), Name("host-power"), Name("power-limit")],
    ),
    (
        &["ecc_rowremap", "ecc_dbe", "row_remap"],
        &[Name("gpu-memory")],
    ),
    (&["xid79"], &[Name("gpu-lost")]),
    (&["nvlink_down", "nvlink_errors"], &[Prefix("nvlink-")]),
    (&["pcie_gpu_width"], &[Prefix("pcie-")]),
    // NICs and cables of hosts
    (
        &["pcie_degraded_nic", "nic_pcie", "slow_receiver_nic"],
        &[Prefix("pcie-"), Name("slow-receiver")],
    ),
    (&["nic_speed_down", "nic_speed"], &[Name("port-degraded")]),
    (&["cable_ber"], &[Name("link-errors"), Name("edge-lossy")]),
    (
        &["ber", "uplink_ber", "lossy_host_link"],
        &[
            Name("link-errors"),
            Name("edge-lossy"),
            Name("uplink-lossy"),
        ],
    ),
    (
        &["link_flap"],
        &[
            Name("port-flapping"),
            Name("port-down"),
            Name("link-errors"),
        ],
    ),
    (&["flap"], &[Name("port-flapping"), Name("port-down")]),
    (&["port_down"], &[Name("port-down")]),
    (
        &["miswired"],
        &[Prefix("miscabled-"), Planned("device-order")],
    ),
    (
        &[
            "pfc_storm",
            "pfc_storm_host",
            "pfc_storm_host_intermittent",
            "storm",
        ],
        &[Name("pfc-storm")],
    ),
    // Switches and cables between them
    (
        &["switch_uplink_down"],
        &[Name("uplink-down"), Name("switch-down"), Name("port-down")],
    ),
    (
        &["spine_gray_loss", "gray_spine"],
        &[Name("uplink-lossy"), Name("edge-lossy")],
    ),
    (
        &["pfc_storm_switch_port", "stuck_xoff"],
        &[Name("pfc-storm"), Planned("stuck"), Planned("xoff")],
    ),
    (
        &[
            "slow_host_link_switch_to_host",
            "degraded_fabric_link",
            "uplink_shaped",
        ],
        &[
            Name("port-degraded"),
            Name("slow-receiver"),
            Name("path-slow"),
            Planned("link-slow"),
            Planned("uplink-slow"),
            Planned("drain"),
        ],
    ),
    // Hosts
    (
        &["hypervisor_steal", "steal"],
        &[Name("host-steal"), Name("host-stalls")],
    ),
    (&["cpu_slow"], &[Prefix("host-"), Name("noisy-neighbour")]),
    (&["storage_slow"], &[Prefix("storage-")]),
    (
        &["mtu"],
        &[
            Prefix("mtu-"),
            Name("slow-receiver"),
            Prefix("pcie-"),
            Planned("config"),
        ],
    ),
    // Events that are no fault
    (&["checkpoint"], &[Name("storage-stall")]),
    (
        &["software_imbalance"],
        &[Name("noisy-neighbour"), Planned("imbalance")],
    ),
    (&["imbalance"], &[Planned("imbalance")]),
    (&["loader"], &[Prefix("storage-"), Planned("imbalance")]),
    (
        &["incast", "incast_no_hardware_fault"],
        &[
            Name("noisy-neighbour"),
            Planned("incast"),
            Planned("congestion"),
        ],
    ),
    (&["setpoint"], &[Name("host-cooling")]),
    (&["price_cap"], &[Name("host-power"), Name("power-limit")]),
    (&["drain"], &[Name("node-silent")]),
    (&["app_xid"], &[Planned("xid"), Planned("application")]),
    (&["restart"], &[]),
];

fn patterns(kind: &str) -> Option<&'static [Pattern]> {
    let row = KINDS.iter().find(|(kinds, _)| kinds.contains(&kind));
    row.map(|(_, patterns)| *patterns)
}

/// Whether a class describes a kind of fault. A kind that is not in the table is read as the name of a class.
pub(super) fn class_fits(kind: &str, class: &str) -> bool {
    match patterns(kind) {
        Some(patterns) => patterns.iter().any(|pattern| pattern.matches(class)),
        None => class == kind.replace('_', "-"),
    }
}

/// Whether a kind is in the table or is the name of a class.
pub(super) fn is_known(kind: &str) -> bool {
    let name = kind.replace('_', "-");
    patterns(kind).is_some() || CLASSES.iter().any(|class| class.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_match_existing_classes_and_planned_words_do_not() {
        for (kinds, patterns) in KINDS {
            for pattern in *patterns {
                let exists = CLASSES.iter().any(|class| pattern.matches(class.name));
                let is_planned = matches!(pattern, Planned(_));
                assert_ne!(exists, is_planned, "{kinds:?}: {pattern:?}");
            }
        }
    }

    #[test]
    fn each_kind_is_in_the_table_once() {
        let mut kinds: Vec<_> = KINDS.iter().flat_map(|(kinds, _)| *kinds).collect();
        let all = kinds.len();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), all);
    }

    #[test]
    fn planned_words_match_whole_words_only() {
        assert!(Planned("imbalance").matches("software-imbalance"));
        assert!(Planned("device-order").matches("device-order"));
        assert!(!Planned("config").matches("reconfigured"));
        assert!(!Planned("link-slow").matches("uplink-slow"));
    }

    #[test]
    fn a_kind_outside_the_table_is_the_name_of_a_class() {
        assert!(class_fits("gpu_lost", "gpu-lost"));
        assert!(class_fits("pfc-storm", "pfc-storm"));
        assert!(is_known("gpu_lost"));
        assert!(!is_known("solar_flare"));
        assert!(!class_fits("solar_flare", "gpu-lost"));
    }
}

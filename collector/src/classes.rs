//! Classes of fault: the names in labels, API and runbooks, and what to do about each.

pub mod belief;
pub(crate) mod signs;

/// The effect of a fault on jobs that use the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// To be repaired in working hours.
    Warning,
    /// Stops or badly slows a job now.
    Critical,
}

impl Severity {
    /// The severity as a label value, in Alertmanager's usual words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// A class of fault: its name in labels, API and runbooks, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Class {
    /// `port-down`, `pcie-degraded` …
    pub name: &'static str,
    /// How bad it is usually.
    pub severity: Severity,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// What to do, in one sentence.
    pub action: &'static str,
}

/// Every class that an incident can have, causes before their symptoms: of two classes of one
/// severity the earlier one names the incident. Moving a cable also takes its link down once.
pub const CLASSES: &[&Class] = &[
    &FABRIC_STORM,
    &SWITCH_DOWN,
    &HOST_DOWN,
    &NODE_SILENT,
    &GPU_LOST,
    &GPU_ERROR,
    &HOST_POWER,
    &HOST_COOLING,
    &PCIE_DEGRADED,
    &PCIE_ERRORS,
    &PCIE_REDIRECTED,
    &NUMA_AFFINITY,
    &NVLINK_DOWN,
    &GPU_SLOW,
    &PORT_FLAPPING,
    &UPLINK_DOWN,
    &PORT_DOWN,
    &PORT_DEGRADED,
    &MTU_MISMATCH,
    &PFC_MISMATCH,
    &PFC_STORM,
    &HOST_STEAL,
    &HOST_STALLS,
    &RECEIVER_NOT_READY,
    &SLOW_RECEIVER,
    &HOST_HARDWARE,
    &STORAGE_STALL,
    &SWITCH_QOS,
    &PFC_DEADLOCK,
    &UPLINK_LOSSY,
    &EDGE_LOSSY,
    &ECMP_POLARIZED,
    &GPU_MEMORY,
    &NVLINK_ERRORS,
    &MISCABLED_RAIL,
    &LINK_ERRORS,
    &UPLINK_JITTER,
    &PATH_SLOW,
    &NOISY_NEIGHBOR,
    &POWER_LIMIT,
    &GPU_THERMAL,
];

impl Class {
    /// Place in [`CLASSES`]: the lower, the nearer to the cause.
    pub fn order(&self) -> usize {
        CLASSES
            .iter()
            .position(|class| *class == self)
            .unwrap_or(CLASSES.len())
    }
}

/// A link that should be there is not.
pub static PORT_DOWN: Class = Class {
    name: "port-down",
    severity: Severity::Critical,
    title: "Link is down",
    action: "Reseat the cable at both ends; if the link stays down, swap the transceiver, then the cable.",
};

/// A link runs slower or narrower than its peers.
pub static PORT_DEGRADED: Class = Class {
    name: "port-degraded",
    severity: Severity::Critical,
    title: "Link runs below its rate",
    action: "Reseat the cable to retrain the link; if it stays slow, swap the cable or transceiver.",
};

/// A PCIe link runs slower or narrower than it could and its peers do.
pub static PCIE_DEGRADED: Class = Class {
    name: "pcie-degraded",
    severity: Severity::Critical,
    title: "PCIe link runs below its rate",
    action: "Drain the node and power-cycle it to retrain the link; if it stays degraded, reseat the card or riser.",
};

/// A link corrupts what it carries.
pub static LINK_ERRORS: Class = Class {
    name: "link-errors",
    severity: Severity::Warning,
    title: "Link reports errors",
    action: "Clean and reseat the cable; if errors continue, swap the transceiver, then the cable.",
};

/// A host port is connected to a leaf of another rail.
pub static MISCABLED_RAIL: Class = Class {
    name: "miscabled-rail",
    severity: Severity::Warning,
    title: "Cable is connected to the wrong rail",
    action: "Move the cable to the leaf of its own rail; if two cables are swapped, exchange them.",
};

/// A GPU is slowed by its own clock.
pub static GPU_SLOW: Class = Class {
    name: "gpu-slow",
    severity: Severity::Critical,
    title: "GPU runs slower than its peers",
    action: "Check the node's cooling and power; if the other GPUs are healthy, drain the node and have the GPU replaced.",
};

/// Links of many switches or hosts went down simultaneously.
pub static FABRIC_STORM: Class = Class {
    name: "fabric-storm",
    severity: Severity::Critical,
    title: "Many links went down at once",
    action: "Find what they share: power, cooling, the fabric manager, or a change that was rolled out at that moment.",
};

/// A switch has lost a good share of its cables, or all.
pub static SWITCH_DOWN: Class = Class {
    name: "switch-down",
    severity: Severity::Critical,
    title: "Switch has lost its links",
    action: "Check the switch's power, console and fabric manager; its cables are not the cause.",
};

/// A host has lost every fabric link.
pub static HOST_DOWN: Class = Class {
    name: "host-down",
    severity: Severity::Critical,
    title: "Host has lost all its fabric links",
    action: "Check the host's power and console; its cables are not the cause.",
};

/// No exporter on a host responds any more.
pub static NODE_SILENT: Class = Class {
    name: "node-silent",
    severity: Severity::Warning,
    title: "Node stopped responding while its GPUs were busy",
    action: "Check the host's console and power by its BMC; if it hangs, save the console, power-cycle it and restart its jobs elsewhere.",
};

/// A GPU no longer responds to its driver.
pub static GPU_LOST: Class = Class {
    name: "gpu-lost",
    severity: Severity::Critical,
    title: "GPU no longer responds",
    action: "Drain the node and power-cycle it; if the GPU is still missing or fails again, have it replaced.",
};

/// The driver reported an error after which the GPU needs a reset.
pub static GPU_ERROR: Class = Class {
    name: "gpu-error",
    severity: Severity::Critical,
    title: "GPU reports an error that requires a reset",
    action: "Drain the node and reset the GPU; if the error returns, power-cycle the node, run the field diagnostic and have the GPU replaced.",
};

/// A GPU's memory has a row that waits to be replaced, or cannot be.
pub static GPU_MEMORY: Class = Class {
    name: "gpu-memory",
    severity: Severity::Warning,
    title: "GPU memory needs repair",
    action: "Reset the GPU when its job ends to remap the row; if the remap failed or SRAM errors exceed the threshold, run the field diagnostic and have the GPU replaced.",
};

/// A GPU has lost some of its NVLinks.
pub static NVLINK_DOWN: Class = Class {
    name: "nvlink-down",
    severity: Severity::Critical,
    title: "NVLinks are down",
    action: "Drain the node and reset its GPUs and NVSwitches; if the links stay down, have the GPU or the baseboard replaced.",
};

/// A GPU's NVLinks corrupt data and send it again, or train again.
pub static NVLINK_ERRORS: Class = Class {
    name: "nvlink-errors",
    severity: Severity::Warning,
    title: "NVLinks report errors",
    action: "Drain the node when its job ends and reset its GPUs and NVSwitches; if errors return, run the field diagnostic and have the GPU or the baseboard replaced.",
};

/// The power supply of a node throttles its GPUs (power brake).
pub static HOST_POWER: Class = Class {
    name: "host-power",
    severity: Severity::Critical,
    title: "Power supply throttles the GPUs",
    action: "Check the node's power supplies and its feed; a supply has failed or the rack exceeds its power budget.",
};

/// Most GPUs of a node are throttled by heat.
pub static HOST_COOLING: Class = Class {
    name: "host-cooling",
    severity: Severity::Critical,
    title: "Node cooling is insufficient",
    action: "Check the node's fans, filters and inlet air, or its coolant; its GPUs are not the cause.",
};

/// A GPU is much hotter than others with the same load, but not slower yet.
pub static GPU_THERMAL: Class = Class {
    name: "gpu-thermal",
    severity: Severity::Warning,
    title: "GPU is hotter than its peers",
    action: "When its job ends, check the GPU's heat sink or cold plate, its thermal paste, and the fan or hose next to it; at its limit it will throttle.",
};

/// Most GPUs of a node have a lower power limit than those of other nodes.
pub static POWER_LIMIT: Class = Class {
    name: "power-limit",
    severity: Severity::Warning,
    title: "Power limit below that of other nodes",
    action: "Set the power limit of the node's GPUs to that of its peers, or keep jobs from using both kinds of node.",
};

/// The link of a port flaps.
pub static PORT_FLAPPING: Class = Class {
    name: "port-flapping",
    severity: Severity::Critical,
    title: "Link is flapping",
    action: "Reseat the cable at both ends; if it continues, swap the transceiver, then the cable, then the switch port.",
};

/// A cable between two switches is gone.
pub static UPLINK_DOWN: Class = Class {
    name: "uplink-down",
    severity: Severity::Critical,
    title: "Cable between switches is down",
    action: "Reseat the cable at both switches; if the link stays down, swap the transceivers, then the cable.",
};

/// The processors of a node stall briefly.
pub static HOST_STALLS: Class = Class {
    name: "host-stalls",
    severity: Severity::Warning,
    title: "CPU stalls",
    action: "Check the node for interrupt storms, firmware (SMI), deep idle states and memory compaction; compare its settings with a healthy node.",
};

/// The hypervisor takes CPU time from a node (steal).
pub static HOST_STEAL: Class = Class {
    name: "host-steal",
    severity: Severity::Warning,
    title: "Hypervisor takes CPU time from the node",
    action: "Pin the virtual CPUs and give the virtual machine a dedicated host; until then keep it out of synchronous jobs.",
};

/// Fans, power supplies, memory or processors of a node report a fault.
pub static HOST_HARDWARE: Class = Class {
    name: "host-hardware",
    severity: Severity::Warning,
    title: "Node reports a hardware fault",
    action: "Check the BMC's event log and replace the part that it names: power supply, memory module, drive; for a hot CPU repair the heat sink or the air flow.",
};

/// A node, or one of its NICs, lacks receive buffers.
pub static RECEIVER_NOT_READY: Class = Class {
    name: "receiver-not-ready",
    severity: Severity::Warning,
    title: "Receiver has no buffers ready",
    action: "Check the processes of the job on this node: those that post receives lack CPU time or are stuck. If one NIC is named, check its PCIe link too.",
};

/// A PCIe link corrupts packets and sends them again.
pub static PCIE_ERRORS: Class = Class {
    name: "pcie-errors",
    severity: Severity::Warning,
    title: "PCIe link reports errors",
    action: "Drain the node and reseat the card or its riser; if errors continue, have the card replaced.",
};

/// Many nodes wait for their storage at once, or one while the others do not.
pub static STORAGE_STALL: Class = Class {
    name: "storage-stall",
    severity: Severity::Warning,
    title: "Nodes wait for storage",
    action: "Check the storage behind checkpoints and data, the network to it, and its mounts; if a single node waits, also its disks.",
};

/// Packets between a NIC and its GPUs go up to the root complex.
pub static PCIE_REDIRECTED: Class = Class {
    name: "pcie-redirected",
    severity: Severity::Critical,
    title: "PCIe packets for GPUs take the root complex",
    action: "Disable access control (ACS) on the PCIe switches above the NIC, and disable IOMMU translation or enable ATS; compare with a healthy node.",
};

/// A NIC works for a GPU of the other socket, and is too slow for it.
pub static NUMA_AFFINITY: Class = Class {
    name: "numa-affinity",
    severity: Severity::Critical,
    title: "NIC serves a GPU of the other socket",
    action: "Give the GPU a NIC on its own socket, as on other nodes: compare slots, check for a missing NIC, and in a virtual machine compare its NUMA nodes.",
};

/// A node drains what its NICs receive too slowly.
pub static SLOW_RECEIVER: Class = Class {
    name: "slow-receiver",
    severity: Severity::Critical,
    title: "Node drains received traffic too slowly",
    action: "Check the load on the node's memory and sockets, its IOMMU and memory settings, and which GPU and socket the processes of the job use with the NIC; compare with a healthy node.",
};

/// A port, usually of a NIC, pauses its neighbor permanently.
pub static PFC_STORM: Class = Class {
    name: "pfc-storm",
    severity: Severity::Critical,
    title: "Port pauses its neighbor permanently",
    action: "Immediately shut down the port that sends pause, so that others can send; then drain the node and reset the NIC, or restart the switch.",
};

/// An interface's MTU is not that of its peers.
pub static MTU_MISMATCH: Class = Class {
    name: "mtu-mismatch",
    severity: Severity::Critical,
    title: "MTU differs from other nodes",
    action: "Set the MTU of the interface to that of its peers, also in the node's configuration.",
};

/// An interface's flow control is not that of its peers.
pub static PFC_MISMATCH: Class = Class {
    name: "pfc-mismatch",
    severity: Severity::Warning,
    title: "Priority flow control differs from other nodes",
    action: "Set PFC of the interface to that of its peers, also in the node's configuration.",
};

/// A switch drops packets that should be lossless.
pub static SWITCH_QOS: Class = Class {
    name: "switch-qos",
    severity: Severity::Critical,
    title: "Switch drops packets that should be lossless",
    action: "Compare the buffers, PFC and priority mapping of the switch with a healthy switch.",
};

/// Switches wait for each other: a cyclic buffer dependency.
pub static PFC_DEADLOCK: Class = Class {
    name: "pfc-deadlock",
    severity: Severity::Critical,
    title: "Switches pause each other in a cycle",
    action: "Take one cable of the cycle down for a moment, so that its packets are dropped; then find the route that goes down and up again, and enable the switches' PFC watchdog.",
};

/// Packets vanish between two switches, and no counter reports where.
pub static UPLINK_LOSSY: Class = Class {
    name: "uplink-lossy",
    severity: Severity::Critical,
    title: "Silent packet loss between switches",
    action: "Take the cable out of service, so that its traffic uses others; then clean and reseat it, and swap the transceivers, then the cable, then the switch port.",
};

/// Probes to and from a NIC vanish, or packets of jobs do, and no counter reports where.
pub static EDGE_LOSSY: Class = Class {
    name: "edge-lossy",
    severity: Severity::Critical,
    title: "Silent packet loss at a NIC",
    action: "Check the counters of the NIC, of its PCIe link and of the switch port; then clean and reseat the cable, swap the transceivers, then the cable, then the NIC.",
};

/// Probes over a cable between switches are slow.
pub static UPLINK_JITTER: Class = Class {
    name: "uplink-jitter",
    severity: Severity::Warning,
    title: "Cable between switches delays some packets",
    action: "Check the link for repeated retraining and both ports for standing queues; then clean and reseat the cable, and swap the transceivers.",
};

/// Packets over a switch or a cable wait: probes are slow, a queue stands, or packets are marked for congestion.
pub static PATH_SLOW: Class = Class {
    name: "path-slow",
    severity: Severity::Warning,
    title: "Packets are delayed on the path",
    action: "Check the link for repeated retraining and the port for standing queues; then clean and reseat the cable, and swap the transceivers.",
};

/// A switch uses only some of its uplinks.
pub static ECMP_POLARIZED: Class = Class {
    name: "ecmp-polarized",
    severity: Severity::Warning,
    title: "Switch uses only some of its uplinks",
    action: "Give the switch a different hash seed or more hash fields than the switch before it; then restart the job.",
};

/// Traffic from outside the job uses its NIC.
pub static NOISY_NEIGHBOR: Class = Class {
    name: "noisy-neighbour",
    severity: Severity::Warning,
    title: "Other traffic uses the NIC",
    action: "Find what else uses the NIC (virtual functions, storage), and move it or limit its rate.",
};

//! Classes of fault: the names in labels, API and runbooks, and what to do about each.

/// How bad a fault is for those who run jobs on the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// To be mended in working hours.
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
    /// How bad it is as a rule.
    pub severity: Severity,
    /// What is wrong, in a few words.
    pub title: &'static str,
    /// What to do, in one sentence.
    pub action: &'static str,
}

/// Every class that an incident can have, causes before the symptoms that they bring: of two classes of one
/// severity the earlier one names the incident. Moving a cable also takes its link down once.
pub const CLASSES: &[&Class] = &[
    &SWITCH_DOWN,
    &HOST_DOWN,
    &PCIE_DEGRADED,
    &GPU_SLOW,
    &PORT_DOWN,
    &PORT_DEGRADED,
    &MISCABLED_RAIL,
    &LINK_ERRORS,
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
    action: "Reseat the cable so that the link trains again; if it stays slow, swap the cable or transceiver.",
};

/// A PCIe link runs slower or narrower than it could and its peers do.
pub static PCIE_DEGRADED: Class = Class {
    name: "pcie-degraded",
    severity: Severity::Critical,
    title: "PCIe link runs below its rate",
    action: "Drain the node and power-cycle it so that the link trains again; if it stays degraded, reseat the card or riser.",
};

/// A link corrupts what it carries.
pub static LINK_ERRORS: Class = Class {
    name: "link-errors",
    severity: Severity::Warning,
    title: "Link makes errors",
    action: "Clean and reseat the cable; if errors go on, swap the transceiver, then the cable.",
};

/// A host port hangs on a leaf of another rail.
pub static MISCABLED_RAIL: Class = Class {
    name: "miscabled-rail",
    severity: Severity::Warning,
    title: "Cable goes to the wrong rail",
    action: "Move the cable to the leaf of its own rail; if two are swapped, exchange them.",
};

/// A GPU is held back by its own clock.
pub static GPU_SLOW: Class = Class {
    name: "gpu-slow",
    severity: Severity::Critical,
    title: "GPU runs slower than its peers",
    action: "Look at cooling and power of the node; if its neighbours are well, drain the node and have the GPU replaced.",
};

/// A switch has lost a good share of its cables, or all.
pub static SWITCH_DOWN: Class = Class {
    name: "switch-down",
    severity: Severity::Critical,
    title: "Switch has lost its links",
    action: "Look at the switch's power, console and fabric manager; its cables are well.",
};

/// A host has lost every fabric link.
pub static HOST_DOWN: Class = Class {
    name: "host-down",
    severity: Severity::Critical,
    title: "Host has lost all its fabric links",
    action: "Look at the host's power and console; its cables are well.",
};

//! The classification of a fabric: what it is, on what evidence, and what does not fit.

use railscope_model::identity::{NodeName, PortName, SwitchName};
use railscope_model::units::LinkSpeed;

use super::rails::Wiring;
use super::structure::Structure;
use crate::fabric::graph::build::SubnetMerge;

/// What a fabric is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A tree whose leaves serve one rail each, joined above.
    RailOptimized,
    /// Leaves serve one rail each, and no switch joins two rails.
    RailOnly,
    /// A tree whose leaves carry hosts in any order.
    FatTree,
    /// A tree where all NICs of a host are connected to one switch.
    HostGrouped,
    /// One switch with hosts.
    SingleSwitch,
    /// Groups of switches with hosts, joined all to all within a group and each group to each other.
    Dragonfly,
    /// Groups of leaves and spines, each group joined to each other from spine to spine.
    DragonflyPlus,
    /// Switches with hosts cabled to each other without groups: torus, mesh and the like.
    Direct,
    /// Switches joined in no pattern that is known.
    Irregular,
    /// No classification.
    Unknown {
        /// Why there is none.
        why: String,
    },
}

/// How far a classification can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The sweep cannot be complete, or there is no classification.
    Low,
    /// The sweep looks complete; some of it does not fit.
    Medium,
    /// The sweep looks complete and all of it fits.
    High,
}

/// Bandwidth towards hosts over bandwidth upwards, of the leaves that carry compute hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Oversubscription {
    /// Of the leaf with the lowest ratio.
    pub min: f64,
    /// Of the leaf in the middle.
    pub median: f64,
    /// Of the leaf with the highest ratio.
    pub max: f64,
    /// Leaves in it.
    pub leaves: usize,
    /// Leaves not in it: a cable without a known speed, or no cable upwards.
    pub unknown: usize,
}

/// A host with few NICs by design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceHost {
    /// Its name.
    pub host: NodeName,
    /// NICs with a cable.
    pub nics: usize,
}

/// A cable from a switch to itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfLoop {
    /// The switch.
    pub switch: SwitchName,
    /// Its two ports, the lower one first.
    pub ports: (PortName, PortName),
    /// Width and speed, where known.
    pub speed: Option<LinkSpeed>,
}

/// Cables by speed, most first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Speeds {
    /// Cables to NICs.
    pub hosts: Vec<(LinkSpeed, usize)>,
    /// Cables between switches, those from a switch to itself included.
    pub switches: Vec<(LinkSpeed, usize)>,
    /// Cables without a known speed.
    pub unknown: usize,
}

impl Speeds {
    /// Whether cables of one role run at several speeds. Faster trunks than host cables are no mixture.
    pub fn are_mixed(&self) -> bool {
        self.hosts.len() > 1 || self.switches.len() > 1
    }
}

/// The classification with everything that it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What the fabric is.
    pub kind: Kind,
    /// Tiers of switches; 0 where they cannot be determined.
    pub levels: usize,
    /// How far this can be trusted.
    pub confidence: Confidence,
    /// What it rests on, in sentences with numbers.
    pub evidence: Vec<String>,
    /// Why it is no fabric of another kind, in sentences with numbers.
    pub ruled_out: Vec<String>,
    /// What contradicts it or is missing, in sentences.
    pub doubts: Vec<String>,
    /// Named hosts with a NIC that counts.
    pub hosts: usize,
    /// Hosts among them that are alike in classes.
    pub compute_hosts: usize,
    /// GPUs, where any exporter reported about one.
    pub gpus: Option<usize>,
    /// NICs, unnamed ones included.
    pub nics: usize,
    /// NICs whose host is not known.
    pub unnamed_nics: usize,
    /// Hosts with few NICs by design, by name.
    pub service_hosts: Vec<ServiceHost>,
    /// Hosts with many NICs of names that no other host has.
    pub unlike_hosts: Vec<NodeName>,
    /// Switches of each tier, leaves first.
    pub switches_by_tier: Vec<usize>,
    /// Switches that no path joins to a compute host.
    pub unplaced_switches: usize,
    /// Switches that differ from their tier, one sentence each.
    pub odd_switches: Vec<String>,
    /// Switches of the first tier that carry a host.
    pub host_leaves: usize,
    /// How hosts are wired to leaves: rails, hosts without one, NICs connected elsewhere.
    pub wiring: Wiring,
    /// What it is made of: networks and planes, units, groups, capacity, single points of failure.
    pub structure: Structure,
    /// Bandwidth down over up at the leaves; none where nothing is above them.
    pub oversubscription: Option<Oversubscription>,
    /// Cables from a switch to itself.
    pub self_loops: Vec<SelfLoop>,
    /// Cables by speed.
    pub speeds: Speeds,
    /// What the sweep brought and what of it is not in the graph.
    pub sweep: SubnetMerge,
}

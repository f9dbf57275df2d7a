//! What cluster to simulate: a short description that a person writes.

use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

/// A cluster of equal nodes on one fabric. Serde-able, so that it can stand in a TOML file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// Nodes in all.
    pub nodes: u16,
    /// GPUs in each node, 1 to 8.
    #[serde(default = "eight")]
    pub gpus_per_node: u8,
    /// NICs in each node, 1 to 8. NIC `i` is on rail `i`.
    #[serde(default = "eight")]
    pub nics_per_node: u8,
    /// Speed of every cable.
    #[serde(default)]
    pub speed: Speed,
    /// How the cables run.
    pub wiring: WiringSpec,
}

const fn eight() -> u8 {
    8
}

/// InfiniBand generation of the fabric: four lanes of it on every cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    /// 200 Gb/s.
    Hdr,
    /// 400 Gb/s.
    #[default]
    Ndr,
}

impl Speed {
    /// Width and speed of a cable.
    pub const fn link(self) -> LinkSpeed {
        let speed = match self {
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
        };
        LinkSpeed { lanes: 4, speed }
    }
}

/// How the cables of a cluster run. One variant for each kind of fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WiringSpec {
    /// Two tiers: rail `r` of all nodes of a scalable unit on one leaf, all leaves on all spines.
    RailOptimised {
        /// Nodes behind the same leaves.
        nodes_per_su: u16,
        /// Ports of a switch, leaf and spine alike. Half of a leaf's ports are for nodes.
        radix: u16,
        /// Spine switches. Each leaf spreads its uplinks over them evenly.
        spines: u16,
    },
}

/// A cluster that cannot be built, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Field of the specification.
    pub field: &'static str,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl SpecError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self { field, problem }
    }
}

/// NDR ports of a Quantum-2 switch (NVIDIA QM9700 data sheet).
const QUANTUM_2_PORTS: u16 = 64;
/// Nodes of one scalable unit of an H100 SuperPOD (NVIDIA DGX SuperPOD reference architecture, H100).
const NODES_PER_SU: u16 = 32;
/// What two tiers of 64-port switches carry: one cable from every leaf to every spine.
const LARGEST_TWO_TIER: u16 = NODES_PER_SU * (QUANTUM_2_PORTS / 8);

impl ClusterSpec {
    /// The cluster of the demo: nodes with 8 GPUs and 8 NDR NICs on a rail-optimised fabric of 64-port
    /// switches, with as many spines as carry all uplinks. 32 nodes are one scalable unit.
    ///
    /// # Errors
    /// No nodes, or more than two tiers carry (256 nodes, 2,048 GPUs).
    pub fn demo(nodes: u16) -> Result<Self, SpecError> {
        if nodes == 0 || nodes > LARGEST_TWO_TIER {
            return Err(SpecError::new(
                "nodes",
                format!(
                    "found {nodes}, expected 1 to {LARGEST_TWO_TIER} (two tiers of {QUANTUM_2_PORTS}-port switches carry no more)"
                ),
            ));
        }
        // A leaf for each rail of a unit sends half of its ports up; a spine takes two leaves' worth.
        // A power of two, so that the uplinks of a leaf divide over them.
        let leaves = nodes.div_ceil(NODES_PER_SU) * u16::from(eight());
        let spines = leaves.div_ceil(2).next_power_of_two();
        Ok(Self {
            nodes,
            gpus_per_node: eight(),
            nics_per_node: eight(),
            speed: Speed::Ndr,
            wiring: WiringSpec::RailOptimised {
                nodes_per_su: NODES_PER_SU,
                radix: QUANTUM_2_PORTS,
                spines,
            },
        })
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if self.nodes == 0 {
            return Err(SpecError::new("nodes", "found 0, expected at least 1"));
        }
        for (field, found) in [
            ("gpus_per_node", self.gpus_per_node),
            ("nics_per_node", self.nics_per_node),
        ] {
            if !(1..=8).contains(&found) {
                return Err(SpecError::new(
                    field,
                    format!("found {found}, expected 1 to 8 as on an HGX board"),
                ));
            }
        }
        let WiringSpec::RailOptimised {
            nodes_per_su,
            radix,
            spines,
        } = self.wiring;
        let half = radix / 2;
        if nodes_per_su == 0 || nodes_per_su > half {
            return Err(SpecError::new(
                "wiring.nodes_per_su",
                format!(
                    "found {nodes_per_su}, expected 1 to {half} (half of the leaf's {radix} ports)"
                ),
            ));
        }
        if spines == 0 || !half.is_multiple_of(spines) {
            return Err(SpecError::new(
                "wiring.spines",
                format!("found {spines}, expected a divisor of a leaf's {half} uplinks"),
            ));
        }
        let leaves = u32::from(self.nodes.div_ceil(nodes_per_su)) * u32::from(self.nics_per_node);
        let needed = leaves * u32::from(half / spines);
        if needed > u32::from(radix) {
            return Err(SpecError::new(
                "wiring.spines",
                format!(
                    "found {spines}, too few: {leaves} leaves need {needed} ports of a {radix}-port spine"
                ),
            ));
        }
        Ok(())
    }
}

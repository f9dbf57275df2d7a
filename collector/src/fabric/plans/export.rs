//! A fabric in the formats of other tools: graphs, schedulers' files, node labels, hints for NCCL.

mod graph;
mod nccl;
mod scheduler;

use std::str::FromStr;

use railscope_model::fabric::Fabric;

use super::Placement;
use crate::fabric::Verdict;

pub use graph::{dot, graphml, json};
pub use nccl::nccl_hints;
pub use scheduler::{node_labels, slurm_block, slurm_tree};

/// Prefix of a line that names data missing from an export. Formats with such lines treat it as a comment.
pub const MISSING: &str = "# missing: ";

/// The missing data that an export names.
pub fn missing(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix(MISSING))
}

/// What a fabric can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Every part and link.
    Json,
    /// GraphML.
    Graphml,
    /// DOT, of Graphviz.
    Dot,
    /// Slurm's `topology.conf` for topology/tree.
    SlurmTree,
    /// Slurm's `topology.conf` for topology/block.
    SlurmBlock,
    /// Labels of Kubernetes nodes.
    NodeLabels,
    /// Environment of NCCL.
    Nccl,
}

impl Target {
    /// Every target, with the name that options and requests use and what it is for.
    pub const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Json, "json", "Every part and link"),
        (
            Self::Graphml,
            "graphml",
            "GraphML, for yEd, Gephi, NetworkX",
        ),
        (Self::Dot, "dot", "DOT: `dot -Tsvg` draws it"),
        (
            Self::SlurmTree,
            "slurm-tree",
            "Slurm's topology.conf for topology/tree",
        ),
        (
            Self::SlurmBlock,
            "slurm-block",
            "Slurm's topology.conf for topology/block",
        ),
        (
            Self::NodeLabels,
            "node-labels",
            "Labels of Kubernetes nodes, as topograph sets them",
        ),
        (
            Self::Nccl,
            "nccl",
            "Environment of NCCL: each node's NICs in the order of rails",
        ),
    ];

    /// The name that options and requests use.
    pub fn name(self) -> &'static str {
        let row = Self::ALL.iter().find(|(target, ..)| *target == self);
        row.map_or("", |(_, name, _)| name)
    }

    /// The text for other tools. Schedulers' formats need the placement only, all others the fabric only: neither is
    /// computed in vain.
    ///
    /// # Errors
    /// What `fabric` or `placement` reports.
    pub fn write<'a, E>(
        self,
        fabric: impl FnOnce() -> Result<(&'a Fabric, &'a Verdict), E>,
        placement: impl FnOnce() -> Result<Placement, E>,
    ) -> Result<String, E> {
        Ok(match self {
            Self::Json => format!("{:#}\n", json(fabric()?.0)),
            Self::Graphml => graphml(fabric()?.0),
            Self::Dot => dot(fabric()?.0),
            Self::SlurmTree => slurm_tree(&placement()?),
            Self::SlurmBlock => slurm_block(&placement()?),
            Self::NodeLabels => node_labels(&placement()?),
            Self::Nccl => {
                let (fabric, verdict) = fabric()?;
                nccl_hints(fabric, verdict)
            }
        })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let row = Self::ALL.iter().find(|(_, name, _)| *name == text);
        row.map(|(target, ..)| *target).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name, _)| name);
            format!("expected one of {}", names.join(", "))
        })
    }
}

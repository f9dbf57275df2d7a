//! Which kinds of nodes a cluster has, and what follows from their shapes.

use serde::{Deserialize, Serialize};

use super::{ClusterSpec, SpecError, Speed, within};
use crate::spec::shape::NodeKind;

/// Nodes of one kind in a cluster of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What kind of nodes.
    pub node: NodeKind,
    /// How many.
    pub nodes: u16,
}

impl ClusterSpec {
    /// Kind of each node, and its place among the nodes of its group.
    pub fn kinds(&self) -> impl Iterator<Item = (NodeKind, u16)> {
        let rest = Group {
            node: self.node,
            nodes: u16::MAX,
        };
        let groups = self.groups.iter().copied().chain([rest]);
        groups
            .flat_map(|group| (0..group.nodes).map(move |place| (group.node, place)))
            .take(self.nodes.into())
    }

    /// Every kind of node that it has.
    pub(super) fn kinds_present(&self) -> Vec<NodeKind> {
        let kinds = NodeKind::ALL.iter().copied();
        let groups = || self.groups.iter().filter(|group| group.nodes > 0);
        let other = groups().map(|group| u32::from(group.nodes)).sum::<u32>();
        kinds
            .filter(|kind| {
                let rest = self.node == *kind && other < u32::from(self.nodes);
                rest || groups().any(|group| group.node == *kind)
            })
            .collect()
    }

    /// GPUs of a node.
    pub fn gpus_of(&self, kind: NodeKind) -> u8 {
        self.gpus_per_node.unwrap_or(kind.shape().gpus())
    }

    /// NICs of a node.
    pub fn nics_of(&self, kind: NodeKind) -> u8 {
        self.nics_per_node.unwrap_or(kind.shape().nics())
    }

    /// Speed of the cables between switches.
    pub fn uplink_speed(&self) -> Speed {
        let fastest = self
            .kinds_present()
            .into_iter()
            .map(|kind| kind.shape().speed());
        self.speed
            .or(fastest.max())
            .unwrap_or(self.node.shape().speed())
    }

    /// Speed of the cables of a node's NICs.
    pub fn nic_speed(&self, kind: NodeKind) -> Speed {
        self.uplink_speed().min(kind.shape().speed())
    }

    /// GPUs of all nodes.
    pub fn gpus(&self) -> u32 {
        self.kinds()
            .map(|(kind, _)| u32::from(self.gpus_of(kind)))
            .sum()
    }

    /// NICs of the node that has most.
    pub(super) fn most_nics(&self) -> u16 {
        let kinds = self.kinds_present().into_iter();
        let nics = kinds.map(|kind| self.nics_of(kind));
        nics.max().unwrap_or(1).into()
    }

    pub(super) fn check_nodes(&self) -> Result<(), SpecError> {
        let grouped = self
            .groups
            .iter()
            .map(|group| u32::from(group.nodes))
            .sum::<u32>();
        if grouped > self.nodes.into() {
            return Err(SpecError::new(
                "groups.nodes",
                format!(
                    "found {grouped} in all, expected at most nodes = {}",
                    self.nodes
                ),
            ));
        }
        for kind in self.kinds_present() {
            let (gpus, nics) = (kind.shape().gpus().into(), kind.shape().nics().into());
            within(
                "gpus_per_node",
                self.gpus_of(kind).into(),
                1..=gpus,
                kind.name(),
            )?;
            within(
                "nics_per_node",
                self.nics_of(kind).into(),
                1..=nics,
                kind.name(),
            )?;
        }
        Ok(())
    }
}

//! Everything that is known of the fabric, put together: what exporters, the subnet and LLDP say of it now.

use std::collections::BTreeSet;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::NodeName;
use rayon::prelude::*;

use super::history::History;
use super::inventory::NodeParts;
use super::neighbours::{DarkPorts, Switches, words_of_hosts, words_of_switches};
use crate::subnet::Subnet;
use crate::topology::{LldpMerge, SubnetMerge, Words, merge_lldp, merge_subnet};

/// Nodes that are read at once, before they go into the fabric one by one.
const NODES_AT_ONCE: usize = 512;

/// What the fabric is built from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// What exporters told.
    pub history: &'a History,
    /// The last sweep, and when it was.
    pub subnet: Option<(&'a Subnet, Timestamp)>,
    /// Switches that are read by themselves.
    pub switches: &'a Switches,
    /// Targets that are switches.
    pub switch_nodes: &'a BTreeSet<NodeName>,
    /// Ports without light.
    pub dark: &'a DarkPorts,
    /// When the fabric is built.
    pub now: Timestamp,
}

/// A fabric as its sources have it now, before anything of an older one is kept.
#[derive(Debug)]
pub struct Built {
    /// Parts and cables.
    pub fabric: Fabric,
    /// What the sweep brought.
    pub subnet: SubnetMerge,
    /// What LLDP brought.
    pub lldp: LldpMerge,
}

impl Sources<'_> {
    /// Builds it, on as many processors as there are.
    pub fn fabric(&self) -> Built {
        let switches = || {
            let Self {
                history,
                switches,
                switch_nodes,
                ..
            } = self;
            words_of_switches(history, switches, switch_nodes, self.now)
        };
        let (mut fabric, switches) = rayon::join(|| self.nodes(), switches);
        let subnet = self
            .subnet
            .map(|(subnet, seen)| merge_subnet(&mut fabric, subnet, seen));
        let mut words = Words {
            hosts: words_of_hosts(&fabric, self.history, self.switch_nodes),
            switches,
            ..Words::default()
        };
        self.dark.tell(&mut words, &fabric);
        let lldp = merge_lldp(&mut fabric, words);
        Built {
            fabric,
            subnet: subnet.unwrap_or_default(),
            lldp,
        }
    }

    /// Hosts with what is in them. Exporters first: they know a NIC's node and name for certain, the subnet only what was
    /// typed into it.
    fn nodes(&self) -> Fabric {
        let mut fabric = Fabric::default();
        let nodes: Vec<_> = self
            .history
            .nodes()
            .filter(|(node, history)| {
                history.heard().is_some() && !self.switch_nodes.contains(*node)
            })
            .collect();
        for nodes in nodes.chunks(NODES_AT_ONCE) {
            let read = nodes
                .par_iter()
                .map(|(node, history)| NodeParts::of(node, history));
            for parts in read.collect::<Vec<_>>() {
                parts.merge(&mut fabric, self.now);
            }
        }
        fabric
    }
}

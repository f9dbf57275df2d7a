//! Builds the current fabric from what exporters, the subnet and LLDP
//! report.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, SwitchName};
use rayon::prelude::*;

use crate::assemble::lldp::{DarkPorts, Switches, host_words, words_of_switches};
use crate::assemble::netdev::{MIN_SPEED, has_gpus, has_no_rdma_port, has_rdma_nic};
use crate::assemble::node_parts::{Known, NodeParts, nic_named};
use crate::fabric::subnet::Subnet;
use crate::fabric::{
    End, HostWords, LldpMerge, Neighbors, SubnetMerge, Words, merge_lldp, merge_subnet,
    neighbors_of_switches, unlisted_hosts,
};
use crate::store::History;

/// Hosts that are read at once, before they are added to the fabric: enough to keep all
/// processors busy, and few enough that what was read is still in their caches when it is used
/// again.
const HOSTS_AT_ONCE: usize = 128;

/// What the fabric is built from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// What exporters reported.
    pub history: &'a History,
    /// The last sweep, and when it was.
    pub subnet: Option<(&'a Subnet, Timestamp)>,
    /// Switches that are read by themselves.
    pub switches: &'a Switches,
    /// Targets that are switches.
    pub switch_nodes: &'a BTreeSet<NodeName>,
    /// Ports without an optical signal.
    pub dark: &'a DarkPorts,
    /// The fabric that was built before.
    pub older: &'a Fabric,
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

impl<'a> Sources<'a> {
    /// Builds it, on as many processors as there are.
    pub fn fabric(&self) -> Built {
        let switches =
            || words_of_switches(self.history, self.switches, self.switch_nodes, self.now);
        let bare = self.hosts_without_rdma();
        let ((mut fabric, mut hosts), switches) = if bare.is_empty() {
            rayon::join(|| self.hosts(&Neighbors::new()), switches)
        } else {
            let switches = switches();
            let neighbors = neighbors_of_switches(&switches, bare.into_iter());
            (self.hosts(&neighbors), switches)
        };
        let unlisted = match self.lists_hosts() {
            true => BTreeMap::new(),
            false => unlisted_hosts(&switches, MIN_SPEED),
        };
        let unlisted = unlisted
            .iter()
            .map(|host| place_unlisted(host, &mut fabric, self.now));
        hosts.extend(unlisted);
        let subnet = self
            .subnet
            .map(|(subnet, seen)| merge_subnet(&mut fabric, subnet, seen));
        let mut words = Words {
            hosts,
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

    /// Whether a target is a host, or another source names one.
    fn lists_hosts(&self) -> bool {
        let mut nodes = self.history.nodes();
        nodes.any(|(node, _)| !self.switch_nodes.contains(node))
    }

    /// Nodes that have reported and are no switches.
    fn reporting(&self) -> impl Iterator<Item = Known<'a>> {
        let nodes = self.history.nodes();
        nodes.filter(|(node, history)| {
            history.heard().is_some() && !self.switch_nodes.contains(*node)
        })
    }

    /// Hosts of which network interfaces alone are known: none that had RDMA ports before, no switches, and where GPUs are
    /// reported, none without.
    fn hosts_without_rdma(&self) -> Vec<&'a NodeName> {
        let bare = self.reporting().filter(|(node, history)| {
            let switch = node.as_str().parse::<SwitchName>();
            let is_switch = switch.is_ok_and(|name| self.history.switch(&name).is_some());
            has_no_rdma_port(history) && !is_switch && !has_rdma_nic(self.older, node)
        });
        let mut bare: Vec<_> = bare.collect();
        if !bare.is_empty() && self.reporting().any(|(_, history)| has_gpus(history)) {
            bare.retain(|(_, history)| has_gpus(history));
        }
        bare.into_iter().map(|(node, _)| node).collect()
    }

    /// Hosts with what is in them, and what they receive. Exporters first: they know a NIC's node
    /// and name for certain, the subnet only what was typed into it.
    fn hosts(&self, neighbors: &Neighbors<'a>) -> (Fabric, Vec<HostWords<'a>>) {
        let (mut fabric, mut words) = (Fabric::default(), Vec::new());
        let hosts: Vec<_> = self.reporting().collect();
        let named = |node: &NodeName| neighbors.get(node).map_or(&[][..], Vec::as_slice);
        // Three steps for each, of which one is one host after the other: meanwhile others are read.
        let mut chunks = hosts.chunks(HOSTS_AT_ONCE);
        let (mut read, mut placed) = (Vec::new(), Vec::new());
        loop {
            let unread = chunks.next().unwrap_or_default();
            if unread.is_empty() && read.is_empty() && placed.is_empty() {
                return (fabric, words);
            }
            let place = |parts: NodeParts<'a>| parts.merge(&mut fabric, self.now);
            let place = || read.into_iter().map(place).collect();
            let others = || {
                words.par_extend(placed.par_iter().filter_map(host_words));
                unread
                    .par_iter()
                    .map(|known| NodeParts::of(*known, named(known.0)))
                    .collect()
            };
            (placed, read) = rayon::join(place, others);
        }
    }
}

/// Adds a host of which nothing is known but its interfaces.
fn place_unlisted<'a>(
    (host, netdevs): (&'a NodeName, &BTreeSet<&'a str>),
    fabric: &mut Fabric,
    now: Timestamp,
) -> HostWords<'a> {
    let node = fabric.upsert(Part::Host(host.clone()), Equipment::Host);
    let netdevs = netdevs.iter().filter_map(|netdev| {
        let (part, equipment) = nic_named(host, netdev)?;
        let nic = fabric.upsert(part, equipment);
        fabric.connect(
            node,
            nic,
            Link::plain(LinkKind::Inside, Witness::Switch, now),
        );
        Some((*netdev, End::Nic(nic, 1)))
    });
    HostWords {
        host,
        heard: Vec::new(),
        interfaces: netdevs.collect(),
        addresses: Vec::new(),
        slow: 0,
        silent: 0,
    }
}

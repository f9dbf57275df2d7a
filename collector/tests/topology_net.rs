//! A hand-made or generated subnet, written as `ibnetdiscover` would print it.
#![allow(dead_code, reason = "each test and the benchmark use a part of it")]

use std::collections::BTreeMap;
use std::fmt::Write;

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct NetNode {
    is_switch: bool,
    guid: u64,
    ports: u16,
    description: String,
    links: BTreeMap<u16, (usize, u16)>,
}

/// A subnet. All cables run at one speed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Net {
    nodes: Vec<NetNode>,
}

impl Net {
    fn add(&mut self, is_switch: bool, ports: u16, description: &str) -> usize {
        let base: u64 = if is_switch {
            0xfc6a_1c03_0000_0000
        } else {
            0x0c42_a103_0000_0000
        };
        self.nodes.push(NetNode {
            is_switch,
            guid: base + 0x10 * (self.nodes.len() as u64 + 1),
            ports,
            description: description.to_owned(),
            links: BTreeMap::new(),
        });
        self.nodes.len() - 1
    }

    /// Adds a switch with 64 ports.
    pub(crate) fn switch(&mut self, description: &str) -> usize {
        self.add(true, 64, description)
    }

    /// Adds a channel adapter with one port.
    pub(crate) fn ca(&mut self, description: &str) -> usize {
        self.add(false, 1, description)
    }

    /// Descriptions and GUIDs of all channel adapters.
    pub(crate) fn adapters(&self) -> impl Iterator<Item = (&str, u64)> {
        let adapters = self.nodes.iter().filter(|node| !node.is_switch);
        adapters.map(|node| (node.description.as_str(), node.guid))
    }

    /// GUIDs of all switches, and how many of their ports are cabled.
    pub(crate) fn switches(&self) -> impl Iterator<Item = (u64, usize)> {
        let switches = self.nodes.iter().filter(|node| node.is_switch);
        switches.map(|node| (node.guid, node.links.len()))
    }

    /// The GUID of a node.
    pub(crate) fn guid(&self, node: usize) -> u64 {
        self.nodes[node].guid
    }

    /// Adds a cable between the lowest free ports.
    pub(crate) fn link(&mut self, a: usize, b: usize) {
        let free = |node: &NetNode| {
            let taken = node.links.keys();
            (1..)
                .zip(taken)
                .find(|(port, taken)| port != *taken)
                .map_or(node.links.len() as u16 + 1, |(port, _)| port)
        };
        let a_port = free(&self.nodes[a]);
        self.nodes[a].links.insert(a_port, (b, 0));
        let b_port = free(&self.nodes[b]);
        self.nodes[b].links.insert(b_port, (a, a_port));
        self.nodes[a].links.insert(a_port, (b, b_port));
    }

    /// Adds a CA for a description and cables it to a switch.
    pub(crate) fn host(&mut self, switch: usize, description: &str) -> usize {
        let ca = self.ca(description);
        self.link(ca, switch);
        ca
    }

    /// The subnet in the form of plain `ibnetdiscover`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(self.nodes.len() * 400);
        for node in &self.nodes {
            // Writing to a string cannot fail.
            self.write_node(node, &mut text).unwrap_or_default();
        }
        text
    }

    fn write_node(&self, node: &NetNode, text: &mut String) -> std::fmt::Result {
        let NetNode {
            guid, description, ..
        } = node;
        // A switch has as many ports as it needs, 64 at least.
        let ports = node
            .links
            .keys()
            .copied()
            .max()
            .unwrap_or(0)
            .max(node.ports);
        writeln!(text, "\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid:x}")?;
        if node.is_switch {
            writeln!(text, "switchguid=0x{guid:x}({guid:x})")?;
            writeln!(
                text,
                "Switch\t{ports} \"S-{guid:016x}\"\t\t# \"{description}\" enhanced port 0 lid 7 lmc 0"
            )?;
        } else {
            writeln!(
                text,
                "caguid=0x{guid:x}\nCa\t{ports} \"H-{guid:016x}\"\t\t# \"{description}\""
            )?;
        }
        for (port, (peer, peer_port)) in &node.links {
            let peer = &self.nodes[*peer];
            let (name, far) = (&peer.description, peer.guid);
            let letter = if peer.is_switch { 'S' } else { 'H' };
            if node.is_switch {
                writeln!(
                    text,
                    "[{port}]\t\"{letter}-{far:016x}\"[{peer_port}]\t\t# \"{name}\" lid 9 4xNDR"
                )?;
            } else {
                writeln!(
                    text,
                    "[{port}]({guid:x}) \t\"{letter}-{far:016x}\"[{peer_port}]\t\t# lid 8 lmc 0 \"{name}\" lid 9 4xNDR"
                )?;
            }
        }
        Ok(())
    }

    /// Hosts of `rails` NICs in units of `unit` hosts behind one leaf per rail; every leaf is cabled to
    /// each of `spines` spines once. Returns leaves by unit and rail, and spines.
    pub(crate) fn rail_tree(
        &mut self,
        hosts: usize,
        rails: usize,
        unit: usize,
        spines: usize,
    ) -> (Vec<Vec<usize>>, Vec<usize>) {
        let spines: Vec<_> = (0..spines)
            .map(|n| self.switch(&format!("MF0;spine-{n}:MQM9700/U1")))
            .collect();
        let mut leaves = Vec::new();
        for first in (0..hosts).step_by(unit) {
            let su = leaves.len();
            let own: Vec<_> = (0..rails)
                .map(|rail| self.switch(&format!("MF0;leaf-{su}-{rail}:MQM9700/U1")))
                .collect();
            for (rail, leaf) in own.iter().enumerate() {
                for host in first..hosts.min(first + unit) {
                    self.host(*leaf, &format!("gpu-{host:05} mlx5_{rail}"));
                }
                for spine in &spines {
                    self.link(*leaf, *spine);
                }
            }
            leaves.push(own);
        }
        (leaves, spines)
    }
}

/// Hosts of a unit of [`three_tiers`]: they fill half of a 64-port leaf.
pub(crate) const UNIT: usize = 32;

/// Three tiers of 64-port switches without oversubscription: each rail of 32 units under 32 spines, each
/// spine of one number under the cores of its plane.
pub(crate) fn three_tiers(hosts: usize, rails: usize) -> Net {
    const PLANE_CORES: usize = 52;
    let mut net = Net::default();
    let (leaves, _) = net.rail_tree(hosts, rails, UNIT, 0);
    let planes: Vec<Vec<usize>> = (0..UNIT)
        .map(|plane| {
            (0..PLANE_CORES)
                .map(|n| net.switch(&format!("core-{plane}-{n}")))
                .collect()
        })
        .collect();
    let mut uplinks = 0;
    for (group, units) in leaves.chunks(UNIT).enumerate() {
        for rail in 0..rails {
            for (number, plane) in planes.iter().enumerate() {
                let spine = net.switch(&format!("spine-{group}-{rail}-{number}"));
                for leaves in units {
                    net.link(leaves[rail], spine);
                }
                for uplink in 0..UNIT {
                    net.link(spine, plane[(uplinks + uplink) % PLANE_CORES]);
                }
            }
            uplinks += UNIT;
        }
    }
    net
}

//! What nodes hear by LLDP, taken out of their histories: hosts, and switches that run an exporter.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{
    Guid, NodeName, Part, PciAddress, PortName, RdmaDevice, SwitchName,
};
use railscope_model::metric::{
    GPU, LLDP_NEIGHBOR, Metric, NIC, NIC_CARRIER, NIC_SPEED, PCIE_PATH, RDMA_PORT, RDMA_PORT_UP,
    SWITCH_PORT_SPEED, SWITCH_PORT_UP,
};
use railscope_model::reading::Labels;
use railscope_model::units::LinkSpeed;

use super::history::{History, NodeHistory};
use super::inventory::{label, read};
use crate::topology::{End, Heard, Words};

/// A port this much slower than the fastest of its node is no port of the fabric: 25 of 400 Gb/s, 10 of
/// 100. A port of the fabric that fell back to one lane of eight still is one.
const FABRIC_SHARE: f64 = 1.0 / 8.0;

/// What a switch told of its neighbours, in a file or as a program's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Neighbours, each with the switch's own port.
    pub neighbours: Vec<Neighbour>,
    /// Neighbours that could not be read.
    pub unparsed: usize,
}

/// One neighbour of a switch, word by word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The switch's own port.
    pub local: String,
    /// Chassis id of the neighbour.
    pub chassis: String,
    /// Port id of the neighbour.
    pub port: String,
    /// System name of the neighbour; may be empty.
    pub system: String,
    /// Port description of the neighbour; may be empty.
    pub description: String,
    /// Whether the neighbour says that it bridges or routes; none where nobody told.
    pub forwards: Option<bool>,
}

/// The newest words of the switches that are read by themselves.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Switches that the configuration names, with what was last read of each and when.
    pub told: BTreeMap<SwitchName, Option<(Told, Timestamp)>>,
    /// Why a switch's words could not be read the last time.
    pub problems: BTreeMap<SwitchName, String>,
}

/// Nodes that are switches: the configuration says so, or they have neither RDMA device nor GPU and a
/// host's RDMA port calls them its neighbour.
pub fn switch_nodes(history: &History, switches: &Switches) -> BTreeSet<NodeName> {
    let is_host = |history: &NodeHistory| {
        let mut gpus = history.series(&PCIE_PATH);
        history.series(&RDMA_PORT).next().is_some()
            || history.series(&GPU).next().is_some()
            || gpus.any(|(labels, _)| label(&PCIE_PATH, labels, "kind") == Some("gpu"))
    };
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for (_, history) in history.nodes().filter(|(_, history)| is_host(history)) {
        for (labels, _) in history.series(&LLDP_NEIGHBOR) {
            named.extend(label(&LLDP_NEIGHBOR, labels, "system"));
        }
    }
    let configured = |node: &NodeName| {
        let name = node.as_str().parse::<SwitchName>();
        name.is_ok_and(|name| switches.told.contains_key(&name))
    };
    let is_switch = |node: &NodeName, history: &NodeHistory| {
        let tells = history.series(&LLDP_NEIGHBOR).next().is_some();
        configured(node) || tells && !is_host(history) && named.contains(node.as_str())
    };
    let nodes = history.nodes();
    nodes
        .filter(|(node, history)| is_switch(node, history))
        .map(|(node, _)| node.clone())
        .collect()
}

/// What switches that others speak for tell of their neighbours, to see whether it has changed.
pub fn told_by_others(history: &History, now: Timestamp) -> Vec<(SwitchName, Labels)> {
    let series = |(switch, history): (&SwitchName, &NodeHistory)| {
        let series = history.series(&LLDP_NEIGHBOR);
        let told: Vec<_> = series
            .map(|(labels, _)| (switch.clone(), labels.clone()))
            .collect();
        told
    };
    history.fresh_switches(now).flat_map(series).collect()
}

/// Ports that say that they have no light, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DarkPorts {
    nics: BTreeSet<(NodeName, RdmaDevice, u8)>,
    switches: BTreeSet<(SwitchName, PortName)>,
}

impl DarkPorts {
    /// Those that nodes and switches tell. Without switches that tell their neighbours nobody can contradict a
    /// port, and it is not asked.
    pub fn of(
        history: &History,
        switches: &Switches,
        switch_nodes: &BTreeSet<NodeName>,
        now: Timestamp,
    ) -> Self {
        let mut dark = Self::default();
        let mut by_others = history.fresh_switches(now);
        let mut told_by_others =
            || by_others.any(|(_, one)| one.series(&LLDP_NEIGHBOR).next().is_some());
        if switches.told.is_empty() && switch_nodes.is_empty() && !told_by_others() {
            return dark;
        }
        for (node, history) in history.fresh_nodes(now) {
            if switch_nodes.contains(node) {
                if let Ok(switch) = node.as_str().parse() {
                    dark.add_switch(&switch, history, &NIC_CARRIER);
                }
                continue;
            }
            for (labels, window) in history.series(&RDMA_PORT_UP) {
                let device = read(&RDMA_PORT_UP, labels, "device");
                if let (Some(0.0), Some(device), Some(port)) =
                    (window.value(), device, read(&RDMA_PORT_UP, labels, "port"))
                {
                    dark.nics.insert((node.clone(), device, port));
                }
            }
        }
        for (switch, history) in history.fresh_switches(now) {
            dark.add_switch(switch, history, &SWITCH_PORT_UP);
        }
        dark
    }

    fn add_switch(&mut self, switch: &SwitchName, history: &NodeHistory, metric: &'static Metric) {
        for (labels, window) in history.series(metric) {
            if window.value() == Some(0.0)
                && let Some(Ok(port)) = labels.values().next().map(str::parse)
            {
                self.switches.insert((switch.clone(), port));
            }
        }
    }

    /// The same as ends of cables of a fabric that holds hosts and NICs.
    fn ends(&self, fabric: &Fabric) -> BTreeSet<End> {
        let nic = |(node, device, port): &(NodeName, RdmaDevice, u8)| {
            let nic = fabric.find(&Part::Nic(node.clone(), device.clone()))?;
            Some(End::Nic(nic, *port))
        };
        let switches = self.switches.iter().cloned();
        let switches = switches.map(|(switch, port)| End::Switch(switch, port));
        self.nics.iter().filter_map(nic).chain(switches).collect()
    }
}

/// Everything that is heard. The fabric holds hosts and NICs already.
pub fn words(
    fabric: &Fabric,
    history: &History,
    switches: &Switches,
    (switch_nodes, dark): (&BTreeSet<NodeName>, &DarkPorts),
    now: Timestamp,
) -> Words {
    let mut words = Words {
        dark: dark.ends(fabric),
        ..Words::default()
    };
    let heard = |(node, history)| Some((node, history, NodeHistory::heard(history)?));
    for (node, history, at) in history.nodes().filter_map(heard) {
        if switch_nodes.contains(node) {
            if let Ok(switch) = node.as_str().parse() {
                switch_words(&mut words, &switch, history, at);
            }
        } else {
            words.hosts.insert(node.clone());
            host_words(&mut words, fabric, node, history, at);
        }
    }
    // Switches whose neighbours somebody else's exporter tells.
    for (switch, history) in history.fresh_switches(now) {
        if let (Some(_), Some(at)) = (history.series(&LLDP_NEIGHBOR).next(), history.heard()) {
            switch_words(&mut words, switch, history, at);
        }
    }
    for (switch, told) in &switches.told {
        if let Some((told, at)) = told {
            told_words(&mut words, switch, told, *at);
        }
        if let Some(problem) = switches.problems.get(switch) {
            words.unread.push((switch.clone(), problem.clone()));
        }
    }
    words
}

fn heard(near: End, labels: &Labels, speed: Option<LinkSpeed>, at: Timestamp) -> Heard {
    let text = |name| {
        let text = label(&LLDP_NEIGHBOR, labels, name);
        text.unwrap_or_default().to_owned()
    };
    Heard {
        near,
        chassis: text("chassis"),
        port: text("port"),
        system: text("system"),
        description: text("description"),
        forwards: None,
        speed,
        at,
    }
}

fn switch_words(words: &mut Words, switch: &SwitchName, history: &NodeHistory, at: Timestamp) {
    words.speakers.insert(switch.clone());
    for (labels, _) in history.series(&LLDP_NEIGHBOR) {
        let netdev = label(&LLDP_NEIGHBOR, labels, "netdev").unwrap_or_default();
        let Ok(port) = netdev.parse::<PortName>() else {
            words.unparsed += 1;
            continue;
        };
        let speed = history.value(&NIC_SPEED, &[netdev]);
        let speed = speed.or_else(|| history.value(&SWITCH_PORT_SPEED, &[netdev]));
        let near = End::Switch(switch.clone(), port);
        let speed = speed.and_then(LinkSpeed::ethernet);
        words.heard.push(heard(near, labels, speed, at));
    }
}

fn told_words(words: &mut Words, switch: &SwitchName, told: &Told, at: Timestamp) {
    words.speakers.insert(switch.clone());
    words.unparsed += told.unparsed;
    for neighbour in &told.neighbours {
        let Ok(port) = neighbour.local.parse() else {
            words.unparsed += 1;
            continue;
        };
        words.heard.push(Heard {
            near: End::Switch(switch.clone(), port),
            chassis: neighbour.chassis.clone(),
            port: neighbour.port.clone(),
            system: neighbour.system.clone(),
            description: neighbour.description.clone(),
            forwards: neighbour.forwards,
            speed: None,
            at,
        });
    }
}

/// One port of one RDMA device of a node.
struct Port {
    device: RdmaDevice,
    port: u8,
    pci: Option<PciAddress>,
    netdev: Option<String>,
    end: End,
}

fn host_words(
    words: &mut Words,
    fabric: &Fabric,
    node: &NodeName,
    history: &NodeHistory,
    at: Timestamp,
) {
    let ports = ports(fabric, node, history);
    for (labels, _) in history.series(&RDMA_PORT) {
        let device = read::<RdmaDevice>(&RDMA_PORT, labels, "device");
        let port = ports
            .iter()
            .find(|port| Some(&port.device) == device.as_ref());
        let guids = ["node_guid", "port_guid"].map(|name| read(&RDMA_PORT, labels, name));
        for address in guids.into_iter().flatten().filter_map(mac_of) {
            if let Some(port) = port {
                words.addresses.insert(address, port.end.clone());
            }
        }
    }
    let interfaces = interfaces(history, &ports);
    let speed = |netdev: &str| history.value(&NIC_SPEED, &[netdev]);
    let fastest = interfaces
        .keys()
        .filter_map(|netdev| speed(netdev))
        .fold(0.0, f64::max);
    let mut hearing: BTreeSet<End> = BTreeSet::new();
    for (labels, _) in history.series(&LLDP_NEIGHBOR) {
        let netdev = label(&LLDP_NEIGHBOR, labels, "netdev").unwrap_or_default();
        // Interfaces without an RDMA device are not of the fabric.
        let Some(end) = interfaces.get(netdev) else {
            continue;
        };
        hearing.insert(end.clone());
        let rate = speed(netdev);
        if rate.is_some_and(|rate| rate < FABRIC_SHARE * fastest) {
            words.slow += 1;
            continue;
        }
        let rate = rate.and_then(LinkSpeed::ethernet);
        words.heard.push(heard(end.clone(), labels, rate, at));
    }
    words.silent += silent(history, &ports, &hearing);
    for (netdev, end) in interfaces {
        words.interfaces.insert((node.clone(), netdev), end);
    }
}

fn ports(fabric: &Fabric, node: &NodeName, history: &NodeHistory) -> Vec<Port> {
    let port = |labels: &Labels| {
        let device: RdmaDevice = read(&RDMA_PORT, labels, "device")?;
        let port = read(&RDMA_PORT, labels, "port")?;
        let nic = fabric.find(&Part::Nic(node.clone(), device.clone()))?;
        Some(Port {
            device,
            port,
            pci: read(&RDMA_PORT, labels, "pci"),
            netdev: label(&RDMA_PORT, labels, "netdev").map(str::to_owned),
            end: End::Nic(nic, port),
        })
    };
    let rows = history.series(&RDMA_PORT);
    rows.filter_map(|(labels, _)| port(labels)).collect()
}

/// Which network interface is which port of a NIC.
fn interfaces(history: &NodeHistory, ports: &[Port]) -> BTreeMap<String, End> {
    let mut interfaces = BTreeMap::new();
    for (labels, _) in history.series(&NIC) {
        let Some(netdev) = label(&NIC, labels, "netdev") else {
            continue;
        };
        let device = label(&NIC, labels, "device");
        let own = ports
            .iter()
            .find(|port| device == Some(port.device.as_str()));
        let end = own
            .map(|port| port.end.clone())
            .or_else(|| bonded(read(&NIC, labels, "pci")?, ports));
        if let Some(end) = end {
            interfaces.insert(netdev.to_owned(), end);
        }
    }
    for port in ports {
        if let Some(netdev) = &port.netdev {
            interfaces.insert(netdev.clone(), port.end.clone());
        }
    }
    interfaces
}

/// The port of a function that has no RDMA device of its own: under RoCE LAG the card's functions share
/// one, `mlx5_bond_0`, and the function's number is that of the port, from 0.
fn bonded(pci: PciAddress, ports: &[Port]) -> Option<End> {
    let card = |pci: PciAddress| (pci.domain, pci.bus, pci.device);
    let mut of_card = ports
        .iter()
        .filter(|port| port.pci.is_some_and(|own| card(own) == card(pci)));
    let (Some(port), None) = (of_card.next(), of_card.next()) else {
        return None;
    };
    let End::Nic(nic, first) = port.end else {
        return None;
    };
    Some(End::Nic(nic, first.checked_add(pci.function)?))
}

/// Ethernet ports that are up and hear nobody.
fn silent(history: &NodeHistory, ports: &[Port], hearing: &BTreeSet<End>) -> usize {
    let is_ethernet = |port: &&Port| {
        let mut rows = history.series(&RDMA_PORT);
        rows.any(|(labels, _)| {
            label(&RDMA_PORT, labels, "device") == Some(port.device.as_str())
                && label(&RDMA_PORT, labels, "link_layer") == Some("Ethernet")
        })
    };
    let is_up = |port: &&Port| {
        let labels = [port.device.as_str(), &port.port.to_string()];
        history.value(&RDMA_PORT_UP, &labels) == Some(1.0)
    };
    let silent = ports.iter().filter(|port| !hearing.contains(&port.end));
    silent.filter(is_ethernet).filter(is_up).count()
}

/// The MAC address in a GUID: an EUI-64 with `fffe` in its middle (RFC 4291, A: the universal bit turned),
/// or NVIDIA's node GUIDs with `0300` there.
fn mac_of(guid: Guid) -> Option<String> {
    let [a, b, c, d, e, f, g, h] = guid.0.to_be_bytes();
    let first = match (d, e) {
        (0xff, 0xfe) => a ^ 2,
        (0x03, 0x00) => a,
        _ => return None,
    };
    Some(format!(
        "{first:02x}:{b:02x}:{c:02x}:{f:02x}:{g:02x}:{h:02x}"
    ))
}

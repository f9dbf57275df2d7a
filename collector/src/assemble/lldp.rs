//! What nodes receive by LLDP, taken out of their histories: hosts, and switches that run an
//! exporter.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part, PciAddress, PortName, RdmaDevice, SwitchName};
use railscope_model::label;
use railscope_model::metric::{
    GPU, LLDP_NEIGHBOR, Metric, NIC, NIC_ADDRESS, NIC_CARRIER, NIC_SPEED, PCIE_PATH, RDMA_PORT,
    RDMA_PORT_UP, SWITCH_PORT_SPEED, SWITCH_PORT_UP,
};
use railscope_model::reading::Labels;
use railscope_model::units::LinkSpeed;

use crate::assemble::netdev::port_of;
use crate::assemble::node_parts::{Placed, read};
use crate::fabric::{End, Heard, HostWords, Interfaces, Mac, Said, SwitchWords, Told, Words};
use crate::store::{History, NodeHistory, Window};

/// A port this much slower than the fastest of its node is not a fabric port: 25 of 400 Gb/s, 10 of
/// 100. A fabric port that fell back to one lane of eight still is one.
const FABRIC_SHARE: f64 = 1.0 / 8.0;

/// The newest neighbors of the switches that are read directly.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Switches that the configuration names, with what was last read of each and when.
    pub told: BTreeMap<SwitchName, Option<(Told, Timestamp)>>,
    /// Why a switch's neighbors could not be read the last time.
    pub problems: BTreeMap<SwitchName, String>,
}

/// Nodes that are switches: the configuration says so, or they have neither RDMA device nor GPU
/// and a host's RDMA port reports them as its neighbor.
pub fn switch_nodes(history: &History, switches: &Switches) -> BTreeSet<NodeName> {
    let is_host = |history: &NodeHistory| {
        let mut gpus = history.series(&PCIE_PATH);
        history.series(&RDMA_PORT).next().is_some()
            || history.series(&GPU).next().is_some()
            || gpus.any(|(labels, _)| labels.get(label!(PCIE_PATH, "kind")) == Some("gpu"))
    };
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for (_, history) in history.nodes().filter(|(_, history)| is_host(history)) {
        for (labels, _) in history.series(&LLDP_NEIGHBOR) {
            named.extend(labels.get(label!(LLDP_NEIGHBOR, "system")));
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

/// What others' exporters report about switches' neighbors, to see whether it has changed.
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

/// Ports that report that they have no optical signal, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DarkPorts {
    nics: BTreeSet<(NodeName, RdmaDevice, u8)>,
    switches: BTreeSet<(SwitchName, PortName)>,
}

impl DarkPorts {
    /// Those that nodes and switches report. Without switches that report their neighbors nothing
    /// can contradict a port, and it is not looked up.
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
                let device = read(labels, label!(RDMA_PORT_UP, "device"));
                if let (Some(0.0), Some(device), Some(port)) = (
                    window.value(),
                    device,
                    read(labels, label!(RDMA_PORT_UP, "port")),
                ) {
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

    /// Adds them to a fabric that holds hosts and NICs, after all other sources: a port may be dark of which its
    /// switch reports nothing else.
    pub fn tell(&self, words: &mut Words<'_>, fabric: &Fabric) {
        for (node, device, port) in &self.nics {
            let nic = fabric.find(&Part::Nic(node.clone(), device.clone()));
            words.dark.extend(nic.map(|nic| End::Nic(nic, *port)));
        }
        for (switch, port) in &self.switches {
            let switch = words.switches.ports.switch(switch);
            let port = words.switches.ports.port(switch, port.as_word());
            words.dark.extend(port);
        }
    }
}

/// What switches receive.
pub fn words_of_switches<'a>(
    history: &'a History,
    switches: &'a Switches,
    switch_nodes: &BTreeSet<NodeName>,
    now: Timestamp,
) -> SwitchWords<'a> {
    let mut words = SwitchWords::default();
    for node in switch_nodes {
        if let Some(history) = history.node(node)
            && let (Ok(switch), Some(at)) = (node.as_str().parse(), history.heard())
        {
            switch_words(&mut words, &switch, history, at);
        }
    }
    // Switches whose neighbors another project's exporter reports.
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

fn switch_words<'a>(
    words: &mut SwitchWords<'a>,
    name: &SwitchName,
    history: &'a NodeHistory,
    at: Timestamp,
) {
    let switch = words.ports.speaker(name);
    let speeds = [&NIC_SPEED, &SWITCH_PORT_SPEED].map(|metric| speeds(history, metric));
    for (labels, _) in history.series(&LLDP_NEIGHBOR) {
        let netdev = labels
            .get(label!(LLDP_NEIGHBOR, "netdev"))
            .unwrap_or_default();
        let Some(near) = words.ports.own_port(switch, netdev) else {
            words.unparsed += 1;
            continue;
        };
        let speed = speeds.iter().find_map(|speeds| speeds.get(netdev));
        let speed = speed.copied().and_then(LinkSpeed::ethernet);
        words.heard.push(Heard {
            near,
            said: Said::Exporter(labels),
            speed,
            at,
        });
    }
}

/// Speeds by port, whose name is the only label of the metric.
fn speeds<'a>(history: &'a NodeHistory, metric: &'static Metric) -> BTreeMap<&'a str, f64> {
    let of_port = |(labels, window): (&'a Labels, Window<'_>)| {
        Some((labels.values().next()?, window.value()?))
    };
    history.series(metric).filter_map(of_port).collect()
}

fn told_words<'a>(words: &mut SwitchWords<'a>, name: &SwitchName, told: &'a Told, at: Timestamp) {
    let switch = words.ports.speaker(name);
    words.unparsed += told.unparsed;
    for neighbor in &told.neighbors {
        let Some(near) = words.ports.own_port(switch, &neighbor.local) else {
            words.unparsed += 1;
            continue;
        };
        words.heard.push(Heard {
            near,
            said: Said::Switch(neighbor),
            speed: None,
            at,
        });
    }
}

/// One port of one RDMA device of a node.
struct Port<'a> {
    device: &'a str,
    port: u8,
    pci: Option<PciAddress>,
    netdev: Option<&'a str>,
    is_ethernet: bool,
    end: End,
}

/// What a host receives. None for one that has never reported.
pub fn host_words<'a>(placed: &Placed<'a>) -> Option<HostWords<'a>> {
    let (host, history) = placed.node;
    let at = history.heard()?;
    let ports = ports(placed);
    let mut interfaces = interfaces(history, &ports);
    if ports.is_empty() {
        interfaces.extend(bare_interfaces(placed));
    }
    let mut words = HostWords {
        host,
        heard: Vec::new(),
        addresses: addresses(history, &ports, &interfaces),
        interfaces,
        slow: 0,
        silent: 0,
    };
    let speeds = speeds(history, &NIC_SPEED);
    let of_fabric = speeds
        .iter()
        .filter(|(netdev, _)| words.interfaces.contains_key(*netdev));
    let fastest = of_fabric.fold(0.0, |fastest, (_, speed)| speed.max(fastest));
    let mut hearing: BTreeSet<End> = BTreeSet::new();
    for (labels, _) in history.series(&LLDP_NEIGHBOR) {
        let netdev = labels
            .get(label!(LLDP_NEIGHBOR, "netdev"))
            .unwrap_or_default();
        // Interfaces without an RDMA device are not of the fabric.
        let Some(end) = words.interfaces.get(netdev) else {
            continue;
        };
        hearing.insert(*end);
        let rate = speeds.get(netdev).copied();
        if rate.is_some_and(|rate| rate < FABRIC_SHARE * fastest) {
            words.slow += 1;
            continue;
        }
        words.heard.push(Heard {
            near: *end,
            said: Said::Exporter(labels),
            speed: rate.and_then(LinkSpeed::ethernet),
            at,
        });
    }
    words.silent = silent(history, &ports, &hearing);
    Some(words)
}

/// MAC addresses of interfaces, and those in the GUIDs of ports.
fn addresses(
    history: &NodeHistory,
    ports: &[Port<'_>],
    interfaces: &Interfaces<'_>,
) -> Vec<(Mac, End)> {
    let named = history.series(&NIC_ADDRESS).filter_map(|(labels, _)| {
        let end = interfaces.get(labels.get(label!(NIC_ADDRESS, "netdev"))?)?;
        Some((
            Mac::read(labels.get(label!(NIC_ADDRESS, "address"))?)?,
            *end,
        ))
    });
    let mut addresses: Vec<_> = named.collect();
    for (labels, _) in history.series(&RDMA_PORT) {
        let device = labels.get(label!(RDMA_PORT, "device"));
        if let Some(port) = ports.iter().find(|port| Some(port.device) == device) {
            let [node, port_guid] = [
                label!(RDMA_PORT, "node_guid"),
                label!(RDMA_PORT, "port_guid"),
            ];
            let guids = [node, port_guid].map(|label| read(labels, label));
            let of_port = guids.into_iter().flatten().filter_map(Mac::of);
            addresses.extend(of_port.map(|address| (address, port.end)));
        }
    }
    addresses
}

fn ports<'a>(placed: &Placed<'a>) -> Vec<Port<'a>> {
    let (_, history) = placed.node;
    let port = |labels: &'a Labels| {
        let device = labels.get(label!(RDMA_PORT, "device"))?;
        let port = read(labels, label!(RDMA_PORT, "port"))?;
        let mut nics = placed.nics.iter();
        let (_, nic) = *nics.find(|(name, _)| name.as_str() == device)?;
        Some(Port {
            device,
            port,
            pci: read(labels, label!(RDMA_PORT, "pci")),
            netdev: labels.get(label!(RDMA_PORT, "netdev")),
            is_ethernet: labels.get(label!(RDMA_PORT, "link_layer")) == Some("Ethernet"),
            end: End::Nic(nic, port),
        })
    };
    let rows = history.series(&RDMA_PORT);
    rows.filter_map(|(labels, _)| port(labels)).collect()
}

/// Which network interface is which port of a NIC.
fn interfaces<'a>(history: &'a NodeHistory, ports: &[Port<'a>]) -> Interfaces<'a> {
    let mut interfaces = Interfaces::new();
    for (labels, _) in history.series(&NIC) {
        let Some(netdev) = labels.get(label!(NIC, "netdev")) else {
            continue;
        };
        let device = labels.get(label!(NIC, "device"));
        let own = ports.iter().find(|port| device == Some(port.device));
        let end = own
            .map(|port| port.end)
            .or_else(|| bonded(read(labels, label!(NIC, "pci"))?, ports));
        interfaces.extend(end.map(|end| (netdev, end)));
    }
    for port in ports {
        interfaces.extend(port.netdev.map(|netdev| (netdev, port.end)));
        // Node descriptions of InfiniBand name the device.
        let mut of_device = ports.iter().filter(|other| other.device == port.device);
        if let (Some(only), None) = (of_device.next(), of_device.next()) {
            interfaces.insert(only.device, only.end);
        }
    }
    // Where no exporter relates interfaces to ports, PCI addresses and numbers in their names may.
    for (labels, _) in history.series(&NIC_CARRIER) {
        let Some(netdev) = labels.values().next() else {
            continue;
        };
        if interfaces.contains_key(netdev) {
            continue;
        }
        let own = port_of(history, netdev).and_then(|own| {
            let is_own =
                |port: &&Port<'_>| port.device == own.device.as_str() && port.port == own.port;
            ports.iter().find(is_own)
        });
        interfaces.extend(own.map(|own| (netdev, own.end)));
    }
    interfaces
}

/// Interfaces that are NICs themselves, because no exporter reports RDMA ports.
fn bare_interfaces<'a>(placed: &Placed<'a>) -> impl Iterator<Item = (&'a str, End)> {
    let (_, history) = placed.node;
    let netdevs = [&NIC_CARRIER, &NIC_SPEED].map(|metric| history.series(metric));
    let netdevs = netdevs.into_iter().flatten();
    let netdevs = netdevs.filter_map(|(labels, _)| labels.values().next());
    netdevs.filter_map(|netdev| {
        let mut nics = placed.nics.iter();
        let (_, nic) = nics.find(|(device, _)| device.as_str() == netdev)?;
        Some((netdev, End::Nic(*nic, 1)))
    })
}

/// The port of a function without an RDMA device: under RoCE LAG the card's functions share
/// one, `mlx5_bond_0`, and the function's number is that of the port, from 0.
fn bonded(pci: PciAddress, ports: &[Port<'_>]) -> Option<End> {
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

/// Ethernet ports that are up and receive no neighbor.
fn silent(history: &NodeHistory, ports: &[Port<'_>], hearing: &BTreeSet<End>) -> usize {
    let is_up = |port: &&Port<'_>| {
        let labels = [port.device, &port.port.to_string()];
        history.value(&RDMA_PORT_UP, &labels) == Some(1.0)
    };
    let silent = ports.iter().filter(|port| !hearing.contains(&port.end));
    silent.filter(|port| port.is_ethernet).filter(is_up).count()
}

//! The topology that NCCL and RCCL write and read (`NCCL_TOPO_FILE`): CPUs, PCIe below them, GPUs and NICs in it.

use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;
use railscope_model::plan::PlanError;
use roxmltree::{Document, Node, ParsingOptions};

use super::node::Step;
use super::{Endpoint, NodeTopology, Source};

/// Elements inside of each other; the readers call themselves for each.
const DEEPEST: usize = 64;

/// A text as XML. A document type is let through: hwloc names one, and entities of it are not fetched.
pub(super) fn xml<'t>(source: &mut Source<'t>) -> Result<Document<'t>, Vec<PlanError>> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(source.text, options).map_err(|error| {
        let line = error.pos().row as usize;
        vec![source.error(line, "text", &error.to_string(), "XML")]
    })?;
    // In the order of the text: a parent comes before its children.
    let mut depths: BTreeMap<usize, usize> = BTreeMap::new();
    for node in document.descendants().filter(Node::is_element) {
        let parent = node
            .parent()
            .and_then(|parent| depths.get(&parent.id().get_usize()));
        let depth = parent.map_or(1, |depth| depth + 1);
        if depth > DEEPEST {
            let line = line(source, node);
            let error = source.error(line, "text", "too much nesting", "at most 64 levels");
            return Err(vec![error]);
        }
        depths.insert(node.id().get_usize(), depth);
    }
    Ok(document)
}

/// Line of an element.
pub(super) fn line(source: &mut Source<'_>, node: Node<'_, '_>) -> usize {
    source.line_of(node.range().start)
}

/// Reads the topology, separately for each host if NCCL combined several (NVLinks between nodes).
pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<NodeTopology>, Vec<PlanError>> {
    let document = xml(source)?;
    let root = document.root_element();
    if !root.has_tag_name("system") {
        let (line, found) = (line(source, root), root.tag_name().name());
        return Err(vec![source.error(
            line,
            "root",
            found,
            "<system>, a topology of NCCL",
        )]);
    }
    // By the hash of each host, in the order of the text.
    let mut hosts: Vec<(Option<&str>, Vec<Node<'_, '_>>)> = Vec::new();
    for cpu in elements(root, "cpu") {
        let hash = cpu.attribute("host_hash");
        match hosts.iter_mut().find(|(host, _)| *host == hash) {
            Some((_, cpus)) => cpus.push(cpu),
            None => hosts.push((hash, vec![cpu])),
        }
    }
    if hosts.len() > MOST_HOSTS {
        let found = format!("{} hosts", hosts.len());
        return Err(vec![source.error(
            1,
            "host_hash",
            &found,
            "at most 256 hosts in a file",
        )]);
    }
    let several = hosts.len() > 1;
    // NCCL's own dump names the devices of the NICs that it uses; a hand-written table of PCI addresses does not.
    let wide = |node: &Node<'_, '_>| {
        let lanes = node
            .attribute("link_width")
            .and_then(|lanes| lanes.parse().ok());
        lanes.is_some_and(|lanes: u16| lanes >= 8) && is_network(node)
    };
    let has_wide_nics = root.descendants().any(|node| wide(&node));
    let has_devices = root.descendants().any(|node| node.has_tag_name("net"));
    let mut nodes = Vec::new();
    for (host, cpus) in hosts {
        let mut walk = Walk {
            has_devices,
            has_wide_nics,
            ..Walk::default()
        };
        for (place, cpu) in cpus.into_iter().enumerate() {
            let numa = cpu.attribute("numaid").and_then(|numa| numa.parse().ok());
            walk.children(source, cpu, &[Step::Cpu(place)], numa);
        }
        walk.topology.fits(source)?;
        walk.links(source);
        walk.topology.tells_nics = true;
        walk.topology.measure(&walk.gpus, &walk.nics, 0);
        walk.topology.host = host.filter(|_| several).map(str::to_owned);
        nodes.push(walk.topology);
    }
    if nodes.is_empty() {
        return Err(vec![source.error(
            1,
            "system",
            "no <cpu>",
            "a <cpu> with its children",
        )]);
    }
    Ok(nodes)
}

/// Maximum number of hosts in one file. The largest NVLink domain has 18 trays in a rack, and several racks can be joined.
const MOST_HOSTS: usize = 256;

fn elements<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children()
        .filter(move |child| child.has_tag_name(name))
}

/// Whether a PCI function has the network class.
fn is_network(node: &Node<'_, '_>) -> bool {
    node.attribute("class")
        .is_some_and(|class| class.starts_with("0x02"))
}

#[derive(Default)]
struct Walk<'a> {
    has_devices: bool,
    has_wide_nics: bool,
    topology: NodeTopology,
    gpus: Vec<Vec<Step>>,
    nics: Vec<Vec<Step>>,
    bridges: usize,
    /// GPU by place, address and class of the far end, links.
    links: Vec<(usize, &'a str, &'a str, u16)>,
}

impl<'a> Walk<'a> {
    fn children(
        &mut self,
        source: &mut Source<'_>,
        node: Node<'a, '_>,
        way: &[Step],
        numa: Option<u16>,
    ) {
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "pci" => self.pci(source, child, way, numa),
                "nic" => self.nic(child, None, way, numa),
                "gpu" => {} // read with its PCI function
                other => {
                    let line = line(source, child);
                    source.problem(line, "element", other, "pci, nic or gpu");
                }
            }
        }
    }

    fn pci(
        &mut self,
        source: &mut Source<'_>,
        node: Node<'a, '_>,
        way: &[Step],
        numa: Option<u16>,
    ) {
        let address = node.attribute("busid").unwrap_or_default();
        let pci: Option<PciAddress> = address.parse().ok();
        if pci.is_none() && !address.starts_with("ffff") {
            let line = line(source, node);
            source.problem(line, "busid", address, "a PCI address such as 0000:8d:00.0");
        }
        let class = node.attribute("class").unwrap_or_default();
        let endpoint = |name: String| Endpoint { name, pci, numa };
        // PCI classes: display and processing accelerator (AMD's GPUs), network, bridge.
        match class.get(..4) {
            Some("0x03" | "0x12") => {
                let gpu = self.topology.gpus.len();
                self.topology.gpus.push(endpoint(format!("GPU{gpu}")));
                self.gpus.push(way.to_vec());
                for link in elements(node, "gpu").flat_map(|gpu| gpu.children()) {
                    self.link(source, gpu, link);
                }
            }
            // The management card of NVSwitches has one or two PCIe lanes; a NIC of a GPU server has at least eight.
            Some("0x02")
                if self.has_wide_nics
                    && matches!(node.attribute("link_width"), Some("1" | "2")) =>
            {
                self.topology.other_ports += 1;
            }
            Some("0x02") => match elements(node, "nic").next() {
                Some(nic) => self.nic(nic, pci, way, numa),
                None if self.has_devices => self.topology.other_ports += 1,
                None => {
                    self.topology.nics.push(endpoint(address.to_owned()));
                    self.nics.push(way.to_vec());
                }
            },
            Some("0x06") => {
                self.bridges += 1;
                let mut way = way.to_vec();
                way.push(Step::Bridge(self.bridges));
                self.children(source, node, &way, numa);
            }
            _ => self.topology.unknown += 1,
        }
    }

    /// The RDMA devices of a NIC. One that cannot do GPUDirect and stands outside of PCIe is a host's Ethernet.
    fn nic(
        &mut self,
        node: Node<'_, '_>,
        pci: Option<PciAddress>,
        way: &[Step],
        numa: Option<u16>,
    ) {
        for net in elements(node, "net") {
            let name = net.attribute("name").unwrap_or_default().to_owned();
            if pci.is_none() && net.attribute("gdr") != Some("1") {
                continue;
            }
            self.topology.nics.push(Endpoint { name, pci, numa });
            self.nics.push(way.to_vec());
        }
    }

    fn link(&mut self, source: &mut Source<'_>, gpu: usize, node: Node<'a, '_>) {
        if !["nvlink", "xgmi"].contains(&node.tag_name().name()) {
            return;
        }
        let count = node.attribute("count").unwrap_or_default();
        match (node.attribute("target"), count.parse()) {
            (Some(target), Ok(links)) => {
                let class = node.attribute("tclass").unwrap_or_default();
                self.links.push((gpu, target, class, links));
            }
            _ => {
                let line = line(source, node);
                let expected = "a number of links and their target";
                source.problem(line, "count", count, expected);
            }
        }
    }

    /// Links once all GPUs are known: each stands at both of its ends.
    fn links(&mut self, source: &mut Source<'_>) {
        let pci: Vec<_> = self.topology.gpus.iter().map(|gpu| gpu.pci).collect();
        for (gpu, target, class, links) in std::mem::take(&mut self.links) {
            let target_pci: Option<PciAddress> = target.parse().ok();
            let peer = pci
                .iter()
                .position(|own| own.is_some() && *own == target_pci);
            match peer {
                Some(peer) if peer != gpu => {
                    self.topology
                        .nvlinks
                        .insert((gpu.min(peer), gpu.max(peer)), links);
                }
                // The class of a bridge is that of NVSwitch; its own address represents "some other end".
                _ => {
                    let all = self.topology.switched.entry(gpu).or_default();
                    *all = all.saturating_add(links);
                    if peer.is_none() && !class.starts_with("0x06") && target_pci.is_none() {
                        source.problem(0, "target", target, "a PCI address");
                    }
                }
            }
        }
    }
}

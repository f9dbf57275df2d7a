//! What the exporter would report about a node, without files: for clusters too large to be written to
//! disk.
//!
//! GPUs, NICs, their PCIe links and ports; not the bridges between them. A test holds these readings
//! against the real exporter on the tree of the same node.

use std::collections::BTreeMap;

use railscope_model::identity::{Guid, PciAddress};
use railscope_model::metric::{
    CPU_STEAL, GPU, GPU_FABRIC, GPU_NIC, GPU_XID_EVENTS, HOST_PRESSURE, HOST_STALLS, Metric,
    PCIE_ACS_ON_PATH, PCIE_ERRORS, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH,
    PCIE_LINK_WIDTH_MAX, PCIE_PATH, RDMA_DEVICE, RDMA_ICRC_ERRORS, RDMA_NO_BUFFER, RDMA_PORT,
    RDMA_PORT_CAST_PACKETS, RDMA_PORT_ERROR_SATURATED, RDMA_PORT_ERRORS, RDMA_PORT_PHYSICAL_STATE,
    RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_SPEED, RDMA_PORT_STATE,
    RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_PACKETS, RDMA_PORT_TRANSMIT_WAIT, RDMA_PORT_UP,
    RDMA_PORT_WIDTH, RDMA_RECEIVER_NOT_READY, RDMA_RETRANSMITS, RDMA_SEQUENCE_ERRORS,
    RDMA_TRANSPORT_EVENTS,
};
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::MICROS;

use crate::cluster::Node;
use crate::conditions::PcieLink;
use crate::parts::efa::{EfaCounter, port_guid as efa_port_guid};
use crate::parts::ethernet::{EthernetCounter, interface_id};
use crate::parts::port::{AtLimit, BYTES_PER_PORT_DATA_WORD, Counter, Port, PortState};
use crate::show::machine::{TICK_SECONDS, gpus, stolen_ticks, storage_micros};
use crate::show::nvml::NodeGpus;
use crate::spec::pci_layout;
use crate::spec::pci_layout::{Function, FunctionKind};
use crate::spec::shape::Shape;
use crate::wiring::Nic;

mod board;
mod efa;
mod ethernet;
mod exporters;
mod gpu;
mod jobs;
mod probes;
mod switches;

use ethernet::{OfNetdev, Unit};
pub use exporters::Exporters;
use gpu::{GPM_VALUES, GPU_VALUES, OfGpu};
pub(super) use probes::Probes;
pub use probes::{Probing, addresses};
pub use switches::switches;

/// The rows of a node's exposition: their names never change, their values are read each time.
#[derive(Debug, Default)]
pub struct NodeRows {
    rows: Vec<(&'static Metric, Labels, From)>,
    gpus: Vec<PciAddress>,
}

/// Where a row's value comes from: the part by its number in the node, and what of it.
#[derive(Debug, Clone, Copy)]
enum From {
    /// Something that does not change; 1 for an info.
    Fixed(f64),
    Port(usize, OfPort),
    /// 1; the firmware among the labels is that of now.
    Firmware(usize),
    Count {
        port: usize,
        counter: Counter,
        unit: u64,
    },
    /// 1 while the counter stands at its largest value.
    Saturated(usize, Counter),
    /// Of the Ethernet interface of a port.
    Netdev(usize, OfNetdev),
    Ethernet(usize, EthernetCounter, Unit),
    Efa(usize, EfaCounter),
    Link(usize, fn(PcieLink) -> Value),
    /// Nothing once the GPU is lost.
    Gpu(usize, OfGpu),
    /// Correctable errors of the link above a NIC.
    LinkErrors(usize),
    /// Bridges above a NIC, or what shares its bridge, that send packets up.
    Redirected(usize),
    Host(OfNode),
}

const INFO: From = From::Fixed(1.0);

type OfPort = fn(&Port) -> Value;
type OfNode = fn(&Node) -> Value;

/// Thresholds of the timer probe.
pub(super) const STALLS: &[(&str, OfNode)] = &[
    ("50us", |node| node.stalls[0].into()),
    ("200us", |node| node.stalls[1].into()),
    ("1000us", |node| node.stalls[2].into()),
];

const PORT_VALUES: &[(&Metric, OfPort)] = &[
    (&RDMA_PORT_UP, |port| {
        (port.state == PortState::Active).into()
    }),
    (&RDMA_PORT_STATE, |port| port.state.codes().0.into()),
    (&RDMA_PORT_PHYSICAL_STATE, |port| {
        port.state.codes().1.into()
    }),
    (&RDMA_PORT_SPEED, |port| {
        port.speed.bytes_per_second().into()
    }),
    (&RDMA_PORT_WIDTH, |port| u64::from(port.speed.lanes).into()),
];

/// The catalogue's row for a counter, its labels after device and port, and the unit in which it counts.
fn named(counter: Counter) -> (&'static Metric, Vec<&'static str>, u64) {
    let file = counter.file();
    match counter {
        Counter::PortXmitData => (&RDMA_PORT_TRANSMIT_BYTES, vec![], BYTES_PER_PORT_DATA_WORD),
        Counter::PortRcvData => (&RDMA_PORT_RECEIVE_BYTES, vec![], BYTES_PER_PORT_DATA_WORD),
        Counter::PortXmitPackets => (&RDMA_PORT_TRANSMIT_PACKETS, vec![], 1),
        Counter::PortRcvPackets => (&RDMA_PORT_RECEIVE_PACKETS, vec![], 1),
        Counter::PortXmitWait => (&RDMA_PORT_TRANSMIT_WAIT, vec![], 1),
        Counter::RxIcrcEncapsulated => (&RDMA_ICRC_ERRORS, vec![], 1),
        Counter::MulticastRcvPackets => (&RDMA_PORT_CAST_PACKETS, vec!["multicast", "receive"], 1),
        Counter::MulticastXmitPackets => {
            (&RDMA_PORT_CAST_PACKETS, vec!["multicast", "transmit"], 1)
        }
        Counter::UnicastRcvPackets => (&RDMA_PORT_CAST_PACKETS, vec!["unicast", "receive"], 1),
        Counter::UnicastXmitPackets => (&RDMA_PORT_CAST_PACKETS, vec!["unicast", "transmit"], 1),
        _ if file.folder == "counters" => (&RDMA_PORT_ERRORS, vec![file.name], 1),
        _ => (&RDMA_TRANSPORT_EVENTS, vec![file.name], 1),
    }
}

/// The row that means the same on every driver, beside the driver's own.
fn neutral(counter: Counter) -> Option<&'static Metric> {
    match counter {
        Counter::LocalAckTimeoutErr => Some(&RDMA_RETRANSMITS),
        Counter::PacketSeqErr => Some(&RDMA_SEQUENCE_ERRORS),
        Counter::RnrNakRetryErr => Some(&RDMA_RECEIVER_NOT_READY),
        Counter::OutOfBuffer => Some(&RDMA_NO_BUFFER),
        _ => None,
    }
}

/// How often the driver has reported each XID.
fn push_xids(reading: &mut NodeReading, gpu: usize, xids: &[u16]) {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for xid in xids {
        *counts.entry(*xid).or_default() += 1;
    }
    for (xid, count) in counts {
        let labels = Labels::new([gpu]).with(xid).with("nvml");
        reading.push(&GPU_XID_EVENTS, &labels, count);
    }
}

impl NodeRows {
    /// The rows of a node with these NICs.
    pub fn new(node: &Node, nics: &[Nic]) -> Self {
        let mut rows = Self::default();
        let ordinal = nics.first().map_or(0, |nic| nic.node);
        let adapters = nics.iter().filter(|nic| nic.plane == 0).count();
        let planes = nics.len() / adapters.max(1);
        let shape = node.kind.shape();
        let counts = [node.gpus.len(), adapters, planes].map(|count| count as u8);
        let functions = pci_layout::functions(shape, counts[0], counts[1], counts[2]);
        let gpus = gpus::fitted(node, ordinal);
        for function in &functions {
            match function.kind {
                FunctionKind::Gpu(gpu) => {
                    rows.add_gpu(gpu.into(), function, &functions, (shape, &gpus));
                }
                FunctionKind::Nic(nic, port) => {
                    let slot = usize::from(nic) * planes + usize::from(port);
                    rows.add_nic(slot, function, &functions, (&nics[slot], &node.ports[slot]));
                }
                _ => {}
            }
        }
        rows.add_host(shape);
        rows
    }

    /// The node's reading as it is now.
    pub fn read(&self, node: &Node) -> NodeReading {
        let mut reading = NodeReading::default();
        for (gpu, state) in node.gpus.iter().enumerate() {
            push_xids(&mut reading, gpu, &state.xids);
        }
        ethernet::push_neighbors(&mut reading, node);
        jobs::push(&mut reading, node.job.as_deref(), &self.gpus);
        for (metric, labels, from) in &self.rows {
            let Some(value) = from.value(node) else {
                continue;
            };
            match from {
                From::Firmware(slot) => {
                    let labels =
                        board::with_firmware(labels, node.ports[*slot].firmware.as_deref());
                    reading.push(metric, &labels, value);
                }
                _ => reading.push(metric, labels, value),
            }
        }
        reading
    }

    fn add(&mut self, metric: &'static Metric, labels: &Labels, from: From) {
        self.rows.push((metric, labels.clone(), from));
    }

    /// What the processors of the first NUMA node lose, and what its timer probe sees; the others lose as
    /// much. Also what the node waits for.
    fn add_host(&mut self, shape: &Shape) {
        let waited = |node: &Node| (storage_micros(node) as f64 / MICROS).into();
        for (resource, kind, from) in [
            ("cpu", "some", From::Fixed(0.0)),
            ("memory", "some", From::Fixed(0.0)),
            ("memory", "full", From::Fixed(0.0)),
            ("io", "some", From::Host(waited)),
            ("io", "full", From::Host(waited)),
            ("irq", "full", From::Fixed(0.0)),
        ] {
            self.add(&HOST_PRESSURE, &Labels::new([resource, kind]), from);
        }
        for numa_node in 0..shape.host.cpu_lists.len() {
            let labels = Labels::new([numa_node]);
            let stolen = |node: &Node| (stolen_ticks(node) as f64 * TICK_SECONDS).into();
            self.add(&CPU_STEAL, &labels, From::Host(stolen));
            for (threshold, read) in STALLS {
                self.add(&HOST_STALLS, &labels.with(threshold), From::Host(*read));
            }
        }
    }

    fn add_gpu(
        &mut self,
        gpu: usize,
        function: &Function,
        all: &[Function],
        (shape, state): (&Shape, &NodeGpus),
    ) {
        let (name, pci) = (gpu.to_string(), function.pci.to_string());
        self.gpus.push(function.pci);
        self.add_function(function, all, "gpu", &name);
        let Some(about) = state.gpus.get(gpu) else {
            return;
        };
        let numa_node = about.host_numa_node.to_string();
        let fabric = (about.fabric_cluster_uuid, about.fabric_clique_id);
        let about = [
            &name,
            &about.uuid,
            &pci,
            &about.name,
            &about.serial,
            &about.vbios_version,
            &state.driver,
            shape.gpu.architecture,
            &numa_node,
        ];
        self.add(&GPU, &Labels::new(about), INFO);
        let labels = Labels::new([gpu]);
        if shape.nvlink_domain_nodes > 1 {
            let domain = labels.with(uuid(fabric.0)).with(fabric.1);
            self.add(&GPU_FABRIC, &domain, INFO);
        }
        for (metric, second, read) in GPU_VALUES {
            if !shape.gpu.has_gpm && GPM_VALUES.contains(metric) {
                continue;
            }
            let labels = second.map_or_else(|| labels.clone(), |second| labels.with(second));
            self.add(metric, &labels, From::Gpu(gpu, *read));
        }
        // Its own NIC, the first if it has several, is behind the same switch, or on the same socket where there is none.
        let own = FunctionKind::Nic(gpu as u8 * shape.nics_per_gpu(), 0);
        if let Some(nic) = all.iter().find(|function| function.kind == own) {
            let ports = all.iter().filter(|other| other.parent == nic.parent);
            let slot = gpu * ports.count();
            let device = nic.nic.device(slot as u8, nic.pci);
            let hop = if root_of(nic, all) == root_of(function, all) {
                "PIX"
            } else {
                "NODE"
            };
            let labels = Labels::new([name.as_str(), &device, hop, "true"]);
            self.add(&GPU_NIC, &labels, INFO);
        }
    }

    /// Where a function is connected, and its link.
    fn add_function(&mut self, function: &Function, all: &[Function], kind: &str, name: &str) {
        let address = |pci: Option<PciAddress>| pci.map_or_else(String::new, |pci| pci.to_string());
        let path = [
            &address(Some(function.pci)),
            kind,
            name,
            &address(function.parent),
            &address(Some(root_of(function, all))),
            &function.numa_node.to_string(),
        ];
        self.add(&PCIE_PATH, &Labels::new(path), INFO);
        let labels = Labels::new([function.pci]);
        let lanes = From::Fixed(function.lanes.into());
        let transfers = From::Fixed(function.generation.gigatransfers() * 1e9);
        self.add(&PCIE_ACS_ON_PATH, &labels, board::redirected(function, all));
        self.add(&PCIE_LINK_WIDTH_MAX, &labels, lanes);
        self.add(&PCIE_LINK_SPEED_MAX, &labels, transfers);
        if let FunctionKind::Gpu(_) = function.kind {
            self.add(&PCIE_LINK_WIDTH, &labels, lanes);
            self.add(&PCIE_LINK_SPEED, &labels, transfers);
        }
    }

    fn add_nic(
        &mut self,
        slot: usize,
        function: &Function,
        all: &[Function],
        (nic, port): (&Nic, &Port),
    ) {
        self.add_function(function, all, "nic", nic.device.as_str());
        let pci = Labels::new([function.pci]);
        let width = |link: PcieLink| u64::from(link.lanes).into();
        let speed = |link: PcieLink| (link.generation.gigatransfers() * 1e9).into();
        self.add(&PCIE_LINK_WIDTH, &pci, From::Link(slot, width));
        self.add(&PCIE_LINK_SPEED, &pci, From::Link(slot, speed));
        for (severity, from) in [
            ("correctable", From::LinkErrors(slot)),
            ("nonfatal", From::Fixed(0.0)),
            ("fatal", From::Fixed(0.0)),
        ] {
            self.add(&PCIE_ERRORS, &pci.with(severity), from);
        }
        let device = nic.device.as_str();
        let (netdev, port_guid, link_layer) = match &port.netdev {
            None if port.efa.is_some() => ("", efa_port_guid(nic.guid), "Unknown"),
            None => ("", nic.guid, "InfiniBand"),
            Some(netdev) => (
                netdev.name.as_str(),
                Guid(interface_id(nic.guid)),
                "Ethernet",
            ),
        };
        let about = [
            device,
            "1",
            &function.pci.to_string(),
            netdev,
            &nic.guid.to_string(),
            &port_guid.to_string(),
            link_layer,
            function.driver(),
            &function.numa_node.to_string(),
        ];
        self.add(&RDMA_PORT, &Labels::new(about), INFO);
        let model = &nic.kind.shape().nic;
        let board = [device, model.board_id, model.firmware, model.hca_type];
        self.add(&RDMA_DEVICE, &Labels::new(board), From::Firmware(slot));
        if port.efa.is_some() {
            self.add_efa(slot, device);
            return;
        }
        let labels = Labels::new([device, "1"]);
        for (metric, read) in PORT_VALUES {
            self.add(metric, &labels, From::Port(slot, *read));
        }
        for counter in Counter::ALL {
            self.add_counter(slot, &labels, *counter);
        }
        if let Some(netdev) = &port.netdev {
            self.add_netdev(slot, function, nic, netdev);
        }
    }

    fn add_counter(&mut self, port: usize, labels: &Labels, counter: Counter) {
        let count = |unit| From::Count {
            port,
            counter,
            unit,
        };
        let (metric, more, unit) = named(counter);
        let all = more
            .iter()
            .fold(labels.clone(), |labels, more| labels.with(more));
        self.add(metric, &all, count(unit));
        if let Some(metric) = neutral(counter) {
            self.add(metric, labels, count(1));
        }
        let file = counter.file();
        if file.at_limit == AtLimit::Stops && file.bits < 64 {
            let full = From::Saturated(port, counter);
            self.add(&RDMA_PORT_ERROR_SATURATED, &labels.with(file.name), full);
        }
    }
}

/// As NVML's bytes are usually printed.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = format!("{:032x}", u128::from_be_bytes(bytes));
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}

/// The root port above a function.
fn root_of(function: &Function, all: &[Function]) -> PciAddress {
    let above = |function: &Function| all.iter().find(|other| Some(other.pci) == function.parent);
    let mut root = function;
    while let Some(parent) = above(root) {
        root = parent;
    }
    root.pci
}

impl From {
    fn value(self, node: &Node) -> Option<Value> {
        Some(match self {
            Self::Fixed(value) => value.into(),
            Self::Firmware(_) => true.into(),
            Self::Port(port, read) => read(&node.ports[port]),
            Self::Count {
                port,
                counter,
                unit,
            } => (node.ports[port].get(counter) * unit).into(),
            Self::Link(nic, read) => read(node.nic_links[nic]),
            Self::Gpu(gpu, read) => {
                let gpu = &node.gpus[gpu];
                (!gpu.lost).then(|| read(gpu))?
            }
            Self::LinkErrors(nic) => node.nic_link_errors[nic].into(),
            Self::Redirected(nic) => u64::from(node.nic_redirected[nic]).into(),
            Self::Host(read) => read(node),
            Self::Netdev(port, read) => {
                let port = &node.ports[port];
                read(port.netdev.as_deref()?, port)?
            }
            Self::Ethernet(port, counter, unit) => {
                unit.value(node.ports[port].netdev.as_deref()?.get(counter))
            }
            Self::Efa(port, counter) => node.ports[port].efa.as_deref()?.get(counter).into(),
            Self::Saturated(port, counter) => {
                let largest = u64::MAX >> (64 - u32::from(counter.file().bits));
                (node.ports[port].get(counter) == largest).then(|| true.into())?
            }
        })
    }
}

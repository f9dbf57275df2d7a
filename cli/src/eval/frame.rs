//! The signals of one tick as columns, by part: what the baselines read. The same readings that the collector gets.

use std::ops::Range;

use railscope_model::identity::Part;
use railscope_model::metric::{
    GPU_CLOCK, GPU_CLOCK_EVENT_SECONDS, GPU_POWER, GPU_TEMPERATURE, GPU_UTILIZATION, Metric,
    PCIE_LINK_SPEED, PCIE_LINK_WIDTH, RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_SPEED,
    RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_WAIT, RDMA_PORT_UP, RDMA_RETRANSMITS,
    RDMA_SEQUENCE_ERRORS,
};
use railscope_model::reading::{Labels, NodeReading};
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::traffic::router::{Router, Routing};
use railscope_simulator::wiring::{Device, Host, Nic};

use super::probes::{Pinger, Probes};

/// What a signal is about; each kind has its own entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entity {
    /// GPUs, node by node.
    Gpu,
    /// The cables at the NICs' ports, node by node.
    Link,
    /// The PCIe links above the NICs, by port like the cables.
    Pcie,
}

/// How a series becomes a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Value,
    /// Rise of a counter per second since the node was last seen.
    Rate,
}

/// One signal.
#[derive(Debug)]
pub(super) struct Signal {
    /// What it is about.
    pub(super) entity: Entity,
    metric: &'static Metric,
    /// The label value behind the part's own.
    label: Option<&'static str>,
    how: As,
}

macro_rules! signals {
    ($($id:ident = $entity:ident $metric:ident $label:expr, $how:ident;)+) => {
        /// Names of the columns.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // the table describes them
        pub(super) enum Column { $($id),+ }

        impl Column {
            /// Every column.
            pub(super) const ALL: &[Self] = &[$(Self::$id),+];
        }

        /// Every signal, in the order of [`Column`].
        const SIGNALS: &[Signal] = &[$(Signal {
            entity: Entity::$entity, metric: &$metric, label: $label, how: As::$how,
        }),+];
    };
}

signals! {
    GpuClock = Gpu GPU_CLOCK Some("sm"), Value;
    GpuPower = Gpu GPU_POWER None, Value;
    GpuUtilization = Gpu GPU_UTILIZATION None, Value;
    GpuTemperature = Gpu GPU_TEMPERATURE Some("gpu"), Value;
    GpuThermal = Gpu GPU_CLOCK_EVENT_SECONDS Some("hw_thermal"), Rate;
    LinkUp = Link RDMA_PORT_UP None, Value;
    LinkSpeed = Link RDMA_PORT_SPEED None, Value;
    SentBytes = Link RDMA_PORT_TRANSMIT_BYTES None, Rate;
    ReceivedBytes = Link RDMA_PORT_RECEIVE_BYTES None, Rate;
    SendWait = Link RDMA_PORT_TRANSMIT_WAIT None, Rate;
    SymbolErrors = Link RDMA_PORT_ERRORS Some("symbol_error"), Rate;
    ReceiveErrors = Link RDMA_PORT_ERRORS Some("port_rcv_errors"), Rate;
    Recoveries = Link RDMA_PORT_ERRORS Some("link_error_recovery"), Rate;
    Downs = Link RDMA_PORT_ERRORS Some("link_downed"), Rate;
    Discards = Link RDMA_PORT_ERRORS Some("port_xmit_discards"), Rate;
    SequenceErrors = Link RDMA_SEQUENCE_ERRORS None, Rate;
    Retransmits = Link RDMA_RETRANSMITS None, Rate;
    PcieWidth = Pcie PCIE_LINK_WIDTH None, Value;
    PcieSpeed = Pcie PCIE_LINK_SPEED None, Value;
}

impl Column {
    /// Its signal.
    pub(super) const fn signal(self) -> &'static Signal {
        &SIGNALS[self as usize]
    }
}

/// What does not change over a run: parts, and senders and receivers.
#[derive(Debug)]
pub(super) struct Layout {
    /// Parts by entity: GPUs, cables, PCIe links.
    parts: [Vec<Part>; 3],
    /// Hosts.
    pub(super) hosts: Vec<Part>,
    /// What each host has.
    has: Vec<Host>,
    /// Job of each node; none for idle ones.
    pub(super) job_of_node: Vec<Option<usize>>,
    /// Every cable, by its number.
    pub(super) cables: Vec<Part>,
    /// Every switch, with the numbers of its cables.
    pub(super) switches: Vec<(Part, Vec<usize>)>,
    /// By sending port: cables that every packet of its flows crosses, a list for each flow.
    pub(super) flows: Vec<Vec<Vec<Part>>>,
}

impl Layout {
    /// The layout of a cluster and its jobs.
    pub(super) fn of(cluster: &Cluster) -> Self {
        let (plan, nodes) = (cluster.plan(), cluster.nodes());
        let gpus = (0..).zip(nodes).flat_map(|(node, of)| {
            (0..of.gpus.len() as u8).filter_map(move |gpu| cluster.gpu_part(node, gpu))
        });
        let mut job_of_node = vec![None; nodes.len()];
        for (number, job) in cluster.jobs().enumerate() {
            for node in &job.nodes {
                job_of_node[usize::from(*node)] = Some(number);
            }
        }
        Self {
            parts: [
                gpus.collect(),
                plan.nics.iter().map(Nic::link_part).collect(),
                plan.nics.iter().map(Nic::pcie_part).collect(),
            ],
            hosts: nodes
                .iter()
                .map(|node| Part::Host(node.name.clone()))
                .collect(),
            has: plan.hosts.clone(),
            job_of_node,
            cables: (0..plan.cables.len())
                .map(|cable| plan.cable_part(cable))
                .collect(),
            switches: switches(cluster),
            flows: flows(cluster),
        }
    }

    /// Parts of a kind.
    pub(super) fn parts(&self, entity: Entity) -> &[Part] {
        &self.parts[entity as usize]
    }

    /// Node of an entity.
    pub(super) fn node_of(&self, entity: Entity, index: usize) -> usize {
        self.has.partition_point(|host| match entity {
            Entity::Gpu => host.gpus.end <= index,
            Entity::Link | Entity::Pcie => host.nics.end <= index,
        })
    }

    /// Indices of the entities of each node.
    pub(super) fn by_node(&self, entity: Entity) -> impl Iterator<Item = Range<usize>> {
        self.has.iter().map(move |host| match entity {
            Entity::Gpu => host.gpus.clone(),
            Entity::Link | Entity::Pcie => host.nics.clone(),
        })
    }
}

fn switches(cluster: &Cluster) -> Vec<(Part, Vec<usize>)> {
    let plan = cluster.plan();
    let switches = plan.switches.iter();
    let mut switches: Vec<(Part, Vec<usize>)> = switches
        .map(|switch| (Part::Switch(switch.name.clone()), Vec::new()))
        .collect();
    for (number, cable) in plan.cables.iter().enumerate() {
        for (device, _) in cable.ends {
            if let Device::Switch(switch) = device {
                switches[switch].1.push(number);
            }
        }
    }
    switches
}

/// Cables of the flows of each port. Where switches spray packets or hash flows, only the hops that no
/// choice can avoid are known to the voter; where they route by destination, all are.
fn flows(cluster: &Cluster) -> Vec<Vec<Vec<Part>>> {
    let plan = cluster.plan();
    let routing = match cluster.spec().routing {
        by_destination @ (Routing::Static | Routing::Minhop) => by_destination,
        Routing::Adaptive | Routing::Ecmp => Routing::Adaptive,
    };
    let router = Router::new(plan, routing);
    let mut flows = vec![Vec::new(); plan.nics.len()];
    for job in cluster.jobs() {
        for collective in &job.workload.collectives {
            let groups = job.workload.groups(collective.pattern, job.nodes.len());
            for (from, to, _) in groups.into_iter().flatten() {
                for slot in plan.common_slots(&job.nodes) {
                    let nic = |place: usize| plan.nic_index(job.nodes[place], slot);
                    let (from, to) = (nic(from), nic(to));
                    let path = router.path(from, to, 0).unwrap_or_default();
                    let certain = path.into_iter().filter(|(_, share)| *share > 0.999);
                    let cables = certain.map(|(lane, _)| plan.cable_part(lane.cable()));
                    flows[from].push(cables.collect());
                }
            }
        }
    }
    flows
}

/// A series that a signal comes from.
#[derive(Debug, Clone)]
struct Wanted {
    metric: &'static Metric,
    labels: Labels,
    column: Column,
    entity: usize,
    /// Newest value and when it was read, for rates.
    last: Option<(f64, f64)>,
}

/// The signals of one tick. Absent is not a number, and not zero.
pub(super) struct Frame {
    /// Seconds after the start of the run.
    pub(super) seconds: f64,
    /// Length of a step of each job, as its log reports it; none if it is stalled.
    pub(super) step_seconds: Vec<Option<f64>>,
    pinger: Pinger,
    probes: Probes,
    columns: Vec<Vec<f64>>,
    /// By node, in the order of its rows.
    wanted: Vec<Vec<Wanted>>,
    /// By node: stamp of its newest scrape.
    heard: Vec<f64>,
}

impl Frame {
    /// An empty frame of a cluster: `readings` are one of each node.
    pub(super) fn new(layout: &Layout, cluster: &Cluster, readings: &[NodeReading]) -> Self {
        let nodes = cluster.nodes();
        let wanted = readings.iter().enumerate().map(|(number, reading)| {
            let samples = reading.samples().iter();
            samples
                .flat_map(|sample| wanted(layout, nodes, number, sample.metric, &sample.labels))
                .collect()
        });
        Self {
            seconds: 0.0,
            step_seconds: Vec::new(),
            pinger: Pinger::new(cluster),
            probes: Probes::default(),
            columns: Column::ALL
                .iter()
                .map(|column| vec![f64::NAN; layout.parts(column.signal().entity).len()])
                .collect(),
            wanted: wanted.collect(),
            heard: vec![f64::NEG_INFINITY; nodes.len()],
        }
    }

    /// What probes and messages of collectives reported.
    pub(super) const fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Begins a tick: nothing is known of it yet but the state of the fabric itself.
    pub(super) fn begin(&mut self, seconds: f64) {
        self.seconds = seconds;
        for column in &mut self.columns {
            column.fill(f64::NAN);
        }
    }

    /// Ingests what is not on scrapes: the paces of jobs, and the baselines' own probes.
    pub(super) fn finish(&mut self, cluster: &Cluster) {
        self.step_seconds = cluster.steps_seconds().collect();
        self.pinger.ask(cluster, self.seconds, &mut self.probes);
    }

    /// Adds a node's report at a given time; a report that is not newer than the previous one is
    /// ignored.
    pub(super) fn take(&mut self, node: usize, reading: &NodeReading, seconds: f64) {
        if seconds <= self.heard[node] {
            return;
        }
        self.heard[node] = seconds;
        let samples = reading.samples();
        let mut next = 0;
        for wanted in &mut self.wanted[node] {
            // Rows keep their order, though some come and go.
            let found = samples[next..].iter().position(|sample| {
                std::ptr::eq(sample.metric, wanted.metric) && sample.labels == wanted.labels
            });
            let Some(found) = found else { continue };
            // Two signals may come from one row.
            next += found;
            let value = samples[next].value.as_f64();
            self.columns[wanted.column as usize][wanted.entity] = match wanted.column.signal().how {
                As::Value => value,
                As::Rate => {
                    let last = wanted.last.replace((seconds, value));
                    last.map_or(f64::NAN, |(at, before)| {
                        // A fall is a reset: what was counted after it counts.
                        let rise = if value >= before {
                            value - before
                        } else {
                            value
                        };
                        rise / (seconds - at)
                    })
                }
            };
        }
    }

    /// A column, by entity.
    pub(super) fn column(&self, column: Column) -> &[f64] {
        &self.columns[column as usize]
    }
}

/// The signals that come from a row, and their entities.
fn wanted(
    layout: &Layout,
    nodes: &[Node],
    node: usize,
    metric: &'static Metric,
    labels: &Labels,
) -> Vec<Wanted> {
    let values: Vec<&str> = labels.values().collect();
    let of_row = |column: &&Column| {
        let signal = column.signal();
        std::ptr::eq(signal.metric, metric)
            && signal
                .label
                .is_none_or(|label| values.last() == Some(&label))
    };
    let own = values.first().copied().unwrap_or_default();
    let name = &nodes[node].name;
    let mut wanted = Vec::new();
    for column in Column::ALL.iter().filter(of_row) {
        let entity = column.signal().entity;
        let is_own = |part: &Part| match part {
            Part::Gpu(_, gpu) => gpu.to_string() == own,
            Part::HostLink(_, port) => port.device.as_str() == own,
            Part::PcieLink(_, pci) => pci.to_string() == own,
            _ => false,
        };
        let parts = layout.parts(entity).iter().enumerate();
        let of_node = parts.filter(|(_, part)| part.node() == Some(name) && is_own(part));
        wanted.extend(of_node.map(|(index, _)| Wanted {
            metric,
            labels: labels.clone(),
            column: *column,
            entity: index,
            last: None,
        }));
    }
    wanted
}

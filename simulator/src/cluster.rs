//! The moving cluster: synchronous jobs on its nodes, counters that follow them, faults that hold them back.

use std::sync::Arc;
use std::time::Duration;

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::units::LinkSpeed;

use crate::conditions::{Conditions, PcieLink, Receive};
use crate::faults::Fault;
use crate::faults::place::{Place, Target};
use crate::faults::site as sites;
use crate::faults::site::Site;
use crate::noise::Noise;
use crate::parts::ethernet::{MTU, Neighbor, Netdev, mac};
use crate::parts::gpu::Gpu;
use crate::parts::port::{Counter, Port, PortState};
use crate::spec::shape::NodeKind;
use crate::spec::{ClusterSpec, SpecError, Transport};
use crate::traffic::contention::Traffic;
use crate::traffic::pfc::Strains;
use crate::wiring::{Device, Host, Nic, Wiring};
use crate::work::job::{Clockwork, Pace};
use crate::work::workload::JobSpec;

mod ethernet;
mod faults;
mod pacing;
mod progress;
mod site;
mod stretch;
mod switches;
mod upsets;

pub use pacing::RankTimes;
pub use site::Maintenance;
pub use switches::{LaneCount, SwitchPort};

/// How long the job has run before the simulation starts: counters do not begin at zero.
const HISTORY_SECONDS: f64 = 6.0 * 3600.0;

/// One node as its hardware shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// What kind of node.
    pub kind: NodeKind,
    /// Its place among the nodes of its group, from 0.
    pub place: u16,
    /// Ports of its NICs, by rail; each NIC has one.
    pub ports: Vec<Port>,
    /// PCIe links above its NICs, by rail.
    pub nic_links: Vec<PcieLink>,
    /// Correctable errors of those links.
    pub nic_link_errors: Vec<u64>,
    /// Whether the bridge above each NIC sends packets for its peers up to the root complex.
    pub nic_redirected: Vec<bool>,
    /// GPUs by ordinal.
    pub gpus: Vec<Gpu>,
    /// Time that the hypervisor has taken from its processors.
    pub stolen_seconds: f64,
    /// Intervals longer than 50, 200 and 1000 microseconds in which its processors did nothing and a timer was
    /// due.
    pub stalls: [u64; 3],
    /// Time in which it waited for its storage and did nothing else.
    pub storage_seconds: f64,
    /// Whether it is switched off: no exporter on it reports anything.
    pub away: bool,
    /// How often its exporter was restarted.
    pub exporter_restarts: u32,
    /// Name of the job that runs on it.
    pub job: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Injected {
    fault: Fault,
    target: Target,
    active: bool,
}

/// A cluster that advances to a given time. The same description, seed, faults and times
/// give the same state, bit for bit.
#[derive(Debug, Clone)]
pub struct Cluster {
    spec: ClusterSpec,
    plan: Wiring,
    built: Wiring,
    noise: Noise,
    jobs: Vec<Job>,
    /// By node: its job and its place among the job's nodes.
    work_of: Vec<Option<(usize, usize)>>,
    nodes: Vec<Node>,
    faults: Vec<Injected>,
    site: Option<Site>,
    site_now: sites::Now,
    conditions: Conditions,
    healthy: Conditions,
    chip_clock: Vec<f64>,
    /// By lane: bytes of the last stretch.
    stretch_bytes: Vec<f64>,
    /// By lane: bytes of all stretches of the last tick.
    lane_bytes: Vec<f64>,
    /// The time that they took.
    lane_seconds: f64,
    /// By lane: what the switch at its beginning has counted.
    lane_counts: Vec<LaneCount>,
    seconds: f64,
    stretches: u64,
}

/// A job and where it is.
#[derive(Debug, Clone)]
struct Job {
    /// Its nodes are those that it has now.
    spec: JobSpec,
    /// Nodes that it has while all of them are there.
    all_nodes: Vec<u16>,
    /// Whether it currently has none.
    stopped: bool,
    /// How often it was launched on other nodes.
    moves: u64,
    /// End of the last such launch, seconds after the start of the simulation.
    resumes_at: f64,
    clockwork: Clockwork,
    /// How often it has been launched again.
    launches: u64,
    /// Its traffic now, and if nothing were broken.
    traffic: Arc<Traffic>,
    usual: Arc<Traffic>,
    /// By collective: what ports show of congestion; nothing on InfiniBand, where credits hold it back.
    strains: Vec<Strains>,
    /// By its nodes: time that each needs on average for the compute of a step.
    node_seconds: Vec<f64>,
    pace: Pace,
    healthy: Pace,
    steps: u64,
    /// How long the steps took that the last advance finished.
    finished: Vec<f64>,
}

impl Job {
    /// A job whose paths are not known yet.
    fn new(spec: JobSpec) -> Self {
        let idle = Pace::new(0.0, [], 0.0);
        Self {
            all_nodes: spec.nodes.clone(),
            stopped: false,
            moves: 0,
            resumes_at: 0.0,
            spec,
            clockwork: Clockwork::default(),
            launches: 0,
            traffic: Arc::default(),
            usual: Arc::default(),
            strains: Vec::new(),
            node_seconds: Vec::new(),
            pace: idle.clone(),
            healthy: idle,
            steps: 0,
            finished: Vec::new(),
        }
    }
}

impl Cluster {
    /// A healthy cluster in the middle of one job over all of its nodes.
    ///
    /// # Errors
    /// The description cannot be wired.
    pub fn new(spec: ClusterSpec, seed: u64) -> Result<Self, SpecError> {
        let jobs = vec![JobSpec::on_first(spec.nodes)];
        Self::with_jobs(spec, jobs, seed)
    }

    /// A healthy cluster in the middle of these jobs. Nodes without one are idle.
    ///
    /// # Errors
    /// The description cannot be wired, or jobs require nodes that do not exist or use one node twice.
    pub fn with_jobs(spec: ClusterSpec, jobs: Vec<JobSpec>, seed: u64) -> Result<Self, SpecError> {
        let plan = Wiring::plan(&spec)?;
        let built = Wiring::built(&spec)?;
        check_jobs(&spec, &jobs)?;
        let noise = Noise::new(seed);
        let conditions = Conditions::of(&built, std::iter::empty(), &sites::Now::default());
        let fitted = |host: &Host| fitted(&spec, &plan, host, noise);
        let nodes: Vec<Node> = plan.hosts.iter().map(fitted).collect();
        let gpus = nodes.iter().flat_map(|node| &node.gpus);
        let chip_clock: Vec<f64> = gpus.map(|gpu| gpu.chip_clock).collect();
        let mut work_of = vec![None; usize::from(spec.nodes)];
        for (number, job) in jobs.iter().enumerate() {
            for (place, node) in job.nodes.iter().enumerate() {
                work_of[usize::from(*node)] = Some((number, place));
            }
        }
        let mut cluster = Self {
            work_of,
            jobs: jobs
                .into_iter()
                .map(|job| Job::new(job.spread_over(spec.node.shape().nics_per_gpu())))
                .collect(),
            spec,
            stretch_bytes: vec![0.0; built.lanes()],
            lane_bytes: vec![0.0; built.lanes()],
            lane_seconds: 0.0,
            lane_counts: vec![LaneCount::default(); built.lanes()],
            plan,
            built,
            noise,
            nodes,
            faults: Vec::new(),
            site: None,
            site_now: sites::Now::default(),
            healthy: conditions.clone(),
            conditions: conditions.clone(),
            chip_clock,
            seconds: 0.0,
            stretches: 0,
        };
        cluster.show_jobs();
        cluster.find_ways();
        cluster.change_to(conditions);
        for job in &mut cluster.jobs {
            job.healthy = job.pace.clone();
        }
        cluster.show_links();
        cluster.history(HISTORY_SECONDS);
        for job in &mut cluster.jobs {
            job.steps = 0;
        }
        cluster.add_old_scars();
        Ok(cluster)
    }

    /// The cluster, for faults that search it for their parts.
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            plan: &self.plan,
            transport: self.spec.transport,
            routing: self.spec.routing,
        }
    }

    /// A few ports have seen a cable pulled long ago, as in every real cluster: a count that stands is
    /// no fault.
    fn add_old_scars(&mut self) {
        for (number, port) in (0..).zip(self.nodes.iter_mut().flat_map(|node| &mut node.ports)) {
            let noise = self.noise.part(SCARS).part(number);
            if noise.uniform(0) < 0.1 {
                port.add(Counter::LinkDowned, 1 + noise.bits(1) % 3);
            }
        }
    }

    /// What was requested.
    pub const fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// The wiring that was planned.
    pub const fn plan(&self) -> &Wiring {
        &self.plan
    }

    /// The wiring as it is now: dark cables are missing, slow ones show their speed, mixed-up ones
    /// are mixed up.
    pub const fn wiring(&self) -> &Wiring {
        &self.conditions.wiring
    }

    /// All nodes as they are now.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All jobs, in the order in which they were given.
    pub fn jobs(&self) -> impl Iterator<Item = &JobSpec> {
        self.jobs.iter().map(|job| &job.spec)
    }

    /// What holds now.
    pub(crate) const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Noise of external measurements of the cluster, separate from its own.
    pub(crate) const fn probe_noise(&self) -> Noise {
        self.noise.part(PROBES)
    }

    /// Time since the start of the simulation.
    pub(crate) const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Advances to a time, counted from the start of the simulation. Time never goes back.
    pub fn advance(&mut self, to: Duration) {
        let to = to.as_secs_f64();
        self.lane_bytes.fill(0.0);
        self.lane_seconds = to - self.seconds;
        for job in &mut self.jobs {
            job.finished.clear();
        }
        while self.seconds < to {
            self.update_site();
            self.update_faults();
            self.relaunch();
            let faults = self.faults.iter();
            let faults = faults.filter_map(|injected| injected.fault.next_change(self.seconds));
            let jobs = self.jobs.iter().map(|job| job.next_change(self.seconds));
            let site = self.site.iter();
            let site = site.map(|site| site.next_change(self.seconds, &self.plan));
            let next = faults.chain(jobs).chain(site).fold(to, f64::min);
            self.stretch(next - self.seconds);
            for (tick, stretch) in self.lane_bytes.iter_mut().zip(&self.stretch_bytes) {
                *tick += stretch;
            }
            self.seconds = next;
        }
        self.update_site();
        self.update_faults();
    }

    fn port_mut(&mut self, nic: usize) -> &mut Port {
        let (node, slot) = self.port_at(nic);
        &mut self.nodes[node].ports[slot]
    }

    /// Node of a NIC and the NIC's number in it.
    fn port_at(&self, nic: usize) -> (usize, usize) {
        (self.plan.nics[nic].node.into(), self.plan.slot(nic))
    }

    fn show_links(&mut self) {
        /// What a port without an optical signal reports.
        const NO_LIGHT: LinkSpeed = LinkSpeed {
            lanes: 4,
            speed: "SDR",
        };
        /// What mlx5 reports about an Ethernet port without an optical signal
        /// (`mlx5_query_port_roce`).
        const NO_ETHERNET: LinkSpeed = LinkSpeed {
            lanes: 4,
            speed: "QDR",
        };
        for nic in 0..self.plan.nics.len() {
            let (condition, lid) = (self.conditions.ports[nic], self.plan.nics[nic].lid);
            let (speed, link, redirected) = (condition.speed, condition.pcie, condition.redirected);
            let neighbor = self.neighbor(nic);
            let port = self.port_mut(nic);
            if port.efa.is_some() {
                // Its driver reports what the device can do, whatever the fabric does.
            } else if let Some(netdev) = &mut port.netdev {
                netdev.set_carrier(speed.is_some());
                netdev.mtu = match condition.receive {
                    Receive::TooLong(mtu) => mtu,
                    Receive::Works | Receive::Stuck => MTU,
                };
                netdev.neighbor = neighbor;
                (port.state, port.speed) = match speed {
                    Some(speed) => (PortState::Active, speed),
                    None => (PortState::Disabled, NO_ETHERNET),
                };
            } else {
                (port.state, port.speed, port.lid) = match speed {
                    Some(speed) => (PortState::Active, speed, lid),
                    None => (PortState::Down, NO_LIGHT, 0xffff),
                };
            }
            let (node, slot) = self.port_at(nic);
            self.nodes[node].nic_links[slot] = link;
            self.nodes[node].nic_redirected[slot] = redirected;
        }
    }

    /// The device that advertises its name at the other end of a NIC's cable: switches do.
    fn neighbor(&self, nic: usize) -> Option<Neighbor> {
        let wiring = &self.conditions.wiring;
        let (Device::Switch(switch), port) = wiring.cable_of(nic)?.ends[1] else {
            return None;
        };
        let switch = &wiring.switches[switch];
        Some(Neighbor {
            chassis: mac(switch.guid),
            system: switch.name.to_string(),
            port: wiring.port_name(port).to_string(),
        })
    }

    /// A GPU of this cluster as a part.
    pub fn gpu_part(&self, node: u16, gpu: u8) -> Option<Part> {
        let node = self.nodes.get(usize::from(node))?;
        let has = usize::from(gpu) < node.gpus.len();
        has.then(|| Part::Gpu(node.name.clone(), GpuIndex(gpu.into())))
    }
}

/// A healthy node.
fn fitted(spec: &ClusterSpec, plan: &Wiring, host: &Host, noise: Noise) -> Node {
    let shape = host.kind.shape();
    let nics = &plan.nics[host.nics.clone()];
    let cables = &plan.cables[host.nics.clone()];
    let ports = nics.iter().zip(cables);
    let gpu = |gpu| Gpu::new(&shape.gpu, noise.part(GPUS).part(gpu as u64));
    Node {
        name: nics[0].node_name.clone(),
        kind: host.kind,
        place: host.place,
        ports: ports
            .map(|(nic, cable)| port(spec, nic, cable.speed))
            .collect(),
        nic_links: vec![shape.pcie; nics.len()],
        nic_link_errors: vec![0; nics.len()],
        nic_redirected: vec![false; nics.len()],
        gpus: host.gpus.clone().map(gpu).collect(),
        stolen_seconds: 0.0,
        stalls: [0; 3],
        storage_seconds: 0.0,
        away: false,
        exporter_restarts: 0,
        job: None,
    }
}

/// Streams of noise, by what they are for.
const GPUS: u64 = 1;
const SCARS: u64 = 2;
const PORTS: u64 = 3;
const SYMPTOMS: u64 = 4;
const JITTER: u64 = 5;
const FLOWS: u64 = 6;
const LOSSES: u64 = 7;
const HOSTS: u64 = 8;
const STEPS: u64 = 9;
const STRAINS: u64 = 11;
const STORMS: u64 = 12;
const PROBES: u64 = 13;
const ROOMS: u64 = 14;

/// The port of a NIC as it is at first.
fn port(spec: &ClusterSpec, nic: &Nic, speed: LinkSpeed) -> Port {
    match spec.transport {
        Transport::Infiniband => Port::new(speed, nic.lid),
        Transport::Roce => {
            let netdev = Netdev::new(nic.guid, nic.pci(), spec.planes, spec.dcqcn);
            Port::roce(speed, netdev)
        }
        Transport::Efa => Port::efa(speed),
    }
}

fn check_jobs(spec: &ClusterSpec, jobs: &[JobSpec]) -> Result<(), SpecError> {
    let mut taken = vec![None; usize::from(spec.nodes)];
    for job in jobs {
        for node in &job.nodes {
            let Some(owner) = taken.get_mut(usize::from(*node)) else {
                return Err(SpecError::new(
                    "jobs.nodes",
                    format!(
                        "found node {node} in {}, expected less than {}",
                        job.name, spec.nodes
                    ),
                ));
            };
            if let Some(other) = owner.replace(&job.name) {
                return Err(SpecError::new(
                    "jobs.nodes",
                    format!(
                        "found node {node} in {other} and in {}, expected it in one job",
                        job.name
                    ),
                ));
            }
        }
        job.check()?;
    }
    Ok(())
}

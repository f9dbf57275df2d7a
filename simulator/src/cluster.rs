//! The moving cluster: synchronous jobs on its nodes, counters that follow them, faults that hold them back.

use std::time::Duration;

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::units::LinkSpeed;

use crate::conditions::{Conditions, PcieLink, Target, resolve};
use crate::contention::{Traffic, paces};
use crate::fault::{Effect, Fault, FaultError, Truth};
use crate::gpu::Gpu;
use crate::job::{Clockwork, Pace};
use crate::noise::Noise;
use crate::port::{Counter, Port, PortState};
use crate::route::Router;
use crate::spec::{ClusterSpec, SpecError};
use crate::wiring::Wiring;
use crate::workload::JobSpec;

mod stretch;

/// How long the job has run before the simulation starts: counters do not begin at zero.
const HISTORY_SECONDS: f64 = 6.0 * 3600.0;

/// One node as its hardware shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// Ports of its NICs, by rail; each NIC has one.
    pub ports: Vec<Port>,
    /// PCIe links above its NICs, by rail.
    pub nic_links: Vec<PcieLink>,
    /// GPUs by ordinal.
    pub gpus: Vec<Gpu>,
}

#[derive(Debug, Clone)]
struct Injected {
    fault: Fault,
    target: Target,
    active: bool,
}

/// A cluster that moves when it is told the time. The same description, seed, faults and times give
/// the same state, bit for bit.
#[derive(Debug, Clone)]
pub struct Cluster {
    spec: ClusterSpec,
    plan: Wiring,
    built: Wiring,
    noise: Noise,
    jobs: Vec<Job>,
    nodes: Vec<Node>,
    faults: Vec<Injected>,
    conditions: Conditions,
    healthy: Conditions,
    chip_clock: Vec<f64>,
    lane_bytes: Vec<f64>,
    seconds: f64,
    stretches: u64,
}

/// A job and where it is.
#[derive(Debug, Clone)]
struct Job {
    spec: JobSpec,
    clockwork: Clockwork,
    traffic: Traffic,
    pace: Pace,
    healthy: Pace,
    steps: u64,
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
    /// The description cannot be wired, or jobs want nodes that are not there or two the same one.
    pub fn with_jobs(spec: ClusterSpec, jobs: Vec<JobSpec>, seed: u64) -> Result<Self, SpecError> {
        let plan = Wiring::plan(&spec)?;
        let built = Wiring::built(&spec)?;
        check_jobs(&spec, &jobs)?;
        let noise = Noise::new(seed);
        let gpus: Vec<Gpu> = (0..u64::from(spec.nodes) * u64::from(spec.gpus_per_node))
            .map(|gpu| Gpu::new(noise.part(GPUS).part(gpu)))
            .collect();
        let chip_clock: Vec<f64> = gpus.iter().map(|gpu| gpu.chip_clock).collect();
        let speed = spec.speed.link();
        let conditions = Conditions::of(&built, gpus.len(), std::iter::empty());
        let nodes = plan
            .nics
            .chunks(spec.ports_per_node())
            .zip(gpus.chunks(usize::from(spec.gpus_per_node)))
            .map(|(nics, gpus)| Node {
                name: nics[0].node_name.clone(),
                ports: nics.iter().map(|nic| Port::new(speed, nic.lid)).collect(),
                nic_links: vec![PcieLink::FULL; nics.len()],
                gpus: gpus.to_vec(),
            })
            .collect();
        let idle = Pace::new(0.0, []);
        let jobs = jobs.into_iter().map(|spec| Job {
            spec,
            clockwork: Clockwork::default(),
            traffic: Traffic::default(),
            pace: idle.clone(),
            healthy: idle.clone(),
            steps: 0,
        });
        let mut cluster = Self {
            jobs: jobs.collect(),
            spec,
            lane_bytes: vec![0.0; built.lanes()],
            plan,
            built,
            noise,
            nodes,
            faults: Vec::new(),
            healthy: conditions.clone(),
            conditions,
            chip_clock,
            seconds: 0.0,
            stretches: 0,
        };
        cluster.reroute();
        for job in &mut cluster.jobs {
            job.healthy = job.pace.clone();
        }
        cluster.show_links();
        cluster.stretch(HISTORY_SECONDS);
        for job in &mut cluster.jobs {
            job.steps = 0;
        }
        cluster.add_old_scars();
        Ok(cluster)
    }

    /// Traffic and pace of every job under these conditions.
    fn under(&self, conditions: &Conditions) -> Vec<(Traffic, Pace)> {
        let router = Router::new(&conditions.wiring, self.spec.routing);
        let seed = self.noise.part(FLOWS).bits(0);
        let traffic: Vec<Traffic> = self
            .jobs
            .iter()
            .map(|job| Traffic::of(&job.spec, &conditions.wiring, &router, seed))
            .collect();
        let jobs: Vec<_> = self
            .jobs
            .iter()
            .map(|job| &job.spec)
            .zip(&traffic)
            .collect();
        let clocks = conditions.node_clocks(&self.chip_clock, self.spec.gpus_per_node.into());
        let paces = paces(&jobs, &conditions.capacity, &clocks);
        traffic.into_iter().zip(paces).collect()
    }

    fn reroute(&mut self) {
        let now = self.under(&self.conditions);
        for (job, (traffic, pace)) in self.jobs.iter_mut().zip(now) {
            job.traffic = traffic;
            job.pace = pace;
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

    /// What was asked for.
    pub const fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// The wiring that was planned.
    pub const fn plan(&self) -> &Wiring {
        &self.plan
    }

    /// The wiring as it is now: dark cables are missing, slow ones say so, mixed-up ones are mixed up.
    pub const fn wiring(&self) -> &Wiring {
        &self.conditions.wiring
    }

    /// All nodes as they are now.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Steps that the first job has finished since the start of the simulation.
    pub fn steps(&self) -> u64 {
        self.jobs.first().map_or(0, |job| job.steps)
    }

    /// Length of a step of the first job at the pace of now; none if it stands still.
    pub fn step_seconds(&self) -> Option<f64> {
        self.jobs.first()?.pace.step_seconds()
    }

    /// Length of a step of each job, in the order in which they were given.
    pub fn steps_seconds(&self) -> impl Iterator<Item = Option<f64>> {
        self.jobs.iter().map(|job| job.pace.step_seconds())
    }

    /// Bytes that have crossed each lane in the last tick, noise apart.
    pub fn lane_bytes(&self) -> &[f64] {
        &self.lane_bytes
    }

    /// Lets a fault happen when its time comes, and says what will be true then. Each truth is that of
    /// the fault alone, whatever others last at the same time.
    ///
    /// # Errors
    /// The cluster has no such part, or its part cannot fail so.
    pub fn inject(&mut self, fault: Fault) -> Result<Truth, FaultError> {
        let speed = self.spec.speed.link();
        let target = resolve(&self.plan, self.spec.gpus_per_node, speed, &fault)?;
        let alone = Conditions::of(
            &self.built,
            self.chip_clock.len(),
            std::iter::once((&fault.effect, target)),
        );
        let slowdowns = self.under(&alone);
        let slowdowns = slowdowns.iter().zip(&self.jobs).map(|((_, pace), job)| {
            let healthy = job.healthy.step_seconds();
            pace.step_seconds()
                .zip(healthy)
                .map(|(step, healthy)| step / healthy)
        });
        // Of the job that it hurts most; one that stands still has no factor.
        let slowdown = slowdowns
            .into_iter()
            .try_fold(1.0_f64, |worst, of_job| Some(worst.max(of_job?)));
        let truth = Truth {
            part: fault.part.clone(),
            cause: fault.effect.cause(),
            class: fault.effect.class(),
            severity: fault.effect.severity(speed),
            slowdown,
            victims: self.victims(target),
            accomplices: match &fault.effect {
                Effect::Miscabled { with } => vec![with.clone()],
                _ => Vec::new(),
            },
        };
        self.faults.push(Injected {
            fault,
            target,
            active: false,
        });
        Ok(truth)
    }

    /// Who sends to a NIC: NICs of the same number of the nodes before it in its job's collectives.
    fn senders_to(&self, nic: usize) -> Vec<usize> {
        let (node, slot) = (self.plan.nics[nic].node, self.plan.slot(nic));
        let mut senders = Vec::new();
        for job in &self.jobs {
            let nodes = &job.spec.nodes;
            let Some(place) = nodes.iter().position(|other| *other == node) else {
                continue;
            };
            let workload = &job.spec.workload;
            for collective in &workload.collectives {
                let groups = workload.groups(collective.pattern, nodes.len());
                let pairs = groups.into_iter().flatten();
                let into = pairs.filter(|(_, to, _)| *to == place);
                senders.extend(into.map(|(from, ..)| self.plan.nic_index(nodes[from], slot)));
            }
        }
        senders.sort_unstable();
        senders.dedup();
        senders
    }

    fn victims(&self, target: Target) -> Vec<Part> {
        let senders = target
            .nics()
            .into_iter()
            .flat_map(|nic| self.senders_to(nic));
        senders
            .map(|sender| self.plan.nics[sender].link_part())
            .collect()
    }

    /// Moves on to a moment, counted from the start of the simulation. Time never goes back.
    pub fn advance(&mut self, to: Duration) {
        let to = to.as_secs_f64();
        while self.seconds < to {
            self.update_faults();
            let next = self
                .faults
                .iter()
                .flat_map(|injected| {
                    [
                        Some(injected.fault.onset_seconds),
                        injected.fault.end_seconds,
                    ]
                })
                .flatten()
                .filter(|change| *change > self.seconds)
                .fold(to, f64::min);
            self.stretch(next - self.seconds);
            self.seconds = next;
        }
        self.update_faults();
    }

    fn update_faults(&mut self) {
        let mut changed = Vec::new();
        for injected in &mut self.faults {
            let active = injected.fault.lasts_at(self.seconds);
            if active != injected.active {
                injected.active = active;
                changed.push((injected.fault.clone(), injected.target));
            }
        }
        if changed.is_empty() {
            return;
        }
        let active = self.faults.iter().filter(|injected| injected.active);
        self.conditions = Conditions::of(
            &self.built,
            self.chip_clock.len(),
            active.map(|injected| (&injected.fault.effect, injected.target)),
        );
        self.reroute();
        self.show_links();
        for (fault, target) in changed {
            let replugged = fault.onset_seconds > 0.0
                && matches!(
                    fault.effect,
                    Effect::PortDown | Effect::PortRateDegraded { .. } | Effect::Miscabled { .. }
                );
            // The link went away once, at the onset.
            if replugged && fault.lasts_at(self.seconds) {
                for nic in target.nics() {
                    self.port_mut(nic).add(Counter::LinkDowned, 1);
                }
            }
        }
    }

    fn port_mut(&mut self, nic: usize) -> &mut Port {
        let ports = self.spec.ports_per_node();
        &mut self.nodes[nic / ports].ports[nic % ports]
    }

    fn show_links(&mut self) {
        /// What a port without light reports.
        const NO_LIGHT: LinkSpeed = LinkSpeed {
            lanes: 4,
            speed: "SDR",
        };
        for nic in 0..self.plan.nics.len() {
            let (speed, lid) = (self.conditions.speed[nic], self.plan.nics[nic].lid);
            let link = self.conditions.pcie[nic];
            let port = self.port_mut(nic);
            port.state = if speed.is_some() {
                PortState::Active
            } else {
                PortState::Down
            };
            port.speed = speed.unwrap_or(NO_LIGHT);
            port.lid = if speed.is_some() { lid } else { 0xffff };
            let ports = self.spec.ports_per_node();
            self.nodes[nic / ports].nic_links[nic % ports] = link;
        }
    }

    /// A GPU of this cluster as a part.
    pub fn gpu_part(&self, node: u16, gpu: u8) -> Option<Part> {
        let name = &self.nodes.get(usize::from(node))?.name;
        (gpu < self.spec.gpus_per_node).then(|| Part::Gpu(name.clone(), GpuIndex(gpu.into())))
    }
}

/// Streams of noise, by what they are for.
const GPUS: u64 = 1;
const SCARS: u64 = 2;
const PORTS: u64 = 3;
const SYMPTOMS: u64 = 4;
const JITTER: u64 = 5;
const FLOWS: u64 = 6;

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
        let stages = usize::from(job.workload.stages);
        if stages == 0 || job.workload.microbatches == 0 || !job.nodes.len().is_multiple_of(stages)
        {
            return Err(SpecError::new(
                "jobs.workload.stages",
                format!(
                    "found {stages} in {}, expected a divisor of its {} nodes, and at least one microbatch",
                    job.name,
                    job.nodes.len()
                ),
            ));
        }
    }
    Ok(())
}

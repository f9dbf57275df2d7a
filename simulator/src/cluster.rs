//! The moving cluster: one synchronous job over all nodes, counters that follow it, faults that hold it back.

use std::time::Duration;

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::units::LinkSpeed;

use crate::conditions::{Conditions, PcieLink, Target, resolve};
use crate::fault::{Effect, Fault, FaultError, Truth};
use crate::gpu::{Gpu, Load};
use crate::job::{Job, Pace, Progress, Workload};
use crate::noise::Noise;
use crate::port::{BYTES_PER_PORT_DATA_WORD, Counter, Port, PortState};
use crate::spec::{ClusterSpec, SpecError};
use crate::wiring::Wiring;

/// Payload of a packet: the 4 KiB path MTU of InfiniBand.
const PACKET_BYTES: f64 = 4096.0;
/// Bytes of one RDMA write: NCCL cuts its 4 MiB buffer into 8 slots.
const WRITE_BYTES: f64 = 524_288.0;
/// Ticks of `port_xmit_wait` in a second. Hardware has no fixed value; a choice of its order.
const WAIT_TICKS_PER_SECOND: f64 = 15.625e6;
/// Share of the collective in which a healthy port has data and no credit (an engineering estimate).
const HEALTHY_WAIT: f64 = 5e-4;
/// 4.096 us * 2^20: how long a queue pair waits for an answer at NCCL_IB_TIMEOUT=20.
const ACK_TIMEOUT_SECONDS: f64 = 4.3;
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
    job: Job,
    nodes: Vec<Node>,
    faults: Vec<Injected>,
    conditions: Conditions,
    chip_clock: Vec<f64>,
    healthy: Pace,
    seconds: f64,
    stretches: u64,
    steps: u64,
}

impl Cluster {
    /// A healthy cluster in the middle of a job.
    ///
    /// # Errors
    /// The description cannot be wired.
    pub fn new(spec: ClusterSpec, seed: u64) -> Result<Self, SpecError> {
        let plan = Wiring::plan(&spec)?;
        let built = Wiring::built(&spec)?;
        let noise = Noise::new(seed);
        let job = Job::new(Workload::default());
        let gpus: Vec<Gpu> = (0..u64::from(spec.nodes) * u64::from(spec.gpus_per_node))
            .map(|gpu| Gpu::new(noise.part(GPUS).part(gpu)))
            .collect();
        let chip_clock: Vec<f64> = gpus.iter().map(|gpu| gpu.chip_clock).collect();
        let speed = spec.speed.link();
        let conditions = Conditions::of(&built, gpus.len(), std::iter::empty());
        let healthy = conditions.pace(job.workload(), &chip_clock);
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
        let mut cluster = Self {
            spec,
            plan,
            built,
            noise,
            job,
            nodes,
            faults: Vec::new(),
            conditions,
            chip_clock,
            healthy,
            seconds: 0.0,
            stretches: 0,
            steps: 0,
        };
        cluster.show_links();
        cluster.stretch(HISTORY_SECONDS);
        cluster.steps = 0;
        cluster.add_old_scars();
        Ok(cluster)
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

    /// Steps that the job has finished since the start of the simulation.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Length of a step at the pace of now; none if the job stands still.
    pub fn step_seconds(&self) -> Option<f64> {
        let pace = self.conditions.pace(self.job.workload(), &self.chip_clock);
        pace.step_seconds(self.job.workload())
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
        let workload = self.job.workload();
        let pace = alone.pace(workload, &self.chip_clock);
        let healthy = self.healthy.step_seconds(workload);
        let truth = Truth {
            part: fault.part.clone(),
            cause: fault.effect.cause(),
            class: fault.effect.class(),
            severity: fault.effect.severity(speed),
            slowdown: pace
                .step_seconds(workload)
                .zip(healthy)
                .map(|(step, healthy)| step / healthy),
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

    /// Who sends to a NIC in the ring: the same rail of the node before.
    fn sender_to(&self, nic_number: usize) -> Option<usize> {
        let nic = self.plan.nics.get(nic_number)?;
        let before = nic.node.checked_sub(1).unwrap_or(self.spec.nodes - 1);
        (before != nic.node).then(|| self.plan.nic_index(before, self.plan.slot(nic_number)))
    }

    fn victims(&self, target: Target) -> Vec<Part> {
        let senders = target
            .nics()
            .into_iter()
            .filter_map(|nic| self.sender_to(nic));
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

    /// Lives through a stretch in which no fault comes or goes.
    fn stretch(&mut self, seconds: f64) {
        let pace = self.conditions.pace(self.job.workload(), &self.chip_clock);
        let progress = self.job.advance(seconds, &pace);
        self.steps += progress.steps;
        self.stretches += 1;
        self.count_traffic(&pace, &progress);
        self.count_symptoms(&pace, &progress);
        self.work_gpus(&pace, &progress);
    }

    fn count_traffic(&mut self, pace: &Pace, progress: &Progress) {
        for nic in 0..self.plan.nics.len() {
            if pace.bytes_per_second <= 0.0 {
                break;
            }
            let noise = self.noise.part(PORTS).part(nic as u64);
            let index = self.stretches * 4;
            // A thousandth of noise: control traffic, retries of software, unequal chunks.
            let bytes = |draw: u64| progress.bytes * (1.0 + 1e-3 * noise.normal(index + draw));
            let (sent, received) = (bytes(0), bytes(1));
            let wait = HEALTHY_WAIT * (1.0 + 0.2 * noise.normal(index + 2));
            let ticks = progress.collective_seconds * wait * WAIT_TICKS_PER_SECOND;
            let port = self.port_mut(nic);
            let words = |bytes: f64| (bytes / BYTES_PER_PORT_DATA_WORD as f64) as u64;
            let packets = |bytes: f64| (bytes / PACKET_BYTES) as u64;
            port.add(Counter::PortXmitData, words(sent));
            port.add(Counter::PortRcvData, words(received));
            for counter in [Counter::PortXmitPackets, Counter::UnicastXmitPackets] {
                port.add(counter, packets(sent));
            }
            for counter in [Counter::PortRcvPackets, Counter::UnicastRcvPackets] {
                port.add(counter, packets(received));
            }
            port.add(Counter::RxWriteRequests, (received / WRITE_BYTES) as u64);
            port.add(Counter::PortXmitWait, ticks as u64);
        }
    }

    /// What faults make ports count, at the culprit and at the one that sends to it.
    fn count_symptoms(&mut self, pace: &Pace, progress: &Progress) {
        let healthy = self.healthy;
        let blocked = 1.0 - pace.bytes_per_second / healthy.bytes_per_second;
        for nic in 0..self.plan.nics.len() {
            let sender = self.sender_to(nic);
            let noise = self.noise.part(SYMPTOMS).part(nic as u64);
            let index = self.stretches * 8;
            // Rounds up or down at random, so that slow rates do not vanish in short ticks.
            let count = |rate: f64, draw: u64| {
                (rate * progress.seconds() + noise.uniform(index + draw)).floor() as u64
            };
            if let Some(errors) = self.conditions.errors[nic] {
                let port = self.port_mut(nic);
                port.add(Counter::SymbolError, count(errors.symbol_errors, 0));
                port.add(Counter::PortRcvErrors, count(errors.receive_errors, 1));
                port.add(Counter::LinkErrorRecovery, count(errors.recoveries, 2));
                if let Some(sender) = sender {
                    let lost = count(errors.receive_errors, 1);
                    self.port_mut(sender).add(Counter::PacketSeqErr, lost);
                }
            }
            let Some(sender) = sender else { continue };
            if self.conditions.speed[nic].is_none() {
                let timeouts = count(1.0 / ACK_TIMEOUT_SECONDS, 3);
                self.port_mut(sender)
                    .add(Counter::LocalAckTimeoutErr, timeouts);
            } else if self.conditions.holds_back(nic, pace, &healthy) {
                // The slow receiver gives no credit while it drains.
                let ticks = progress.collective_seconds * blocked * WAIT_TICKS_PER_SECOND;
                self.port_mut(sender)
                    .add(Counter::PortXmitWait, ticks as u64);
            }
        }
    }

    fn work_gpus(&mut self, pace: &Pace, progress: &Progress) {
        let clocks: Vec<f64> = self.conditions.clocks(&self.chip_clock).collect();
        let compute_share = progress.compute_seconds / progress.seconds().max(f64::MIN_POSITIVE);
        let gpus = self.nodes.iter_mut().flat_map(|node| &mut node.gpus);
        for (number, (gpu, clock)) in gpus.zip(clocks).enumerate() {
            let own = self.job.workload().compute_seconds / clock;
            let load = Load {
                seconds: progress.seconds(),
                // The slowest computes all the time; the others wait for it.
                duty: compute_share * own / pace.compute_seconds,
                thermal: self.conditions.thermal[number],
            };
            let noise = self.noise.part(JITTER).part(number as u64);
            gpu.advance(load, noise.normal(self.stretches));
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

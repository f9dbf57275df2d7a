//! A stretch of time: what the jobs do in it, and what ports and GPUs count of that.

use railscope_model::units::BYTES_PER_PORT_DATA_WORD;

use super::{Cluster, HOSTS, JITTER, LOSSES, PORTS, SYMPTOMS};
use crate::parts::efa::UNRESPONSIVE_SECONDS;
use crate::parts::gpu::Load;
use crate::parts::port::{Counter, Port};
use crate::traffic::pfc::ACK_TIMEOUT_SECONDS;
use crate::traffic::router::{Lane, Routing};
use crate::work::job::Progress;
use crate::work::schedule::Activity;
use crate::work::workload::PACKET_BYTES;

/// Bytes of one RDMA write: NCCL cuts its 4 MiB buffer into 8 slots.
const WRITE_BYTES: f64 = 524_288.0;
/// Ticks of `port_xmit_wait` in a second. Hardware has no fixed value; a choice of its order.
pub(super) const WAIT_TICKS_PER_SECOND: f64 = 15.625e6;
/// Share of the packets that arrive after their successors where switches choose the path of each (an engineering
/// estimate; what matters is that this occurs without a fault).
const REORDERED: f64 = 1e-3;
/// Share of the collective in which a healthy port has data and no credit (an engineering estimate).
const HEALTHY_WAIT: f64 = 5e-4;
/// Standard deviation of the bytes that a NIC moves in a step, as a share of them: control traffic, retries of
/// software, unequal chunks. Over 10 s that is a thousandth or two, between the jobs of `docs/anchors.md`.
const BYTES_NOISE: f64 = 5e-3;
/// Time between two wake-ups of the exporter's timer probe on a usual node.
const PROBE_PERIOD_SECONDS: f64 = 0.02;
/// Stalls longer than this are counted, in the order of [`super::Node::stalls`].
const STALL_SECONDS: [f64; 3] = [50e-6, 200e-6, 1e-3];

/// Counts what a port has sent and received.
fn count_bytes(port: &mut Port, [sent, received]: [f64; 2]) {
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
}

impl Cluster {
    /// Simulates a stretch in which no fault begins or ends.
    pub(super) fn stretch(&mut self, seconds: f64) {
        let mut done = Vec::new();
        for number in 0..self.jobs.len() {
            let uneven = self.unevenness(number);
            let job = &mut self.jobs[number];
            let (workload, usual) = (&job.spec.workload, &job.pace);
            let pace = |step| {
                usual.with_compute(uneven.compute_seconds(step, workload, &job.node_seconds))
            };
            let progress = match job.activity(self.seconds) {
                Activity::Training => {
                    let progress = job.clockwork.advance(seconds, pace);
                    job.steps += progress.steps;
                    job.finished.extend(&progress.step_seconds);
                    progress
                }
                Activity::Evaluation => {
                    let alone = |step| pace(step).without_collectives();
                    let mut progress = job.clockwork.advance(seconds, alone);
                    // Done in no time is not done.
                    progress.collectives.fill(0.0);
                    progress
                }
                Activity::Checkpoint | Activity::Launch => {
                    Progress::none(usual.collectives().len())
                }
            };
            done.push(progress);
        }
        self.count(seconds, &done);
    }

    /// Lives through a long time of steps that are all alike.
    pub(super) fn history(&mut self, seconds: f64) {
        let jobs = self.jobs.iter_mut();
        let done: Vec<Progress> = jobs
            .map(|job| job.clockwork.skip(seconds, &job.pace))
            .collect();
        self.count(seconds, &done);
    }

    /// What ports, GPUs and nodes count of what the jobs did.
    fn count(&mut self, seconds: f64, done: &[Progress]) {
        self.stretches += 1;
        self.stretch_bytes.fill(0.0);
        for (job, progress) in self.jobs.iter().zip(done) {
            let collectives = job.spec.workload.collectives.iter();
            let streams = collectives.zip(&job.traffic.streams);
            for ((collective, streams), times) in streams.zip(&progress.collectives) {
                for (lane, share) in streams.iter().flat_map(|stream| &stream.use_of) {
                    self.stretch_bytes[lane.index()] += times * collective.bytes * share;
                }
            }
        }
        for (job, progress) in done.iter().enumerate() {
            self.count_traffic(job, progress);
            self.count_symptoms(job, progress);
            self.count_losses(job, progress);
            self.count_strains(job, progress, seconds);
        }
        self.count_corruption(seconds);
        self.count_storms(seconds);
        self.count_pause(done, seconds);
        self.count_lanes(seconds);
        self.count_on_hosts(seconds);
        self.work_gpus(seconds, done);
    }

    /// NICs of a job, by index.
    pub(super) fn nics_of(&self, job: usize) -> Vec<usize> {
        let nodes = self.jobs[job].spec.nodes.iter();
        nodes
            .flat_map(|node| self.plan.hosts[usize::from(*node)].nics.clone())
            .collect()
    }

    fn count_traffic(&mut self, job: usize, progress: &Progress) {
        // Over several steps it comes to less.
        let step = self.jobs[job].pace.step_seconds();
        let steps = step.map_or(1.0, |step| progress.seconds() / step).max(1.0);
        let share = BYTES_NOISE / steps.sqrt();
        let reordered = match self.spec.routing {
            Routing::Adaptive => REORDERED / PACKET_BYTES,
            Routing::Static | Routing::Minhop | Routing::Ecmp => 0.0,
        };
        for nic in self.nics_of(job) {
            let moved =
                [Lane::up(nic), Lane::down(nic)].map(|lane| self.stretch_bytes[lane.index()]);
            if moved == [0.0, 0.0] {
                continue;
            }
            let noise = self.noise.part(PORTS).part(nic as u64);
            let index = self.stretches * 4;
            let bytes =
                |draw: usize| moved[draw] * (1.0 + share * noise.normal(index + draw as u64));
            let (sent, received) = (bytes(0), bytes(1));
            let wait = HEALTHY_WAIT * (1.0 + 0.2 * noise.normal(index + 2));
            let ticks = progress.moving_seconds() * wait * WAIT_TICKS_PER_SECOND;
            self.count_wait(nic, progress.moving_seconds() * HEALTHY_WAIT);
            let port = self.port_mut(nic);
            count_bytes(port, [sent, received]);
            port.add(Counter::RxWriteRequests, (received / WRITE_BYTES) as u64);
            port.add(Counter::OutOfSequence, (received * reordered) as u64);
            port.add(Counter::PortXmitWait, ticks as u64);
        }
    }

    /// What faults make ports count, at the faulty component and at those that send to it.
    fn count_symptoms(&mut self, job: usize, progress: &Progress) {
        for nic in self.nics_of(job) {
            let held = self.held_back_by(nic, job);
            let condition = self.conditions.ports[nic];
            let (errors, dark) = (condition.errors, condition.speed.is_none());
            let node = usize::from(self.plan.nics[nic].node);
            let not_ready = self.conditions.hosts[node].not_ready_per_second;
            if errors.is_none() && !dark && held.is_none() && not_ready == 0.0 {
                continue;
            }
            if let Some(blocked) = held.filter(|_| self.conditions.host_is_slower(nic)) {
                // The switch before it has what it may not send; a slow cable would be busy all the time instead.
                self.count_wait(nic, progress.moving_seconds() * blocked);
            }
            let senders = self.senders_to(nic);
            let count = self.events_at(nic, progress.seconds());
            if let Some(errors) = errors {
                let port = self.port_mut(nic);
                port.add(Counter::PortRcvErrors, count(errors.receive_errors, 1));
                if port.netdev.is_some() {
                    // What follows a lost packet comes out of order.
                    port.add(Counter::OutOfSequence, count(errors.receive_errors, 1));
                }
            }
            let refused = count(not_ready, 4);
            self.port_mut(nic).add(Counter::OutOfBuffer, refused);
            // What several send, each loses its part of.
            let each = 1.0 / senders.len().max(1) as f64;
            for sender in senders {
                let port = self.port_mut(sender);
                port.add(Counter::RnrNakRetryErr, count(not_ready * each, 4));
                if let Some(errors) = errors {
                    port.add(
                        Counter::PacketSeqErr,
                        count(errors.receive_errors * each, 1),
                    );
                }
                if dark {
                    port.time_out(count(1.0 / ACK_TIMEOUT_SECONDS, 3));
                    port.miss_peer(count(1.0 / UNRESPONSIVE_SECONDS, 5));
                } else if let Some(blocked) = held {
                    // The slow receiver gives no credit while it drains.
                    let ticks = progress.moving_seconds() * blocked * WAIT_TICKS_PER_SECOND;
                    port.add(Counter::PortXmitWait, (ticks * each) as u64);
                }
            }
        }
    }

    /// How many events a port counts in some time, given the rate and the number of the draw. Rounds up
    /// or down at random, so that slow rates do not vanish in short ticks.
    fn events_at(&self, nic: usize, seconds: f64) -> impl Fn(f64, u64) -> u64 + use<> {
        let noise = self.noise.part(SYMPTOMS).part(nic as u64);
        let index = self.stretches * 8;
        move |rate, draw| (rate * seconds + noise.uniform(index + draw)).floor() as u64
    }

    /// What cables that corrupt data make ports count whatever they carry: an idle link sends symbols too, and trains
    /// again as a busy one does.
    fn count_corruption(&mut self, seconds: f64) {
        for nic in 0..self.conditions.ports.len() {
            let Some(errors) = self.conditions.ports[nic].errors else {
                continue;
            };
            let count = self.events_at(nic, seconds);
            let port = self.port_mut(nic);
            port.add(Counter::SymbolError, count(errors.symbol_errors, 0));
            port.add(Counter::LinkErrorRecovery, count(errors.recoveries, 2));
        }
    }

    /// Share of the time in collectives for which those that send to a NIC are blocked, if it is what its
    /// job waits for, rather than one of those that wait.
    fn held_back_by(&self, nic: usize, job: usize) -> Option<f64> {
        let (limit, healthy) = (self.conditions.limit_of(nic), self.healthy.limit_of(nic));
        let job = &self.jobs[job];
        // 0.1 % is far above rounding and far below the effect of any fault.
        if limit >= 0.999 * healthy {
            return None;
        }
        let collectives = job.spec.workload.collectives.iter();
        let (seconds, usual) = (job.pace.collectives(), job.healthy.collectives());
        collectives
            .zip(seconds.iter().zip(usual))
            .filter(|(collective, (seconds, _))| limit <= 1.001 * collective.bytes / **seconds)
            .map(|(_, (seconds, usual))| 1.0 - usual / seconds)
            .reduce(f64::max)
    }

    /// Packets that were lost silently: their senders and receivers notice.
    fn count_losses(&mut self, job: usize, progress: &Progress) {
        let job = &self.jobs[job];
        let collectives = job.spec.workload.collectives.iter().zip(&job.traffic.lossy);
        let mut lost = Vec::new();
        for ((collective, lossy), times) in collectives.zip(&progress.collectives) {
            let bytes = collective.bytes * times;
            lost.extend(
                lossy
                    .iter()
                    .map(|lossy| (*lossy, bytes, lossy.tail * times)),
            );
        }
        for (number, (lossy, bytes, tails)) in (0..).zip(lost) {
            let noise = self.noise.part(LOSSES).part(number);
            let packets = (lossy.per_byte * bytes + noise.uniform(self.stretches)).floor() as u64;
            let waits = (tails + noise.part(1).uniform(self.stretches)).floor() as u64;
            let port = self.port_mut(lossy.sender);
            port.add(Counter::PacketSeqErr, packets);
            port.add(Counter::RoceAdpRetrans, packets);
            if port.netdev.is_some() {
                port.time_out(waits);
                self.port_mut(lossy.receiver)
                    .add(Counter::OutOfSequence, packets);
            }
        }
    }

    /// What the nodes themselves count: errors of PCIe links, and intervals in which nothing ran.
    fn count_on_hosts(&mut self, seconds: f64) {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let noise = self.noise.part(HOSTS).part(number as u64);
            let mut draw = self.stretches * 64;
            // Rounds up or down at random, so that slow rates do not vanish in short ticks.
            let mut count = |mean: f64| {
                draw += 1;
                (mean + noise.uniform(draw)).floor() as u64
            };
            let own = &self.conditions.ports[self.plan.hosts[number].nics.clone()];
            for (errors, port) in node.nic_link_errors.iter_mut().zip(own) {
                if port.pcie_errors_per_second > 0.0 {
                    *errors += count(port.pcie_errors_per_second * seconds);
                }
            }
            for (port, nic) in node
                .ports
                .iter_mut()
                .zip(self.plan.hosts[number].nics.clone())
            {
                count_bytes(port, [self.conditions.neighbor_of(nic) * seconds; 2]);
            }
            if self.conditions.hosts[number].storage_hangs {
                node.storage_seconds += seconds;
            }
            for standstill in &self.conditions.hosts[number].standstills {
                let happened = standstill.per_second * seconds;
                if standstill.stolen {
                    node.stolen_seconds += happened * standstill.seconds;
                }
                // A timer of the probe falls into it with the probability length over period.
                let seen = count(happened * (standstill.seconds / PROBE_PERIOD_SECONDS).min(1.0));
                for (stalls, threshold) in node.stalls.iter_mut().zip(STALL_SECONDS) {
                    if standstill.seconds > threshold {
                        *stalls += seen;
                    }
                }
            }
        }
    }

    /// By the nodes of a job: how often each did the compute of a usual step.
    fn work(&self, job: usize, progress: &Progress) -> Vec<f64> {
        let uneven = self.unevenness(job);
        let nodes = self.jobs[job].spec.nodes.len();
        if progress.computed.is_empty() && progress.compute_seconds > 0.0 {
            // A history has no single steps.
            let usual = self.jobs[job].pace.compute_seconds();
            return vec![progress.compute_seconds / usual; nodes];
        }
        let mut work = vec![0.0; nodes];
        for (step, share) in &progress.computed {
            let common = share * uneven.common(*step);
            for (place, work) in work.iter_mut().enumerate() {
                *work += if uneven.is_of_nodes() {
                    common * uneven.of(*step, place)
                } else {
                    common
                };
            }
        }
        work
    }

    /// By the nodes of a job: time in which the programs of each collected garbage; nothing if they do not.
    fn paused(&self, job: usize, progress: &Progress) -> Vec<f64> {
        let own = &self.jobs[job].spec;
        if own.workload.garbage_collection.is_none() {
            return Vec::new();
        }
        let uneven = self.unevenness(job);
        let of = |place: usize| {
            let steps = progress.computed.iter();
            steps
                .map(|(step, share)| share * uneven.pause_seconds(*step, place))
                .sum()
        };
        (0..own.nodes.len()).map(of).collect()
    }

    fn work_gpus(&mut self, seconds: f64, done: &[Progress]) {
        let speeds: Vec<f64> = self.conditions.speeds(&self.chip_clock).collect();
        let work = done.iter().enumerate();
        let work: Vec<Vec<f64>> = work
            .map(|(job, progress)| self.work(job, progress))
            .collect();
        let paused = done.iter().enumerate();
        let paused: Vec<Vec<f64>> = paused
            .map(|(job, progress)| self.paused(job, progress))
            .collect();
        let gpus = self.nodes.iter_mut().enumerate();
        let gpus = gpus.flat_map(|(node, of)| of.gpus.iter_mut().map(move |gpu| (node, gpu)));
        for (number, ((node, gpu), speed)) in gpus.zip(speeds).enumerate() {
            let duty = self.work_of[node].map(|(job, place)| {
                // The slowest computes all the time; the others wait for it.
                let workload = &self.jobs[job].spec.workload;
                let own = workload.compute_seconds * workload.cost_of(place) / speed;
                own * work[job][place] / seconds.max(f64::MIN_POSITIVE)
            });
            let paused = self.work_of[node].and_then(|(job, place)| paused[job].get(place));
            let load = Load {
                seconds,
                duty,
                idle: paused.map_or(0.0, |paused| {
                    (paused / seconds.max(f64::MIN_POSITIVE)).min(1.0)
                }),
                condition: self.conditions.gpus[number],
            };
            let noise = self.noise.part(JITTER).part(number as u64);
            gpu.advance(load, noise.normal(self.stretches));
        }
    }
}

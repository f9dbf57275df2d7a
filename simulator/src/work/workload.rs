//! What a training job does in each step, and which cables its collectives cross.

use serde::{Deserialize, Serialize};

use crate::faults::link::RETRANSMISSION_SECONDS;
use crate::spec::SpecError;
use crate::traffic::fairness::Stream;
use crate::traffic::router::{Lane, Router, summed};
use crate::wiring::Wiring;
use crate::work::schedule::Schedule;

/// One job: its nodes in the order of their ranks, and what it does on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Name.
    pub name: String,
    /// Ordinals of its nodes in the order of their ranks. All GPUs and NICs of a node belong to one job.
    pub nodes: Vec<u16>,
    /// What it does in a step.
    #[serde(default)]
    pub workload: Workload,
    /// What it does besides steps.
    #[serde(default)]
    pub schedule: Schedule,
}

impl JobSpec {
    /// The usual workload on the first `nodes` nodes.
    pub fn on_first(nodes: u16) -> Self {
        Self {
            name: "training".to_owned(),
            nodes: (0..nodes).collect(),
            workload: Workload::default(),
            schedule: Schedule::default(),
        }
    }
}

impl JobSpec {
    /// What is wrong with its work and its schedule.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let refuse =
            |field, problem| Err(SpecError::new(field, format!("{}: {problem}", self.name)));
        if let Some(problem) = self.schedule.problem() {
            return refuse("jobs.schedule", problem);
        }
        let (stages, nodes) = (usize::from(self.workload.stages), self.nodes.len());
        if stages == 0 || self.workload.microbatches == 0 || !nodes.is_multiple_of(stages) {
            let expected = "a divisor of its nodes, and at least one microbatch";
            let problem = format!("found {stages} for {nodes} nodes, expected {expected}");
            return refuse("jobs.workload.stages", problem);
        }
        let pauses = self.workload.garbage_collection;
        let is_sound = |it: &GarbageCollection| it.every_steps >= 1.0 && it.seconds > 0.0;
        if let Some(found) = pauses.filter(|pauses| !is_sound(pauses)) {
            let problem =
                format!("found {found:?}, expected every_steps from 1 and seconds above 0");
            return refuse("jobs.workload.garbage_collection", problem);
        }
        Ok(())
    }

    /// The same job where the traffic of a GPU is spread over so many NICs.
    #[must_use]
    pub(crate) fn spread_over(mut self, nics: u8) -> Self {
        for collective in &mut self.workload.collectives {
            collective.bytes /= f64::from(nics);
        }
        self
    }
}

/// What a healthy step is made of: compute, then what of the collectives is not hidden behind it, one after
/// another, each as long as its slowest part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Time that an H100 at full clock computes in each step; other GPUs as their speed is to its.
    pub compute_seconds: f64,
    /// Bytes that each GPU moves over its NVLinks in each step while nothing is computed: tensor parallelism.
    #[serde(default)]
    pub inside_bytes: f64,
    /// Pipeline stages: consecutive nodes of the job hold the stages of one replica of the model.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stages: u16,
    /// Work of each stage as a share of `compute_seconds`; all alike if empty. The last one is often longer:
    /// it has the loss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stage_costs: Vec<f64>,
    /// Variation of a node's work from step to step, as a share of it (standard deviation), independent between
    /// nodes: sequences of unequal length, and what no two steps of a machine have in common. Each step takes
    /// as long as the most that any node has. Ranks of public traces vary by 0.3 to 2.5 % (`docs/anchors.md`).
    #[serde(default = "half_a_percent")]
    pub imbalance: f64,
    /// Pauses in which the programs of a node collect garbage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garbage_collection: Option<GarbageCollection>,
    /// Share of each collective that moves while GPUs compute, as far as that lasts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overlap: f64,
    /// Flows between two NICs, each of which takes a separate path where switches hash flows: NCCL's
    /// channels and queue pairs.
    #[serde(default = "four", skip_serializing_if = "is_four")]
    pub flows: u16,
    /// Microbatches that go through the pipeline in each step.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub microbatches: u16,
    /// Communication, in order.
    pub collectives: Vec<Collective>,
}

/// Now and then the interpreter of a rank stops to collect garbage: nothing is launched on its GPUs, and everybody
/// waits for it in the next collective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GarbageCollection {
    /// Steps from one pause of a node to its next, on average, at random times.
    pub every_steps: f64,
    /// Median length of a pause. They are log-normal: one in six is more than 1.6 times as long. Python's are 0.01 to
    /// 1 s.
    pub seconds: f64,
    /// Whether all nodes pause in the same steps, as where a training program collects by hand.
    #[serde(default)]
    pub together: bool,
}

const fn one() -> u16 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_one(number: &u16) -> bool {
    *number == 1
}

const fn four() -> u16 {
    4
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_four(number: &u16) -> bool {
    *number == 4
}

const fn half_a_percent() -> f64 {
    5e-3
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// Communication of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collective {
    /// The pattern of senders and receivers.
    pub pattern: Pattern,
    /// Bytes that each NIC sends, and as many that it receives. Where a GPU has several NICs, as on nodes with EFA,
    /// they share what one would send.
    pub bytes: f64,
}

/// The pattern of senders and receivers. NICs talk to NICs of the same number only, as NCCL keeps
/// to rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each node to the next that has the same stage, round in a cycle: all-reduce, all-gather and
    /// reduce-scatter by rings.
    Ring,
    /// Each node evenly to all others of its group of so many consecutive nodes: experts.
    AllToAll {
        /// Nodes in each group.
        nodes: u16,
    },
    /// Each stage to the next and back: activations and gradients of a pipeline.
    Pipeline,
    /// All others of a group of so many consecutive nodes to its first: a hot expert, a gather.
    Incast {
        /// Nodes in each group.
        nodes: u16,
    },
}

impl Default for Workload {
    /// 0.40 s of compute, 0.05 s over NVLink at 450 GB/s, and 0.15 s of exposed communication at 49 GB/s: a
    /// quarter of the step, as in large data-parallel jobs (an engineering choice, so that a fault of one
    /// link can be felt).
    fn default() -> Self {
        Self {
            compute_seconds: 0.40,
            inside_bytes: 22.5e9,
            stages: 1,
            stage_costs: Vec::new(),
            imbalance: half_a_percent(),
            garbage_collection: None,
            overlap: 0.0,
            flows: four(),
            microbatches: 1,
            collectives: vec![Collective {
                pattern: Pattern::Ring,
                bytes: 7.35e9,
            }],
        }
    }
}

impl Workload {
    /// Time until the slowest replica of the model has computed, given the time that each node needs for all
    /// microbatches, in the order of ranks.
    ///
    /// A pipeline of `s` stages and `m` microbatches takes `m - 1` times its slowest stage, and each stage
    /// once (1F1B: Narayanan et al., "PipeDream", SOSP 2019).
    pub fn compute_seconds(&self, node_seconds: &[f64]) -> f64 {
        let microbatches = f64::from(self.microbatches);
        let replica = |nodes: &[f64]| {
            let costs = (0..).map(|stage| self.cost_of(stage));
            let stages = nodes
                .iter()
                .zip(costs)
                .map(|(s, cost)| s * cost / microbatches);
            let slowest = stages.clone().fold(0.0, f64::max);
            let others = if microbatches > 1.0 {
                (microbatches - 1.0) * slowest
            } else {
                0.0
            };
            others + stages.sum::<f64>()
        };
        let replicas = node_seconds.chunks(usize::from(self.stages));
        replicas.map(replica).fold(0.0, f64::max)
    }

    /// Work of the stage that a node holds, by its place in the job, as a share of `compute_seconds`.
    pub fn cost_of(&self, place: usize) -> f64 {
        let stage = place % usize::from(self.stages);
        self.stage_costs.get(stage).copied().unwrap_or(1.0)
    }

    /// Pairs (from, to, share of the sender's bytes) of a pattern, as places in the job's list of `nodes`
    /// nodes, by the groups of nodes that wait for each other.
    pub fn groups(&self, pattern: Pattern, nodes: usize) -> Vec<Vec<(usize, usize, f64)>> {
        let stages = usize::from(self.stages);
        let replicas = nodes / stages;
        match pattern {
            Pattern::Ring if replicas < 2 => Vec::new(),
            Pattern::Ring => (0..stages)
                .map(|stage| {
                    let place = |replica: usize| (replica % replicas) * stages + stage;
                    (0..replicas)
                        .map(|replica| (place(replica), place(replica + 1), 1.0))
                        .collect()
                })
                .collect(),
            Pattern::AllToAll { nodes: size } => (0..nodes)
                .collect::<Vec<_>>()
                .chunks(usize::from(size.max(1)))
                .filter(|group| group.len() > 1)
                .map(all_to_all)
                .collect(),
            Pattern::Incast { nodes: size } => (0..nodes)
                .collect::<Vec<_>>()
                .chunks(usize::from(size.max(1)))
                .filter(|group| group.len() > 1)
                .map(|group| {
                    group[1..]
                        .iter()
                        .map(|from| (*from, group[0], 1.0))
                        .collect()
                })
                .collect(),
            Pattern::Pipeline => (0..replicas)
                .map(|replica| {
                    let first = replica * stages;
                    (first..first + stages.saturating_sub(1))
                        .flat_map(|stage| [(stage, stage + 1, 0.5), (stage + 1, stage, 0.5)])
                        .collect()
                })
                .filter(|pairs: &Vec<_>| !pairs.is_empty())
                .collect(),
        }
    }
}

fn all_to_all(group: &[usize]) -> Vec<(usize, usize, f64)> {
    let share = 1.0 / (group.len() - 1) as f64;
    let pairs = |from: &usize| {
        let from = *from;
        let others = group.iter().filter(move |to| **to != from);
        others.map(move |to| (from, *to, share))
    };
    group.iter().flat_map(pairs).collect()
}

/// Payload of a packet: the 4 KiB path MTU of InfiniBand.
pub(crate) const PACKET_BYTES: f64 = 4096.0;

/// A fabric with its traffic at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier<'a> {
    pub(crate) wiring: &'a Wiring,
    pub(crate) router: &'a Router,
    /// Cables that lose packets silently, and the share of packets that they lose.
    pub(crate) losses: &'a [(usize, f64)],
    /// Distinguishes the flows of one run from those of another.
    pub(crate) seed: u64,
    /// Packets of each flow in a collective that nothing follows: that one of them is lost, only a time-out
    /// reports.
    pub(crate) tails: f64,
}

/// One NIC that sends to another over a cable that loses packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lossy {
    pub(crate) sender: usize,
    pub(crate) receiver: usize,
    /// Lost packets for each byte that it sends in the collective.
    pub(crate) per_byte: f64,
    /// Probability that a collective has to wait for a timeout.
    pub(crate) tail: f64,
}

/// The streams of one collective, one for each group of nodes and each NIC number, and where packets are
/// lost.
pub(crate) fn streams(
    job: &JobSpec,
    pattern: Pattern,
    carrier: &Carrier<'_>,
) -> (Vec<Stream>, Vec<Lossy>) {
    let mut streams = Vec::new();
    let mut lossy = Vec::new();
    for pairs in job.workload.groups(pattern, job.nodes.len()) {
        for slot in carrier.wiring.common_slots(&job.nodes) {
            streams.push(stream(job, &pairs, slot, carrier, &mut lossy));
        }
    }
    (streams, lossy)
}

fn stream(
    job: &JobSpec,
    pairs: &[(usize, usize, f64)],
    slot: usize,
    carrier: &Carrier<'_>,
    lossy: &mut Vec<Lossy>,
) -> Stream {
    let wiring = carrier.wiring;
    let mut use_of: Vec<(Lane, f64)> = Vec::new();
    let mut limit = f64::INFINITY;
    for (from, to, share) in pairs {
        let nic = |place: usize| wiring.nic_index(job.nodes[place], slot);
        let (from, to) = (nic(*from), nic(*to));
        let flows = job.workload.flows;
        let Some(path) = carrier.router.paths(from, to, carrier.seed, flows) else {
            // Everybody waits for what cannot come.
            limit = 0.0;
            continue;
        };
        let loss = carrier.loss_on(&path);
        if loss > 0.0 {
            let per_byte = loss / PACKET_BYTES;
            lossy.push(Lossy {
                sender: from,
                receiver: to,
                per_byte: per_byte * share,
                tail: (loss * carrier.tails).min(1.0),
            });
            let wire = wiring.cables[from].speed.bytes_per_second();
            limit = limit.min(wire / (1.0 + wire * per_byte * RETRANSMISSION_SECONDS));
        }
        use_of.push((wiring.pcie_lane(from, Towards::Fabric), *share));
        use_of.extend(path.into_iter().map(|(lane, part)| (lane, part * share)));
        use_of.push((wiring.pcie_lane(to, Towards::Host), *share));
    }
    Stream {
        use_of: summed(use_of),
        limit,
    }
}

impl Carrier<'_> {
    /// Share of the packets of a flow that are lost on its path.
    fn loss_on(&self, path: &[(Lane, f64)]) -> f64 {
        let of = |(lane, part): &(Lane, f64)| {
            let cable = self.losses.iter().find(|(cable, _)| *cable == lane.cable());
            cable.map_or(0.0, |(_, loss)| loss * part)
        };
        if self.losses.is_empty() {
            0.0
        } else {
            path.iter().map(of).sum()
        }
    }
}

/// Direction on the PCIe link of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    /// Out of memory into the NIC: sending.
    Fabric,
    /// Out of the NIC into memory: receiving.
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(stages: u16, microbatches: u16) -> Workload {
        Workload {
            compute_seconds: 1.0,
            inside_bytes: 0.0,
            stages,
            stage_costs: Vec::new(),
            imbalance: 0.0,
            garbage_collection: None,
            overlap: 0.0,
            flows: 1,
            microbatches,
            collectives: Vec::new(),
        }
    }

    #[test]
    fn a_pipeline_takes_its_bubble_and_one_slow_stage_all_of_it() {
        // Two replicas of four stages, eight microbatches: 7 + 4 slots of 1/8.
        let seconds = [1.0; 8];
        let healthy = workload(4, 8).compute_seconds(&seconds);
        assert!((healthy - 11.0 / 8.0).abs() < 1e-12, "{healthy}");
        let mut slow = seconds;
        slow[5] = 2.0;
        // The slow stage: 7 double slots, its own one double, three single.
        let slowed = workload(4, 8).compute_seconds(&slow);
        assert!(
            (slowed - (14.0 + 2.0 + 3.0) / 8.0).abs() < 1e-12,
            "{slowed}"
        );
        assert_eq!(workload(1, 1).compute_seconds(&[1.0, 2.0, 1.0]), 2.0);
    }

    #[test]
    fn every_node_sends_all_of_its_bytes_once_and_receives_as_much() {
        for (stages, pattern) in [
            (1, Pattern::Ring),
            (4, Pattern::Ring),
            (1, Pattern::AllToAll { nodes: 4 }),
        ] {
            let workload = workload(stages, 1);
            let (mut sent, mut received) = ([0.0; 12], [0.0; 12]);
            for (from, to, share) in workload.groups(pattern, 12).into_iter().flatten() {
                sent[from] += share;
                received[to] += share;
                if pattern == Pattern::Ring {
                    assert_eq!(from % usize::from(stages), to % usize::from(stages));
                }
            }
            for (sent, received) in sent.into_iter().zip(received) {
                assert!((sent - 1.0_f64).abs() < 1e-12 && (received - 1.0_f64).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn one_node_talks_to_nobody() {
        for pattern in [
            Pattern::Ring,
            Pattern::AllToAll { nodes: 8 },
            Pattern::Incast { nodes: 8 },
            Pattern::Pipeline,
        ] {
            assert_eq!(workload(1, 1).groups(pattern, 1), Vec::<Vec<_>>::new());
        }
    }
}

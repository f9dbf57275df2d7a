//! The same clusters and jobs in the simulator.

use std::time::Duration;

use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::gpu::Slow;
use railscope_simulator::faults::{Effect, Fault};
use railscope_simulator::spec::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, RailsMeet, Speed, Switches, Transport, WiringSpec};
use railscope_simulator::statistics::{median, variation};
use railscope_simulator::traffic::router::{Lane, Routing};
use railscope_simulator::wiring::Device;
use railscope_simulator::work::schedule::{Interval, Schedule};
use railscope_simulator::work::workload::{Collective, JobSpec, Pattern, Workload};

use crate::traces::{Counter, Failure};

/// Seed of everything here; any other gives similar results.
const SEED: u64 = 1;

/// Nodes behind the same leaves: 253 servers over 20 leaves with four NICs each.
const NODES_PER_SU: u16 = 51;

/// A job as its ports show it in the trace.
pub(crate) struct Seen {
    pub(crate) name: &'static str,
    /// Mean rates of its ports, in gigabits per second.
    pub(crate) gigabits: (f64, f64),
    /// Its nodes on one leaf.
    pub(crate) nodes: u16,
    /// Length of its step.
    pub(crate) step_seconds: f64,
    /// Bytes that each NIC sends in a step: mean rate times length of the step.
    pub(crate) bytes: f64,
    /// Share of them that it sends while it computes, as its rates in windows of 2 s show it.
    pub(crate) overlap: f64,
}

/// The jobs of leaf 1, by how fast their ports are. Steps of the first two are shorter than the sampling
/// shows; theirs are guesses that fit the autocorrelation.
pub(crate) const SEEN: [Seen; 4] = [
    Seen {
        name: "A",
        gigabits: (55.0, 80.0),
        nodes: 8,
        step_seconds: 3.7,
        bytes: 31.6e9,
        overlap: 0.9,
    },
    Seen {
        name: "B",
        gigabits: (17.0, 26.0),
        nodes: 16,
        step_seconds: 2.0,
        bytes: 5.5e9,
        overlap: 0.9,
    },
    Seen {
        name: "C",
        gigabits: (28.0, 33.0),
        nodes: 4,
        step_seconds: 11.4,
        bytes: 42.2e9,
        overlap: 0.95,
    },
    Seen {
        name: "D",
        gigabits: (1.5, 2.3),
        nodes: 6,
        step_seconds: 11.4,
        bytes: 2.64e9,
        overlap: 0.0,
    },
];

/// What the first leaf sends.
pub(crate) struct Leaf {
    /// By job of [`SEEN`], the ports to its servers.
    pub(crate) servers: Vec<Vec<Counter>>,
    pub(crate) uplinks: Vec<Counter>,
}

fn spec(nodes: u16, per_node: (u8, u8), speed: Speed, nodes_per_su: u16) -> ClusterSpec {
    ClusterSpec {
        nodes,
        node: NodeKind::HgxH100,
        groups: Vec::new(),
        gpus_per_node: Some(per_node.0),
        nics_per_node: Some(per_node.1),
        planes: 1,
        transport: Transport::Infiniband,
        dcqcn: true,
        speed: Some(speed),
        wiring: WiringSpec::RailOptimized {
            nodes_per_su,
            rails_meet: RailsMeet::Spine,
        },
        switches: Switches::default(),
        routing: Routing::default(),
        changes: Vec::new(),
    }
}

fn ring(bytes: f64) -> Vec<Collective> {
    vec![Collective {
        pattern: Pattern::Ring,
        bytes,
    }]
}

/// Bytes that leaf 1 has sent, read every `tick` seconds for `seconds`: 253 servers, 20 leaves, each job on
/// as many nodes of two units, so that its ring leaves the leaf once.
pub(crate) fn leaf(
    (routing, flows): (Routing, u16),
    seconds: f64,
    tick: f64,
) -> Result<Leaf, Failure> {
    let mut spec = spec(253, (8, 4), Speed::Hdr, NODES_PER_SU);
    spec.routing = routing;
    spec.switches = Switches {
        radix: 128,
        tiers: 2,
        uplinks: Some(30),
        spines: Some(30),
    };
    let wire = Speed::Hdr.link().bytes_per_second();
    let mut first = 0;
    let jobs = SEEN.iter().map(|seen| {
        let (own, then) = (first..first + seen.nodes, first + seen.nodes);
        first = then;
        JobSpec {
            name: seen.name.to_owned(),
            nodes: own
                .clone()
                .chain(own.map(|node| node + NODES_PER_SU))
                .collect(),
            workload: Workload {
                compute_seconds: seen.step_seconds - (1.0 - seen.overlap) * seen.bytes / wire,
                inside_bytes: 0.0,
                overlap: seen.overlap,
                flows,
                collectives: ring(seen.bytes),
                ..Workload::default()
            },
            schedule: Schedule::default(),
        }
    });
    let jobs: Vec<JobSpec> = jobs.collect();
    let mut cluster = Cluster::with_jobs(spec, jobs.clone(), SEED)?;
    let servers = jobs.iter().map(|job| {
        let here = job.nodes.iter().filter(|node| **node < NODES_PER_SU);
        here.map(|node| Lane::down(cluster.wiring().nic_index(*node, 0)))
            .collect()
    });
    let servers: Vec<Vec<Lane>> = servers.collect();
    let uplinks: Vec<Lane> = uplinks_of_first_leaf(&cluster);
    let mut leaf = Leaf {
        servers: servers
            .iter()
            .map(|lanes| vec![vec![(0.0, 0.0)]; lanes.len()])
            .collect(),
        uplinks: vec![vec![(0.0, 0.0)]; uplinks.len()],
    };
    let mut now = 0.0;
    while now < seconds {
        now += tick;
        cluster.advance(Duration::from_secs_f64(now));
        let lanes = servers.iter().flatten().chain(&uplinks);
        let counters = leaf.servers.iter_mut().flatten().chain(&mut leaf.uplinks);
        for (lane, counter) in lanes.zip(counters) {
            let total = counter.last().map_or(0.0, |last| last.1);
            counter.push((now, total + cluster.lane_bytes()[lane.index()]));
        }
    }
    Ok(leaf)
}

fn uplinks_of_first_leaf(cluster: &Cluster) -> Vec<Lane> {
    let cables = cluster.wiring().cables.iter().enumerate();
    cables
        .filter(|(_, cable)| cable.ends[0].0 == Device::Switch(0))
        .map(|(cable, _)| Lane::up(cable))
        .collect()
}

/// Lengths of so many steps of the first job, each to a millionth of a tick. A tick is shorter than a step.
pub(crate) fn steps(mut cluster: Cluster, tick: f64, count: usize) -> Vec<f64> {
    let mut ends = Vec::new();
    let mut now = 0.0;
    while ends.len() <= count {
        let before = cluster.clone();
        cluster.advance(Duration::from_secs_f64(now + tick));
        if cluster.steps() > before.steps() {
            let (mut early, mut late) = (now, now + tick);
            while late - early > 1e-6 * tick {
                let middle = (early + late) / 2.0;
                let mut trial = before.clone();
                trial.advance(Duration::from_secs_f64(middle));
                if trial.steps() > before.steps() {
                    late = middle;
                } else {
                    early = middle;
                }
            }
            ends.push(late);
        }
        now += tick;
    }
    ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The job of the training log: 4 nodes of 8, checkpoints as in the log.
pub(crate) fn logged() -> Result<Cluster, Failure> {
    /// Exposed communication of a step; the log does not contain it.
    const EXPOSED_SECONDS: f64 = 2.0;
    let spec = spec(4, (8, 4), Speed::Hdr, 4);
    let mut job = JobSpec::on_first(4);
    job.workload = Workload {
        compute_seconds: 45.8 - EXPOSED_SECONDS,
        inside_bytes: 0.0,
        collectives: ring(EXPOSED_SECONDS * Speed::Hdr.link().bytes_per_second()),
        // The middle half of its steps leaves no room for more.
        imbalance: 1e-3,
        ..Workload::default()
    };
    let seconds = 33.3;
    job.schedule.checkpoint = Some(Interval {
        every_seconds: 500.0 * 45.86 + seconds,
        seconds,
    });
    Ok(Cluster::with_jobs(spec, vec![job], SEED)?)
}

/// A pipelined job of ByteDance.
pub(crate) struct Pipeline {
    pub(crate) stages: u16,
    pub(crate) replicas: u16,
    /// Each node is the tensor-parallel group of a stage of a replica.
    pub(crate) gpus: u8,
    pub(crate) microbatches: u16,
    /// Median compute of a rank in a step.
    pub(crate) compute_seconds: f64,
    pub(crate) stage_costs: Vec<f64>,
    /// What of the even, healthy step is not compute.
    pub(crate) exposed_seconds: f64,
    /// Speed of the first rank, as a share of the others'.
    pub(crate) first_speed: f64,
    /// Variation of a node's work from step to step.
    pub(crate) imbalance: f64,
}

impl Pipeline {
    /// A separate cluster with it.
    pub(crate) fn cluster(&self) -> Result<Cluster, Failure> {
        let nodes = self.stages * self.replicas;
        let spec = spec(nodes, (self.gpus, 1), Speed::Hdr, 32);
        let mut job = JobSpec::on_first(nodes);
        job.workload = Workload {
            compute_seconds: self.compute_seconds,
            inside_bytes: 0.0,
            stages: self.stages,
            stage_costs: self.stage_costs.clone(),
            microbatches: self.microbatches,
            imbalance: self.imbalance,
            collectives: ring(self.exposed_seconds * Speed::Hdr.link().bytes_per_second()),
            ..Workload::default()
        };
        let mut cluster = Cluster::with_jobs(spec, vec![job], SEED)?;
        if self.first_speed < 1.0 {
            let part = cluster.gpu_part(0, 0).ok_or("a cluster without GPUs")?;
            cluster.inject(Fault {
                part,
                onset_seconds: 0.0,
                end_seconds: None,
                effect: Effect::Slow(Slow {
                    speed_ratio: self.first_speed,
                }),
            })?;
            cluster.advance(Duration::from_millis(1));
        }
        Ok(cluster)
    }
}

/// Coefficient of variation over steps of the compute of a rank, the median over ranks.
pub(crate) fn rank_noise(cluster: &Cluster) -> Option<f64> {
    const STEPS: usize = 200;
    let mut cluster = cluster.clone();
    let step = cluster.step_seconds()?;
    let mut compute: Vec<Vec<f64>> = Vec::new();
    for number in 1..=STEPS {
        cluster.advance(Duration::from_secs_f64(1.0 + number as f64 * step));
        let ranks: Vec<f64> = cluster
            .rank_times()
            .flatten()
            .map(|times| times.compute_seconds)
            .collect();
        compute.resize(ranks.len(), Vec::new());
        for (rank, seconds) in compute.iter_mut().zip(ranks) {
            rank.push(seconds);
        }
    }
    let of_ranks: Vec<f64> = compute.iter().filter_map(|rank| variation(rank)).collect();
    median(&of_ranks)
}

//! Throughput of jobs: their paths through the fabric, the length of a step, and what each rank does in it.

use std::sync::Arc;

use super::{Cluster, FLOWS, STEPS};
use crate::conditions::Conditions;
use crate::spec::Transport;
use crate::traffic::contention::{Contender, Traffic, paces};
use crate::traffic::pfc::{Employer, Ground, Strains, strain};
use crate::traffic::router::{Router, Routing};
use crate::work::job::Pace;
use crate::work::unevenness::Unevenness;
use crate::work::workload::{Carrier, JobSpec};

/// A job under some conditions.
pub(super) struct Under {
    pub(super) traffic: Arc<Traffic>,
    /// By its nodes: time that each needs on average for the compute of a step.
    pub(super) node_seconds: Vec<f64>,
    pub(super) pace: Pace,
    /// By collective.
    pub(super) strains: Vec<Strains>,
}

/// The parts of a step's time on one GPU. The parts add up to the step: T = W + C + U of the straggler
/// literature, with W split in two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTimes {
    /// All of the step, the same for all ranks of a job.
    pub step_seconds: f64,
    /// Its kernels compute: C.
    pub compute_seconds: f64,
    /// It moves data and nothing else, over NVLink or between nodes: a part of W.
    pub communication_seconds: f64,
    /// It waits for a rank that is later: the other part of W.
    pub wait_seconds: f64,
    /// Neither: the processors that should feed it are stalled: U.
    pub host_seconds: f64,
}

impl Cluster {
    /// Every job under these conditions.
    pub(super) fn under(&self, conditions: &Conditions) -> Vec<Under> {
        let traffic = self.ways_known(conditions);
        let traffic = traffic.unwrap_or_else(|| self.ways(conditions));
        let node_seconds = self.jobs.iter().map(|job| {
            let JobSpec {
                nodes, workload, ..
            } = &job.spec;
            let of = |node: &u16| {
                conditions.node_seconds(workload, &self.chip_clock, usize::from(*node))
            };
            nodes.iter().map(of).collect()
        });
        let node_seconds: Vec<Vec<f64>> = node_seconds.collect();
        let contenders: Vec<_> = (0..self.jobs.len())
            .map(|number| {
                let job = &self.jobs[number].spec;
                let uneven = self.unevenness(number);
                Contender {
                    job,
                    traffic: &traffic[number],
                    compute_seconds: uneven
                        .usual_compute_seconds(&job.workload, &node_seconds[number]),
                }
            })
            .collect();
        let paces = paces(&contenders, &conditions.capacity);
        let strains = self.strains(conditions, &traffic, &paces);
        let parts = traffic.into_iter().zip(node_seconds);
        parts
            .zip(paces.into_iter().zip(strains))
            .map(|((traffic, node_seconds), (pace, strains))| Under {
                traffic,
                node_seconds,
                pace,
                strains,
            })
            .collect()
    }

    /// By job and collective: what ports of a lossless Ethernet show of congestion.
    fn strains(
        &self,
        conditions: &Conditions,
        traffic: &[Arc<Traffic>],
        paces: &[Pace],
    ) -> Vec<Vec<Strains>> {
        if self.spec.transport != Transport::Roce {
            return vec![Vec::new(); self.jobs.len()];
        }
        let router = self.router(conditions);
        let jobs = (0..self.jobs.len()).map(|number| Employer {
            job: &self.jobs[number].spec,
            traffic: &traffic[number],
            pace: &paces[number],
            seed: self.flow_seed(number),
        });
        let ground = Ground {
            conditions,
            router: &router,
            dcqcn: self.spec.dcqcn,
        };
        strain(&jobs.collect::<Vec<_>>(), ground)
    }

    pub(crate) fn router(&self, conditions: &Conditions) -> Router {
        Router::new(&conditions.wiring, self.spec.routing).polarized(&conditions.polarized)
    }

    /// What distinguishes the flows of a job from those of others, and from its own of an earlier
    /// launch.
    pub(crate) fn flow_seed(&self, job: usize) -> u64 {
        let noise = self.noise.part(FLOWS).part(job as u64);
        noise.bits(self.jobs[job].launches)
    }

    /// Paths found earlier, if they are still the same: most faults change no cable.
    fn ways_known(&self, conditions: &Conditions) -> Option<Vec<Arc<Traffic>>> {
        if conditions.has_ways_of(&self.conditions) {
            Some(
                self.jobs
                    .iter()
                    .map(|job| Arc::clone(&job.traffic))
                    .collect(),
            )
        } else if conditions.has_ways_of(&self.healthy) {
            Some(self.jobs.iter().map(|job| Arc::clone(&job.usual)).collect())
        } else {
            None
        }
    }

    /// Finds the paths of all jobs.
    fn ways(&self, conditions: &Conditions) -> Vec<Arc<Traffic>> {
        let router = self.router(conditions);
        let of_job = |(number, job): (usize, &super::Job)| {
            let carrier = Carrier {
                wiring: &conditions.wiring,
                router: &router,
                losses: &conditions.losses,
                seed: self.flow_seed(number),
                tails: match self.spec.transport {
                    // Rare where credits lose nothing, and omitted; EFA's packets need no order, so any
                    // path is valid.
                    Transport::Infiniband | Transport::Efa => 0.0,
                    Transport::Roce => 1.0,
                },
            };
            Arc::new(Traffic::of(&job.spec, &carrier))
        };
        self.jobs.iter().enumerate().map(of_job).collect()
    }

    /// Finds the paths of all jobs under the current conditions, and without any fault.
    pub(super) fn find_ways(&mut self) {
        let usual = self.ways(&self.healthy);
        let now = if self.conditions.has_ways_of(&self.healthy) {
            usual.clone()
        } else {
            self.ways(&self.conditions)
        };
        for (job, (usual, now)) in self.jobs.iter_mut().zip(usual.into_iter().zip(now)) {
            job.usual = usual;
            job.traffic = now;
        }
    }

    /// Lets other conditions hold from now on.
    pub(super) fn change_to(&mut self, conditions: Conditions) {
        // Found under the older conditions: what they have in common is not searched again.
        let under = self.under(&conditions);
        self.conditions = conditions;
        for (job, under) in self.jobs.iter_mut().zip(under) {
            job.traffic = under.traffic;
            job.node_seconds = under.node_seconds;
            job.pace = under.pace;
            job.strains = under.strains;
        }
    }

    /// Assigns new flows to jobs that were launched again.
    pub(super) fn relaunch(&mut self) {
        let mut launched = false;
        for job in &mut self.jobs {
            let launches = job.launches_at(self.seconds);
            launched |= launches != job.launches;
            job.launches = launches;
        }
        // Other switches do not distinguish flows.
        if launched && self.spec.routing == Routing::Ecmp {
            self.find_ways();
            self.change_to(self.conditions.clone());
        }
    }

    pub(super) fn unevenness(&self, job: usize) -> Unevenness {
        let noise = self.noise.part(STEPS).part(job as u64);
        Unevenness::new(noise, &self.jobs[job].spec.workload)
    }

    /// The parts of the current step's time of its job on each GPU, GPU by GPU over all nodes; none of one
    /// without a job, or whose job is stalled.
    pub fn rank_times(&self) -> impl Iterator<Item = Option<RankTimes>> {
        let steps = (0..self.jobs.len()).map(|number| {
            let job = &self.jobs[number];
            let (uneven, step) = (self.unevenness(number), job.clockwork.step());
            let workload = &job.spec.workload;
            let compute = uneven.compute_seconds(step, workload, &job.node_seconds);
            (uneven, step, job.pace.with_compute(compute))
        });
        let steps: Vec<(Unevenness, u64, Pace)> = steps.collect();
        (0..self.chip_clock.len()).map(move |gpu| {
            let host = self.plan.host_of_gpu(gpu);
            let (number, place) = self.work_of[host]?;
            let (uneven, step, pace) = &steps[number];
            let step_seconds = pace.step_seconds()?;
            let workload = &self.jobs[number].spec.workload;
            let work = workload.cost_of(place) * uneven.common(*step) * uneven.of(*step, place);
            let (compute, inside) =
                self.conditions
                    .gpu_seconds(workload, self.chip_clock[gpu], gpu);
            let (compute_seconds, inside) = (work * compute, work * inside);
            let awake = self.conditions.hosts[host].awake();
            let host_seconds = (compute_seconds + inside) * (1.0 / awake - 1.0)
                + uneven.pause_seconds(*step, place);
            let communication_seconds = inside + pace.exposed_seconds();
            let busy = compute_seconds + communication_seconds + host_seconds;
            Some(RankTimes {
                step_seconds,
                compute_seconds,
                communication_seconds,
                // No rank is later than the latest, except for rounding.
                wait_seconds: (step_seconds - busy).max(0.0),
                host_seconds,
            })
        })
    }
}

//! Stragglers on a running cluster, by timings of collectives if there are any, else by activity of GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part, without_domain};
use railscope_model::label;
use railscope_model::metric::GPU;

use super::rounds::{Round, Rounds};
use super::{
    ALARM, Cause, Conclusion, MIN_MISSING_WAIT, Operation, Process, StepTimes, WaitWatch, median,
};
use crate::assemble::node_parts::read;
use crate::jobs::job::{Job, JobName, Jobs};
use crate::jobs::straggler::gpu_activity::{Activity, Balance, RANKED, ROUND_SECONDS};
use crate::jobs::tensor_activity::active_share;
use crate::stages::{LeftOut, Step};
use crate::store::{History, NodeHistory};

/// A job of which no operation was seen for so long has ended, seconds.
const FORGOTTEN_SECONDS: f64 = 600.0;
/// Weight of a new round in the mean of what each rank misses.
const NEWEST: f64 = 0.2;

/// Basis of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Timings of collectives.
    Collectives,
    /// Time in which tensor cores are active.
    Activity,
}

impl Basis {
    /// Its name in API and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collectives => "collectives",
            Self::Activity => "activity",
        }
    }
}

/// The straggler that the ranks of a job wait for.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Not known yet, or not reported.
    Unknown,
    /// None with a relevant cost.
    Balanced,
    /// Ranks that have more to do than others, alternately or by design: no part is slow.
    SoftwareImbalance,
    /// These.
    Stragglers,
}

impl Answer {
    /// Its name in API and labels.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Balanced => "balanced",
            Self::SoftwareImbalance => "software-imbalance",
            Self::Stragglers => "straggler",
        }
    }
}

/// A rank in the order of how long the others wait for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Its GPU, or its host where it is not known which of its GPUs it drives, or what it calls itself.
    pub part: Option<Part>,
    /// Host and number of its process, of timings.
    pub process: Option<Process>,
    /// Share of a step by which it waits less, or computes longer, than the median.
    pub excess: f64,
    /// What it is named for, if it is.
    pub cause: Option<Cause>,
}

/// What is known of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The job; none if no node reports the job of its processes.
    pub job: Option<JobName>,
    /// What it rests on.
    pub basis: Basis,
    /// The result.
    pub answer: Answer,
    /// The same in a sentence.
    pub sentence: String,
    /// Ranks that report.
    pub ranks: usize,
    /// Rounds that were evaluated.
    pub rounds: u64,
    /// The ranks that others wait for, the longest wait first.
    pub ranking: Vec<Ranked>,
}

/// The processes of one job, as its communicators join them.
#[derive(Default)]
struct Group {
    rounds: Rounds,
    watch: Option<(Vec<Process>, WaitWatch)>,
    missing: BTreeMap<Process, f64>,
    /// Mean of what the rounds' least waiting rank missed.
    cost: f64,
    judged: u64,
    knows_compute: bool,
    seen: Timestamp,
}

/// Follows all jobs.
#[derive(Default)]
pub struct Waits {
    groups: BTreeMap<u64, Group>,
    next: u64,
    group_of_process: BTreeMap<Process, u64>,
    group_of_communicator: BTreeMap<Arc<str>, u64>,
    activity: BTreeMap<JobName, Activity>,
    /// Steps that are omitted.
    pub(crate) left_out: LeftOut,
}

impl Waits {
    /// Adds operations read at `now`.
    pub fn take(&mut self, operations: impl IntoIterator<Item = Operation>, now: Timestamp) {
        for operation in operations {
            let number = self.group_for(&operation);
            let group = self.groups.entry(number).or_default();
            group.seen = now;
            group.rounds.take(operation);
        }
    }

    /// The group of an operation's process and communicator; two that it joins become one.
    fn group_for(&mut self, operation: &Operation) -> u64 {
        let process = self.group_of_process.get(&operation.process).copied();
        let communicator = &operation.member.communicator;
        let shared = self.group_of_communicator.get(communicator).copied();
        let number = match (process, shared) {
            (Some(own), Some(shared)) if own != shared => {
                let (kept, gone) = (own.min(shared), own.max(shared));
                if let Some(group) = self.groups.remove(&gone) {
                    let into = self.groups.entry(kept).or_default();
                    into.rounds.join(group.rounds);
                    into.watch = None;
                }
                let numbers = self.group_of_process.values_mut();
                let numbers = numbers.chain(self.group_of_communicator.values_mut());
                numbers.filter(|at| **at == gone).for_each(|at| *at = kept);
                kept
            }
            (Some(known), _) | (None, Some(known)) => known,
            (None, None) => {
                self.next += 1;
                self.next
            }
        };
        if process != Some(number) {
            self.group_of_process
                .insert(operation.process.clone(), number);
        }
        if shared != Some(number) {
            self.group_of_communicator
                .insert(Arc::clone(communicator), number);
        }
        number
    }

    /// Evaluates what arrived since the last tick: one result for each job with timings, then for those
    /// without.
    pub fn tick(&mut self, history: &History, jobs: &Jobs, now: Timestamp) -> Vec<Waiting> {
        self.groups
            .retain(|_, group| now.seconds_since(group.seen) <= FORGOTTEN_SECONDS);
        let groups = &self.groups;
        self.group_of_process
            .retain(|_, group| groups.contains_key(group));
        self.group_of_communicator
            .retain(|_, group| groups.contains_key(group));
        let conserves = !self.left_out.has(Step::Conservation);
        let mut all: Vec<Waiting> = self
            .groups
            .values_mut()
            .map(|group| group.tick(history, jobs, conserves))
            .collect();
        let told: BTreeSet<JobName> = all.iter().filter_map(|one| one.job.clone()).collect();
        self.activity
            .retain(|job, _| jobs.get(job).is_some() && !told.contains(job));
        for job in jobs.iter().filter(|job| !told.contains(&job.name)) {
            let activity = self.activity.entry(Arc::clone(&job.name)).or_default();
            activity.look(job, history, now);
            all.push(by_activity(job, activity));
        }
        all
    }
}

impl Group {
    fn tick(&mut self, history: &History, jobs: &Jobs, conserves: bool) -> Waiting {
        let places = places(&self.rounds, history, jobs);
        while let Some(round) = self.rounds.next_round() {
            self.judge(&round, &places, (history, conserves));
        }
        let hosts: BTreeSet<NodeName> = places.values().map(|place| place.node.clone()).collect();
        let on_all = |job: &&Job| hosts.iter().all(|host| job.nodes.contains_key(host));
        let job = jobs.iter().filter(on_all).find(|_| !hosts.is_empty());
        let conclusion = self.watch.as_ref().map(|(_, watch)| watch.conclude());
        let named = self.named();
        let (answer, sentence) = self.answer(conclusion.as_ref(), &named, &places);
        let mut ranking: Vec<Ranked> = self
            .missing
            .iter()
            .map(|(process, missing)| Ranked {
                part: places.get(process).map(Place::part),
                process: Some(process.clone()),
                excess: *missing,
                cause: named.get(process).copied(),
            })
            .collect();
        ranking.sort_by(|a, b| b.excess.total_cmp(&a.excess));
        ranking.truncate(RANKED);
        Waiting {
            job: job.map(|job| Arc::clone(&job.name)),
            basis: Basis::Collectives,
            answer,
            sentence,
            ranks: self.rounds.processes().count(),
            rounds: self.judged,
            ranking,
        }
    }

    /// The rank that the watch names.
    fn named(&self) -> BTreeMap<Process, Cause> {
        let Some((processes, watch)) = &self.watch else {
            return BTreeMap::new();
        };
        let mut named = BTreeMap::new();
        for culprit in watch.culprits() {
            let process = processes[culprit.index].clone();
            named.entry(process).or_insert(culprit.cause);
        }
        named
    }

    fn judge(
        &mut self,
        round: &Round,
        places: &BTreeMap<Process, Place>,
        (history, conserves): (&History, bool),
    ) {
        let Some(usual) = median(round.waited.values().copied()) else {
            return;
        };
        let processes: Vec<Process> = self.rounds.processes().cloned().collect();
        if self
            .watch
            .as_ref()
            .is_none_or(|(known, _)| *known != processes)
        {
            let mut products: BTreeMap<String, u32> = BTreeMap::new();
            let kinds: BTreeMap<&Process, u32> = processes
                .iter()
                .map(|process| {
                    let product = places.get(process).map(|place| place.product.clone());
                    let next = products.len() as u32;
                    let kind = *products.entry(product.unwrap_or_default()).or_insert(next);
                    (process, kind)
                })
                .collect();
            let ranks = self
                .rounds
                .ranks(|process| kinds.get(process).copied().unwrap_or(0));
            let watch = WaitWatch::new(ranks, ALARM).conserving(conserves);
            self.watch = Some((processes.clone(), watch));
        }
        let active: BTreeMap<&Process, f64> = processes
            .iter()
            .filter_map(|process| Some((process, places.get(process)?.active(history)?)))
            .collect();
        self.knows_compute = active.len() == processes.len();
        let middle = median(active.values().copied()).unwrap_or(0.0);
        let times = processes.iter().map(|process| {
            let waited = *round.waited.get(process)?;
            let missing = self
                .missing
                .entry(process.clone())
                .or_insert(usual - waited);
            *missing += NEWEST * (usual - waited - *missing);
            // The median rank computes while it does not wait; the others as much longer as their tensor
            // cores are active longer.
            let computed = match active.get(process) {
                Some(active) if self.knows_compute && middle > 0.0 => {
                    (1.0 - usual) * active / middle
                }
                _ => 0.0,
            };
            Some(StepTimes {
                step_seconds: round.seconds,
                wait_seconds: waited * round.seconds,
                compute_seconds: computed.min(1.0 - waited) * round.seconds,
            })
        });
        let times: Vec<Option<StepTimes>> = times.collect();
        let least = round.waited.values().copied().fold(f64::INFINITY, f64::min);
        self.judged += 1;
        let weight = NEWEST.max(1.0 / self.judged as f64);
        self.cost += weight * (usual - least - self.cost);
        if let Some((_, watch)) = &mut self.watch {
            watch.observe(&times);
        }
    }

    fn answer(
        &self,
        conclusion: Option<&Conclusion>,
        named: &BTreeMap<Process, Cause>,
        places: &BTreeMap<Process, Place>,
    ) -> (Answer, String) {
        match conclusion {
            None | Some(Conclusion::Undecided) => {
                let said = format!(
                    "{} rounds of collectives so far: too few for a result.",
                    self.judged
                );
                (Answer::Unknown, said)
            }
            Some(Conclusion::Culprits(_)) => {
                let name = |(process, cause): (&Process, &Cause)| {
                    let part = places.get(process).map(|place| place.part().to_string());
                    let who =
                        part.unwrap_or_else(|| format!("{} process {}", process.host, process.pid));
                    let what = match cause {
                        Cause::Gpu => "computes for longer",
                        Cause::HostHint if self.knows_compute => {
                            "is late but does not compute during that time: check its host"
                        }
                        Cause::HostHint => {
                            "is late; its GPU's activity is unknown, so the cause is the GPU or the host"
                        }
                    };
                    let missing = self.missing.get(process).copied().unwrap_or(0.0);
                    format!(
                        "{who} waits {:.0} % of a step less than its peers and {what}",
                        100.0 * missing
                    )
                };
                let names: Vec<String> = named.iter().map(name).collect();
                (Answer::Stragglers, format!("{}.", names.join("; ")))
            }
            Some(Conclusion::UnevenStages { stage, excess }) => {
                let said = format!(
                    "No hardware cause: pipeline stage {stage} computes {:.0} % longer than the median stage.",
                    100.0 * excess
                );
                (Answer::SoftwareImbalance, said)
            }
            Some(Conclusion::NoHardwareCause) if self.cost >= MIN_MISSING_WAIT => {
                let said = format!(
                    "No hardware cause: others wait for {:.0} % of a step, in each round for a different rank.",
                    100.0 * self.cost
                );
                (Answer::SoftwareImbalance, said)
            }
            Some(Conclusion::NoHardwareCause) => (
                Answer::Balanced,
                "All ranks wait for about the same time.".to_owned(),
            ),
        }
    }
}

/// Where a process runs.
#[derive(Clone, Debug)]
struct Place {
    node: NodeName,
    gpu: Option<GpuIndex>,
    product: String,
}

impl Place {
    fn part(&self) -> Part {
        match self.gpu {
            Some(gpu) => Part::Gpu(self.node.clone(), gpu),
            None => Part::Host(self.node.clone()),
        }
    }

    /// Mean share of the time in which its GPU's tensor cores were active lately.
    fn active(&self, history: &History) -> Option<f64> {
        let said = history.node(&self.node)?;
        active_share(said, &self.gpu?.to_string(), ROUND_SECONDS)
    }
}

/// Nodes and GPUs of processes. Launchers give the GPUs of a job on a node to its processes in the order of their ranks; where
/// there are not as many of one as of the other, it is not known which GPU a process has.
fn places(rounds: &Rounds, history: &History, jobs: &Jobs) -> BTreeMap<Process, Place> {
    let mut places = BTreeMap::new();
    for (host, processes) in rounds.by_host() {
        let Some((node, said)) = node_of(&host, history) else {
            continue;
        };
        let on_node = jobs.iter().filter_map(|job| job.nodes.get(&node));
        let mut of_jobs = on_node.filter(|gpus| gpus.len() == processes.len());
        let own = of_jobs.next().filter(|_| of_jobs.next().is_none());
        let listed = || -> Vec<GpuIndex> {
            let gpus = said
                .series(&GPU)
                .filter_map(|(labels, _)| read(labels, label!(GPU, "gpu")));
            gpus.collect::<BTreeSet<_>>().into_iter().collect()
        };
        let gpus = own.cloned().unwrap_or_else(listed);
        let products: BTreeMap<GpuIndex, String> = said
            .series(&GPU)
            .filter_map(|(labels, _)| {
                let name = labels.get(label!(GPU, "name")).unwrap_or_default();
                Some((read(labels, label!(GPU, "gpu"))?, name.to_owned()))
            })
            .collect();
        for (number, process) in processes.iter().enumerate() {
            let gpu = (gpus.len() == processes.len()).then(|| gpus[number]);
            let product = gpu.and_then(|gpu| products.get(&gpu).cloned());
            let place = Place {
                node: node.clone(),
                gpu,
                product: product.unwrap_or_default(),
            };
            places.insert((*process).clone(), place);
        }
    }
    places
}

/// The node of a host: of its name, or of what stands before the first dot.
pub(crate) fn node_of<'a>(host: &str, history: &'a History) -> Option<(NodeName, &'a NodeHistory)> {
    [host, without_domain(host)].into_iter().find_map(|name| {
        let name: NodeName = name.parse().ok()?;
        let said = history.node(&name)?;
        Some((name, said))
    })
}

fn by_activity(job: &Job, activity: &Activity) -> Waiting {
    let balance = activity.balance();
    let cost = 100.0 * activity.cost();
    let (answer, sentence) = match &balance {
        Balance::Unknown => {
            let said = "Too few GPUs, too little time, or no data about tensor core activity.";
            (Answer::Unknown, said.to_owned())
        }
        Balance::Even => (
            Answer::Balanced,
            "All GPUs compute for about the same time.".to_owned(),
        ),
        Balance::Leader(part) => {
            let said = format!(
                "{part} computes longest in every round: it may be slow or have more work. Without collective timings this is only a hint."
            );
            (Answer::Stragglers, said)
        }
        Balance::Uneven { leaders } => {
            let who = if *leaders > 1 {
                format!("GPUs of {leaders} nodes in turn")
            } else {
                "GPUs of several nodes together".to_owned()
            };
            let said = format!(
                "No hardware cause: {who} have more work than the others, about {cost:.0} % of a step."
            );
            (Answer::SoftwareImbalance, said)
        }
    };
    let leader = |part: &Part| balance == Balance::Leader(part.clone());
    let ranking = activity.ranking().into_iter().map(|(part, excess)| Ranked {
        cause: leader(&part).then_some(Cause::HostHint),
        part: Some(part),
        process: None,
        excess,
    });
    Waiting {
        job: Some(Arc::clone(&job.name)),
        basis: Basis::Activity,
        answer,
        sentence,
        ranks: job.gpus(),
        rounds: 0,
        ranking: ranking.collect(),
    }
}

#[cfg(test)]
mod tests;

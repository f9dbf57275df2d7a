//! `/api/v1/jobs`: which job holds which GPUs and NICs, and which incidents delay it.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State as Shared};
use railscope_model::fabric::Timestamp;
use serde::Serialize;

use super::params::{Nothing, Page, Params, Refusal};
use super::tails::StepTailWire;
use crate::analyzer::ClusterView;
use crate::clock::unix_seconds;
use crate::diagnose::stages::job_impact::Lost;
use crate::jobs::collective_times::CollectiveTail;
use crate::jobs::job::Job;
use crate::jobs::straggler::{Cause, Ranked, Side, Stuck, Waiting};
use crate::serve::router::{App, snapshot};
use crate::serve::wire::Listed;
use crate::sources::collectives::watch::Counts;

/// `/api/v1/jobs`
#[derive(Debug, Serialize)]
pub(crate) struct Jobs {
    cluster: String,
    at: f64,
    #[serde(flatten)]
    jobs: Listed<JobWire>,
    /// Results for processes of which no node reports the job.
    unattributed: Vec<WaitWire>,
    /// Stalled jobs, by dumps of their flight recorders.
    stuck: Vec<StuckWire>,
    /// What was read of the folder of dumps; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    dumps: Option<DumpsWire>,
}

/// Transfer times of one kind of collective and one size of message.
#[derive(Debug, Serialize)]
struct CollectiveWire {
    collective: String,
    bytes: u64,
    count: u64,
    /// Of the last 1,000, by quantile.
    quantiles_seconds: BTreeMap<&'static str, f64>,
    /// Time by which long ones exceeded the median.
    excess_seconds: f64,
}

impl CollectiveWire {
    fn of(tail: &CollectiveTail) -> Self {
        Self {
            collective: tail.collective.to_string(),
            bytes: tail.bytes,
            count: tail.count,
            quantiles_seconds: tail.quantiles.clone(),
            excess_seconds: tail.excess_seconds,
        }
    }
}

/// What a job has lost.
#[derive(Debug, Serialize)]
struct LostWire {
    fault_domain: String,
    class: &'static str,
    gpu_seconds: f64,
}

impl LostWire {
    fn of(lost: &Lost) -> Self {
        Self {
            fault_domain: lost.fault_domain.clone(),
            class: lost.class,
            gpu_seconds: lost.gpu_seconds,
        }
    }
}

/// The straggler that the ranks of a job wait for.
#[derive(Debug, Serialize)]
struct WaitWire {
    answer: &'static str,
    /// What it rests on.
    basis: &'static str,
    sentence: String,
    ranks: usize,
    /// Rounds of collectives that were evaluated.
    rounds: u64,
    /// Those that others wait for the longest, first.
    ranking: Vec<RankWire>,
}

/// A rank that others wait for.
#[derive(Debug, Serialize)]
struct RankWire {
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<String>,
    /// Share of a step by which it waits less, or computes longer, than the median.
    excess: f64,
    /// `gpu`, or `hint` for what is no conclusion; absent of those that are only ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<&'static str>,
}

/// A stalled job.
#[derive(Debug, Serialize)]
struct StuckWire {
    folder: String,
    at: f64,
    ranks: usize,
    late: Vec<LateWire>,
}

/// A rank that others wait for in a stalled job.
#[derive(Debug, Serialize)]
struct LateWire {
    rank: u32,
    side: &'static str,
    group: String,
    waiting: usize,
}

/// What was read of the folder of dumps.
#[derive(Debug, Serialize)]
struct DumpsWire {
    files: usize,
    operations: u64,
    malformed: u64,
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl WaitWire {
    fn of(waiting: &Waiting) -> Self {
        let rank = |rank: &Ranked| RankWire {
            part: rank.part.as_ref().map(ToString::to_string),
            process: rank
                .process
                .as_ref()
                .map(|process| format!("{}:{}", process.host, process.pid)),
            excess: rank.excess,
            named: rank.cause.map(|cause| match cause {
                Cause::Gpu => "gpu",
                Cause::HostHint => "hint",
            }),
        };
        Self {
            answer: waiting.answer.as_str(),
            basis: waiting.basis.as_str(),
            sentence: waiting.sentence.clone(),
            ranks: waiting.ranks,
            rounds: waiting.rounds,
            ranking: waiting.ranking.iter().map(rank).collect(),
        }
    }
}

impl StuckWire {
    fn of((stuck, at): &(Stuck, Timestamp)) -> Self {
        let late = stuck.late.iter().map(|late| LateWire {
            rank: late.rank,
            side: match late.side {
                Side::Gpu => "gpu",
                Side::Host => "host",
            },
            group: late.group.clone(),
            waiting: late.waiting,
        });
        Self {
            folder: stuck.folder.clone(),
            at: unix_seconds(*at),
            ranks: stuck.ranks,
            late: late.collect(),
        }
    }
}

impl DumpsWire {
    fn of(counts: Counts) -> Self {
        Self {
            files: counts.files,
            operations: counts.operations,
            malformed: counts.malformed,
            left_out: counts.left_out,
            problem: counts.problem,
        }
    }
}

/// A job in a list.
#[derive(Debug, Serialize)]
struct JobWire {
    job: String,
    /// Unix time at which the collector first saw it.
    since: f64,
    nodes: usize,
    gpus: usize,
    /// Ids of incidents that it waits for.
    incidents: Vec<String>,
    /// Its throughput as a share of its median over 30 minutes; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    /// GPU-seconds that it has lost, by what it waited for.
    lost: Vec<LostWire>,
    /// The straggler that its ranks wait for.
    waiting: Vec<WaitWire>,
    /// Duration of its steps; absent if it does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_times: Option<StepTailWire>,
    /// Transfer times of its collectives across hosts, those with the most time first.
    collectives: Vec<CollectiveWire>,
}

/// `/api/v1/jobs/{name}`
#[derive(Debug, Serialize)]
pub(crate) struct JobDetail {
    cluster: String,
    at: f64,
    #[serde(flatten)]
    job: JobWire,
    /// What it holds, by node.
    holds: BTreeMap<String, Holds>,
}

/// What a job holds of a node.
#[derive(Debug, Serialize)]
struct Holds {
    gpus: Vec<u16>,
    nics: Vec<String>,
}

impl JobWire {
    fn of(job: &Job, view: &ClusterView) -> Self {
        let holds_up = view.incidents.iter();
        let holds_up = holds_up.filter(|incident| incident.jobs.contains(&job.name));
        let lost = view.costs.lost.iter().filter(|lost| lost.job == job.name);
        let own = view.waiting.iter();
        let own = own.filter(|one| one.job.as_ref() == Some(&job.name));
        Self {
            speed: view.costs.speeds.get(&job.name).copied(),
            lost: lost.map(LostWire::of).collect(),
            waiting: own.map(WaitWire::of).collect(),
            step_times: (view.step_tails.iter())
                .find(|tail| tail.job == job.name)
                .map(StepTailWire::of),
            collectives: (view.collective_tails.iter())
                .filter(|tail| tail.job == job.name)
                .map(CollectiveWire::of)
                .collect(),
            job: job.name.to_string(),
            since: unix_seconds(job.since),
            nodes: job.nodes.len(),
            gpus: job.gpus(),
            incidents: holds_up.map(|incident| incident.id.clone()).collect(),
        }
    }
}

impl JobDetail {
    fn of(job: &Job, view: &ClusterView, cluster: String) -> Self {
        let holds = job.nodes.iter().map(|(node, gpus)| {
            let nics = job.nics.get(node).into_iter().flatten();
            let holds = Holds {
                gpus: gpus.iter().map(|gpu| gpu.0).collect(),
                nics: nics.map(ToString::to_string).collect(),
            };
            (node.to_string(), holds)
        });
        Self {
            cluster,
            at: unix_seconds(view.now),
            job: JobWire::of(job, view),
            holds: holds.collect(),
        }
    }
}

pub(crate) async fn list(
    Shared(state): App,
    Params(page): Params<Page>,
) -> Result<Json<Jobs>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    Ok(Json(Jobs {
        cluster: state.cluster.clone(),
        at: unix_seconds(view.now),
        jobs: Listed::of(view.jobs.iter(), page.limit(), |job| JobWire::of(job, view)),
        unattributed: view
            .waiting
            .iter()
            .filter(|one| one.job.is_none())
            .map(WaitWire::of)
            .collect(),
        stuck: view.stuck.values().map(StuckWire::of).collect(),
        dumps: state.dumps().map(DumpsWire::of),
    }))
}

pub(crate) async fn one(
    Shared(state): App,
    Path(name): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<JobDetail>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    let job = view.jobs.get(&name);
    let job = job.ok_or_else(|| Refusal::not_found("job", &name, "/api/v1/jobs"))?;
    Ok(Json(JobDetail::of(job, view, state.cluster.clone())))
}

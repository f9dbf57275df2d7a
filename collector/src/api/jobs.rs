//! `/api/v1/jobs`: which job holds which GPUs and NICs, and which incidents hold it up.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State as Shared};
use serde::Serialize;

use super::params::{Nothing, Page, Params, Refusal};
use super::wire::Listed;
use super::{App, snapshot};
use crate::core::analyzer::ClusterView;
use crate::core::jobs::Job;

/// `/api/v1/jobs`
#[derive(Debug, Serialize)]
pub(super) struct Jobs {
    cluster: String,
    at: f64,
    #[serde(flatten)]
    jobs: Listed<JobWire>,
}

/// A job in a list.
#[derive(Debug, Serialize)]
struct JobWire {
    job: String,
    /// Unix time at which the collector first heard of it.
    since: f64,
    nodes: usize,
    gpus: usize,
    /// Ids of incidents that it waits for.
    incidents: Vec<String>,
}

/// `/api/v1/jobs/{name}`
#[derive(Debug, Serialize)]
pub(super) struct JobDetail {
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
        Self {
            job: job.name.to_string(),
            since: job.since.as_seconds(),
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
            at: view.now.as_seconds(),
            job: JobWire::of(job, view),
            holds: holds.collect(),
        }
    }
}

pub(super) async fn list(
    Shared(state): App,
    Params(page): Params<Page>,
) -> Result<Json<Jobs>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    Ok(Json(Jobs {
        cluster: state.cluster.clone(),
        at: view.now.as_seconds(),
        jobs: Listed::of(view.jobs.iter(), page.limit(), |job| JobWire::of(job, view)),
    }))
}

pub(super) async fn one(
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

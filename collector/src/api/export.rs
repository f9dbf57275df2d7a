//! `/api/v1/topology/export`: the fabric as other tools read it.

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use railscope_model::fabric::{Fabric, LinkKind, Presence};
use serde::Deserialize;

use super::params::{Expected, Params, Refusal};
use super::{App, snapshot};
use crate::plans::{Placement, export};

/// `to`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    to: To,
}

impl Expected for Target {
    const EXPECTED: &'static str =
        "to=json, graphml, dot, slurm-tree, slurm-block, node-labels or nccl";
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum To {
    Json,
    Graphml,
    Dot,
    SlurmTree,
    SlurmBlock,
    NodeLabels,
    Nccl,
}

pub(super) async fn export(
    Shared(state): App,
    Params(asked): Params<Target>,
) -> Result<Response, Refusal> {
    let snapshot = snapshot(&state)?;
    // Of 100,000 GPUs that is a second's work and tens of megabytes.
    let written =
        tokio::task::spawn_blocking(move || write(&present(&snapshot.view.fabric), asked.to));
    let text = written.await.map_err(|error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the export was not written: {error}"),
            String::from("a text"),
        )
    })?;
    let kind = match asked.to {
        To::Json => "application/json",
        To::Graphml => "application/xml",
        _ => "text/plain; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn write(fabric: &Fabric, to: To) -> String {
    match to {
        To::Json => export::json(fabric).to_string(),
        To::Graphml => export::graphml(fabric),
        To::Dot => export::dot(fabric),
        To::SlurmTree => export::slurm_tree(&Placement::of(fabric)),
        To::SlurmBlock => export::slurm_block(&Placement::of(fabric)),
        To::NodeLabels => export::node_labels(&Placement::of(fabric)),
        To::Nccl => export::nccl_hints(fabric),
    }
}

/// The fabric without the cables that are lost: other tools plan with what is there.
fn present(fabric: &Fabric) -> Fabric {
    let mut there = fabric.clone();
    there.retain_links(|link| {
        link.kind != LinkKind::Cable || link.seen_by.presence() != Presence::Lost
    });
    there
}

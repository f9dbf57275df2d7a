//! `/api/v1/topology/export`: the fabric as other tools read it.

use std::convert::Infallible;

use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use railscope_model::fabric::{Fabric, LinkKind, Presence};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::params::{Expected, Params, Refusal};
use crate::fabric::Verdict;
use crate::fabric::plans::Placement;
use crate::fabric::plans::export::Target;
use crate::serve::router::{App, snapshot};

/// `to`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    #[serde(deserialize_with = "named")]
    to: Target,
}

impl Expected for Asked {
    const EXPECTED: &'static str =
        "to=json, graphml, dot, slurm-tree, slurm-block, node-labels or nccl";
}

fn named<'de, D: Deserializer<'de>>(input: D) -> Result<Target, D::Error> {
    let name = String::deserialize(input)?;
    let wrong =
        |expected: String| D::Error::custom(format!("unknown variant `{name}`, {expected}"));
    name.parse().map_err(wrong)
}

pub(crate) async fn export(
    Shared(state): App,
    Params(asked): Params<Asked>,
) -> Result<Response, Refusal> {
    let snapshot = snapshot(&state)?;
    // Of 100,000 GPUs that is a second's work and tens of megabytes.
    let written = tokio::task::spawn_blocking(move || {
        let view = &snapshot.view;
        write(&present(&view.fabric), &view.verdict, asked.to)
    });
    let text = written.await.map_err(|error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the export was not written: {error}"),
            String::from("a text"),
        )
    })?;
    let kind = match asked.to {
        Target::Json => "application/json",
        Target::Graphml => "application/xml",
        _ => "text/plain; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn write(fabric: &Fabric, verdict: &Verdict, to: Target) -> String {
    let Ok(text) = to.write(
        || Ok::<_, Infallible>((fabric, verdict)),
        || Ok(Placement::of(fabric)),
    );
    text
}

/// The fabric without missing cables: other tools plan with what is present.
fn present(fabric: &Fabric) -> Fabric {
    let mut there = fabric.clone();
    there.retain_links(|link| {
        link.kind != LinkKind::Cable || link.seen_by.presence() != Presence::Lost
    });
    there
}

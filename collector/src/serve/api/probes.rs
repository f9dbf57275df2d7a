//! `/api/v1/probes?node=NAME`: the probe targets of a node's exporter, as `--probe.list` reads it.

use axum::Json;
use axum::extract::State as Shared;
use railscope_model::path_class::PathClass;
use serde::{Deserialize, Serialize};

use super::params::{Expected, Params, Refusal};
use crate::assemble::probe_targets::Target;
use crate::serve::router::{App, snapshot};

/// Time between two probes of a flow: with 20 flows a NIC sends twice as many probes as R-Pingmesh's do (SIGCOMM 2024), and
/// little more than a packet in a million of what it can.
const INTERVAL_SECONDS: f64 = 1.0;
/// Time after which a probe is lost.
const TIMEOUT_SECONDS: f64 = 0.5;
/// Round trip from which a probe is slow: about ten times that of a fabric of three tiers.
const SLOW_SECONDS: f64 = 1e-4;
/// Class of RoCE's data by the usual settings (DSCP 26, priority 3).
const DSCP: u8 = 26;
/// Port at which exporters respond.
const PORT: u16 = 10661;

/// What stands behind the question mark.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    node: String,
}

impl Expected for Asked {
    const EXPECTED: &'static str = "node=NODE";
}

/// The list.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    interval_seconds: f64,
    timeout_seconds: f64,
    slow_seconds: f64,
    dscp: u8,
    targets: Vec<TargetWire>,
}

#[derive(Debug, Serialize)]
struct TargetWire {
    device: String,
    peer_node: String,
    peer_device: String,
    address: String,
    flows: usize,
    path_class: PathClass,
}

impl TargetWire {
    fn of(target: &Target) -> Self {
        let address = &target.address;
        Self {
            device: target.device.to_string(),
            peer_node: target.peer_node.to_string(),
            peer_device: target.peer_device.to_string(),
            address: if address.contains(':') {
                format!("[{address}]:{PORT}")
            } else {
                format!("{address}:{PORT}")
            },
            flows: target.flows,
            path_class: target.path_class,
        }
    }
}

pub(crate) async fn list(
    Shared(state): App,
    Params(asked): Params<Asked>,
) -> Result<Json<List>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    let node = asked.node.parse().ok();
    let node = node.filter(|node| snapshot.layout.host(node).is_some());
    let node = node.ok_or_else(|| Refusal::not_found("node", &asked.node, "/api/v1/nodes"))?;
    let targets = view.probing.targets(&view.fabric, &view.routes, &node);
    Ok(Json(List {
        interval_seconds: INTERVAL_SECONDS,
        timeout_seconds: TIMEOUT_SECONDS,
        slow_seconds: SLOW_SECONDS,
        dscp: DSCP,
        targets: targets.iter().map(TargetWire::of).collect(),
    }))
}

//! What the fabric is made of, how it is joined, and what changed in it, as JSON.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use railscope_model::fabric::{Fabric, PartId, Timestamp};
use railscope_model::identity::{Part, SwitchName};
use serde::{Deserialize, Serialize};

use super::params::{Expected, Limit, Page, Params, Refusal};
use crate::assemble::node_parts::gpus_routed_over;
use crate::clock::unix_seconds;
use crate::fabric::{Bisection, Change, Split, Structure as CoreStructure};
use crate::serve::phrases;
use crate::serve::router::{App, snapshot};
use crate::serve::wire::{Listed, kind_word};

/// `/api/v1/topology/structure`
#[derive(Debug, Serialize)]
pub(crate) struct Structure {
    cluster: String,
    at: f64,
    kind: &'static str,
    confidence: String,
    evidence: Vec<String>,
    ruled_out: Vec<String>,
    doubts: Vec<String>,
    #[serde(flatten)]
    shape: Shape,
}

#[derive(Debug, Serialize)]
struct Shape {
    planes: usize,
    rails: usize,
    split: &'static str,
    networks: Listed<Network>,
    tiers: Vec<Capacity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bisection: Option<BisectionWire>,
    units: Listed<Unit>,
    groups: Listed<Group>,
    leaves: Listed<Capacity>,
    single_points: SinglePoints,
}

#[derive(Debug, Serialize)]
struct Network {
    switches_by_tier: Vec<usize>,
    hosts: usize,
    nics: usize,
    rails: Vec<u16>,
}

/// Bandwidth of a leaf or of a tier, in bytes per second; absent where a cable's speed is not known.
#[derive(Debug, Serialize)]
struct Capacity {
    of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    down_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_bytes_per_second: Option<f64>,
    /// Down over up; above 1 the leaf or tier is oversubscribed.
    #[serde(skip_serializing_if = "Option::is_none")]
    oversubscription: Option<f64>,
}

#[derive(Debug, Serialize)]
struct BisectionWire {
    bytes_per_second: f64,
    wanted_bytes_per_second: f64,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by_tier: Option<u8>,
}

#[derive(Debug, Serialize)]
struct Unit {
    name: String,
    leaves: Vec<String>,
    hosts: usize,
}

#[derive(Debug, Serialize)]
struct Group {
    name: String,
    switches: Vec<String>,
    nics: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    down_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    global_bytes_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SinglePoints {
    switches: usize,
    trunks: usize,
    single_homed_hosts: usize,
    worst: Listed<SinglePoint>,
}

#[derive(Debug, Serialize)]
struct SinglePoint {
    part: String,
    hosts: usize,
}

pub(crate) async fn structure(
    Shared(state): App,
    Params(page): Params<Page>,
) -> Result<Json<Structure>, Refusal> {
    let snapshot = snapshot(&state)?;
    let verdict = &snapshot.view.verdict;
    Ok(Json(Structure {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        kind: kind_word(&verdict.kind),
        confidence: verdict.confidence.to_string(),
        evidence: verdict.evidence.clone(),
        ruled_out: verdict.ruled_out.clone(),
        doubts: verdict.doubts.clone(),
        shape: Shape::of(&verdict.structure, page.limit()),
    }))
}

impl Shape {
    fn of(found: &CoreStructure, limit: usize) -> Self {
        let points = &found.single_points;
        let names = |names: &[SwitchName]| names.iter().map(ToString::to_string).collect();
        Self {
            planes: found.planes(),
            rails: found.rails(),
            split: split_word(found.split),
            networks: Listed::of(found.networks.iter(), limit, |network| Network {
                switches_by_tier: network.switches_by_tier.clone(),
                hosts: network.hosts,
                nics: network.nics,
                rails: network.rails.clone(),
            }),
            tiers: found
                .tiers
                .iter()
                .map(|tier| Capacity {
                    of: format!("tier {}", tier.tier),
                    down_bytes_per_second: tier.down,
                    up_bytes_per_second: tier.up,
                    oversubscription: tier.ratio(),
                })
                .collect(),
            bisection: found.bisection.as_ref().map(BisectionWire::of),
            units: Listed::of(found.units.iter(), limit, |unit| Unit {
                name: unit.name.clone(),
                leaves: names(&unit.leaves),
                hosts: unit.hosts.len(),
            }),
            groups: Listed::of(found.groups.iter(), limit, |group| Group {
                name: group.name.clone(),
                switches: names(&group.switches),
                nics: group.nics,
                down_bytes_per_second: group.down,
                global_bytes_per_second: group.global,
            }),
            leaves: Listed::of(found.leaves.iter(), limit, |leaf| Capacity {
                of: leaf.leaf.to_string(),
                down_bytes_per_second: leaf.down,
                up_bytes_per_second: leaf.up,
                oversubscription: leaf.ratio(),
            }),
            single_points: SinglePoints {
                switches: points.switches,
                trunks: points.trunks,
                single_homed_hosts: points.single_homed,
                worst: Listed::of(points.worst.iter(), limit, |point| SinglePoint {
                    part: point.part.to_string(),
                    hosts: point.hosts,
                }),
            },
        }
    }
}

impl BisectionWire {
    fn of(bisection: &Bisection) -> Self {
        Self {
            bytes_per_second: bisection.bytes_per_second,
            wanted_bytes_per_second: bisection.wanted,
            share: bisection.share(),
            limited_by_tier: bisection.limited_by,
        }
    }
}

fn split_word(split: Split) -> &'static str {
    match split {
        Split::Whole => "whole",
        Split::Planes => "planes",
        Split::Rails => "rails",
        Split::Apart => "apart",
    }
}

/// `from`, `to` and `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pair {
    from: String,
    to: String,
    #[serde(default)]
    limit: Limit,
}

impl Expected for Pair {
    const EXPECTED: &'static str = "from=SWITCH and to=SWITCH, and limit=N with N from 1 to 20000";
}

/// `/api/v1/topology/paths`
#[derive(Debug, Serialize)]
pub(crate) struct Paths {
    cluster: String,
    from: String,
    to: String,
    /// Cables of each path.
    hops: usize,
    /// Number of shortest paths.
    paths: f64,
    switches: Listed<Share>,
    cables: Listed<Share>,
}

/// A part and a share, from 0 to 1: of paths, or of traffic.
#[derive(Debug, Serialize)]
struct Share {
    part: String,
    share: f64,
}

pub(crate) async fn paths(
    Shared(state): App,
    Params(asked): Params<Pair>,
) -> Result<Json<Paths>, Refusal> {
    let snapshot = snapshot(&state)?;
    let fabric = &snapshot.view.fabric;
    let end = |name: &String| {
        let known = name.parse::<SwitchName>().ok();
        known
            .filter(|switch| fabric.find(&Part::Switch(switch.clone())).is_some())
            .ok_or_else(|| Refusal::not_found("switch", name, "/api/v1/topology"))
    };
    let (from, to) = (end(&asked.from)?, end(&asked.to)?);
    let found = snapshot.view.routes.between(fabric, &from, &to);
    let found = found.ok_or_else(|| {
        Refusal::new(
            StatusCode::NOT_FOUND,
            format!("no path from {:?} to {:?}", asked.from, asked.to),
            String::from("two switches that cables join, as the newest sweep shows them"),
        )
    })?;
    let limit = asked.limit.get();
    Ok(Json(Paths {
        cluster: state.cluster.clone(),
        from: asked.from,
        to: asked.to,
        hops: found.hops,
        paths: found.paths,
        switches: Listed::of(found.switches.iter(), limit, |(switch, share)| {
            share_of(fabric, *switch, *share)
        }),
        cables: Listed::of(found.cables.iter(), limit, |(cable, share)| Share {
            part: fabric
                .cable_part(*cable)
                .map_or_else(String::new, |part| part.to_string()),
            share: *share,
        }),
    }))
}

fn share_of(fabric: &Fabric, part: PartId, share: f64) -> Share {
    Share {
        part: fabric.vertex(part).part.to_string(),
        share,
    }
}

/// `cable` and `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneCable {
    cable: String,
    #[serde(default)]
    limit: Limit,
}

impl Expected for OneCable {
    const EXPECTED: &'static str =
        "cable=LINK such as link/leaf-1:33, and limit=N with N from 1 to 20000";
}

/// `/api/v1/topology/traffic`
#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    cluster: String,
    cable: String,
    /// Leaves with the share of their traffic to all other leaves that goes over the cable.
    leaves: Listed<Share>,
    /// GPUs whose NICs are connected to those leaves, with the same share.
    gpus: Listed<Share>,
}

pub(crate) async fn traffic(
    Shared(state): App,
    Params(asked): Params<OneCable>,
) -> Result<Json<Traffic>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    let cable = asked.cable.parse::<Part>().ok();
    let usage = cable
        .as_ref()
        .map(|cable| view.routes.over(&view.fabric, cable))
        .filter(|usage| !usage.leaves.is_empty());
    let (Some(cable), Some(usage)) = (cable, usage) else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            format!("no traffic over {:?}", asked.cable),
            String::from(
                "a cable between two switches of a tree or dragonfly, such as link/leaf-1:33",
            ),
        ));
    };
    let limit = asked.limit.get();
    let gpus = gpus_routed_over(&view.fabric, &view.routes, &cable);
    Ok(Json(Traffic {
        cluster: state.cluster.clone(),
        cable: asked.cable,
        leaves: Listed::of(usage.leaves.iter(), limit, |(leaf, share)| {
            share_of(&view.fabric, *leaf, *share)
        }),
        gpus: Listed::of(gpus.into_iter(), limit, |(gpu, share)| Share {
            part: gpu.to_string(),
            share,
        }),
    }))
}

/// `since` and `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    #[serde(default)]
    since: f64,
    #[serde(default)]
    limit: Limit,
}

impl Expected for Since {
    const EXPECTED: &'static str =
        "since=SECONDS of Unix time, and limit=N with N from 1 to 20000, or nothing";
}

/// `/api/v1/topology/changes`
#[derive(Debug, Serialize)]
pub(crate) struct Changes {
    cluster: String,
    at: f64,
    /// Older changes that are no longer stored.
    forgotten: u64,
    /// The newest first.
    #[serde(flatten)]
    changes: Listed<Changed>,
}

/// A change, or a difference between two times.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    at: f64,
    change: &'static str,
    statement: String,
    /// The parts that it is about.
    parts: Vec<String>,
}

impl Changed {
    pub(crate) fn of(at: Timestamp, change: &Change) -> Self {
        Self {
            at: unix_seconds(at),
            change: phrases::change_word(change),
            statement: phrases::change(change),
            parts: phrases::parts_of(change),
        }
    }
}

pub(crate) async fn changes(
    Shared(state): App,
    Params(asked): Params<Since>,
) -> Result<Json<Changes>, Refusal> {
    let snapshot = snapshot(&state)?;
    let log = &snapshot.view.changes;
    let newest = log.entries.iter().rev();
    let chosen: Vec<_> = newest
        .take_while(|logged| unix_seconds(logged.at) > asked.since)
        .collect();
    Ok(Json(Changes {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        forgotten: log.forgotten,
        changes: Listed::of(chosen.into_iter(), asked.limit.get(), |logged| {
            Changed::of(logged.at, &logged.change)
        }),
    }))
}

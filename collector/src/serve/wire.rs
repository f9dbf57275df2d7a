//! Responses of the API: the only types of the collector that are serialized as JSON.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::PortName;
use serde::Serialize;

use super::layout::{Condition, Health, Host, Layout, Switch, tier_name};
use crate::analyzer::ClusterView;
use crate::clock::unix_seconds;
use crate::diagnose::incident::Incident as IncidentOfCore;
use crate::fabric::{Kind, Verdict as CoreVerdict};
use crate::health::{SourceKey, SourceState};
use crate::serve::api::exporter::Target;
use crate::serve::wire::witnesses::{
    Lldp, TogetherWire, WitnessWire, witnesses, witnesses_together,
};
use crate::sources::targets::FileProblem;
use crate::status::{Snapshot, State, TargetState};

mod curve;
mod incident;
pub(crate) mod witnesses;

pub(crate) use curve::Curve;
pub(crate) use incident::{Candidate, Evidence, Incident, IncidentDetail, thousandths};

/// A partial or invalid response.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    pub(crate) error: String,
    pub(crate) expected: String,
}

/// A list that is cut at a limit, and reports it.
#[derive(Debug, Serialize)]
pub(crate) struct Listed<T> {
    pub(crate) total: usize,
    pub(crate) left_off: usize,
    pub(crate) items: Vec<T>,
}

impl<T> Listed<T> {
    pub(crate) fn of<S>(
        all: impl ExactSizeIterator<Item = S>,
        limit: usize,
        make: impl FnMut(S) -> T,
    ) -> Self {
        let total = all.len();
        Self {
            total,
            left_off: total.saturating_sub(limit),
            items: all.take(limit).map(make).collect(),
        }
    }
}

/// `/api/v1/incidents`
#[derive(Debug, Serialize)]
pub(crate) struct Incidents {
    pub(crate) cluster: String,
    /// Unix time of the tick.
    pub(crate) at: f64,
    pub(crate) incidents: Vec<Incident>,
}

/// `/api/v1/fabric`
#[derive(Debug, Serialize)]
pub(crate) struct Fabric {
    cluster: String,
    at: f64,
    verdict: Verdict,
    parts: std::collections::BTreeMap<&'static str, usize>,
    links: std::collections::BTreeMap<&'static str, usize>,
    units: usize,
    rails: usize,
    incidents: usize,
    gpus_affected: usize,
    targets: usize,
    targets_up: usize,
    /// Absent while the subnet has not been read completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    subnet_age_seconds: Option<f64>,
    /// Absent where nothing is known by LLDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    lldp: Option<Lldp>,
    tick_age_seconds: f64,
    /// Number of components with fresh data, by class.
    evidence: std::collections::BTreeMap<&'static str, Known>,
    /// Problems of target files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    target_files: Vec<TargetFile>,
    /// Sources other than exporters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<Source>,
}

/// A problem of a target file.
#[derive(Debug, Serialize)]
struct TargetFile {
    file: String,
    /// Whether one entry is ignored; otherwise the file is unreadable.
    left_out: bool,
    why: String,
}

impl TargetFile {
    fn of(problem: &FileProblem) -> Self {
        Self {
            file: problem.file.clone(),
            left_out: problem.left_out,
            why: problem.why.clone(),
        }
    }
}

/// Status of the last read of a source other than exporters.
#[derive(Debug, Serialize)]
struct Source {
    source: &'static str,
    name: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Number of components of a class, and number of those without fresh data.
#[derive(Debug, Serialize)]
struct Known {
    total: usize,
    unknown: usize,
}

/// What the fabric is evaluated to be.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) kind: &'static str,
    pub(crate) sentence: String,
    levels: usize,
    confidence: String,
    evidence: Vec<String>,
    doubts: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(verdict: &CoreVerdict) -> Self {
        Self {
            kind: kind_word(&verdict.kind),
            sentence: verdict.kind.to_string(),
            levels: verdict.levels,
            confidence: verdict.confidence.to_string(),
            evidence: verdict.evidence.clone(),
            doubts: verdict.doubts.clone(),
        }
    }
}

/// The kind of a fabric as a label value.
pub(crate) fn kind_word(kind: &Kind) -> &'static str {
    match kind {
        Kind::RailOptimized => "rail-optimized",
        Kind::RailOnly => "rail-only",
        Kind::FatTree => "fat-tree",
        Kind::HostGrouped => "host-grouped",
        Kind::SingleSwitch => "single-switch",
        Kind::Dragonfly => "dragonfly",
        Kind::DragonflyPlus => "dragonfly-plus",
        Kind::Direct => "direct",
        Kind::Irregular => "irregular",
        Kind::Unknown { .. } => "unknown",
    }
}

impl Fabric {
    pub(crate) fn of(snapshot: &Snapshot, state: &State) -> Self {
        let (view, layout) = (&snapshot.view, &snapshot.layout);
        let now = state.now();
        let targets = state.targets();
        Self {
            cluster: state.cluster.clone(),
            at: unix_seconds(view.now),
            verdict: Verdict::of(&view.verdict),
            parts: view.fabric.count_parts(),
            links: links(view),
            units: layout.units.len(),
            rails: layout
                .hosts
                .iter()
                .flat_map(|host| &host.nics)
                .filter_map(|nic| nic.rail)
                .max()
                .map_or(0, |rail| usize::from(rail) + 1),
            incidents: view.incidents.len(),
            gpus_affected: gpus_affected(view),
            targets: targets.count(),
            targets_up: targets.up(),
            subnet_age_seconds: view.subnet_seen.map(|seen| now.seconds_since(seen)),
            lldp: Lldp::of(view, now),
            tick_age_seconds: now.seconds_since(view.now),
            evidence: known(layout),
            target_files: state.file_problems().iter().map(TargetFile::of).collect(),
            sources: sources(state, now),
        }
    }
}

fn sources(state: &State, now: Timestamp) -> Vec<Source> {
    let sources = state.sources();
    let of = |((kind, name), source): (&SourceKey, &SourceState)| Source {
        source: kind,
        name: name.clone(),
        status: source.status.as_str(),
        age_seconds: source.last_ok.map(|at| now.seconds_since(at)),
        problem: source.problem.clone(),
    };
    sources.iter().map(of).collect()
}

fn known(layout: &Layout) -> std::collections::BTreeMap<&'static str, Known> {
    let of = |(class, states): (&'static str, [usize; Health::ALL.len()])| {
        let known = Known {
            total: states.iter().sum(),
            unknown: states[Health::Unknown as usize],
        };
        (class, known)
    };
    layout.states().into_iter().map(of).collect()
}

/// Links by kind.
pub(crate) fn links(view: &ClusterView) -> std::collections::BTreeMap<&'static str, usize> {
    use railscope_model::fabric::LinkKind;
    let mut counts = std::collections::BTreeMap::new();
    for (.., link) in view.fabric.links() {
        let kind = match link.kind {
            LinkKind::Cable => "cable",
            LinkKind::Pcie => "pcie",
            LinkKind::NvLink => "nvlink",
            LinkKind::Inside => continue,
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// GPUs that any incident slows, each once.
pub(crate) fn gpus_affected(view: &ClusterView) -> usize {
    let incidents = &view.incidents;
    let jobs = incidents.iter().flat_map(|incident| &incident.jobs);
    let behind = incidents.iter().flat_map(IncidentOfCore::gpus_behind);
    view.jobs.gpus_of(jobs, behind)
}

/// `/api/v1/topology`
#[derive(Debug, Serialize)]
pub(crate) struct Topology {
    pub(crate) cluster: String,
    pub(crate) at: f64,
    pub(crate) total: usize,
    pub(crate) left_off: usize,
    pub(crate) tiers: Vec<Tier>,
    /// Nodes of a neighborhood; empty without one.
    pub(crate) nodes: Vec<Node>,
}

/// Switches of one tier.
#[derive(Debug, Serialize)]
pub(crate) struct Tier {
    pub(crate) tier: u8,
    pub(crate) name: &'static str,
    pub(crate) switches: Vec<SwitchWire>,
}

impl Tier {
    pub(crate) fn new(tier: u8, levels: u8) -> Self {
        Self {
            tier,
            name: tier_name(tier, levels),
            switches: Vec::new(),
        }
    }
}

/// One switch with its neighbors.
#[derive(Debug, Serialize)]
pub(crate) struct SwitchWire {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    guid: Option<String>,
    ports: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    rail: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    su: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    /// NICs on it.
    nics: usize,
    peers: Vec<Peer>,
}

/// Cables from one switch to another.
#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    switch: String,
    cables: usize,
    #[serde(skip_serializing_if = "is_zero")]
    lost: usize,
    state: &'static str,
    seen_by: Vec<TogetherWire>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl SwitchWire {
    pub(crate) fn of(switch: &Switch, layout: &Layout, view: &ClusterView, now: Timestamp) -> Self {
        let peers = switch.trunks.iter().map(|trunk| Peer {
            switch: layout.switches[trunk.switch].name.to_string(),
            cables: trunk.present,
            lost: trunk.lost,
            state: trunk.condition.health.as_str(),
            seen_by: witnesses_together(&trunk.seen_by, now),
        });
        Self {
            name: switch.name.to_string(),
            guid: switch.guid.clone(),
            ports: switch.ports,
            rail: switch.rail,
            su: switch.unit.map(|unit| layout.units[unit].name.clone()),
            state: switch.condition.health.as_str(),
            incident: incident_id(switch.condition, view),
            nics: switch.hosts.len(),
            peers: peers.collect(),
        }
    }
}

fn incident_id(condition: Condition, view: &ClusterView) -> Option<String> {
    condition
        .incident
        .and_then(|place| view.incidents.get(place))
        .map(|incident| incident.id.clone())
}

/// `/api/v1/nodes`
#[derive(Debug, Serialize)]
pub(crate) struct Nodes {
    pub(crate) cluster: String,
    pub(crate) at: f64,
    #[serde(flatten)]
    pub(crate) nodes: Listed<Node>,
}

/// One node.
#[derive(Debug, Serialize)]
pub(crate) struct Node {
    node: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    su: Option<String>,
    gpus: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    /// Other exporters that are sources of the node, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more_targets: Vec<Target>,
    incidents: Vec<String>,
    nics: Vec<Nic>,
}

/// One RDMA device of a node.
#[derive(Debug, Serialize)]
pub(crate) struct Nic {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rail: Option<u16>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<String>,
    cables: Vec<Cable>,
}

/// A cable of a NIC.
#[derive(Debug, Serialize)]
pub(crate) struct Cable {
    port: u16,
    leaf: String,
    leaf_port: PortName,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<String>,
    /// Whether anybody still shows it.
    present: bool,
    seen_by: Vec<WitnessWire>,
}

impl Node {
    pub(crate) fn of(
        host: &Host,
        snapshot: &Snapshot,
        targets: &[(crate::config::Target, TargetState)],
        state: &State,
    ) -> Self {
        let (view, layout) = (&snapshot.view, &snapshot.layout);
        let now = state.now();
        let mut targets = targets
            .iter()
            .map(|(target, state)| Target::of(target, state, now));
        let mut incidents: Vec<_> = host
            .nics
            .iter()
            .map(|nic| nic.condition)
            .chain([host.inside])
            .filter_map(|condition| incident_id(condition, view))
            .collect();
        incidents.sort_unstable();
        incidents.dedup();
        Self {
            node: host.name.to_string(),
            state: host.worst().health.as_str(),
            su: host.unit.map(|unit| layout.units[unit].name.clone()),
            gpus: host.gpus,
            target: targets.next(),
            more_targets: targets.collect(),
            incidents,
            nics: host
                .nics
                .iter()
                .map(|nic| Nic::of(nic, layout, view, now))
                .collect(),
        }
    }
}

impl Nic {
    fn of(nic: &super::layout::Nic, layout: &Layout, view: &ClusterView, now: Timestamp) -> Self {
        let cables = nic.uplinks.iter().map(|uplink| Cable {
            port: uplink.port,
            leaf: layout.switches[uplink.switch].name.to_string(),
            leaf_port: uplink.switch_port.clone(),
            speed: uplink.speed.clone(),
            present: uplink.present,
            seen_by: witnesses(&uplink.seen_by, now),
        });
        Self {
            device: nic.device.clone(),
            rail: nic.rail,
            state: nic.condition.health.as_str(),
            incident: incident_id(nic.condition, view),
            cables: cables.collect(),
        }
    }
}

/// One group of Prometheus' http_sd.
#[derive(Debug, Serialize)]
pub(crate) struct SdGroup {
    pub(crate) targets: [String; 1],
    pub(crate) labels: std::collections::BTreeMap<&'static str, String>,
}

/// The health that counts in a summary.
pub(crate) fn by_health(conditions: impl Iterator<Item = Condition>) -> [usize; Health::ALL.len()] {
    let mut counts = [0; Health::ALL.len()];
    for condition in conditions {
        counts[condition.health as usize] += 1;
    }
    counts
}

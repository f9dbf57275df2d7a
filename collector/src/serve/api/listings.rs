//! The JSON API: incidents, fabric, topology, nodes, service discovery.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;

use super::params::{Neighborhood, Nothing, Page, Params, Refusal};
use crate::clock::unix_seconds;
use crate::mapping::OWN_KIND;
use crate::serve::layout::Layout;
use crate::serve::router::{App, snapshot};
use crate::serve::wire::{
    Candidate, Curve, Evidence, Fabric, Incident, IncidentDetail, Incidents, Listed, Node, Nodes,
    SdGroup, SwitchWire, Tier, Topology, thousandths,
};
use crate::status::Snapshot;

pub(crate) async fn incidents(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<Incidents>, Refusal> {
    let snapshot = snapshot(&state)?;
    let all = snapshot.view.incidents.iter();
    Ok(Json(Incidents {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        incidents: all
            .map(|incident| Incident::of(incident, &snapshot.layout, &state))
            .collect(),
    }))
}

pub(crate) async fn incident(
    Shared(state): App,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<IncidentDetail>, Refusal> {
    let snapshot = snapshot(&state)?;
    let view = &snapshot.view;
    let incident = view
        .incident(&id)
        .ok_or_else(|| Refusal::not_found("open incident", &id, "/api/v1/incidents"))?;
    Ok(Json(IncidentDetail {
        cluster: state.cluster.clone(),
        at: unix_seconds(view.now),
        incident: Incident::of(incident, &snapshot.layout, &state),
        candidates: Candidate::all(incident, &snapshot.layout),
        no_part: incident
            .weighed
            .as_ref()
            .map(|one| thousandths(one.no_part)),
        evidence: incident.findings.iter().map(Evidence::of).collect(),
        curve: view.curves.get(&incident.id).map(|curve| Curve::of(curve)),
        related: incident.related.iter().map(ToString::to_string).collect(),
        victims: incident.victims.iter().map(ToString::to_string).collect(),
    }))
}

pub(crate) async fn fabric(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<Fabric>, Refusal> {
    Ok(Json(Fabric::of(&*snapshot(&state)?, &state)))
}

pub(crate) async fn nodes(
    Shared(state): App,
    Params(page): Params<Page>,
) -> Result<Json<Nodes>, Refusal> {
    let snapshot = snapshot(&state)?;
    let hosts = snapshot.layout.hosts.iter();
    Ok(Json(Nodes {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        nodes: Listed::of(hosts, page.limit(), |host| {
            let targets = state.targets().of_node(&host.name);
            Node::of(host, &snapshot, &targets, &state)
        }),
    }))
}

pub(crate) async fn node(
    Shared(state): App,
    Path(name): Path<String>,
    _: Params<Nothing>,
) -> Result<Json<Node>, Refusal> {
    let snapshot = snapshot(&state)?;
    let host = name
        .parse()
        .ok()
        .and_then(|name| snapshot.layout.host(&name));
    let host = host.ok_or_else(|| Refusal::not_found("node", &name, "/api/v1/nodes"))?;
    let targets = state.targets().of_node(&host.name);
    Ok(Json(Node::of(host, &snapshot, &targets, &state)))
}

pub(crate) async fn topology(
    Shared(state): App,
    Params(asked): Params<Neighborhood>,
) -> Result<Json<Topology>, Refusal> {
    let snapshot = snapshot(&state)?;
    let layout = &snapshot.layout;
    let (switches, hosts) = chosen(layout, &asked)?;
    let total = switches.len() + hosts.len();
    let mut tiers: BTreeMap<u8, Tier> = BTreeMap::new();
    for place in switches.iter().take(asked.limit()) {
        let switch = &layout.switches[*place];
        let new = || Tier::new(switch.tier, layout.levels());
        let tier = tiers.entry(switch.tier).or_insert_with(new);
        tier.switches
            .push(SwitchWire::of(switch, layout, &snapshot.view, state.now()));
    }
    let left = asked.limit().saturating_sub(switches.len());
    let node = |place: &usize| {
        let host = &layout.hosts[*place];
        let targets = state.targets().of_node(&host.name);
        Node::of(host, &snapshot, &targets, &state)
    };
    Ok(Json(Topology {
        cluster: state.cluster.clone(),
        at: unix_seconds(snapshot.view.now),
        total,
        left_off: total.saturating_sub(asked.limit()),
        tiers: tiers.into_values().collect(),
        nodes: hosts.iter().take(left).map(node).collect(),
    }))
}

/// Switches and nodes requested: all switches, or those one cable around a switch or a node.
fn chosen(
    layout: &Layout,
    asked: &Neighborhood,
) -> Result<(BTreeSet<usize>, BTreeSet<usize>), Refusal> {
    let list = "/api/v1/topology";
    match (&asked.leaf, &asked.node) {
        (None, None) => Ok(((0..layout.switches.len()).collect(), BTreeSet::new())),
        (Some(leaf), None) => {
            let place = leaf
                .parse()
                .ok()
                .and_then(|name| layout.switch_place(&name));
            let place = place.ok_or_else(|| Refusal::not_found("switch", leaf, list))?;
            let switch = &layout.switches[place];
            let switches = switch
                .trunks
                .iter()
                .map(|trunk| trunk.switch)
                .chain([place])
                .collect();
            Ok((
                switches,
                switch.hosts.iter().map(|(host, _)| *host).collect(),
            ))
        }
        (None, Some(node)) => {
            let place = node.parse().ok().and_then(|name| layout.host_place(&name));
            let place = place.ok_or_else(|| Refusal::not_found("node", node, "/api/v1/nodes"))?;
            let uplinks = layout.hosts[place].nics.iter().flat_map(|nic| &nic.uplinks);
            Ok((
                uplinks.map(|uplink| uplink.switch).collect(),
                BTreeSet::from([place]),
            ))
        }
        (Some(_), Some(_)) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            String::from("query: both leaf and node"),
            String::from("one of them"),
        )),
    }
}

/// Prometheus' http_sd. Before the list is known, an error: Prometheus then keeps what it has, while an
/// empty list would stop every scrape.
pub(crate) async fn service_discovery(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<Vec<SdGroup>>, Refusal> {
    let snapshot = state.snapshot();
    let targets = state.targets();
    if !targets.known {
        return Err(Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            String::from("the list of targets is not known yet"),
            String::from("a try again once every file_sd file has been read; /-/ready shows when"),
        ));
    }
    // Other projects' exporters have a separate scrape job already.
    let own = targets
        .all
        .iter()
        .filter(|(target, state)| state.exporter(target) == OWN_KIND);
    let groups = own.filter_map(|(target, _)| {
        let node = target.node()?;
        let url = reqwest::Url::parse(&target.url).ok()?;
        let address = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        let mut labels = BTreeMap::from([
            ("__metrics_path__", url.path().to_owned()),
            ("instance", node.to_string()),
            ("node", node.to_string()),
        ]);
        if let Some(snapshot) = &snapshot {
            labels.extend(place_labels(snapshot, node));
        }
        Some(SdGroup {
            targets: [address],
            labels,
        })
    });
    Ok(Json(groups.collect()))
}

/// Unit of a node. Not its leaf, which changes with a cable: each change would be another series; that is in
/// `railscope_port_topology_info`.
fn place_labels(
    snapshot: &Snapshot,
    node: &railscope_model::identity::NodeName,
) -> Option<(&'static str, String)> {
    let layout = &snapshot.layout;
    let unit = layout.host(node)?.unit?;
    Some(("su", layout.units[unit].name.clone()))
}

//! What exporters of others show of the demo's switches: snmp_exporter of one on Ethernet, infiniband_exporter of
//! all on InfiniBand.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use railscope_model::identity::SwitchName;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::show::infiniband_exporter::infiniband_exporter;
use railscope_simulator::show::snmp::if_mib;
use railscope_simulator::spec::Transport;
use reqwest::Url;

use super::clock::Hand;

/// The requested module of snmp_exporter.
const MODULE: &str = "if_mib";
/// Paths below the demo's address.
const SNMP: &str = "/snmp";
const SUBNET: &str = "/infiniband/metrics";

/// Whose counters an exposition shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Counted {
    /// Those of an Ethernet switch.
    Switch(SwitchName),
    /// Those of all switches of an InfiniBand subnet.
    Subnet,
}

impl Counted {
    /// All expositions of a cluster. Switches of EFA are not visible.
    pub(super) fn all(cluster: &Cluster) -> Vec<Self> {
        let switches = cluster.plan().switches.iter();
        match cluster.spec().transport {
            Transport::Infiniband => vec![Self::Subnet],
            Transport::Roce => switches
                .map(|switch| Self::Switch(switch.name.clone()))
                .collect(),
            Transport::Efa => Vec::new(),
        }
    }

    /// The exposition; none if there is no response.
    pub(super) fn page(&self, cluster: &Cluster) -> Option<String> {
        match self {
            Self::Switch(name) => if_mib(cluster, name),
            Self::Subnet => infiniband_exporter(cluster),
        }
    }

    /// Whose exposition it is.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Switch(_) => "snmp_exporter",
            Self::Subnet => "infiniband_exporter",
        }
    }

    /// Where it is scraped, for a demo that listens at `base`.
    ///
    /// # Errors
    /// The address is invalid.
    pub(super) fn url(&self, base: &str) -> anyhow::Result<Url> {
        Ok(match self {
            Self::Switch(name) => {
                let query = [("module", MODULE), ("target", name.as_str())];
                Url::parse_with_params(&format!("{base}{SNMP}"), query)?
            }
            Self::Subnet => Url::parse(&format!("{base}{SUBNET}"))?,
        })
    }
}

/// The exporters, which query the simulated switches.
pub(super) fn routes(hand: Hand) -> Router {
    Router::new()
        .route(SNMP, get(switch))
        .route(SUBNET, get(subnet))
        .with_state(hand)
}

async fn subnet(State(hand): State<Hand>) -> Response {
    answer(&hand, Counted::Subnet, "no InfiniBand here").await
}

async fn switch(
    State(hand): State<Hand>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let of = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
    let wrong = |said: String| (StatusCode::BAD_REQUEST, said).into_response();
    let (module, target) = (of("module"), of("target"));
    if module != MODULE {
        return wrong(format!("module {module:?}: expected {MODULE}\n"));
    }
    match target.parse() {
        Ok(name) => {
            // As the real one reports a switch that does not respond.
            let silent = format!("error collecting metric: {target}: request timeout");
            answer(&hand, Counted::Switch(name), &silent).await
        }
        Err(error) => wrong(format!("target {target:?}: {error}\n")),
    }
}

async fn answer(hand: &Hand, counted: Counted, silent: &str) -> Response {
    match hand.count(counted).await {
        Ok(Some(page)) => page.into_response(),
        Ok(None) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{silent}\n")).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n")).into_response(),
    }
}

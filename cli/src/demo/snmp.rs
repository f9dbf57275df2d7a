//! What Prometheus' snmp_exporter would show of the demo's Ethernet switches, under its own path and query.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use railscope_model::identity::SwitchName;
use reqwest::Url;

use super::clock::Hand;

/// The module of snmp_exporter that is asked for.
const MODULE: &str = "if_mib";

/// Where a switch is scraped, of a demo that listens at `base`.
///
/// # Errors
/// The address is none.
pub(super) fn url(base: &str, switch: &SwitchName) -> anyhow::Result<Url> {
    let query = [("module", MODULE), ("target", switch.as_str())];
    Ok(Url::parse_with_params(&format!("{base}/snmp"), query)?)
}

/// The exporter, which asks the simulated switches.
pub(super) fn routes(hand: Hand) -> Router {
    Router::new().route("/snmp", get(page)).with_state(hand)
}

async fn page(State(hand): State<Hand>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let of = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
    let wrong = |said: String| (StatusCode::BAD_REQUEST, said).into_response();
    let module = of("module");
    if module != MODULE {
        return wrong(format!("module {module:?}: expected {MODULE}\n"));
    }
    let switch = match of("target").parse::<SwitchName>() {
        Ok(switch) => switch,
        Err(error) => return wrong(format!("target {:?}: {error}\n", of("target"))),
    };
    match hand.count(switch).await {
        Ok(Some(page)) => page.into_response(),
        // As the real one says of a switch that does not answer.
        Ok(None) => {
            let said = format!(
                "error collecting metric: {}: request timeout\n",
                of("target")
            );
            (StatusCode::INTERNAL_SERVER_ERROR, said).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n")).into_response(),
    }
}

//! The collector's own `/metrics`: incidents, fabric, targets, and how the collector itself does.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use railscope_model::exposition::{Format, MediaType, Page, gzip};
use railscope_model::metric::{
    COLLECTIVE_OPERATIONS, COLLECTOR_BUILD, COLLECTOR_OTLP_EXPORTS, COLLECTOR_OTLP_ITEMS,
    FABRIC_HOSTS_MISSING_RAIL, FABRIC_LEVELS, FABRIC_LINKS, FABRIC_PARTS, FABRIC_VERDICT,
    INGEST_SAMPLES, LATE_TARGETS, Metric, OPENING_SUSPENDED, PORT_TOPOLOGY, PUSH_REQUESTS,
    PUSH_SAMPLES, Profile, RECORDED_LINES, SCRAPES, SUBNET_AGE, SUBNET_INTERVAL, SUBNET_SWEEPS,
    SWEEP_DURATION, SWEEP_MADS, TARGET_AGE, TARGET_UP, TICK_DURATION, TOPOLOGY_FINDINGS,
};
use railscope_model::reading::{Labels, NodeReading};
use serde::Deserialize;

pub(crate) mod graph;
mod health;
mod incidents;
mod jobs;
mod tails;

use super::wire;
use crate::diagnose::observer::Late;
use crate::serve::api::params::{Expected, Params, Refusal};
use crate::serve::router::App;
use crate::status::{Snapshot, State};

pub(crate) async fn metrics(
    Shared(state): App,
    headers: HeaderMap,
    Params(asked): Params<Asked>,
) -> Result<Response, Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = MediaType::negotiate(text(header::ACCEPT));
    let body = page(&state, &asked.ports).encode(media_type, Profile::Full);
    let described = [
        (header::CONTENT_TYPE, media_type.content_type()),
        (header::VARY, "Accept, Accept-Encoding"),
    ];
    let zipped =
        accepts_gzip(text(header::ACCEPT_ENCODING).unwrap_or_default()).then(|| gzip(&body).ok());
    Ok(match zipped.flatten() {
        Some(zipped) => (described, [(header::CONTENT_ENCODING, "gzip")], zipped).into_response(),
        None => (described, body).into_response(),
    })
}

/// The exposition as plain text.
pub(crate) fn text(state: &State) -> String {
    page(state, &Ports::Too).write(Format::Text, Profile::Full)
}

/// Query parameters of `/metrics`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    #[serde(default)]
    ports: Ports,
}

/// Selects the topology of host ports, which is most of the exposition on a large cluster and rarely changes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ports {
    #[default]
    Too,
    Only,
    None,
}

impl Expected for Asked {
    const EXPECTED: &'static str = "ports=only, ports=none or no parameter";
}

fn page(state: &State, ports: &Ports) -> Page {
    let mut reading = match ports {
        Ports::Only => NodeReading::default(),
        Ports::Too | Ports::None => reading(state),
    };
    if let (Ports::Too | Ports::Only, Some(snapshot)) = (ports, state.snapshot()) {
        push_ports(&mut reading, &snapshot);
    }
    let doubles = reading.normalize();
    if doubles > 0 {
        tracing::error!(
            doubles,
            "duplicate series in the exposition: a bug in Railscope"
        );
    }
    Page::new(Arc::new(reading))
}

/// Whether an `Accept-Encoding` header names gzip and does not refuse it (`gzip;q=0`).
fn accepts_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        gzip && !parts
            .filter_map(|part| part.strip_prefix("q="))
            .any(|q| q.parse() == Ok(0.0))
    })
}

fn reading(state: &State) -> NodeReading {
    let mut reading = NodeReading::default();
    reading.push(
        &COLLECTOR_BUILD,
        &Labels::new([env!("CARGO_PKG_VERSION")]),
        true,
    );
    push_targets(&mut reading, state);
    health::push_targets(&mut reading, state);
    health::push_clocks(&mut reading, state);
    health::push_sources(&mut reading, state);
    health::push_clients(&mut reading, state);
    push_counters(&mut reading, &SCRAPES, state.scrapes());
    push_counters(&mut reading, &INGEST_SAMPLES, state.samples());
    if let Some(interval) = state.subnet_interval {
        let seconds = interval.as_secs_f64();
        reading.push(&SUBNET_INTERVAL, &Labels::default(), seconds);
    }
    if state.has_subnet {
        push_counters(&mut reading, &SUBNET_SWEEPS, state.sweeps());
        let mads = state.mads();
        push_counters(&mut reading, &SWEEP_MADS, mads.results());
        if mads.results().next().is_some() {
            for (phase, time) in ["topology", "counters", "forwarding"]
                .into_iter()
                .zip(mads.last)
            {
                let labels = Labels::new([phase]);
                reading.push(&SWEEP_DURATION, &labels, time.as_secs_f64());
            }
        }
    }
    if let Some(dumps) = state.dumps() {
        let counts = [("read", dumps.operations), ("malformed", dumps.malformed)];
        push_counters(&mut reading, &COLLECTIVE_OPERATIONS, counts.into_iter());
    }
    if let Some(intake) = &state.push {
        for (labels, count) in intake.requests() {
            reading.push(&PUSH_REQUESTS, &Labels::new(labels), count);
        }
        for (labels, count) in intake.samples() {
            reading.push(&PUSH_SAMPLES, &Labels::new(labels), count);
        }
    }
    if let Some(recorder) = &state.recorder {
        push_counters(&mut reading, &RECORDED_LINES, recorder.counts());
    }
    if let Some(otlp) = &state.otlp {
        for (signal, stats) in otlp.read().by_signal() {
            for (metric, counts) in [
                (&COLLECTOR_OTLP_EXPORTS, stats.exports()),
                (&COLLECTOR_OTLP_ITEMS, stats.items()),
            ] {
                for (result, count) in counts {
                    reading.push(metric, &Labels::new([signal.as_str(), result]), count);
                }
            }
        }
    }
    if let Some(snapshot) = state.snapshot() {
        push_snapshot(&mut reading, &snapshot, state);
    }
    reading
}

fn push_counters(
    reading: &mut NodeReading,
    metric: &'static Metric,
    counts: impl Iterator<Item = (&'static str, u64)>,
) {
    for (result, count) in counts {
        reading.push(metric, &Labels::new([result]), count);
    }
}

fn push_targets(reading: &mut NodeReading, state: &State) {
    let now = state.now();
    for (target, state) in &state.targets().all {
        let labels = Labels::new([&*target.name(), state.exporter(target)]);
        // A target that has not been scraped yet is neither up nor down.
        if state.last.is_some() {
            reading.push(&TARGET_UP, &labels, state.up);
        }
        if let Some(at) = state.last_ok {
            reading.push(&TARGET_AGE, &labels, now.seconds_since(at));
        }
    }
}

fn push_snapshot(reading: &mut NodeReading, snapshot: &Snapshot, state: &State) {
    let view = &snapshot.view;
    view.incidents
        .iter()
        .for_each(|incident| incidents::push(reading, incident, &snapshot.layout));
    for (class, count) in view.fabric.count_parts() {
        reading.push(&FABRIC_PARTS, &Labels::new([class]), count as u64);
    }
    health::push_parts(reading, &snapshot.layout);
    for (kind, count) in wire::links(view) {
        reading.push(&FABRIC_LINKS, &Labels::new([kind]), count as u64);
    }
    jobs::push(reading, view);
    tails::push(reading, &view.tails);
    push_verdict(reading, snapshot);
    for (rule, count) in crate::fabric::lint::count(&view.lint) {
        reading.push(&TOPOLOGY_FINDINGS, &Labels::new([rule]), count as u64);
    }
    graph::push(reading, &snapshot.layout, state.graph_series);
    let none = Labels::default();
    if let Some(seen) = view.subnet_seen {
        reading.push(&SUBNET_AGE, &none, state.now().seconds_since(seen));
    }
    reading.push(&TICK_DURATION, &none, snapshot.tick_seconds);
    let late = view.observation.late_targets as u64;
    reading.push(&LATE_TARGETS, &none, late);
    let suspended = view.observation.suspension.map(|open| open.late);
    for cause in Late::ALL {
        let labels = Labels::new([cause.as_str()]);
        reading.push(&OPENING_SUSPENDED, &labels, suspended == Some(cause));
    }
}

fn push_verdict(reading: &mut NodeReading, snapshot: &Snapshot) {
    let verdict = &snapshot.view.verdict;
    let labels = [
        wire::kind_word(&verdict.kind).to_owned(),
        verdict.levels.to_string(),
    ];
    reading.push(&FABRIC_VERDICT, &Labels::new(labels), true);
    if verdict.levels > 0 {
        let none = Labels::default();
        reading.push(&FABRIC_LEVELS, &none, verdict.levels as u64);
        let hosts: std::collections::BTreeSet<_> = verdict
            .wiring
            .missing
            .iter()
            .map(|missing| &missing.host)
            .collect();
        reading.push(&FABRIC_HOSTS_MISSING_RAIL, &none, hosts.len() as u64);
    }
}

fn push_ports(reading: &mut NodeReading, snapshot: &Snapshot) {
    let layout = &snapshot.layout;
    for host in &layout.hosts {
        for nic in &host.nics {
            // The newest cable of a port: a missing one may be listed with it until it is
            // forgotten.
            let mut ports = std::collections::BTreeMap::new();
            for uplink in &nic.uplinks {
                let newest = ports.entry(uplink.port).or_insert(uplink);
                if uplink.present && !newest.present {
                    *newest = uplink;
                }
            }
            for (port, uplink) in ports {
                let rail = nic.rail.map(|rail| rail.to_string()).unwrap_or_default();
                let (port, leaf_port) = (port.to_string(), uplink.switch_port.to_string());
                let leaf = layout.switches[uplink.switch].name.as_str();
                let labels = [
                    host.name.as_str(),
                    &nic.device,
                    &port,
                    &rail,
                    leaf,
                    &leaf_port,
                ];
                reading.push(&PORT_TOPOLOGY, &Labels::new(labels), true);
            }
        }
    }
}

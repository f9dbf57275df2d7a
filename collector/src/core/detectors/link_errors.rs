//! Links that corrupt what they carry: error counters that rise faster than their limit and their peers'.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::RDMA_PORT_ERRORS;

use super::peers::median;
use crate::core::classes::LINK_ERRORS;
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::inventory::gpus_behind;

/// How much of an error is too much.
struct Limit {
    /// The counter's `kind` label.
    kind: &'static str,
    /// Most errors per hour.
    per_hour: f64,
    /// Fewest errors in the window that are looked at at all.
    at_least: f64,
    /// Where the number comes from.
    source: &'static str,
}

const LIMITS: &[Limit] = &[
    Limit {
        kind: "symbol_error",
        per_hour: 120.0,
        at_least: 5.0,
        source: "NVSentinel: 120 an hour is a bit error rate of 1e-12",
    },
    Limit {
        kind: "link_error_recovery",
        per_hour: 300.0,
        at_least: 2.0,
        source: "NVSentinel: 5 a minute",
    },
    Limit {
        kind: "link_downed",
        per_hour: 0.0,
        at_least: 1.0,
        source: "NVSentinel: any",
    },
    Limit {
        kind: "local_link_integrity_errors",
        per_hour: 0.0,
        at_least: 1.0,
        source: "NVSentinel: any",
    },
    Limit {
        kind: "excessive_buffer_overrun_errors",
        per_hour: 0.0,
        at_least: 1.0,
        source: "NVSentinel: any",
    },
    Limit {
        kind: "port_rcv_errors",
        per_hour: 36_000.0,
        at_least: 10.0,
        source: "NVSentinel: 10 a second",
    },
];

/// The window in which errors are counted: as long as the history reaches at 5 s scrapes.
const WINDOW_SECONDS: f64 = 120.0;
/// Errors that rise everywhere are the fabric's or the scheduler's doing: a link must stand out by this factor.
const ABOVE_PEERS: f64 = 5.0;

struct LinkErrors;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(LinkErrors)
}

impl Detector for LinkErrors {
    fn name(&self) -> &'static str {
        "link-errors"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut rises: BTreeMap<String, Vec<(NodeName, RdmaPort, f64, f64)>> = BTreeMap::new();
        for (node, history) in view.history.fresh_nodes(view.now) {
            for (labels, window) in history.series(&RDMA_PORT_ERRORS) {
                let labels: Vec<_> = labels.values().collect();
                let [device, port, kind] = labels[..] else {
                    continue;
                };
                let (Ok(device), Ok(port)) = (device.parse(), port.parse()) else {
                    continue;
                };
                if let Some(rise) = window.increase(WINDOW_SECONDS) {
                    let row = (
                        node.clone(),
                        RdmaPort { device, port },
                        rise.amount,
                        rise.seconds,
                    );
                    rises.entry(kind.to_owned()).or_default().push(row);
                }
            }
        }
        for limit in LIMITS {
            let rows = rises.get(limit.kind).map_or(&[][..], Vec::as_slice);
            let peers =
                median(rows.iter().map(|(.., amount, seconds)| amount / seconds)).unwrap_or(0.0);
            for (node, port, amount, seconds) in rows {
                let per_hour = 3600.0 * amount / seconds;
                let stands_out = amount / seconds > ABOVE_PEERS * peers;
                // Judged over the whole window: two errors in the first five seconds are no rate.
                let over_window = 3600.0 * amount / seconds.max(WINDOW_SECONDS);
                if *amount >= limit.at_least && over_window > limit.per_hour && stands_out {
                    out.push(evidence(
                        view,
                        node,
                        port,
                        limit,
                        *amount,
                        *seconds,
                        per_hour,
                        peers * 3600.0,
                    ));
                }
            }
        }
    }

    fn explain(&self, evidence: &Evidence) -> Explanation {
        let limit = LIMITS.iter().find(|limit| limit.kind == evidence.signal);
        Explanation {
            check: "An error counter of a port rises faster than its limit, and faster than the same counter of the other ports.",
            threshold: limit.map_or_else(String::new, |limit| {
                format!(
                    "more than {} an hour and at least {} in {WINDOW_SECONDS} s ({}), and more than {ABOVE_PEERS} times the median port",
                    limit.per_hour, limit.at_least, limit.source
                )
            }),
            clears: "The counter stays below its limit for the whole window.",
        }
    }
}

#[allow(clippy::too_many_arguments)] // the columns of one row
fn evidence(
    view: &View<'_>,
    node: &NodeName,
    port: &RdmaPort,
    limit: &Limit,
    amount: f64,
    seconds: f64,
    per_hour: f64,
    peers_per_hour: f64,
) -> Evidence {
    let part = Part::HostLink(node.clone(), port.clone());
    Evidence {
        detector: "link-errors",
        signal: limit.kind,
        class: &LINK_ERRORS,
        // Errors slow nobody until retransmissions do; how much cannot be told from the counter alone.
        effect: 0.0,
        statement: format!(
            "{} of port {port} of {node} rose by {amount:.0} in {seconds:.0} s ({per_hour:.0} an hour); on the median port it rises by {peers_per_hour:.0} an hour.",
            limit.kind
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        part,
    }
}

//! `/api/v1/tail`: latency of paths by class, the components and pairs of NICs with the most slow probes, and step times of
//! jobs.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State as Shared;
use serde::Serialize;

use super::params::{Nothing, Params, Refusal};
use crate::clock::unix_seconds;
use crate::detect::tails::{Causes, ClassTail, LISTED, Quantile, STALLS_SECONDS, Slow};
use crate::jobs::step_tails::{Share, StepTail};
use crate::serve::router::{App, snapshot};

/// The response.
#[derive(Debug, Serialize)]
pub(crate) struct TailsWire {
    cluster: String,
    /// Unix time at which it was summed up, of the 150 s before.
    at: f64,
    classes: Vec<ClassWire>,
    causes: CausesWire,
    coverage: CoverageWire,
    components: Vec<ComponentWire>,
    pairs: Vec<PairWire>,
    /// Jobs that report the duration of their steps.
    jobs: Vec<StepTailWire>,
}

/// Step times of a job.
#[derive(Debug, Serialize)]
pub(crate) struct StepTailWire {
    job: String,
    /// Of the last 1,000 steps, by name: `p50`, `p99`, `p999`.
    quantiles_seconds: BTreeMap<&'static str, f64>,
    /// What follows is of this time, at most an hour.
    watched_seconds: f64,
    steps: f64,
    /// Time by which long steps exceeded the median.
    excess_seconds: f64,
    /// Share of the excess that slow and lost probes of the job's nodes explain; absent where it cannot be
    /// determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    fabric: Option<ShareWire>,
    /// The same of late timers of its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<ShareWire>,
}

/// A share with its interval of 95 %.
#[derive(Debug, Serialize)]
struct ShareWire {
    ratio: f64,
    at_least: f64,
    at_most: f64,
}

impl StepTailWire {
    pub(crate) fn of(tail: &StepTail) -> Self {
        let share = |share: Share| ShareWire {
            ratio: share.value,
            at_least: share.at_least,
            at_most: share.at_most,
        };
        let quantiles = QUANTILES.iter().filter_map(|(name, q)| {
            let seconds = tail.quantiles.get(&q.to_string())?;
            Some((*name, *seconds))
        });
        let explained = tail.explained;
        Self {
            job: tail.job.to_string(),
            quantiles_seconds: quantiles.collect(),
            watched_seconds: tail.watched_seconds,
            steps: tail.steps,
            excess_seconds: tail.excess_seconds,
            fabric: explained.and_then(|of| of.fabric).map(share),
            hosts: explained.and_then(|of| of.hosts).map(share),
        }
    }
}

/// How many slow probes are explained by what.
#[derive(Debug, Serialize)]
struct CausesWire {
    slow: f64,
    usual: f64,
    /// By kind of component.
    explained: BTreeMap<&'static str, f64>,
    unexplained: f64,
    hosts: Vec<HostWire>,
}

#[derive(Debug, Serialize)]
struct HostWire {
    node: String,
    slow: f64,
    /// Timers that fire more than 200 us late; absent where the host does not measure them.
    #[serde(skip_serializing_if = "Option::is_none")]
    timer_stalls_per_second: Option<f64>,
}

/// Cables that at least one flow crosses, and all.
#[derive(Debug, Serialize)]
struct CoverageWire {
    host_cables_probed: usize,
    host_cables: usize,
    switch_cables_probed: usize,
    switch_cables: usize,
}

impl CausesWire {
    fn of(causes: &Causes) -> Self {
        let explained = causes.explained.iter();
        let hosts = causes.hosts.iter().take(LISTED).map(|host| HostWire {
            node: host.node.to_string(),
            slow: host.slow,
            timer_stalls_per_second: host.timer_stalls_per_second,
        });
        Self {
            slow: causes.slow,
            usual: causes.usual,
            explained: explained
                .map(|(cause, slow)| (cause.name(), *slow))
                .collect(),
            unexplained: causes.unexplained(),
            hosts: hosts.collect(),
        }
    }
}

/// Paths of one class.
#[derive(Debug, Serialize)]
struct ClassWire {
    path_class: &'static str,
    transport: String,
    nodes: usize,
    /// Answered probes whose round trip is known.
    timed: f64,
    lost: f64,
    /// By name: `p50`, `p99`, `p999`; empty without any answered probe.
    quantiles: BTreeMap<&'static str, QuantileWire>,
    /// Share of the timed probes above each bound, by the bound in microseconds.
    stall_ratios: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_node: Option<WorstNode>,
}

/// A quantile with what is known of its error.
#[derive(Debug, Serialize)]
struct QuantileWire {
    seconds: f64,
    at_least_seconds: f64,
    /// Absent where nothing bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct WorstNode {
    node: String,
    p999_seconds: f64,
}

/// How many of the probes over one thing were slow.
#[derive(Debug, Serialize)]
struct SlowWire {
    probes: f64,
    slow: f64,
    ratio: f64,
    /// The same share over all paths of the same classes.
    expected_ratio: f64,
}

#[derive(Debug, Serialize)]
struct ComponentWire {
    component: String,
    #[serde(flatten)]
    slow: SlowWire,
}

#[derive(Debug, Serialize)]
struct PairWire {
    node: String,
    device: String,
    peer_node: String,
    peer_device: String,
    path_class: &'static str,
    #[serde(flatten)]
    slow: SlowWire,
}

/// Quantiles that are reported, with their names.
pub(crate) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

impl ClassWire {
    fn of(class: &ClassTail) -> Self {
        let quantile = |quantile: Quantile| QuantileWire {
            seconds: quantile.seconds,
            at_least_seconds: quantile.at_least,
            at_most_seconds: Some(quantile.at_most).filter(|bound| bound.is_finite()),
        };
        let quantiles = QUANTILES.iter().filter_map(|(name, q)| {
            let found = class.round_trips.quantile(*q)?;
            Some((*name, quantile(found)))
        });
        let stalls = STALLS_SECONDS.iter().filter_map(|bound| {
            let share = class.round_trips.share_above(*bound)?;
            Some((format!("{:.0}us", bound * 1e6), share))
        });
        let worst = class.worst_node.as_ref();
        Self {
            path_class: class.path_class.name(),
            transport: class.transport.clone(),
            nodes: class.nodes,
            timed: class.round_trips.count(),
            lost: class.lost,
            quantiles: quantiles.collect(),
            stall_ratios: stalls.collect(),
            worst_node: worst.map(|(seconds, node)| WorstNode {
                node: node.to_string(),
                p999_seconds: *seconds,
            }),
        }
    }
}

impl SlowWire {
    fn of<T>(slow: &Slow<T>) -> Self {
        Self {
            probes: slow.probes,
            slow: slow.slow,
            ratio: slow.ratio(),
            expected_ratio: slow.expected / slow.probes,
        }
    }
}

pub(crate) async fn tails(
    Shared(state): App,
    _: Params<Nothing>,
) -> Result<Json<TailsWire>, Refusal> {
    let view = &snapshot(&state)?.view;
    let tails = &view.tails;
    let components = tails.components.iter().map(|slow| ComponentWire {
        component: slow.of.to_string(),
        slow: SlowWire::of(slow),
    });
    let pairs = tails.pairs.iter().map(|slow| PairWire {
        node: slow.of.node.to_string(),
        device: slow.of.device.to_string(),
        peer_node: slow.of.peer_node.to_string(),
        peer_device: slow.of.peer_device.to_string(),
        path_class: slow.of.path_class.name(),
        slow: SlowWire::of(slow),
    });
    Ok(Json(TailsWire {
        cluster: state.cluster.clone(),
        at: unix_seconds(tails.at),
        classes: tails.classes.iter().map(ClassWire::of).collect(),
        causes: CausesWire::of(&tails.causes),
        coverage: CoverageWire {
            host_cables_probed: tails.coverage.host_cables.probed,
            host_cables: tails.coverage.host_cables.all,
            switch_cables_probed: tails.coverage.switch_cables.probed,
            switch_cables: tails.coverage.switch_cables.all,
        },
        components: components.collect(),
        pairs: pairs.collect(),
        jobs: view.step_tails.iter().map(StepTailWire::of).collect(),
    }))
}

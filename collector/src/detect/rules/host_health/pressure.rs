//! Hosts whose processes wait for a CPU or for memory, while those of the other hosts of their job do not: another process beside
//! the job, or too little memory for it.
//!
//! Jobs differ in their load on a host, so a host is compared with those of its job. Where the job has few hosts, or no job
//! is known, a single one is named among all that compute.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Add as _;

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{
    CPU_RUN, CPU_WAIT, HOST_PRESSURE, Metric, NODE_CPUS, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_UP,
};

use super::{ABOVE_PEERS, WINDOW_SECONDS};
use crate::assemble::netdev::has_gpus;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::HOST_STALLS;
use crate::detect::detector::{Evidence, View};
use crate::detect::gpus;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory};

/// What the kernel counts of a wait.
enum Counted {
    /// Time in which some process waits for this resource (pressure stall information).
    Pressure(&'static str),
    /// Time that ready processes wait for a CPU, on the average CPU: only of nodes that do not measure pressure.
    RunQueues,
    /// Time that the average CPU runs anything: only of nodes that count neither.
    Busy,
}

/// A resource that processes wait for.
struct Resource {
    counted: Counted,
    /// Share of the time from which a host is slow.
    share: f64,
    /// How many times as much as the median host.
    above_peers: f64,
    what: &'static str,
    source: &'static str,
}

/// How many times as busy as the median host a host is that runs another process.
const BUSY_ABOVE_PEERS: f64 = 2.0;

const RESOURCES: &[Resource] = &[
    Resource {
        counted: Counted::Pressure("cpu"),
        share: 0.2,
        above_peers: ABOVE_PEERS,
        what: "of the time a process waits for a CPU",
        source: "data loaders of healthy nodes wait for up to 0.1 of the time (a choice)",
    },
    Resource {
        counted: Counted::RunQueues,
        share: 0.1,
        above_peers: ABOVE_PEERS,
        what: "of the time a ready process waits for the average CPU",
        source: "healthy nodes of foreign clusters show less than 0.01 (a choice)",
    },
    Resource {
        counted: Counted::Busy,
        share: 0.6,
        above_peers: BUSY_ABOVE_PEERS,
        what: "of the time the average CPU is busy",
        source: "CPUs of healthy nodes of foreign clusters are busy for up to 0.57 of a minute, of median ones for up to 0.28",
    },
    Resource {
        counted: Counted::Pressure("memory"),
        share: 0.1,
        above_peers: ABOVE_PEERS,
        what: "of the time a process waits for memory",
        source: "healthy nodes do not reclaim or swap (a choice)",
    },
];

/// Part of [`Resource::share`] that is enough where the others hardly wait.
const FAINT: f64 = 0.5;
/// How many times as long as the median host such a host waits.
const FAINT_ABOVE_PEERS: f64 = 20.0;

/// Bytes a second that a node sends by RDMA from which it computes, where no exporter reports GPUs.
const SENT: f64 = 1e8;

impl Resource {
    fn metric(&self) -> &'static Metric {
        match self.counted {
            Counted::Pressure(_) => &HOST_PRESSURE,
            Counted::RunQueues => &CPU_WAIT,
            Counted::Busy => &CPU_RUN,
        }
    }

    /// Share of the window in which a process waited.
    fn waits(&self, history: &NodeHistory) -> Option<f64> {
        let pressure = |resource| history.window(&HOST_PRESSURE, &[resource, "some"]);
        match self.counted {
            Counted::Pressure(resource) => {
                let waited = pressure(resource)?.increase(WINDOW_SECONDS);
                waited.map(Increase::rate)
            }
            Counted::RunQueues | Counted::Busy if pressure("cpu").is_some() => None,
            Counted::Busy if history.series(&CPU_WAIT).next().is_some() => None,
            Counted::RunQueues | Counted::Busy => {
                let of_nodes = history.by_numa_node(self.metric());
                let seconds = of_nodes.filter_map(|(_, seconds)| seconds.increase(WINDOW_SECONDS));
                let cpus = history.value(&NODE_CPUS, &[]).filter(|cpus| *cpus > 0.0)?;
                Some(seconds.reduce(Increase::add)?.rate() / cpus)
            }
        }
    }

    /// Whether one of its hosts that waits for this share is slow, where the median waits for `usual`.
    fn is_slow(&self, share: f64, usual: f64) -> bool {
        // A CPU that is busy for a third of the time keeps nobody waiting.
        let may_be_faint = !matches!(self.counted, Counted::Busy);
        share > self.share.max(self.above_peers * usual)
            || may_be_faint && share > (FAINT * self.share).max(FAINT_ABOVE_PEERS * usual)
    }
}

/// A host and for what share of the time its processes wait.
type Waiting<'a> = (&'a NodeName, f64);

/// Adds the hosts that stand out in their job.
pub(super) fn find(view: &View<'_>, out: &mut Vec<Evidence>) {
    let jobs = jobs(view);
    let cohort_of = |node: &NodeName, history: &NodeHistory| match &jobs {
        Some(jobs) => match jobs.get(node) {
            Some(job) => *job,
            // Its GPUs, and with them its job, are not exported.
            None => (!has_gpus(history)).then_some(""),
        },
        None => Some(""),
    };
    let nodes = || view.history.fresh_nodes(view.now);
    let usual_ports = LazyCell::new(|| {
        let of_gpus = nodes().filter(|(_, history)| has_gpus(history));
        let mut of_gpus: Vec<usize> = of_gpus.map(|(_, history)| ports(history)).collect();
        of_gpus.sort_unstable();
        of_gpus.get(of_gpus.len() / 2).copied()
    });
    // A node that prepares a job, or ends it, computes nothing; nor does one with other ports than those with GPUs.
    let computes = |history: &NodeHistory| match has_gpus(history) {
        true => gpus::any_is_busy(history),
        false => usual_ports.is_none_or(|usual| ports(history) == usual) && sends_by_rdma(history),
    };
    let nodes = nodes().filter(|(_, history)| computes(history));
    let hosts: Vec<_> = nodes
        .filter_map(|(node, history)| Some((cohort_of(node, history)?, node, history)))
        .collect();
    for resource in RESOURCES {
        let mut cohorts: BTreeMap<&str, Vec<Waiting<'_>>> = BTreeMap::new();
        for (cohort, node, history) in &hosts {
            if let Some(share) = resource.waits(history) {
                cohorts.entry(cohort).or_default().push((node, share));
            }
        }
        let all: Vec<f64> = cohorts
            .values()
            .flatten()
            .map(|(_, share)| *share)
            .collect();
        if all.len() < MIN_PEERS {
            continue;
        }
        let of_all = median(all).unwrap_or(0.0);
        for (cohort, hosts) in cohorts {
            // The median of few hosts is not reliable: one of several may be slow by what all hosts do.
            let is_few = hosts.len() < MIN_PEERS;
            let usual = match is_few {
                true => of_all,
                false => median(hosts.iter().map(|(_, share)| *share)).unwrap_or(0.0),
            };
            let is_slow = |(_, share): &&Waiting<'_>| resource.is_slow(*share, usual);
            let slow: Vec<_> = hosts.iter().filter(is_slow).collect();
            // Several may belong to one job with a higher load, and so may the only one.
            let is_of_job = !cohort.is_empty();
            let one_of_several = slow.len() == 1 && (hosts.len() > 1 || !is_of_job);
            if one_of_several || is_of_job && !is_few {
                let slow = slow.into_iter();
                out.extend(slow.map(|host| evidence(view, resource, host, usual)));
            }
        }
    }
}

/// RDMA ports that a node reports.
fn ports(history: &NodeHistory) -> usize {
    history.series(&RDMA_PORT_UP).count()
}

/// Whether a node sends as those do that compute.
fn sends_by_rdma(history: &NodeHistory) -> bool {
    let ports = history.series(&RDMA_PORT_TRANSMIT_BYTES);
    let rates = ports.filter_map(|(_, bytes)| bytes.newest_increase(WINDOW_SECONDS));
    rates.map(Increase::rate).sum::<f64>() >= SENT
}

/// The limits as text, to follow those of stalls.
pub(super) fn limits() -> String {
    let limits = RESOURCES.iter().map(|resource| {
        format!(
            ", or more than {:.0} % {}",
            100.0 * resource.share,
            resource.what
        )
    });
    let faint = format!(
        " (or {:.0} % of that, if that is {FAINT_ABOVE_PEERS:.0} times the median host)",
        100.0 * FAINT
    );
    limits.chain([faint]).collect()
}

/// The limits, as rules.
pub(super) fn thresholds() -> impl Iterator<Item = Threshold> {
    let limits = RESOURCES
        .iter()
        .map(|resource| Threshold::new(resource.what, resource.share, "ratio", resource.source));
    limits.chain([
        Threshold::new(
            "part of these that is enough where the others hardly wait",
            FAINT,
            "of the limit",
            "such a host stands out by far (a choice)",
        ),
        Threshold::new(
            "above the median host then",
            FAINT_ABOVE_PEERS,
            "times",
            "as for a node that waits for I/O alone (a choice)",
        ),
        Threshold::new(
            "busy, above the median host",
            BUSY_ABOVE_PEERS,
            "times",
            "the least that another process made of it in foreign clusters is 2.2",
        ),
        gpus::busy_node(),
        Threshold::new(
            "bytes that a node sends by RDMA from which it computes, where no exporter reports GPUs",
            SENT,
            "B/s",
            "management sends less (a choice)",
        ),
    ])
}

/// The job of each node that runs exactly one; none where no job is known at all.
fn jobs<'a>(view: &View<'a>) -> Option<BTreeMap<&'a NodeName, Option<&'a str>>> {
    let mut of_node: BTreeMap<&NodeName, Option<&str>> = BTreeMap::new();
    for job in view.jobs.iter().filter(|job| job.is_heard) {
        for node in job.nodes.keys() {
            let only = of_node.entry(node).or_insert(Some(&*job.name));
            if *only != Some(&*job.name) {
                *only = None;
            }
        }
    }
    (view.jobs.iter().len() > 0).then_some(of_node)
}

fn evidence(
    view: &View<'_>,
    resource: &Resource,
    (node, share): &Waiting<'_>,
    usual: f64,
) -> Evidence {
    let part = Part::Host((*node).clone());
    Evidence {
        detector: "host-health",
        signal: resource.metric().name,
        class: &HOST_STALLS,
        // Which process waits, and whether the job waits for that, is not known.
        effect: 0.0,
        statement: format!(
            "On {node} for {:.0} % {}; on the median one of its peers for {:.1} %.",
            100.0 * share,
            resource.what,
            100.0 * usual
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

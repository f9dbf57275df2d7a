//! Hosts whose processes wait for a CPU or for memory, while those of the other hosts of their job do not: another process beside
//! the job, or too little memory for it.
//!
//! Jobs differ in what they ask of a host, so that a host is compared with those of its own job only. Where no job is known, a
//! single one is named among all that compute.

use std::collections::BTreeMap;

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::HOST_PRESSURE;

use super::{ABOVE_PEERS, WINDOW_SECONDS};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::HOST_STALLS;
use crate::detect::detector::{Evidence, View};
use crate::detect::gpus;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory};

/// A resource that the kernel counts waits for (pressure stall information).
struct Resource {
    label: &'static str,
    /// Share of the time in which a process waits for it, from which a host is slow.
    share: f64,
    what: &'static str,
    source: &'static str,
}

const RESOURCES: &[Resource] = &[
    Resource {
        label: "cpu",
        share: 0.2,
        what: "of the time a process waits for a CPU",
        source: "data loaders of healthy nodes wait for up to 0.1 of the time (a choice)",
    },
    Resource {
        label: "memory",
        share: 0.1,
        what: "of the time a process waits for memory",
        source: "healthy nodes do not reclaim or swap (a choice)",
    },
];

/// Adds the hosts that stand out in their job.
pub(super) fn find(view: &View<'_>, out: &mut Vec<Evidence>) {
    let jobs = jobs(view);
    let cohort_of = |node: &NodeName| match &jobs {
        Some(jobs) => jobs.get(node).copied().flatten(),
        None => Some(""),
    };
    // A node that prepares a job, or ends it, computes nothing.
    let nodes = view.history.fresh_nodes(view.now);
    let nodes = nodes.filter(|(_, history)| gpus::any_is_busy(history));
    let hosts: Vec<_> = nodes
        .filter_map(|(node, history)| Some((cohort_of(node)?, node, history)))
        .collect();
    for resource in RESOURCES {
        let mut cohorts: BTreeMap<&str, Vec<(&NodeName, f64)>> = BTreeMap::new();
        for (cohort, node, history) in &hosts {
            if let Some(share) = waits(history, resource) {
                cohorts.entry(cohort).or_default().push((node, share));
            }
        }
        for hosts in cohorts.into_values().filter(|of| of.len() >= MIN_PEERS) {
            let usual = median(hosts.iter().map(|(_, share)| *share)).unwrap_or(0.0);
            let stands_out =
                |(_, share): &(_, f64)| *share > resource.share.max(ABOVE_PEERS * usual);
            let slow: Vec<_> = hosts.into_iter().filter(stands_out).collect();
            // Several may be those of one job that asks for more.
            if jobs.is_some() || slow.len() == 1 {
                let slow = slow.into_iter();
                out.extend(
                    slow.map(|(node, share)| evidence(view, resource, node, [share, usual])),
                );
            }
        }
    }
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
    limits.collect()
}

/// The limits, as rules.
pub(super) fn thresholds() -> impl Iterator<Item = Threshold> {
    let limits = RESOURCES
        .iter()
        .map(|resource| Threshold::new(resource.what, resource.share, "ratio", resource.source));
    limits.chain([gpus::busy_node()])
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

/// Share of the window in which a process waited.
fn waits(history: &NodeHistory, resource: &Resource) -> Option<f64> {
    let pressure = history.window(&HOST_PRESSURE, &[resource.label, "some"])?;
    pressure.increase(WINDOW_SECONDS).map(Increase::rate)
}

fn evidence(
    view: &View<'_>,
    resource: &Resource,
    node: &NodeName,
    [share, usual]: [f64; 2],
) -> Evidence {
    let part = Part::Host(node.clone());
    Evidence {
        detector: "host-health",
        signal: HOST_PRESSURE.name,
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

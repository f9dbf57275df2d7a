//! Cables of idle nodes that lose their link: an operator who reseats one drains the node first, so a ticket is for those that
//! stay down, or come back down.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::{
    GPU_UTILIZATION, Metric, NIC_PRIORITY_BYTES, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_TRANSMIT_BYTES,
};

use crate::classes::{LINK_ERRORS, PORT_DOWN};
use crate::diagnose::incident::Finding;
use crate::diagnose::stages::job_impact::{IDLE_SECONDS, does_nothing};
use crate::diagnose::stages::lost_links::{PARENT_MIN_CHILDREN, cables_of_switches};
use crate::jobs::job::Jobs;
use crate::store::{History, Increase, NodeHistory};

/// How long reseating, cleaning or swapping may take (a choice).
const RESEAT_SECONDS: f64 = 300.0;
/// How long a cable that was down is remembered: one that goes down again is not reseated (a choice).
const REMEMBERED_SECONDS: f64 = 1_800.0;
/// A node that reports nothing any more was idle if it was so for as long before: nodes are switched off soon after the last job
/// (a choice).
const IDLE_BEFORE_OFF_SECONDS: f64 = 10.0;
/// Bytes per second of a port that keep-alives alone do not send (a choice).
const KEEP_ALIVE: f64 = 1e6;

/// Cables that were held, and when each was first found to be down.
#[derive(Debug, Default)]
pub(crate) struct Reseats(BTreeMap<Part, Timestamp>);

impl Reseats {
    /// Cables whose incident waits, and hosts that lost such cables: their node is idle, they have been down for a short time, and
    /// not before. Errors of such a cable wait with it. Those of three or more hosts of one switch are no reseating.
    pub(crate) fn held(
        &mut self,
        fabric: &Fabric,
        (history, jobs, now): (&History, &Jobs, Timestamp),
        findings: &[Finding],
        was_open: impl Fn(&Part) -> bool,
    ) -> BTreeSet<Part> {
        self.0
            .retain(|_, since| now.seconds_since(*since) <= REMEMBERED_SECONDS);
        let of = |class| {
            let all = findings.iter().map(|found| &found.evidence);
            all.filter(move |evidence| evidence.class == class)
        };
        let down: BTreeSet<&Part> = of(&PORT_DOWN).map(|evidence| &evidence.part).collect();
        for part in &down {
            if !was_open(part) && is_on_idle_node(part, (history, jobs, now)) {
                self.0.entry((*part).clone()).or_insert(now);
            }
        }
        let errors = of(&LINK_ERRORS).map(|evidence| &evidence.part);
        let mut held: BTreeSet<Part> = down.iter().copied().chain(errors).cloned().collect();
        held.retain(|part| {
            let since = self.0.get(part);
            since.is_some_and(|since| now.seconds_since(*since) < RESEAT_SECONDS)
                && is_on_idle_node(part, (history, jobs, now))
        });
        for cables in cables_of_switches(fabric, &down).into_values() {
            let lost = || cables.iter().filter(|(cable, _)| down.contains(cable));
            let hosts: BTreeSet<_> = lost().filter_map(|(cable, _)| cable.node()).collect();
            if hosts.len() >= PARENT_MIN_CHILDREN {
                lost().for_each(|(cable, _)| {
                    held.remove(cable);
                });
            }
        }
        // What is found at a host itself does not wait.
        let of_itself: BTreeSet<&Part> = findings.iter().map(|own| &own.evidence.part).collect();
        let hosts = held
            .iter()
            .filter_map(|cable| Some(Part::Host(cable.node()?.clone())));
        let hosts = hosts.filter(|host| !was_open(host) && !of_itself.contains(host));
        let hosts: Vec<_> = hosts.collect();
        held.extend(hosts);
        held
    }
}

/// Whether it is a cable of a node that runs no known job, and did not compute, send or receive lately, or before it became silent.
fn is_on_idle_node(cable: &Part, (history, jobs, now): (&History, &Jobs, Timestamp)) -> bool {
    let Part::HostLink(name, _) = cable else {
        return false;
    };
    history.node(name).is_some_and(|node| {
        let is_off = node
            .series(&GPU_UTILIZATION)
            .all(|(_, gpu)| gpu.is_late(now));
        let seconds = if is_off {
            IDLE_BEFORE_OFF_SECONDS
        } else {
            IDLE_SECONDS
        };
        does_nothing(node, seconds)
            && carries_nothing(node, seconds)
            && jobs.of_node(name).next().is_none()
    })
}

/// Whether its RDMA ports have counters of bytes, and neither these nor their priorities have carried more than keep-alives for the
/// last `seconds` that they reported, or in the newest step.
fn carries_nothing(node: &NodeHistory, seconds: f64) -> bool {
    let rates = |metric: &'static Metric| {
        let ports = node.series(metric);
        ports.map(move |(_, window)| window.newest_increase(seconds).map(Increase::rate))
    };
    let mut of_rdma = rates(&RDMA_PORT_RECEIVE_BYTES)
        .chain(rates(&RDMA_PORT_TRANSMIT_BYTES))
        .peekable();
    of_rdma.peek().is_some()
        && of_rdma
            .chain(rates(&NIC_PRIORITY_BYTES))
            .all(|rate| rate.is_some_and(|rate| rate < KEEP_ALIVE))
}

#[cfg(test)]
mod tests {
    use railscope_model::identity::NodeName;

    use super::*;

    /// A node computes and sends until second 100, then neither, and is last heard of at second 115.
    #[test]
    fn a_node_that_is_switched_off_soon_after_its_job_was_idle() {
        let at = |seconds: u64| Timestamp(1_700_000_000_000 + seconds * 1000);
        let node: NodeName = "node-1".parse().expect("a name");
        let mut history = History::default();
        for seconds in (5..=115).step_by(5) {
            let (busy, bytes) = (u64::from(seconds <= 100), seconds.min(100) * 1_000_000_000);
            let labels = "device=\"mlx5_0\",port=\"1\"";
            let page = format!(
                "railscope_gpu_utilization_ratio{{gpu=\"0\"}} {busy}\n\
                 railscope_rdma_port_transmit_bytes_total{{{labels}}} {bytes}\n"
            );
            history.node_mut(&node).ingest(&page, at(seconds));
        }
        let cable = Part::HostLink(node, "mlx5_0/1".parse().expect("a port"));
        let is_idle = |now| is_on_idle_node(&cable, (&history, &Jobs::default(), at(now)));
        assert!(!is_idle(115));
        assert!(is_idle(130));
    }
}

//! The result of one tick of the analysis, for the API and the web page.

use std::collections::BTreeMap;
use std::sync::Arc;

use railscope_model::fabric::{Fabric, LinkId, PartId, Presence, Sightings, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part, SwitchName};

use crate::analyzer::freshness::Freshness;
use crate::assemble::changes::ChangeLog;
use crate::assemble::probe_targets::Probing;
use crate::detect::tails::Tails;
use crate::diagnose::curve::Curves;
use crate::diagnose::incident::Incident;
use crate::diagnose::observer::Observation;
use crate::diagnose::pipeline::Closed;
use crate::diagnose::stages::job_impact::Costs;
use crate::diagnose::stages::maintenance::Window;
use crate::fabric::{LldpMerge, Routes, Verdict, lint};
use crate::jobs::collective_times::CollectiveTail;
use crate::jobs::job::Jobs;
use crate::jobs::step_tails::StepTail;
use crate::jobs::straggler::{Stuck, Waiting};

/// The collector's state after one tick, immutable: the API and the web page read it while
/// the next is built.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Time of the tick.
    pub now: Timestamp,
    /// How well the cluster was observed.
    pub observation: Observation,
    /// The graph of parts, lost cables included.
    pub fabric: Arc<Fabric>,
    /// What the fabric is, and how its hosts are wired.
    pub verdict: Arc<Verdict>,
    /// What is wrong with the wiring, worst first.
    pub lint: Arc<Vec<lint::Finding>>,
    /// The shortest paths of the fabric, as the newest sweep shows it.
    pub routes: Arc<Routes>,
    /// Which NICs respond to probes, and where.
    pub probing: Arc<Probing>,
    /// What changed in the fabric lately.
    pub changes: Arc<ChangeLog>,
    /// Which job runs on which GPUs.
    pub jobs: Arc<Jobs>,
    /// The straggler that the ranks of each job wait for.
    pub waiting: Arc<Vec<Waiting>>,
    /// Step times of the jobs that report them, by name.
    pub step_tails: Arc<Vec<StepTail>>,
    /// Transfer times of the collectives of jobs, by job.
    pub collective_tails: Arc<Vec<CollectiveTail>>,
    /// What faults cost jobs.
    pub costs: Costs,
    /// Stalled jobs, by the folder of their dumps.
    pub stuck: BTreeMap<String, (Stuck, Timestamp)>,
    /// What probes measured of the latency of paths.
    pub tails: Arc<Tails>,
    /// Open incidents, worst first.
    pub incidents: Vec<Incident>,
    /// The deciding counters of the worst of them.
    pub curves: Curves,
    /// Incidents that closed lately.
    pub closed: Vec<Closed>,
    /// Maintenance windows that are not over.
    pub maintenance: Vec<Arc<Window>>,
    /// What LLDP brought into the fabric.
    pub lldp: Arc<LldpMerge>,
    /// When each switch that reports its neighbors was last seen.
    pub switches_heard: BTreeMap<SwitchName, Timestamp>,
    /// When each target that is a host was last seen.
    pub heard: BTreeMap<NodeName, Option<Timestamp>>,
    /// Components with fresh data.
    pub freshness: Freshness,
    /// When the subnet was last read completely.
    pub subnet_seen: Option<Timestamp>,
}

impl ClusterView {
    /// The incident with this id.
    pub fn incident(&self, id: &str) -> Option<&Incident> {
        self.incidents.iter().find(|incident| incident.id == id)
    }

    /// The witnesses of an edge, and when each saw it. A witness that still shows it last saw it when it
    /// was last seen: the graph is only built again when a source reports something else.
    pub fn sightings(&self, id: LinkId) -> Sightings {
        let Some((link, ends)) = self.fabric.link(id) else {
            return Sightings::default();
        };
        let mut seen_by = link.seen_by;
        for (witness, said) in link
            .seen_by
            .iter()
            .filter(|(_, said)| said.says == Presence::Present)
        {
            let heard = match witness {
                Witness::Exporter => ends.iter().find_map(|end| {
                    let node = self.fabric.vertex(*end).part.node()?;
                    self.heard.get(node).copied().flatten()
                }),
                Witness::Subnet => self.subnet_seen,
                Witness::Switch => {
                    let heard = |end: &PartId| match &self.fabric.vertex(*end).part {
                        Part::Switch(switch) => self.switches_heard.get(switch).copied(),
                        _ => None,
                    };
                    ends.iter().filter_map(heard).max()
                }
            };
            let at = heard.unwrap_or(said.at);
            seen_by.merge(&Sightings::by(witness, at));
        }
        seen_by
    }
}

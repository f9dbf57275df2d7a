//! The advice: nodes to drain, nodes to watch, fabric faults without node advice, and withdrawn advice.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::memory::{Memory, NodeState};

/// The fields of `/api/v1/fabric` that are used here.
#[derive(Debug, Deserialize)]
pub(super) struct Fabric {
    pub(super) tick_age_seconds: f64,
    pub(super) targets: usize,
    pub(super) targets_up: usize,
}

impl Fabric {
    /// Whether most exporters do not respond: then an absent incident may only be undetected.
    pub(super) fn is_blind(&self) -> bool {
        2 * self.targets_up < self.targets
    }
}

/// The fields of `/api/v1/incidents` that are used here.
#[derive(Debug, Deserialize)]
pub(super) struct Incidents {
    pub(super) cluster: String,
    pub(super) at: f64,
    pub(super) incidents: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) id: String,
}

/// The fields of `/api/v1/incidents/ID` that are used here.
#[derive(Debug, Deserialize)]
pub(super) struct Detail {
    id: String,
    fault_domain: String,
    part: String,
    class: String,
    title: String,
    severity: String,
    since: f64,
    posterior: f64,
    summary: String,
    action: String,
    runbook: String,
    in_maintenance: bool,
    jobs: Vec<String>,
    slowdown: Option<f64>,
    evidence: Vec<Evidence>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    statement: String,
}

/// One incident with the texts for a scheduler.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Case {
    pub(super) incident: String,
    pub(super) component: String,
    pub(super) part: String,
    pub(super) class: String,
    pub(super) title: String,
    pub(super) severity: String,
    /// Unix time.
    pub(super) since: f64,
    /// Probability that this component is the root cause, 0 to 1.
    pub(super) confidence: f64,
    pub(super) evidence: Vec<String>,
    pub(super) jobs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slowdown: Option<f64>,
    pub(super) action: String,
    pub(super) incident_url: String,
    pub(super) runbook: String,
}

/// A node with its incidents, the most severe first.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Advice {
    pub(super) node: String,
    pub(super) cases: Vec<Case>,
}

/// Withdrawn advice about a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Withdrawn {
    pub(super) node: String,
    /// Whether a drain was proposed earlier and no longer is.
    pub(super) resume: bool,
    /// Cleared condition types with their incidents.
    pub(super) conditions: BTreeMap<String, Vec<String>>,
}

/// The complete advice.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) cluster: String,
    /// Unix time of the analysis.
    pub(super) at: f64,
    /// Nodes with a critical incident: no new jobs.
    pub(super) drain: Vec<Advice>,
    /// Nodes with warnings only, or with incidents in a maintenance window.
    pub(super) watch: Vec<Advice>,
    /// Incidents about switches and inter-switch cables, for which a drain does not help.
    pub(super) fabric: Vec<Case>,
    pub(super) withdrawn: Vec<Withdrawn>,
    /// Whether the drains exceed the limit and are only commented; the cause is probably shared.
    pub(super) is_held_back: bool,
    /// Earlier advice that remains in force, because most exporters do not respond.
    #[serde(skip)]
    kept: BTreeMap<String, NodeState>,
}

impl Plan {
    /// Builds the advice from the open incidents, optionally for one node only.
    pub(super) fn of(
        answer: &Incidents,
        details: Vec<Detail>,
        collector: &str,
        only: Option<&str>,
    ) -> Self {
        let (mut nodes, mut fabric) = (BTreeMap::<String, (bool, Vec<Case>)>::new(), Vec::new());
        for detail in details {
            let part = detail.fault_domain.parse::<Part>().ok();
            let node = part.as_ref().and_then(Part::node).map(ToString::to_string);
            let drains = detail.severity == "critical" && !detail.in_maintenance;
            let case = Case::of(detail, collector);
            match node {
                Some(node) if only.is_none_or(|only| only == node) => {
                    let known = nodes.entry(node).or_default();
                    known.0 |= drains;
                    known.1.push(case);
                }
                Some(_) => {}
                None if only.is_none() => fabric.push(case),
                None => {}
            }
        }
        let (mut drain, mut watch) = (Vec::new(), Vec::new());
        for (node, (drains, mut cases)) in nodes {
            // "critical" sorts before "warning".
            cases.sort_by(|a, b| (&a.severity, &a.incident).cmp(&(&b.severity, &b.incident)));
            let list = if drains { &mut drain } else { &mut watch };
            list.push(Advice { node, cases });
        }
        Self {
            cluster: answer.cluster.clone(),
            at: answer.at,
            drain,
            watch,
            fabric,
            withdrawn: Vec::new(),
            is_held_back: false,
            kept: BTreeMap::new(),
        }
    }

    /// Nodes with advice.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Advice> {
        self.drain.iter().chain(&self.watch)
    }

    /// Withdraws earlier advice about resolved incidents.
    pub(super) fn withdraw(&mut self, before: &Memory, only: Option<&str>) {
        let now = self.node_states();
        for (node, state) in &before.nodes {
            if only.is_some_and(|only| only != node) {
                continue;
            }
            let still = now.get(node);
            let resume = state.drain && !still.is_some_and(|still| still.drain);
            let over = state.conditions.iter().filter(|(condition, _)| {
                !still.is_some_and(|still| still.conditions.contains_key(*condition))
            });
            let conditions: BTreeMap<_, _> = over.map(|(c, i)| (c.clone(), i.clone())).collect();
            if resume || !conditions.is_empty() {
                let node = node.clone();
                self.withdrawn.push(Withdrawn {
                    node,
                    resume,
                    conditions,
                });
            }
        }
    }

    /// Keeps all earlier advice in force.
    pub(super) fn keep(&mut self, before: &Memory) {
        self.kept = before.nodes.clone();
    }

    /// Marks the drains as exceeding the limit if they are for more than `most` nodes.
    pub(super) fn hold_back(&mut self, most: usize) {
        self.is_held_back = self.drain.len() > most;
    }

    /// The state to store: the current advice, and the earlier advice about nodes that this run did not include.
    pub(super) fn memory(&self, before: &Memory, only: Option<&str>) -> Memory {
        let others = before.nodes.iter();
        let others = others.filter(|(node, _)| only.is_some_and(|only| only != **node));
        let mut nodes: BTreeMap<_, _> = others.map(|(n, s)| (n.clone(), s.clone())).collect();
        nodes.extend(self.kept.clone());
        for (node, state) in self.node_states() {
            let known: &mut NodeState = nodes.entry(node).or_default();
            known.drain |= state.drain;
            known.conditions.extend(state.conditions);
        }
        Memory {
            cluster: self.cluster.clone(),
            nodes,
        }
    }

    fn node_states(&self) -> BTreeMap<String, NodeState> {
        let of = |advice: &Advice, drain| {
            let mut state = NodeState {
                drain,
                ..NodeState::default()
            };
            for case in &advice.cases {
                let condition = state.conditions.entry(case.condition().to_owned());
                condition.or_default().push(case.incident.clone());
            }
            (advice.node.clone(), state)
        };
        let drain = self
            .drain
            .iter()
            .map(|advice| of(advice, !self.is_held_back));
        drain
            .chain(self.watch.iter().map(|advice| of(advice, false)))
            .collect()
    }
}

impl Case {
    fn of(detail: Detail, collector: &str) -> Self {
        let evidence: Vec<String> = detail.evidence.into_iter().map(|e| e.statement).collect();
        Self {
            incident_url: format!(
                "{}/incidents/{}",
                collector.trim_end_matches('/'),
                detail.id
            ),
            incident: detail.id,
            component: detail.fault_domain,
            part: detail.part,
            class: detail.class,
            title: detail.title,
            severity: detail.severity,
            since: detail.since,
            confidence: detail.posterior,
            evidence: if evidence.is_empty() {
                vec![detail.summary]
            } else {
                evidence
            },
            jobs: detail.jobs,
            slowdown: detail.slowdown,
            action: detail.action,
            runbook: detail.runbook,
        }
    }

    /// The node condition type, by the component's kind.
    pub(super) fn condition(&self) -> &'static str {
        match self.component.split('/').next() {
            Some("gpu" | "nvlink") => "RailscopeGpuFault",
            Some("nic" | "link") => "RailscopeNetworkFault",
            _ => "RailscopeHostFault",
        }
    }
}

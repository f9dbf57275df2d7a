//! What to say: nodes to drain, nodes to watch, faults that no drain helps, and what is over.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::memory::{Memory, Said};

/// `/api/v1/fabric`, as far as it is read here.
#[derive(Debug, Deserialize)]
pub(super) struct Fabric {
    pub(super) tick_age_seconds: f64,
    pub(super) targets: usize,
    pub(super) targets_up: usize,
}

impl Fabric {
    /// Whether most exporters do not answer: then an incident that is gone may only be unseen.
    pub(super) fn is_blind(&self) -> bool {
        2 * self.targets_up < self.targets
    }
}

/// `/api/v1/incidents`, as far as it is read here.
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

/// `/api/v1/incidents/ID`, as far as it is read here.
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

/// One incident, in words for a scheduler.
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
    /// Chance that this component is to blame.
    pub(super) confidence: f64,
    pub(super) evidence: Vec<String>,
    pub(super) jobs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slowdown: Option<f64>,
    pub(super) action: String,
    pub(super) incident_url: String,
    pub(super) runbook: String,
}

/// A node with the incidents about it, the worst first.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Advice {
    pub(super) node: String,
    pub(super) cases: Vec<Case>,
}

/// What is over on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Withdrawn {
    pub(super) node: String,
    /// Whether a drain had been proposed and is not any more.
    pub(super) resume: bool,
    /// Conditions that are over, with their incidents.
    pub(super) conditions: BTreeMap<String, Vec<String>>,
}

/// All that there is to say.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) cluster: String,
    /// Unix time of the analysis.
    pub(super) at: f64,
    /// Nodes with a critical incident: keep new jobs away.
    pub(super) drain: Vec<Advice>,
    /// Nodes with incidents that may wait, or that announced work explains.
    pub(super) watch: Vec<Advice>,
    /// Incidents about switches and the cables between them: no drain helps.
    pub(super) fabric: Vec<Case>,
    pub(super) withdrawn: Vec<Withdrawn>,
    /// More nodes would be drained than is usual: find out first what they share.
    pub(super) is_held_back: bool,
    /// What was said before and still counts, because most exporters do not answer.
    #[serde(skip)]
    kept: BTreeMap<String, Said>,
}

impl Plan {
    /// Of the open incidents; about one node only, if that is wanted.
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
            let pages = detail.severity == "critical" && !detail.in_maintenance;
            let case = Case::of(detail, collector);
            match node {
                Some(node) if only.is_none_or(|only| only == node) => {
                    let known = nodes.entry(node).or_default();
                    known.0 |= pages;
                    known.1.push(case);
                }
                Some(_) => {}
                None if only.is_none() => fabric.push(case),
                None => {}
            }
        }
        let (mut drain, mut watch) = (Vec::new(), Vec::new());
        for (node, (pages, mut cases)) in nodes {
            // "critical" is before "warning".
            cases.sort_by(|a, b| (&a.severity, &a.incident).cmp(&(&b.severity, &b.incident)));
            let list = if pages { &mut drain } else { &mut watch };
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

    /// Nodes about which there is something to say.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Advice> {
        self.drain.iter().chain(&self.watch)
    }

    /// Withdraws what was said before and is over.
    pub(super) fn withdraw(&mut self, before: &Memory, only: Option<&str>) {
        let now = self.said();
        for (node, said) in &before.nodes {
            if only.is_some_and(|only| only != node) {
                continue;
            }
            let still = now.get(node);
            let resume = said.drain && !still.is_some_and(|still| still.drain);
            let over = said.conditions.iter().filter(|(condition, _)| {
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

    /// Keeps what was said before, whether it is still seen or not.
    pub(super) fn keep(&mut self, before: &Memory) {
        self.kept = before.nodes.clone();
    }

    /// Holds proposals back if they are for more nodes than this.
    pub(super) fn hold_back(&mut self, most: usize) {
        self.is_held_back = self.drain.len() > most;
    }

    /// What to remember: all that was said now, and of nodes that nobody asked about what was said before.
    pub(super) fn memory(&self, before: &Memory, only: Option<&str>) -> Memory {
        let others = before.nodes.iter();
        let others = others.filter(|(node, _)| only.is_some_and(|only| only != **node));
        let mut nodes: BTreeMap<_, _> = others.map(|(n, s)| (n.clone(), s.clone())).collect();
        nodes.extend(self.kept.clone());
        for (node, said) in self.said() {
            let known: &mut Said = nodes.entry(node).or_default();
            known.drain |= said.drain;
            known.conditions.extend(said.conditions);
        }
        Memory {
            cluster: self.cluster.clone(),
            nodes,
        }
    }

    fn said(&self) -> BTreeMap<String, Said> {
        let of = |advice: &Advice, drain| {
            let mut said = Said {
                drain,
                ..Said::default()
            };
            for case in &advice.cases {
                let condition = said.conditions.entry(case.condition().to_owned());
                condition.or_default().push(case.incident.clone());
            }
            (advice.node.clone(), said)
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

    /// The type of the node condition that tells of it, by the kind of the component.
    pub(super) fn condition(&self) -> &'static str {
        match self.component.split('/').next() {
            Some("gpu" | "nvlink") => "RailscopeGpuFault",
            Some("nic" | "link") => "RailscopeNetworkFault",
            _ => "RailscopeHostFault",
        }
    }
}

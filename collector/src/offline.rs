//! Several files as one site: their cables in one fabric with its result, plans and placements beside it.

use std::collections::BTreeSet;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part};
use railscope_model::plan::{PlanError, WiringPlan};

use crate::analyzer::Analyzer;
use crate::fabric::plans::cabling::{once, settle};
use crate::fabric::plans::{
    Contested, Document, NodeTopology, Opened, Placement, Query, Told, plan_fabric,
};
use crate::fabric::subnet::{Gap, Subnet};
use crate::fabric::{SubnetMerge, Verdict, assign_rails, judge};

/// What all files together report.
#[derive(Debug)]
pub struct Site {
    /// Everything with a cable: from what was seen, or from plans where nothing was seen.
    pub fabric: Fabric,
    /// The result on it; none if no file described a fabric.
    pub verdict: Option<Verdict>,
    /// Whether the fabric was seen, and not only planned.
    pub seen: bool,
    /// Cables as planned, of all plans.
    pub plan: Option<WiringPlan>,
    /// Whether cables were reported by single devices for their own ports; then those of others are
    /// not known.
    pub neighbors: bool,
    /// The devices that reported: nodes and switches.
    pub tellers: BTreeSet<Part>,
    /// Ports with contradictory cables, which are ignored.
    pub contested: Vec<Contested>,
    /// Placements by file.
    pub placements: Vec<(String, Placement)>,
    /// Insides of nodes by file.
    pub nodes: Vec<(String, NodeTopology)>,
    /// State of the GPUs of nodes, by file.
    pub gpus: Vec<(String, Query)>,
    /// What could not be read.
    pub problems: Vec<PlanError>,
    /// Intentionally ignored parts, each with its file.
    pub notes: Vec<String>,
}

impl Site {
    /// Puts files together. Scrapes go in before sweeps, as in the running collector; cables that only tools other
    /// than those saw make a separate fabric where there is neither.
    pub fn of(files: Vec<Opened>) -> Self {
        let now = Timestamp(0);
        let (mut pages, mut subnets) = (Vec::new(), Vec::new());
        let (mut seen, mut planned) = (WiringPlan::default(), Vec::new());
        let mut site = Self {
            fabric: Fabric::default(),
            verdict: None,
            seen: true,
            plan: None,
            neighbors: false,
            tellers: BTreeSet::new(),
            contested: Vec::new(),
            placements: Vec::new(),
            nodes: Vec::new(),
            gpus: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
        };
        for opened in files {
            site.problems.extend(opened.problems);
            let notes = opened.notes.iter();
            site.notes
                .extend(notes.map(|note| format!("{}: {note}", opened.file)));
            match opened.document {
                Document::Subnet(subnet) => subnets.push(*subnet),
                Document::Page(page) => pages.push((node_name(&opened.file), page)),
                Document::Cables(plan, Told::Planned) => planned.push(plan),
                Document::Cables(cabling, told) => {
                    site.neighbors |= told == Told::ByOneEnd;
                    // The reporting end is first.
                    let tellers = cabling
                        .cables
                        .iter()
                        .map(|cable| whose(&cable.ends[0].part));
                    site.tellers.extend(tellers);
                    seen.cables.extend(cabling.cables);
                }
                Document::Placement(placement) => site.placements.push((opened.file, placement)),
                Document::Switch(_) => site.notes.push(format!(
                    "{}: state of a switch's ports, without cables; use \"railscope check --file\"",
                    opened.file
                )),
                Document::Gpus(gpus) => site.gpus.push((opened.file, gpus)),
                Document::Nodes(nodes) => {
                    let named = nodes.into_iter().map(|node| match &node.host {
                        Some(host) => (format!("{} (host {host})", opened.file), node),
                        None => (opened.file.clone(), node),
                    });
                    site.nodes.extend(named);
                }
            }
        }
        if !planned.is_empty() {
            let cables = planned.into_iter().flat_map(|plan| plan.cables).collect();
            site.plan = Some(WiringPlan { cables });
        }
        if !pages.is_empty() || !subnets.is_empty() {
            site.judge(&pages, subnets, now);
        } else if !seen.cables.is_empty() {
            // Only reports of one device can be wrong about the port at the far end.
            if site.neighbors {
                (seen, site.contested) = settle(seen);
            }
            site.draw(&once(seen), now);
        } else if let Some(plan) = site.plan.clone() {
            site.seen = false;
            site.draw(&plan, now);
        }
        site
    }

    /// Ingests scrape bodies and sweeps with the collector's analysis.
    fn judge(
        &mut self,
        pages: &[(Option<NodeName>, String)],
        subnets: Vec<Subnet>,
        now: Timestamp,
    ) {
        let mut analyzer = Analyzer::default();
        let names: Vec<NodeName> = pages.iter().filter_map(|(name, _)| name.clone()).collect();
        analyzer.set_targets(&names);
        for (name, page) in pages {
            if let Some(name) = name {
                analyzer.ingest(name, page, now);
            }
        }
        for subnet in subnets {
            analyzer.take_subnet(subnet, now);
        }
        let view = analyzer.tick(now);
        self.fabric = Fabric::clone(&view.fabric);
        self.verdict = Some(Verdict::clone(&view.verdict));
    }

    fn draw(&mut self, plan: &WiringPlan, now: Timestamp) {
        self.fabric = plan_fabric(plan, now, None);
        assign_rails(&mut self.fabric);
        let mut sweep = SubnetMerge::default();
        if self.neighbors {
            let parts = self.fabric.vertices().map(|(_, vertex)| &vertex.part);
            let silent = parts.filter(|part| matches!(part, Part::Host(_) | Part::Switch(_)));
            let silent: Vec<_> = silent.filter(|part| !self.tellers.contains(part)).collect();
            if let Some(example) = silent.first() {
                sweep.gaps.push(Gap::NotSwept {
                    nodes: silent.len(),
                    example: example.to_string(),
                });
            }
        }
        // The view of one device is no fabric.
        if !self.neighbors || self.tellers.len() > 1 {
            self.verdict = Some(judge(&self.fabric, &sweep));
        }
    }
}

/// The device that a port is of: the host of a NIC, or the switch itself.
fn whose(part: &Part) -> Part {
    match part {
        Part::Nic(node, _) => Part::Host(node.clone()),
        other => other.clone(),
    }
}

/// A scrape does not report its node: that is the name of its file.
fn node_name(file: &str) -> Option<NodeName> {
    let name = file.rsplit('/').next()?;
    name.split('.').next()?.parse().ok()
}

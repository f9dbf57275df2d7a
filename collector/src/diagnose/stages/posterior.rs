//! Fusion: all findings about one fault -> the probability of each candidate part, and that of none.
//!
//! ```text
//! finding -> likelihood of each cause: the part that it names, the parts next to that, none
//! product over the findings -> one posterior for each part
//! ```
//!
//! Log odds of independent findings add up; a further one of the same detector counts half. A part that
//! one finding supports is explained away by one that explains the others, too: two faults at once are
//! rarer than one. Which part is the root has been decided by the shape of the fabric
//! ([`incident`](crate::diagnose::incident)); here is reported how sure that is.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Equipment, Fabric, LinkKind, PartId};
use railscope_model::identity::{NodeName, Part, PciAddress};

use crate::classes::belief::belief;
use crate::classes::signs::signs_of;
use crate::detect::tomography::Kind;
use crate::diagnose::incident::Finding;

/// Parts that are reported, the named one among them.
const TOLD: usize = 3;
/// What a further finding of a detector adds of its log odds: half, as both may have one cause.
const FURTHER: f64 = 0.5;
/// Findings that are weighed, the strongest first: after so many nothing is open any more.
const MOST_FINDINGS: usize = 32;
/// No evidence is certain, and a cause that is less likely than the rest of this is omitted.
const AT_MOST: f64 = 0.999;

/// A candidate for the root cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which.
    pub part: Part,
    /// Probability that it is, 0 to 1.
    pub posterior: f64,
    /// By finding, in the order of the incident: its log-likelihood for this part, relative to no
    /// faulty part, in nats. As many as were weighed.
    pub nats: Vec<f64>,
}

/// The candidates for the root cause of all findings of one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// The root, and then those that it may be instead, the likeliest first: three at most.
    pub candidates: Vec<Candidate>,
    /// Probability that no part is: software, a transient state, a wrong counter.
    pub no_part: f64,
}

impl Weighed {
    /// Probability that the root cause is right.
    pub fn posterior(&self) -> f64 {
        self.candidates.first().map_or(0.0, |root| root.posterior)
    }
}

/// Likelihood of one finding if a part causes it, and if none does.
struct Vote {
    of: BTreeMap<Part, f64>,
    no_part: f64,
    /// Share of its log odds that counts.
    weight: f64,
}

impl Vote {
    /// For a part that does not cause it: then two faults exist at once.
    fn of(&self, part: &Part) -> f64 {
        let coincidence = || self.no_part.ln() - Kind::Edge.prior_nats();
        self.of.get(part).map_or_else(coincidence, |one| one.ln())
    }
}

/// Weighs the findings that are explained by `root`, the strongest first. What is `related` shares the fault and is no
/// other part that it may be.
pub fn weigh(
    fabric: &Fabric,
    root: &Part,
    findings: &[Finding],
    related: &BTreeSet<Part>,
) -> Weighed {
    let mut heard = BTreeSet::new();
    let votes = findings.iter().take(MOST_FINDINGS).map(|found| {
        let is_first = heard.insert(found.evidence.detector);
        let weight = if is_first { 1.0 } else { FURTHER };
        vote(fabric, root, found, related, weight)
    });
    let votes: Vec<Vote> = votes.collect();
    let mut weighed = shares(&votes);
    let is_other = |one: &Candidate| one.part != *root;
    weighed.candidates.sort_by(|a, b| {
        let by_chance = b.posterior.total_cmp(&a.posterior);
        let by_root = is_other(a).cmp(&is_other(b));
        by_root.then(by_chance).then_with(|| a.part.cmp(&b.part))
    });
    let is_told = |one: &Candidate| one.part == *root || one.posterior >= 1.0 - AT_MOST;
    weighed.candidates.retain(is_told);
    weighed.candidates.truncate(TOLD);
    weighed
}

/// Probabilities of all candidates, by their log odds against no part.
fn shares(votes: &[Vote]) -> Weighed {
    let parts: BTreeSet<&Part> = votes.iter().flat_map(|vote| vote.of.keys()).collect();
    let of = |vote: &Vote, part: &Part| vote.weight * (vote.of(part) - vote.no_part.ln());
    let nats = parts.into_iter().map(|part| {
        let nats: Vec<f64> = votes.iter().map(|vote| of(vote, part)).collect();
        (part, nats)
    });
    let nats: Vec<(&Part, Vec<f64>)> = nats.collect();
    let sums: Vec<f64> = nats.iter().map(|(_, nats)| nats.iter().sum()).collect();
    let most = sums.iter().copied().fold(0.0, f64::max);
    let all: f64 = (-most).exp() + sums.iter().map(|sum| (sum - most).exp()).sum::<f64>();
    let chance = |sum: f64| ((sum - most).exp() / all).min(AT_MOST);
    let candidate = |((part, nats), sum): ((&Part, Vec<f64>), f64)| Candidate {
        part: part.clone(),
        posterior: chance(sum),
        nats,
    };
    Weighed {
        no_part: chance(0.0),
        candidates: nats.into_iter().zip(sums).map(candidate).collect(),
    }
}

/// What a finding reports about the root that explains it and of those next to it. Its class reports how often it is
/// right; what is left is shared by what else shows such signs.
fn vote(
    fabric: &Fabric,
    root: &Part,
    found: &Finding,
    related: &BTreeSet<Part>,
    weight: f64,
) -> Vote {
    let evidence = &found.evidence;
    let named: BTreeSet<&Part> = evidence.alike.iter().chain([root]).collect();
    let signs = signs_of(evidence);
    let mut others = near(fabric, root);
    others.extend(near(fabric, &evidence.part));
    others.retain(|part| !named.contains(part) && !related.contains(part));
    let weigh = |part: &Part| signs.of(part).exp();
    let rest = signs.no_part.exp() + others.iter().map(weigh).sum::<f64>();
    let sure = belief(evidence.class);
    let left = (1.0 - sure) / rest;
    let each = sure / named.len() as f64;
    let named = named.iter().map(|part| ((*part).clone(), each));
    let other = |part: &Part| (part.clone(), left * weigh(part));
    Vote {
        of: named.chain(others.iter().map(other)).collect(),
        no_part: left * signs.no_part.exp(),
        weight,
    }
}

/// Parts next to this one that may show the same: what it is plugged into, what sits in it, the host around it.
fn near(fabric: &Fabric, part: &Part) -> BTreeSet<Part> {
    let peers = |part: &Part| {
        let id = fabric.find(part);
        id.into_iter().flat_map(|id| fabric.neighbors(id))
    };
    let name = |id: PartId| fabric.vertex(id).part.clone();
    let cables = |part: &Part| -> Vec<Part> {
        let cables = peers(part).filter_map(|near| fabric.cable_part(near.id));
        cables.collect()
    };
    let ends = |cable: &Part| -> Vec<Part> {
        let ends = fabric.find_cable(cable);
        let ends = ends.into_iter().flat_map(|(near, far)| [near, far.peer]);
        ends.map(name).collect()
    };
    let host = |node: &NodeName| Part::Host(node.clone());
    let slot = |part: &Part| -> Option<Part> {
        let pci = pci_of(fabric, fabric.find(part)?)?;
        Some(Part::PcieLink(part.node()?.clone(), pci))
    };
    match part {
        Part::Gpu(node, _) => slot(part).into_iter().chain([host(node)]).collect(),
        Part::NvLink(node, link) => [Part::Gpu(node.clone(), link.gpu)].into(),
        Part::PcieLink(node, pci) => {
            let inside = peers(&host(node)).filter(|near| near.link.kind == LinkKind::Inside);
            let there = inside.filter(|near| pci_of(fabric, near.peer) == Some(*pci));
            there
                .map(|near| name(near.peer))
                .chain([host(node)])
                .collect()
        }
        Part::Nic(node, _) => {
            let own = slot(part).into_iter().chain([host(node)]);
            own.chain(cables(part)).collect()
        }
        Part::HostLink(..) | Part::SwitchLink(..) => ends(part).into_iter().collect(),
        Part::Host(_) | Part::Switch(_) | Part::SharedStorage => BTreeSet::new(),
    }
}

/// Where a GPU or a NIC sits on its host's PCIe.
pub(crate) fn pci_of(fabric: &Fabric, id: PartId) -> Option<PciAddress> {
    match &fabric.vertex(id).equipment {
        Equipment::Gpu { pci, .. } | Equipment::Nic { pci, .. } => *pci,
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! How the classification of a fabric is reached, from the graph alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use railscope_model::fabric::Fabric;
use railscope_model::identity::{NodeName, RdmaDevice};
use railscope_model::units::LinkSpeed;

use super::networks::Networks;
use super::rails::{Ground, Wiring};
use super::structure::Split;
use super::verdict::{Confidence, Kind, SelfLoop, ServiceHost, Speeds, Verdict};
use crate::fabric::classify::single_points::single_points;
use crate::fabric::graph::build::SubnetMerge;
use crate::fabric::graph::frozen::Graph;
use crate::fabric::graph::groups::{Groups, dragonfly, dragonfly_plus};
use crate::fabric::graph::host_classes::{HostRole, Shapes};
use crate::fabric::graph::index::Survey;
use crate::fabric::graph::names::is_unset_host_name;
use crate::fabric::graph::tiers::tier_numbers;
use crate::fabric::routes::Routes;
use crate::fabric::subnet::counted;

/// Past this share of NICs whose host is unknown, statements about hosts are uncertain.
const UNNAMED_SHARE: f64 = 0.05;

/// Evaluates a fabric. `sweep` is what [`crate::fabric::merge_subnet`] returned for the last sweep in it;
/// the default where no sweep was merged, and then what it would report counts as unknown.
pub fn judge(fabric: &Fabric, sweep: &SubnetMerge) -> Verdict {
    understand(fabric, sweep).0
}

/// As [`judge`], with the paths of the fabric: both rest on one pass over the graph.
pub fn understand(fabric: &Fabric, sweep: &SubnetMerge) -> (Verdict, Routes) {
    let survey = Survey::of(fabric);
    let shapes = Shapes::of(&survey);
    let dragonfly = dragonfly(&survey);
    let tiers = tier_numbers(&survey, &shapes, dragonfly.as_ref());
    let Networks { networks, split } = Networks::of(&survey, &shapes, &tiers);
    let court = Court {
        wiring: Ground::new(&survey, &shapes).wiring(),
        dragonfly_plus: dragonfly_plus(&survey, &tiers),
        dragonfly,
        split,
        survey: &survey,
        shapes: &shapes,
        tiers: &tiers,
        sweep,
    };
    let mut verdict = court.verdict();
    let graph = Graph::of(&survey);
    let switches: Vec<_> = survey.switches.iter().map(|switch| switch.id).collect();
    verdict.structure.single_points = single_points(&graph, fabric, &switches);
    verdict.structure.networks = networks;
    verdict.structure.split = split;
    verdict.evidence = court.evidence(&verdict);
    verdict.ruled_out = court.ruled_out(&verdict);
    verdict.doubts = doubts(&verdict, &court);
    verdict.confidence = confidence(&verdict);
    let groups = court.dragonfly.as_ref().or(court.dragonfly_plus.as_ref());
    let groups = groups.cloned();
    (verdict, Routes::new(&survey, graph, tiers, groups.as_ref()))
}

/// All that the classification is read from.
pub(crate) struct Court<'a> {
    pub(crate) survey: &'a Survey<'a>,
    pub(crate) shapes: &'a Shapes,
    pub(crate) tiers: &'a [Option<u8>],
    pub(crate) wiring: Wiring,
    pub(crate) split: Split,
    pub(crate) dragonfly: Option<Groups>,
    pub(crate) dragonfly_plus: Option<Groups>,
    pub(crate) sweep: &'a SubnetMerge,
}

impl Court<'_> {
    fn verdict(&self) -> Verdict {
        let roles = &self.shapes.roles;
        let with_role = |wanted: fn(&HostRole) -> bool| {
            let hosts = self.survey.hosts.iter().zip(roles);
            hosts
                .filter(move |(_, role)| wanted(role))
                .map(|(host, _)| host)
        };
        let mut service_hosts: Vec<_> = with_role(|role| *role == HostRole::Service)
            .map(|host| ServiceHost {
                host: host.name.clone(),
                nics: host.cabled().count(),
            })
            .collect();
        service_hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let compute_hosts = with_role(|role| matches!(role, HostRole::Compute { .. })).count();
        let unlike_hosts: Vec<_> = with_role(|role| *role == HostRole::Unlike)
            .map(|host| host.name.clone())
            .collect();
        let gpus: usize = self.survey.hosts.iter().map(|host| host.gpus).sum();
        let levels = usize::from(self.tiers.iter().flatten().copied().max().unwrap_or(0));
        let in_tier = |tier: usize| {
            self.tiers
                .iter()
                .flatten()
                .filter(move |own| usize::from(**own) == tier)
        };
        let kind = self.kind(levels);
        let structure = self.structure(&kind);
        let oversubscription = self.oversubscription(levels, &structure.leaves);
        Verdict {
            kind,
            levels,
            confidence: Confidence::Low,
            evidence: Vec::new(),
            ruled_out: Vec::new(),
            doubts: Vec::new(),
            hosts: compute_hosts + service_hosts.len() + unlike_hosts.len(),
            compute_hosts,
            gpus: (gpus > 0).then_some(gpus),
            nics: self.survey.hosts.iter().map(|host| host.nics.len()).sum(),
            unnamed_nics: with_role(|role| *role == HostRole::Unnamed)
                .map(|host| host.nics.len())
                .sum(),
            service_hosts,
            unlike_hosts,
            switches_by_tier: (1..=levels).map(|tier| in_tier(tier).count()).collect(),
            unplaced_switches: self.tiers.iter().filter(|tier| tier.is_none()).count(),
            odd_switches: self.odd_switches(),
            host_leaves: self
                .leaves()
                .filter(|leaf| !self.survey.switches[*leaf].nics.is_empty())
                .count(),
            wiring: self.wiring.clone(),
            structure,
            oversubscription,
            self_loops: self.self_loops(),
            speeds: self.speeds(),
            sweep: self.sweep.clone(),
        }
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = usize> {
        (0..self.tiers.len()).filter(|switch| self.tiers[*switch] == Some(1))
    }

    fn self_loops(&self) -> Vec<SelfLoop> {
        let loops = self.survey.switches.iter().flat_map(|switch| {
            let loops = switch.loops.iter();
            loops.map(|(ports, speed)| SelfLoop {
                switch: switch.name.clone(),
                ports: ports.clone(),
                speed: *speed,
            })
        });
        let mut loops: Vec<_> = loops.collect();
        loops.sort_by(|a, b| (&a.switch, &a.ports).cmp(&(&b.switch, &b.ports)));
        loops
    }

    fn speeds(&self) -> Speeds {
        let (mut hosts, mut switches) = (BTreeMap::new(), BTreeMap::new());
        let mut unknown = 0;
        let mut count =
            |speeds: &mut BTreeMap<LinkSpeed, usize>, speed: Option<LinkSpeed>| match speed {
                Some(speed) => *speeds.entry(speed).or_default() += 1,
                None => unknown += 1,
            };
        for (index, switch) in self.survey.switches.iter().enumerate() {
            for (.., speed) in &switch.nics {
                count(&mut hosts, *speed);
            }
            // Each trunk stands at both of its switches.
            for (_, speed) in switch.trunks.iter().filter(|(peer, _)| *peer > index) {
                count(&mut switches, *speed);
            }
            for (_, speed) in &switch.loops {
                count(&mut switches, *speed);
            }
        }
        let sorted = |speeds: BTreeMap<LinkSpeed, usize>| {
            let mut speeds: Vec<_> = speeds.into_iter().collect();
            speeds.sort_by_key(|(_, cables)| Reverse(*cables));
            speeds
        };
        Speeds {
            hosts: sorted(hosts),
            switches: sorted(switches),
            unknown,
        }
    }

    fn evidence(&self, verdict: &Verdict) -> Vec<String> {
        let mut evidence = Vec::new();
        let wiring = &self.wiring;
        if wiring.rail_leaves > 0 && wiring.rails > 1 {
            let mut sentence = format!(
                "{} of {} host-bearing leaves carry one rail",
                wiring.pure_leaves, verdict.host_leaves
            );
            let mixed = wiring.rail_leaves - wiring.pure_leaves;
            if mixed > 0 && wiring.is_rail_wired() {
                sentence += &format!("; {mixed} carry one but for single cables");
            }
            let others = verdict.host_leaves.saturating_sub(wiring.rail_leaves);
            if others > 0 {
                sentence += &format!("; the other {others} no rail, only service or unnamed hosts");
            }
            evidence.push(sentence);
        }
        if wiring.units > 0 {
            evidence.push(format!(
                "{}, groups of hosts behind the same leaves",
                counted(wiring.units, "scalable unit", "scalable units")
            ));
        }
        evidence.extend(self.evidence_of_kind(verdict));
        for class in &wiring.classes {
            let names: Vec<_> = class.devices.iter().map(RdmaDevice::as_str).collect();
            let nics = match names.len() {
                1 => "their NIC".to_owned(),
                nics => format!("all {nics} NICs"),
            };
            evidence.push(format!(
                "{} of {} have {nics}: {}",
                class.complete,
                counted(class.hosts, "host", "hosts"),
                names.join(" ")
            ));
        }
        for chassis in &self.sweep.chassis {
            let model = chassis.model.as_deref().unwrap_or("no model said");
            evidence.push(format!(
                "{} switches are one chassis: {} ({model})",
                chassis.asics, chassis.name
            ));
        }
        evidence
    }
}

fn doubts(verdict: &Verdict, court: &Court<'_>) -> Vec<String> {
    let mut doubts: Vec<String> = Vec::new();
    for gap in &verdict.sweep.gaps {
        doubts.push(format!("partial sweep: {gap}"));
    }
    let mut say = |count: usize, one: &str, many: &str| {
        if count > 0 {
            doubts.push(counted(count, one, many));
        }
    };
    let problems = verdict.sweep.problems;
    say(
        problems,
        "thing in the sweep's text could not be read or contradicts another",
        "things in the sweep's text could not be read or contradict each other",
    );
    say(
        verdict.unnamed_nics,
        "NIC does not say which host it is in",
        "NICs do not say which host they are in",
    );
    say(
        verdict.unlike_hosts.len(),
        "host has many NICs under names that no other host has",
        "hosts have many NICs under names that no other host has",
    );
    say(
        verdict.unplaced_switches,
        "switch that no path joins to a compute host",
        "switches that no path joins to a compute host",
    );
    say(
        verdict.sweep.unnameable,
        "node has no usable name",
        "nodes have no usable name",
    );
    if court.split == Split::Apart {
        let networks = verdict.structure.networks.len();
        doubts.push(format!(
            "{networks} networks of different hosts that no cable joins"
        ));
    }
    let hosts = court.survey.hosts.iter().map(|host| host.name);
    let mut unset: Vec<_> = hosts
        .filter(|name| is_unset_host_name(name))
        .map(NodeName::as_str)
        .collect();
    if !unset.is_empty() {
        unset.sort_unstable();
        let names = unset.join(", ");
        doubts.push(format!(
            "host names that more than one machine may have: {names}"
        ));
    }
    doubts
}

fn confidence(verdict: &Verdict) -> Confidence {
    let is_unknown = matches!(verdict.kind, Kind::Unknown { .. });
    if is_unknown || !verdict.sweep.gaps.is_empty() {
        return Confidence::Low;
    }
    let many_unnamed = verdict.unnamed_nics as f64 > UNNAMED_SHARE * verdict.nics as f64;
    let amiss = verdict.sweep.problems > 0
        || !verdict.unlike_hosts.is_empty()
        || verdict.unplaced_switches > 0
        || verdict.structure.split == Split::Apart
        || !verdict.wiring.absent_leaves.is_empty();
    if many_unnamed || amiss {
        Confidence::Medium
    } else {
        Confidence::High
    }
}

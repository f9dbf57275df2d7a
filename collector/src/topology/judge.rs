//! How the verdict on a fabric is reached, from the graph alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Fabric;
use railscope_model::identity::{NodeName, RdmaDevice, SwitchName};
use railscope_model::units::LinkSpeed;

use super::build::SubnetMerge;
use super::names::is_unset_host_name;
use super::rails::{Ground, Wiring};
use super::shapes::{HostRole, Shapes};
use super::survey::Survey;
use super::tiers::{Sets, tier_numbers};
use super::verdict::{Confidence, Kind, Oversubscription, SelfLoop, ServiceHost, Speeds, Verdict};
use crate::subnet::counted;

/// A pattern makes the kind of a fabric when at least this share of its hosts or cables follow it. In
/// the captures it is all or none, some crossed cables aside.
const PATTERN_SHARE: f64 = 0.9;
/// Fewest leaves that can be told to be cabled to each other by design: two are also two switches with
/// a cable between them.
const MIN_DIRECT_LEAVES: usize = 3;
/// Past this share of NICs whose host is unknown, statements about hosts are uncertain.
const UNNAMED_SHARE: f64 = 0.05;

/// Judges a fabric. `sweep` is what [`super::merge_subnet`] returned for the last sweep in it; the
/// default where no sweep was merged, and then what it would tell counts as unknown.
pub fn judge(fabric: &Fabric, sweep: &SubnetMerge) -> Verdict {
    let survey = Survey::of(fabric);
    let shapes = Shapes::of(&survey);
    let tiers = tier_numbers(&survey, &shapes);
    let court = Court {
        wiring: Ground::new(&survey, &shapes).wiring(),
        survey: &survey,
        shapes: &shapes,
        tiers: &tiers,
        sweep,
    };
    let mut verdict = court.verdict();
    verdict.evidence = court.evidence(&verdict);
    verdict.doubts = doubts(&verdict, &court);
    verdict.confidence = confidence(&verdict);
    verdict
}

struct Court<'a> {
    survey: &'a Survey<'a>,
    shapes: &'a Shapes,
    tiers: &'a [Option<u8>],
    wiring: Wiring,
    sweep: &'a SubnetMerge,
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
        Verdict {
            kind: self.kind(levels),
            levels,
            confidence: Confidence::Low,
            evidence: Vec::new(),
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
            host_leaves: self
                .leaves()
                .filter(|leaf| !self.survey.switches[*leaf].nics.is_empty())
                .count(),
            wiring: self.wiring.clone(),
            oversubscription: self.oversubscription(levels),
            self_loops: self.self_loops(),
            speeds: self.speeds(),
            sweep: self.sweep.clone(),
        }
    }

    fn leaves(&self) -> impl Iterator<Item = usize> {
        (0..self.tiers.len()).filter(|switch| self.tiers[*switch] == Some(1))
    }

    fn kind(&self, levels: usize) -> Kind {
        let (switches, hosts) = (self.survey.switches.len(), self.survey.hosts.len());
        let nics: usize = self.survey.hosts.iter().map(|host| host.nics.len()).sum();
        let unknown = |why: String| Kind::Unknown { why };
        if switches == 0 {
            return unknown(match nics {
                0 => "no switch and no NIC seen".to_owned(),
                1 => {
                    "one CA and no switch seen: the sweep reached nothing beyond the port that it \
                      started from (port down, no cable, or the switch did not answer)"
                        .to_owned()
                }
                _ => format!("{nics} NICs and no switch seen"),
            });
        }
        if !self.survey.has_cables {
            return unknown(format!(
                "{} and {} seen, and no cable between them",
                counted(switches, "switch", "switches"),
                counted(hosts, "host", "hosts")
            ));
        }
        let leaves = self.leaves().count();
        if self.direct_share() >= PATTERN_SHARE && leaves >= MIN_DIRECT_LEAVES {
            return Kind::Direct;
        }
        if switches == 1 {
            return Kind::SingleSwitch;
        }
        if self.wiring.is_rail_wired() {
            return if self.joins_rails() {
                Kind::RailOptimised
            } else {
                Kind::RailOnly
            };
        }
        if levels < 2 {
            return unknown(format!(
                "{} with hosts and none above: too small to tell a topology",
                counted(leaves, "switch", "switches")
            ));
        }
        let (grouped, several) = self.grouped_hosts();
        if several > 0 && grouped as f64 >= PATTERN_SHARE * several as f64 {
            return Kind::HostGrouped;
        }
        Kind::FatTree
    }

    /// Share of the cables between switches that join two leaves.
    fn direct_share(&self) -> f64 {
        let is_leaf = |switch: usize| self.tiers[switch] == Some(1);
        let (mut direct, mut all) = (0usize, 0usize);
        for (index, switch) in self.survey.switches.iter().enumerate() {
            all += switch.trunks.len();
            direct += switch
                .trunks
                .iter()
                .filter(|(peer, _)| is_leaf(index) && is_leaf(*peer))
                .count();
        }
        if all == 0 {
            0.0
        } else {
            direct as f64 / all as f64
        }
    }

    /// Compute hosts with all their NICs on one switch, and compute hosts with several NICs.
    fn grouped_hosts(&self) -> (usize, usize) {
        let (mut grouped, mut several) = (0, 0);
        for (host, role) in self.survey.hosts.iter().zip(&self.shapes.roles) {
            if matches!(role, HostRole::Compute { .. }) && host.cabled().count() > 1 {
                let switches: BTreeSet<usize> = host
                    .cabled()
                    .flat_map(|nic| nic.switches.iter().copied())
                    .collect();
                several += 1;
                grouped += usize::from(switches.len() == 1);
            }
        }
        (grouped, several)
    }

    /// Whether any switches joined by cables serve two rails.
    fn joins_rails(&self) -> bool {
        let mut sets = Sets::new(self.survey.switches.len());
        for (index, switch) in self.survey.switches.iter().enumerate() {
            for (peer, _) in &switch.trunks {
                sets.union(index, *peer);
            }
        }
        let rails: BTreeMap<&SwitchName, u16> = self
            .wiring
            .leaf_rails
            .iter()
            .map(|leaf| (&leaf.leaf, leaf.rail))
            .collect();
        let mut rail_of_set: BTreeMap<usize, u16> = BTreeMap::new();
        self.survey
            .switches
            .iter()
            .enumerate()
            .any(|(index, switch)| {
                rails.get(switch.name).is_some_and(|rail| {
                    *rail_of_set.entry(sets.find(index)).or_insert(*rail) != *rail
                })
            })
    }

    fn oversubscription(&self, levels: usize) -> Option<Oversubscription> {
        if levels < 2 {
            return None;
        }
        let is_compute = |host: usize| self.shapes.roles[host] != HostRole::Service;
        let (mut ratios, mut unknown) = (Vec::new(), 0);
        for leaf in self.leaves() {
            let switch = &self.survey.switches[leaf];
            if !switch.nics.iter().any(|(host, ..)| is_compute(*host)) {
                continue;
            }
            let down = bandwidth(switch.nics.iter().map(|(.., speed)| *speed));
            let upwards = switch
                .trunks
                .iter()
                .filter(|(peer, _)| self.tiers[*peer] > Some(1));
            let up = bandwidth(upwards.map(|(_, speed)| *speed));
            match (down, up) {
                (Some(down), Some(up)) if up > 0.0 => ratios.push(down / up),
                _ => unknown += 1,
            }
        }
        ratios.sort_by(f64::total_cmp);
        Some(Oversubscription {
            min: *ratios.first()?,
            median: ratios[ratios.len() / 2],
            max: *ratios.last()?,
            leaves: ratios.len(),
            unknown,
        })
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
        let (grouped, several) = self.grouped_hosts();
        if several > 0 && !wiring.is_rail_wired() {
            evidence.push(format!(
                "{grouped} of {several} hosts with several NICs have them on one switch"
            ));
        }
        if matches!(verdict.kind, Kind::Direct) {
            let share = 100.0 * self.direct_share();
            evidence.push(format!(
                "{share:.0} % of the cables between switches join two switches with hosts"
            ));
        }
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

/// Bytes per second of some cables; none if the speed of one is not known.
fn bandwidth(speeds: impl Iterator<Item = Option<LinkSpeed>>) -> Option<f64> {
    speeds
        .map(|speed| speed.map(LinkSpeed::bytes_per_second))
        .sum()
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
        || !verdict.wiring.absent_leaves.is_empty();
    if many_unnamed || amiss {
        Confidence::Medium
    } else {
        Confidence::High
    }
}

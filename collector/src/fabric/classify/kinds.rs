//! Which kind of fabric it is: what each kind demands, measured, for and against.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::SwitchName;

use super::structure::{Network, Split};
use super::verdict::{Kind, Verdict};
use crate::fabric::classify::classifier::Court;
use crate::fabric::graph::groups::Groups;
use crate::fabric::graph::host_classes::HostRole;
use crate::fabric::graph::tiers::Sets;
use crate::fabric::subnet::counted;

/// A pattern makes the kind of a fabric when at least this share of its hosts or cables follow it. In
/// the captures it is all or none, apart from some crossed cables.
const PATTERN_SHARE: f64 = 0.9;
/// Fewest leaves that can be determined to be cabled to each other by design: two are also two
/// switches with a cable between them.
const MIN_DIRECT_LEAVES: usize = 3;
/// Leaves from which the path up and down is tried. Leaves are alike, and the share is compared
/// with [`PATTERN_SHARE`].
const TRIED_LEAVES: usize = 64;

/// A part of a whole, as it is in evidence.
#[derive(Debug, Clone, Copy, Default)]
struct Of(usize, usize);

impl Of {
    fn share(self) -> f64 {
        if self.1 == 0 {
            0.0
        } else {
            self.0 as f64 / self.1 as f64
        }
    }

    fn is_pattern(self) -> bool {
        self.1 > 0 && self.share() >= PATTERN_SHARE
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.0, self.1)
    }
}

impl Court<'_> {
    pub(crate) fn kind(&self, levels: usize) -> Kind {
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
        if self.dragonfly.is_some() {
            return Kind::Dragonfly;
        }
        let leaves = self.leaves().count();
        if self.direct().is_pattern() && leaves >= MIN_DIRECT_LEAVES {
            return Kind::Direct;
        }
        if switches == 1 {
            return Kind::SingleSwitch;
        }
        if self.dragonfly_plus.is_some() {
            return Kind::DragonflyPlus;
        }
        if self.wiring.is_rail_wired() {
            if self.joins_rails() {
                return Kind::RailOptimized;
            }
            if self.split != Split::Planes {
                return Kind::RailOnly;
            }
        }
        if levels < 2 {
            return unknown(format!(
                "{} with hosts and none above: too small to tell a topology",
                counted(leaves, "switch", "switches")
            ));
        }
        if !self.between_tiers().is_pattern() || !self.up_and_down().is_pattern() {
            return Kind::Irregular;
        }
        if self.grouped_hosts().is_pattern() {
            return Kind::HostGrouped;
        }
        Kind::FatTree
    }

    /// Cables between switches that join two leaves.
    fn direct(&self) -> Of {
        let is_leaf = |end: &u32| self.tiers[*end as usize] == Some(1);
        let trunks = self.survey.trunks.iter();
        let direct = trunks.filter(|cable| cable.ends.iter().all(is_leaf));
        Of(direct.count(), self.survey.trunks.len())
    }

    /// Cables between switches that join two tiers.
    fn between_tiers(&self) -> Of {
        let trunks = self.survey.trunks.iter();
        let joins_tiers = trunks.filter(|cable| {
            let [a, b] = cable.ends.map(|end| self.tiers[end as usize]);
            a.is_some() && b.is_some() && a != b
        });
        Of(joins_tiers.count(), self.survey.trunks.len())
    }

    /// Pairs of leaves of one network that a path up and then down joins, from some leaves to all
    /// others.
    fn up_and_down(&self) -> Of {
        let mut sets = Sets::new(self.tiers.len());
        for cable in &self.survey.trunks {
            sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
        }
        let with_hosts: Vec<usize> = self
            .leaves()
            .filter(|leaf| !self.survey.switches[*leaf].nics.is_empty())
            .collect();
        let step = with_hosts.len().div_ceil(TRIED_LEAVES).max(1);
        let mut pairs = Of::default();
        for leaf in with_hosts.iter().step_by(step) {
            let reached = self.reached_from(*leaf);
            let root = sets.find(*leaf);
            for other in with_hosts.iter().filter(|other| *other != leaf) {
                if sets.find(*other) == root {
                    pairs.1 += 1;
                    pairs.0 += usize::from(reached[*other]);
                }
            }
        }
        // No leaf has another in its network: nothing is in disorder.
        if pairs.1 == 0 { Of(1, 1) } else { pairs }
    }

    fn reached_from(&self, leaf: usize) -> Vec<bool> {
        let mut reached = vec![false; self.tiers.len()];
        reached[leaf] = true;
        let levels = self.tiers.iter().flatten().copied().max().unwrap_or(1);
        let mut layers: Vec<Vec<usize>> = vec![Vec::new(); usize::from(levels) + 1];
        layers[1].push(leaf);
        let is_up = |own: u8, peer: u8| peer > own;
        let is_down = |own: u8, peer: u8| peer < own;
        for tier in 1..layers.len() {
            self.step(tier, &mut layers, &mut reached, is_up);
        }
        for tier in (1..layers.len()).rev() {
            self.step(tier, &mut layers, &mut reached, is_down);
        }
        reached
    }

    fn step(
        &self,
        tier: usize,
        layers: &mut [Vec<usize>],
        reached: &mut [bool],
        goes: impl Fn(u8, u8) -> bool,
    ) {
        for switch in layers[tier].clone() {
            for (peer, _) in &self.survey.switches[switch].trunks {
                if let (Some(own), Some(next)) = (self.tiers[switch], self.tiers[*peer])
                    && goes(own, next)
                    && !reached[*peer]
                {
                    reached[*peer] = true;
                    layers[usize::from(next)].push(*peer);
                }
            }
        }
    }

    /// Compute hosts with all their NICs of a network on one switch, of those with several NICs there.
    fn grouped_hosts(&self) -> Of {
        let mut sets = Sets::new(self.tiers.len());
        for cable in &self.survey.trunks {
            sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
        }
        let mut hosts = Of::default();
        for (host, role) in self.survey.hosts.iter().zip(&self.shapes.roles) {
            if !matches!(role, HostRole::Compute { .. }) {
                continue;
            }
            let mut on: BTreeMap<usize, (usize, BTreeSet<usize>)> = BTreeMap::new();
            for switch in host.cabled().flat_map(|nic| nic.switches.iter().copied()) {
                let network = on.entry(sets.find(switch)).or_default();
                network.0 += 1;
                network.1.insert(switch);
            }
            let mut several = on.values().filter(|(nics, _)| *nics > 1).peekable();
            if several.peek().is_some() {
                hosts.1 += 1;
                hosts.0 += usize::from(several.all(|(_, switches)| switches.len() == 1));
            }
        }
        hosts
    }

    /// Whether any switches joined by cables serve two rails.
    fn joins_rails(&self) -> bool {
        let mut sets = Sets::new(self.tiers.len());
        for cable in &self.survey.trunks {
            sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
        }
        let rails: BTreeMap<&SwitchName, u16> = self
            .wiring
            .leaf_rails
            .iter()
            .map(|leaf| (&leaf.leaf, leaf.rail))
            .collect();
        let mut rail_of_set: BTreeMap<usize, u16> = BTreeMap::new();
        let switches = self.survey.switches.iter().enumerate();
        switches
            .filter_map(|(index, switch)| Some((index, *rails.get(switch.name)?)))
            .any(|(index, rail)| *rail_of_set.entry(sets.find(index)).or_insert(rail) != rail)
    }

    /// What supports the kind beyond rails and units.
    pub(crate) fn evidence_of_kind(&self, verdict: &Verdict) -> Vec<String> {
        let mut evidence = Vec::new();
        let grouped = self.grouped_hosts();
        if grouped.1 > 0 && !self.wiring.is_rail_wired() {
            evidence.push(format!(
                "{grouped} hosts with several NICs have them on one switch"
            ));
        }
        if let Some(groups) = self.dragonfly.as_ref().or(self.dragonfly_plus.as_ref()) {
            evidence.extend(sentences_of_groups(groups));
        }
        match verdict.kind {
            Kind::Direct => evidence.push(format!(
                "{:.0} % of the cables between switches join two switches with hosts",
                100.0 * self.direct().share()
            )),
            Kind::FatTree | Kind::HostGrouped => evidence.push(format!(
                "{} cables between switches join two tiers; {} pairs of leaves tried are joined by a way up and down",
                self.between_tiers(),
                self.up_and_down()
            )),
            _ => {}
        }
        evidence.extend(sentence_of_networks(
            self.split,
            &verdict.structure.networks,
        ));
        evidence
    }

    /// Why it is no fabric of another kind; nothing where there is no classification or no choice.
    pub(crate) fn ruled_out(&self, verdict: &Verdict) -> Vec<String> {
        let kind = &verdict.kind;
        if matches!(kind, Kind::Unknown { .. } | Kind::SingleSwitch) {
            return Vec::new();
        }
        let wiring = &self.wiring;
        let percent = 100.0 * PATTERN_SHARE;
        let mut out = Vec::new();
        if !wiring.is_rail_wired() {
            let pure = Of(wiring.pure_leaves, wiring.rail_leaves);
            out.push(match (wiring.rails, wiring.rail_leaves) {
                (0 | 1, _) | (_, 0) => "rails: hosts have one NIC each".to_owned(),
                _ => format!("rails: {pure} leaves carry one rail, expected {percent:.0} %"),
            });
        } else if *kind == Kind::RailOptimized {
            let rails = counted(wiring.rails, "rail", "rails");
            out.push(format!("rail-only: cables between switches join {rails}"));
        } else if *kind == Kind::RailOnly {
            out.push("rail-optimized: no cable between switches joins two rails".to_owned());
        }
        if *kind != Kind::HostGrouped {
            let grouped = self.grouped_hosts();
            if grouped.1 > 0 {
                out.push(format!(
                    "host-grouped: {grouped} hosts have all their NICs on one switch, expected {percent:.0} %"
                ));
            }
        }
        if !matches!(kind, Kind::Dragonfly | Kind::DragonflyPlus | Kind::Direct) {
            out.push(format!(
                "dragonfly: {} cables between switches join two leaves",
                self.direct()
            ));
        } else if *kind == Kind::Direct {
            out.push("dragonfly: no groups of three switches or more that are joined all to all and each to each".to_owned());
        }
        if matches!(
            kind,
            Kind::Dragonfly | Kind::DragonflyPlus | Kind::Direct | Kind::Irregular
        ) {
            out.push(format!(
                "fat-tree: {} cables between switches join two tiers, {} pairs of leaves tried are joined by a way up and down, expected {percent:.0} % of both",
                self.between_tiers(),
                self.up_and_down()
            ));
        }
        out
    }
}

fn sentences_of_groups(groups: &Groups) -> Vec<String> {
    let sizes = |size: fn(&[usize]) -> Option<&usize>| {
        let mut sizes: Vec<usize> = groups.members.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        size(&sizes).copied().unwrap_or(0)
    };
    let (least, most) = (sizes(<[usize]>::first), sizes(<[usize]>::last));
    let of = if least == most {
        format!("{most} switches each")
    } else {
        format!("{least} to {most} switches")
    };
    let mut said = vec![format!("{} groups of {of}", groups.members.len())];
    if let Some((joined, all)) = groups.joined {
        said.push(format!(
            "{joined} of {all} pairs of switches within groups are joined, by {}",
            counted(groups.local, "cable", "cables")
        ));
    }
    said.push(format!(
        "{} of {} pairs of groups are joined, by {}",
        groups.pairs.0,
        groups.pairs.1,
        counted(groups.global, "cable", "cables")
    ));
    said
}

fn sentence_of_networks(split: Split, networks: &[Network]) -> Option<String> {
    let what = match split {
        // Different hosts are a doubt, not a pattern.
        Split::Whole | Split::Apart => return None,
        Split::Planes => "planes: the same hosts on networks that no cable joins",
        Split::Rails => "networks that no cable joins, each with one NIC of the same hosts",
    };
    let one = |network: &Network| {
        format!(
            "{}, {} and {}",
            counted(network.switches_by_tier.iter().sum(), "switch", "switches"),
            counted(network.rails.len(), "rail", "rails"),
            counted(network.hosts, "host", "hosts")
        )
    };
    let mut sorts: BTreeMap<String, usize> = BTreeMap::new();
    for network in networks {
        *sorts.entry(one(network)).or_default() += 1;
    }
    let list: Vec<String> = sorts
        .iter()
        .map(|(sort, count)| format!("{count} with {sort}"))
        .collect();
    Some(format!("{} {what}: {}", networks.len(), list.join("; ")))
}

//! Groups of a dragonfly, found by how densely switches are joined, never by name.
//!
//! Canonical forms: Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology",
//! ISCA 2008 (routers of a group joined all to all); Shpiner et al., "Dragonfly+: Low Cost Topology for
//! Scaling Datacenters", HiPINEB 2017 (each group a small leaf-spine, groups joined spine to spine).

use std::collections::{BTreeMap, HashSet};

use foldhash::fast::FixedState;

use super::tiers::Sets;
use crate::fabric::graph::index::Survey;

/// Groups are searched for where at least this share of the cables between switches joins two switches with
/// hosts. In a tree it is none apart from miscabling; in a dragonfly of which half the routers have no host, a
/// quarter.
const DIRECT_FLOOR: f64 = 0.05;
/// Fewest routers of a group: of two, nothing distinguishes the cable within from the one between
/// groups.
const MIN_ROUTERS: usize = 3;
/// At least this share of the switches is in groups.
const MEMBER_SHARE: f64 = 0.9;
/// At least this share of the pairs of routers in groups is joined: some cables may be out.
const LOCAL_SHARE: f64 = 0.9;
/// At least this share of the pairs of groups is joined. The canonical form joins all; one that is being
/// built, or has lost cables, some less.
const PAIR_SHARE: f64 = 0.75;
/// Where switches across two groups have at least this share of the common neighbors that switches of one
/// group have, both directions are alike: a flattened butterfly or mesh, no dragonfly, unless the hosts
/// report which switches are a group.
const CROSS_SHARE: f64 = 0.5;
/// Fewest groups of a dragonfly+: two are also two pods with cables between their spines.
const MIN_PLUS_GROUPS: usize = 3;

/// Switches by groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Groups {
    /// Switches of each group.
    pub(crate) members: Vec<Vec<usize>>,
    /// Group of each switch.
    pub(crate) of: Vec<Option<usize>>,
    /// Cables between groups.
    pub(crate) global: usize,
    /// Cables within groups.
    pub(crate) local: usize,
    /// Pairs of groups that a cable joins, and all pairs.
    pub(crate) pairs: (usize, usize),
    /// Pairs of routers that are in one group and are joined, and all of them; none for a dragonfly+.
    pub(crate) joined: Option<(usize, usize)>,
}

impl Groups {
    fn of(survey: &Survey<'_>, members: Vec<Vec<usize>>) -> Self {
        let mut of = vec![None; survey.switches.len()];
        for (group, switches) in members.iter().enumerate() {
            for switch in switches {
                of[*switch] = Some(group);
            }
        }
        let (mut global, mut local) = (0, 0);
        let mut pairs: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for cable in &survey.trunks {
            let [a, b] = cable.ends.map(|end| of[end as usize]);
            match (a, b) {
                (Some(a), Some(b)) if a == b => local += 1,
                (Some(a), Some(b)) => {
                    global += 1;
                    *pairs.entry((a.min(b), a.max(b))).or_default() += 1;
                }
                _ => {}
            }
        }
        Self {
            pairs: (pairs.len(), pairs_in_networks(members.len(), pairs.keys())),
            members,
            of,
            global,
            local,
            joined: None,
        }
    }

    fn pairs_are_joined(&self) -> bool {
        self.pairs.1 > 0 && self.pairs.0 as f64 >= PAIR_SHARE * self.pairs.1 as f64
    }
}

/// Pairs of groups that are in one network: planes are not joined to each other.
fn pairs_in_networks<'a>(groups: usize, joined: impl Iterator<Item = &'a (usize, usize)>) -> usize {
    let mut sets = Sets::new(groups);
    for (a, b) in joined {
        sets.union(*a, *b);
    }
    let mut sizes = vec![0usize; groups];
    (0..groups).for_each(|group| sizes[sets.find(group)] += 1);
    sizes
        .into_iter()
        .map(|size| size * size.saturating_sub(1) / 2)
        .sum()
}

/// The groups of a dragonfly; none where the fabric is not one.
pub(crate) fn dragonfly(survey: &Survey<'_>) -> Option<Groups> {
    let has_hosts = |end: &u32| !survey.switches[*end as usize].nics.is_empty();
    let direct = survey.trunks.iter();
    let direct = direct.filter(|cable| cable.ends.iter().all(has_hosts));
    if (direct.count() as f64) < DIRECT_FLOOR * survey.trunks.len() as f64
        || survey.trunks.is_empty()
    {
        return None;
    }
    let mesh = Mesh {
        neighbors: survey
            .switches
            .iter()
            .map(crate::fabric::graph::index::SwitchView::neighbors)
            .collect(),
        sharing: sharing(survey),
    };
    let members = mesh.cliques();
    let placed: usize = members.iter().map(Vec::len).sum();
    let joined = mesh.joined_within(&members);
    let mut groups = Groups::of(survey, members);
    groups.joined = Some(joined);
    let is_one = groups.pairs.1 > 0
        && placed as f64 >= MEMBER_SHARE * survey.switches.len() as f64
        && joined.0 as f64 >= LOCAL_SHARE * joined.1 as f64
        && groups.pairs_are_joined()
        && (mesh.share_hosts(&groups) || mesh.is_denser_within(&groups));
    is_one.then_some(groups)
}

/// The groups of a dragonfly+: leaves and spines that are one network without the cables from spine to spine.
pub(crate) fn dragonfly_plus(survey: &Survey<'_>, tiers: &[Option<u8>]) -> Option<Groups> {
    let is_global = |ends: [u32; 2]| ends.iter().all(|end| tiers[*end as usize] == Some(2));
    let mut sets = Sets::new(survey.switches.len());
    for cable in survey.trunks.iter().filter(|cable| !is_global(cable.ends)) {
        sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
    }
    let mut by_root: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for switch in 0..survey.switches.len() {
        by_root.entry(sets.find(switch)).or_default().push(switch);
    }
    let has_both = |members: &Vec<usize>| {
        [1, 2]
            .iter()
            .all(|tier| members.iter().any(|switch| tiers[*switch] == Some(*tier)))
    };
    let members: Vec<_> = by_root.into_values().filter(has_both).collect();
    let placed: usize = members.iter().map(Vec::len).sum();
    let groups = Groups::of(survey, members);
    let is_one = groups.members.len() >= MIN_PLUS_GROUPS
        && placed as f64 >= MEMBER_SHARE * survey.switches.len() as f64
        && groups.pairs_are_joined();
    is_one.then_some(groups)
}

/// Pairs of switches of one network with NICs of one host.
fn sharing(survey: &Survey<'_>) -> HashSet<(usize, usize), FixedState> {
    let mut sets = Sets::new(survey.switches.len());
    for cable in &survey.trunks {
        sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
    }
    let mut pairs = HashSet::default();
    for host in &survey.hosts {
        let mut own: Vec<usize> = host
            .nics
            .iter()
            .flat_map(|nic| nic.switches.iter().copied())
            .collect();
        own.sort_unstable();
        own.dedup();
        for (place, a) in own.iter().enumerate() {
            let network = sets.find(*a);
            for b in &own[place + 1..] {
                if sets.find(*b) == network {
                    pairs.insert((*a, *b));
                }
            }
        }
    }
    pairs
}

/// Switches with their neighbors, each once and in order.
struct Mesh {
    neighbors: Vec<Vec<usize>>,
    /// Pairs of switches, the lower first, that share a host: hosts are connected to one group.
    sharing: HashSet<(usize, usize), FixedState>,
}

impl Mesh {
    /// Pairs of some switches that share a host.
    fn shared_pairs(&self, members: &[usize]) -> usize {
        let pairs = members.iter().enumerate().map(|(place, a)| {
            let others = members[place + 1..].iter();
            let shares = |b: &&usize| self.sharing.contains(&(*a.min(b), *a.max(b)));
            others.filter(|b| shares(b)).count()
        });
        pairs.sum()
    }

    /// Whether most pairs of switches that share a host are in one group, and there are such pairs.
    fn share_hosts(&self, groups: &Groups) -> bool {
        let within: usize = groups
            .members
            .iter()
            .map(|own| self.shared_pairs(own))
            .sum();
        within * 2 > self.sharing.len()
    }

    fn are_joined(&self, a: usize, b: usize) -> bool {
        self.neighbors[a].binary_search(&b).is_ok()
    }

    fn common(&self, a: usize, b: usize) -> usize {
        let common = self.neighbors[a].iter();
        common.filter(|peer| self.are_joined(b, **peer)).count()
    }

    /// Sets of switches that are joined all to all but for single cables, the largest at each switch.
    fn cliques(&self) -> Vec<Vec<usize>> {
        let mut taken = vec![false; self.neighbors.len()];
        let mut cliques = Vec::new();
        for switch in 0..self.neighbors.len() {
            if taken[switch] {
                continue;
            }
            let clique = self.clique_at(switch, &taken);
            if clique.len() >= MIN_ROUTERS {
                for member in &clique {
                    taken[*member] = true;
                }
                cliques.push(clique);
            }
        }
        self.join_the_rest(&taken, &mut cliques);
        cliques
    }

    /// A switch that lacks a cable to one of its group still belongs where it is joined to most.
    fn join_the_rest(&self, taken: &[bool], cliques: &mut [Vec<usize>]) {
        for switch in (0..taken.len()).filter(|switch| !taken[*switch]) {
            let joined = |clique: &[usize]| {
                let own = clique.iter().filter(|own| self.are_joined(switch, **own));
                own.count()
            };
            let best = cliques.iter_mut().max_by_key(|clique| joined(clique));
            if let Some(clique) = best.filter(|clique| joined(clique) * 2 > clique.len()) {
                clique.push(switch);
            }
        }
    }

    fn clique_at(&self, switch: usize, taken: &[bool]) -> Vec<usize> {
        let free = self.neighbors[switch].iter().filter(|peer| !taken[**peer]);
        let mut order: Vec<(usize, usize)> = free
            .map(|peer| (self.common(switch, *peer), *peer))
            .collect();
        order.sort_unstable_by_key(|(common, peer)| (std::cmp::Reverse(*common), *peer));
        let mut best = Vec::new();
        // By chance, a cable to another group may come first; the group is the largest set.
        for (_, first) in &order {
            let mut clique = vec![switch, *first];
            for (_, peer) in order.iter().filter(|(_, peer)| peer != first) {
                let joined = clique.iter().filter(|own| self.are_joined(*peer, **own));
                if joined.count() >= clique.len() - clique.len() / 4 {
                    clique.push(*peer);
                }
            }
            // Where rows and columns are joined alike, the group is where hosts have their NICs.
            let rank = |clique: &[usize]| (self.shared_pairs(clique), clique.len());
            if rank(&clique) > rank(&best) {
                best = clique;
            }
        }
        best.sort_unstable();
        best
    }

    fn joined_within(&self, groups: &[Vec<usize>]) -> (usize, usize) {
        let (mut joined, mut all) = (0, 0);
        for members in groups {
            all += members.len() * (members.len() - 1) / 2;
            for (place, a) in members.iter().enumerate() {
                let others = members[place + 1..].iter();
                joined += others.filter(|b| self.are_joined(*a, **b)).count();
            }
        }
        (joined, all)
    }

    /// Whether switches of one group have more common neighbors than switches joined across groups.
    fn is_denser_within(&self, groups: &Groups) -> bool {
        let (mut within, mut across) = ((0, 0), (0, 0));
        for (a, peers) in self.neighbors.iter().enumerate() {
            for b in peers.iter().filter(|b| **b > a) {
                let sum = if groups.of[a].is_some() && groups.of[a] == groups.of[*b] {
                    &mut within
                } else {
                    &mut across
                };
                sum.0 += self.common(a, *b);
                sum.1 += 1;
            }
        }
        let mean = |(common, pairs): (usize, usize)| common as f64 / pairs.max(1) as f64;
        mean(across) < CROSS_SHARE * mean(within)
    }
}

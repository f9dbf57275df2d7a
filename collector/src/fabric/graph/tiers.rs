//! Tiers of switches by structure: leaves carry the hosts, each further tier joins what is below it.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, PartId};

use super::groups::{Groups, dragonfly};
use crate::fabric::graph::host_classes::{HostRole, Shapes};
use crate::fabric::graph::index::Survey;

/// A switch seeds the leaf tier when it carries at least this share of the hosts of a typical leaf. In
/// Selene, service hosts' switches carry 2 to 5 of a compute leaf's 14 to 20; a spine with a management
/// server carries 1 or 2.
const SEED_SHARE: f64 = 0.25;
/// Switches one step further out are a tier when at least this share of the tier below is cabled to them.
/// In Selene 100 % of the leaves and spines go up, and 10 % of the cores have a side branch.
const COVERAGE_SHARE: f64 = 0.5;
/// A switch with hosts is of a higher tier, with service hosts on it, when it joins at least this share
/// of the switches that its hostless peers join. Selene's service leaves join 1 where cores join 33.
const PEER_SHARE: f64 = 0.5;

/// The tier of every switch: 1 is the leaf tier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tiers {
    /// The highest tier; 0 where no switch carries a host.
    pub levels: u8,
    by_switch: HashMap<PartId, u8, FixedState>,
}

impl Tiers {
    /// Tier of a switch, from 1; none for one that no path joins to a host.
    pub fn of(&self, switch: PartId) -> Option<u8> {
        self.by_switch.get(&switch).copied()
    }
}

/// Computes the tier of every switch from the cables. Cables from a switch to itself do not count.
pub fn tiers(fabric: &Fabric) -> Tiers {
    let survey = Survey::of(fabric);
    let shapes = Shapes::of(&survey);
    let by_switch = tier_numbers(&survey, &shapes, dragonfly(&survey).as_ref());
    Tiers {
        levels: by_switch.iter().flatten().copied().max().unwrap_or(0),
        by_switch: survey
            .switches
            .iter()
            .zip(by_switch)
            .filter_map(|(switch, tier)| Some((switch.id, tier?)))
            .collect(),
    }
}

/// Tier by switch number. Routers of a dragonfly are one tier, whether they carry hosts or not.
pub(crate) fn tier_numbers(
    survey: &Survey<'_>,
    shapes: &Shapes,
    dragonfly: Option<&Groups>,
) -> Vec<Option<u8>> {
    if let Some(groups) = dragonfly {
        let tier = |group: &Option<usize>| group.map(|_| 1);
        return groups.of.iter().map(tier).collect();
    }
    let seeds = seeds(survey, shapes);
    let neighbors: Vec<Vec<usize>> = survey
        .switches
        .iter()
        .map(crate::fabric::graph::index::SwitchView::neighbors)
        .collect();
    let steps = steps_from(&seeds, &neighbors);
    let graph = Steps {
        survey,
        neighbors,
        steps,
    };
    let is_edge = graph.edge_switches();
    let top = graph.top(&is_edge);
    let tier = |index: usize| {
        let steps = graph.steps[index]?;
        let tier = if is_edge[index] {
            0
        } else if steps <= top {
            steps
        } else {
            graph.tier_of_branch(index, steps, top)
        };
        u8::try_from(tier + 1).ok()
    };
    (0..survey.switches.len()).map(tier).collect()
}

/// Switches that are leaves beyond doubt: they carry about as many hosts as leaves do.
fn seeds(survey: &Survey<'_>, shapes: &Shapes) -> Vec<usize> {
    let is_seeding = |host: usize| match shapes.roles[host] {
        HostRole::Compute { class } => shapes.classes[class].devices.len() * 2 > shapes.usual_nics,
        HostRole::Unlike | HostRole::Unnamed => true,
        HostRole::Service | HostRole::WithoutNic => false,
    };
    let carried: Vec<usize> = survey
        .switches
        .iter()
        .map(|switch| {
            switch
                .nics
                .iter()
                .filter(|(host, ..)| is_seeding(*host))
                .count()
        })
        .collect();
    let floor = SEED_SHARE * typical(&carried) as f64;
    let carries = |index: &usize| carried[*index] > 0 && carried[*index] as f64 >= floor;
    let candidates: Vec<usize> = (0..carried.len()).filter(carries).collect();
    without_spines(survey, candidates)
}

/// Excludes switches that have as many hosts as a leaf but connect the leaves like a switch without hosts: spines with
/// service hosts.
fn without_spines(survey: &Survey<'_>, candidates: Vec<usize>) -> Vec<usize> {
    let mut is_candidate = vec![false; survey.switches.len()];
    candidates
        .iter()
        .for_each(|index| is_candidate[*index] = true);
    let joined = |index: usize| {
        let mut below = survey.switches[index].neighbors();
        below.retain(|peer| is_candidate[*peer]);
        below
    };
    // Only a candidate connected to another one can be above it; a leaf-spine tree has none.
    let suspects: Vec<(usize, Vec<usize>)> = candidates
        .iter()
        .map(|index| (*index, joined(*index)))
        .filter(|(_, below)| below.len() >= 2)
        .collect();
    if suspects.is_empty() {
        return candidates;
    }
    let bare = |index: &usize| survey.switches[*index].nics.is_empty();
    let spines: Vec<Vec<usize>> = (0..survey.switches.len())
        .filter(bare)
        .map(joined)
        .filter(|below| below.len() >= 2)
        .collect();
    let is_spine = |below: &[usize]| {
        let like = |spine: &Vec<usize>| {
            let shared = spine.iter().filter(|leaf| below.contains(leaf)).count();
            shared as f64 > PEER_SHARE * spine.len() as f64
        };
        !spines.is_empty() && spines.iter().filter(|spine| like(spine)).count() * 2 > spines.len()
    };
    let above: Vec<usize> = suspects
        .iter()
        .filter(|(_, below)| is_spine(below))
        .map(|(index, _)| *index)
        .collect();
    candidates
        .into_iter()
        .filter(|index| !above.contains(index))
        .collect()
}

/// Hosts on the switch that the median host is connected to.
fn typical(carried: &[usize]) -> usize {
    let mut sorted = carried.to_vec();
    sorted.sort_unstable();
    let half = sorted.iter().sum::<usize>() / 2;
    let mut below = 0;
    sorted
        .into_iter()
        .find(|hosts| {
            below += hosts;
            below > half
        })
        .unwrap_or(0)
}

/// Steps from the nearest seed.
fn steps_from(seeds: &[usize], neighbors: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut steps = vec![None; neighbors.len()];
    let mut queue: VecDeque<(usize, usize)> = seeds.iter().map(|seed| (*seed, 0)).collect();
    for seed in seeds {
        steps[*seed] = Some(0);
    }
    while let Some((index, distance)) = queue.pop_front() {
        for peer in &neighbors[index] {
            if steps[*peer].is_none() {
                steps[*peer] = Some(distance + 1);
                queue.push_back((*peer, distance + 1));
            }
        }
    }
    steps
}

struct Steps<'a> {
    survey: &'a Survey<'a>,
    neighbors: Vec<Vec<usize>>,
    steps: Vec<Option<usize>>,
}

impl Steps<'_> {
    fn has_hosts(&self, index: usize) -> bool {
        !self.survey.switches[index].nics.is_empty()
    }

    /// Neighbors one step nearer to the seeds.
    fn below(&self, index: usize) -> usize {
        self.near(index, |near, own| near + 1 == own).count()
    }

    fn near(&self, index: usize, is: impl Fn(usize, usize) -> bool) -> impl Iterator<Item = usize> {
        let own = self.steps[index].unwrap_or(0);
        self.neighbors[index]
            .iter()
            .copied()
            .filter(move |peer| self.steps[*peer].is_some_and(|near| is(near, own)))
    }

    /// Switches beside the seeds that are leaves too: with few hosts, or with none left.
    fn edge_switches(&self) -> Vec<bool> {
        let usual = self.usual_joins();
        let joins_few = |index: usize, steps: usize| match usual[steps] {
            // A switch that connects two leaves is above them, even with few cables: a spine whose other cables are missing.
            Some(_) if steps == 1 && self.below(index) >= 2 => false,
            Some(usual) => (self.below(index) as f64) < PEER_SHARE * usual as f64,
            // No other switch to go by: of the next tier if it joins two leaves at least.
            None => steps > 1 || self.below(index) < 2,
        };
        let is_edge = |index: usize| match self.steps[index] {
            None | Some(0) => false,
            Some(steps) if steps > 1 && self.is_wired_like_a_leaf(index) => true,
            Some(steps) => {
                self.has_hosts(index)
                    && self.near(index, |near, own| near > own).next().is_none()
                    && joins_few(index, steps)
            }
        };
        (0..self.steps.len()).map(is_edge).collect()
    }

    /// Switches below that the switches so many steps out join, in the median: those without hosts, or
    /// all of them where each has a host and the leaves are not joined without them.
    fn usual_joins(&self) -> Vec<Option<usize>> {
        let deepest = self.steps.iter().flatten().copied().max().unwrap_or(0);
        let joining = self.joining_steps();
        let joins = |steps: usize, any: bool| {
            let at = (0..self.steps.len()).filter(|index| self.steps[*index] == Some(steps));
            let peers = at.filter(|index| any || !self.has_hosts(*index));
            let mut joins: Vec<_> = peers.map(|index| self.below(index)).collect();
            joins.sort_unstable();
            joins.get(joins.len() / 2).copied()
        };
        (0..=deepest)
            .map(|steps| joins(steps, false).or_else(|| joins(steps, steps <= joining)))
            .collect()
    }

    /// Whether all its neighbors are neighbors of one seed: a leaf whose hosts are off is wired like the
    /// leaf beside it, and no upper tier is.
    fn is_wired_like_a_leaf(&self, index: usize) -> bool {
        let own = &self.neighbors[index];
        let Some(first) = own.first() else {
            return false;
        };
        self.neighbors[*first].iter().any(|leaf| {
            self.steps[*leaf] == Some(0)
                && self.neighbors[*leaf].len() >= own.len()
                && own
                    .iter()
                    .all(|peer| self.neighbors[*leaf].binary_search(peer).is_ok())
        })
    }

    /// Steps of the highest tier: as far as needed to join all leaves that are joined at all, and
    /// further while most of a tier goes on upwards.
    fn top(&self, is_edge: &[bool]) -> usize {
        let mut top = self.joining_steps();
        loop {
            let at_top = |index: &usize| self.steps[*index] == Some(top) && !is_edge[*index];
            let goes_up = |index: &usize| {
                self.near(*index, |near, own| near == own + 1)
                    .any(|peer| !is_edge[peer])
            };
            let tier = (0..self.steps.len()).filter(at_top).count();
            let upwards = (0..self.steps.len()).filter(at_top).filter(goes_up).count();
            if tier == 0 || upwards == 0 || (upwards as f64) < COVERAGE_SHARE * tier as f64 {
                return top;
            }
            top += 1;
        }
    }

    /// The fewest steps within which every two seeds are joined that are joined at all.
    fn joining_steps(&self) -> usize {
        let mut edges: Vec<(usize, usize, usize)> = Vec::new();
        for (index, steps) in self.steps.iter().enumerate() {
            let Some(steps) = *steps else { continue };
            // Cables within a tier join nothing: one cable in the wrong port would.
            edges.extend(
                self.near(index, |near, own| near + 1 == own)
                    .map(|peer| (steps, index, peer)),
            );
        }
        edges.sort_unstable();
        let mut sets = Sets::new(self.steps.len());
        let mut has_seed: Vec<bool> = self.steps.iter().map(|steps| *steps == Some(0)).collect();
        let mut joined_at = 0;
        for (steps, a, b) in edges {
            let (a, b) = (sets.find(a), sets.find(b));
            if a != b {
                if has_seed[a] && has_seed[b] {
                    joined_at = steps;
                }
                let both = has_seed[a] || has_seed[b];
                has_seed[sets.union(a, b)] = both;
            }
        }
        joined_at
    }

    /// A switch past the top is below it on another side: its ends are leaves, and what joins them
    /// to the top goes down from there.
    fn tier_of_branch(&self, index: usize, steps: usize, top: usize) -> usize {
        let goes_on = self
            .near(index, |near, own| near == own + 1)
            .next()
            .is_some();
        if goes_on {
            top.saturating_sub(steps - top)
        } else {
            0
        }
    }
}

/// Disjoint sets with path halving.
#[derive(Debug)]
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    pub(crate) fn new(members: usize) -> Self {
        Self((0..members).collect())
    }

    pub(crate) fn find(&mut self, mut member: usize) -> usize {
        while self.0[member] != member {
            self.0[member] = self.0[self.0[member]];
            member = self.0[member];
        }
        member
    }

    /// Joins two sets and returns the root of both.
    pub(crate) fn union(&mut self, a: usize, b: usize) -> usize {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
        a.min(b)
    }
}

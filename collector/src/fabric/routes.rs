//! Shortest paths between leaves, counted and never listed: how many, over which switches and cables, with which share.
//!
//! A path is shortest in cables; in a dragonfly it takes the fewest cables between groups first, as minimal
//! routing does. Parallel cables are separate paths. The share of a cable is the share of all shortest
//! paths that lead over it: what traffic spread evenly over them puts on it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, LinkId, PartId};
use railscope_model::identity::{Part, SwitchName};

use crate::fabric::graph::frozen::Graph;
use crate::fabric::graph::groups::Groups;
use crate::fabric::graph::index::Survey;
use crate::fabric::lid_routes::LidRoutes;
use crate::fabric::subnet::Subnet;

const NONE: u32 = u32::MAX;
/// What a cable between groups counts for, in cables within them: more than any path within groups
/// has.
const GLOBAL_COST: u32 = 1 << 16;
/// Memory for cached results, in bytes. Each entry is as large as the fabric has
/// switches.
const CACHE_BYTES: usize = 32 << 20;
/// Number of cached results for cables.
const CACHED_CABLES: usize = 4096;

/// The set of all shortest paths between two leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSet {
    /// Cables of each path.
    pub hops: usize,
    /// Number of paths: exact to 2^53.
    pub paths: f64,
    /// Switches between the two, with the share of the paths over each, the largest first.
    pub switches: Vec<(PartId, f64)>,
    /// Cables with the share of the paths over each, the largest first.
    pub cables: Vec<(LinkId, f64)>,
}

/// The hosts that are routed over a cable between switches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CableUse {
    /// Leaves on the lower side of the cable, or of both groups that it joins, with the share of their
    /// traffic to the NICs of all other leaves that goes over it; the largest first.
    pub leaves: Vec<(PartId, f64)>,
}

/// Shortest paths from one switch to all.
#[derive(Debug)]
struct Tree {
    /// Cost from the source; [`NONE`] where there is no path.
    cost: Vec<u32>,
    /// Number of shortest paths.
    paths: Vec<f64>,
    /// Switches that are reached, nearest first.
    order: Vec<u32>,
}

/// The paths of a fabric. Computed on request, and cached within a bound.
#[derive(Debug, Default)]
pub struct Routes {
    graph: Graph,
    tiers: Vec<Option<u8>>,
    group: Vec<Option<usize>>,
    /// By number, and in reverse.
    ids: Vec<PartId>,
    numbers: HashMap<PartId, u32, FixedState>,
    trees: Mutex<HashMap<u32, Arc<Tree>, FixedState>>,
    uses: Mutex<HashMap<Part, Arc<CableUse>, FixedState>>,
    /// What switches themselves report about their routes, where that was read.
    lids: LidRoutes,
}

impl Routes {
    pub(super) fn new(
        survey: &Survey<'_>,
        graph: Graph,
        tiers: Vec<Option<u8>>,
        groups: Option<&Groups>,
    ) -> Self {
        let ids: Vec<PartId> = survey.switches.iter().map(|switch| switch.id).collect();
        Self {
            numbers: ids.iter().copied().zip(0..).collect(),
            group: groups.map_or_else(|| vec![None; ids.len()], |groups| groups.of.clone()),
            ids,
            graph,
            tiers,
            ..Self::default()
        }
    }

    /// The same with the forwarding tables of an InfiniBand subnet.
    #[must_use]
    pub(crate) fn with_lids(mut self, fabric: &Fabric, subnet: Option<&Subnet>) -> Self {
        self.lids = LidRoutes::of(fabric, subnet);
        self
    }

    /// Paths by the forwarding tables of an InfiniBand subnet.
    pub fn lids(&self) -> &LidRoutes {
        &self.lids
    }

    /// All shortest paths between two switches of the fabric; none where there is no path, or one of them is
    /// not in it.
    pub fn between(&self, fabric: &Fabric, a: &SwitchName, b: &SwitchName) -> Option<PathSet> {
        let number = |name: &SwitchName| {
            let id = fabric.find(&Part::Switch(name.clone()))?;
            self.numbers.get(&id).copied()
        };
        let (from, to) = (number(a)?, number(b)?);
        let tree = self.tree(from);
        let paths = tree.paths[to as usize];
        if tree.cost[to as usize] == NONE {
            return None;
        }
        let mut load = vec![0.0; self.graph.switches];
        load[to as usize] = 1.0;
        let mut cables: Vec<(LinkId, f64)> = Vec::new();
        self.descend(&tree, &mut load, None, |edge, share| {
            cables.extend(edge.map(|edge| (self.graph.links[edge], share)));
        });
        let mut switches: Vec<(PartId, f64)> = tree
            .order
            .iter()
            .filter(|switch| **switch != from && **switch != to)
            .map(|switch| (self.ids[*switch as usize], load[*switch as usize]))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        by_share(&mut switches);
        by_share(&mut cables);
        let globals = tree.cost[to as usize] / GLOBAL_COST;
        Some(PathSet {
            hops: (tree.cost[to as usize] % GLOBAL_COST + globals) as usize,
            paths,
            switches,
            cables,
        })
    }

    /// Whether any path leads from one switch of the fabric to another.
    pub fn reaches(&self, fabric: &Fabric, a: &SwitchName, b: &SwitchName) -> bool {
        let number = |name: &SwitchName| {
            let id = fabric.find(&Part::Switch(name.clone()))?;
            self.numbers.get(&id).copied()
        };
        let ends = number(a).zip(number(b));
        ends.is_some_and(|(from, to)| self.tree(from).cost[to as usize] != NONE)
    }

    /// The hosts that are routed over a cable between switches; a missing one is treated as present.
    /// None if the part is no such cable of the fabric.
    pub fn over(&self, fabric: &Fabric, cable: &Part) -> Arc<CableUse> {
        let known = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(cable) {
            return Arc::clone(known);
        }
        drop(known);
        let found = Arc::new(self.find_use(fabric, cable).unwrap_or_default());
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.len() >= CACHED_CABLES {
            uses.clear();
        }
        uses.insert(cable.clone(), Arc::clone(&found));
        found
    }

    fn find_use(&self, fabric: &Fabric, cable: &Part) -> Option<CableUse> {
        let (near, far) = fabric.find_cable(cable)?;
        let a = *self.numbers.get(&near)?;
        let b = *self.numbers.get(&far.peer)?;
        let edge = self.graph.edge_at(a as usize, far.id);
        let lost = if edge.is_some() { None } else { Some([a, b]) };
        let weights = self.weights();
        let all: f64 = weights.iter().sum();
        let mut by_sort: BTreeMap<Vec<u32>, Vec<u32>> = BTreeMap::new();
        for leaf in self.leaves_behind(a, b) {
            by_sort
                .entry(self.sort_of(leaf, &[a, b]))
                .or_default()
                .push(leaf);
        }
        let mut leaves = Vec::new();
        for alike in by_sort.into_values() {
            // Leaves that are cabled alike are routed alike: one of them is computed.
            let tree = match lost {
                None => self.tree(alike[0]),
                Some(_) => Arc::new(self.grow(alike[0], lost)),
            };
            let mut load = weights.clone();
            load[alike[0] as usize] = 0.0;
            let mut over = 0.0;
            self.descend(&tree, &mut load, lost, |found, share| {
                if found == edge {
                    over += share;
                }
            });
            for leaf in alike {
                let others = all - weights[leaf as usize];
                if over > 0.0 && others > 0.0 {
                    leaves.push((self.ids[leaf as usize], over / others));
                }
            }
        }
        by_share(&mut leaves);
        Some(CableUse { leaves })
    }

    /// NICs on each switch.
    fn weights(&self) -> Vec<f64> {
        let nics = |switch| self.graph.drops_of(switch).len() as f64;
        (0..self.graph.switches).map(nics).collect()
    }

    /// Leaves with NICs whose traffic may go over a cable: those below its lower end; where both ends are
    /// of one tier, those below both; in a dragonfly, those of both groups.
    fn leaves_behind(&self, a: u32, b: u32) -> Vec<u32> {
        let [of_a, of_b] = [a, b].map(|switch| self.group[switch as usize]);
        let has_nics = |switch: &u32| !self.graph.drops_of(*switch as usize).is_empty();
        if of_a.is_some() && of_b.is_some() {
            let is_of = |switch: &u32| [of_a, of_b].contains(&self.group[*switch as usize]);
            let switches = 0..self.graph.switches as u32;
            return switches.filter(is_of).filter(has_nics).collect();
        }
        let tier = |switch: u32| self.tiers[switch as usize];
        self.leaves_at_or_below(match tier(a).cmp(&tier(b)) {
            std::cmp::Ordering::Less => vec![a],
            std::cmp::Ordering::Equal => vec![a, b],
            std::cmp::Ordering::Greater => vec![b],
        })
    }

    /// Leaves whose traffic may go over a switch: those below it. Of one whose cables are all lost, those below its
    /// lowest neighbors; none of a switch that has NICs itself.
    pub fn below(&self, fabric: &Fabric, switch: PartId) -> Vec<PartId> {
        let tier = |switch: u32| self.tiers[switch as usize];
        let near = fabric.neighbors(switch).map(|near| near.peer);
        let near: Vec<u32> = near
            .filter_map(|peer| self.numbers.get(&peer).copied())
            .collect();
        let lowest = near.iter().filter_map(|peer| tier(*peer)).min();
        let own = self.numbers.get(&switch).and_then(|own| tier(*own));
        let mut peers = fabric
            .neighbors(switch)
            .map(|near| &fabric.vertex(near.peer).part);
        let has_nics = peers.any(|peer| matches!(peer, Part::Nic(..)));
        // Nothing is below one whose neighbors are all as high as it is, or higher.
        let is_lowest = own.is_some_and(|own| lowest.is_some_and(|lowest| own <= lowest));
        if has_nics || is_lowest || lowest.is_none() {
            return Vec::new();
        }
        let lower = near.into_iter().filter(|peer| tier(*peer) == lowest);
        let leaves = self.leaves_at_or_below(lower.collect());
        leaves
            .into_iter()
            .map(|leaf| self.ids[leaf as usize])
            .collect()
    }

    fn leaves_at_or_below(&self, mut way: Vec<u32>) -> Vec<u32> {
        let has_nics = |switch: &u32| !self.graph.drops_of(*switch as usize).is_empty();
        let tier = |switch: u32| self.tiers[switch as usize];
        let mut seen = vec![false; self.graph.switches];
        way.iter().for_each(|switch| seen[*switch as usize] = true);
        let mut leaves = Vec::new();
        while let Some(switch) = way.pop() {
            if has_nics(&switch) {
                leaves.push(switch);
            }
            for near in self.graph.trunks_of(switch as usize) {
                let below = tier(near.peer).is_some() && tier(near.peer) < tier(switch);
                if below && !seen[near.peer as usize] {
                    seen[near.peer as usize] = true;
                    way.push(near.peer);
                }
            }
        }
        leaves.sort_unstable();
        leaves
    }

    /// What leaves of one sort have in common: the far ends of their cables. An end of the cable in question
    /// is a separate sort.
    fn sort_of(&self, leaf: u32, ends: &[u32]) -> Vec<u32> {
        if ends.contains(&leaf) || self.group[leaf as usize].is_some() {
            return vec![NONE, leaf];
        }
        let trunks = self.graph.trunks_of(leaf as usize).iter();
        let mut sort: Vec<u32> = trunks.map(|near| near.peer).collect();
        sort.sort_unstable();
        sort
    }

    fn tree(&self, from: u32) -> Arc<Tree> {
        let known = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = known.get(&from) {
            return Arc::clone(tree);
        }
        drop(known);
        let tree = Arc::new(self.grow(from, None));
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if trees.len() >= (CACHE_BYTES / (16 * self.graph.switches.max(1))).max(1) {
            trees.clear();
        }
        trees.insert(from, Arc::clone(&tree));
        tree
    }

    fn cost_of(&self, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|switch| self.group[switch as usize]);
        if a.is_some() && b.is_some() && a != b {
            GLOBAL_COST
        } else {
            1
        }
    }

    /// Cables of a switch: far end and edge, a lost one that is to count last.
    fn cables_of(
        &self,
        switch: u32,
        lost: Option<[u32; 2]>,
    ) -> impl Iterator<Item = (u32, Option<usize>)> {
        let more = lost.and_then(|[a, b]| match switch {
            own if own == a => Some((b, None)),
            own if own == b => Some((a, None)),
            _ => None,
        });
        let trunks = self.graph.trunks_of(switch as usize).iter();
        trunks
            .map(|near| (near.peer, Some(near.edge as usize)))
            .chain(more)
    }

    /// Dijkstra's algorithm, with the number of shortest paths to each switch.
    fn grow(&self, from: u32, lost: Option<[u32; 2]>) -> Tree {
        let switches = self.graph.switches;
        let mut tree = Tree {
            cost: vec![NONE; switches],
            paths: vec![0.0; switches],
            order: Vec::with_capacity(switches),
        };
        let mut done = vec![false; switches];
        let mut next = BinaryHeap::from([Reverse((0u32, from))]);
        tree.cost[from as usize] = 0;
        tree.paths[from as usize] = 1.0;
        while let Some(Reverse((cost, switch))) = next.pop() {
            if std::mem::replace(&mut done[switch as usize], true) {
                continue;
            }
            tree.order.push(switch);
            let paths = tree.paths[switch as usize];
            for (peer, _) in self.cables_of(switch, lost) {
                let through = cost.saturating_add(self.cost_of(switch, peer));
                let known = &mut tree.cost[peer as usize];
                if through < *known {
                    *known = through;
                    tree.paths[peer as usize] = paths;
                    next.push(Reverse((through, peer)));
                } else if through == *known {
                    tree.paths[peer as usize] += paths;
                }
            }
        }
        tree
    }

    /// Distributes the traffic of each switch back to the source evenly over all shortest paths, and returns
    /// the traffic of every cable. Afterwards `load` is the traffic through each switch.
    fn descend(
        &self,
        tree: &Tree,
        load: &mut [f64],
        lost: Option<[u32; 2]>,
        mut tell: impl FnMut(Option<usize>, f64),
    ) {
        for switch in tree.order.iter().rev() {
            let own = *switch as usize;
            if load[own] <= 0.0 {
                continue;
            }
            for (peer, edge) in self.cables_of(*switch, lost) {
                let before = tree.cost[peer as usize];
                if before != NONE
                    && before.saturating_add(self.cost_of(peer, *switch)) == tree.cost[own]
                {
                    let share = load[own] * tree.paths[peer as usize] / tree.paths[own];
                    load[peer as usize] += share;
                    tell(edge, share);
                }
            }
        }
    }
}

/// The largest share first, then the order of the graph.
fn by_share<T: Ord + Copy>(shares: &mut [(T, f64)]) {
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
}

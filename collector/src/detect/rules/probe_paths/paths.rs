//! Where probes go: the leaves of their NICs, all shortest paths between these, and the one that
//! routers on it have reported, or the forwarding tables of InfiniBand switches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, LinkId, LinkKind, PartId};
use railscope_model::identity::Part;
use railscope_model::path_class::PathClass;

use super::MAX_TABLES_AGE_SECONDS;
use super::flows::Hop;
use crate::detect::detector::View;
use crate::fabric::PathSet;
use crate::stages;

/// Where a NIC is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct End {
    pub(super) host: Option<PartId>,
    pub(super) cable: Option<LinkId>,
    pub(super) leaf: Option<PartId>,
}

/// What was found of the fabric, for as long as it is the same.
#[derive(Debug, Default)]
pub(super) struct Ways {
    basis: Option<Basis>,
    ends: HashMap<PartId, End, FixedState>,
    /// By two leaves, the lower first.
    sets: BTreeMap<(PartId, PartId), Option<PathSet>>,
    /// By the leaf where a path begins and the NIC where it ends.
    by_tables: HashMap<(PartId, PartId), Option<Way>, FixedState>,
}

/// What all that was found rests on: the fabric, and whether its forwarding tables are recent enough to be used.
pub(super) type Basis = (u64, bool);

/// The cables of one direction, in order.
pub(super) type Way = Arc<[Step]>;

/// Paths out and back, each where it is known; else it may be any of the shortest ones.
pub(super) type Known = [Option<Way>; 2];

/// One cable of a path and the switch behind it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// None behind the last cable: that switch is the leaf of the other end.
    pub(super) switch: Option<PartId>,
    /// The cable, or all of those among which it is.
    pub(super) cables: Vec<LinkId>,
}

impl Ways {
    /// Begins a tick. Cached results stay valid while the fabric is the same.
    pub(super) fn refresh(&mut self, view: &View<'_>) -> Basis {
        let read_at = view.routes.lids().read_at();
        let is_recent = |at| view.now.seconds_since(at) <= MAX_TABLES_AGE_SECONDS;
        let may_use = !view.left_out.has(stages::Step::ForwardingTables);
        let basis = (view.epoch, may_use && read_at.is_some_and(is_recent));
        if self.basis.replace(basis) != Some(basis) {
            self.ends.clear();
            self.sets.clear();
            self.by_tables.clear();
        }
        basis
    }

    /// Where a NIC is.
    pub(super) fn end(&mut self, fabric: &Fabric, nic: PartId) -> End {
        *self
            .ends
            .entry(nic)
            .or_insert_with(|| find_end(fabric, nic))
    }

    /// The leaf of a NIC, or the NIC itself where its leaf is not known.
    pub(super) fn leaf(&mut self, fabric: &Fabric, nic: PartId) -> PartId {
        self.end(fabric, nic).leaf.unwrap_or(nic)
    }

    /// Cached position of a NIC.
    pub(super) fn known_end(&self, nic: PartId) -> Option<End> {
        self.ends.get(&nic).copied()
    }

    /// How far apart two NICs of different nodes are; unknown where the leaf of one is. A scalable unit is the nodes behind
    /// the same leaves.
    pub(super) fn path_class(&mut self, fabric: &Fabric, nics: [PartId; 2]) -> PathClass {
        let [Some(a), Some(b)] = nics.map(|nic| self.end(fabric, nic).leaf) else {
            return PathClass::Unknown;
        };
        let rail = |nic: PartId| match fabric.vertex(nic).equipment {
            Equipment::Nic { rail, .. } => rail,
            _ => None,
        };
        PathClass::between((a, rail(nics[0])), (b, rail(nics[1])), || {
            let [of_a, of_b] = nics.map(|nic| self.leaves_of_node(fabric, nic));
            of_a.iter().any(|leaf| of_b.contains(leaf))
        })
    }

    /// Leaves of all NICs of the node that a NIC is in.
    fn leaves_of_node(&mut self, fabric: &Fabric, nic: PartId) -> Vec<PartId> {
        let host = self.end(fabric, nic).host;
        let parts = host.into_iter().flat_map(|host| fabric.neighbors(host));
        let nics = parts.filter(|near| matches!(fabric.vertex(near.peer).part, Part::Nic(..)));
        let nics: Vec<PartId> = nics.map(|near| near.peer).collect();
        let leaves = nics.into_iter().map(|nic| self.end(fabric, nic).leaf);
        leaves.flatten().collect()
    }

    /// The paths from one NIC to another and back: out over the routers that were reported, or both by
    /// forwarding tables.
    pub(super) fn known(
        &mut self,
        view: &View<'_>,
        nics: [PartId; 2],
        hops: Option<Vec<Hop>>,
    ) -> Known {
        let out = hops.and_then(|hops| self.by_hops(view, nics, &hops));
        if out.is_some() {
            return [out, None];
        }
        let [from, to] = nics;
        [[from, to], [to, from]].map(|nics| self.by_tables(view, nics))
    }

    /// The path from the leaf of one NIC to that of another, as the switches on it forward by the LID of the
    /// other.
    fn by_tables(&mut self, view: &View<'_>, [from, to]: [PartId; 2]) -> Option<Way> {
        self.basis.filter(|(_, has_tables)| *has_tables)?;
        let leaf = self.end(view.fabric, from).leaf?;
        let last = self
            .end(view.fabric, to)
            .leaf
            .filter(|last| *last != leaf)?;
        let find = || {
            let path = view.routes.lids().path(view.fabric, leaf, to)?;
            let (_, reached) = path.last()?;
            (*reached == last).then(|| {
                let steps = path.iter().map(|(cable, switch)| Step {
                    switch: Some(*switch).filter(|switch| *switch != last),
                    cables: vec![*cable],
                });
                steps.collect()
            })
        };
        self.by_tables
            .entry((leaf, to))
            .or_insert_with(find)
            .clone()
    }

    /// The path from one NIC to another over these routers; none unless all between their leaves
    /// have identified themselves and are on a shortest path.
    fn by_hops(&mut self, view: &View<'_>, nics: [PartId; 2], hops: &[Hop]) -> Option<Way> {
        let leaves = nics.map(|nic| self.end(view.fabric, nic).leaf);
        let [Some(from), Some(to)] = leaves else {
            return None;
        };
        let set = self.between(view, from, to).filter(|_| from != to)?;
        known_way(view.fabric, set, [from, to], hops)
    }

    /// All shortest paths between two leaves, in either direction; none if there are none.
    pub(super) fn between(&mut self, view: &View<'_>, a: PartId, b: PartId) -> Option<&PathSet> {
        let pair = (a.min(b), a.max(b));
        let find = || {
            let name = |leaf: PartId| match &view.fabric.vertex(leaf).part {
                Part::Switch(name) => Some(name),
                _ => None,
            };
            let (a, b) = (name(pair.0)?, name(pair.1)?);
            view.routes.between(view.fabric, a, b)
        };
        self.sets.entry(pair).or_insert_with(find).as_ref()
    }
}

fn find_end(fabric: &Fabric, nic: PartId) -> End {
    let mut end = End::default();
    for near in fabric.neighbors(nic) {
        match (&fabric.vertex(near.peer).part, near.link.kind) {
            (Part::Host(_), LinkKind::Inside) => end.host = Some(near.peer),
            (Part::Switch(_), LinkKind::Cable) if near.link.is_present() && end.leaf.is_none() => {
                (end.cable, end.leaf) = (Some(near.id), Some(near.peer));
            }
            _ => {}
        }
    }
    end
}

fn known_way(fabric: &Fabric, set: &PathSet, [from, to]: [PartId; 2], hops: &[Hop]) -> Option<Way> {
    let hop = |number: usize| hops.iter().find(|hop| usize::from(hop.number) == number);
    let mut steps = Vec::with_capacity(set.hops);
    let mut near = from;
    // The first router is the leaf itself.
    for number in 2..=set.hops + 1 {
        let told = hop(number);
        let is_last = number == set.hops + 1;
        let far = if is_last { to } else { told?.switch };
        let port = told
            .filter(|told| told.switch == far)
            .and_then(|told| told.port);
        let joins = |cable: &LinkId| {
            fabric.link(*cable).is_some_and(|(link, [a, b])| {
                let into = if b == far { link.ports.1 } else { link.ports.0 };
                let ends = (a, b) == (near, far) || (a, b) == (far, near);
                ends && port.is_none_or(|port| port == into)
            })
        };
        let cables = set.cables.iter().map(|(cable, _)| *cable);
        let cables: Vec<LinkId> = cables.filter(joins).collect();
        if cables.is_empty() {
            return None;
        }
        steps.push(Step {
            switch: (!is_last).then_some(far),
            cables,
        });
        near = far;
    }
    Some(steps.into())
}

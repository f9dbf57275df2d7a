//! Cables as pairs of ends: what both ends report is one cable, and an end has one cable only.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use indexmap::IndexMap;
use railscope_model::fabric::{Sightings, Timestamp, Witness};
use railscope_model::identity::natural;
use railscope_model::units::LinkSpeed;
use rayon::prelude::*;

use super::{Contradiction, End, Heard, SwitchNumber, SwitchPorts};

/// Of two cables in one port the one that was received so much later is right: the other end has not
/// reported since the cable was moved. About as long as it takes a node to become stale (`store::STALE_AFTER_SECONDS`).
const NEWER_SECONDS: f64 = 60.0;

/// One cable with the nodes that reported it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pair {
    pub(super) speed: Option<LinkSpeed>,
    /// When each end reported it, in the order of the ends.
    said: [Option<Timestamp>; 2],
}

impl Pair {
    fn is_confirmed(&self) -> bool {
        self.said.iter().all(Option::is_some)
    }

    fn newest(&self) -> Timestamp {
        self.said.into_iter().flatten().max().unwrap_or_default()
    }

    fn merge(&mut self, other: &Self) {
        self.speed = self.speed.or(other.speed);
        for (own, other) in self.said.iter_mut().zip(other.said) {
            *own = (*own).max(other);
        }
    }

    /// The witnesses of the cable between these ends, and when each saw it.
    pub(super) fn seen_by(&self, ends: [End; 2]) -> Sightings {
        let mut seen_by = Sightings::default();
        for (end, at) in ends.into_iter().zip(self.said) {
            let witness = match end {
                End::Nic(..) => Witness::Exporter,
                End::Switch(..) => Witness::Switch,
            };
            if let Some(at) = at {
                seen_by.merge(&Sightings::by(witness, at));
            }
        }
        seen_by
    }
}

/// All cables by their ends, of which the lesser is the first; in the order in which they were
/// first reported.
#[derive(Debug)]
pub(super) struct Pairs(IndexMap<[End; 2], Pair, FixedState>);

/// An end that several cables claim.
#[derive(Debug)]
pub(super) struct Contest {
    end: End,
    /// The other end of each, and whether that cable was kept.
    others: Vec<(End, bool)>,
}

impl Contest {
    pub(super) fn in_words(&self, words: &impl Fn(End) -> String) -> Contradiction {
        let kept = self.others.iter().find(|(_, kept)| *kept);
        let mut claims: Vec<_> = self.others.iter().map(|(end, _)| words(*end)).collect();
        claims.sort_by(|a, b| natural(a, b));
        Contradiction {
            end: words(self.end),
            claims,
            kept: kept.map(|(end, _)| words(*end)),
        }
    }
}

impl Pairs {
    /// Room for the cables of so many entries, mostly two of each cable.
    pub(super) fn for_words(words: usize) -> Self {
        Self(IndexMap::with_capacity_and_hasher(
            words / 2,
            FixedState::default(),
        ))
    }

    /// Adds what one end reports.
    pub(super) fn add(&mut self, heard: &Heard<'_>, far: End) {
        let mut pair = Pair {
            speed: heard.speed,
            said: [Some(heard.at), None],
        };
        let near = heard.near;
        let ends = if near <= far {
            [near, far]
        } else {
            pair.said.reverse();
            [far, near]
        };
        self.put(ends, &pair);
    }

    fn put(&mut self, ends: [End; 2], pair: &Pair) {
        self.0.entry(ends).or_default().merge(pair);
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = ([End; 2], Pair)> {
        self.0.into_iter()
    }

    /// Makes one cable of two where a switch calls its port otherwise than it is named in what its neighbor
    /// received: by an alias, as SONiC does. Of a NIC that is certain: it has one cable. Between two switches
    /// it is only where there is one such cable; of several the entries of one side are kept, so that none
    /// counts twice.
    pub(super) fn unify(&mut self, ports: &SwitchPorts) {
        let mut joined = self.aliases(ports);
        let mut by_switches: BTreeMap<[SwitchNumber; 2], [Vec<[End; 2]>; 2]> = BTreeMap::new();
        for (ends, pair) in &self.0 {
            match ends {
                [End::Switch(a, port_a), End::Switch(b, port_b)] if !pair.is_confirmed() => {
                    // Reported by one side, with a name of the other's port that the other does not
                    // use.
                    let side = usize::from(pair.said[0].is_none());
                    let (far, port) = [(*b, *port_b), (*a, *port_a)][side];
                    if ports.is_foreign(far, port) {
                        by_switches.entry([*a, *b]).or_default()[side].push(*ends);
                    }
                }
                _ => {}
            }
        }
        let mut dropped: Vec<[End; 2]> = Vec::new();
        for [by_a, by_b] in by_switches.values() {
            match (&by_a[..], &by_b[..]) {
                ([one], [other]) => {
                    // Each reports its own port as it calls it.
                    let ends = [one[0], other[1]];
                    joined.extend([[*one, ends], [*other, ends]]);
                }
                ([_, ..], [_, ..]) => dropped.extend(by_b),
                _ => {}
            }
        }
        for ends in dropped {
            self.0.swap_remove(&ends);
        }
        for [from, into] in joined {
            if let Some(pair) = self.0.swap_remove(&from) {
                self.put(into, &pair);
            }
        }
    }

    /// Cables of a NIC of which one has an alias of the switch's port and the other its own name: alias
    /// first.
    fn aliases(&self, ports: &SwitchPorts) -> Vec<[[End; 2]; 2]> {
        let several = self.with_several();
        let mut claims: BTreeMap<(End, SwitchNumber), Vec<[End; 2]>> = BTreeMap::new();
        for ends in self.0.keys() {
            if let [nic @ End::Nic(..), End::Switch(switch, _)] = ends
                && several.contains(nic)
            {
                claims.entry((*nic, *switch)).or_default().push(*ends);
            }
        }
        let is_alias = |ends: &[End; 2]| match ends {
            [End::Nic(..), End::Switch(switch, port)] => ports.is_foreign(*switch, *port),
            _ => false,
        };
        claims
            .into_values()
            .filter_map(|claims| match claims[..] {
                [a, b] if is_alias(&a) != is_alias(&b) => {
                    Some(if is_alias(&a) { [a, b] } else { [b, a] })
                }
                _ => None,
            })
            .collect()
    }

    /// Leaves each end with one cable at most, and reports where there were more.
    pub(super) fn settle(&mut self) -> Vec<Contest> {
        let mut contests = Vec::new();
        let all = self.contested();
        let mut lost: BTreeSet<[End; 2]> = BTreeSet::new();
        // What both sides report goes first: that may leave another end with one cable.
        for pairs in all.values() {
            let confirmed: Vec<_> = pairs.iter().filter(|ends| self.confirms(ends)).collect();
            if let [one] = confirmed[..] {
                lost.extend(pairs.iter().filter(|ends| *ends != one));
            }
        }
        for pairs in all.values() {
            let left: Vec<_> = pairs.iter().filter(|ends| !lost.contains(*ends)).collect();
            if left.len() > 1 {
                let newest = self.newest(&left);
                let drop: Vec<_> = left
                    .into_iter()
                    .filter(|ends| Some(**ends) != newest)
                    .collect();
                lost.extend(drop);
            }
        }
        for (end, pairs) in all {
            let other = |ends: &[End; 2]| {
                let place = usize::from(ends[0] == end);
                (ends[place], !lost.contains(ends))
            };
            let others = pairs.iter().map(other).collect();
            contests.push(Contest { end, others });
        }
        self.0.retain(|ends, _| !lost.contains(ends));
        contests
    }

    fn confirms(&self, ends: &[End; 2]) -> bool {
        self.0.get(ends).is_some_and(Pair::is_confirmed)
    }

    /// The one of several that was reported much later than all others.
    fn newest(&self, pairs: &[&[End; 2]]) -> Option<[End; 2]> {
        let at = |ends: &[End; 2]| self.0.get(ends).map(Pair::newest).unwrap_or_default();
        let mut sorted = pairs.to_vec();
        sorted.sort_by_key(|ends| at(ends));
        match &sorted[..] {
            [.., before, last] if at(last).seconds_since(at(before)) > NEWER_SECONDS => {
                Some(**last)
            }
            _ => None,
        }
    }

    /// Ends with more than one cable, and those in order.
    fn contested(&self) -> BTreeMap<End, Vec<[End; 2]>> {
        let several = self.with_several();
        let mut contested: BTreeMap<End, Vec<[End; 2]>> = BTreeMap::new();
        for ends in self.0.keys() {
            for end in ends.iter().filter(|end| several.contains(end)) {
                contested.entry(*end).or_default().push(*ends);
            }
        }
        contested.values_mut().for_each(|cables| cables.sort());
        contested
    }

    /// Ends with more than one cable: few, found by sorting all.
    fn with_several(&self) -> BTreeSet<End> {
        let mut ends: Vec<End> = self.0.keys().flatten().copied().collect();
        ends.par_sort_unstable();
        let several = ends.chunk_by(PartialEq::eq).filter(|same| same.len() > 1);
        several.map(|same| same[0]).collect()
    }
}

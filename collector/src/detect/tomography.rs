//! Tomography: which parts degrade the probes that cross them, by greedy maximum a posteriori with
//! a joint likelihood.
//!
//! ```text
//! flows: probes, hits, parts that they cross for certain, set of paths that they may take
//!   -> the part that explains most of what is still unexplained, less how rarely such parts break
//!   -> expected hits of flows over it rise -> the next part, until none explains more than it costs
//! ```
//!
//! After Flock (CoNEXT 2023). A *hit* is a probe that was lost, or slow. Parts are
//! numbers: the caller maps them. Pure and deterministic: of two parts that explain as much the lower number is taken.

mod index;
mod state;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use index::Index;
use state::{Sound, State};

/// Shares of its probes that a broken part may affect, all equally likely.
pub const RATES: [f64; 4] = [1e-3, 5e-3, 0.05, 0.5];
/// Fewest hits on the flows over a part that are evaluated: two do not exceed any prior at p0 of 1e-4.
pub const MIN_HITS: f64 = 3.0;
/// Parts that explain as much, within this log-likelihood, cannot be distinguished: odds of 20 to 1 are what
/// is usual.
pub const ALIKE_NATS: f64 = 3.0;
/// Of parts that the very same flows cross only the order of sums differs.
const SAME_NATS: f64 = 1e-3;
/// Most parts that may be broken at once. Twice as many as hosts are expected to be noisy (a cap of 20 made a
/// prototype miss links): half a percent of the hosts of 100,000 GPUs are 63.
pub const MOST_BROKEN: usize = 256;

/// Switches and hosts that are tried to be done without: more are broken at once only where a fabric is.
const MOST_TRIED: usize = 16;
/// Likelihoods of a flow that one search may compute, all its tries together, before it stops: about a core-second. With
/// few faults it needs 0.1 % of that; with dozens of noisy hosts, it would run for minutes.
const MOST_LOOKS: u64 = 10_000_000;

/// What a part is, as far as it matters how rarely it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// NIC, its cable and what is behind it, which all probes of the NIC cross.
    Edge,
    /// A cable between switches.
    Cable,
    /// A host with several edges.
    Host,
    /// A switch.
    Switch,
}

impl Kind {
    /// Minimum that a part must explain to be named, as a log-likelihood: the logarithm of how rarely it
    /// breaks. The value of a host, which must explain more than its worst edge, is a choice between cable
    /// and switch.
    pub const fn prior_nats(self) -> f64 {
        match self {
            Self::Edge => 11.0,
            Self::Cable => 12.0,
            Self::Host => 13.0,
            Self::Switch => 16.0,
        }
    }
}

/// What the probes of one flow met.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flow {
    /// Probes.
    pub probes: f64,
    /// Those that were lost, or slow.
    pub hits: f64,
    /// Share of its probes that is hit while nothing is broken.
    pub base: f64,
    /// Parts that every probe of it crosses, each once.
    pub over: Vec<u32>,
    /// Sets of paths, each with how many times a probe takes an unknown one of them: out, back or both.
    pub within: Vec<(u32, u8)>,
}

/// A flow that takes one unknown path of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Each {
    /// All packets of a flow take the same, as switches that hash headers have it.
    Flow,
    /// Each packet takes another one: switches spray them.
    Packet,
}

/// Everything that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// What each part is, by number.
    pub parts: Vec<Kind>,
    /// Sets of paths: the parts of each with the share of the paths that lead over it.
    pub sets: Vec<Vec<(u32, f64)>>,
    /// Flows.
    pub flows: Vec<Flow>,
}

/// A part that is taken to be broken.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// Which.
    pub part: u32,
    /// Share of the probes over it that it affects.
    pub rate: f64,
    /// How much more it explains than it costs, as a log-likelihood.
    pub score: f64,
    /// Parts that explain as much, and nothing more beside it, or the very same: it may be one of these as well.
    pub alike: Vec<u32>,
    /// Whether those explain the very same, so that more probes will not distinguish them either.
    pub same: bool,
}

/// Hits that the rate of the sources predicts for the middle flow, from which that flow's own count is a measurement: of 5
/// expected hits, fewer than 2.5 are seen with a probability of 12 % by one flow, and by half of eight flows with 1 %.
const MEASURABLE_HITS: f64 = 5.0;

/// The largest mean of which half of all counts are no larger than `hits`, less `hits` (the median of a gamma distribution of
/// shape `hits + 1`, which is `hits + 2/3` and a little more).
const ABOVE_MEDIAN_HITS: f64 = 0.7;

/// Share of the probes that is hit on flows of one kind while nothing is broken, and no less than `least`; `sources` and `flows`
/// are (probes, hits). It is that of the middle source, for faults are few and most sources show none. While probes are few,
/// the middle count of a small share is zero: then it is the largest share with such a middle, and no more than that of all.
/// A component between few spines is on some paths of every source: where the middle flow has less than half of that share,
/// the flow's share is the usual one.
pub fn base_rate(
    sources: impl Iterator<Item = (f64, f64)>,
    flows: impl Iterator<Item = (f64, f64)>,
    least: f64,
) -> f64 {
    let sources: Vec<_> = sources.collect();
    let all = sources.iter().fold((0.0, 0.0), |sums, (probes, hits)| {
        (sums.0 + probes, sums.1 + hits)
    });
    let by_source = middle(sources.into_iter()).map_or(least, |(probes, hits)| {
        let largest = (hits + ABOVE_MEDIAN_HITS) / probes;
        largest.min(all.1 / all.0).max(hits / probes)
    });
    let by_flow = middle(flows).filter(|(probes, hits)| {
        let expected = probes * by_source;
        expected >= MEASURABLE_HITS && *hits < expected / 2.0
    });
    let usual = by_flow.map_or(by_source, |(probes, hits)| hits / probes);
    usual.max(least)
}

/// The one with the middle share of hits, among those with any probe.
fn middle(counts: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let mut counts: Vec<_> = counts.filter(|(probes, _)| *probes > 0.0).collect();
    let middle = counts.len() / 2;
    let share = |(probes, hits): &(f64, f64)| hits / probes;
    // Of flows without a hit, not any one, but the middle one.
    let order = |a: &(f64, f64), b: &(f64, f64)| {
        let by_share = share(a).total_cmp(&share(b));
        by_share.then(a.0.total_cmp(&b.0))
    };
    (!counts.is_empty()).then(|| *counts.select_nth_unstable_by(middle, order).1)
}

/// The parts that are taken to be broken, those that explain most first.
///
/// Where the path of no flow is known, switches may as well spray packets over all of them:
/// whichever explains more.
pub fn explain(problem: &Problem) -> Vec<Broken> {
    let index = Index::of(problem);
    let by_flow = Search::new(problem, &index, Each::Flow).best();
    let is_cable = |part: &u32| problem.kind(*part) == Kind::Cable;
    let knows_ways = |flow: &Flow| flow.over.iter().any(is_cable);
    if problem.flows.iter().any(knows_ways) {
        return by_flow.0;
    }
    let by_packet = Search::new(problem, &index, Each::Packet).best();
    let sprays = by_packet.1 > by_flow.1 + ALIKE_NATS;
    if sprays { by_packet.0 } else { by_flow.0 }
}

/// What all searches of one problem begin with.
struct Search<'a> {
    problem: &'a Problem,
    each: Each,
    index: &'a Index,
    /// While nothing is taken to be broken.
    sound: Sound,
    /// By part, while nothing is taken to be broken.
    scores: BTreeMap<u32, f64>,
    /// Likelihoods of a flow that were computed.
    looks: Cell<u64>,
}

/// Parts that are taken to be broken, and their log-likelihood relative to nothing broken.
type Found = (Vec<Broken>, f64);

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, index: &'a Index, each: Each) -> Self {
        let sound = Sound::of(problem);
        Self {
            problem,
            each,
            scores: index.scores(problem, &State::new(problem, each, &sound)),
            sound,
            index,
            looks: Cell::new(0),
        }
    }

    /// The best explanation.
    ///
    /// What a few cables of a switch do, the switch explains badly, but better than each of them alone. So each switch and
    /// host that is taken must stand against the best that is found without it.
    fn best(&self) -> Found {
        let kind = |part: u32| self.problem.kind(part);
        let (mut acquitted, mut tried) = (BTreeSet::new(), BTreeSet::new());
        let (mut best, mut worth) = self.without(&acquitted);
        if best.iter().any(|one| kind(one.part) == Kind::Switch) {
            let parts = self.scores.keys().copied();
            let switches = parts.filter(|part| kind(*part) == Kind::Switch).collect();
            let (other, other_worth) = self.without(&switches);
            if other_worth > worth {
                (best, worth, acquitted) = (other, other_worth, switches);
            }
        }
        while let Some(coarse) = best.iter().map(|one| one.part).find(|part| {
            let is_coarse = matches!(kind(*part), Kind::Switch | Kind::Host);
            is_coarse && !tried.contains(part)
        }) {
            tried.insert(coarse);
            acquitted.insert(coarse);
            let (other, other_worth) = self.without(&acquitted);
            if other_worth > worth {
                (best, worth) = (other, other_worth);
            } else {
                acquitted.remove(&coarse);
            }
            if tried.len() >= MOST_TRIED || self.looks.get() >= MOST_LOOKS {
                break;
            }
        }
        (best, worth)
    }

    /// The parts that explain everything best if these are sound, and their log-likelihood relative
    /// to none.
    fn without(&self, acquitted: &BTreeSet<u32>) -> Found {
        let broken = self.greedy(acquitted);
        let mut broken = self.without_needless(broken);
        self.refit(&mut broken);
        let cost = |one: &Broken| self.problem.kind(one.part).prior_nats();
        let costs: f64 = broken.iter().map(cost).sum();
        (broken.clone(), self.state(&broken).gained() - costs)
    }

    fn greedy(&self, acquitted: &BTreeSet<u32>) -> Vec<Broken> {
        let index = self.index;
        let mut state = self.nothing_broken();
        let mut scores = self.scores.clone();
        scores.retain(|part, _| !acquitted.contains(part));
        let mut broken: Vec<Broken> = Vec::new();
        while broken.len() < MOST_BROKEN {
            let enough = scores.iter().filter(|(_, score)| **score > 0.0);
            let ranks = enough.map(|(part, score)| (*part, state.rank(&index.over[part], *score)));
            let ranks: Vec<(u32, f64)> = ranks.collect();
            // Of equals the lower number.
            let best = ranks.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((part, _)) = best.copied() else {
                break;
            };
            let explained = scores.remove(&part).unwrap_or_default();
            let near = self.near(&state, &scores, (part, explained));
            let over = &index.over[&part];
            let rate = state.rate(over);
            let changed = state.add(over, rate);
            for (other, score) in &mut scores {
                let over = &index.over[other];
                if over.meets.iter().any(|meets| changed[meets.flow]) {
                    *score = state.score(over, self.problem.kind(*other));
                    let looks = RATES.len() * (over.meets.len() + over.unhit.len());
                    self.looks.set(self.looks.get() + looks as u64);
                }
            }
            // What explains exactly the same is as good, even if it is not enough alone: on unknown
            // paths, a cable leaves much unexplained.
            let is_twin = |score: f64| (explained - score).abs() <= SAME_NATS;
            let alike = |(other, score): &(u32, f64)| scores[other] <= 0.0 || is_twin(*score);
            let near: Vec<(u32, f64)> = near.into_iter().filter(alike).collect();
            broken.push(Broken {
                part,
                rate,
                score: explained,
                same: near.iter().all(|(_, score)| is_twin(*score)),
                alike: near.into_iter().map(|(other, _)| other).collect(),
            });
        }
        broken
    }

    /// Parts that explain as much as this one, each at its best-fitting share: the few shares of the score may be
    /// closer to one than to another.
    fn near(
        &self,
        state: &State<'_>,
        scores: &BTreeMap<u32, f64>,
        (part, explained): (u32, f64),
    ) -> Vec<(u32, f64)> {
        let fits = |part: u32| {
            state.best_gain(&self.index.over[&part]) - self.problem.kind(part).prior_nats()
        };
        let least = fits(part) - ALIKE_NATS;
        let near = scores.iter().map(|(part, score)| (*part, *score));
        let near = near.filter(|(_, score)| *score >= explained - 2.0 * ALIKE_NATS);
        near.filter(|(other, _)| fits(*other) >= least).collect()
    }

    fn nothing_broken(&self) -> State<'_> {
        State::new(self.problem, self.each, &self.sound)
    }

    /// What is expected with these parts broken.
    fn state(&self, broken: &[Broken]) -> State<'_> {
        let mut state = self.nothing_broken();
        for one in broken {
            state.add(&self.index.over[&one.part], one.rate);
        }
        state
    }

    /// What is expected of the flows over one of these parts with all others broken.
    fn without_one(&self, broken: &[Broken], at: usize) -> State<'_> {
        let mut of_it = vec![false; self.problem.flows.len()];
        for meets in &self.index.over[&broken[at].part].meets {
            of_it[meets.flow] = true;
        }
        let mut state = self.nothing_broken();
        for (_, one) in broken.iter().enumerate().filter(|(place, _)| *place != at) {
            state.add_to(&self.index.over[&one.part], one.rate, &of_it);
        }
        state
    }

    /// Removes parts that are explained as well by the parts chosen after them.
    fn without_needless(&self, mut broken: Vec<Broken>) -> Vec<Broken> {
        let mut at = 0;
        while broken.len() > 1 && at < broken.len() {
            let part = broken[at].part;
            let over = &self.index.over[&part];
            let alone = self.without_one(&broken, at);
            if alone.score(over, self.problem.kind(part)) > 0.0 {
                at += 1;
            } else {
                broken.remove(at);
            }
        }
        broken
    }

    /// Each share was fitted while those that came later were not known.
    fn refit(&self, broken: &mut [Broken]) {
        if broken.len() < 2 {
            return;
        }
        for at in (0..broken.len()).chain(0..broken.len()) {
            let over = &self.index.over[&broken[at].part];
            broken[at].rate = self.without_one(broken, at).rate(over);
        }
    }
}

impl Problem {
    fn kind(&self, part: u32) -> Kind {
        self.parts[part as usize]
    }
}

#[cfg(test)]
mod tests;

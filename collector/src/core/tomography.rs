//! Tomography: which parts spoil what probes meet on their ways, by greedy maximum a posteriori with a joint likelihood.
//!
//! ```text
//! flows: probes, hits, parts that they cross for certain, set of ways that they may take
//!   -> the part that explains most of what nothing broken explains, less how rarely such parts break
//!   -> flows over it are expected to suffer so -> the next part, until none explains more than it costs
//! ```
//!
//! After Flock (CoNEXT 2023; detection method, section 3.5). A *hit* is a probe that was lost, or slow. Parts are
//! numbers: what they are, the caller knows. Pure and deterministic: of two parts that explain as much the lower number is taken.

use std::collections::{BTreeMap, BTreeSet};

/// Shares of its probes that a broken part may spoil: all of them are taken to be as likely (detection method, section 3.5).
pub const RATES: [f64; 4] = [1e-3, 5e-3, 0.05, 0.5];
/// Once a part is taken: the shares among which its own is sought, from this one on, each so many times the one before.
const FINEST: (f64, f64) = (2e-4, 1.25);
/// Most that a part is taken to spoil: nothing is certain.
const MOST: f64 = 0.999;
/// Fewest hits on the flows over a part that are looked at: no prior is passed by two at p0 of 1e-4.
pub const MIN_HITS: f64 = 3.0;
/// Parts that explain as much, give or take so many nats, cannot be told apart: odds of 20 to 1 are what is usual.
pub const ALIKE_NATS: f64 = 3.0;
/// Most parts that may be broken at once. Twice as many as hosts are expected to be noisy (a cap of 20 made the prototype of
/// section 3.5 miss links): half a percent of the hosts of 100,000 GPUs are 63.
pub const MOST_BROKEN: usize = 256;

/// Switches and hosts that are tried to be done without: more are broken at once only where a fabric is.
const MOST_TRIED: usize = 16;

/// How much it counts against a part that its flows do not suffer alike: the power of the share that it explains (a choice: with 2
/// two cables of a switch are taken before it).
const FIT: i32 = 3;

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
    /// How much a part must explain before it is named, in nats: the logarithm of how rarely it breaks (detection method,
    /// section 3.5; a host, which must explain more than its worst edge, is a choice between cable and switch).
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
    /// Sets of ways, each with how many times a probe takes one of them that nobody knows: out, back or both.
    pub within: Vec<(u32, u8)>,
}

/// Everything that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Problem {
    /// What each part is, by number.
    pub parts: Vec<Kind>,
    /// Sets of ways: the parts of each with the share of the ways that lead over it.
    pub sets: Vec<Vec<(u32, f64)>>,
    /// Flows.
    pub flows: Vec<Flow>,
}

/// A part that is taken to be broken.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// Which.
    pub part: u32,
    /// Share of the probes over it that it spoils.
    pub rate: f64,
    /// How much more it explains than it costs, in nats.
    pub score: f64,
    /// Parts that explain as much, and nothing more beside it: it may be one of these as well.
    pub alike: Vec<u32>,
}

/// Share of the probes that is hit on flows of one kind while nothing is broken: that of the middle one of their sources,
/// given as (probes, hits), and no less than `least`. Faults are few, so that most sources show none.
pub fn base_rate(sources: impl Iterator<Item = (f64, f64)>, least: f64) -> f64 {
    let rates = sources.filter(|(probes, _)| *probes > 0.0);
    let mut rates: Vec<f64> = rates.map(|(probes, hits)| hits / probes).collect();
    let middle = rates.len() / 2;
    if rates.is_empty() {
        return least;
    }
    least.max(*rates.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The parts that are taken to be broken, those that explain most first.
///
/// What a few cables of a switch do, the switch explains badly, but better than each of them alone. So each switch and host that is
/// taken must stand against the best that is found without it.
pub fn explain(problem: &Problem) -> Vec<Broken> {
    let index = Index::of(problem);
    let search = Search {
        problem,
        scores: index.scores(problem),
        index,
    };
    let is_switch = |part: u32| problem.kind(part) == Kind::Switch;
    let (mut acquitted, mut tried) = (BTreeSet::new(), BTreeSet::new());
    let (mut best, mut worth) = search.without(&acquitted);
    if best.iter().any(|one| is_switch(one.part)) {
        let parts = search.scores.keys().copied();
        let switches = parts.filter(|part| is_switch(*part)).collect();
        let (other, other_worth) = search.without(&switches);
        if other_worth > worth {
            (best, worth, acquitted) = (other, other_worth, switches);
        }
    }
    while let Some(coarse) = best.iter().map(|one| one.part).find(|part| {
        let is_coarse = matches!(problem.kind(*part), Kind::Switch | Kind::Host);
        is_coarse && !tried.contains(part)
    }) {
        tried.insert(coarse);
        acquitted.insert(coarse);
        let (other, other_worth) = search.without(&acquitted);
        if other_worth > worth {
            (best, worth) = (other, other_worth);
        } else {
            acquitted.remove(&coarse);
        }
        if tried.len() >= MOST_TRIED {
            break;
        }
    }
    best
}

/// What all searches of one problem begin with.
struct Search<'a> {
    problem: &'a Problem,
    index: Index,
    /// By part, while nothing is taken to be broken.
    scores: BTreeMap<u32, f64>,
}

impl Search<'_> {
    /// The parts that explain everything best if these are sound, and how much more likely they are than nothing, in nats.
    fn without(&self, acquitted: &BTreeSet<u32>) -> (Vec<Broken>, f64) {
        let broken = self.greedy(acquitted);
        let mut broken = self.without_needless(broken);
        self.refit(&mut broken);
        let cost = |one: &Broken| self.problem.kind(one.part).prior_nats();
        let costs: f64 = broken.iter().map(cost).sum();
        (broken.clone(), self.state(&broken, None).gained() - costs)
    }

    fn greedy(&self, acquitted: &BTreeSet<u32>) -> Vec<Broken> {
        let index = &self.index;
        let mut state = State::new(self.problem);
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
            let near = |(_, score): &(&u32, &f64)| **score >= explained - ALIKE_NATS;
            let near: Vec<u32> = scores.iter().filter(near).map(|(part, _)| *part).collect();
            let over = &index.over[&part];
            let rate = state.rate(over);
            let changed = state.add(over, rate);
            for (other, score) in &mut scores {
                let over = &index.over[other];
                if over.iter().any(|meets| changed[meets.flow]) {
                    *score = state.score(over, self.problem.kind(*other));
                }
            }
            let gone = |other: &u32| scores[other] <= 0.0;
            broken.push(Broken {
                part,
                rate,
                score: explained,
                alike: near.into_iter().filter(gone).collect(),
            });
        }
        broken
    }

    /// Everything with these parts broken, but for one of them.
    fn state(&self, broken: &[Broken], but: Option<usize>) -> State<'_> {
        let mut state = State::new(self.problem);
        let others = broken.iter().enumerate();
        for (_, one) in others.filter(|(place, _)| Some(*place) != but) {
            state.add(&self.index.over[&one.part], one.rate);
        }
        state
    }

    /// Takes back what the parts that were taken after it explain as well.
    fn without_needless(&self, mut broken: Vec<Broken>) -> Vec<Broken> {
        let mut at = 0;
        while broken.len() > 1 && at < broken.len() {
            let part = broken[at].part;
            let over = &self.index.over[&part];
            let alone = self.state(&broken, Some(at));
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
            broken[at].rate = self.state(broken, Some(at)).rate(over);
        }
    }
}

impl Problem {
    fn kind(&self, part: u32) -> Kind {
        self.parts[part as usize]
    }
}

/// How a flow meets a part.
#[derive(Debug, Clone, Copy)]
struct Meets {
    flow: usize,
    /// Whether every probe crosses it.
    always: bool,
    /// Chance that the flow's unknown way crosses it too.
    maybe: f64,
}

/// By part that may be broken: the flows that meet it.
struct Index {
    over: BTreeMap<u32, Vec<Meets>>,
}

impl Index {
    fn of(problem: &Problem) -> Self {
        let hits = hits_near(problem);
        let suspected = |part: u32| hits[part as usize] >= MIN_HITS;
        let sets = problem.sets.iter().map(|set| {
            let suspects = set.iter().copied().filter(|(part, _)| suspected(*part));
            suspects.collect::<Vec<(u32, f64)>>()
        });
        let sets: Vec<Vec<(u32, f64)>> = sets.collect();
        let mut over: BTreeMap<u32, Vec<Meets>> = BTreeMap::new();
        for (number, flow) in problem.flows.iter().enumerate() {
            // Chance that no unknown way of the flow leads over a part.
            let mut past: BTreeMap<u32, f64> = BTreeMap::new();
            for (set, times) in &flow.within {
                for (part, share) in &sets[*set as usize] {
                    *past.entry(*part).or_insert(1.0) *=
                        (1.0 - share.min(1.0)).powi(i32::from(*times));
                }
            }
            let certain = flow.over.iter().copied().filter(|part| suspected(*part));
            for part in certain {
                over.entry(part).or_default().push(Meets {
                    flow: number,
                    always: true,
                    maybe: past.remove(&part).map_or(0.0, |past| 1.0 - past),
                });
            }
            for (part, past) in past {
                over.entry(part).or_default().push(Meets {
                    flow: number,
                    always: false,
                    maybe: 1.0 - past,
                });
            }
        }
        Self { over }
    }

    /// By part: how much it explains while nothing else is broken, beyond what it costs.
    fn scores(&self, problem: &Problem) -> BTreeMap<u32, f64> {
        let state = State::new(problem);
        let all = self.over.iter();
        all.map(|(part, over)| (*part, state.score(over, problem.kind(*part))))
            .collect()
    }
}

/// By part: hits of the flows that cross it, or may.
fn hits_near(problem: &Problem) -> Vec<f64> {
    let mut hits = vec![0.0; problem.parts.len()];
    let mut of_sets = vec![0.0; problem.sets.len()];
    for flow in problem.flows.iter().filter(|flow| flow.hits > 0.0) {
        for part in &flow.over {
            hits[*part as usize] += flow.hits;
        }
        for (set, _) in &flow.within {
            of_sets[*set as usize] += flow.hits;
        }
    }
    for (set, of_set) in problem.sets.iter().zip(of_sets) {
        for (part, _) in set {
            hits[*part as usize] += of_set;
        }
    }
    hits
}

/// Chances of a flow's way, each with the share of its probes that is hit then.
type Chances = Vec<(f64, f64)>;

/// What flows are expected to suffer, given the parts that are taken to be broken.
struct State<'a> {
    flows: &'a [Flow],
    /// Of flows that meet none of them nothing is kept.
    chances: Vec<Option<Chances>>,
    /// Logarithms of the likelihood of what each flow met.
    likely: Vec<f64>,
}

impl<'a> State<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            flows: &problem.flows,
            chances: vec![None; problem.flows.len()],
            likely: (problem.flows.iter())
                .map(|flow| flow.log_likelihood(flow.base))
                .collect(),
        }
    }

    /// Logarithm of the likelihood of what a flow met, if one more part spoils this share of its probes.
    fn with(&self, meets: Meets, rate: f64) -> f64 {
        let flow = &self.flows[meets.flow];
        let known = [(1.0, flow.base)];
        let known = self.chances[meets.flow].as_deref().unwrap_or(&known);
        let crossed = known.iter().flat_map(|one| crossed(*one, meets, rate));
        flow.likelihood(crossed)
    }

    /// How much more likely everything is if a part spoils this share of the probes over it, in nats.
    fn gain(&self, over: &[Meets], rate: f64) -> f64 {
        let gain = |meets: &Meets| self.with(*meets, rate) - self.likely[meets.flow];
        over.iter().map(gain).sum()
    }

    /// The same whatever share it is, less how rarely such parts break.
    fn score(&self, over: &[Meets], kind: Kind) -> f64 {
        let mut sum = Sum::default();
        for rate in RATES {
            sum.add(self.gain(over, rate));
        }
        sum.logarithm() - (RATES.len() as f64).ln() - kind.prior_nats()
    }

    /// By what parts are compared: how much one explains, the less the more it leaves of the same flows. What a few cables do
    /// their switch explains, too, more than each of them, but badly: some of its flows suffer more than it says, and others
    /// nothing.
    fn rank(&self, over: &[Meets], score: f64) -> f64 {
        let mut left = -score;
        for meets in over {
            let weight = if meets.always { 1.0 } else { meets.maybe };
            let flow = &self.flows[meets.flow];
            // The best that one more share can do is off by half a nat by chance alone.
            let most = flow.log_likelihood(flow.hits / flow.probes) - 0.5;
            left += weight * (most - self.likely[meets.flow]).max(0.0);
        }
        score * (score / (score + left.max(0.0))).powi(FIT)
    }

    /// The share that fits best.
    fn rate(&self, over: &[Meets]) -> f64 {
        let (first, step) = FINEST;
        let rates = std::iter::successors(Some(first), |rate| Some(rate * step));
        let rates = rates.take_while(|rate| *rate < MOST).chain([MOST]);
        let gains = rates.map(|rate| (self.gain(over, rate), rate));
        let best = gains.max_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or(first, |(_, rate)| rate)
    }

    /// How much more likely everything is than if nothing were broken, in nats.
    fn gained(&self) -> f64 {
        let flows = self.flows.iter().zip(&self.likely);
        flows
            .map(|(flow, now)| now - flow.log_likelihood(flow.base))
            .sum()
    }

    /// Takes a part to be broken; says of which flows more is expected now.
    fn add(&mut self, over: &[Meets], rate: f64) -> Vec<bool> {
        let mut changed = vec![false; self.flows.len()];
        for meets in over {
            let known = self.chances[meets.flow].take();
            let known = known.unwrap_or_else(|| vec![(1.0, self.flows[meets.flow].base)]);
            let all = known.into_iter().flat_map(|one| crossed(one, *meets, rate));
            let known: Chances = all.filter(|(chance, _)| *chance > 0.0).collect();
            self.likely[meets.flow] = self.flows[meets.flow].likelihood(known.iter().copied());
            self.chances[meets.flow] = Some(known);
            changed[meets.flow] = true;
        }
        changed
    }
}

/// What becomes of a chance if a part is broken: the flow's unknown way leads past it, or over it.
fn crossed((chance, hit): (f64, f64), meets: Meets, rate: f64) -> [(f64, f64); 2] {
    let spoil = |hit: f64| 1.0 - (1.0 - hit) * (1.0 - rate);
    let past = if meets.always { spoil(hit) } else { hit };
    [
        (chance * (1.0 - meets.maybe), past),
        (chance * meets.maybe, spoil(past)),
    ]
}

impl Flow {
    /// The same where the share is known by chance only.
    fn likelihood(&self, chances: impl Iterator<Item = (f64, f64)>) -> f64 {
        let mut sum = Sum::default();
        for (chance, hit) in chances.filter(|(chance, _)| *chance > 0.0) {
            sum.add(chance.ln() + self.log_likelihood(hit));
        }
        sum.logarithm()
    }

    /// Logarithm of the likelihood of its hits if this share of its probes is hit, but for what is the same of every share.
    fn log_likelihood(&self, share: f64) -> f64 {
        let share = share.clamp(1e-9, MOST);
        self.hits * share.ln() + (self.probes - self.hits) * (-share).ln_1p()
    }
}

/// The logarithm of a sum of numbers that are given by their logarithms.
#[derive(Debug, Default)]
struct Sum(Option<(f64, f64)>);

impl Sum {
    fn add(&mut self, logarithm: f64) {
        self.0 = Some(match self.0 {
            None => (logarithm, 1.0),
            Some((most, sum)) if logarithm <= most => (most, sum + (logarithm - most).exp()),
            Some((most, sum)) => (logarithm, sum * (most - logarithm).exp() + 1.0),
        });
    }

    fn logarithm(&self) -> f64 {
        self.0
            .map_or(f64::NEG_INFINITY, |(most, sum)| most + sum.ln())
    }
}

#[cfg(test)]
mod tests;

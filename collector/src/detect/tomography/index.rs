//! Which flows meet which part: built once, and of flows without a hit only what they are together.

use std::collections::BTreeMap;

use super::state::State;
use super::{Each, MIN_HITS, Problem};

/// How a flow meets a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meets {
    pub(super) flow: usize,
    /// Whether every probe crosses it.
    pub(super) always: bool,
    /// Probability that the flow's unknown path crosses it too.
    pub(super) maybe: f64,
}

/// Flows without a hit that may meet a part, all with the same probability. They are many, and each
/// reports little.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unhit {
    flows: f64,
    probes: f64,
    maybe: f64,
}

/// The flows that meet a part.
#[derive(Debug, Default)]
pub(super) struct Over {
    /// Those that do for certain, and those with hits that may.
    pub(super) meets: Vec<Meets>,
    pub(super) unhit: Vec<Unhit>,
}

/// By part that may be broken: the flows that meet it.
pub(super) struct Index {
    pub(super) over: BTreeMap<u32, Over>,
}

/// Flows without a hit that are alike but for what they cross for certain: their sets, and how many probes.
type Alike<'a> = (&'a [(u32, u8)], u64);

impl Unhit {
    /// Log-likelihood, negative, that none of them was hit if a part affects this share of the
    /// probes over it.
    pub(super) fn gain(&self, each: Each, rate: f64) -> f64 {
        let spared = (self.probes * (-rate).ln_1p()).exp();
        self.flows
            * match each {
                Each::Flow => (-self.maybe * (1.0 - spared)).ln_1p(),
                Each::Packet => self.probes * (-self.maybe * rate).ln_1p(),
            }
    }
}

impl Index {
    pub(super) fn of(problem: &Problem) -> Self {
        let hits = hits_near(problem);
        let suspected = |part: u32| hits[part as usize] >= MIN_HITS;
        let sets = problem.sets.iter().map(|set| {
            let suspects = set.iter().copied().filter(|(part, _)| suspected(*part));
            suspects.collect::<Vec<(u32, f64)>>()
        });
        let sets: Vec<Vec<(u32, f64)>> = sets.collect();
        let mut over: BTreeMap<u32, Over> = BTreeMap::new();
        // How many are alike, and how many of those cross a part for certain.
        let mut alike: BTreeMap<Alike<'_>, (f64, BTreeMap<u32, f64>)> = BTreeMap::new();
        for (number, flow) in problem.flows.iter().enumerate() {
            let mut meet = |part: u32, always: bool, maybe: f64| {
                let meets = &mut over.entry(part).or_default().meets;
                meets.push(Meets {
                    flow: number,
                    always,
                    maybe,
                });
            };
            let certain = flow.over.iter().copied().filter(|part| suspected(*part));
            if flow.hits > 0.0 {
                let mut maybe = maybe(&sets, &flow.within);
                certain.for_each(|part| meet(part, true, maybe.remove(&part).unwrap_or(0.0)));
                maybe
                    .into_iter()
                    .for_each(|(part, maybe)| meet(part, false, maybe));
                continue;
            }
            let group = alike
                .entry((&flow.within, flow.probes.to_bits()))
                .or_default();
            group.0 += 1.0;
            for part in certain {
                // That it may cross the part again reports almost nothing of a flow that was not hit.
                meet(part, true, 0.0);
                *group.1.entry(part).or_default() += 1.0;
            }
        }
        for ((within, probes), (flows, certain)) in alike {
            for (part, maybe) in maybe(&sets, within) {
                let flows = flows - certain.get(&part).copied().unwrap_or(0.0);
                over.entry(part).or_default().unhit.push(Unhit {
                    flows,
                    probes: f64::from_bits(probes),
                    maybe,
                });
            }
        }
        Self { over }
    }

    /// By part: how much it explains while nothing else is broken, minus its cost.
    pub(super) fn scores(&self, problem: &Problem, state: &State<'_>) -> BTreeMap<u32, f64> {
        let all = self.over.iter();
        all.map(|(part, over)| (*part, state.score(over, problem.kind(*part))))
            .collect()
    }
}

/// By part of some sets: the probability that a path out of them leads over it.
fn maybe(sets: &[Vec<(u32, f64)>], within: &[(u32, u8)]) -> BTreeMap<u32, f64> {
    let mut maybe: BTreeMap<u32, f64> = BTreeMap::new();
    for (set, times) in within {
        for (part, share) in &sets[*set as usize] {
            let past = (1.0 - share.min(1.0)).powi(i32::from(*times));
            let chance = maybe.entry(*part).or_default();
            *chance = 1.0 - (1.0 - *chance) * past;
        }
    }
    maybe
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

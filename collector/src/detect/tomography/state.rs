//! What flows are expected to suffer, given the parts that are taken to be broken, and how likely what they met is then.

use std::num::NonZeroU32;

use super::index::{Meets, Over};
use super::{Each, Flow, Kind, Problem, RATES};

/// Once a part is taken, its own share is sought from here on, each so many times the one before, and then more finely about the
/// best.
const LEAST: f64 = 2e-4;
/// See [`LEAST`].
const COARSE: f64 = 2.5;
/// See [`LEAST`].
const FINE: f64 = 1.2;
/// Largest share that a part is taken to affect: nothing is certain.
const MOST: f64 = 0.999;
/// Penalty for a part whose flows are not affected equally: the power of the share that it explains (a choice: with 2
/// two cables of a switch are chosen before it).
const FIT: i32 = 3;

/// Most probabilities of one flow's path that are kept: every broken component that the path may
/// cross doubles them, so that a dozen of them would cost 4,096 logarithms per flow and pass.
const MOST_CHANCES: usize = 16;

/// Exponents from here on are not raised to: `exp` overflows at 709.
const LARGEST_EXPONENT: f64 = 500.0;

/// Probabilities of a flow's path, each with the share of its probes that is hit then.
type Chances = Vec<(f64, f64)>;

/// What is the same for all states of one problem: how likely it is what flows met while nothing is broken.
pub(super) struct Sound {
    /// By flow: logarithm of the likelihood of what it met.
    likely: Vec<f64>,
    /// By flow: its place in `spoiled`; none for one without a hit. They are many, and cheap to evaluate again.
    places: Vec<Option<NonZeroU32>>,
    /// By flow with hits, from 1: its log-likelihood with each of [`RATES`] of its probes affected.
    spoiled: Vec<[f64; RATES.len()]>,
}

impl Sound {
    pub(super) fn of(problem: &Problem) -> Self {
        let mut sound = Self {
            likely: Vec::with_capacity(problem.flows.len()),
            places: Vec::with_capacity(problem.flows.len()),
            spoiled: vec![[0.0; RATES.len()]],
        };
        for flow in &problem.flows {
            let likely = flow.log_likelihood(flow.base);
            sound.likely.push(likely);
            let place = NonZeroU32::new(sound.spoiled.len() as u32);
            sound.places.push(place.filter(|_| flow.hits > 0.0));
            if flow.hits > 0.0 {
                sound
                    .spoiled
                    .push(flow.spoiled(&[(1.0, flow.base)], likely));
            }
        }
        sound
    }
}

/// What flows are expected to suffer, given the parts that are taken to be broken.
pub(super) struct State<'a> {
    flows: &'a [Flow],
    each: Each,
    /// Nothing is kept for flows that cross none of them.
    chances: Vec<Option<Chances>>,
    /// As in [`Sound`], but with what is broken.
    likely: Vec<f64>,
    places: &'a [Option<NonZeroU32>],
    spoiled: Vec<[f64; RATES.len()]>,
    /// Log-likelihood that broken parts cost by the flows without a hit that may cross them.
    unhit: f64,
}

impl<'a> State<'a> {
    /// With nothing broken.
    pub(super) fn new(problem: &'a Problem, each: Each, sound: &'a Sound) -> Self {
        Self {
            flows: &problem.flows,
            each,
            chances: vec![None; problem.flows.len()],
            likely: sound.likely.clone(),
            places: &sound.places,
            spoiled: sound.spoiled.clone(),
            unhit: 0.0,
        }
    }

    /// Gain in log-likelihood of a flow if one more part affects this share of its probes.
    fn gain_of(&self, meets: Meets, rate: f64) -> f64 {
        let flow = &self.flows[meets.flow];
        let known = [(1.0, flow.base)];
        let known = self.chances[meets.flow].as_deref().unwrap_or(&known);
        let crossed = known
            .iter()
            .flat_map(|one| self.each.crossed(*one, meets, rate));
        flow.likelihood(crossed) - self.likely[meets.flow]
    }

    /// The same for each of [`RATES`]. A flow that takes one unknown path is affected with the probability
    /// that the path leads over the part, and how likely it is then is the same for all parts:
    /// `ln((1 - maybe) + maybe * exp(spoiled))`.
    fn gains_of(&self, meets: Meets) -> [f64; RATES.len()] {
        let spoiled = self.places[meets.flow].map(|place| self.spoiled[place.get() as usize]);
        match (spoiled, meets.always) {
            (Some(spoiled), true) if meets.maybe == 0.0 => spoiled,
            (Some(spoiled), false) if self.each == Each::Flow => spoiled.map(|nats| {
                if nats < LARGEST_EXPONENT {
                    (meets.maybe * nats.exp_m1()).ln_1p()
                } else {
                    meets.maybe.ln() + nats
                }
            }),
            _ => RATES.map(|rate| self.gain_of(meets, rate)),
        }
    }

    /// Gain in log-likelihood of everything if a part affects this share of the probes over it.
    fn gain(&self, over: &Over, rate: f64) -> f64 {
        let gain = |meets: &Meets| self.gain_of(*meets, rate);
        let unhit = over.unhit.iter().map(|unhit| unhit.gain(self.each, rate));
        over.meets.iter().map(gain).chain(unhit).sum()
    }

    /// The same whatever share it is, less how rarely such parts break.
    pub(super) fn score(&self, over: &Over, kind: Kind) -> f64 {
        let mut gains = [0.0; RATES.len()];
        for meets in &over.meets {
            for (gain, more) in gains.iter_mut().zip(self.gains_of(*meets)) {
                *gain += more;
            }
        }
        let mut sum = Sum::default();
        for (gain, rate) in gains.into_iter().zip(RATES) {
            let unhit = over.unhit.iter().map(|unhit| unhit.gain(self.each, rate));
            sum.add(gain + unhit.sum::<f64>());
        }
        sum.logarithm() - (RATES.len() as f64).ln() - kind.prior_nats()
    }

    /// Score of a part: how much it explains, reduced by what it leaves of the same
    /// flows. A switch also explains what a few of its cables do, and more than each of them, but badly:
    /// some of its flows are affected more than it predicts, and others not at all.
    pub(super) fn rank(&self, over: &Over, score: f64) -> f64 {
        let mut left = -score;
        for meets in &over.meets {
            let weight = if meets.always { 1.0 } else { meets.maybe };
            let flow = &self.flows[meets.flow];
            // One more share can improve the fit by half a nat by chance alone.
            let most = flow.log_likelihood(flow.hits / flow.probes) - 0.5;
            left += weight * (most - self.likely[meets.flow]).max(0.0);
        }
        score * (score / (score + left.max(0.0))).powi(FIT)
    }

    /// Gain in log-likelihood of everything with the share that fits best.
    pub(super) fn best_gain(&self, over: &Over) -> f64 {
        self.gain(over, self.rate(over))
    }

    /// The share that fits best.
    pub(super) fn rate(&self, over: &Over) -> f64 {
        let best = |rates: &mut dyn Iterator<Item = f64>| {
            let gains = rates.map(|rate| (self.gain(over, rate), rate));
            let best = gains.max_by(|a, b| a.0.total_cmp(&b.0));
            best.map_or(LEAST, |(_, rate)| rate)
        };
        let steps = |from: f64, step: f64, to: f64| {
            let rates = std::iter::successors(Some(from), move |rate| Some(rate * step));
            rates.take_while(move |rate| *rate < to).chain([to])
        };
        let near = best(&mut steps(LEAST, COARSE, MOST));
        best(&mut steps(near / COARSE, FINE, (near * COARSE).min(MOST)))
    }

    /// Log-likelihood of everything relative to nothing broken.
    pub(super) fn gained(&self) -> f64 {
        let flows = self.flows.iter().zip(&self.likely);
        let gained = flows.map(|(flow, now)| now - flow.log_likelihood(flow.base));
        gained.sum::<f64>() + self.unhit
    }

    /// Marks a part as broken; returns the flows with more expected hits.
    pub(super) fn add(&mut self, over: &Over, rate: f64) -> Vec<bool> {
        let mut changed = vec![false; self.flows.len()];
        for meets in &over.meets {
            changed[meets.flow] = true;
        }
        self.add_to(over, rate, &changed);
        changed
    }

    /// Marks a part as broken, for these flows only.
    pub(super) fn add_to(&mut self, over: &Over, rate: f64, flows: &[bool]) {
        let unhit = over.unhit.iter().map(|unhit| unhit.gain(self.each, rate));
        self.unhit += unhit.sum::<f64>();
        for meets in over.meets.iter().filter(|meets| flows[meets.flow]) {
            let known = self.chances[meets.flow].take();
            let known = known.unwrap_or_else(|| vec![(1.0, self.flows[meets.flow].base)]);
            let all = known
                .into_iter()
                .flat_map(|one| self.each.crossed(one, *meets, rate));
            let known = merged(all.filter(|(chance, _)| *chance > 0.0).collect());
            let flow = &self.flows[meets.flow];
            let likely = flow.likelihood(known.iter().copied());
            if let Some(place) = self.places[meets.flow] {
                self.spoiled[place.get() as usize] = flow.spoiled(&known, likely);
            }
            self.likely[meets.flow] = likely;
            self.chances[meets.flow] = Some(known);
        }
    }
}

/// Share of probes that is hit if of those that were not this share is, too.
fn spoil(hit: f64, rate: f64) -> f64 {
    1.0 - (1.0 - hit) * (1.0 - rate)
}

/// Merges neighbors in the order of their shares, with the mean of both, if there are too many.
fn merged(mut chances: Chances) -> Chances {
    if chances.len() <= MOST_CHANCES {
        return chances;
    }
    chances.sort_by(|a, b| a.1.total_cmp(&b.1));
    let pairs = chances.chunks(2).map(|pair| {
        let chance: f64 = pair.iter().map(|(chance, _)| chance).sum();
        let hit: f64 = pair.iter().map(|(chance, hit)| chance * hit).sum();
        (chance, hit / chance)
    });
    pairs.collect()
}

impl Each {
    /// What becomes of a probability if a part is broken: the flow's unknown path leads past it, or over it; or
    /// some of its packets do.
    fn crossed(self, (chance, hit): (f64, f64), meets: Meets, rate: f64) -> [(f64, f64); 2] {
        let past = if meets.always { spoil(hit, rate) } else { hit };
        match self {
            Self::Flow => [
                (chance * (1.0 - meets.maybe), past),
                (chance * meets.maybe, spoil(past, rate)),
            ],
            Self::Packet => [(chance, spoil(past, rate * meets.maybe)), (0.0, past)],
        }
    }
}

impl Flow {
    /// The same where the share is known as a distribution only.
    fn likelihood(&self, chances: impl Iterator<Item = (f64, f64)>) -> f64 {
        let mut sum = Sum::default();
        for (chance, hit) in chances.filter(|(chance, _)| *chance > 0.0) {
            let certain = chance == 1.0;
            sum.add(if certain { 0.0 } else { chance.ln() } + self.log_likelihood(hit));
        }
        sum.logarithm()
    }

    /// Its log-likelihood with each of [`RATES`] of its probes certainly affected.
    fn spoiled(&self, known: &[(f64, f64)], likely: f64) -> [f64; RATES.len()] {
        RATES.map(|rate| {
            let spoiled = known
                .iter()
                .map(|(chance, hit)| (*chance, spoil(*hit, rate)));
            self.likelihood(spoiled) - likely
        })
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
        match self.0 {
            None => f64::NEG_INFINITY,
            Some((most, 1.0)) => most,
            Some((most, sum)) => most + sum.ln(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_stay_few_and_keep_their_sum_and_mean_however_many_components_a_path_may_cross() {
        let mut chances: Chances = vec![(1.0, 0.001)];
        let (mut all, mut mean) = (0.0, 0.0);
        for component in 0..20 {
            let meets = Meets {
                flow: 0,
                always: false,
                maybe: 0.25,
            };
            let rate = 0.01 * f64::from(component + 1);
            let crossed = chances
                .iter()
                .flat_map(|one| Each::Flow.crossed(*one, meets, rate));
            let before: Chances = crossed.collect();
            chances = merged(before.clone());
            assert!(chances.len() <= MOST_CHANCES, "{}", chances.len());
            let sums = |chances: &Chances| {
                let sum =
                    |sum: (f64, f64), one: &(f64, f64)| (sum.0 + one.0, sum.1 + one.0 * one.1);
                chances.iter().fold((0.0, 0.0), sum)
            };
            let expected = sums(&before);
            (all, mean) = sums(&chances);
            assert!((mean - expected.1).abs() < 1e-12, "{component}");
        }
        assert!((all - 1.0).abs() < 1e-12 && mean > 0.3, "{all} {mean}");
    }
}

//! Which rank computes longest in a job, from exporters alone: a hint, or the result that no rank does.
//!
//! GPUs of a synchronous job wait for the one that computes longest. Without timings of collectives only the time in
//! which tensor cores are active shows which rank that is. A slow part is always the same one; work
//! that is distributed unevenly belongs to a stage or an expert, or to another rank in every round.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part};

use super::median;
use crate::jobs::job::Job;
use crate::jobs::tensor_activity::{active_share, is_read_late};
use crate::store::History;

/// Time between two rounds: half of what GPUs of a step of seconds need to show their mean.
pub(super) const ROUND_SECONDS: f64 = 10.0;
/// Rounds that are evaluated together: two minutes.
const ROUNDS: usize = 12;
/// Rounds of these in which the same GPU must lead before it is a hint: others lead occasionally by chance.
const LEADS: usize = 10;
/// Share of a step in which GPUs compute, where no source reports it: half, so that what is reported by activity
/// weighs half.
const COMPUTES: f64 = 0.5;
/// Share of a step that uneven work must cost before anything is reported: as for waiting in
/// collectives.
const MIN_COST: f64 = super::MIN_MISSING_WAIT;
/// Share of the leader's excess from which another node leads with it.
const WITH_LEADER: f64 = 0.5;
/// A job whose GPUs compute less than this of the time runs no steps that could be compared.
const MIN_ACTIVE: f64 = 0.05;
/// GPUs that a ranking shows.
pub(super) const RANKED: usize = 8;

type Gpu = (NodeName, GpuIndex);

/// What activity reports about a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Balance {
    /// Too few GPUs or rounds, or no activity is reported.
    Unknown,
    /// No rank computes longer than others by a relevant amount.
    Even,
    /// One GPU does, round after round: it may be slow.
    Leader(Part),
    /// Ranks do alternately, or many together: work is dealt out unevenly, and no part is slow.
    Uneven {
        /// Nodes that led in one of the rounds.
        leaders: usize,
    },
}

#[derive(Clone, Debug)]
struct Round {
    leader: Gpu,
    is_alone: bool,
    /// Share of a step for which all others wait for the leader.
    cost: f64,
}

/// Watches one job.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity {
    rounds: VecDeque<Round>,
    at: Option<Timestamp>,
    /// Mean excess of each GPU over the median of the job, over about as many rounds as are
    /// evaluated.
    excess: BTreeMap<Gpu, f64>,
}

impl Activity {
    /// Evaluates the job if a round is due.
    pub(super) fn look(&mut self, job: &Job, history: &History, now: Timestamp) {
        if self
            .at
            .is_some_and(|at| now.seconds_since(at) < ROUND_SECONDS)
        {
            return;
        }
        self.at = Some(now);
        let active = active(job, history, now);
        let expected = job.gpus();
        let enough = active.len() >= super::MIN_RANKS
            && active.len() as f64 >= super::MIN_PRESENT * expected as f64;
        let usual = median(active.values().copied()).unwrap_or(0.0);
        if !enough || usual < MIN_ACTIVE {
            // What was seen before a checkpoint or a launch reports nothing about what comes after.
            self.rounds.clear();
            return;
        }
        self.take(
            active
                .into_iter()
                .map(|(gpu, active)| (gpu, active / usual - 1.0))
                .collect(),
        );
    }

    /// Adds the excess of each GPU over the median.
    fn take(&mut self, excess: BTreeMap<Gpu, f64>) {
        let Some((leader, most)) = excess.iter().max_by(|a, b| a.1.total_cmp(b.1)) else {
            return;
        };
        let with = excess
            .iter()
            .filter(|(_, other)| **other >= WITH_LEADER * most);
        let nodes: BTreeSet<&NodeName> = with.map(|((node, _), _)| node).collect();
        if self.rounds.len() == ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(Round {
            leader: leader.clone(),
            is_alone: nodes.len() == 1,
            cost: COMPUTES * most,
        });
        self.excess.retain(|gpu, _| excess.contains_key(gpu));
        let share = 1.0 / self.rounds.len() as f64;
        for (gpu, now) in excess {
            let mean = self.excess.entry(gpu).or_insert(now);
            *mean += share * (now - *mean);
        }
    }

    /// The result of the last rounds.
    pub(super) fn balance(&self) -> Balance {
        if self.rounds.len() < ROUNDS {
            return Balance::Unknown;
        }
        if self.cost() < MIN_COST {
            return Balance::Even;
        }
        let mut leads: BTreeMap<&Gpu, usize> = BTreeMap::new();
        for round in self.rounds.iter().filter(|round| round.is_alone) {
            *leads.entry(&round.leader).or_default() += 1;
        }
        let first = leads.into_iter().max_by_key(|(_, rounds)| *rounds);
        if let Some(((node, gpu), rounds)) = first
            && rounds >= LEADS
        {
            return Balance::Leader(Part::Gpu(node.clone(), *gpu));
        }
        let leaders: BTreeSet<_> = self.rounds.iter().map(|round| &round.leader.0).collect();
        Balance::Uneven {
            leaders: leaders.len(),
        }
    }

    /// Share of a step for which the job waits for the rank that computes longest, mean of the last
    /// rounds.
    pub(super) fn cost(&self) -> f64 {
        let sum: f64 = self.rounds.iter().map(|round| round.cost).sum();
        sum / self.rounds.len().max(1) as f64
    }

    /// GPUs that compute longest, with the share by which they do, longest first.
    pub(super) fn ranking(&self) -> Vec<(Part, f64)> {
        let mut ranked: Vec<(&Gpu, f64)> = self
            .excess
            .iter()
            .map(|(gpu, excess)| (gpu, *excess))
            .collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let ranked = ranked.into_iter().take(RANKED);
        let part = |((node, gpu), excess): (&Gpu, f64)| (Part::Gpu(node.clone(), *gpu), excess);
        ranked.map(part).collect()
    }
}

/// Share of the time in which tensor cores of each GPU of a job were active, mean of the newest round.
fn active(job: &Job, history: &History, now: Timestamp) -> BTreeMap<Gpu, f64> {
    let mut found = BTreeMap::new();
    for (node, gpus) in &job.nodes {
        let said = history.node(node).filter(|said| said.is_fresh(now));
        let Some(said) = said.filter(|said| !is_read_late(said, ROUND_SECONDS)) else {
            continue;
        };
        for gpu in gpus {
            let active = active_share(said, &gpu.to_string(), ROUND_SECONDS);
            found.extend(active.map(|active| ((node.clone(), *gpu), active)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight GPUs on four nodes; the excess of each in a round by a function of round and number.
    fn judge(rounds: usize, excess: impl Fn(usize, usize) -> f64) -> Activity {
        let mut activity = Activity::default();
        for round in 0..rounds {
            let gpus = (0..8).map(|number| {
                let node = format!("n{}", number / 2).parse().expect("a name");
                ((node, GpuIndex(number as u16 % 2)), excess(round, number))
            });
            activity.take(gpus.collect());
        }
        activity
    }

    #[test]
    fn a_part_leads_all_the_time_and_alone_and_uneven_work_by_turns_or_together() {
        let check = |rounds, excess: &dyn Fn(usize, usize) -> f64, expected| {
            assert_eq!(judge(rounds, excess).balance(), expected);
        };
        let one = |_: usize, number: usize| if number == 5 { 0.2 } else { 0.0 };
        let leader = Balance::Leader("gpu/n2:1".parse().expect("a part"));
        check(ROUNDS, &one, leader);
        check(ROUNDS - 1, &one, Balance::Unknown);
        check(ROUNDS, &|_, number| 0.001 * number as f64, Balance::Even);
        let by_turns = |round: usize, number: usize| {
            let leads = number == (3 * round) % 8;
            if leads { 0.2 } else { 0.0 }
        };
        check(ROUNDS, &by_turns, Balance::Uneven { leaders: 4 });
        let stage = |_: usize, number: usize| {
            if number >= 4 {
                0.2 + 0.001 * number as f64
            } else {
                0.0
            }
        };
        check(ROUNDS, &stage, Balance::Uneven { leaders: 1 });
    }

    #[test]
    fn the_ranking_is_by_the_mean_excess() {
        let ranking = judge(ROUNDS, |_, number| 0.01 * number as f64).ranking();
        assert_eq!(ranking.len(), RANKED);
        assert_eq!(ranking[0].0.to_string(), "gpu/n3:1");
        assert!((ranking[0].1 - 0.07).abs() < 1e-9);
    }
}

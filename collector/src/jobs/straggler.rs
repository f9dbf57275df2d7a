//! Stragglers: in each step the rank that all others wait for waits least; its wait deficit is its extra compute time.
//!
//! A step of length `T` is `W + C + U` on every rank: waiting in collectives, sends and receives; kernels; the rest.
//! Against ranks of the same role, `dW = (median W - W) / T` and `dC`, `dU` are the excess of the others over their
//! medians. The rank with the largest `dW` of its cohort, if that appears as its compute time, has a hit; a bet on each
//! rank that grows by hits and shrinks by misses (an e-process) turns hits into a result whose rate of false alarms is
//! bounded whatever the noise is.

pub(crate) mod edge_times;
pub(crate) mod gpu_activity;
mod operation;
mod pairs;
pub(crate) mod rank_groups;
mod rounds;
mod stall;
#[cfg(test)]
mod tests;
pub(crate) mod tracker;

pub use crate::jobs::straggler::edge_times::{EdgeTimes, EdgeVerdict};
pub use crate::jobs::straggler::rank_groups::{Rank, cohorts};
pub use crate::jobs::straggler::tracker::{Answer, Basis, Ranked, Waiting, Waits};
pub use operation::{Membership, Operation, Process};
pub use pairs::{Pair, Unevenness, judge_pairs};
pub use rounds::{Round, Rounds};
pub use stall::{GroupState, Late, RankState, Side, Stuck, late_ranks};

/// Least share of a step by which a root cause waits less than its cohort's median: below it, ranks of one
/// role differ in public traces of healthy parts (ByteDance ST: less than 1 %; the gate leaves a factor of
/// three).
pub const MIN_MISSING_WAIT: f64 = 0.03;
/// Share of the wait deficit that must appear as compute time, or as unaccounted time: more than half, so that
/// at most one of them holds for a step.
pub const REPAID: f64 = 0.5;
/// Evidence at which a rank is named: 100,000 ranks x 8,640 steps a day / one false result a day, rounded up. Of
/// exchangeable ranks one is named no sooner than after this many steps in the mean, whatever their noise
/// (Shin, Ramdas, Rinaldo: E-detectors).
pub const ALARM: f64 = 1e9;
/// Fewest ranks of a role in one step: with fewer, one is too large a part of the median.
pub const MIN_RANKS: usize = 4;
/// Share of a cohort that must report a step; else nothing is learned from the step.
pub const MIN_PRESENT: f64 = 0.7;
/// Share by which the compute of one pipeline stage exceeds the median of the stages before it is called uneven.
pub const UNEVEN_STAGES: f64 = 0.03;

/// What one rank did in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Length of the step, `T`.
    pub step_seconds: f64,
    /// Time in which the rank was blocked in any collective, send or receive, `W`; overlaps counted once.
    pub wait_seconds: f64,
    /// Time in which any of its kernels ran, `C`; overlaps counted once, without time that is waiting already.
    pub compute_seconds: f64,
}

impl StepTimes {
    /// What is neither, `U`: the host, launches, data. Never below zero.
    pub fn unaccounted_seconds(&self) -> f64 {
        (self.step_seconds - self.wait_seconds - self.compute_seconds).max(0.0)
    }

    fn is_sound(&self) -> bool {
        let parts = [self.step_seconds, self.wait_seconds, self.compute_seconds];
        self.step_seconds > 0.0 && parts.iter().all(|part| part.is_finite() && *part >= 0.0)
    }
}

/// Length of the union of intervals `(begin, end)`, in their unit: sends and receives overlap. Intervals that end before
/// they begin, or are no numbers, have no length.
pub fn union(intervals: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let mut intervals: Vec<(f64, f64)> = intervals.into_iter().filter(|(a, b)| a < b).collect();
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut until = f64::NEG_INFINITY;
    let mut length = 0.0;
    for (begin, end) in intervals {
        length += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    length
}

/// What a rank is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its missing wait is compute: the GPU, its clock or memory.
    Gpu,
    /// Its missing wait is unaccounted: perhaps the host. A hint that another source must confirm; never pages:
    /// on public traces it has named a victim and a gap of the tracing.
    HostHint,
}

/// A rank that the others of its role wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// Its place in the list of ranks.
    pub index: usize,
    /// What it is named for.
    pub cause: Cause,
    /// Step, counted from one, at which the evidence reached [`ALARM`].
    pub since_step: u64,
    /// Share of the step that it waited less than its cohort, in the last step that hit it.
    pub missing_wait: f64,
}

/// What the steps so far report about the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// These hold the others back.
    Culprits(Vec<Culprit>),
    /// No rank does, but one pipeline stage computes longer than the others: the split of the model, not a part.
    UnevenStages {
        /// The stage that computes longest.
        stage: u32,
        /// By which share of the median of the stages.
        excess: f64,
    },
    /// No rank does, after enough steps to have named one.
    NoHardwareCause,
    /// Too few ranks of any role, or too few steps to name one.
    Undecided,
}

/// Evidence on one rank and one cause.
#[derive(Clone, Copy, Debug, Default)]
struct Bet {
    /// Natural logarithm of the e-process, never below zero.
    ln: f64,
    fired: Option<u64>,
    missing_wait: f64,
}

impl Bet {
    /// `E = max(1, E) * (hit ? 1/2 + n/2 : 1/2)`: its mean over exchangeable ranks is one at most.
    fn settle(&mut self, hit: Option<f64>, ranks: usize, ln_alarm: f64, step: u64) {
        let factor = if hit.is_some() {
            0.5 + 0.5 * ranks as f64
        } else {
            0.5
        };
        // Kept at the alarm, so that a result ends some thirty steps after its cause.
        self.ln = (self.ln + factor.ln()).clamp(0.0, ln_alarm);
        self.missing_wait = hit.unwrap_or(self.missing_wait);
        if self.ln >= ln_alarm {
            self.fired.get_or_insert(step);
        } else if self.ln <= 0.0 {
            self.fired = None;
        }
    }
}

/// Watches the ranks of one job.
pub struct WaitWatch {
    ranks: Vec<Rank>,
    cohorts: Vec<Vec<usize>>,
    bets: Vec<[Bet; 2]>,
    /// Per stage: compute seconds and reports so far.
    stages: std::collections::BTreeMap<u32, (f64, u64)>,
    /// Steps in which each cohort had enough ranks.
    judged: Vec<u64>,
    ln_alarm: f64,
    step: u64,
    conserves: bool,
}

impl WaitWatch {
    /// Watches these ranks in cohorts of the same role; `alarm` is [`ALARM`] but in tests of the bound itself.
    pub fn new(ranks: Vec<Rank>, alarm: f64) -> Self {
        let cohorts = cohorts(&ranks);
        WaitWatch::with_cohorts(ranks, cohorts, alarm)
    }

    /// Watches these ranks in given cohorts of indexes.
    pub fn with_cohorts(ranks: Vec<Rank>, cohorts: Vec<Vec<usize>>, alarm: f64) -> Self {
        WaitWatch {
            bets: vec![<[Bet; 2]>::default(); ranks.len()],
            judged: vec![0; cohorts.len()],
            ranks,
            cohorts,
            stages: std::collections::BTreeMap::new(),
            ln_alarm: alarm.max(1.0).ln(),
            step: 0,
            conserves: true,
        }
    }

    /// Whether to check what a rank does instead of waiting. If not, the GPU is named: to measure what the check contributes.
    pub const fn conserving(mut self, conserves: bool) -> Self {
        self.conserves = conserves;
        self
    }

    /// Adds one step of all ranks, in their order; `None`, or invalid numbers, of a rank that did not report.
    pub fn observe(&mut self, times: &[Option<StepTimes>]) {
        self.step += 1;
        let times = |index: usize| {
            let times = times.get(index).copied().flatten()?;
            times.is_sound().then_some(times)
        };
        for (index, rank) in self.ranks.iter().enumerate() {
            if let (Some(stage), Some(times)) = (rank.stage, times(index)) {
                let sum = self.stages.entry(stage).or_default();
                *sum = (sum.0 + times.compute_seconds, sum.1 + 1);
            }
        }
        for number in 0..self.cohorts.len() {
            let cohort = &self.cohorts[number];
            let present = cohort
                .iter()
                .filter_map(|rank| Some((*rank, times(*rank)?)));
            let present: Vec<(usize, StepTimes)> = present.collect();
            if present.len() < MIN_RANKS
                || (present.len() as f64) < MIN_PRESENT * cohort.len() as f64
            {
                continue;
            }
            self.judged[number] += 1;
            self.judge(&present);
        }
    }

    fn judge(&mut self, present: &[(usize, StepTimes)]) {
        let hit = hit(present, self.conserves);
        for (rank, _) in present {
            let of = |cause: Cause| {
                let hit = hit.filter(|hit| hit.rank == *rank && hit.cause == cause)?;
                (!self.is_masked(*rank)).then_some(hit.missing_wait)
            };
            let hits = [of(Cause::Gpu), of(Cause::HostHint)];
            for (bet, hit) in self.bets[*rank].iter_mut().zip(hits) {
                bet.settle(hit, present.len(), self.ln_alarm, self.step);
            }
        }
    }

    /// Whether a rank of the same replica is named already: its whole pipeline column waits for it and with it, so
    /// nothing is learned about the others.
    fn is_masked(&self, rank: usize) -> bool {
        let Some(replica) = self.ranks[rank].replica else {
            return false;
        };
        let mut named = (0..self.ranks.len()).filter(|other| self.bets[*other][0].fired.is_some());
        named.any(|other| other != rank && self.ranks[other].replica == Some(replica))
    }

    /// The ranks that are named at present, in order.
    pub fn culprits(&self) -> Vec<Culprit> {
        let causes = [Cause::Gpu, Cause::HostHint];
        let all = self.bets.iter().enumerate().flat_map(|(index, bets)| {
            bets.iter().zip(causes).filter_map(move |(bet, cause)| {
                Some(Culprit {
                    index,
                    cause,
                    since_step: bet.fired?,
                    missing_wait: bet.missing_wait,
                })
            })
        });
        all.collect()
    }

    /// The result of the steps so far.
    pub fn conclude(&self) -> Conclusion {
        let culprits = self.culprits();
        if !culprits.is_empty() {
            return Conclusion::Culprits(culprits);
        }
        if let Some((stage, excess)) = self.uneven_stage() {
            return Conclusion::UnevenStages { stage, excess };
        }
        let judged = self.cohorts.iter().zip(&self.judged);
        let mut judged =
            judged.map(|(cohort, steps)| *steps >= hits_needed(cohort.len(), self.ln_alarm));
        match judged.next() {
            Some(first) if first && judged.all(|enough| enough) => Conclusion::NoHardwareCause,
            _ => Conclusion::Undecided,
        }
    }

    fn uneven_stage(&self) -> Option<(u32, f64)> {
        let means = self
            .stages
            .iter()
            .map(|(stage, (sum, count))| (*stage, sum / *count as f64));
        let means: Vec<(u32, f64)> = means.collect();
        let (stage, longest) = *means.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let usual = median(means.iter().map(|(_, mean)| *mean))?;
        let excess = longest / usual - 1.0;
        (excess.is_finite() && excess > UNEVEN_STAGES).then_some((stage, excess))
    }
}

/// Fewest steps, all hits, in which a rank of a cohort of this size is named.
fn hits_needed(ranks: usize, ln_alarm: f64) -> u64 {
    (ln_alarm / (0.5 + 0.5 * ranks as f64).ln()).ceil() as u64
}

#[derive(Clone, Copy)]
struct Hit {
    rank: usize,
    cause: Cause,
    missing_wait: f64,
}

/// The rank that waited least of its cohort, if it did so by enough and, where a step `conserves` its time, what it
/// did instead is known.
fn hit(present: &[(usize, StepTimes)], conserves: bool) -> Option<Hit> {
    let wait = median(present.iter().map(|(_, times)| times.wait_seconds))?;
    let compute = median(present.iter().map(|(_, times)| times.compute_seconds))?;
    let unaccounted = median(present.iter().map(|(_, times)| times.unaccounted_seconds()))?;
    let missing = |times: &StepTimes| (wait - times.wait_seconds) / times.step_seconds;
    let (rank, times) = present
        .iter()
        .max_by(|a, b| missing(&a.1).total_cmp(&missing(&b.1)))?;
    let missing_wait = missing(times);
    // Two that are equal are no root cause: the bet is fair only if at most one rank is hit.
    let equal = present
        .iter()
        .filter(|(_, other)| missing(other) >= missing_wait)
        .count();
    if missing_wait <= MIN_MISSING_WAIT || equal > 1 {
        return None;
    }
    let repaid = |seconds: f64| seconds / times.step_seconds > REPAID * missing_wait;
    let cause = if !conserves || repaid(times.compute_seconds - compute) {
        Cause::Gpu
    } else if repaid(times.unaccounted_seconds() - unaccounted) {
        Cause::HostHint
    } else {
        return None;
    };
    Some(Hit {
        rank: *rank,
        cause,
        missing_wait,
    })
}

/// The middle value, of an even number the mean of the middle two; `None` of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) {
        values[middle - 1]
    } else {
        upper
    };
    Some(f64::midpoint(lower, upper))
}

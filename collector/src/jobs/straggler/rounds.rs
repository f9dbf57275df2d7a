//! Operations of the processes of one job, cut into rounds of whole collectives: how long each process waited in each.
//!
//! A communicator's collectives of one kind (`AllReduce`, `AllGather`, ...) have the same numbers on all of its ranks, so that a
//! round ends on every rank with the same one of each kind, and clocks of hosts need not agree. Where several kinds alternate,
//! one determines where the communicator's round ends, and the others end before it. The share of time that a rank spends
//! in a communicator is over the time that this very communicator took for the round: a round that ends a little later in one
//! of them costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Membership, Operation, Process, Rank, median, union};

/// Least length of a round: as long as a tick of which digests would be made.
const ROUND_SECONDS: f64 = 10.0;
/// Fewest collectives of the kind that determines a round's end; with fewer, its rate is not known.
const MIN_COLLECTIVES: usize = 2;
/// Operations of one communicator and kind that a process may have waiting; beyond that the oldest are dropped: a rank that reports
/// nothing for so long is not waited for.
const MOST_WAITING: usize = 100_000;

/// Kinds of collectives of one communicator; NCCL has fewer. Those of others are dropped.
const MOST_KINDS: usize = 16;

/// Share of a rank's collectives in a round that must have been reported: with 10 % missing, a rank that waits for a third
/// of the time seems to wait 3 % less, which is enough to name a GPU.
const COMPLETE: f64 = 0.9;

/// One collective that waits for the round's end, or one transfer.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: f64,
    begin: Option<f64>,
    end: f64,
}

#[derive(Clone, Debug)]
struct Member {
    about: Membership,
    /// By kind, then by number: each kind is numbered separately.
    collectives: BTreeMap<Arc<str>, BTreeMap<u64, Span>>,
    transfers: Vec<Span>,
    /// Whether it ever sent or received.
    has_transfers: bool,
    /// End of the last collective of the round before, of the kind that determined its end.
    cut: Option<f64>,
    /// By kind: the last collective of the rounds before.
    ended: BTreeMap<Arc<str>, u64>,
}

/// Where the next round of a communicator ends.
struct RoundEnd {
    /// The kind that determines it, and its last collective.
    leading: (Arc<str>, u64),
    /// By kind: the last collective.
    last: BTreeMap<Arc<str>, u64>,
    /// Length of the round, median over the ranks.
    seconds: f64,
}

/// The processes of one job.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    processes: BTreeMap<Process, BTreeMap<Arc<str>, Member>>,
    /// Operations that were dropped.
    pub dropped: u64,
}

/// A round: its length, and by process the share of it that it spent in collectives, sends and receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Median over the communicators, seconds.
    pub seconds: f64,
    /// By process, 0 to 1.
    pub waited: BTreeMap<Process, f64>,
}

impl Rounds {
    /// Adds one operation.
    pub fn take(&mut self, operation: Operation) {
        let Operation {
            process,
            member,
            name,
            number,
            seconds,
            begin,
            end,
            ..
        } = operation;
        let communicators = self.processes.entry(process).or_default();
        let known = communicators
            .entry(Arc::clone(&member.communicator))
            .or_insert_with(|| Member {
                about: member,
                collectives: BTreeMap::new(),
                transfers: Vec::new(),
                has_transfers: false,
                cut: None,
                ended: BTreeMap::new(),
            });
        let span = Span {
            seconds,
            begin,
            end,
        };
        match number {
            Some(number) => {
                if !known.collectives.contains_key(&name) && known.collectives.len() >= MOST_KINDS {
                    self.dropped += 1;
                    return;
                }
                let of_kind = known.collectives.entry(name).or_default();
                of_kind.insert(number, span);
                if of_kind.len() > MOST_WAITING {
                    of_kind.pop_first();
                    self.dropped += 1;
                }
            }
            None if known.transfers.len() < MOST_WAITING => {
                known.has_transfers = true;
                known.transfers.push(span);
            }
            None => self.dropped += 1,
        }
    }

    /// Adds another's processes: a communicator has shown that both are of one job.
    pub fn join(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.dropped += other.dropped;
    }

    /// All processes, in their order.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.keys()
    }

    /// Ends a round if it is long enough in all communicators of at least two ranks; no rank has waited in
    /// the first, which only shows where the second begins.
    pub fn next_round(&mut self) -> Option<Round> {
        let ends = self.round_ends();
        let length = median(ends.values().map(|end| end.seconds))?;
        if length < ROUND_SECONDS {
            return None;
        }
        let waited: BTreeMap<Process, f64> = self
            .processes
            .iter_mut()
            .filter_map(|(process, members)| Some((process.clone(), waited(members, &ends)?)))
            .collect();
        Some(Round {
            seconds: length,
            waited,
        })
    }

    /// By communicator: where its next round ends, if its rate is known. Ranks without waiting collectives are not waited
    /// for.
    fn round_ends(&self) -> BTreeMap<Arc<str>, RoundEnd> {
        let mut communicators: BTreeMap<&Arc<str>, Vec<&Member>> = BTreeMap::new();
        for (name, member) in self.members() {
            if member.collectives.values().any(|kind| !kind.is_empty()) {
                communicators.entry(name).or_default().push(member);
            }
        }
        let ends = communicators.into_iter();
        ends.filter_map(|(name, members)| Some((Arc::clone(name), RoundEnd::of(&members)?)))
            .collect()
    }

    fn members(&self) -> impl Iterator<Item = (&Arc<str>, &Member)> {
        self.processes.values().flatten()
    }

    /// Ranks of the processes, in their order, as far as communicators report roles: the place in one that is within a
    /// host and not the largest is the tensor-parallel one, that in one with sends and receives, or named after the
    /// pipeline, the stage. Where no stage is reported and several communicators span hosts, each is a role: ranks that
    /// average gradients with each other hold the same part of the model.
    pub fn ranks(&self, hardware: impl Fn(&Process) -> u32) -> Vec<Rank> {
        let largest = self.members().map(|(_, member)| member.about.ranks).max();
        let largest = largest.unwrap_or(0);
        let wide: BTreeMap<&Arc<str>, u32> = self
            .members()
            .filter(|(_, member)| member.about.hosts > 1 && member.about.ranks < largest)
            .filter(|(_, member)| !member.is_pipeline())
            .map(|(name, _)| name)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .zip(0..)
            .collect();
        let rank = |(number, (process, members)): (u32, (&Process, &BTreeMap<_, Member>))| {
            let place = |test: &dyn Fn(&Member) -> bool| {
                let mut found = members.values().filter(|member| member.about.ranks > 1);
                found
                    .find(|member| test(member))
                    .map(|member| member.about.rank)
            };
            let stage = place(&|member| member.is_pipeline() && member.about.ranks < largest);
            let wide = members
                .iter()
                .filter_map(|(name, member)| Some((member.about.ranks, *wide.get(name)?)));
            Rank {
                number,
                stage: stage.or(wide.max().map(|(_, number)| number)),
                tensor: place(&|member| {
                    member.about.hosts == 1 && member.about.ranks < largest && !member.is_pipeline()
                }),
                replica: None,
                hardware: hardware(process),
            }
        };
        (0..).zip(&self.processes).map(rank).collect()
    }

    /// Processes of each host, in the order of their ranks in the largest communicator.
    pub fn by_host(&self) -> BTreeMap<Arc<str>, Vec<&Process>> {
        let mut hosts: BTreeMap<Arc<str>, Vec<(u32, &Process)>> = BTreeMap::new();
        for (process, members) in &self.processes {
            let largest = members.values().max_by_key(|member| member.about.ranks);
            let rank = largest.map_or(0, |member| member.about.rank);
            let of = hosts.entry(Arc::clone(&process.host)).or_default();
            of.push((rank, process));
        }
        let sorted = hosts.into_iter().map(|(host, mut of)| {
            of.sort();
            (host, of.into_iter().map(|(_, process)| process).collect())
        });
        sorted.collect()
    }
}

impl RoundEnd {
    /// Of the kinds by which the round is long enough, the one by which it is shortest determines its end; if there is none
    /// yet, the one by which it is longest.
    fn of(members: &[&Member]) -> Option<Self> {
        let kinds = members.iter().flat_map(|member| member.collectives.keys());
        let kinds: BTreeSet<&Arc<str>> = kinds.collect();
        let ends = kinds.iter().filter_map(|kind| {
            let last = last_of_round(kind, members)?;
            let lengths = members.iter();
            let seconds = median(lengths.filter_map(|member| member.length(kind, last)))?;
            (seconds > 0.0).then_some((*kind, last, seconds))
        });
        let ends: Vec<(&Arc<str>, u64, f64)> = ends.collect();
        let long = ends.iter().filter(|end| end.2 >= ROUND_SECONDS);
        let shortest = long.min_by(|a, b| a.2.total_cmp(&b.2));
        let end = shortest.or_else(|| ends.iter().max_by(|a, b| a.2.total_cmp(&b.2)));
        let (leading, number, seconds) = *end?;
        let leading = (Arc::clone(leading), number);
        let others = kinds.into_iter().filter(|kind| **kind != leading.0);
        // A kind that some rank has not reported yet is left to a later round.
        let others = others.filter_map(|kind| {
            let last = members.iter().map(|member| {
                let until = member.end_of_round(&leading)?;
                member.last_until(kind, until)
            });
            Some((Arc::clone(kind), last.min().flatten()?))
        });
        let mut last: BTreeMap<Arc<str>, u64> = others.collect();
        last.insert(Arc::clone(&leading.0), number);
        Some(Self {
            leading,
            last,
            seconds,
        })
    }
}

/// The last collective of a kind in the next round, which all ranks have ended: the first by which the round is long enough
/// for each of them, or the newest. None if a rank has not reported any.
fn last_of_round(kind: &Arc<str>, members: &[&Member]) -> Option<u64> {
    let mut common: Option<(u64, u64)> = None;
    for member in members {
        let of_kind = member.collectives.get(kind)?;
        let (newest, _) = of_kind.last_key_value()?;
        let begin = member.begin().unwrap_or(0.0);
        let is_enough = |span: &Span| span.end - begin >= ROUND_SECONDS;
        let enough = of_kind.iter().find(|(_, span)| is_enough(span));
        let enough = enough.map_or(*newest, |(number, _)| *number);
        let so_far = common.unwrap_or((*newest, enough));
        common = Some((so_far.0.min(*newest), so_far.1.max(enough)));
    }
    common.map(|(newest, enough)| newest.min(enough))
}

impl Member {
    /// When the next round begins: where the one before ended, or with the first collective.
    fn begin(&self) -> Option<f64> {
        let first = self
            .collectives
            .values()
            .filter_map(BTreeMap::first_key_value);
        let first = first.map(|(_, span)| span.end).min_by(f64::total_cmp);
        self.cut.or(first)
    }

    /// Length of a round that ends with this collective of a kind; none if too few of this kind are in it.
    fn length(&self, kind: &Arc<str>, last: u64) -> Option<f64> {
        let of_kind = self.collectives.get(kind)?;
        // After the first round, its begin is known.
        let fewest = if self.cut.is_some() {
            1
        } else {
            MIN_COLLECTIVES
        };
        of_kind.range(..=last).nth(fewest - 1)?;
        let (_, newest) = of_kind.range(..=last).next_back()?;
        Some(newest.end - self.begin()?)
    }

    /// When this process ended a round of which this is the last collective of the leading kind; none if all that wait
    /// here came after it.
    fn end_of_round(&self, (kind, last): &(Arc<str>, u64)) -> Option<f64> {
        let (_, newest) = self.collectives.get(kind)?.range(..=*last).next_back()?;
        Some(newest.end)
    }

    /// Number of the last collective of a kind that ended by then.
    fn last_until(&self, kind: &Arc<str>, until: f64) -> Option<u64> {
        let of_kind = self.collectives.get(kind)?.iter();
        let over = of_kind.take_while(|(_, span)| span.end <= until);
        over.map(|(number, _)| *number).last()
    }

    /// Takes out the collectives up to the last one of each kind, and returns whether nearly all are present: a rank of which the
    /// plugin dropped some seems to wait less.
    fn take_until(&mut self, last: &BTreeMap<Arc<str>, u64>) -> (Vec<Span>, bool) {
        let (mut over, mut expected, mut found) = (Vec::new(), 0, 0);
        for (kind, last) in last {
            let Some(waiting) = self.collectives.get_mut(kind) else {
                continue;
            };
            let next = last.checked_add(1);
            let later = next.map_or_else(BTreeMap::new, |next| waiting.split_off(&next));
            let taken = std::mem::replace(waiting, later);
            if let Some(before) = self.ended.insert(Arc::clone(kind), *last) {
                expected += last.saturating_sub(before);
                found += taken.len();
            }
            over.extend(taken.into_values());
        }
        (over, found as f64 >= COMPLETE * expected as f64)
    }

    fn is_pipeline(&self) -> bool {
        let name = self.about.name.as_deref().unwrap_or_default();
        self.has_transfers || name.to_ascii_lowercase().contains("pipeline")
    }
}

/// Share of a round that a process waited; removes what has ended. None in its first round, if it was in none of the
/// communicators, or if too many of its collectives are missing.
fn waited(
    members: &mut BTreeMap<Arc<str>, Member>,
    ends: &BTreeMap<Arc<str>, RoundEnd>,
) -> Option<f64> {
    let (mut share, mut seen, mut traced, mut whole) = (0.0, false, true, true);
    let (mut all, mut longest, mut until) = (Vec::new(), 0.0_f64, f64::NEG_INFINITY);
    for (name, member) in &mut *members {
        let Some(end) = ends.get(name) else { continue };
        let Some(newest) = member.end_of_round(&end.leading) else {
            continue;
        };
        let (over, is_whole) = member.take_until(&end.last);
        whole &= is_whole;
        until = until.max(newest);
        if member.cut.replace(newest).is_some() {
            seen = true;
            longest = longest.max(end.seconds);
            share += over.iter().map(|one| one.seconds).sum::<f64>() / end.seconds;
            all.extend(over);
        }
    }
    for member in members.values_mut() {
        let is_over = |one: &mut Span| one.end <= until;
        let over: Vec<Span> = member.transfers.extract_if(.., is_over).collect();
        if longest > 0.0 {
            share += over.iter().map(|one| one.seconds).sum::<f64>() / longest;
        }
        all.extend(over);
    }
    let intervals = all.iter().map(|one| {
        traced &= one.begin.is_some();
        (one.begin.unwrap_or(one.end), one.end)
    });
    // What runs beside each other counts once, if it is known when it ran.
    let intervals: Vec<(f64, f64)> = intervals.collect();
    if traced && longest > 0.0 {
        share = union(intervals) / longest;
    }
    (seen && whole).then_some(share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;

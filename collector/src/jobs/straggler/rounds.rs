//! Operations of the processes of one job, cut into rounds of whole collectives: how long each process waited in each.
//!
//! A communicator's collectives have the same numbers on all of its ranks, so that a round ends on every rank with the same
//! one, and clocks of hosts need not agree. The share of time that a rank spends in a communicator is over the time that
//! this very communicator took for the round: a round that ends a little later in one of them costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Membership, Operation, Process, Rank, median, union};

/// Least length of a round: as long as a tick of which digests would be made.
const ROUND_SECONDS: f64 = 10.0;
/// Fewest collectives of a communicator in a round; with fewer, its rate is not known.
const MIN_COLLECTIVES: usize = 2;
/// Operations of one communicator that a process may have waiting; of more the oldest are dropped: a rank that is silent
/// for so long is not waited for.
const MOST_WAITING: usize = 100_000;

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
    /// By number.
    collectives: BTreeMap<u64, Span>,
    transfers: Vec<Span>,
    /// Whether it ever sent or received.
    has_transfers: bool,
    /// End of the last collective of the round before.
    cut: Option<f64>,
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
            });
        let span = Span {
            seconds,
            begin,
            end,
        };
        match number {
            Some(number) => {
                known.collectives.insert(number, span);
                if known.collectives.len() > MOST_WAITING {
                    known.collectives.pop_first();
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
        let last = self.last_of_round();
        let mut spans: BTreeMap<Arc<str>, Vec<f64>> = BTreeMap::new();
        for (name, member) in self.members() {
            let Some(last) = last.get(name) else { continue };
            let mut whole = member.collectives.range(..=*last).map(|(_, span)| span);
            let (first, newest) = (whole.next(), whole.next_back());
            let begin = member.cut.or(first.map(|first| first.end));
            if let Some((begin, newest)) = begin.zip(newest.or(first))
                && member.collectives.range(..=*last).count() >= MIN_COLLECTIVES
            {
                let of = spans.entry(Arc::clone(name)).or_default();
                of.push(newest.end - begin);
            }
        }
        let spans: BTreeMap<Arc<str>, f64> = spans
            .into_iter()
            .filter_map(|(name, spans)| Some((name, median(spans)?)))
            .filter(|(_, span)| *span > 0.0)
            .collect();
        let length = median(spans.values().copied())?;
        if length < ROUND_SECONDS {
            return None;
        }
        let waited: BTreeMap<Process, f64> = self
            .processes
            .iter_mut()
            .filter_map(|(process, members)| {
                Some((process.clone(), waited(members, &last, &spans)?))
            })
            .collect();
        Some(Round {
            seconds: length,
            waited,
        })
    }

    /// By communicator: the last collective of the next round, which all of its ranks have ended: the first by which the
    /// round is long enough for each of them, or the newest.
    fn last_of_round(&self) -> BTreeMap<Arc<str>, u64> {
        let mut last: BTreeMap<Arc<str>, (u64, u64)> = BTreeMap::new();
        for (name, member) in self.members() {
            let Some((newest, _)) = member.collectives.last_key_value() else {
                continue;
            };
            let first = member.collectives.values().next().map(|first| first.end);
            let begin = member.cut.or(first).unwrap_or(0.0);
            let is_enough = |span: &Span| span.end - begin >= ROUND_SECONDS;
            let enough = member.collectives.iter().find(|(_, span)| is_enough(span));
            let enough = enough.map_or(*newest, |(number, _)| *number);
            let common = last.entry(Arc::clone(name)).or_insert((*newest, enough));
            *common = (common.0.min(*newest), common.1.max(enough));
        }
        let last = last.into_iter();
        last.map(|(name, (newest, enough))| (name, newest.min(enough)))
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
            .collect::<std::collections::BTreeSet<_>>()
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

impl Member {
    fn is_pipeline(&self) -> bool {
        let name = self.about.name.as_deref().unwrap_or_default();
        self.has_transfers || name.to_ascii_lowercase().contains("pipeline")
    }
}

/// Share of a round that a process waited; takes what is over out. None in its first round, or if it was in none of the
/// communicators.
fn waited(
    members: &mut BTreeMap<Arc<str>, Member>,
    last: &BTreeMap<Arc<str>, u64>,
    spans: &BTreeMap<Arc<str>, f64>,
) -> Option<f64> {
    let (mut share, mut seen, mut traced) = (0.0, false, true);
    let (mut all, mut longest, mut until) = (Vec::new(), 0.0_f64, f64::NEG_INFINITY);
    for (name, member) in &mut *members {
        let Some((last, span)) = last.get(name).zip(spans.get(name)) else {
            continue;
        };
        let later = member.collectives.split_off(&(last + 1));
        let over = std::mem::replace(&mut member.collectives, later);
        let Some((_, newest)) = over.last_key_value() else {
            continue;
        };
        until = until.max(newest.end);
        if member.cut.replace(newest.end).is_some() {
            seen = true;
            longest = longest.max(*span);
            share += over.values().map(|one| one.seconds).sum::<f64>() / span;
            all.extend(over.into_values());
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
    seen.then_some(share.clamp(0.0, 1.0))
}

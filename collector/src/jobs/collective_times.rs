//! How long the collectives of a job move data, by kind and size: their median and their tail.
//!
//! A rank that comes early waits in a collective for the last one, so its own time reports little about the
//! network. The rank that comes last does not wait: the shortest time of all ranks in one collective is the
//! time of the transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::step_times::{QUANTILES, StepTimes};

use crate::jobs::job::{JobName, Jobs};
use crate::jobs::straggler::Operation;
use crate::jobs::straggler::tracker::node_of;
use crate::store::History;

/// Collectives of a communicator that wait for ranks; of more the oldest are dropped.
const MOST_OPEN: usize = 10_000;
/// Kinds and sizes that are followed of a communicator: a step repeats a few.
const MOST_KINDS: usize = 16;
/// Kinds and sizes listed per job: those with the largest share of its time.
const MOST_LISTED: usize = 4;
/// How often quantiles are computed, seconds.
const EVERY_SECONDS: f64 = 30.0;
/// How long a communicator is kept after its last operation, seconds.
const FORGOTTEN_SECONDS: f64 = 600.0;

/// Transfer times of one kind of collective and one size of message in a job.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveTail {
    /// The job.
    pub job: JobName,
    /// `AllReduce`, `AllGather` ...
    pub collective: Arc<str>,
    /// Size of the message, bytes.
    pub bytes: u64,
    /// Collectives that were counted, over all communicators.
    pub count: u64,
    /// Quantiles of the last 1,000 by label (`0.5`, `0.99`, `0.999`), seconds: those of the communicator with the largest p99.
    pub quantiles: BTreeMap<&'static str, f64>,
    /// Seconds by which long ones exceeded the median of their communicator: those over 1.1 times the median, each with at
    /// most the median. The largest of any communicator, as communicators work at the same time.
    pub excess_seconds: f64,
}

/// Kind and size.
type Kind = (Arc<str>, u64);

/// Follows the collectives of all jobs.
#[derive(Debug, Default)]
pub(crate) struct CollectiveTimes {
    communicators: BTreeMap<Arc<str>, Communicator>,
    computed: Option<Timestamp>,
    tails: Arc<Vec<CollectiveTail>>,
}

#[derive(Debug)]
struct Communicator {
    /// A host that takes part: reports the job.
    host: Arc<str>,
    /// Collectives that not all ranks have reported, by number and kind: each kind is numbered separately.
    open: BTreeMap<(u64, Arc<str>), Open>,
    times: BTreeMap<Kind, StepTimes>,
    seen: Timestamp,
}

/// One collective.
#[derive(Debug)]
struct Open {
    missing: u32,
    shortest: f64,
}

impl CollectiveTimes {
    /// Takes operations that were read at `now`.
    pub(crate) fn take(&mut self, operations: &[Operation], now: Timestamp) {
        for operation in operations {
            self.take_one(operation, now);
        }
    }

    /// Those within one host cross no network, and sends and receives have no number by which their ends could be matched.
    fn take_one(&mut self, operation: &Operation, now: Timestamp) {
        let Operation { member, number, .. } = operation;
        let Some(number) = number.filter(|_| member.hosts > 1 && member.ranks > 1) else {
            return;
        };
        let known = self
            .communicators
            .entry(Arc::clone(&member.communicator))
            .or_insert_with(|| Communicator {
                host: Arc::clone(&operation.process.host),
                open: BTreeMap::new(),
                times: BTreeMap::new(),
                seen: now,
            });
        known.seen = now;
        let key = (number, Arc::clone(&operation.name));
        let open = known.open.entry(key.clone()).or_insert(Open {
            missing: member.ranks,
            shortest: f64::INFINITY,
        });
        open.missing -= 1;
        open.shortest = open.shortest.min(operation.seconds);
        if open.missing == 0 {
            let seconds = open.shortest;
            known.open.remove(&key);
            let kind = (Arc::clone(&operation.name), operation.bytes);
            if known.times.len() < MOST_KINDS || known.times.contains_key(&kind) {
                known.times.entry(kind).or_default().push(seconds);
            }
        } else if known.open.len() > MOST_OPEN {
            known.open.pop_first();
        }
    }

    /// Tails of all jobs, by job; of each, the kinds that take most time first.
    pub(crate) fn tick(
        &mut self,
        history: &History,
        jobs: &Jobs,
        now: Timestamp,
    ) -> Arc<Vec<CollectiveTail>> {
        let is_due = |last: Timestamp| now.seconds_since(last) >= EVERY_SECONDS;
        if self.computed.is_none_or(is_due) {
            self.computed = Some(now);
            self.communicators
                .retain(|_, known| now.seconds_since(known.seen) <= FORGOTTEN_SECONDS);
            self.tails = Arc::new(self.tails(history, jobs));
        }
        Arc::clone(&self.tails)
    }

    fn tails(&self, history: &History, jobs: &Jobs) -> Vec<CollectiveTail> {
        let mut by_job: BTreeMap<JobName, BTreeMap<Kind, CollectiveTail>> = BTreeMap::new();
        for known in self.communicators.values() {
            let Some((node, _)) = node_of(&known.host, history) else {
                continue;
            };
            let mut on_node = jobs.of_node(&node);
            let (Some(job), None) = (on_node.next(), on_node.next()) else {
                continue;
            };
            let kinds = by_job.entry(Arc::clone(&job.name)).or_default();
            for (kind, times) in &known.times {
                let tail = CollectiveTail::of(&job.name, kind, times);
                match kinds.get_mut(kind) {
                    Some(other) => other.join(tail),
                    None => drop(kinds.insert(kind.clone(), tail)),
                }
            }
        }
        let listed = by_job.into_values().flat_map(|kinds| {
            let mut tails: Vec<CollectiveTail> = kinds.into_values().collect();
            tails.sort_by(|a, b| b.total_seconds().total_cmp(&a.total_seconds()));
            tails.truncate(MOST_LISTED);
            tails
        });
        listed.collect()
    }
}

impl CollectiveTail {
    fn of(job: &JobName, (collective, bytes): &Kind, times: &StepTimes) -> Self {
        let quantiles = QUANTILES
            .iter()
            .filter_map(|(q, label)| Some((*label, times.quantile(*q)?)));
        Self {
            job: Arc::clone(job),
            collective: Arc::clone(collective),
            bytes: *bytes,
            count: times.steps(),
            quantiles: quantiles.collect(),
            excess_seconds: times.excess_seconds(),
        }
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.excess_seconds = self.excess_seconds.max(other.excess_seconds);
        if other.quantiles.get("0.99") > self.quantiles.get("0.99") {
            self.quantiles = other.quantiles;
        }
    }

    fn total_seconds(&self) -> f64 {
        self.count as f64 * self.quantiles.get("0.5").copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::job::JobTable;
    use crate::jobs::straggler::{Membership, Process};

    fn operation(number: u64, rank: u32, seconds: f64) -> Operation {
        Operation {
            process: Process {
                host: format!("n{rank}").into(),
                pid: 1,
            },
            member: Membership {
                communicator: "c".into(),
                name: None,
                rank,
                ranks: 2,
                hosts: 2,
            },
            name: "AllReduce".into(),
            number: Some(number),
            bytes: 1 << 20,
            seconds,
            begin: None,
            end: number as f64,
        }
    }

    fn history() -> History {
        let mut history = History::default();
        let page = "railscope_workload_info{gpu=\"0\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"4711\"} 1\n";
        for name in ["n0", "n1"] {
            history
                .node_mut(&name.parse().expect(name))
                .ingest(page, Timestamp(1_000_000));
        }
        history
    }

    #[test]
    fn the_rank_that_comes_last_tells_the_time_of_the_transfer() {
        let history = history();
        let now = Timestamp(1_001_000);
        let jobs = JobTable::default().refresh(&history, now);
        let mut times = CollectiveTimes::default();
        for number in 0..100 {
            // One rank waits for the other alternately, every tenth transfer takes 50 %
            // longer.
            let transfer = if number % 10 == 9 { 0.015 } else { 0.010 };
            let waits = transfer + 0.3;
            let own = if number % 2 == 0 {
                [transfer, waits]
            } else {
                [waits, transfer]
            };
            for (rank, seconds) in (0..).zip(own) {
                times.take_one(&operation(number, rank, seconds), now);
            }
        }
        // The other rank has not reported yet.
        times.take_one(&operation(100, 0, 9.0), now);
        let tails = times.tick(&history, &jobs, now);
        let [tail] = &tails[..] else {
            panic!("one kind of one job: {tails:?}");
        };
        assert_eq!(
            (&*tail.job, &*tail.collective, tail.count),
            ("4711", "AllReduce", 100)
        );
        assert_eq!(
            (tail.quantiles["0.5"], tail.quantiles["0.99"]),
            (0.010, 0.015)
        );
        // Of the ten long ones, seven came after the median was known.
        assert!((tail.excess_seconds - 7.0 * 0.005).abs() < 1e-9, "{tail:?}");
    }

    #[test]
    fn kinds_with_the_same_numbers_have_times_of_their_own() {
        let history = history();
        let now = Timestamp(1_001_000);
        let jobs = JobTable::default().refresh(&history, now);
        let mut times = CollectiveTimes::default();
        for number in 0..100 {
            for (rank, waited) in [(0, 0.3), (1, 0.0)] {
                for (kind, transfer) in [("AllGather", 0.010), ("ReduceScatter", 0.020)] {
                    let mut one = operation(number, rank, transfer + waited);
                    one.name = kind.into();
                    times.take_one(&one, now);
                }
            }
        }
        let tails = times.tick(&history, &jobs, now);
        let tails = tails.iter().map(|tail| {
            let median = tail.quantiles["0.5"];
            (&*tail.collective, tail.count, median)
        });
        assert_eq!(
            tails.collect::<Vec<_>>(),
            [("ReduceScatter", 100, 0.020), ("AllGather", 100, 0.010)]
        );
    }

    #[test]
    fn what_never_ends_is_bounded_and_forgotten() {
        let history = history();
        let jobs = JobTable::default().refresh(&history, Timestamp(1_001_000));
        let mut times = CollectiveTimes::default();
        for number in 0..20_000 {
            times.take_one(&operation(number, 0, 1.0), Timestamp(1_001_000));
        }
        assert!(times.communicators["c"].open.len() <= MOST_OPEN);
        for bytes in 0..100 {
            for rank in 0..2 {
                let mut one = operation(30_000 + bytes, rank, 1.0);
                one.bytes = bytes;
                times.take_one(&one, Timestamp(1_001_000));
            }
        }
        assert_eq!(times.communicators["c"].times.len(), MOST_KINDS);
        assert_eq!(
            times.tick(&history, &jobs, Timestamp(1_001_000)).len(),
            MOST_LISTED
        );
        assert!(times.tick(&history, &jobs, Timestamp(1_700_000)).is_empty());
    }
}

//! The throughput of every job: what its GPUs and cables allow, and what other jobs leave of them.

use crate::traffic::fairness::{Stream, max_min};
use crate::traffic::pfc::ACK_TIMEOUT_SECONDS;
use crate::traffic::router::{Lane, summed};
use crate::work::job::Pace;
use crate::work::workload::{Carrier, JobSpec, Lossy, streams};

/// A job's collectives as streams over the current fabric.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Traffic {
    /// By collective.
    pub(crate) streams: Vec<Vec<Stream>>,
    /// By collective: NICs whose packets are lost.
    pub(crate) lossy: Vec<Vec<Lossy>>,
}

impl Traffic {
    pub(crate) fn of(job: &JobSpec, carrier: &Carrier<'_>) -> Self {
        let collectives = job.workload.collectives.iter();
        let (streams, lossy) = collectives
            .map(|collective| streams(job, collective.pattern, carrier))
            .unzip();
        Self { streams, lossy }
    }
}

/// A job as it competes with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contender<'a> {
    pub(crate) job: &'a JobSpec,
    pub(crate) traffic: &'a Traffic,
    /// Time until its slowest GPU has computed.
    pub(crate) compute_seconds: f64,
}

/// Throughput of each job, given the bytes per second of each lane.
///
/// A collective takes as long as its slowest stream. Alone, a job has all of the fabric; while others
/// communicate too it has its max-min share of it. How often that is, is the probability that a job with
/// which it shares a full lane is in its collectives.
pub(crate) fn paces(jobs: &[Contender<'_>], capacity: &[f64]) -> Vec<Pace> {
    let alone = jobs.iter().map(|contender| {
        let collectives = contender.job.workload.collectives.iter();
        let seconds = collectives
            .zip(
                contender
                    .traffic
                    .streams
                    .iter()
                    .zip(&contender.traffic.lossy),
            )
            .map(|(collective, (streams, lossy))| {
                slowest(collective.bytes, &max_min(capacity, streams)) + time_outs(lossy)
            });
        let overlap = contender.job.workload.overlap;
        Pace::new(contender.compute_seconds, seconds, overlap)
    });
    let alone: Vec<Pace> = alone.collect();
    if jobs.len() < 2 {
        return alone;
    }
    let rivals = jobs.iter().zip(&alone);
    let rivals: Vec<Rival<'_>> = rivals.map(|(job, pace)| Rival::of(*job, pace)).collect();
    let together = all_at_once(&rivals, capacity);
    let overlap = |one: usize| jobs[one].job.workload.overlap;
    let meet = |(one, own): (usize, &Pace)| {
        let others = rivals.iter().enumerate().filter(|(other, _)| *other != one);
        let undisturbed: f64 = others
            .filter(|(_, other)| rivals[one].shares_a_full_lane(other, capacity))
            .map(|(_, other)| 1.0 - other.communicating)
            .product();
        let stretch = 1.0 + (1.0 - undisturbed) * (together[one] - 1.0).max(0.0);
        let collectives = own.collectives().iter().map(|seconds| seconds * stretch);
        Pace::new(own.compute_seconds(), collectives, overlap(one))
    };
    alone.iter().enumerate().map(meet).collect()
}

/// Time that a collective takes: that of its slowest stream.
fn slowest(bytes: f64, rates: &[f64]) -> f64 {
    rates.iter().map(|rate| bytes / rate).fold(0.0, f64::max)
}

/// Time that a collective waits for replies that never come: rarely, but then all of its job does.
fn time_outs(lossy: &[Lossy]) -> f64 {
    let none: f64 = lossy.iter().map(|lossy| 1.0 - lossy.tail).product();
    (1.0 - none) * ACK_TIMEOUT_SECONDS
}

/// A job that may compete with others: its longest collective, with all of the fabric for itself.
struct Rival<'a> {
    streams: &'a [Stream],
    bytes: f64,
    /// Length of the collective; zero if the job has none, or it is stalled.
    seconds: f64,
    /// Share of the time that the job spends in collectives.
    communicating: f64,
    /// Bytes per second on each lane in the collective, by lane.
    load: Vec<(Lane, f64)>,
}

impl<'a> Rival<'a> {
    fn of(contender: Contender<'a>, pace: &Pace) -> Self {
        let Contender { job, traffic, .. } = contender;
        let seconds = pace.collectives();
        let longest = (0..seconds.len())
            .filter(|at| pace.step_seconds().is_some() && seconds[*at] > 0.0)
            .max_by(|a, b| seconds[*a].total_cmp(&seconds[*b]));
        let Some(at) = longest else {
            return Self {
                streams: &[],
                bytes: 0.0,
                seconds: 0.0,
                communicating: 0.0,
                load: Vec::new(),
            };
        };
        let bytes = job.workload.collectives[at].bytes;
        let all: f64 = seconds.iter().sum();
        let rate = bytes / seconds[at];
        let used = traffic.streams[at].iter().flat_map(|stream| &stream.use_of);
        Self {
            streams: &traffic.streams[at],
            bytes,
            seconds: seconds[at],
            // What is overlapped with compute delays others too.
            communicating: (all / (pace.exposed_seconds() + pace.compute_seconds())).min(1.0),
            load: summed(used.map(|(lane, share)| (*lane, share * rate)).collect()),
        }
    }

    fn shares_a_full_lane(&self, other: &Self, capacity: &[f64]) -> bool {
        let mut theirs = other.load.iter().peekable();
        self.load.iter().any(|(lane, load)| {
            while theirs.next_if(|(their, _)| their < lane).is_some() {}
            theirs
                .next_if(|(their, _)| their == lane)
                .is_some_and(|(_, other)| load + other > capacity[lane.index()] * 1.000_001)
        })
    }
}

/// Factor by which each job's collective takes longer while all jobs are in theirs.
fn all_at_once(rivals: &[Rival<'_>], capacity: &[f64]) -> Vec<f64> {
    let streams: Vec<Stream> = rivals
        .iter()
        .flat_map(|rival| rival.streams)
        .cloned()
        .collect();
    let rates = max_min(capacity, &streams);
    let mut rates = rates.as_slice();
    let stretch = |rival: &Rival<'_>| {
        let (own, others) = rates.split_at(rival.streams.len());
        rates = others;
        if rival.seconds > 0.0 {
            slowest(rival.bytes, own) / rival.seconds
        } else {
            1.0
        }
    };
    rivals.iter().map(stretch).collect()
}

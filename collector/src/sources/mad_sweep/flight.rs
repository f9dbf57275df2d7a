//! Requests in flight: a window over all devices, a smaller one for each, a rate, retries and timeouts.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::mad::{self, Attribute, Bytes, Destination, MAD_BYTES};
use super::transport::{Received, Transport};
use super::{Settings, Stats};

/// Longest wait for one MAD: then deadlines are checked again.
const TICK: Duration = Duration::from_millis(20);
/// Bits of a transaction that report in which place of the window its question is: enough for
/// [`super::MAX_WINDOW`].
const PLACE_BITS: u32 = 7;

/// A question to a device, before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    /// The device, or the one in front of it, that this keeps busy.
    pub(super) lane: u32,
    /// The device, as the sweep counts them.
    pub(super) node: u32,
    /// Its port, where the question is about one or leaves by one.
    pub(super) port: u8,
    /// The attribute requested.
    pub(super) attribute: Attribute,
    /// Attempts without a reply.
    tries: u32,
}

impl Job {
    pub(super) fn new(lane: u32, node: u32, port: u8, attribute: Attribute) -> Self {
        Self {
            lane,
            node,
            port,
            attribute,
            tries: 0,
        }
    }
}

/// Why a request has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No reply after all retries.
    Silent,
    /// The device answered that it does not do this.
    Refused,
}

/// The transport that sends requests and reads replies.
pub(super) trait Work {
    /// Where a request goes; none if it is no longer needed.
    fn destination(&self, job: &Job) -> Option<Destination>;
    /// Processes a reply, and adds requests.
    fn answered(&mut self, job: &Job, mad: &Bytes, queue: &mut Queue);
    /// Records that there is no reply.
    fn failed(&mut self, job: &Job, why: Failure, queue: &mut Queue);
}

#[derive(Debug, Default)]
struct Lane {
    pending: VecDeque<Job>,
    flying: usize,
    is_ready: bool,
}

/// Questions that wait, device by device, so that a busy device delays no other.
#[derive(Debug)]
pub(super) struct Queue {
    lanes: Vec<Lane>,
    /// Lanes with a question that may go.
    ready: VecDeque<u32>,
    per_lane: usize,
}

impl Queue {
    pub(super) fn new(per_lane: usize) -> Self {
        Self {
            lanes: Vec::new(),
            ready: VecDeque::new(),
            per_lane,
        }
    }

    /// Adds a question behind those of its lane.
    pub(super) fn push(&mut self, job: Job) {
        self.lane(job.lane).pending.push_back(job);
        self.wake(job.lane);
    }

    fn push_front(&mut self, job: Job) {
        self.lane(job.lane).pending.push_front(job);
        self.wake(job.lane);
    }

    fn lane(&mut self, lane: u32) -> &mut Lane {
        let index = lane as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, Lane::default);
        }
        &mut self.lanes[index]
    }

    fn wake(&mut self, index: u32) {
        let per_lane = self.per_lane;
        let lane = self.lane(index);
        if !lane.is_ready && lane.flying < per_lane && !lane.pending.is_empty() {
            lane.is_ready = true;
            self.ready.push_back(index);
        }
    }

    fn next(&mut self) -> Option<Job> {
        let index = self.ready.pop_front()?;
        let lane = self.lane(index);
        lane.is_ready = false;
        let job = lane.pending.pop_front()?;
        lane.flying += 1;
        self.wake(index);
        Some(job)
    }

    fn landed(&mut self, index: u32) {
        self.lane(index).flying -= 1;
        self.wake(index);
    }

    fn drain(&mut self) -> Vec<Job> {
        self.ready.clear();
        let lanes = self.lanes.iter_mut();
        lanes
            .flat_map(|lane| {
                lane.is_ready = false;
                std::mem::take(&mut lane.pending)
            })
            .collect()
    }
}

#[derive(Debug, Clone, Copy)]
struct Flying {
    job: Job,
    transaction: u32,
}

/// The window.
pub(super) struct Flight<'a> {
    transport: &'a mut dyn Transport,
    settings: &'a Settings,
    pub(super) stats: &'a mut Stats,
    places: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// Transactions by deadline, in order.
    deadlines: VecDeque<(Instant, u32)>,
    sent: u32,
    /// MADs that may be sent now, by the rate; up to a whole window may have accumulated.
    credit: f64,
    credited: Instant,
    ends: Instant,
}

impl<'a> Flight<'a> {
    pub(super) fn new(
        transport: &'a mut dyn Transport,
        settings: &'a Settings,
        stats: &'a mut Stats,
        begun: Instant,
    ) -> Self {
        let window = settings.window.clamp(1, super::MAX_WINDOW);
        Self {
            transport,
            settings,
            stats,
            places: vec![None; window],
            free: (0..window).rev().collect(),
            deadlines: VecDeque::new(),
            sent: 0,
            credit: window as f64,
            credited: begun,
            ends: begun + settings.limit,
        }
    }

    /// Sends requests until none is left, or until the time limit: requests in flight then have failed.
    ///
    /// # Errors
    /// The transport broke.
    pub(super) fn run(&mut self, work: &mut impl Work, queue: &mut Queue) -> io::Result<()> {
        let mut mad = [0; MAD_BYTES];
        loop {
            let now = Instant::now();
            if now >= self.ends {
                self.abandon(work, queue);
                return Ok(());
            }
            let waits_for_credit = self.fill(work, queue, now)?;
            if self.free.len() == self.places.len() && !waits_for_credit {
                return Ok(());
            }
            let wait = if waits_for_credit {
                Duration::from_millis(1)
            } else {
                TICK
            };
            match self.transport.receive(&mut mad, wait)? {
                Received::Answer => self.land(work, queue, &mad),
                Received::TimedOut => {
                    if let Some(job) = self.take(mad::transaction(&mad)) {
                        self.repeat(job, work, queue);
                    }
                }
                Received::Nothing => {}
            }
            self.look_at_deadlines(work, queue, now);
        }
    }

    /// Sends what may go now. Returns whether only the rate holds back more.
    fn fill(&mut self, work: &mut impl Work, queue: &mut Queue, now: Instant) -> io::Result<bool> {
        if let Some(rate) = self.settings.mads_per_second {
            let earned = now.duration_since(self.credited).as_secs_f64() * f64::from(rate.get());
            self.credit = (self.credit + earned).min(self.places.len() as f64);
            self.credited = now;
        }
        while !self.free.is_empty() {
            if self.settings.mads_per_second.is_some() && self.credit < 1.0 {
                return Ok(!queue.ready.is_empty());
            }
            let Some(job) = queue.next() else { break };
            let Some(destination) = work.destination(&job) else {
                queue.landed(job.lane);
                continue;
            };
            let Some(place) = self.free.pop() else { break };
            self.sent = self.sent.wrapping_add(1);
            let transaction = self.sent << PLACE_BITS | place as u32;
            let question = mad::get(&destination, job.attribute, transaction);
            self.transport.send(&destination, &question)?;
            self.stats.sent += 1;
            self.credit -= 1.0;
            self.places[place] = Some(Flying { job, transaction });
            // The transport's own timeout should come first.
            let patience = self.settings.timeout + 2 * TICK;
            self.deadlines.push_back((now + patience, transaction));
        }
        Ok(false)
    }

    /// The request with this transaction, if it is in flight; its slot is free then.
    fn take(&mut self, transaction: u32) -> Option<Job> {
        let place = (transaction & ((1 << PLACE_BITS) - 1)) as usize;
        let flying = self.places.get_mut(place)?;
        let found = (*flying).filter(|flying| flying.transaction == transaction)?;
        *flying = None;
        self.free.push(place);
        Some(found.job)
    }

    fn land(&mut self, work: &mut impl Work, queue: &mut Queue, mad: &Bytes) {
        let transaction = mad::transaction(mad);
        let place = (transaction & ((1 << PLACE_BITS) - 1)) as usize;
        let expected = self.places.get(place).copied().flatten().filter(|flying| {
            flying.transaction == transaction && mad::answers(mad, flying.job.attribute)
        });
        if expected.is_none() {
            self.stats.stray += 1; // late, or of no request
            return;
        }
        let Some(job) = self.take(transaction) else {
            return;
        };
        match mad::status(mad) {
            0 => {
                self.stats.answered += 1;
                work.answered(&job, mad, queue);
                queue.landed(job.lane);
            }
            mad::STATUS_BUSY => self.repeat(job, work, queue),
            _ => {
                self.stats.refused += 1;
                work.failed(&job, Failure::Refused, queue);
                queue.landed(job.lane);
            }
        }
    }

    /// Retries, unless the attempts are used up.
    fn repeat(&mut self, mut job: Job, work: &mut impl Work, queue: &mut Queue) {
        if job.tries < self.settings.retries {
            job.tries += 1;
            self.stats.repeated += 1;
            queue.push_front(job);
        } else {
            self.stats.unanswered += 1;
            work.failed(&job, Failure::Silent, queue);
        }
        queue.landed(job.lane);
    }

    fn look_at_deadlines(&mut self, work: &mut impl Work, queue: &mut Queue, now: Instant) {
        while let Some((deadline, transaction)) = self.deadlines.front().copied() {
            let place = (transaction & ((1 << PLACE_BITS) - 1)) as usize;
            let open = self.places[place].is_some_and(|open| open.transaction == transaction);
            if open && deadline > now {
                return;
            }
            self.deadlines.pop_front();
            if let Some(job) = self.take(transaction) {
                self.repeat(job, work, queue);
            }
        }
    }

    fn abandon(&mut self, work: &mut impl Work, queue: &mut Queue) {
        let flying: Vec<Job> = self.places.iter().flatten().map(|open| open.job).collect();
        for job in flying {
            self.stats.unanswered += 1;
            work.failed(&job, Failure::Silent, queue);
        }
        // Follow-up requests of these failures are not sent either.
        for job in queue.drain() {
            self.stats.not_asked += 1;
            work.failed(&job, Failure::Silent, queue);
        }
    }
}

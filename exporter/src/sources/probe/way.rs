//! One flow with its socket: sends what is due, reads what arrived, traces its hops.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use railscope_model::path_class::PathClass;
use railscope_model::rate_limit::Bucket;
use rustix::io::Errno;

use super::control::Report;
use super::flow::{Counts, Flow, Limits, Now, Outcome};
use super::port;
use super::socket::{BATCH, Datagram, Inbox, Queue, Socket};
use super::trace::Trace;
use super::wire::{Packet, Question, quoted_hop};
use crate::sources::clock::SECOND;
use crate::sources::sysfs::Miss;

/// How often to trace the hops of a flow again: paths change when links do, and each trace costs routers a reply by
/// their slow path.
const TRACE_AGAIN: u64 = 300 * SECOND;
/// The same after it lost a probe: that may be because its path is another now.
const TRACE_AFTER_LOSS: u64 = 60 * SECOND;
/// How often to visit a flow whose hops are being traced.
const TRACE_VISIT: u64 = SECOND / 10;
/// How long to wait before a socket is opened again.
const REOPEN: u64 = 5 * SECOND;
/// Sends in a row that failed, after which the socket is opened again: its interface may be another by
/// now.
const FAILURES: u32 = 3;
/// Source ports that are tried for one flow.
const PORTS: usize = 16;
/// Read calls per visit, so that a flooded flow does not delay the others.
const MOST_CALLS: usize = 16;

/// Which flow it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Our NIC, as the list names it.
    pub device: String,
    /// The other node.
    pub peer_node: String,
    /// Its NIC.
    pub peer_device: String,
    /// Number of the source port, from 0.
    pub flow: u8,
}

/// From where to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    pub interface: String,
    /// Whether the interface is a NIC that can timestamp every packet.
    pub stamps_all: bool,
    pub local: IpAddr,
    pub peer: SocketAddr,
    pub dscp: u8,
}

/// A flow that a list requests.
#[derive(Debug)]
pub(super) struct Wanted {
    pub key: FlowKey,
    pub path_class: PathClass,
    /// None, and why, where it cannot be sent.
    pub ends: Result<Ends, Miss>,
}

/// What all flows of a node share while they are visited.
pub(super) struct Common<'a> {
    pub now: Now,
    pub token: u64,
    pub limits: Limits,
    pub interval: u64,
    /// A number between 0 and 1, another each time.
    pub random: f64,
    pub inbox: &'a mut Inbox,
    /// Packets that trace hops.
    pub hops: &'a mut Bucket,
    /// Source ports of all flows.
    pub ports: &'a mut BTreeSet<u16>,
}

/// What one visit has found.
#[derive(Debug, Default)]
pub(super) struct Visit {
    pub lost: u64,
    pub answered: Vec<Option<u64>>,
    pub unparsed: u64,
}

/// A flow and its socket.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) key: Arc<FlowKey>,
    pub(super) hops: Arc<[(u8, IpAddr)]>,
    /// How far apart its two ends are.
    pub(super) path_class: PathClass,
    /// Why it could not send, or has no socket, when it was last visited.
    pub(super) miss: Option<Miss>,
    ends: Result<Ends, Miss>,
    flow: Flow,
    socket: Option<Socket>,
    port: Option<u16>,
    /// Datagrams that the socket has sent since they are numbered.
    sent: u32,
    failures: u32,
    reopen_at: u64,
    due: u64,
    trace: Option<Trace>,
    trace_at: u64,
    /// When its hops were last traced.
    traced_at: u64,
    /// When to visit it next, steady clock.
    pub(super) wake: u64,
}

impl Way {
    /// A flow that begins within one interval from now, where its name puts it.
    pub(super) fn new(wanted: Wanted, now: u64, interval: u64) -> Self {
        let Wanted {
            key,
            path_class,
            ends,
        } = wanted;
        let number = key.flow.to_string();
        let place = port::hash(&[&number, &key.peer_device, &key.peer_node, &key.device]);
        let due = now + place % interval.max(1);
        Self {
            key: Arc::new(key),
            hops: Arc::default(),
            path_class,
            miss: ends.as_ref().err().copied(),
            ends,
            flow: Flow::default(),
            socket: None,
            port: None,
            sent: 0,
            failures: 0,
            reopen_at: now,
            due,
            trace: None,
            trace_at: now,
            traced_at: now,
            wake: due,
        }
    }

    /// What became of its probes.
    pub(super) fn counts(&self) -> Counts {
        self.flow.counts()
    }

    /// Returns its source port.
    pub(super) fn leave(&mut self, ports: &mut BTreeSet<u16>) {
        self.socket = None;
        if let Some(port) = self.port.take() {
            ports.remove(&port);
        }
    }

    /// Sets other ends, if they differ. Probes in flight between the old ones are not
    /// counted.
    pub(super) fn join(&mut self, ends: Result<Ends, Miss>, now: u64) {
        if self.ends != ends {
            self.miss = ends.as_ref().err().copied();
            self.ends = ends;
            self.socket = None;
            self.flow.forget();
            self.reopen_at = now;
            self.trace = None;
            self.trace_at = now;
        }
    }

    /// Reads what arrived, gives up what is late, sends what is due.
    pub(super) fn visit(&mut self, common: &mut Common<'_>) -> Visit {
        let mut visit = Visit::default();
        let opened = self.reopen(common);
        self.miss = opened.err();
        if let Some(socket) = self.socket.take() {
            self.take_in(&socket, Queue::Errors, common, &mut visit);
            self.take_in(&socket, Queue::Arrived, common, &mut visit);
            self.socket = Some(socket);
        }
        visit.lost += self.flow.give_up(common.now, common.limits);
        if visit.lost > 0 {
            self.trace_at = self.trace_at.min(self.traced_at + TRACE_AFTER_LOSS);
        }
        if common.now.steady >= self.due {
            self.ask(common);
            // 10 % more or less, so that flows of many nodes do not march in step.
            let interval = common.interval as f64 * (0.9 + 0.2 * common.random);
            self.due = (self.due + interval as u64).max(common.now.steady);
        }
        self.look(common);
        self.wake = self.due;
        if let Some(deadline) = self.flow.deadline(common.limits) {
            self.wake = self.wake.min(deadline + 1);
        }
        if self.trace.is_some() {
            self.wake = self.wake.min(common.now.steady + TRACE_VISIT);
        }
        visit
    }

    /// Opens the socket if there is none and it is due. Returns why there is none.
    fn reopen(&mut self, common: &mut Common<'_>) -> Result<(), Miss> {
        if self.socket.is_some() {
            return Ok(());
        }
        let ends = self.ends.as_ref().map_err(|miss| *miss)?;
        if common.now.steady < self.reopen_at {
            return Err(Miss::Failed);
        }
        self.reopen_at = common.now.steady + REOPEN;
        self.sent = 0;
        self.failures = 0;
        if let Some(port) = self.port.take() {
            common.ports.remove(&port);
        }
        let number = self.key.flow.to_string();
        let FlowKey {
            device,
            peer_node,
            peer_device,
            ..
        } = &*self.key;
        let words = [device.as_str(), peer_node, peer_device, &number];
        let ports: Vec<_> = port::candidates(&words, common.ports).take(PORTS).collect();
        let mut miss = Miss::Failed;
        for port in ports {
            let local = SocketAddr::new(ends.local, port);
            match Socket::asking(
                &ends.interface,
                ends.stamps_all,
                local,
                ends.peer,
                ends.dscp,
            ) {
                Ok(socket) => {
                    common.ports.insert(port);
                    self.port = Some(port);
                    self.socket = Some(socket);
                    return Ok(());
                }
                Err(Errno::ADDRINUSE) => {}
                Err(other) => {
                    tracing::debug!(device, peer_node, %other, "no socket to probe with");
                    miss = other.into();
                    break;
                }
            }
        }
        Err(miss)
    }

    fn take_in(
        &mut self,
        socket: &Socket,
        queue: Queue,
        common: &mut Common<'_>,
        visit: &mut Visit,
    ) {
        for _ in 0..MOST_CALLS {
            // What routers report about earlier datagrams is an error of the next call, once; the queue reports
            // it, too.
            let received = socket.receive(queue, common.inbox).unwrap_or(BATCH);
            for datagram in common.inbox.datagrams() {
                let (now, limits, token) = (common.now, common.limits, common.token);
                match queue {
                    Queue::Errors => self.report(&datagram),
                    Queue::Arrived => self.arrived(&datagram, token, now, limits, visit),
                }
            }
            if received < BATCH {
                break;
            }
        }
    }

    fn report(&mut self, datagram: &Datagram<'_>) {
        match datagram.told.report {
            Some(Report::Left(number)) => self.flow.left(number, datagram.told.at),
            Some(Report::Expired(router)) => {
                let quoted = quoted_hop(datagram.bytes);
                // A probe that counts dies only in a loop.
                if quoted != Some(0)
                    && let Some(trace) = &mut self.trace
                {
                    trace.expired(quoted, router);
                }
            }
            Some(Report::Other) | None => {}
        }
    }

    fn arrived(
        &mut self,
        datagram: &Datagram<'_>,
        token: u64,
        now: Now,
        limits: Limits,
        visit: &mut Visit,
    ) {
        let Some(Packet::Answer {
            question,
            residence_nanos,
        }) = Packet::read(datagram.bytes)
        else {
            visit.unparsed += 1;
            return;
        };
        if question.token != token {
            // To the exporter that ran here before.
            return;
        }
        if question.hop > 0 {
            if let Some(trace) = &mut self.trace {
                trace.reached(question.hop);
            }
            return;
        }
        let arrived = datagram.told.at;
        let outcome = self
            .flow
            .answered(question.sequence, arrived, residence_nanos, now, limits);
        match outcome {
            Some(Outcome::Answered(round_trip)) => visit.answered.push(round_trip),
            Some(Outcome::Lost) => visit.lost += 1,
            None => {}
        }
    }

    fn ask(&mut self, common: &Common<'_>) {
        let question = Question {
            token: common.token,
            sequence: self.flow.next(),
            hop: 0,
        };
        match self.send(question, None) {
            Some(Ok((at, number))) => self.flow.asked(at, number),
            Some(Err(miss)) => self.miss = Some(miss),
            None => {}
        }
    }

    /// One packet further in the trace of hops.
    fn look(&mut self, common: &mut Common<'_>) {
        let now = common.now.steady;
        if self.socket.is_none() {
            self.trace = None;
            return;
        }
        if self.trace.is_none() && now >= self.trace_at {
            self.trace = Some(Trace::new());
        }
        let Some(trace) = &mut self.trace else {
            return;
        };
        if let Some(hop) = trace.next(now)
            && common.hops.take(now)
        {
            trace.asked(now);
            let question = Question {
                token: common.token,
                sequence: 0,
                hop,
            };
            if let Some(Err(miss)) = self.send(question, Some(hop)) {
                self.miss = Some(miss);
            }
        }
        let trace = self.trace.as_ref();
        if let Some(found) = trace.and_then(|trace| trace.outcome(&self.hops)) {
            if *self.hops != *found {
                self.hops = found.into();
            }
            let jitter = common.random * (TRACE_AGAIN / 10) as f64;
            self.trace = None;
            self.traced_at = now;
            self.trace_at = now + TRACE_AGAIN + jitter as u64;
        }
    }

    /// Sends; returns the time, and the number of the datagram on the socket. None without a
    /// socket.
    fn send(&mut self, question: Question, hop: Option<u8>) -> Option<Result<(Now, u32), Miss>> {
        let socket = self.socket.as_ref()?;
        let bytes = Packet::Question(question).write();
        let mut last = Errno::IO;
        // The first call may fail with what a router reported about the datagram before.
        for _ in 0..2 {
            let at = super::clock::now();
            match socket.send(&bytes, hop) {
                Ok(()) => {
                    let number = self.sent;
                    self.sent = self.sent.wrapping_add(1);
                    self.failures = 0;
                    return Some(Ok((at, number)));
                }
                Err(error) => last = error,
            }
            self.flow.forget_numbers();
            self.sent = 0;
            if let Err(error) = socket.count_from_zero() {
                last = error;
                break;
            }
        }
        self.failures += 1;
        if self.failures >= FAILURES {
            self.socket = None;
        }
        Some(Err(last.into()))
    }
}

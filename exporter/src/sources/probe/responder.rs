//! Replies to the probes of other nodes, and reports the processing time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use railscope_model::rate_limit::Bucket;

use super::clock;
use super::endpoint::{self, Availability};
use super::rdma::RdmaAccess;
use super::socket::{Datagram, Inbox, Queue, Socket};
use super::tally::Times;
use super::wire::Packet;

/// Replies a second, of all addresses together: eight NICs, each probed by 64 flows ten times a second, are 5,120. More
/// get no reply, so that no sender can keep the node busy with small packets.
pub const MOST_ANSWERS_PER_SECOND: u64 = 20_000;
/// Interfaces whose times are kept apart; a node has some tens at most.
const MOST_INTERFACES: usize = 64;
/// How long to wait for a question before looking whether to end.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait after an error that belongs to no datagram.
const PAUSE: Duration = Duration::from_millis(100);

/// What was answered so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answered {
    /// How long probes spent here, by the index of the interface that they came by; 0 for the rest.
    pub by_interface: BTreeMap<u32, Times>,
    /// Datagrams that are no question.
    pub unparsed: u64,
    /// Questions above [`MOST_ANSWERS_PER_SECOND`].
    pub limited: u64,
    /// Replies that could not be sent, and requests that could not be received.
    pub failed: u64,
}

/// A responder on one or several addresses. Ends when dropped, within half a second.
#[derive(Debug)]
pub struct Responder(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Address of our RDMA prober, if there is one.
    rdma: Option<RdmaAccess>,
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Debug)]
struct State {
    answered: Answered,
    bucket: Bucket,
}

impl Responder {
    /// Listens on these addresses; if some are not available, on the others.
    ///
    /// # Errors
    /// None is available.
    pub fn start(listen: &[SocketAddr], rdma: Option<RdmaAccess>) -> io::Result<Self> {
        Self::start_limited(listen, rdma, MOST_ANSWERS_PER_SECOND)
    }

    fn start_limited(
        listen: &[SocketAddr],
        rdma: Option<RdmaAccess>,
        per_second: u64,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            rdma,
            state: Mutex::new(State {
                answered: Answered::default(),
                bucket: Bucket::new(per_second, clock::now().steady),
            }),
            stop: AtomicBool::new(false),
        });
        let (mut listening, mut failed) = (0, Vec::new());
        for address in listen {
            match Socket::answering(*address, PATIENCE) {
                Ok(socket) => {
                    let shared = Arc::clone(&shared);
                    let thread = thread::Builder::new().name("probe-answer".to_owned());
                    thread.spawn(move || answer_all(&socket, &shared))?;
                    listening += 1;
                }
                Err(error) => failed.push((address, error)),
            }
        }
        match failed.first() {
            Some((_, error)) if listening == 0 => return Err(io::Error::from(*error)),
            None if listening == 0 => return Err(io::ErrorKind::InvalidInput.into()),
            _ => {}
        }
        for (address, error) in failed {
            tracing::warn!(%error, "cannot answer probes on {address}");
        }
        Ok(Self(shared))
    }

    /// What was answered so far.
    pub fn answered(&self) -> Answered {
        lock(&self.0).answered.clone()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_all(socket: &Socket, shared: &Shared) {
    let mut inbox = Inbox::new();
    while !shared.stop.load(Ordering::Acquire) {
        if let Err(error) = socket.receive(Queue::Arrived, &mut inbox) {
            tracing::debug!(%error, "no question received");
            lock(shared).answered.failed += 1;
            thread::sleep(PAUSE);
        }
        for datagram in inbox.datagrams() {
            answer(socket, shared, &datagram);
        }
    }
}

fn answer(socket: &Socket, shared: &Shared, datagram: &Datagram<'_>) {
    let Some(Packet::Question(question)) = Packet::read(datagram.bytes) else {
        if !answer_endpoint(socket, shared, datagram) {
            lock(shared).answered.unparsed += 1;
        }
        return;
    };
    let now = clock::now();
    let mut state = lock(shared);
    if !state.bucket.take(now.steady) {
        state.answered.limited += 1;
        return;
    }
    drop(state);
    // Taken as late as can be: what comes behind it is the driver's.
    let arrived = datagram.told.at.kernel;
    let residence_nanos = arrived.and_then(|at| clock::system().checked_sub(at));
    let bytes = Packet::Answer {
        question,
        residence_nanos,
    };
    let sent = socket.answer(&bytes.write(), datagram);
    let answered = &mut lock(shared).answered;
    match (sent, residence_nanos) {
        // Packets that trace hops are not counted.
        (Ok(()), Some(nanos)) if question.hop == 0 => {
            let interface = datagram.told.to.map_or(0, |(_, interface)| interface);
            let times = &mut answered.by_interface;
            let known = times.len() < MOST_INTERFACES || times.contains_key(&interface);
            let interface = if known { interface } else { 0 };
            times.entry(interface).or_default().note(nanos);
        }
        (Ok(()), _) => {}
        (Err(error), _) => {
            tracing::debug!(%error, "a probe could not be answered");
            answered.failed += 1;
        }
    }
}

/// Reports the address of our RDMA prober; false if the datagram does not request it.
fn answer_endpoint(socket: &Socket, shared: &Shared, datagram: &Datagram<'_>) -> bool {
    let Some(question) = endpoint::Question::read(datagram.bytes) else {
        return false;
    };
    let mut state = lock(shared);
    if !state.bucket.take(clock::now().steady) {
        state.answered.limited += 1;
        return true;
    }
    drop(state);
    let rdma = shared.rdma.as_ref();
    let answer = endpoint::Answer {
        token: question.token,
        sequence: question.sequence,
        availability: rdma.map_or(Availability::Absent, |rdma| {
            rdma.availability(&question.device, Instant::now())
        }),
    };
    if let Err(error) = socket.answer(&answer.write(), datagram) {
        tracing::debug!(%error, "a question for an RDMA prober could not be answered");
        lock(shared).answered.failed += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::wire::{LENGTH, Question};
    use super::*;
    use std::net::UdpSocket;

    const PATIENT: Duration = Duration::from_secs(60);

    fn question(sequence: u64) -> Question {
        Question {
            token: 7,
            sequence,
            hop: 0,
        }
    }

    /// A responder with this limit, and a client of it.
    fn pair(per_second: u64) -> (Responder, UdpSocket) {
        let asking = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        // A port that is free now, and most likely still when it is used.
        let free = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let at = free.local_addr().expect("an address");
        drop(free);
        let responder = Responder::start_limited(&[at], None, per_second).expect("a responder");
        asking.connect(at).expect("connected");
        asking.set_read_timeout(Some(PATIENT)).expect("a timeout");
        (responder, asking)
    }

    #[test]
    fn a_question_is_answered_with_its_length_at_most_and_nothing_else_is() {
        let (responder, asking) = pair(1_000);
        let answer = Packet::Answer {
            question: question(1),
            residence_nanos: None,
        };
        asking.send(b"").expect("sent");
        asking.send(b"who are you?").expect("sent");
        asking.send(&answer.write()).expect("sent");
        let mut long = Packet::Question(question(2)).write().to_vec();
        asking.send(&long[..LENGTH - 1]).expect("sent");
        long.resize(1_400, b'x');
        asking.send(&long).expect("sent");
        let mut bytes = [0; 2_000];
        let length = asking.recv(&mut bytes).expect("an answer");
        assert_eq!(length, LENGTH);
        let Some(Packet::Answer {
            question: answered, ..
        }) = Packet::read(&bytes[..length])
        else {
            panic!("{:?}", &bytes[..length]);
        };
        assert_eq!(answered, question(2));
        assert_eq!(responder.answered().unparsed, 4);
    }

    #[test]
    fn more_questions_than_the_limit_are_dropped_and_counted_and_looks_for_hops_have_no_time() {
        let (responder, asking) = pair(100);
        let begun = Instant::now();
        while responder.answered().limited == 0 {
            assert!(begun.elapsed() < PATIENT, "{:?}", responder.answered());
            for sequence in 0..50 {
                let mut asked = question(sequence);
                asked.hop = 1;
                let bytes = Packet::Question(asked).write();
                asking.send(&bytes).expect("sent");
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(responder.answered().by_interface.is_empty());
    }

    #[test]
    fn an_address_that_cannot_be_had_is_an_error() {
        let nobodys = "192.0.2.1:10661".parse().expect("an address");
        assert!(Responder::start(&[nobodys], None).is_err());
        assert!(Responder::start(&[], None).is_err());
    }
}

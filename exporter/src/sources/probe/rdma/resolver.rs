//! Requests from the exporters of other nodes where their RDMA probers are, and whether these run.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::super::endpoint::{Answer, Availability, Question};
use super::super::wire::LENGTH;
use crate::sources::clock::SECOND;

/// Interval of requests: the prober there may have been restarted.
const ASK_AGAIN: u64 = 10 * SECOND;
/// Timeout of a reply.
const PATIENCE: u64 = SECOND / 2;
/// Consecutive requests without a reply after which the peer counts as silent.
const TRIES: u32 = 3;
/// How long to wait then, and after a reply without an endpoint.
const ASK_LATER: u64 = 2 * SECOND;
/// Datagrams that one step reads.
const MOST_ANSWERS: usize = 1_024;

/// A device of another node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Peer {
    /// Address of its exporter.
    pub(super) address: SocketAddr,
    /// Its name there.
    pub(super) device: String,
    /// Our address that it is requested from.
    pub(super) from: IpAddr,
}

/// What is known of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its exporter has reported it.
    Said(Availability),
    /// It does not reply.
    Silent,
}

#[derive(Debug)]
struct Asking {
    known: Option<Known>,
    sequence: u64,
    asked_at: Option<u64>,
    tries: u32,
    next_at: u64,
}

/// Requests in flight.
#[derive(Debug)]
pub(super) struct Resolver {
    token: u64,
    sequence: u64,
    sockets: BTreeMap<IpAddr, UdpSocket>,
    peers: BTreeMap<Peer, Asking>,
    /// Datagrams that are not replies, since the start.
    pub(super) unparsed: u64,
}

impl Resolver {
    pub(super) fn new(token: u64) -> Self {
        Self {
            token,
            sequence: 0,
            sockets: BTreeMap::new(),
            peers: BTreeMap::new(),
            unparsed: 0,
        }
    }

    /// Sends requests to these peers from now on, and no others.
    pub(super) fn follow(&mut self, peers: impl Iterator<Item = Peer>, now: u64) {
        let mut kept = BTreeMap::new();
        for peer in peers {
            let known = self.peers.remove(&peer).unwrap_or(Asking {
                known: None,
                sequence: 0,
                asked_at: None,
                tries: 0,
                next_at: now,
            });
            kept.insert(peer, known);
        }
        self.peers = kept;
        self.sockets
            .retain(|from, _| self.peers.keys().any(|peer| peer.from == *from));
    }

    /// State of a peer; nothing before its first reply.
    pub(super) fn known(&self, peer: &Peer) -> Option<Known> {
        self.peers.get(peer)?.known
    }

    /// Sends a request at once: probes to it were lost.
    pub(super) fn hurry(&mut self, peer: &Peer, now: u64) {
        if let Some(asking) = self.peers.get_mut(peer)
            && asking.asked_at.is_none()
        {
            asking.next_at = now;
        }
    }

    /// Sends the requests that are due and reads the replies; returns the peers that have replied, or count as silent, since the last step.
    pub(super) fn step(&mut self, now: u64) -> Vec<Peer> {
        let mut settled = self.receive(now);
        let places: Vec<Peer> = self.peers.keys().cloned().collect();
        for peer in places {
            let Some(asking) = self.peers.get_mut(&peer) else {
                continue;
            };
            if let Some(at) = asking.asked_at
                && now >= at + PATIENCE
            {
                asking.asked_at = None;
                asking.next_at = now;
                if asking.tries >= TRIES {
                    asking.known = Some(Known::Silent);
                    asking.tries = 0;
                    asking.next_at = now + ASK_LATER;
                    settled.push(peer.clone());
                }
            }
            if asking.asked_at.is_none() && now >= asking.next_at {
                self.sequence += 1;
                asking.sequence = self.sequence;
                asking.asked_at = Some(now);
                asking.tries += 1;
                let question = Question {
                    token: self.token,
                    sequence: self.sequence,
                    device: peer.device.clone(),
                };
                // A request that cannot be sent has no reply.
                if let Some(bytes) = question.write()
                    && let Ok(socket) = socket(&mut self.sockets, peer.from)
                {
                    socket.send_to(&bytes, peer.address).ok();
                }
            }
        }
        settled
    }

    fn receive(&mut self, now: u64) -> Vec<Peer> {
        let mut heard = Vec::new();
        let mut bytes = [0; LENGTH + 1];
        for (from, socket) in &self.sockets {
            for _ in 0..MOST_ANSWERS {
                let Ok((length, address)) = socket.recv_from(&mut bytes) else {
                    break;
                };
                let answer = bytes.get(..length).and_then(Answer::read);
                let answer = answer.filter(|answer| answer.token == self.token);
                let asking = answer.and_then(|answer| {
                    let mut peers = self.peers.iter_mut();
                    let (peer, asking) = peers.find(|(peer, asking)| {
                        let asked = asking.asked_at.is_some() && asking.sequence == answer.sequence;
                        asked && peer.from == *from && peer.address == address
                    })?;
                    Some((peer, asking, answer.availability))
                });
                let Some((peer, asking, availability)) = asking else {
                    self.unparsed += 1;
                    continue;
                };
                asking.known = Some(Known::Said(availability));
                asking.asked_at = None;
                asking.tries = 0;
                let is_ready = matches!(availability, Availability::Ready(_));
                asking.next_at = now + if is_ready { ASK_AGAIN } else { ASK_LATER };
                heard.push(peer.clone());
            }
        }
        heard
    }
}

/// The socket of one of our addresses.
fn socket(sockets: &mut BTreeMap<IpAddr, UdpSocket>, from: IpAddr) -> io::Result<&UdpSocket> {
    use std::collections::btree_map::Entry;
    match sockets.entry(from) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            let socket = UdpSocket::bind((from, 0))?;
            socket.set_nonblocking(true)?;
            Ok(new.insert(socket))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::rdma_probe::Endpoint;
    use std::net::Ipv4Addr;

    const TOKEN: u64 = 5;

    fn endpoint() -> Endpoint {
        Endpoint {
            gid: "::ffff:10.0.0.2".parse().expect("an address"),
            lid: 0,
            queue_pair: 17,
            queue_key: 1,
        }
    }

    /// A resolver with one peer, and the socket of that peer.
    fn pair() -> (Resolver, Peer, UdpSocket) {
        let answers = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let patience = std::time::Duration::from_secs(60);
        answers.set_read_timeout(Some(patience)).expect("a timeout");
        let peer = Peer {
            address: answers.local_addr().expect("an address"),
            device: "mlx5_0".to_owned(),
            from: Ipv4Addr::LOCALHOST.into(),
        };
        let mut resolver = Resolver::new(TOKEN);
        resolver.follow([peer.clone()].into_iter(), 0);
        (resolver, peer, answers)
    }

    fn asked(answers: &UdpSocket) -> (Question, SocketAddr) {
        let mut bytes = [0; 100];
        let (length, from) = answers.recv_from(&mut bytes).expect("a question");
        (Question::read(&bytes[..length]).expect("a question"), from)
    }

    /// Steps until a peer has answered.
    fn heard(resolver: &mut Resolver, now: u64) -> Vec<Peer> {
        for _ in 0..6_000 {
            let heard = resolver.step(now);
            if !heard.is_empty() {
                return heard;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no peer has answered");
    }

    #[test]
    fn a_peer_is_known_once_it_has_answered_and_only_by_its_answer() {
        let (mut resolver, peer, answers) = pair();
        assert_eq!(resolver.step(0), []);
        let (question, from) = asked(&answers);
        assert_eq!((question.token, &*question.device), (TOKEN, "mlx5_0"));
        let ready = Answer {
            token: TOKEN,
            sequence: question.sequence,
            availability: Availability::Ready(endpoint()),
        };
        let forged = Answer { token: 6, ..ready };
        let old = Answer {
            sequence: ready.sequence + 1,
            ..ready
        };
        for answer in [forged, old, ready, ready] {
            answers.send_to(&answer.write(), from).expect("sent");
        }
        assert_eq!(heard(&mut resolver, 1), std::slice::from_ref(&peer));
        resolver.step(2);
        assert_eq!(resolver.known(&peer), Some(Known::Said(ready.availability)));
        assert_eq!(resolver.unparsed, 3);
        // Requested again after a while, or at once if probes were lost.
        resolver.hurry(&peer, 3);
        resolver.step(3);
        assert!(asked(&answers).0.sequence > question.sequence);
    }

    #[test]
    fn who_does_not_answer_three_times_is_silent() {
        let (mut resolver, peer, _answers) = pair();
        let mut settled = Vec::new();
        for step in 0..=TRIES.into() {
            assert_eq!(resolver.known(&peer), None);
            settled = resolver.step(step * PATIENCE);
        }
        assert_eq!(settled, std::slice::from_ref(&peer));
        assert_eq!(resolver.known(&peer), Some(Known::Silent));
        resolver.follow(std::iter::empty(), 0);
        assert_eq!((resolver.known(&peer), resolver.sockets.len()), (None, 0));
    }
}

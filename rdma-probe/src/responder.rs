//! Answers the questions of other nodes, and says how long they were here. Pure: its caller has the clock and sends the packets.

use std::collections::VecDeque;

use railscope_model::rate_limit::Bucket;

use crate::prober::Moment;
use crate::wire::{Packet, ProbeId, Residence};

/// Answers whose departure is awaited, where the NIC takes timestamps. The oldest is given up for another: its asker then
/// has an answer without a time.
const MOST_AWAITED: usize = 1_024;
/// Times kept between two reports.
const MOST_TIMES: usize = 8_192;

/// An answer that was sent and whose time follows.
#[derive(Debug)]
struct Awaited<A> {
    id: ProbeId,
    to: (A, u32),
    came_nanos: u64,
}

/// A packet to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<A> {
    /// Where to.
    pub to: A,
    /// Key of the queue pair there.
    pub queue_key: u32,
    /// The packet.
    pub packet: Packet,
}

/// The answering side of one device. `A` is an address that answers are sent to.
#[derive(Debug)]
pub struct Responder<A> {
    limit: Bucket,
    awaited: VecDeque<Awaited<A>>,
    counts: Counts,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Nanoseconds that questions spent here. Of a process that was stopped it is how long that was: any of it may be theirs.
    pub responded: Vec<u64>,
    /// Packets that are no question.
    pub unparsed: u64,
    /// Questions above the limit.
    pub limited: u64,
}

impl<A: Clone> Responder<A> {
    /// Answers so many questions a second at most.
    pub fn new(per_second: u64, now_nanos: u64) -> Self {
        Self {
            limit: Bucket::new(per_second, now_nanos),
            awaited: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// A packet came; what to send back, if anything. `now_nanos` is from just before that is sent, `late_nanos` how much
    /// later than it had meant to the process looked.
    pub fn answer(
        &mut self,
        bytes: &[u8],
        to: A,
        moment: Moment,
        (now_nanos, late_nanos): (u64, u64),
    ) -> Option<Reply<A>> {
        let Some(Packet::Question(id, queue_key)) = Packet::read(bytes) else {
            self.counts.unparsed += 1;
            return None;
        };
        if !self.limit.take(now_nanos) {
            self.counts.limited += 1;
            return None;
        }
        let reply = |to, residence| Reply {
            to,
            queue_key,
            packet: Packet::Answer(id, residence),
        };
        if let Some(came_nanos) = moment.nic_nanos {
            if self.awaited.len() == MOST_AWAITED {
                self.awaited.pop_front();
            }
            self.awaited.push_back(Awaited {
                id,
                to: (to.clone(), queue_key),
                came_nanos,
            });
            return Some(reply(to, Residence::Follows));
        }
        let here = now_nanos.saturating_sub(moment.host_nanos);
        if moment.delayed {
            self.note(late_nanos.max(here));
            return Some(reply(to, Residence::Unknown));
        }
        self.note(here);
        Some(reply(to, Residence::Nanos(here)))
    }

    /// An answer left, by the NIC's clock: what to send behind it, if its time is awaited.
    pub fn left(&mut self, id: ProbeId, nic_nanos: Option<u64>) -> Option<Reply<A>> {
        let place = self.awaited.iter().position(|one| one.id == id)?;
        let one = self.awaited.remove(place)?;
        let here = nic_nanos.and_then(|left| left.checked_sub(one.came_nanos));
        let residence = here.map_or(Residence::Unknown, Residence::Nanos);
        if let Some(here) = here {
            self.note(here);
        }
        let (to, queue_key) = one.to;
        Some(Reply {
            to,
            queue_key,
            packet: Packet::Time(one.id, residence),
        })
    }

    /// What was answered since this was last asked.
    pub fn counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn note(&mut self, nanos: u64) {
        if self.counts.responded.len() < MOST_TIMES {
            self.counts.responded.push(nanos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProbeId = ProbeId {
        token: 7,
        sequence: 1,
    };

    const KEY: u32 = 9;

    fn moment(nic_nanos: Option<u64>, delayed: bool) -> Moment {
        Moment {
            host_nanos: 1_000,
            nic_nanos,
            delayed,
        }
    }

    #[test]
    fn an_answer_says_how_long_the_question_was_here_or_that_nobody_knows() {
        let question = Packet::Question(ID, KEY).write();
        for (came, late, expected, responded) in [
            (moment(None, false), 0, Residence::Nanos(400), Some(400)),
            (
                moment(None, true),
                3_000_000,
                Residence::Unknown,
                Some(3_000_000),
            ),
            (moment(Some(5), false), 0, Residence::Follows, None),
            (moment(Some(5), true), 3_000_000, Residence::Follows, None),
        ] {
            let mut responder = Responder::new(1_000, 0);
            let answer = responder.answer(&question, (), came, (1_400, late));
            let reply = Reply {
                to: (),
                queue_key: KEY,
                packet: Packet::Answer(ID, expected),
            };
            assert_eq!(answer, Some(reply), "{came:?}");
            assert_eq!(responder.counts().responded, Vec::from_iter(responded));
        }
    }

    #[test]
    fn where_the_nic_takes_timestamps_the_time_follows_the_answer_once() {
        let mut responder = Responder::new(1_000, 0);
        let question = Packet::Question(ID, KEY).write();
        responder.answer(&question, 'a', moment(Some(5_000), false), (1_400, 0));
        let time = |residence| Reply {
            to: 'a',
            queue_key: KEY,
            packet: Packet::Time(ID, residence),
        };
        let known = time(Residence::Nanos(2_000));
        assert_eq!(responder.left(ID, Some(7_000)), Some(known));
        assert_eq!(responder.left(ID, Some(7_000)), None);
        assert_eq!(responder.counts().responded, [2_000]);
        responder.answer(&question, 'a', moment(Some(5_000), false), (1_400, 0));
        let unknown = time(Residence::Unknown);
        assert_eq!(responder.left(ID, Some(4_000)), Some(unknown));
    }

    #[test]
    fn what_is_no_question_gets_no_answer_and_neither_does_what_is_above_the_limit() {
        let mut responder = Responder::new(10, 0);
        let came = moment(None, false);
        let answer = Packet::Answer(ID, Residence::Nanos(1)).write();
        for bytes in [&b""[..], b"who are you?", &answer, &[0; 4096]] {
            assert_eq!(responder.answer(bytes, (), came, (1_400, 0)), None);
        }
        let question = Packet::Question(ID, KEY).write();
        assert!(responder.answer(&question, (), came, (1_400, 0)).is_some());
        assert_eq!(responder.answer(&question, (), came, (1_500, 0)), None);
        let counts = responder.counts();
        assert_eq!((counts.unparsed, counts.limited), (4, 1));
    }

    #[test]
    fn awaited_departures_are_bounded() {
        let mut responder = Responder::new(1_000_000_000, 0);
        for sequence in 0..2 * MOST_AWAITED as u64 {
            let id = ProbeId { token: 7, sequence };
            let question = Packet::Question(id, KEY).write();
            responder.answer(&question, (), moment(Some(5), false), (sequence * 1_000, 0));
        }
        assert_eq!(responder.awaited.len(), MOST_AWAITED);
        assert_eq!(
            responder.left(
                ProbeId {
                    token: 7,
                    sequence: 0
                },
                Some(9)
            ),
            None
        );
    }
}

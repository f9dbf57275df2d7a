//! Wire format of a probe: a request of 64 bytes, and the same 64 bytes as the reply.
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | `RSPB` |
//! | 4 | version, 1 |
//! | 5 | 1 asks, 2 answers; 3 and 4 ask and answer [where an RDMA prober is](super::endpoint) |
//! | 6 | 0 for a probe that counts; else the time to live that a packet looking for a hop was sent with |
//! | 7 | 0 |
//! | 8-15 | token of the asking process, drawn at its start |
//! | 16-23 | sequence number within the flow |
//! | 24-31 | in an answer: nanoseconds that the question spent in the node that answers; all ones if not known |
//! | 32-63 | 0 |
//!
//! Numbers are in network order. A reply is never longer than its request.

/// Bytes of a probe and of its reply.
pub const LENGTH: usize = 64;

pub(super) const MAGIC: [u8; 4] = *b"RSPB";
pub(super) const VERSION: u8 = 1;
const ASKS: u8 = 1;
const ANSWERS: u8 = 2;
/// In place of a processing time.
const UNKNOWN: u64 = u64::MAX;

/// Sender and sequence of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Of the sending process: distinguishes its replies from those to a previous process.
    pub token: u64,
    /// Within the flow.
    pub sequence: u64,
    /// 0 for a probe that counts; else the time to live of a packet that traces a hop.
    pub hop: u8,
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A request.
    Question(Question),
    /// A reply.
    Answer {
        /// The request.
        question: Question,
        /// Processing time of the responder, nanoseconds; none if that node could not
        /// report it.
        residence_nanos: Option<u64>,
    },
}

impl Packet {
    /// The bytes that are sent.
    pub fn write(&self) -> [u8; LENGTH] {
        let (kind, question, residence) = match self {
            Self::Question(question) => (ASKS, question, 0),
            Self::Answer {
                question,
                residence_nanos,
            } => (ANSWERS, question, residence_nanos.unwrap_or(UNKNOWN)),
        };
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = kind;
        bytes[6] = question.hop;
        bytes[8..16].copy_from_slice(&question.token.to_be_bytes());
        bytes[16..24].copy_from_slice(&question.sequence.to_be_bytes());
        bytes[24..32].copy_from_slice(&residence.to_be_bytes());
        bytes
    }

    /// Reads a datagram; none if it is not a probe of this version. Of a longer one, the known part is read.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < LENGTH {
            return None;
        }
        let (kind, hop) = head(bytes)?;
        let question = Question {
            token: number(bytes, 8)?,
            sequence: number(bytes, 16)?,
            hop,
        };
        match kind {
            ASKS => Some(Self::Question(question)),
            ANSWERS => Some(Self::Answer {
                question,
                residence_nanos: number(bytes, 24).filter(|nanos| *nanos != UNKNOWN),
            }),
            _ => None,
        }
    }
}

/// The time to live that a request of ours was sent with, from what a router quotes of it: 8 bytes are enough, and
/// a router may quote none.
pub fn quoted_hop(bytes: &[u8]) -> Option<u8> {
    head(bytes).and_then(|(kind, hop)| (kind == ASKS).then_some(hop))
}

/// Kind and hop of a packet of this version.
pub(super) fn head(bytes: &[u8]) -> Option<(u8, u8)> {
    let head: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
    let ours = head[..4] == MAGIC && head[4] == VERSION && head[7] == 0;
    ours.then_some((head[5], head[6]))
}

pub(super) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question() -> impl Strategy<Value = Question> {
        (any::<u64>(), any::<u64>(), any::<u8>()).prop_map(|(token, sequence, hop)| Question {
            token,
            sequence,
            hop,
        })
    }

    fn packet() -> impl Strategy<Value = Packet> {
        prop_oneof![
            question().prop_map(Packet::Question),
            (question(), proptest::option::of(0..u64::MAX)).prop_map(|(question, nanos)| {
                Packet::Answer {
                    question,
                    residence_nanos: nanos,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(packet in packet()) {
            prop_assert_eq!(Packet::read(&packet.write()), Some(packet));
        }

        #[test]
        fn a_packet_that_is_cut_short_is_none(packet in packet(), length in 0..LENGTH) {
            prop_assert_eq!(Packet::read(&packet.write()[..length]), None);
        }

        #[test]
        fn whatever_is_read_is_written_alike_but_for_bytes_that_say_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(packet) = Packet::read(&bytes) {
                prop_assert_eq!(&packet.write()[..24], &bytes[..24]);
            }
        }

        #[test]
        fn a_router_that_quotes_eight_bytes_says_which_hop_it_is(question in question(), quoted in 8..LENGTH) {
            let bytes = Packet::Question(question).write();
            prop_assert_eq!(quoted_hop(&bytes[..quoted]), Some(question.hop));
            prop_assert_eq!(quoted_hop(&bytes[..7]), None);
        }
    }

    #[test]
    fn only_this_version_is_read() {
        let question = Question {
            token: 1,
            sequence: 2,
            hop: 0,
        };
        let good = Packet::Question(question).write();
        for (place, byte) in [(0, b'X'), (4, 0), (4, 2), (5, 0), (5, 3), (7, 1)] {
            let mut bytes = good;
            bytes[place] = byte;
            assert_eq!(Packet::read(&bytes), None, "byte {place} is {byte}");
        }
        let answer = Packet::Answer {
            question,
            residence_nanos: Some(5),
        };
        assert_eq!(quoted_hop(&answer.write()), None);
    }
}

//! How one exporter requests the address of another's RDMA prober: by a datagram of 64 bytes to the responder of probes.
//!
//! | bytes | question | answer |
//! |---|---|---|
//! | 0-4 | as of [probes](super::wire) | |
//! | 5 | 3 | 4 |
//! | 6-7 | 0 | 0 |
//! | 8-15 | token of the asking process | the same |
//! | 16-23 | sequence number | the same |
//! | 24-27 | 0 | number of the queue pair |
//! | 28-31 | 0 | key of the queue pair |
//! | 32-47 | name of the RDMA device, filled up with zeros | GID |
//! | 48-49 | more of the name | LID |
//! | 50 | more of the name | 0 ready, 1 no such device or no active port, 2 the prober does not run, or was stopped lately |
//! | 51-63 | more of the name | 0 |
//!
//! A reply is never longer than its request.

use railscope_model::rdma_probe::Endpoint;

use super::wire::{LENGTH, MAGIC, VERSION, head, number};

const ASKS: u8 = 3;
const ANSWERS: u8 = 4;
/// Bytes of a device's name.
const NAME: usize = 32;

/// Where is the prober of this device?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub token: u64,
    pub sequence: u64,
    pub device: String,
}

/// The reply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub token: u64,
    pub sequence: u64,
    pub availability: Availability,
}

/// Whether a device can be probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Availability {
    /// Here.
    Ready(Endpoint),
    /// There is no such device, or none of its ports is active.
    Absent,
    /// The prober does not run, or did not until recently. Probes that it has not replied to are no evidence about the
    /// network.
    Stopped,
}

impl Question {
    /// The bytes that are sent; none if the name is too long for it.
    pub(super) fn write(&self) -> Option<[u8; LENGTH]> {
        let mut bytes = begin(ASKS, self.token, self.sequence);
        let name = self.device.as_bytes();
        if name.len() > NAME || name.contains(&0) {
            return None;
        }
        bytes[LENGTH - NAME..][..name.len()].copy_from_slice(name);
        Some(bytes)
    }

    /// Reads a datagram; none if it is not such a request.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (token, sequence) = read(ASKS, bytes)?;
        let name = bytes.get(LENGTH - NAME..LENGTH)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        Some(Self {
            token,
            sequence,
            device: str::from_utf8(&name[..end]).ok()?.to_owned(),
        })
    }
}

impl Answer {
    /// The bytes that are sent.
    pub(super) fn write(&self) -> [u8; LENGTH] {
        let mut bytes = begin(ANSWERS, self.token, self.sequence);
        match self.availability {
            Availability::Ready(endpoint) => {
                bytes[24..28].copy_from_slice(&endpoint.queue_pair.to_be_bytes());
                bytes[28..32].copy_from_slice(&endpoint.queue_key.to_be_bytes());
                bytes[32..48].copy_from_slice(&endpoint.gid.octets());
                bytes[48..50].copy_from_slice(&endpoint.lid.to_be_bytes());
            }
            Availability::Absent => bytes[50] = 1,
            Availability::Stopped => bytes[50] = 2,
        }
        bytes
    }

    /// Reads a datagram; none if it is not such a reply.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (token, sequence) = read(ANSWERS, bytes)?;
        let gid: [u8; 16] = bytes.get(32..48)?.try_into().ok()?;
        let lid: [u8; 2] = bytes.get(48..50)?.try_into().ok()?;
        let pair = number(bytes, 24)?;
        let availability = match bytes.get(50)? {
            0 => Availability::Ready(Endpoint {
                gid: gid.into(),
                lid: u16::from_be_bytes(lid),
                queue_pair: (pair >> 32) as u32,
                queue_key: pair as u32,
            }),
            1 => Availability::Absent,
            _ => Availability::Stopped,
        };
        Some(Self {
            token,
            sequence,
            availability,
        })
    }
}

fn begin(kind: u8, token: u64, sequence: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = kind;
    bytes[8..16].copy_from_slice(&token.to_be_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_be_bytes());
    bytes
}

fn read(kind: u8, bytes: &[u8]) -> Option<(u64, u64)> {
    let is_it = bytes.len() >= LENGTH && head(bytes)? == (kind, 0);
    is_it.then(|| Some((number(bytes, 8)?, number(bytes, 16)?)))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn availability() -> impl Strategy<Value = Availability> {
        let endpoint = (any::<[u8; 16]>(), any::<u16>(), any::<u32>(), any::<u32>());
        prop_oneof![
            endpoint.prop_map(
                |(gid, lid, queue_pair, queue_key)| Availability::Ready(Endpoint {
                    gid: gid.into(),
                    lid,
                    queue_pair,
                    queue_key,
                })
            ),
            Just(Availability::Absent),
            Just(Availability::Stopped),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(token: u64, sequence: u64, device in "[a-z0-9_]{0,32}", availability in availability()) {
            let question = Question { token, sequence, device };
            let bytes = question.write().expect("a name that fits");
            prop_assert_eq!(Question::read(&bytes), Some(question));
            prop_assert_eq!(Answer::read(&bytes), None);
            let answer = Answer { token, sequence, availability };
            prop_assert_eq!(Answer::read(&answer.write()), Some(answer));
            prop_assert_eq!(Question::read(&answer.write()), None);
        }

        #[test]
        fn whatever_arrives_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            Question::read(&bytes);
            Answer::read(&bytes);
        }
    }

    #[test]
    fn a_name_that_is_too_long_cannot_be_asked_for() {
        let question = |device: &str| Question {
            token: 1,
            sequence: 2,
            device: device.to_owned(),
        };
        assert!(question(&"x".repeat(32)).write().is_some());
        assert!(question(&"x".repeat(33)).write().is_none());
    }
}

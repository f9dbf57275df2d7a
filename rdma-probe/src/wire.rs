//! What a probe looks like on the wire: 64 bytes that ask, and one or two packets of 64 bytes that answer.
//!
//! | bytes | meaning |
//! |---|---|
//! | 0-3 | `RSRP` |
//! | 4 | version, 1 |
//! | 5 | 1 question, 2 answer, 3 time of an answer |
//! | 6-7 | 0 |
//! | 8-15 | token of the asking process, drawn at its start |
//! | 16-23 | sequence number |
//! | 24-31 | nanoseconds that the question spent in the node that answers; all ones: not known; all ones but the last bit: follows in a packet of kind 3 |
//! | 32-35 | in a question: key of the queue pair that the answer goes to |
//! | 36-63 | 0 |
//!
//! Numbers are in network byte order. The scheme is R-Pingmesh's (SIGCOMM 2024): where the NIC takes timestamps, the moment at
//! which the answer left is known only after it left, and is sent behind it.

/// Bytes of every packet.
pub const LENGTH: usize = 64;

const MAGIC: [u8; 4] = *b"RSRP";
const VERSION: u8 = 1;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const TIME: u8 = 3;
const UNKNOWN: u64 = u64::MAX;
const FOLLOWS: u64 = u64::MAX - 1;

/// Which probe: the token of the process that asks, and its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId {
    /// Of the asking process.
    pub token: u64,
    /// Among its probes.
    pub sequence: u64,
}

/// How long a question was in the node that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// So many nanoseconds.
    Nanos(u64),
    /// A separate packet has it.
    Follows,
    /// That node cannot tell: it was stopped or short of CPU.
    Unknown,
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// On its way out, with the key of the queue pair that it came from.
    Question(ProbeId, u32),
    /// On its way back.
    Answer(ProbeId, Residence),
    /// What an answer before it could not say yet: never [`Residence::Follows`].
    Time(ProbeId, Residence),
}

impl Packet {
    /// The bytes that are sent.
    pub fn write(&self) -> [u8; LENGTH] {
        let (kind, id, time, key) = match *self {
            Self::Question(id, key) => (QUESTION, id, 0, key),
            Self::Answer(id, residence) => (ANSWER, id, residence.encoded(), 0),
            Self::Time(id, residence) => (TIME, id, residence.encoded(), 0),
        };
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = kind;
        bytes[8..16].copy_from_slice(&id.token.to_be_bytes());
        bytes[16..24].copy_from_slice(&id.sequence.to_be_bytes());
        bytes[24..32].copy_from_slice(&time.to_be_bytes());
        bytes[32..36].copy_from_slice(&key.to_be_bytes());
        bytes
    }

    /// Reads a packet; none if it is not one of this version, or not exactly as long.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION || bytes[6..8] != [0, 0] {
            return None;
        }
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let id = ProbeId {
            token: number(8)?,
            sequence: number(16)?,
        };
        let residence = Residence::decoded(number(24)?);
        let key = (number(32)? >> 32) as u32;
        match (bytes[5], residence) {
            (QUESTION, _) => Some(Self::Question(id, key)),
            (ANSWER, residence) => Some(Self::Answer(id, residence)),
            (TIME, residence) if residence != Residence::Follows => Some(Self::Time(id, residence)),
            _ => None,
        }
    }
}

impl Residence {
    fn encoded(self) -> u64 {
        match self {
            Self::Nanos(nanos) => nanos.min(FOLLOWS - 1),
            Self::Follows => FOLLOWS,
            Self::Unknown => UNKNOWN,
        }
    }

    fn decoded(number: u64) -> Self {
        match number {
            UNKNOWN => Self::Unknown,
            FOLLOWS => Self::Follows,
            nanos => Self::Nanos(nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet() -> impl Strategy<Value = Packet> {
        let id = (any::<u64>(), any::<u64>());
        let id = id.prop_map(|(token, sequence)| ProbeId { token, sequence });
        let residence = prop_oneof![
            (0..FOLLOWS).prop_map(Residence::Nanos),
            Just(Residence::Unknown)
        ];
        (id, residence, 0..4).prop_map(|(id, residence, kind)| match kind {
            0 => Packet::Question(id, 77),
            1 => Packet::Answer(id, residence),
            2 => Packet::Answer(id, Residence::Follows),
            _ => Packet::Time(id, residence),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(packet in packet()) {
            prop_assert_eq!(Packet::read(&packet.write()), Some(packet));
        }

        #[test]
        fn a_packet_of_another_length_or_head_is_none(packet in packet(), length in 0_usize..200, place in 0_usize..8, by in 1_u8..) {
            let mut bytes = packet.write().to_vec();
            bytes.resize(length, 0);
            prop_assert_eq!(Packet::read(&bytes).is_some(), length == LENGTH);
            let mut bytes = packet.write();
            bytes[place] = bytes[place].wrapping_add(by);
            // Another kind is another packet, not this one.
            prop_assert_ne!(Packet::read(&bytes), Some(packet));
        }

        #[test]
        fn whatever_arrives_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(packet) = Packet::read(&bytes) {
                prop_assert_eq!(&packet.write()[..24], &bytes[..24]);
            }
        }
    }
}

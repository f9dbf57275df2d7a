//! Netlink, as much of it as asking the kernel a question takes: one request, its answers, a time limit.
//!
//! Numbers are in the byte order of the machine, lengths are padded to four bytes (the kernel's
//! `uapi/linux/netlink.h`). What the kernel sends is read within its bounds: bytes that make no sense end
//! the iteration.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with, sockopt,
};

use super::sysfs::Miss;

/// How long the kernel may take for one answer. It answers in microseconds, unless a driver hangs under
/// the lock that all network configuration shares.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest answer that is taken whole; the kernel builds answers to single requests in one page or two.
const LARGEST: usize = 64 * 1024;
/// `sizeof(struct nlmsghdr)`.
const MESSAGE_HEADER: usize = 16;
/// `sizeof(struct nlattr)`.
const ATTRIBUTE_HEADER: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLA_F_NESTED: u16 = 0x8000;
/// The upper two bits of an attribute's type are flags.
const NLA_TYPE: u16 = 0x3fff;

/// A message being written.
#[derive(Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A request of this type that begins with the family's own header.
    pub fn new(kind: u16, family_header: &[u8]) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        bytes.extend(family_header);
        pad(&mut bytes);
        Self(bytes)
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        let value = &value[..usize::from(length) - ATTRIBUTE_HEADER];
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        pad(&mut self.0);
        self
    }

    /// Adds a text with the zero byte that the kernel wants behind it.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute that holds the attributes which `fill` adds.
    #[must_use]
    pub fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self = fill(self.attribute(kind | NLA_F_NESTED, &[]));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Its type: a family's, or one of netlink's own.
    pub kind: u16,
    flags: u16,
    sequence: u32,
    /// What stands behind the message header.
    pub payload: &'a [u8],
}

/// The messages of one datagram. Ends at the first that does not fit into it.
#[derive(Debug, Clone)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = usize::try_from(u32::from_ne_bytes(fixed(self.0, 0)?)).ok()?;
        let message = self.0.get(..length).filter(|_| length >= MESSAGE_HEADER)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes(fixed(message, 4)?),
            flags: u16::from_ne_bytes(fixed(message, 6)?),
            sequence: u32::from_ne_bytes(fixed(message, 8)?),
            payload: &message[MESSAGE_HEADER..],
        })
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

/// Attributes that follow one another. Ends at the first that does not fit.
#[derive(Debug, Clone)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let length = usize::from(u16::from_ne_bytes(fixed(self.0, 0)?));
        let attribute = self.0.get(..length);
        let attribute = attribute.filter(|_| length >= ATTRIBUTE_HEADER)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute {
            kind: u16::from_ne_bytes(fixed(attribute, 2)?) & NLA_TYPE,
            value: &attribute[ATTRIBUTE_HEADER..],
        })
    }
}

impl<'a> Attributes<'a> {
    /// The first attribute of this type.
    pub fn get(&self, kind: u16) -> Option<Attribute<'a>> {
        self.clone().find(|found| found.kind == kind)
    }

    /// The attributes inside the first one of this type.
    pub fn inside(&self, kind: u16) -> Option<Attributes<'a>> {
        self.get(kind).map(|found| Attributes(found.value))
    }
}

impl Attribute<'_> {
    /// The value as a byte.
    pub fn byte(&self) -> Option<u8> {
        self.value.first().copied()
    }

    /// The value as a number of 16 bits.
    pub fn short(&self) -> Option<u16> {
        fixed(self.value, 0).map(u16::from_ne_bytes)
    }

    /// The value as a number of 32 bits.
    pub fn word(&self) -> Option<u32> {
        fixed(self.value, 0).map(u32::from_ne_bytes)
    }

    /// The value as a number of 64 bits, or the first of several.
    pub fn long(&self) -> Option<u64> {
        fixed(self.value, 0).map(u64::from_ne_bytes)
    }
}

/// `N` bytes at a place, where they are.
pub fn fixed<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The error that an `NLMSG_ERROR` message carries; none is an acknowledgement.
fn error_of(payload: &[u8]) -> Option<Errno> {
    let code = i32::from_ne_bytes(fixed(payload, 0)?);
    if code == 0 {
        return None;
    }
    // The kernel's errors are -1 to -4095; rustix holds no other.
    let number = code.saturating_neg();
    let is_error = (1..4096).contains(&number);
    Some(if is_error {
        Errno::from_raw_os_error(number)
    } else {
        Errno::IO
    })
}

/// A socket to one family of the kernel.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket to generic netlink.
    ///
    /// # Errors
    /// The kernel has no such family, or forbids it.
    pub fn generic() -> Result<Self, Miss> {
        Self::open(Some(netlink::GENERIC))
    }

    /// Opens a socket to the routing family, which also serves data centre bridging.
    ///
    /// # Errors
    /// The kernel has no such family, or forbids it.
    pub fn route() -> Result<Self, Miss> {
        Self::open(None)
    }

    fn open(family: Option<Protocol>) -> Result<Self, Miss> {
        let flags = SocketFlags::CLOEXEC;
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family)?;
        sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            descriptor,
            sequence: 0,
            buffer: vec![0; LARGEST],
        })
    }

    /// Sends a request and gives each message of the answer to `take`.
    ///
    /// # Errors
    /// What the kernel answered in place of a message, [`Miss::Failed`] after [`PATIENCE`].
    pub fn ask(
        &mut self,
        request: Request,
        mut take: impl FnMut(&Message<'_>),
    ) -> Result<(), Miss> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request.finish(self.sequence);
        send(&self.descriptor, &request, SendFlags::empty())?;
        let begun = Instant::now();
        // Answers to a request that an earlier call gave up are passed over, but not for ever.
        while begun.elapsed() < PATIENCE {
            let (length, sent) = recv(&self.descriptor, &mut self.buffer[..], RecvFlags::TRUNC)?;
            if sent > length {
                return Err(Miss::Failed);
            }
            let mut answered = false;
            for message in Messages(&self.buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    NLMSG_ERROR => {
                        return error_of(message.payload).map_or(Ok(()), |error| Err(error.into()));
                    }
                    NLMSG_DONE => return Ok(()),
                    _ => take(&message),
                }
                answered = message.flags & NLM_F_MULTI == 0;
            }
            if answered {
                return Ok(());
            }
        }
        Err(Miss::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let request = Request::new(78, &[0, 21, 0, 0])
            .text(1, "eth0")
            .nest(13, |inner| {
                inner
                    .attribute(2, &7_u32.to_ne_bytes())
                    .attribute(3, &9_u64.to_ne_bytes())
            })
            .attribute(4, &[5]);
        let bytes = request.finish(3);
        let messages: Vec<_> = Messages(&bytes).collect();
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].kind, messages[0].sequence), (78, 3));
        let attributes = Attributes(&messages[0].payload[4..]);
        let kinds: Vec<_> = attributes.clone().map(|found| found.kind).collect();
        assert_eq!(kinds, [1, 13, 4]);
        assert_eq!(attributes.get(1).expect("a name").value, b"eth0\0");
        let inner = attributes.inside(13).expect("a nest");
        assert_eq!(inner.get(2).and_then(|word| word.word()), Some(7));
        assert_eq!(inner.get(3).and_then(|long| long.long()), Some(9));
        assert_eq!(inner.get(2).and_then(|word| word.long()), None);
        assert_eq!(attributes.get(4).and_then(|byte| byte.byte()), Some(5));
    }

    #[test]
    fn an_answer_that_says_no_is_the_kernels_error() {
        assert_eq!(error_of(&0_i32.to_ne_bytes()), None);
        assert_eq!(
            error_of(&(-95_i32).to_ne_bytes()).map(Miss::from),
            Some(Miss::Unsupported)
        );
        for nonsense in [i32::MIN, -4096, 1, i32::MAX] {
            let error = error_of(&nonsense.to_ne_bytes());
            assert_eq!(error, Some(Errno::IO), "{nonsense}");
        }
        assert_eq!(error_of(&[1, 2]), None);
    }

    /// Walks everything that can be walked: three levels of attributes inside every message.
    fn walk(bytes: &[u8]) -> usize {
        fn attributes(bytes: &[u8], depth: usize) -> usize {
            Attributes(bytes)
                .map(|found| {
                    let numbers = (found.byte(), found.short(), found.word(), found.long());
                    let inner = if depth > 0 {
                        attributes(found.value, depth - 1)
                    } else {
                        0
                    };
                    inner + 1 + usize::from(numbers.3.is_some())
                })
                .sum()
        }
        Messages(bytes)
            .map(|message| {
                let no = error_of(message.payload);
                1 + usize::from(no.is_some()) + attributes(message.payload, 3)
            })
            .sum()
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_beyond_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            walk(&bytes);
        }

        #[test]
        fn lengths_that_lie_end_the_walk(
            lengths in proptest::collection::vec((0_u32..40, 0_u16..40, any::<u16>()), 0..20),
        ) {
            let mut bytes = Vec::new();
            for (message, attribute, kind) in lengths {
                bytes.extend(message.to_ne_bytes());
                bytes.extend([0; 12]);
                bytes.extend(attribute.to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
            }
            // Each element is at least a header of four bytes, so a walk that ends has no more of them.
            prop_assert!(walk(&bytes) <= bytes.len());
        }
    }
}

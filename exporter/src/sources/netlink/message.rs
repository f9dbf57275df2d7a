//! Netlink's form on the wire: messages of attributes, each with its own length, padded to four bytes.

use rustix::io::Errno;

use crate::sources::sysfs::Miss;

/// `sizeof(struct nlmsghdr)`.
const MESSAGE_HEADER: usize = 16;
/// `sizeof(struct nlattr)`.
const ATTRIBUTE_HEADER: usize = 4;

pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_MULTI: u16 = 2;
/// `NLM_F_ROOT | NLM_F_MATCH`: a list of all.
const NLM_F_DUMP: u16 = 0x300;
const NLA_F_NESTED: u16 = 0x8000;
/// The upper two bits of an attribute's type are flags.
const NLA_TYPE: u16 = 0x3fff;

/// A message being written.
#[derive(Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A request of this type that begins with the family's own header.
    pub fn new(kind: u16, family_header: &[u8]) -> Self {
        Self::flagged(kind, NLM_F_REQUEST, family_header)
    }

    /// A request for a list of all, which ends with a separate message.
    pub fn dump(kind: u16, family_header: &[u8]) -> Self {
        Self::flagged(kind, NLM_F_REQUEST | NLM_F_DUMP, family_header)
    }

    pub(super) fn flagged(kind: u16, flags: u16, family_header: &[u8]) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
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

    /// Adds a number of 32 bits.
    #[must_use]
    pub fn word(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds a text with the zero byte that the kernel requires after it.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
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

    /// Whether a list of all is requested.
    pub(super) fn is_dump(&self) -> bool {
        u16::from_ne_bytes([self.0[6], self.0[7]]) & NLM_F_DUMP != 0
    }

    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its type: a family's, or one of netlink's own.
    pub kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// What stands behind the message header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    #[cfg(test)]
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The attributes behind a family's header of so many bytes.
    ///
    /// # Errors
    /// [`Miss::Unparsed`] where one of them is cut short.
    pub fn attributes(&self, family_header: usize) -> Result<Attributes<'a>, Miss> {
        let bytes = self.payload.get(family_header..).ok_or(Miss::Unparsed)?;
        Attributes::whole(bytes)
    }
}

/// The messages of one datagram; ends after the first that does not fit into it.
#[derive(Debug, Clone)]
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Miss>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let read = message(bytes);
        if let Some((_, rest)) = read {
            self.0 = rest;
        }
        Some(read.map(|(message, _)| message).ok_or(Miss::Unparsed))
    }
}

fn message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(fixed(bytes, 0)?)).ok()?;
    let message = Message {
        kind: u16::from_ne_bytes(fixed(bytes, 4)?),
        flags: u16::from_ne_bytes(fixed(bytes, 6)?),
        sequence: u32::from_ne_bytes(fixed(bytes, 8)?),
        payload: bytes.get(MESSAGE_HEADER..length)?,
    };
    Some((message, behind(bytes, length)))
}

/// What stands behind an element of this length; padding behind the last one may be missing.
fn behind(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(4)..).unwrap_or_default()
}

/// One attribute.
#[derive(Debug, Clone, Copy)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

/// Attributes that follow one another, none of them cut short.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Every attribute of these bytes.
    ///
    /// # Errors
    /// [`Miss::Unparsed`] where one of them is cut short.
    pub fn whole(bytes: &'a [u8]) -> Result<Self, Miss> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = attribute(rest).ok_or(Miss::Unparsed)?;
        }
        Ok(Self(bytes))
    }

    /// The first attribute of this type.
    pub fn get(mut self, kind: u16) -> Option<Attribute<'a>> {
        self.find(|found| found.kind == kind)
    }

    /// The attributes inside the first one of this type; none where one of them is cut short.
    pub fn inside(self, kind: u16) -> Option<Attributes<'a>> {
        self.get(kind)?.inside()
    }

    /// The first attribute of this type as a number.
    pub fn number(self, kind: u16) -> Option<u64> {
        self.get(kind)?.number()
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (found, rest) = attribute(self.0)?;
        self.0 = rest;
        Some(found)
    }
}

fn attribute(bytes: &[u8]) -> Option<(Attribute<'_>, &[u8])> {
    let length = usize::from(u16::from_ne_bytes(fixed(bytes, 0)?));
    let found = Attribute {
        kind: u16::from_ne_bytes(fixed(bytes, 2)?) & NLA_TYPE,
        value: bytes.get(ATTRIBUTE_HEADER..length)?,
    };
    Some((found, behind(bytes, length)))
}

impl<'a> Attribute<'a> {
    /// The value as a number of one, two, four or eight bytes.
    pub fn number(&self) -> Option<u64> {
        match self.value.len() {
            1 => self.value.first().copied().map(u64::from),
            2 => fixed(self.value, 0).map(|bytes| u16::from_ne_bytes(bytes).into()),
            4 => fixed(self.value, 0).map(|bytes| u32::from_ne_bytes(bytes).into()),
            8 => fixed(self.value, 0).map(u64::from_ne_bytes),
            _ => None,
        }
    }

    /// The value as the first of several numbers of 64 bits.
    pub fn first_long(&self) -> Option<u64> {
        fixed(self.value, 0).map(u64::from_ne_bytes)
    }

    /// The value as a text that ends in a zero byte.
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.value.strip_suffix(&[0])?).ok()
    }

    /// The value as attributes; none where one of them is cut short.
    pub fn inside(&self) -> Option<Attributes<'a>> {
        Attributes::whole(self.value).ok()
    }
}

/// `N` bytes at a place, where they are.
pub fn fixed<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// What an `NLMSG_ERROR` message reports; zero only acknowledges.
pub(super) fn verdict(payload: &[u8]) -> Result<(), Miss> {
    let code = fixed(payload, 0).ok_or(Miss::Unparsed)?;
    // The kernel's errors are -1 to -4095; rustix holds no other.
    match i32::from_ne_bytes(code).checked_neg() {
        Some(0) => Ok(()),
        Some(number @ 1..4096) => Err(Errno::from_raw_os_error(number).into()),
        _ => Err(Miss::Failed),
    }
}

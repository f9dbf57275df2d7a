//! Netlink's form on the wire: messages of attributes, each with its own length, filled up to four bytes.

use crate::sources::sysfs::Miss;

/// Flags in the type of an attribute: nested, network byte order.
const TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;

/// One message on the wire.
pub(in crate::sources) fn message<'a>(
    kind: u16,
    flags: u16,
    sequence: u32,
    attributes: impl Iterator<Item = (u16, &'a [u8])>,
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    for attribute in attributes {
        push(&mut bytes, attribute);
    }
    let length = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    bytes
}

/// Appends one attribute, filled up to four bytes.
pub(in crate::sources) fn push(bytes: &mut Vec<u8>, (kind, value): (u16, &[u8])) {
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// The messages of a datagram; ends after the first one that is cut short.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Miss>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let read = || {
            let header: &[u8; HEADER] = bytes.first_chunk()?;
            let [a, b, c, d, kind_low, kind_high, _, _, w, x, y, z, ..] = *header;
            let length = u32::from_ne_bytes([a, b, c, d]) as usize;
            let message = Message {
                kind: u16::from_ne_bytes([kind_low, kind_high]),
                sequence: u32::from_ne_bytes([w, x, y, z]),
                body: bytes.get(HEADER..length)?,
            };
            Some((
                message,
                bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
            ))
        };
        Some(read().map_or(Err(Miss::Unparsed), |(message, rest)| {
            self.0 = rest;
            Ok(message)
        }))
    }
}

/// The attributes of a message or of a nested attribute; ends after the first one that is cut short.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Miss>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let read = || {
            let [low, high, kind_low, kind_high] = *bytes.first_chunk()?;
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let kind = u16::from_ne_bytes([kind_low, kind_high]) & TYPE_MASK;
            let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some(((kind, bytes.get(4..length)?), rest))
        };
        Some(read().map_or(Err(Miss::Unparsed), |(attribute, rest)| {
            self.0 = rest;
            Ok(attribute)
        }))
    }
}

impl<'a> Attributes<'a> {
    /// The value of the first attribute of a kind.
    pub(super) fn find(self, wanted: u16) -> Result<Option<&'a [u8]>, Miss> {
        for attribute in self {
            let (kind, value) = attribute?;
            if kind == wanted {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Hands over each entry of a table.
    pub(super) fn entries(
        self,
        table: u16,
        mut each: impl FnMut(Self) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let table = self.find(table)?.ok_or(Miss::Unparsed)?;
        for entry in Attributes(table) {
            each(Attributes(entry?.1))?;
        }
        Ok(())
    }
}

/// A number of one, four or eight bytes.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        1 => value.first().copied().map(u64::from),
        4 => Some(u32::from_ne_bytes(value.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// A string that ends in a zero byte.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_suffix(&[0])?).ok()
}

//! The pieces of a line: numbers, ports, node ids, descriptions, each with the column where it went wrong.

use super::NodeKind;

/// Fewest hex digits after `S-` or `H-` that are read as a GUID: tools drop leading zeros, and a GUID
/// begins with a 24-bit company id whose first byte is often zero (0x0002c9 leaves 13 digits). Shorter
/// ids are names that a user chose for a simulated node.
const MIN_GUID_DIGITS: usize = 12;

/// What stands between quotes in place of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NodeId<'a> {
    Guid(u64),
    Name(&'a str),
}

impl<'a> NodeId<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let digits = text
            .strip_prefix(['S', 'H', 'R'])
            .and_then(|rest| rest.strip_prefix('-'));
        digits
            .filter(|digits| (MIN_GUID_DIGITS..=16).contains(&digits.len()))
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .map_or(Self::Name(text), Self::Guid)
    }
}

/// The letter with which an id reports what the node is.
fn kind_of_id(text: &str) -> NodeKind {
    match text.as_bytes() {
        [b'S', b'-', ..] => NodeKind::Switch,
        [b'R', b'-', ..] => NodeKind::Router,
        _ => NodeKind::Ca,
    }
}

/// A field that is not what it should be: where, and what was expected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flaw<'a> {
    pub(super) column: usize,
    pub(super) field: &'static str,
    pub(super) expected: &'static str,
    pub(super) found: &'a str,
}

/// What is left of a line.
pub(super) struct Cursor<'a> {
    pub(super) line: &'a str,
    pub(super) rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn flaw(&self, field: &'static str, expected: &'static str) -> Flaw<'a> {
        Flaw {
            column: self.line.len() - self.rest.len() + 1,
            field,
            expected,
            found: self.rest,
        }
    }

    pub(super) fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    pub(super) fn eat(&mut self, prefix: char) -> bool {
        let left = self.rest.strip_prefix(prefix);
        self.rest = left.unwrap_or(self.rest);
        left.is_some()
    }

    pub(super) fn need(
        &mut self,
        prefix: char,
        field: &'static str,
        expected: &'static str,
    ) -> Result<(), Flaw<'a>> {
        if self.eat(prefix) {
            Ok(())
        } else {
            Err(self.flaw(field, expected))
        }
    }

    /// Text up to a character, which is taken too.
    pub(super) fn until(&mut self, end: char) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(text)
    }

    /// The next word; empty at the end.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip_space();
        let end = self
            .rest
            .find(char::is_whitespace)
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    pub(super) fn number(
        &mut self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<u16, Flaw<'a>> {
        let flaw = self.flaw(field, expected);
        let word = self.word();
        decimal(word).ok_or(flaw)
    }

    /// `[12]`, port 0 excluded: no cable ends there.
    pub(super) fn port(&mut self, field: &'static str) -> Result<u16, Flaw<'a>> {
        const EXPECTED: &str = "a port such as [12]";
        let flaw = self.flaw(field, EXPECTED);
        self.need('[', field, EXPECTED)?;
        self.until(']')
            .and_then(decimal)
            .filter(|port| *port > 0)
            .ok_or(flaw)
    }

    /// `(1c34da0300608820)`, which may be absent.
    pub(super) fn port_guid(&mut self) -> Result<(), Flaw<'a>> {
        self.skip_space();
        let flaw = self.flaw("port GUID", "a GUID in parentheses");
        if !self.eat('(') {
            return Ok(());
        }
        let guid = self.until(')').ok_or(flaw)?;
        let plain = (1..=16).contains(&guid.len()) && guid.bytes().all(|b| b.is_ascii_hexdigit());
        if plain { Ok(()) } else { Err(flaw) }
    }

    /// `"S-1c34da0300728866"`
    pub(super) fn node_id(&mut self) -> Result<(NodeId<'a>, NodeKind), Flaw<'a>> {
        self.skip_space();
        let flaw = self.flaw("node id", "a node id between quotes");
        self.need('"', flaw.field, flaw.expected)?;
        let id = self.until('"').filter(|id| !id.is_empty()).ok_or(flaw)?;
        Ok((NodeId::new(id), kind_of_id(id)))
    }

    /// A description: from this quote to the last one of the line, since it may hold quotes itself.
    pub(super) fn description(&mut self) -> Result<&'a str, Flaw<'a>> {
        self.skip_space();
        let flaw = self.flaw("description", "a description between quotes");
        self.need('"', flaw.field, flaw.expected)?;
        let (text, rest) = self.rest.rsplit_once('"').ok_or(flaw)?;
        self.rest = rest;
        Ok(text.trim())
    }
}

pub(super) fn decimal(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

pub(super) fn hex(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0x")?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain
        .then(|| u32::from_str_radix(digits, 16).ok())
        .flatten()
}

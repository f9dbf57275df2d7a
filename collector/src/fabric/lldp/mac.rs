//! MAC addresses, which every tool writes differently.

use std::fmt;

use railscope_model::identity::Guid;

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Reads `7c:21:d8:00:00:0a`, `7c21.d800.000a`, or the same with dashes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        // Twelve digits with two marks or five.
        if !matches!(text.len(), 14 | 17) {
            return None;
        }
        let mut address = 0_u64;
        let mut digits = 0;
        for byte in text.bytes().filter(|byte| !b":.-".contains(byte)) {
            let digit = char::from(byte).to_digit(16)?;
            address = address << 4 | u64::from(digit);
            digits += 1;
        }
        let [_, _, address @ ..] = address.to_be_bytes();
        (digits == 12).then_some(Self(address))
    }

    /// The one in a GUID: an EUI-64 with `fffe` in its middle (RFC 4291, A: the universal bit turned), or NVIDIA's node
    /// GUIDs with `0300` there.
    pub fn of(guid: Guid) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = guid.0.to_be_bytes();
        let first = match (d, e) {
            (0xff, 0xfe) => a ^ 2,
            (0x03, 0x00) => a,
            _ => return None,
        };
        Some(Self([first, b, c, f, g, h]))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_the_same_address() {
        let spellings = ["7c:21:d8:00:00:0a", "7C21.D800.000A", "7c-21-d8-00-00-0a"];
        for text in spellings {
            let address = Mac::read(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Some("7c:21:d8:00:00:0a"), "{text}");
        }
        for text in [
            "",
            "swp1",
            "7c:21:d8:00:00",
            "7c:21:d8:00:00:0g",
            "7c21d800000a12",
        ] {
            assert_eq!(Mac::read(text), None, "{text}");
        }
    }

    #[test]
    fn guids_hold_the_address_of_their_port() {
        for (guid, address) in [
            (0x7e21_d8ff_fe00_000a, Some("7c:21:d8:00:00:0a")),
            (0x7c21_d803_0000_000a, Some("7c:21:d8:00:00:0a")),
            (0x7c21_d804_0000_000a, None),
        ] {
            let found = Mac::of(Guid(guid)).map(|address| address.to_string());
            assert_eq!(found.as_deref(), address, "{guid:x}");
        }
    }
}

//! Ports of switches: numbers on InfiniBand, names on Ethernet, in the order in which people count them.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use indexmap::Equivalent;

use super::IdentityError;

/// A port of a switch as the switch itself calls it: `33` on InfiniBand, `Ethernet48`, `swp1s2` or
/// `et-0/0/1:2` on Ethernet. Numbers come before names, and `swp2` before `swp10`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PortName {
    /// A number, also of an Ethernet switch that counts its ports.
    Number(u16),
    /// A name that is no number.
    Name(Arc<str>),
}

impl PortName {
    /// The same without a copy.
    pub fn as_word(&self) -> PortWord<'_> {
        match self {
            Self::Number(number) => PortWord::Number(*number),
            Self::Name(name) => PortWord::Name(name),
        }
    }
}

impl From<u16> for PortName {
    fn from(number: u16) -> Self {
        Self::Number(number)
    }
}

/// A [`PortName`] within a borrowed text: looks one up in a set without a copy of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortWord<'a> {
    /// A number.
    Number(u16),
    /// A name that is no number.
    Name(&'a str),
}

impl<'a> PortWord<'a> {
    /// Trims white space; refuses an empty name, control characters, and brackets, in which a part's text
    /// has the name. A number with leading zeros is a name, kept as written.
    ///
    /// # Errors
    /// The text, if it cannot be a port's name.
    pub fn read(text: &'a str) -> Result<Self, IdentityError> {
        let text = text.trim();
        let is_out = |char: char| char.is_control() || matches!(char, '[' | ']');
        if text.is_empty() || text.chars().any(is_out) {
            let expected = "a port number or name such as 33, swp1s2 or et-0/0/1:2";
            return Err(IdentityError::new(text, expected));
        }
        let is_plain = text == "0" || text.starts_with(|first| matches!(first, '1'..='9'));
        let number = text.parse().ok().filter(|_| is_plain);
        Ok(number.map_or(Self::Name(text), Self::Number))
    }
}

impl From<PortWord<'_>> for PortName {
    fn from(word: PortWord<'_>) -> Self {
        match word {
            PortWord::Number(number) => Self::Number(number),
            PortWord::Name(name) => Self::Name(name.into()),
        }
    }
}

// Both derive `Hash` from the same variants in the same order, and `Arc<str>` hashes as its text.
impl Equivalent<PortName> for PortWord<'_> {
    fn equivalent(&self, port: &PortName) -> bool {
        *self == port.as_word()
    }
}

impl FromStr for PortName {
    type Err = IdentityError;

    /// As [`PortWord::read`].
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        PortWord::read(text).map(Self::from)
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Ord for PortName {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::Name(_)) => Ordering::Less,
            (Self::Name(_), Self::Number(_)) => Ordering::Greater,
            (Self::Name(a), Self::Name(b)) => natural(a, b),
        }
    }
}

impl PartialOrd for PortName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares text with its numbers by value: `n2` before `n10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (text_left, number_left) = split(&mut left);
        let (text_right, number_right) = split(&mut right);
        let digits = |number: &str| number.trim_start_matches('0').len();
        let order = text_left.cmp(text_right).then_with(|| {
            digits(number_left)
                .cmp(&digits(number_right))
                .then_with(|| {
                    number_left
                        .trim_start_matches('0')
                        .cmp(number_right.trim_start_matches('0'))
                })
        });
        if order != Ordering::Equal || left.is_empty() && right.is_empty() {
            // Equal but for leading zeros: some order, always the same.
            return order.then_with(|| a.cmp(b));
        }
    }
}

/// Splits text and the digits after it off the front.
fn split<'a>(rest: &mut &'a str) -> (&'a str, &'a str) {
    let digits_at = rest
        .find(|char: char| char.is_ascii_digit())
        .unwrap_or(rest.len());
    let (text, after) = rest.split_at(digits_at);
    let end = after
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(after.len());
    let (number, after) = after.split_at(end);
    *rest = after;
    (text, number)
}

#[cfg(test)]
mod tests {
    use foldhash::fast::FixedState;
    use indexmap::IndexSet;

    use super::*;

    #[test]
    fn ports_stand_in_the_order_in_which_people_count() {
        let mut ports: Vec<PortName> = [
            "swp10",
            "Ethernet1/2",
            "33",
            "swp1s2",
            "4",
            "swp2",
            "Ethernet1/10",
            "007",
            "swp1s10",
        ]
        .map(|text| text.parse().expect(text))
        .to_vec();
        ports.sort();
        let sorted: Vec<_> = ports.iter().map(ToString::to_string).collect();
        assert_eq!(
            sorted,
            [
                "4",
                "33",
                "007",
                "Ethernet1/2",
                "Ethernet1/10",
                "swp1s2",
                "swp1s10",
                "swp2",
                "swp10"
            ]
        );
    }

    #[test]
    fn a_port_is_a_number_or_a_name_that_can_stand_in_a_part() {
        for (text, expected) in [
            (" 33 ", Some(PortName::Number(33))),
            ("033", Some(PortName::Name("033".into()))),
            ("+3", Some(PortName::Name("+3".into()))),
            ("70000", Some(PortName::Name("70000".into()))),
            ("et-0/0/1:2", Some(PortName::Name("et-0/0/1:2".into()))),
            ("", None),
            ("a]b", None),
            ("a\u{7}", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_word_finds_its_port_in_a_set() {
        let ports = ["swp1", "33", "033"].map(|text| text.parse().expect(text));
        let ports: IndexSet<PortName, FixedState> = ports.into_iter().collect();
        for (text, place) in [
            ("swp1", Some(0)),
            ("33", Some(1)),
            (" 033", Some(2)),
            ("34", None),
        ] {
            let word = PortWord::read(text).expect(text);
            assert_eq!(ports.get_index_of(&word), place, "{text:?}");
        }
    }
}

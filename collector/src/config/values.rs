//! Values of the file that are more than TOML's own: times, sizes, numbers above zero, text that is not empty, addresses, commands.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};

use super::check_url;

/// A time as text with its unit: `"500ms"`, `"5s"`, `"2m"`, `"1h"`, `"7d"`. Never zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period(pub(super) Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a time such as \"5s\", \"500ms\" or \"2m\"";
        struct PeriodVisitor;
        impl Visitor<'_> for PeriodVisitor {
            type Value = Period;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Period, E> {
                let invalid = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                parse_period(text).map(Period).ok_or_else(invalid)
            }
        }
        deserializer.deserialize_str(PeriodVisitor)
    }
}

fn parse_period(text: &str) -> Option<Duration> {
    let end = text.find(|char: char| !char.is_ascii_digit())?;
    let (digits, unit) = text.split_at(end);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        _ => return None,
    };
    let millis = digits.parse::<u64>().ok()?.checked_mul(millis)?;
    // A year is as good as never, and keeps every sum of periods in range.
    (1..=365 * 24 * 3_600_000)
        .contains(&millis)
        .then(|| Duration::from_millis(millis))
}

/// A size as text with its decimal unit: `"500MB"`, `"10GB"`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes(pub(super) u64);

/// The least size of a folder that is limited: below it, the limit would leave no room for what every folder has.
const LEAST_BYTES: u64 = 10_000_000;

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = parse_bytes(&text).filter(|bytes| *bytes >= LEAST_BYTES);
        bytes.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?}: expected a size of at least \"10MB\", such as \"500MB\" or \"10GB\""
            ))
        })
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find(|char: char| !char.is_ascii_digit())?;
    let (digits, unit) = text.split_at(end);
    let factor = match unit {
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number above zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Positive(pub(super) usize);

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = usize::deserialize(deserializer)?;
        if number == 0 {
            return Err(D::Error::custom("expected a number above zero"));
        }
        Ok(Self(number))
    }
}

/// Non-empty text.
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim().is_empty() {
            return Err(D::Error::custom("expected text that is not empty"));
        }
        Ok(Self(text))
    }
}

/// An address to scrape.
pub(super) struct Url(pub(super) String);

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let url = String::deserialize(deserializer)?;
        check_url(&url).map_err(D::Error::custom)?;
        Ok(Self(url))
    }
}

/// A program and its arguments; no shell reads them.
pub(super) struct Argv(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Argv {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let argv = Vec::<String>::deserialize(deserializer)?;
        if argv.first().is_none_or(|program| program.trim().is_empty()) {
            return Err(D::Error::custom(
                "expected a program and its arguments, such as [\"ibnetdiscover\"]",
            ));
        }
        Ok(Self(argv))
    }
}

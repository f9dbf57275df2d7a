//! Times of kernel logs, as `/dev/kmsg`, dmesg, syslog and the journal write them.
//!
//! A time without a zone is taken as UTC. A date without a year (`Feb 23`) is of the last year in which it is not in
//! the future.

use railscope_model::fabric::{MONTHS, days_from_civil};

const MICROS: u64 = 1_000_000;
const DAY: u64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// When a record was written, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Since the kernel booted, by its own clock.
    SinceBoot(u64),
    /// Since 1970, by the wall clock of the node.
    Unix(u64),
}

impl Time {
    /// Time between two records in seconds; none between two clocks.
    pub fn seconds_between(self, other: Self) -> Option<u64> {
        match (self, other) {
            (Self::SinceBoot(a), Self::SinceBoot(b)) | (Self::Unix(a), Self::Unix(b)) => {
                Some(a.abs_diff(b) / MICROS)
            }
            _ => None,
        }
    }
}

/// A number of so many digits at the beginning of a text, and what follows.
fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<(u64, &str)> {
    let end = text.find(|char: char| !char.is_ascii_digit());
    let end = end.unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    digits.contains(&end).then_some(())?;
    Some((number.parse().ok()?, rest))
}

/// `.123456` or `,123` as microseconds, if there is one.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(rest) = text.strip_prefix(['.', ',']) else {
        return Some((0, text));
    };
    let end = rest.find(|char: char| !char.is_ascii_digit());
    let (digits, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let six: String = digits.chars().chain("000000".chars()).take(6).collect();
    (!digits.is_empty()).then_some((six.parse().ok()?, rest))
}

/// `16:24:18` with or without a fraction, microseconds of the day.
fn clock(text: &str) -> Option<(u64, &str)> {
    let (hour, rest) = number(text, 2..=2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2..=2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2..=2)?;
    let (micros, rest) = fraction(rest)?;
    // 60 is a leap second.
    (hour < 24 && minute < 60 && second <= 60)
        .then_some((((hour * 60 + minute) * 60 + second) * MICROS + micros, rest))
}

/// `Z`, `+01:00`, `-0800`, or nothing, as seconds east of UTC.
fn zone(text: &str) -> Option<(i64, &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some((0, rest));
    }
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Some((0, text)),
    };
    let (both, rest) = number(&text[1..], 2..=4)?;
    let (hours, minutes, rest) = match rest.strip_prefix(':') {
        Some(rest) if both < 100 => {
            let (minutes, rest) = number(rest, 2..=2)?;
            (both, minutes, rest)
        }
        _ if both < 100 && !rest.starts_with(':') && text.len() - rest.len() == 3 => {
            (both, 0, rest)
        }
        _ => (both / 100, both % 100, rest),
    };
    let east = i64::try_from(hours * 3600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some((sign * east, rest))
}

/// `2025-02-23T16:24:18,123456+00:00`, with a blank for `T` as well: its time, and what follows.
pub(super) fn iso(text: &str) -> Option<(Time, &str)> {
    let (year, rest) = number(text, 4..=4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2..=2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2..=2)?;
    let (of_day, rest) = clock(rest.strip_prefix(['T', ' '])?)?;
    let (east, rest) = zone(rest)?;
    let local = days_from_civil(year, month, day)? * DAY * MICROS + of_day;
    let east = east * MICROS as i64;
    Some((Time::Unix(local.checked_add_signed(-east)?), rest))
}

/// `Feb 23 16:24:18`, the day with one digit or two.
fn month_day(text: &str) -> Option<(u64, u64, u64, &str)> {
    let name = text.get(..3)?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let rest = text[3..].strip_prefix(' ')?;
    let (day, rest) = number(rest.trim_start_matches(' '), 1..=2)?;
    let (of_day, rest) = clock(rest.strip_prefix(' ')?)?;
    Some((month, day, of_day, rest))
}

/// `Feb 23 16:24:18` of the last year in which that is not in the future. `now` is Unix time in seconds.
pub(super) fn syslog(text: &str, now: u64) -> Option<(Time, &str)> {
    let (month, day, of_day, rest) = month_day(text)?;
    // A day more than now: without a zone the time may be that of a place east of Greenwich.
    let latest = now + DAY;
    let this_year = 1970 + latest / (DAY * 365);
    // Eight years hold a 29th of February, also around 2100.
    let years = (1970..=this_year).rev().take(9);
    let mut times =
        years.filter_map(|year| Some(days_from_civil(year, month, day)? * DAY * MICROS + of_day));
    let time = times.find(|time| *time <= latest * MICROS)?;
    Some((Time::Unix(time), rest))
}

/// `Sun Feb 23 16:24:18 2025`, as C's `ctime` writes it.
pub(super) fn ctime(text: &str) -> Option<(Time, &str)> {
    let (month, day, of_day, rest) = month_day(weekday(text)?)?;
    let (year, rest) = number(rest.strip_prefix(' ')?, 4..=4)?;
    let time = days_from_civil(year, month, day)? * DAY * MICROS + of_day;
    Some((Time::Unix(time), rest))
}

/// What follows a day of the week.
pub(super) fn weekday(text: &str) -> Option<&str> {
    let name = text.get(..3)?;
    WEEKDAYS.contains(&name).then_some(())?;
    text[3..].strip_prefix(' ')
}

/// Whether a text is `Feb23 16:24`, the minute that dmesg -H begins with.
pub(super) fn is_short(text: &str) -> bool {
    let month = text.get(..3);
    let is_month = month.is_some_and(|month| MONTHS.contains(&month));
    let day = is_month.then(|| number(text[3..].trim_start(), 1..=2));
    let time = day.flatten().and_then(|(_, rest)| rest.strip_prefix(' '));
    time.is_some_and(|time| clock(&format!("{time}:00")).is_some_and(|(_, rest)| rest.is_empty()))
}

/// `12.345678`, seconds with their fraction as microseconds.
pub(super) fn seconds(text: &str) -> Option<(u64, &str)> {
    let (seconds, rest) = number(text, 1..=12)?;
    let (micros, rest) = rest.starts_with('.').then(|| fraction(rest))??;
    Some((seconds * MICROS + micros, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-01 12:00:00 UTC.
    const NOW: u64 = 1_772_366_400;

    #[test]
    fn every_spelling_of_an_instant_is_that_instant() {
        let unix = |seconds: f64| Some(Time::Unix((seconds * 1e6) as u64));
        let time = |found: Option<(Time, &str)>| found.map(|(time, _)| time);
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", unix(0.0)),
            (
                "2025-02-23T16:24:18,123456+00:00 x",
                unix(1_740_327_858.123_456),
            ),
            ("2025-02-23T17:24:18.5+0100 x", unix(1_740_327_858.5)),
            ("2025-02-23 08:24:18-08 x", unix(1_740_327_858.0)),
            ("2025-02-23T16:24:18 x", unix(1_740_327_858.0)),
            ("2024-02-29T00:00:00Z", unix(1_709_164_800.0)),
            ("2025-02-29T00:00:00Z", None),
            ("2025-13-01T00:00:00Z", None),
            ("2025-02-23T24:00:00Z", None),
            ("1970-01-01T00:00:00+01:00", None),
            ("2025-02-23", None),
        ] {
            assert_eq!(time(iso(text)), expected, "{text}");
        }
        for (text, expected) in [
            ("Feb 23 16:24:18 x", unix(1_771_863_858.0)),
            ("Mar  1 13:00:00 x", unix(1_772_370_000.0)),
            ("Mar  2 11:59:59 x", unix(1_772_452_799.0)),
            // Two days ahead of now: last year's.
            ("Mar  3 12:00:00 x", unix(1_741_003_200.0)),
            ("Dec 31 23:59:59 x", unix(1_767_225_599.0)),
            ("Feb 29 00:00:00 x", unix(1_709_164_800.0)),
            ("Feb 30 00:00:00 x", None),
            ("Feb 23 16:24 x", None),
            ("feb 23 16:24:18 x", None),
        ] {
            assert_eq!(time(syslog(text, NOW)), expected, "{text}");
        }
        let ctime_of = |text| time(ctime(text));
        assert_eq!(ctime_of("Sun Feb 23 16:24:18 2025"), unix(1_740_327_858.0));
        assert_eq!(ctime_of("Sun Feb  2 16:24:18 2025"), unix(1_738_513_458.0));
        assert_eq!(ctime_of("Feb 23 16:24:18 2025"), None);
        assert_eq!(seconds("12.345678] x"), Some((12_345_678, "] x")));
        assert_eq!(seconds("12] x"), None);
    }

    #[test]
    fn clocks_are_compared_with_themselves_only() {
        let (a, b) = (Time::SinceBoot(1_000_000), Time::SinceBoot(3_500_000));
        assert_eq!(a.seconds_between(b), Some(2));
        assert_eq!(a.seconds_between(Time::Unix(1)), None);
    }
}

//! Timestamps.

use serde::{Deserialize, Serialize};

/// A timestamp: milliseconds of Unix time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Seconds from an earlier timestamp to this one; zero if it is not earlier.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e3
    }

    /// The time so many seconds later, or earlier if they are negative.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Self {
        Self(self.0.saturating_add_signed((seconds * 1e3) as i64))
    }

    /// Seconds of Unix time.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

/// Year, month, day, hour, minute and second in UTC of a Unix time in seconds; days by Howard Hinnant's
/// `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn civil(unix_seconds: f64) -> [i64; 6] {
    let seconds = unix_seconds.max(0.0) as i64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted_days = days + 719_468;
    let (era, day_of_era) = (shifted_days / 146_097, shifted_days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    [year, month, day, rest / 3_600, rest % 3_600 / 60, rest % 60]
}

/// Names of the months in logs.
pub const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Days from 1970 to a date by Howard Hinnant's algorithm of that name (as of [`civil`]); none for a date that does not exist.
pub fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let longest = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    // Years that begin in March have the leap day last.
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    day.checked_sub(719_468)
}

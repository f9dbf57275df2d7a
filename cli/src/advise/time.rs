//! Formats Unix time as Kubernetes does (RFC 3339).

/// `2026-11-20T14:03:07Z`; days by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub(super) fn rfc3339(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as i64;
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
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates_are_right_over_leap_days() {
        for (seconds, text) in [
            (-1.0, "1970-01-01T00:00:00Z"),
            (951_782_400.5, "2000-02-29T00:00:00Z"),
            (1_700_000_000.0, "2023-11-14T22:13:20Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}

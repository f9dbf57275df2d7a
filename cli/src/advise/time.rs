//! Formats Unix time as Kubernetes does (RFC 3339).

use railscope_model::fabric::civil;

/// `2026-11-20T14:03:07Z`
pub(crate) fn rfc3339(seconds: f64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
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

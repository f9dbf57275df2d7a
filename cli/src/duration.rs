//! Times on the command line: `5s`, `1500ms`, `2m` or plain seconds.

use std::time::Duration;

/// Reads a time.
///
/// # Errors
/// Invalid text, with an example.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is not a time such as 5s, 1500ms or 2m");
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| expected())?;
    let seconds = match unit {
        "" | "s" => number,
        "ms" => number / 1e3,
        "m" => number * 60.0,
        _ => return Err(expected()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        for (text, seconds) in [("5s", 5.0), ("1500ms", 1.5), ("2m", 120.0), ("0", 0.0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "5h", "-1s", "NaN", "99999999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

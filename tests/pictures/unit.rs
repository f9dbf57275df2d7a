//! Values in units of Grafana.

/// A unit, and the requested number of decimals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit<'a> {
    pub(crate) id: &'a str,
    pub(crate) decimals: Option<u64>,
}

const SI: &[&str] = &["", "k", "M", "G", "T", "P"];
const COUNTS: &[&str] = &["", " K", " Mil", " Bil", " Tri"];

impl Unit<'_> {
    /// The value as a reader sees it.
    pub(crate) fn shown(self, value: f64) -> String {
        let steps =
            |value: f64, names: &[&str], unit: &str| self.scaled(value, 1000.0, names, unit);
        match self.id {
            _ if !value.is_finite() => String::from("NaN"),
            "short" => steps(value, COUNTS, ""),
            "percentunit" => format!("{}%", self.digits(100.0 * value)),
            "s" => self.seconds(value),
            "bps" => steps(value, SI, "b/s"),
            "Bps" => steps(value, SI, "B/s"),
            "bytes" => self.scaled(value, 1024.0, &["", "Ki", "Mi", "Gi", "Ti"], "B"),
            "cps" => steps(value, &["", "K", "M", "B"], "c/s"),
            "reqps" => steps(value, &["", "K", "M", "B"], "req/s"),
            "hertz" => steps(value, SI, "Hz"),
            "watt" => steps(value, SI, "W"),
            "celsius" => format!("{} °C", self.digits(value)),
            "dateTimeAsIso" => date(value / 1000.0),
            other => {
                let unit = other.strip_prefix("suffix:").unwrap_or(other).trim();
                format!("{} {unit}", steps(value, COUNTS, ""))
            }
        }
    }

    /// Three digits, or the requested number of decimals.
    fn digits(self, value: f64) -> String {
        let auto = match value.abs() {
            0.0 => 0,
            size => (2 - size.log10().floor() as i64).clamp(0, 6) as usize,
        };
        let decimals = self.decimals.map_or(auto, |asked| asked as usize);
        let text = format!("{value:.decimals$}");
        if self.decimals.is_some() || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    fn scaled(self, value: f64, step: f64, names: &[&str], unit: &str) -> String {
        let (mut value, mut at) = (value, 0);
        while value.abs() >= step && at + 1 < names.len() {
            (value, at) = (value / step, at + 1);
        }
        let space = if unit.is_empty() { "" } else { " " };
        format!("{}{space}{}{unit}", self.digits(value), names[at])
    }

    fn seconds(self, value: f64) -> String {
        let (factor, unit) = match value.abs() {
            0.0 => (1.0, "s"),
            size if size < 1e-6 => (1e9, "ns"),
            size if size < 1e-3 => (1e6, "µs"),
            size if size < 1.0 => (1e3, "ms"),
            size if size < 60.0 => (1.0, "s"),
            size if size < 3600.0 => (1.0 / 60.0, "mins"),
            size if size < 86_400.0 => (1.0 / 3600.0, "hours"),
            _ => (1.0 / 86_400.0, "days"),
        };
        format!("{} {unit}", self.digits(factor * value))
    }
}

/// UTC date and time of Unix seconds.
fn date(seconds: f64) -> String {
    let (days, rest) = (
        seconds.div_euclid(86_400.0) as i64,
        seconds.rem_euclid(86_400.0),
    );
    // Days of a year that begins in March, so that the leap day is its last.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!(
        "{}-{month:02}-{day:02} {}",
        400 * era + year + carry,
        clock(rest)
    )
}

/// Time of day of Unix seconds, UTC.
pub(crate) fn clock(seconds: f64) -> String {
    let second = seconds.rem_euclid(86_400.0) as u64;
    format!(
        "{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[test]
fn values_are_shown_in_their_units() {
    let cases = [
        ("short", 1234.0, "1.23 K"),
        ("short", 0.0, "0"),
        ("percentunit", 0.0525, "5.25%"),
        ("s", 0.000_123, "123 µs"),
        ("s", 90.0, "1.5 mins"),
        ("bps", 4e11, "400 Gb/s"),
        ("Bps", 4.56e9, "4.56 GB/s"),
        ("bytes", 1536.0, "1.5 KiB"),
        ("cps", 12_000.0, "12 Kc/s"),
        ("hertz", 1.98e9, "1.98 GHz"),
        ("celsius", 61.0, "61 °C"),
        ("watt", 55_000.0, "55 kW"),
        ("suffix: GPU-h", 1.25, "1.25 GPU-h"),
        ("dateTimeAsIso", 951_782_400_000.0, "2000-02-29 00:00:00"),
        ("dateTimeAsIso", 1_790_000_000_000.0, "2026-09-21 14:13:20"),
        ("Bps", f64::NAN, "NaN"),
    ];
    for (id, value, expected) in cases {
        assert_eq!(Unit { id, decimals: None }.shown(value), expected);
    }
    let whole = Unit {
        id: "short",
        decimals: Some(0),
    };
    assert_eq!(whole.shown(2.6), "3");
}

//! Maintenance windows as people and hooks announce them: in the configuration, in a file that is read again, over
//! the API.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use railscope_model::fabric::Timestamp;
use serde::{Deserialize, Serialize};
use toml::value::{Date, Datetime, Offset, Time};

use crate::clock;
use crate::diagnose::stages::maintenance::{PartPattern, Window};
use crate::status::State;

/// Most parts of one window, and most windows that the API keeps: a bound for clients that post in
/// a loop.
pub const MOST: usize = 10_000;

/// A window as it is written: a TOML table or a JSON object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWindow {
    parts: Vec<String>,
    from: Option<Moment>,
    until: Moment,
    #[serde(default)]
    why: String,
}

/// A timestamp: TOML's own, its text, or seconds of Unix time.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a time such as 2026-11-22T05:00:00Z, or seconds of Unix time"
)]
enum Moment {
    Native(Datetime),
    Text(String),
    Seconds(f64),
}

impl Moment {
    /// The timestamp, or what was expected.
    fn read(&self) -> Result<Timestamp, String> {
        const EXPECTED: &str =
            "expected a time with its offset such as 2026-11-22T05:00:00Z, or seconds of Unix time";
        let native = match self {
            Self::Seconds(seconds) if (0.0..1e11).contains(seconds) => {
                return Ok(Timestamp((seconds * 1e3) as u64));
            }
            Self::Seconds(seconds) => return Err(format!("{seconds}: {EXPECTED}")),
            Self::Native(native) => *native,
            Self::Text(text) => text.parse().map_err(|_| format!("{text:?}: {EXPECTED}"))?,
        };
        unix(&native).ok_or_else(|| format!("{native}: {EXPECTED}"))
    }
}

/// A timestamp as text, `2026-11-22T05:00:00Z` or seconds of Unix time; or what was expected.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    text.parse()
        .map_or_else(|_| Moment::Text(text.to_owned()), Moment::Seconds)
        .read()
}

/// Unix time of a date with time and offset; days by Howard Hinnant's `days_from_civil`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
fn unix(native: &Datetime) -> Option<Timestamp> {
    let Datetime {
        date: Some(Date { year, month, day }),
        time: Some(time),
        offset: Some(offset),
    } = native
    else {
        return None;
    };
    let Time { hour, minute, .. } = *time;
    let second = time.second.unwrap_or(0);
    let year = i64::from(*year) - i64::from(*month <= 2);
    let era = year.div_euclid(400);
    let shifted = (i64::from(*month) + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(*day) - 1;
    let year_of_era = year.rem_euclid(400);
    let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let east_minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(*minutes),
    };
    let minutes = (days * 24 + i64::from(hour)) * 60 + i64::from(minute) - east_minutes;
    u64::try_from(minutes * 60 + i64::from(second))
        .ok()
        .map(|seconds| Timestamp(seconds * 1000))
}

impl RawWindow {
    /// The window; one without a begin begins at `now`.
    ///
    /// # Errors
    /// The field that is wrong, and what was expected.
    pub fn check(&self, now: Timestamp) -> Result<Window, String> {
        if self.parts.is_empty() || self.parts.len() > MOST {
            return Err(format!("parts: expected 1 to {MOST} parts"));
        }
        let parts = self.parts.iter().enumerate().map(|(index, part)| {
            let read = part.parse::<PartPattern>();
            read.map_err(|error| format!("parts[{index}]: {error}"))
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let from = self.from.as_ref().map(Moment::read).transpose();
        let from = from
            .map_err(|error| format!("from: {error}"))?
            .unwrap_or(now);
        let until = self
            .until
            .read()
            .map_err(|error| format!("until: {error}"))?;
        if until <= from {
            return Err(String::from("until: expected a time after from"));
        }
        Ok(Window {
            parts,
            from,
            until,
            why: self.why.clone(),
        })
    }
}

/// A window as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct WindowWire {
    /// The same for the same window.
    pub(crate) id: String,
    parts: Vec<String>,
    from: f64,
    until: f64,
    why: String,
    active: bool,
}

impl WindowWire {
    pub(crate) fn of(window: &Window, now: Timestamp) -> Self {
        Self {
            id: window.id(),
            parts: window.parts.iter().map(ToString::to_string).collect(),
            from: window.from.as_seconds(),
            until: window.until.as_seconds(),
            why: window.why.clone(),
            active: window.holds_at(now),
        }
    }
}

/// All that is announced, from wherever.
pub(crate) struct Announced {
    fixed: Vec<Arc<Window>>,
    file: Option<PathBuf>,
    /// Time and size of the file when it was last read, right or wrong.
    stamp: Option<(SystemTime, u64)>,
    read: Vec<Arc<Window>>,
    problem: Option<String>,
}

impl Announced {
    pub(crate) fn new(fixed: Vec<Window>, file: Option<PathBuf>) -> Self {
        Self {
            fixed: fixed.into_iter().map(Arc::new).collect(),
            file,
            stamp: None,
            read: Vec::new(),
            problem: None,
        }
    }

    /// All windows, in internal time. An unreadable file is logged once and its previous windows remain; a missing file has
    /// no windows.
    pub(crate) fn windows(&mut self, now: Timestamp, state: &State) -> Vec<Arc<Window>> {
        let looked = self.look(clock::shown(now));
        if let Err(problem) = &looked
            && self.problem.as_ref() != Some(problem)
        {
            tracing::error!(
                "cannot read maintenance windows; keeping the previous ones: {problem}"
            );
        }
        match looked {
            Ok(true) => self.problem = None,
            Ok(false) => {}
            Err(problem) => self.problem = Some(problem),
        }
        let posted = state.posted();
        let all = self.fixed.iter().chain(&self.read).chain(posted.iter());
        all.map(|window| moved(window, clock::inside)).collect()
    }

    /// Reads the file if it is another one than before, and reports whether it was.
    fn look(&mut self, now: Timestamp) -> Result<bool, String> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let about = match std::fs::metadata(file) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.read.clear();
                self.stamp = None;
                return Ok(true);
            }
            Err(error) => return Err(said(&error)),
        };
        let stamp = about.modified().map(|at| (at, about.len()));
        let stamp = stamp.map_err(|error| said(&error))?;
        if self.stamp == Some(stamp) {
            return Ok(false);
        }
        self.stamp = Some(stamp);
        let text = std::fs::read_to_string(file).map_err(|error| said(&error))?;
        let windows = read(&text, now).map_err(|error| said(&error))?;
        self.read = windows.into_iter().map(Arc::new).collect();
        Ok(true)
    }
}

/// Converts a window between clocks: windows are written in wall-clock time.
pub(crate) fn moved(window: &Arc<Window>, by: impl Fn(Timestamp) -> Timestamp) -> Arc<Window> {
    let (from, until) = (by(window.from), by(window.until));
    if (from, until) == (window.from, window.until) {
        return Arc::clone(window);
    }
    Arc::new(Window {
        from,
        until,
        ..Window::clone(window)
    })
}

/// A JSON list of windows.
fn read(text: &str, now: Timestamp) -> Result<Vec<Window>, String> {
    let raw: Vec<RawWindow> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let windows = raw
        .iter()
        .enumerate()
        .map(|(index, raw)| raw.check(now).map_err(|error| format!("[{index}].{error}")));
    windows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("\"1970-01-01T00:00:00Z\"", 0),
            ("\"2000-02-29T00:00:00Z\"", 951_782_400),
            ("\"2023-11-14T23:13:20+01:00\"", 1_700_000_000),
            ("1700000000", 1_700_000_000),
        ] {
            let moment: Moment = serde_json::from_str(text).expect(text);
            assert_eq!(moment.read(), Ok(Timestamp(seconds * 1000)), "{text}");
        }
        let table: toml::Table = toml::from_str("at = 2023-11-14T22:13:20Z").expect("TOML");
        let moment: Moment = table["at"].clone().try_into().expect("moment");
        assert_eq!(moment.read(), Ok(Timestamp(1_700_000_000_000)));
    }

    #[test]
    fn a_wrong_window_says_which_field_and_what_was_expected() {
        for (text, expected) in [
            (r#"[{"parts":[],"until":9}]"#, "[0].parts: expected 1"),
            (
                r#"[{"parts":["n7"],"until":9}]"#,
                "[0].parts[0]: \"n7\": expected a part",
            ),
            (
                r#"[{"parts":["host/n7"],"until":"2026-11-22 05:00"}]"#,
                "[0].until: 2026-11-22T05:00: expected a time with its offset",
            ),
            (
                r#"[{"parts":["host/n7"],"until":"2026-11-22T05:00:00"}]"#,
                "[0].until: 2026-11-22T05:00:00: expected a time with its offset",
            ),
            (
                r#"[{"parts":["host/n7"],"from":9,"until":9}]"#,
                "[0].until: expected a time after from",
            ),
            (
                r#"[{"part":["host/n7"],"until":9}]"#,
                "unknown field `part`",
            ),
        ] {
            let error = read(text, Timestamp(0)).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

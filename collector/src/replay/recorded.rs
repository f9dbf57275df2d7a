//! What a recording has beside its scrapes: times of the analysis cycles, and when which target was in the list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use railscope_model::fabric::Timestamp;

use super::Window;
use super::pack::{PackError, unreadable};
use crate::config::Target;

/// The files `PREFIX.TIME.SUFFIX` of a folder in order of their times, as `parse` reads them.
pub(crate) fn numbered<T: Ord>(
    folder: &Path,
    (prefix, suffix): (&str, &str),
    parse: impl Fn(&str) -> Option<T>,
) -> std::io::Result<BTreeMap<T, PathBuf>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let at = path.file_name().and_then(|name| {
            let rest = name.to_str()?.strip_prefix(prefix)?.strip_prefix('.')?;
            parse(rest.strip_suffix(suffix)?.strip_suffix('.')?)
        });
        if let Some(at) = at {
            files.insert(at, path);
        }
    }
    Ok(files)
}

/// Seconds of Unix time as text; none if it is not a time.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    timestamp(text.parse().ok()?)
}

/// Seconds of Unix time; none if it is not a time.
pub(super) fn timestamp(seconds: f64) -> Option<Timestamp> {
    let is_time = (0.0..1e11).contains(&seconds);
    is_time.then(|| Timestamp((seconds * 1e3).round() as u64))
}

/// The times of all cycles in the folder, in order.
pub(super) fn read_cycles(folder: &Path) -> Result<Vec<Timestamp>, PackError> {
    let files = numbered(folder, ("ticks", "txt"), time).map_err(unreadable(folder))?;
    let mut cycles = Vec::new();
    for file in files.into_values() {
        let text = std::fs::read_to_string(&file).map_err(unreadable(&file))?;
        // Without its line break the last time is incomplete: the collector was killed.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        for (index, line) in complete.lines().enumerate() {
            cycles.push(time(line).ok_or_else(|| PackError::Line {
                file: file.clone(),
                line: index + 1,
                message: format!("{line:?}: expected seconds of Unix time"),
            })?);
        }
    }
    cycles.sort_unstable();
    Ok(cycles)
}

/// When the analysis runs: at the recorded times, or without them after each interval.
pub(super) struct Cycles {
    recorded: Option<std::vec::IntoIter<Timestamp>>,
    next: Option<Timestamp>,
    interval: Duration,
}

impl Cycles {
    pub(super) fn new(recorded: &[Timestamp], interval: Duration, window: Window) -> Self {
        let is_inside = |at: &&Timestamp| {
            window.from.is_none_or(|from| **at >= from)
                && window.until.is_none_or(|until| **at <= until)
        };
        let within: Vec<_> = recorded.iter().filter(is_inside).copied().collect();
        let mut recorded = (!recorded.is_empty()).then(|| within.into_iter());
        let next = recorded.as_mut().and_then(Iterator::next);
        Self {
            recorded,
            next,
            interval,
        }
    }

    /// Notes the time of a scrape: without recorded times, the first cycle is at the first scrape.
    pub(super) fn begin(&mut self, at: Timestamp) {
        if self.recorded.is_none() {
            self.next.get_or_insert(at);
        }
    }

    /// The next cycle if it is before this time.
    pub(super) fn before(&mut self, at: Timestamp) -> Option<Timestamp> {
        let next = self.next.filter(|next| *next < at)?;
        self.next = match &mut self.recorded {
            Some(recorded) => recorded.next(),
            None => Some(after(next, self.interval)),
        };
        Some(next)
    }

    /// The cycles after the last scrape.
    pub(super) fn rest(self) -> impl Iterator<Item = Timestamp> {
        let recorded = self.recorded.into_iter().flatten();
        self.next.into_iter().chain(recorded)
    }
}

fn after(at: Timestamp, interval: Duration) -> Timestamp {
    let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
    Timestamp(at.0.saturating_add(millis.max(1)))
}

/// A time at which a target was added to the list of targets, or removed from it.
#[derive(Debug, Clone)]
pub(super) struct Listing {
    at: Timestamp,
    is_added: bool,
    target: Target,
}

/// The changes of the list of targets, the next one last, and what the list is now.
#[derive(Debug, Clone, Default)]
pub(super) struct Listings {
    next: Vec<Listing>,
    now: BTreeSet<Target>,
}

impl Listings {
    /// A list that does not change.
    pub(super) fn constant(targets: &[Target]) -> Self {
        Self {
            next: Vec::new(),
            now: targets.iter().cloned().collect(),
        }
    }

    /// Adds a target with its label: `FROM-UNTIL FROM-`. One without the label is always in the list.
    pub(super) fn add(&mut self, target: &Target, listed: Option<&str>) -> Result<(), String> {
        let Some(listed) = listed else {
            self.now.insert(target.clone());
            return Ok(());
        };
        for (from, until) in parse_spans(listed)? {
            let changes = [(Some(from), true), (until, false)];
            let changes = changes.into_iter().filter_map(|(at, is_added)| {
                Some(Listing {
                    at: at?,
                    is_added,
                    target: target.clone(),
                })
            });
            self.next.extend(changes);
        }
        Ok(())
    }

    /// Orders the changes; of those at the same time, removals first.
    pub(super) fn sort(&mut self) {
        self.next
            .sort_by_key(|listing| std::cmp::Reverse((listing.at, listing.is_added)));
    }

    /// Whether the list changes.
    pub(super) fn has_changes(&self) -> bool {
        !self.next.is_empty()
    }

    /// The list at this time if it is another one than before.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Vec<Target>> {
        let mut has_changed = false;
        while let Some(listing) = self.next.pop_if(|listing| listing.at <= now) {
            has_changed = true;
            if listing.is_added {
                self.now.insert(listing.target);
            } else {
                self.now.remove(&listing.target);
            }
        }
        has_changed.then(|| self.list())
    }

    pub(super) fn list(&self) -> Vec<Target> {
        self.now.iter().cloned().collect()
    }
}

/// A span of time, and whether it has ended.
pub(crate) type Span = (Timestamp, Option<Timestamp>);

/// The spans of the label `__railscope_listed`.
///
/// # Errors
/// What was expected.
pub(crate) fn parse_spans(text: &str) -> Result<Vec<Span>, String> {
    let span = |text: &str| {
        let (from, until) = text.split_once('-')?;
        let until = match until {
            "" => None,
            until => Some(time(until)?),
        };
        Some((time(from)?, until))
    };
    let expected =
        || format!("__railscope_listed: {text:?}: expected FROM-UNTIL or FROM- in seconds");
    let spans = text
        .split_ascii_whitespace()
        .map(|one| span(one).ok_or_else(expected));
    spans.collect()
}

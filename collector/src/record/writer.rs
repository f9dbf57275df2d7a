//! Writes what was recorded: scrapes as separate frames, the rest as files that are replaced.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::sync::Mutex;

use railscope_model::fabric::Timestamp;

use super::compression::compress;
use super::configuration::Configuration;
use super::ring::{Ring, fabric_file};
use super::targets::TargetLog;
use super::{Batch, Line, lock};
use crate::config::{Config, Record};
use crate::replay::pack::CONFIG;

/// The file with the targets.
pub(super) const TARGETS: &str = "targets.json";

/// Writes into the folder.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    configuration: Configuration,
    /// The time of the last line: times never go back.
    latest: Timestamp,
    /// A version of the fabric that is not written yet.
    fabric: Option<(Timestamp, String)>,
    /// Of the last version that was written.
    fabric_hash: Option<u64>,
    /// Cycles before the first line.
    cycles: Vec<Timestamp>,
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(record: &Record, config: &Config) -> Self {
        let ring = Ring::new(record);
        let mut configuration = Configuration::of(config);
        if ring.earlier(CONFIG).is_some()
            && let Ok(earlier) = Config::load(&ring.path(CONFIG))
        {
            configuration.restore(earlier.maintenance);
        }
        Self {
            latest: ring.newest().unwrap_or(Timestamp(0)),
            ring,
            configuration,
            fabric: None,
            fabric_hash: None,
            cycles: Vec::new(),
            is_failing: false,
        }
    }

    /// The targets of an earlier recording in this folder.
    pub(super) fn earlier_targets(&self) -> Option<String> {
        self.ring.earlier(TARGETS)
    }

    /// Writes a batch. An error is logged when it begins; the lines of the batch are lost with it.
    pub(super) fn write(
        &mut self,
        batch: Batch,
        targets: &Mutex<TargetLog>,
        now: Timestamp,
    ) -> io::Result<()> {
        let written = self.write_all(batch, targets, now);
        match &written {
            Err(error) if !self.is_failing => {
                let folder = self.ring.path("");
                tracing::error!(folder = %folder.display(), "cannot write the recording: {error}");
            }
            Ok(()) if self.is_failing => tracing::info!("the recording is written again"),
            _ => {}
        }
        self.is_failing = written.is_err();
        written
    }

    fn write_all(
        &mut self,
        batch: Batch,
        targets: &Mutex<TargetLog>,
        now: Timestamp,
    ) -> io::Result<()> {
        if let Some((at, windows)) = batch.windows {
            self.configuration.set_windows(&windows, at);
        }
        if let Some((from, text)) = batch.fabric {
            let hash = hash(&text);
            if self.fabric_hash != Some(hash) {
                self.fabric_hash = Some(hash);
                self.fabric = Some((from, text));
            }
        }
        self.cycles.extend(batch.cycles);
        self.ring.prepare()?;
        self.configuration.write(&mut self.ring)?;
        let oldest = self.ring.oldest();
        let unsaved = lock(targets).unsaved(oldest);
        if let Some((version, text)) = unsaved {
            self.ring.replace(TARGETS, text.as_bytes())?;
            lock(targets).saved(version);
        }
        if let Some((from, text)) = self.fabric.take() {
            let replaced = self.ring.replace(&fabric_file(from), text.as_bytes());
            // The next sweep retries; scrapes do not wait for it.
            replaced.inspect_err(|_| self.fabric_hash = None)?;
        }
        self.write_lines(batch.lines)?;
        self.ring.expire(now)
    }

    fn write_lines(&mut self, mut lines: Vec<Line>) -> io::Result<()> {
        let first = if lines.is_empty() {
            // Without a scrape there is nothing to replay: cycles wait for the first one.
            if self.cycles.is_empty() || !self.ring.has_segment() {
                self.cycles.truncate(super::MOST_CYCLES);
                return Ok(());
            }
            self.latest
        } else {
            lines.sort_by_key(|line| line.at);
            lines
                .first()
                .map_or(self.latest, |line| line.at.max(self.latest))
        };
        let bytes = lines.iter().map(|line| line.members.len() + 64).sum();
        let mut text = Vec::with_capacity(bytes);
        for line in &lines {
            // A line that arrived after the write of a later one.
            self.latest = self.latest.max(line.at);
            write!(text, "{{\"t\":{}", seconds(self.latest))?;
            if line.samples_at != self.latest {
                write!(text, ",\"ts\":{}", seconds(line.samples_at))?;
            }
            text.push(b',');
            text.extend_from_slice(&line.members);
            text.extend_from_slice(b"}\n");
        }
        drop(lines);
        let frame = match text.is_empty() {
            true => Vec::new(),
            false => compress(&text),
        };
        let cycles: String = std::mem::take(&mut self.cycles)
            .into_iter()
            .map(|cycle| seconds(cycle) + "\n")
            .collect();
        self.ring.append(first, &frame, &cycles)
    }
}

/// Seconds of Unix time with milliseconds.
pub(super) fn seconds(at: Timestamp) -> String {
    format!("{}.{:03}", at.0 / 1_000, at.0 % 1_000)
}

/// Without comments: the first ones of `ibnetdiscover` have the time at which it ran.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.for_each(|line| line.hash(&mut hasher));
    hasher.finish()
}

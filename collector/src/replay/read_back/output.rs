//! Writes what was read back as a pack, by the recorder of the collector.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use railscope_model::fabric::Timestamp;

use super::ReadBackError;
use crate::config::{Config, Record, SubnetFrom, Target};
use crate::diagnose::stages::maintenance::Window;
use crate::record::Recorder;
use crate::replay::pack::versions;

/// Text that is not written yet: a write is one frame.
const BATCH_BYTES: usize = 8 << 20;

/// A pack that is written.
#[derive(Debug)]
pub(super) struct Output {
    recorder: Recorder,
    windows: Vec<Arc<Window>>,
    interval: Duration,
    next_cycle: Option<Timestamp>,
    bytes: usize,
    listed: BTreeSet<Target>,
    folder: std::path::PathBuf,
}

impl Output {
    /// Begins a pack in a folder with the configuration, and the fabric that it names.
    pub(super) fn begin(
        config: &Config,
        folder: &Path,
        span: (Timestamp, Timestamp),
    ) -> Result<Self, ReadBackError> {
        let mut config = config.clone();
        config.record = Some(Record {
            folder: folder.to_owned(),
            max_bytes: u64::MAX,
            max_age: Duration::MAX,
        });
        let folder = folder.to_owned();
        let Some(recorder) = Recorder::open(&config, span.0) else {
            return Err(ReadBackError::Write {
                folder,
                source: std::io::Error::other("the recorder is off"),
            });
        };
        let windows = config.maintenance.iter().cloned().map(Arc::new);
        let output = Self {
            recorder,
            windows: windows.collect(),
            interval: config.analysis_interval,
            next_cycle: None,
            bytes: 0,
            listed: BTreeSet::new(),
            folder,
        };
        output.write_fabric(&config, span)?;
        Ok(output)
    }

    /// The versions of the fabric that were valid in the span; a file without versions from its start on.
    fn write_fabric(
        &self,
        config: &Config,
        (from, until): (Timestamp, Timestamp),
    ) -> Result<(), ReadBackError> {
        let Some(SubnetFrom::File(file)) = config.subnet.as_ref().map(|subnet| &subnet.from) else {
            return Ok(());
        };
        let files = versions(file)?;
        let is_before = |at: Option<Timestamp>| at.is_none_or(|at| at <= from);
        let before = files.iter().filter(|file| is_before(file.from)).count();
        for file in files.iter().skip(before.saturating_sub(1)) {
            let at = file.from.unwrap_or(from).max(from);
            if at <= until {
                self.recorder.fabric(at, file.read()?);
                self.flush(at)?;
            }
        }
        Ok(())
    }

    /// Adds targets to the list.
    pub(super) fn list<'a>(&mut self, new: impl Iterator<Item = &'a Target>, now: Timestamp) {
        let before = self.listed.len();
        self.listed.extend(new.cloned());
        if self.listed.len() > before {
            self.set_targets(now);
        }
    }

    /// Removes a target from the list.
    pub(super) fn unlist(&mut self, target: &Target, now: Timestamp) {
        if self.listed.remove(target) {
            self.set_targets(now);
        }
    }

    fn set_targets(&self, now: Timestamp) {
        for are_pushed in [false, true] {
            let of_them = self.listed.iter();
            let of_them = of_them.filter(|target| target.is_pushed() == are_pushed);
            let of_them: Vec<_> = of_them.cloned().collect();
            self.recorder.set_targets(&of_them, are_pushed, now);
        }
    }

    /// Whether a target is in the list.
    pub(super) fn has(&self, target: &Target) -> bool {
        self.listed.contains(target)
    }

    /// Writes a scrape and the analysis cycles before it.
    pub(super) fn scrape(
        &mut self,
        target: &Target,
        at: Timestamp,
        answer: Result<&str, &str>,
    ) -> Result<(), ReadBackError> {
        let millis = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let mut next = self.next_cycle.unwrap_or(at);
        while next < at {
            self.recorder.cycle(next, &self.windows);
            next = Timestamp(next.0.saturating_add(millis.max(1)));
        }
        self.next_cycle = Some(next);
        self.recorder.scrape(target, at, answer);
        self.bytes += answer.map_or_else(str::len, str::len);
        if self.bytes > BATCH_BYTES {
            self.bytes = 0;
            self.flush(at)?;
        }
        Ok(())
    }

    /// Writes the rest, with one more cycle after the last scrape.
    pub(super) fn finish(self) -> Result<(), ReadBackError> {
        let last = self.next_cycle.unwrap_or_default();
        self.recorder.cycle(last, &self.windows);
        self.flush(last)
    }

    fn flush(&self, now: Timestamp) -> Result<(), ReadBackError> {
        let written = self.recorder.write(now);
        written.map_err(|source| ReadBackError::Write {
            folder: self.folder.clone(),
            source,
        })
    }
}

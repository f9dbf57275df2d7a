//! The folder of a recording within its limits: segments, of which the oldest is deleted first, and files beside them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use railscope_model::fabric::Timestamp;

use crate::config::Record;
use crate::replay::pack::{CONFIG, SEGMENT, seconds};
use crate::replay::recorded::{numbered, time};

/// First line of the configuration of a recording: a folder with another configuration is not written to.
pub(super) const MARKER: &str = "# Written by the collector's recording ([record]); do not edit.";
/// Longest time of one segment.
const SEGMENT_SECONDS: u64 = 600;
/// Segments of a full folder: a ring loses this share of its scrapes at a time.
const SEGMENTS: u64 = 32;

/// The segment that is written.
#[derive(Debug)]
struct Segment {
    seconds: u64,
    bytes: u64,
}

/// A folder that never has more bytes than its limit.
#[derive(Debug)]
pub(super) struct Ring {
    folder: PathBuf,
    max_bytes: u64,
    max_age_seconds: u64,
    segment: Option<Segment>,
}

impl Ring {
    pub(super) fn new(record: &Record) -> Self {
        Self {
            folder: record.folder.clone(),
            max_bytes: record.max_bytes,
            max_age_seconds: record.max_age.as_secs(),
            segment: None,
        }
    }

    /// Creates the folder; refuses one whose configuration is not that of a recording.
    pub(super) fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        match fs::read_to_string(self.folder.join(CONFIG)) {
            Ok(text) if text.starts_with(MARKER) => Ok(()),
            Ok(_) => Err(io::Error::other(format!(
                "{CONFIG} was not written by a recording: expected an empty folder (record.folder)"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The text of a file of an earlier recording in this folder.
    pub(super) fn earlier(&self, name: &str) -> Option<String> {
        let config = fs::read_to_string(self.folder.join(CONFIG)).ok()?;
        let is_ours = config.starts_with(MARKER);
        is_ours.then(|| fs::read_to_string(self.folder.join(name)).ok())?
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Replaces a file: a reader sees the old or the new text.
    pub(super) fn replace(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        // Until the old file is gone, both are there.
        self.make_room(text.len() as u64)?;
        let temporary = self.folder.join(format!("{name}.tmp"));
        let written = fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, self.folder.join(name)));
        // A part of it would keep the space that others need; the error of the write is the one to report.
        written.inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    /// Appends a frame and the times of cycles; the first line of the frame has this time.
    pub(super) fn append(
        &mut self,
        first: Timestamp,
        frame: &[u8],
        cycles: &str,
    ) -> io::Result<()> {
        let bytes = (frame.len() + cycles.len()) as u64;
        self.make_room(bytes)?;
        let is_full = |segment: &Segment| {
            segment.bytes + bytes > self.max_bytes / SEGMENTS
                || first.0 / 1_000 >= segment.seconds + SEGMENT_SECONDS
        };
        // Cycles alone never begin a segment: a segment has scrapes.
        if self.segment.as_ref().is_none_or(is_full) && !frame.is_empty() {
            let newest = self.segments()?.into_keys().next_back();
            // Later than the newest one, even if the clock was set back.
            let seconds = newest.map_or(0, |newest| newest + 1).max(first.0 / 1_000);
            self.segment = Some(Segment { seconds, bytes: 0 });
        }
        let Some(segment) = &mut self.segment else {
            return Ok(());
        };
        segment.bytes += bytes;
        let seconds = segment.seconds;
        let (scrapes, ticks) = files_of(&self.folder, seconds);
        let appended = append(&scrapes, frame).and_then(|()| append(&ticks, cycles.as_bytes()));
        if appended.is_err() {
            // Its last frame may be incomplete, where it could not be cut off: nothing may follow it.
            self.segment = None;
        }
        appended
    }

    /// Whether a segment is written.
    pub(super) fn has_segment(&self) -> bool {
        self.segment.is_some()
    }

    fn segments(&self) -> io::Result<BTreeMap<u64, PathBuf>> {
        numbered(&self.folder, SEGMENT, seconds)
    }

    /// The time from which on there are scrapes.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        let oldest = self.segments().ok()?.into_keys().next()?;
        Some(Timestamp(oldest.saturating_mul(1_000)))
    }

    /// The time from which on the newest segment has scrapes.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let newest = self.segments().ok()?.into_keys().next_back()?;
        Some(Timestamp(newest.saturating_mul(1_000)))
    }

    /// Deletes the oldest segments until so many more bytes are within the limit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes()?.saturating_add(bytes) > self.max_bytes {
            let Some(oldest) = self.segments()?.into_keys().next() else {
                return Err(io::Error::other(format!(
                    "{bytes} more bytes are above the limit of {} bytes (record.max_bytes)",
                    self.max_bytes
                )));
            };
            self.delete(oldest)?;
        }
        Ok(())
    }

    /// Deletes segments all of whose scrapes are older than the limit.
    pub(super) fn expire(&mut self, now: Timestamp) -> io::Result<()> {
        let limit = (now.0 / 1_000).saturating_sub(self.max_age_seconds);
        let segments: Vec<_> = self.segments()?.into_keys().collect();
        for pair in segments.windows(2) {
            // The last scrape of a segment is not later than the next segment.
            if let [one, next] = pair
                && *next < limit
            {
                self.delete(*one)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, seconds: u64) -> io::Result<()> {
        if self
            .segment
            .as_ref()
            .is_some_and(|one| one.seconds == seconds)
        {
            self.segment = None;
        }
        let (scrapes, ticks) = files_of(&self.folder, seconds);
        fs::remove_file(scrapes)?;
        match fs::remove_file(ticks) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.delete_fabrics()
    }

    /// Deletes the versions of the fabric that no scrape needs: those before the one that is valid at the oldest scrape.
    fn delete_fabrics(&self) -> io::Result<()> {
        let Some(oldest) = self.segments()?.into_keys().next() else {
            return Ok(());
        };
        let mut before = numbered(&self.folder, FABRIC, time)?;
        before.retain(|from, _| from.0 <= oldest.saturating_mul(1_000));
        before.pop_last();
        before.into_values().try_for_each(fs::remove_file)
    }

    /// Size of all files of the folder.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        for entry in fs::read_dir(&self.folder)? {
            bytes += entry?.metadata()?.len();
        }
        Ok(bytes)
    }
}

/// Versions of the fabric: `fab.SECONDS.ibnetdiscover`.
const FABRIC: (&str, &str) = ("fab", "ibnetdiscover");

/// The file of a version of the fabric.
pub(super) fn fabric_file(from: Timestamp) -> String {
    let (prefix, suffix) = FABRIC;
    format!("{prefix}.{}.{suffix}", super::writer::seconds(from))
}

fn files_of(folder: &Path, seconds: u64) -> (PathBuf, PathBuf) {
    let (prefix, suffix) = SEGMENT;
    let scrapes = folder.join(format!("{prefix}.{seconds}.{suffix}"));
    (scrapes, folder.join(format!("ticks.{seconds}.txt")))
}

/// Appends all bytes or none: on a full disk a partial write is truncated again, and a new file removed. Otherwise
/// each attempt would leave another file.
fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    file.write_all(bytes).inspect_err(|_| {
        // The error of the write is the one to report.
        match length {
            0 => fs::remove_file(path).ok(),
            length => file.set_len(length).ok(),
        };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_leaves_no_file_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("segment");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let error = append(&path, b"frame").expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
        append(&path, b"frame").expect("there is room again");
        assert_eq!(fs::read(&path).expect("a file"), b"frame");
    }
}

//! The scrapes of a pack: lines of JSON in concatenated zstd frames, in one file or in segments.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use serde::Deserialize;

use super::pack::{PackError, unreadable};
use super::recorded::timestamp;
use crate::sources::push::fragments::Origin;

/// Limit on the decompression window: that of `zstd --long=27`.
const MOST_WINDOW_BYTES: u64 = 1 << 27;
/// Limit on the length of a line.
const MOST_LINE_BYTES: u64 = 256 << 20;

/// One scrape.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// When the response was complete.
    pub at: Timestamp,
    /// The time of its samples: another one only if a sender pushed them.
    pub samples_at: Timestamp,
    /// The target.
    pub origin: Origin,
    /// The exposition, or why there is none.
    pub answer: Result<String, String>,
}

/// Where a line is.
#[derive(Debug, Clone)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// From 1.
    pub line: usize,
}

#[derive(Deserialize)]
struct RawLine {
    t: f64,
    ts: Option<f64>,
    job: String,
    instance: String,
    body: Option<String>,
    error: Option<String>,
}

/// The decompressed content of a file with any number of frames.
struct Frames {
    source: BufReader<File>,
    decoder: FrameDecoder,
    is_in_frame: bool,
    /// Why the frame cannot be decoded further.
    broken: Option<io::Error>,
}

/// An empty last block, and a checksum (which is not checked).
const FRAME_END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

impl Frames {
    fn open(file: &Path) -> io::Result<Self> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MOST_WINDOW_BYTES);
        Ok(Self {
            source: BufReader::new(File::open(file)?),
            decoder,
            is_in_frame: false,
            broken: None,
        })
    }

    /// Whether the file has no byte that was not read.
    fn is_at_end(&mut self) -> bool {
        self.source.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let begun = self.decoder.reset(&mut self.source);
                begun.map_err(io::Error::other)?;
                self.is_in_frame = true;
            }
            while self.decoder.can_collect() == 0
                && !self.decoder.is_finished()
                && self.broken.is_none()
            {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                if let Err(error) = decoded {
                    self.broken = Some(io::Error::other(error));
                    // Until the frame ends, the decoder keeps up to its window: complete data is read before the error.
                    let end = BlockDecodingStrategy::All;
                    self.decoder.decode_blocks(&mut &FRAME_END[..], end).ok();
                }
            }
            let read = self.decoder.read(buffer)?;
            if read == 0
                && let Some(error) = self.broken.take()
            {
                return Err(error);
            }
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.is_in_frame = false;
        }
    }
}

/// The scrapes of a pack in order of time.
pub struct Scrapes {
    /// The files after the current one.
    files: std::vec::IntoIter<PathBuf>,
    are_segments: bool,
    lines: Option<BufReader<Frames>>,
    file: Arc<Path>,
    number: usize,
    latest: Timestamp,
    /// The last time of the segments before: the clock of the recording may have been set back between two.
    floor: Timestamp,
    buffer: Vec<u8>,
    has_failed: bool,
}

impl Iterator for Scrapes {
    type Item = Result<(Place, Line), PackError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let read = self.read();
        self.has_failed = matches!(read, Some(Err(_)));
        read.map(|read| {
            read.map_err(|message| PackError::Line {
                file: self.file.to_path_buf(),
                line: self.number,
                message,
            })
        })
    }
}

impl Scrapes {
    /// Opens the first of these files. Segments are written by a collector, which may have been killed.
    pub(super) fn open(files: Vec<PathBuf>, are_segments: bool) -> Result<Self, PackError> {
        let mut scrapes = Self {
            files: files.into_iter(),
            are_segments,
            lines: None,
            file: Arc::from(Path::new("")),
            number: 0,
            latest: Timestamp(0),
            floor: Timestamp(0),
            buffer: Vec::new(),
            has_failed: false,
        };
        if let Some(file) = scrapes.files.next() {
            let opened = Frames::open(&file).map_err(unreadable(&file))?;
            scrapes.begin(&file, opened);
        }
        Ok(scrapes)
    }

    fn begin(&mut self, file: &Path, frames: Frames) {
        self.file = Arc::from(file);
        self.lines = Some(BufReader::with_capacity(1 << 20, frames));
        self.number = 0;
        self.floor = self.latest;
    }

    fn read(&mut self) -> Option<Result<(Place, Line), String>> {
        loop {
            let Some(lines) = &mut self.lines else {
                let file = self.files.next()?;
                match Frames::open(&file) {
                    Ok(frames) => self.begin(&file, frames),
                    // The collector that records deletes its oldest segment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        tracing::warn!(file = %file.display(), "segment was deleted during the replay");
                    }
                    Err(error) => {
                        (self.file, self.number) = (Arc::from(&*file), 0);
                        return Some(Err(error.to_string()));
                    }
                }
                continue;
            };
            self.buffer.clear();
            self.number += 1;
            let mut line = Read::take(&mut *lines, MOST_LINE_BYTES);
            match line.read_until(b'\n', &mut self.buffer) {
                Ok(0) => self.lines = None,
                Ok(_) => {
                    let place = Place {
                        file: Arc::clone(&self.file),
                        line: self.number,
                    };
                    return Some(self.parse().map(|line| (place, line)));
                }
                Err(_) if self.are_segments && lines.get_mut().is_at_end() => {
                    tracing::warn!(
                        file = %self.file.display(),
                        "the last frame is incomplete (was the collector killed?): its scrapes are lost"
                    );
                    self.lines = None;
                }
                Err(error) => {
                    return Some(Err(format!("expected more of the zstd frame: {error}")));
                }
            }
        }
    }

    fn parse(&mut self) -> Result<Line, String> {
        let raw: RawLine = serde_json::from_slice(self.buffer.trim_ascii_end()).map_err(|error| {
            format!(
                "column {}: expected an object with t, job, instance, and body or error: {error}",
                error.column()
            )
        })?;
        let time = |name: &str, seconds: f64| {
            timestamp(seconds)
                .ok_or_else(|| format!("{name}: {seconds}: expected seconds of Unix time"))
        };
        let recorded_at = time("t", raw.t)?;
        let at = match self.are_segments {
            true => recorded_at.max(self.floor),
            false => recorded_at,
        };
        if at < self.latest {
            let (now, before) = (at.as_seconds(), self.latest.as_seconds());
            return Err(format!(
                "t: {now} after {before}: expected lines in order of time"
            ));
        }
        self.latest = at;
        let samples_at = raw
            .ts
            .map_or(Ok(recorded_at), |seconds| time("ts", seconds))?;
        let answer = match (raw.body, raw.error) {
            (Some(body), None) => Ok(body),
            (None, Some(error)) => Err(error),
            _ => return Err(String::from("expected either body or error")),
        };
        Ok(Line {
            at,
            samples_at,
            origin: Origin {
                job: raw.job,
                instance: raw.instance,
            },
            answer,
        })
    }
}

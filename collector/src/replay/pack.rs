//! A recording of a cluster as a folder, the *pack*: docs/recording.md has its format.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use ruzstd::decoding::StreamingDecoder;
use serde::Deserialize;

use crate::config::file_sd::{Labelled, parse_labelled};
use crate::config::{Config, ConfigError, SubnetFrom, Target};
use crate::sources::push::fragments::Origin;
use crate::sources::targets::TargetList;

/// The scrapes: one JSON object per line.
const SCRAPES: &str = "scrapes.jsonl.zst";
/// The collector's configuration.
const CONFIG: &str = "railscope.toml";
/// Limit on the decompression window: that of `zstd --long=27`.
const MOST_WINDOW_BYTES: u64 = 1 << 27;
/// Limit on the length of a line.
const MOST_LINE_BYTES: u64 = 256 << 20;

/// Why a pack cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file of it cannot be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file of targets is invalid.
    #[error("{}: {message}", file.display())]
    Targets {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A line of the scrapes is invalid.
    #[error("{}: line {line}: {message}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong, and what was expected.
        message: String,
    },
}

/// A version of the fabric's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricFile {
    /// Since when it is valid; none for the first version.
    pub from: Option<Timestamp>,
    path: PathBuf,
}

impl FabricFile {
    /// Its text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<String, PackError> {
        let bytes = std::fs::read(&self.path).map_err(unreadable(&self.path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A pack without its scrapes.
#[derive(Debug)]
pub struct Pack {
    /// Its configuration.
    pub config: Config,
    /// All targets, as the collector would scrape them.
    pub targets: Vec<Target>,
    pub(super) origins: HashMap<Origin, Arc<Target>>,
    pub(super) fabric: Vec<FabricFile>,
    scrapes: PathBuf,
}

impl Pack {
    /// Opens the pack in this folder.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn open(folder: &Path) -> Result<Self, PackError> {
        let mut config = Config::load(&folder.join(CONFIG))?;
        // What an earlier run knew is not part of the recording, and a replay writes nothing.
        config.state_dir = None;
        let mut origins = HashMap::new();
        for file in &config.file_sd {
            let text = std::fs::read_to_string(file).map_err(unreadable(file))?;
            let labelled = parse_labelled(&text, &config.mappings);
            let labelled = labelled.map_err(|message| PackError::Targets {
                file: file.clone(),
                message,
            })?;
            for Labelled {
                job,
                instance,
                target,
            } in labelled
            {
                origins.insert(Origin { job, instance }, Arc::new(target));
            }
        }
        let mut list = TargetList::new(
            config.targets.clone(),
            config.file_sd.clone(),
            config.mappings.clone(),
        );
        list.look();
        let fabric = match config.subnet.as_ref().map(|subnet| &subnet.from) {
            Some(SubnetFrom::File(file)) => versions(file)?,
            _ => Vec::new(),
        };
        Ok(Self {
            targets: list.targets(),
            config,
            origins,
            fabric,
            scrapes: folder.join(SCRAPES),
        })
    }

    /// The scrapes in order of time, each with its line number.
    ///
    /// # Errors
    /// The file is missing, or is not zstd.
    pub fn scrapes(&self) -> Result<Scrapes, PackError> {
        let error = unreadable(&self.scrapes);
        let file = File::open(&self.scrapes).map_err(&error)?;
        let file = BufReader::new(file);
        let decoder = StreamingDecoder::new_with_max_window_size(file, MOST_WINDOW_BYTES);
        let decoder = decoder.map_err(|source| error(io::Error::other(source.to_string())))?;
        Ok(Scrapes {
            file: self.scrapes.clone(),
            lines: BufReader::with_capacity(1 << 20, decoder),
            number: 0,
            latest: Timestamp(0),
            buffer: Vec::new(),
            has_failed: false,
        })
    }

    pub(super) fn unknown_target(&self, line: usize, origin: &Origin) -> PackError {
        PackError::Line {
            file: self.scrapes.clone(),
            line,
            message: format!(
                "job {:?}, instance {:?}: expected a target of targets.json",
                origin.job, origin.instance
            ),
        }
    }
}

fn unreadable(file: &Path) -> impl Fn(io::Error) -> PackError {
    let file = file.to_owned();
    move |source| PackError::Unreadable {
        file: file.clone(),
        source,
    }
}

/// The file itself, and `NAME.SECONDS.EXTENSION` beside it: later versions by the second from which they are valid.
fn versions(first: &Path) -> Result<Vec<FabricFile>, PackError> {
    let (Some(folder), Some(name)) = (first.parent(), first.file_name()) else {
        return Ok(Vec::new());
    };
    let name = name.to_string_lossy();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    let mut later = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        let version = path.file_name().and_then(|name| {
            let rest = name.to_str()?.strip_prefix(stem)?.strip_prefix('.')?;
            rest.strip_suffix(extension)?
                .strip_suffix('.')?
                .parse()
                .ok()
        });
        if let Some(seconds) = version {
            let seconds: u64 = seconds;
            let from = Timestamp(seconds.saturating_mul(1_000));
            later.insert(from, path);
        }
    }
    let first = first.exists().then(|| FabricFile {
        from: None,
        path: first.to_owned(),
    });
    let later = later.into_iter().map(|(from, path)| FabricFile {
        from: Some(from),
        path,
    });
    Ok(first.into_iter().chain(later).collect())
}

/// One scrape.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// When the answer was complete.
    pub at: Timestamp,
    /// The target.
    pub origin: Origin,
    /// The exposition, or why there is none.
    pub answer: Result<String, String>,
}

#[derive(Deserialize)]
struct RawLine {
    t: f64,
    job: String,
    instance: String,
    body: Option<String>,
    error: Option<String>,
}

/// The scrapes of a pack.
pub struct Scrapes {
    file: PathBuf,
    lines: BufReader<StreamingDecoder<BufReader<File>, ruzstd::decoding::FrameDecoder>>,
    number: usize,
    latest: Timestamp,
    buffer: Vec<u8>,
    has_failed: bool,
}

impl Iterator for Scrapes {
    type Item = Result<(usize, Line), PackError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let read = self.read();
        self.has_failed = matches!(read, Some(Err(_)));
        read.map(|read| {
            read.map_err(|message| PackError::Line {
                file: self.file.clone(),
                line: self.number,
                message,
            })
        })
    }
}

impl Scrapes {
    fn read(&mut self) -> Option<Result<(usize, Line), String>> {
        self.buffer.clear();
        self.number += 1;
        let mut line = io::Read::take(&mut self.lines, MOST_LINE_BYTES);
        match line.read_until(b'\n', &mut self.buffer) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(format!("expected more of the zstd frame: {error}"))),
        }
        Some(self.parse().map(|line| (self.number, line)))
    }

    fn parse(&mut self) -> Result<Line, String> {
        let raw: RawLine = serde_json::from_slice(self.buffer.trim_ascii_end()).map_err(|error| {
            format!(
                "column {}: expected an object with t, job, instance, and body or error: {error}",
                error.column()
            )
        })?;
        if !(0.0..1e11).contains(&raw.t) {
            return Err(format!("t: {}: expected seconds of Unix time", raw.t));
        }
        let at = Timestamp((raw.t * 1e3).round() as u64);
        if at < self.latest {
            let (now, before) = (at.as_seconds(), self.latest.as_seconds());
            return Err(format!(
                "t: {now} after {before}: expected lines in order of time"
            ));
        }
        self.latest = at;
        let answer = match (raw.body, raw.error) {
            (Some(body), None) => Ok(body),
            (None, Some(error)) => Err(error),
            _ => return Err(String::from("expected either body or error")),
        };
        Ok(Line {
            at,
            origin: Origin {
                job: raw.job,
                instance: raw.instance,
            },
            answer,
        })
    }
}

//! A recording of a cluster as a folder, the *pack*: docs/recording.md has its format.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;

use crate::config::file_sd::parse_entries;
use crate::config::{Config, ConfigError, SubnetFrom, Target};
use crate::sources::node_names::unite;
use crate::sources::push::fragments::Origin;
use crate::sources::targets::TargetList;

use super::recorded::{Listings, numbered, read_cycles, time};
pub use super::scrapes::{Line, Place, Scrapes};

/// The scrapes: one JSON object per line.
const SCRAPES: &str = "scrapes.jsonl.zst";
/// The same in files `scrapes.SECONDS.jsonl.zst`, as a collector records them.
pub(crate) const SEGMENT: (&str, &str) = ("scrapes", "jsonl.zst");

/// The seconds in the name of a segment.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// The collector's configuration.
pub(crate) const CONFIG: &str = "railscope.toml";

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
    pub(crate) origins: HashMap<Origin, Arc<Target>>,
    /// What identifies the scrapes of invalid targets: they are ignored.
    pub(super) ignored: HashSet<Origin>,
    pub(crate) fabric: Vec<FabricFile>,
    /// When which target is in the list.
    pub(super) listings: Listings,
    /// Times of the analysis cycles; empty unless a collector recorded them.
    pub(crate) cycles: Vec<Timestamp>,
    scrapes: Vec<PathBuf>,
    are_segments: bool,
}

impl Pack {
    /// Opens the pack in this folder. Invalid targets are logged and ignored, as while they are scraped.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn open(folder: &Path) -> Result<Self, PackError> {
        let mut config = Config::load(&folder.join(CONFIG))?;
        // The state of an earlier run is not part of the recording, and a replay writes nothing.
        config.state_dir = None;
        let (mut origins, mut ignored) = (HashMap::new(), HashSet::new());
        let mut listings = Listings::default();
        let mut read = Vec::new();
        for file in &config.file_sd {
            let text = std::fs::read_to_string(file).map_err(unreadable(file))?;
            for entry in parse_entries(&text, &config.mappings).map_err(invalid(file))? {
                match entry {
                    Ok(labeled) => read.push((file, labeled)),
                    Err(invalid) => ignored.extend(invalid.origins),
                }
            }
        }
        let mut configured = config.targets.clone();
        let of_files = read.iter_mut().map(|(_, one)| &mut one.target);
        unite(configured.iter_mut().chain(of_files));
        for (file, one) in read {
            let listed = listings.add(&one.target, one.listed.as_deref());
            listed.map_err(invalid(file))?;
            origins.insert(one.origin, Arc::new(one.target));
        }
        listings.sort();
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
        // The targets of a recording changed with time: one may have replaced another at its place.
        let targets = if listings.has_changes() {
            let all: BTreeSet<_> = origins
                .values()
                .map(|target| Target::clone(target))
                .collect();
            all.into_iter().collect()
        } else {
            list.targets()
        };
        if !listings.has_changes() {
            listings = Listings::constant(&targets);
        }
        let (scrapes, are_segments) = scrape_files(folder)?;
        Ok(Self {
            targets,
            config,
            origins,
            ignored,
            fabric,
            listings,
            cycles: read_cycles(folder)?,
            scrapes,
            are_segments,
        })
    }

    /// The scrapes in order of time, each with its place.
    ///
    /// # Errors
    /// A file is missing.
    pub fn scrapes(&self) -> Result<Scrapes, PackError> {
        Scrapes::open(self.scrapes.clone(), self.are_segments)
    }
}

/// The files with the scrapes, and whether they are segments.
fn scrape_files(folder: &Path) -> Result<(Vec<PathBuf>, bool), PackError> {
    let whole = folder.join(SCRAPES);
    let segments = numbered(folder, SEGMENT, seconds).map_err(unreadable(folder))?;
    if whole.exists() || segments.is_empty() {
        return Ok((vec![whole], false));
    }
    Ok((segments.into_values().collect(), true))
}

pub(super) fn unknown_target(place: &Place, origin: &Origin) -> PackError {
    PackError::Line {
        file: place.file.to_path_buf(),
        line: place.line,
        message: format!(
            "job {:?}, instance {:?}: expected a target of targets.json",
            origin.job, origin.instance
        ),
    }
}

fn invalid(file: &Path) -> impl Fn(String) -> PackError {
    let file = file.to_owned();
    move |message| PackError::Targets {
        file: file.clone(),
        message,
    }
}

pub(super) fn unreadable(file: &Path) -> impl Fn(io::Error) -> PackError {
    let file = file.to_owned();
    move |source| PackError::Unreadable {
        file: file.clone(),
        source,
    }
}

/// The file itself, and `NAME.SECONDS.EXTENSION` beside it: later versions by the second from which they are valid.
pub(super) fn versions(first: &Path) -> Result<Vec<FabricFile>, PackError> {
    let (Some(folder), Some(name)) = (first.parent(), first.file_name()) else {
        return Ok(Vec::new());
    };
    let name = name.to_string_lossy();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    let later = numbered(folder, (stem, extension), time).map_err(unreadable(folder))?;
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

//! `[record]`: where everything that the analysis receives is recorded, and how much of it is kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::values::{Bytes, Period};

/// Bytes of a recording if the file names none.
const MAX_BYTES: u64 = 10_000_000_000;
/// Age of a recording if the file names none.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Settings of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The folder; it belongs to the recording alone.
    pub folder: PathBuf,
    /// Limit on the size of the folder; the oldest file is deleted first.
    pub max_bytes: u64,
    /// Older scrapes are deleted, file by file.
    pub max_age: Duration,
}

impl Record {
    /// A recording into this folder with the default limits.
    pub fn into_folder(folder: PathBuf) -> Self {
        Self {
            folder,
            max_bytes: MAX_BYTES,
            max_age: MAX_AGE,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecord {
    folder: PathBuf,
    #[serde(default = "RawRecord::max_bytes")]
    max_bytes: Bytes,
    #[serde(default = "RawRecord::max_age")]
    max_age: Period,
}

impl RawRecord {
    fn max_bytes() -> Bytes {
        Bytes(MAX_BYTES)
    }

    fn max_age() -> Period {
        Period(MAX_AGE)
    }

    pub(super) fn checked(self, beside: &Path) -> Record {
        Record {
            folder: beside.join(self.folder),
            max_bytes: self.max_bytes.0,
            max_age: self.max_age.0,
        }
    }
}

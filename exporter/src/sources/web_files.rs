//! Files that configure how the exporter's own web server is protected, and whether they have changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Largest file that is read, bytes: a configuration or a bundle of certificates, not a disk.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Distinguishes two states of a file. Links are followed, as Kubernetes swaps the link below a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Option<(u64, u64, i64, i64, u64)>);

/// The state of a file now; an absent file has one too.
pub fn stamp(path: &Path) -> Stamp {
    let about = fs::metadata(path).ok();
    Stamp(about.map(|about| {
        (
            about.dev(),
            about.ino(),
            about.mtime(),
            about.mtime_nsec(),
            about.len(),
        )
    }))
}

/// The text of a file.
///
/// # Errors
/// It cannot be read, is no text, or is absurdly large.
pub fn read(path: &Path) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    if length > LARGEST {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    fs::read_to_string(path)
}

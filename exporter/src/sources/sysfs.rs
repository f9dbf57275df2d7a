//! Files of sysfs and procfs below a root that can be moved: the only code that opens them.
//!
//! Opening, reading and closing a file costs about 9 us, `pread` on a kept descriptor 0.7 us; so files
//! that are read every second stay open. Directories are resolved once, at discovery, and never leave
//! the root; files below them are opened without following links.
//!
//! Only regular files are read. A FIFO under a file's name would block the thread that opens it, for
//! ever: it is refused, logged once with its path, and counts as a failed read of this one value.

mod descriptors;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::reading::Status;
use rustix::fs::{FileType, Mode, OFlags, makedev};
use rustix::io::Errno;

use self::descriptors::Descriptor;
pub use self::watch::{Refused, Watch, reading};

/// Room for one file; the kernel prints at most one page into an attribute.
pub type Buffer = [u8; 4096];

/// `statfs` types of file systems whose files are never replaced under their name.
const KERNEL_FILE_SYSTEMS: [u64; 2] = [0x6265_6572 /* sysfs */, 0x9fa0 /* procfs */];

/// Why a file gave no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// There is no such file, or its device is gone.
    Absent,
    /// The driver reports that it has no such value.
    Unsupported,
    /// A permission is missing.
    Denied,
    /// The text is not what it should be.
    Unparsed,
    /// Any other error.
    Failed,
}

impl From<Miss> for Status {
    fn from(miss: Miss) -> Self {
        match miss {
            Miss::Absent => Self::Absent,
            Miss::Unsupported => Self::Unsupported,
            Miss::Denied => Self::Denied,
            Miss::Unparsed => Self::Unparsed,
            Miss::Failed => Self::Failed,
        }
    }
}

impl From<Errno> for Miss {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO => Self::Absent,
            Errno::INVAL | Errno::OPNOTSUPP | Errno::NODATA => Self::Unsupported,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            _ => Self::Failed,
        }
    }
}

impl From<&std::io::Error> for Miss {
    fn from(error: &std::io::Error) -> Self {
        Errno::from_io_error(error).map_or(Self::Failed, Self::from)
    }
}

/// A file system's root, `/sys` or `/proc` on a real machine.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Names the root; touches nothing.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Opens the root. Done once a discovery, so that a root that is mounted late is found.
    ///
    /// # Errors
    /// The root does not exist or may not be read.
    pub fn open(&self) -> Result<Dir, Miss> {
        let path = fs::canonicalize(&self.0).map_err(|error| Miss::from(&error))?;
        let kind = rustix::fs::statfs(&path)?.f_type as u64;
        let root = Confines {
            path: path.clone(),
            replaceable: !KERNEL_FILE_SYSTEMS.contains(&kind),
        };
        Ok(Dir {
            root: Arc::new(root),
            path,
        })
    }
}

/// What a directory may not leave.
#[derive(Debug)]
struct Confines {
    path: PathBuf,
    /// Files may be deleted and written again under the same name, as in a tree made by a test. The
    /// kernel instead reports `ENODEV` on a descriptor whose device is gone.
    replaceable: bool,
}

/// A directory below a root, every link on the way already resolved.
#[derive(Debug, Clone)]
pub struct Dir {
    root: Arc<Confines>,
    path: PathBuf,
}

impl Dir {
    /// The directory that a path below this one leads to, links followed.
    ///
    /// # Errors
    /// There is none, it may not be read, or it lies outside the root.
    pub fn dir(&self, path: &str) -> Result<Self, Miss> {
        let path = self.path.join(path);
        let resolved = reading(&path, || fs::canonicalize(&path));
        let resolved = resolved.map_err(|error| Miss::from(&error))?;
        if !resolved.starts_with(&self.root.path) {
            tracing::warn!(path = %resolved.display(), root = %self.root.path.display(), "a link leads out of the root: not followed");
            return Err(Miss::Denied);
        }
        if !resolved.is_dir() {
            return Err(Miss::Absent);
        }
        Ok(Self {
            root: Arc::clone(&self.root),
            path: resolved,
        })
    }

    /// Names in the directory, sorted; those that are not UTF-8 are omitted, as no kernel file has one.
    ///
    /// # Errors
    /// The directory is gone or may not be read.
    pub fn names(&self) -> Result<Vec<String>, Miss> {
        let entries = fs::read_dir(&self.path).map_err(|error| Miss::from(&error))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Names of the directories from the root down to this one.
    pub fn components(&self) -> Vec<&str> {
        let below = self.path.strip_prefix(&self.root.path);
        below
            .unwrap_or(&self.path)
            .iter()
            .filter_map(|part| part.to_str())
            .collect()
    }

    /// The `levels`-th directory above this one; itself where that would leave the root.
    #[must_use]
    pub fn above(&self, levels: usize) -> Self {
        let path = self.path.ancestors().nth(levels).unwrap_or(&self.path);
        let path = if path.starts_with(&self.root.path) {
            path
        } else {
            &self.path
        };
        Self {
            root: Arc::clone(&self.root),
            path: path.to_owned(),
        }
    }

    /// The last name of a link's target; the target need not exist.
    pub fn link_name(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.path.join(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Whether there is such a name.
    pub fn has(&self, name: &str) -> bool {
        self.path.join(name).symlink_metadata().is_ok()
    }

    /// Length of a regular file in bytes; links are not followed.
    ///
    /// # Errors
    /// There is no such file, or it is none.
    pub fn length(&self, name: &str) -> Result<u64, Miss> {
        let about = self.path.join(name).symlink_metadata();
        let about = about.map_err(|error| Miss::from(&error))?;
        about.is_file().then_some(about.len()).ok_or(Miss::Denied)
    }

    /// Whether the kernel that runs here made this tree, so that what its other interfaces (netlink)
    /// report is about the same devices; a recorded tree is another machine's.
    pub fn is_live(&self) -> bool {
        !self.root.replaceable
    }

    /// What distinguishes this directory from one that later takes its name.
    pub fn id(&self) -> Option<(u64, u64)> {
        let about = fs::metadata(&self.path).ok()?;
        Some((about.dev(), about.ino()))
    }

    /// A file of this directory; opened when it is first read.
    pub fn file(&self, name: &str) -> File {
        File {
            path: self.path.join(name),
            replaceable: self.root.replaceable,
            kept: Kept::No,
            said: None,
        }
    }

    /// Reads a file once and closes it.
    ///
    /// # Errors
    /// The file gave no value.
    pub fn text(&self, name: &str, buffer: &mut Buffer) -> Result<String, Miss> {
        self.file(name).read(buffer, |text| Some(text.to_owned()))
    }

    /// Reads a file that may be longer than a page, as procfs has them.
    ///
    /// # Errors
    /// The file gave no value.
    pub fn long_text(&self, path: &str) -> Result<String, Miss> {
        let path = self.path.join(path);
        let mut text = String::new();
        let read = reading(&path, || {
            let file = open_regular(&path, OFlags::empty())?;
            let mut file = fs::File::from(file);
            file.read_to_string(&mut text)
                .map_err(|error| match error.kind() {
                    std::io::ErrorKind::InvalidData => Miss::Unparsed,
                    _ => Miss::from(&error),
                })
        });
        read.map(|_| text)
    }
}

/// One file, kept open between reads.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    replaceable: bool,
    kept: Kept,
    /// What was last logged, so that a file that stays bad is named once.
    said: Option<Miss>,
}

#[derive(Debug)]
enum Kept {
    No,
    Open(Descriptor),
    /// The driver reported `EINVAL` or `EOPNOTSUPP`. Asking again can make it write a line into the
    /// kernel log each time (ConnectX-7 bridge functions do), so it is not read again.
    Never,
}

impl File {
    /// Reads the file from its start and parses its trimmed text.
    ///
    /// # Errors
    /// The file gave no value, or `parse` none.
    pub fn read<T>(
        &mut self,
        buffer: &mut Buffer,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Miss> {
        let result = self
            .read_at(0, &mut *buffer)
            .and_then(|length| text(&buffer[..length]))
            .and_then(|text| parse(text).ok_or(Miss::Unparsed));
        let miss = result.as_ref().err().copied();
        if miss != self.said {
            if let Some(miss) = miss {
                tracing::debug!(path = %self.path.display(), ?miss, "no value");
            }
            self.said = miss;
        }
        result
    }

    /// Reads a count.
    ///
    /// # Errors
    /// The file gave no value, or not a whole number.
    pub fn count(&mut self, buffer: &mut Buffer) -> Result<u64, Miss> {
        self.read(buffer, |text| text.parse().ok())
    }

    /// Reads bytes from an offset on, from binary files: `config`, `vpd`. Fewer
    /// than requested where the file ends, or where the reader may see no more of it.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn bytes_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Miss> {
        let mut read = 0;
        while read < bytes.len() {
            match self.read_at(offset + read as u64, &mut bytes[read..])? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    /// Whether the driver reported that it has no such value: the file is then never read again.
    pub fn is_refused(&self) -> bool {
        matches!(self.kept, Kept::Never)
    }

    /// Returns the descriptor; the next read opens the file again.
    pub fn close(&mut self) {
        if matches!(self.kept, Kept::Open(_)) {
            self.kept = Kept::No;
        }
    }

    /// Reads the file into the buffer; returns how many bytes.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Miss> {
        // A kept descriptor may be of a device that went away and came back: then again, by name.
        for _ in 0..2 {
            let read = match &self.kept {
                Kept::Never => return Err(Miss::Unsupported),
                Kept::Open(file) => self.read_open(file, offset, buffer),
                Kept::No => {
                    let open = || open_regular(&self.path, OFlags::NOFOLLOW);
                    let file = reading(&self.path, open)?;
                    let read = self.read_open(&file, offset, buffer);
                    if let Ok(kept) = Descriptor::keep(file) {
                        self.kept = Kept::Open(kept);
                    }
                    read
                }
            };
            match read {
                Ok(Some(length)) => return Ok(length),
                Ok(None) | Err(Errno::NODEV | Errno::NOENT | Errno::NXIO) => self.kept = Kept::No,
                Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                    self.kept = Kept::Never;
                    return Err(errno.into());
                }
                Err(errno) => {
                    self.kept = Kept::No;
                    return Err(errno.into());
                }
            }
        }
        Err(Miss::Absent)
    }

    /// Reads an open file; none if it has lost its name, and may stand again under it.
    fn read_open(
        &self,
        file: &impl AsFd,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Errno> {
        let length = reading(&self.path, || {
            rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, offset))
        })?;
        Ok((!self.replaceable || is_linked(file)).then_some(length))
    }
}

/// Opens a file for reading if it is a regular one. Never waits: a FIFO without a writer would.
///
/// # Errors
/// It cannot be opened, or is something else; then the log names it.
fn open_regular(path: &Path, flags: OFlags) -> Result<OwnedFd, Miss> {
    let never_wait = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | never_wait | flags;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        // Sockets, and devices without a driver.
        Err(Errno::NXIO) => {
            let kind = rustix::fs::stat(path).map(|about| FileType::from_raw_mode(about.st_mode));
            return Err(refusal(path, kind.ok()).unwrap_or(Miss::Absent));
        }
        opened => opened?,
    };
    let about = rustix::fs::fstat(&file)?;
    // Containers hide files of procfs by binding /dev/null over them: an empty file.
    let is_null = about.st_rdev == makedev(1, 3);
    let kind = FileType::from_raw_mode(about.st_mode);
    match refusal(path, Some(kind).filter(|_| !is_null)) {
        Some(miss) => Err(miss),
        None => Ok(file),
    }
}

/// The miss of a file that is of no kind that is read; none of one that is.
fn refusal(path: &Path, kind: Option<FileType>) -> Option<Miss> {
    watch::refuse(path, kind.and_then(watch::refused_kind)?);
    Some(Miss::Failed)
}

/// Whether an open file still has a name.
fn is_linked(descriptor: &impl AsFd) -> bool {
    rustix::fs::fstat(descriptor).is_ok_and(|about| about.st_nlink > 0)
}

/// The text of a file, without the words by which drivers report that there is no value.
fn text(bytes: &[u8]) -> Result<&str, Miss> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Miss::Unparsed)?
        // Old kernels include the end of the string (`online` of NUMA nodes).
        .trim_matches(|char: char| char.is_whitespace() || char == '\0');
    if text.is_empty() || text.starts_with("N/A") {
        return Err(Miss::Unsupported);
    }
    Ok(text)
}

/// Files of one directory that describe a device: read seldom, closed in between, and like all files
/// never again once the driver has reported that it has no such value.
#[derive(Debug)]
pub struct Texts {
    dir: Dir,
    files: BTreeMap<&'static str, File>,
}

impl Texts {
    /// The descriptive files of a directory.
    pub fn new(dir: Dir) -> Self {
        Self {
            dir,
            files: BTreeMap::new(),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Reads one file.
    ///
    /// # Errors
    /// The file gave no value.
    pub fn get(&mut self, path: &'static str, buffer: &mut Buffer) -> Result<String, Miss> {
        let file = self
            .files
            .entry(path)
            .or_insert_with(|| self.dir.file(path));
        let text = file.read(buffer, |text| Some(text.to_owned()));
        file.close();
        text
    }
}

#[cfg(test)]
pub(crate) mod tests;

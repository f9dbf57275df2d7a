//! The kernel's log, record by record: `/dev/kmsg`, or a file of what people save of it.
//!
//! Reading `/dev/kmsg` needs CAP_SYSLOG, or `kernel.dmesg_restrict=0`; nothing is ever written to it. A file may be in
//! any format of `docs/kernel-log.md`; the format is detected line by line.

mod formats;
mod journal;
mod lines;
mod time;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::sysfs::Miss;
use lines::Lines;
pub use lines::Unreadable;
pub use time::Time;

/// Read at once. At least the kernel's `CONSOLE_EXT_LOG_MAX` (8192): a shorter buffer makes it refuse long records.
const BUFFER: usize = 64 * 1024;
/// Lines read in one go; the rest waits for the next, so that a flood cannot hold the reader.
const MOST_LINES: u64 = 100_000;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whether the kernel itself wrote it: programs that write into its log are marked by their facility, those that
    /// write into a system log by their name. A format that shows no sender is the kernel's.
    pub by_kernel: bool,
    /// When, if the format reports.
    pub time: Option<Time>,
    /// The text, without its key-value lines.
    pub text: String,
}

/// What one reading brought.
#[derive(Debug, Default)]
pub struct Batch {
    /// Records in their order.
    pub records: Vec<Record>,
    /// A last line that has no end yet, without its last field if that may be cut: it may be the end of a recording,
    /// or still be written. It comes again until [`KernelLog::accept_unfinished`].
    pub unfinished: Option<Record>,
    /// Whether this is the first reading of a file (not of `/dev/kmsg`): it was found, or replaced, or cut.
    pub is_new_file: bool,
    /// Times that the kernel had overwritten records before they were read.
    pub overrun: u64,
    /// Lines that are no records.
    pub unparsed: u64,
    /// Whether the end of the log was reached, and an incomplete last line is not a record so far.
    pub is_broken_off: bool,
    /// Whether the end of the log was reached.
    pub at_end: bool,
}

/// A kernel log.
#[derive(Debug)]
pub struct KernelLog {
    path: PathBuf,
    file: Option<Open>,
    lines: Lines,
    /// No test has `/dev/kmsg`.
    #[cfg(test)]
    pub(crate) stands_for_device: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// `/dev/kmsg`: it holds what was before the exporter, and a file is what it holds.
    is_device: bool,
    /// Of a regular file: which it is, to see that another has taken its place.
    identity: Option<(u64, u64)>,
    read: u64,
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(nonblocking)
            .open(path)?;
        let metadata = file.metadata()?;
        Ok(Self {
            is_device: metadata.file_type().is_char_device(),
            identity: metadata.is_file().then(|| identity(&metadata)),
            file,
            read: 0,
        })
    }

    /// Whether the path names another file by now, or the file was cut: logs are rotated either
    /// way, renamed or truncated.
    fn was_replaced(&self, path: &Path) -> bool {
        let now = path.metadata();
        let now = now.ok().filter(|_| self.identity.is_some());
        now.is_some_and(|now| Some(identity(&now)) != self.identity || now.len() < self.read)
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl KernelLog {
    /// Names the log; touches nothing.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            lines: Lines::default(),
            #[cfg(test)]
            stands_for_device: false,
        }
    }

    /// Whether the log is the kernel's own and not a file: its first records are older than this reader.
    pub fn is_device(&self) -> bool {
        #[cfg(test)]
        if self.stands_for_device {
            return true;
        }
        self.file.as_ref().is_some_and(|open| open.is_device)
    }

    /// The first line that could not be read, of all that were read so far; the last line, if it has no end yet and
    /// nothing else is there.
    pub fn first_unreadable(&self) -> Option<Unreadable> {
        self.lines.first_unreadable()
    }

    /// The first line of a log that cannot be read, if there is one.
    pub fn first_unreadable_of(path: &Path) -> Option<Unreadable> {
        let mut log = Self::new(path);
        loop {
            let batch = log.read().ok()?;
            let first = log.first_unreadable();
            if first.is_some() || batch.at_end {
                return first;
            }
        }
    }

    /// The unfinished line of the last reading was counted: its end is not counted again.
    pub fn accept_unfinished(&mut self) {
        self.lines.accept_unfinished();
    }

    /// Reads what came since the last time; the first time, all that the log holds, up to a bound: see
    /// [`Batch::at_end`]. Never waits.
    ///
    /// # Errors
    /// The log cannot be opened or read. The next reading opens it again, and begins at its
    /// beginning.
    pub fn read(&mut self) -> Result<Batch, Miss> {
        let mut batch = Batch::default();
        let open = match &mut self.file {
            Some(open) => open,
            none => {
                self.lines = Lines::default();
                let open = Open::new(&self.path).map_err(|error| Miss::from(&error))?;
                batch.is_new_file = !open.is_device;
                none.insert(open)
            }
        };
        self.lines.now = now();
        let mut buffer = vec![0; BUFFER];
        while batch.records.len() as u64 + batch.unparsed < MOST_LINES {
            match open.file.read(&mut buffer) {
                Ok(0) if open.was_replaced(&self.path) => {
                    self.file = None;
                    return Ok(batch);
                }
                Ok(0) => {
                    batch.at_end = true;
                    break;
                }
                Ok(length) => {
                    open.read += length as u64;
                    self.lines.take(&buffer[..length], &mut batch);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    batch.at_end = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next read returns the oldest record still present.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {
                    batch.overrun += 1;
                }
                Err(error) => {
                    self.file = None;
                    return Err(Miss::from(&error));
                }
            }
        }
        if batch.at_end {
            batch.unfinished = self.lines.unfinished();
            batch.is_broken_off = batch.unfinished.is_none() && self.lines.has_beginning();
        }
        Ok(batch)
    }
}

/// Seconds of Unix time.
#[allow(
    clippy::disallowed_methods,
    reason = "the edge: a date without a year is of the year before now"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn texts(log: &mut KernelLog) -> Vec<String> {
        let batch = log.read().expect("readable");
        batch
            .records
            .into_iter()
            .map(|record| record.text)
            .collect()
    }

    fn append(path: &Path, bytes: &[u8]) {
        let mut file = OpenOptions::new().append(true).open(path).expect("open");
        file.write_all(bytes).expect("write");
    }

    #[test]
    fn a_log_is_read_once_to_its_end_and_then_as_it_grows() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("kmsg");
        fs::write(&path, "6,1,10,-;one\n SUBSYSTEM=pci\n6,2,20,-;two; three\n").expect("write");
        let mut log = KernelLog::new(&path);
        assert_eq!(texts(&mut log), ["one", "two; three"]);
        assert!(!log.is_device());
        assert!(texts(&mut log).is_empty());
        append(&path, b"6,3,30,-;fo");
        assert!(texts(&mut log).is_empty(), "half a line is none");
        append(&path, b"ur\nnonsense\n");
        let batch = log.read().expect("readable");
        assert_eq!(
            (batch.records.len(), batch.unparsed, batch.at_end),
            (1, 1, true)
        );
        assert_eq!(
            (batch.records[0].time, &*batch.records[0].text),
            (Some(Time::SinceBoot(30)), "four")
        );
        let unreadable = log.first_unreadable().expect("one line");
        assert_eq!(
            unreadable.to_string(),
            "line 5: not a kernel log line: \"nonsense\""
        );
    }

    #[test]
    fn a_log_that_is_not_there_is_absent_and_looked_for_again() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("kmsg");
        let mut log = KernelLog::new(&path);
        assert_eq!(
            log.read().map(|batch| batch.records.len()),
            Err(Miss::Absent)
        );
        fs::write(&path, "6,1,10,-;one\n").expect("write");
        assert_eq!(texts(&mut log), ["one"]);
    }

    #[test]
    fn a_file_that_is_cut_or_replaced_is_read_from_its_beginning() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("kern.log");
        fs::write(&path, "[    1.0] one\n[    2.0] two\n").expect("write");
        let mut log = KernelLog::new(&path);
        assert_eq!(texts(&mut log), ["one", "two"]);
        fs::write(&path, "[    3.0] three\n").expect("cut");
        assert!(!log.read().expect("readable").at_end);
        let batch = log.read().expect("readable");
        assert!(batch.is_new_file && batch.at_end);
        assert_eq!(batch.records[0].text, "three");
        fs::write(temp.path().join("new"), "[    4.0] four\n").expect("write");
        fs::rename(temp.path().join("new"), &path).expect("rotate");
        assert!(texts(&mut log).is_empty());
        assert_eq!(texts(&mut log), ["four"]);
        fs::remove_file(&path).expect("remove");
        assert!(texts(&mut log).is_empty(), "the open file is still there");
    }

    #[test]
    fn a_character_device_is_known_as_one() {
        let mut log = KernelLog::new(Path::new("/dev/null"));
        let batch = log.read().expect("readable");
        assert!(batch.at_end && !batch.is_new_file && log.is_device());
    }
}

//! The kernel's log, record by record, from `/dev/kmsg`.
//!
//! Reading needs CAP_SYSLOG, or `kernel.dmesg_restrict=0`; nothing is ever written to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::sysfs::Miss;

/// The kernel's `CONSOLE_EXT_LOG_MAX`: a shorter buffer makes it refuse long records.
const LONGEST_RECORD: usize = 8192;
/// Records read in one go; the rest waits for the next, so that a flood cannot hold the reader.
const MOST_RECORDS: usize = 100_000;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whether the kernel itself wrote it: programs that write into its log are marked by their facility.
    pub by_kernel: bool,
    /// Microseconds since the kernel booted.
    pub microseconds: u64,
    /// The text, without its key-value lines.
    pub text: String,
}

impl Record {
    /// Reads `priority,sequence,microseconds,flags;text`.
    fn parse(line: &str) -> Option<Self> {
        let (prefix, text) = line.split_once(';')?;
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let microseconds = fields.nth(1)?.parse().ok()?;
        Some(Self {
            // The lowest three bits are the level, the others the facility: 0 is the kernel.
            by_kernel: priority >> 3 == 0,
            microseconds,
            text: text.to_owned(),
        })
    }
}

/// What one reading brought.
#[derive(Debug, Default)]
pub struct Batch {
    /// Records in their order.
    pub records: Vec<Record>,
    /// Times that the kernel had overwritten records before they were read.
    pub overrun: u64,
    /// Lines that are no records.
    pub unparsed: u64,
    /// Whether the end of the log was reached.
    pub at_end: bool,
}

/// An open kernel log. A regular file of the same format does as well.
#[derive(Debug)]
pub struct KernelLog {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line of a regular file whose end was not there yet.
    rest: Vec<u8>,
}

impl KernelLog {
    /// Names the log; touches nothing.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            rest: Vec::new(),
        }
    }

    /// Reads what came since the last time; the first time, all that the kernel still holds. Never waits.
    ///
    /// # Errors
    /// The log cannot be opened or read. The next reading opens it anew, and begins at its beginning.
    pub fn read(&mut self) -> Result<Batch, Miss> {
        let mut batch = Batch::default();
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                self.rest.clear();
                let nonblocking = OFlags::NONBLOCK.bits() as i32;
                let file = OpenOptions::new()
                    .read(true)
                    .custom_flags(nonblocking)
                    .open(&self.path)
                    .map_err(|error| Miss::from(&error))?;
                none.insert(file)
            }
        };
        let mut buffer = vec![0; LONGEST_RECORD];
        while batch.records.len() < MOST_RECORDS {
            match file.read(&mut buffer) {
                Ok(0) => {
                    batch.at_end = true;
                    break;
                }
                Ok(length) => take_lines(&mut self.rest, &buffer[..length], &mut batch),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    batch.at_end = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next read gives the oldest record that there still is.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {
                    batch.overrun += 1;
                }
                Err(error) => {
                    self.file = None;
                    return Err(Miss::from(&error));
                }
            }
        }
        Ok(batch)
    }
}

/// Takes whole lines out of what was read. The lines of a record behind its first begin with a blank and hold
/// keys and values that nobody here asks for.
fn take_lines(rest: &mut Vec<u8>, bytes: &[u8], batch: &mut Batch) {
    rest.extend_from_slice(bytes);
    let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else {
        if rest.len() > LONGEST_RECORD {
            batch.unparsed += 1;
            rest.clear();
        }
        return;
    };
    let lines: Vec<u8> = rest.drain(..=end).collect();
    for line in String::from_utf8_lossy(&lines).lines() {
        if line.is_empty() || line.starts_with(' ') {
            continue;
        }
        match Record::parse(line) {
            Some(record) => batch.records.push(record),
            None => batch.unparsed += 1,
        }
    }
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

    #[test]
    fn a_log_is_read_once_to_its_end_and_then_as_it_grows() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("kmsg");
        fs::write(&path, "6,1,10,-;one\n SUBSYSTEM=pci\n6,2,20,-;two; three\n").expect("write");
        let mut log = KernelLog::new(&path);
        assert_eq!(texts(&mut log), ["one", "two; three"]);
        assert!(texts(&mut log).is_empty());
        let mut file = OpenOptions::new().append(true).open(&path).expect("open");
        file.write_all(b"6,3,30,-;fo").expect("write");
        assert!(texts(&mut log).is_empty(), "half a line is none");
        file.write_all(b"ur\nnonsense\n").expect("write");
        let batch = log.read().expect("readable");
        assert_eq!(
            (batch.records.len(), batch.unparsed, batch.at_end),
            (1, 1, true)
        );
        assert_eq!(
            (batch.records[0].microseconds, &*batch.records[0].text),
            (30, "four")
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
    fn a_line_without_an_end_is_given_up() {
        let mut batch = Batch::default();
        let mut rest = Vec::new();
        for _ in 0..3 {
            take_lines(&mut rest, &[b'x'; LONGEST_RECORD], &mut batch);
        }
        assert_eq!(batch.unparsed, 1);
        assert!(rest.len() <= LONGEST_RECORD);
    }
}

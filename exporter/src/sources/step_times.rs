//! Step times that jobs write: one file for each rank that writes, one line for each step.
//!
//! The folder is open to every user, so nothing in it is trusted: links are not followed, only regular files are read, and
//! no more than [`MOST_BYTES`] of one at a time.

use super::sysfs::{Dir, File, Miss};

/// Maximum read from one file at a time; of a file that a job wrote before, reading starts at its last so many bytes.
pub const MOST_BYTES: u64 = 64 << 10;
/// Longest valid step, seconds: a day.
const LONGEST_STEP: f64 = 86_400.0;
/// Longest valid name of a job.
const LONGEST_NAME: usize = 128;

/// The job and the rank that a file is named after: `JOB.RANK`, or `JOB` alone. None for other names.
pub fn job_and_rank(name: &str) -> Option<(&str, u32)> {
    let (job, rank) = match name.rsplit_once('.') {
        Some((job, rank)) if !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()) => {
            (job, rank.parse().ok()?)
        }
        _ => (name, 0),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-[]@/".contains(&byte);
    let is_job = !job.is_empty() && !job.starts_with('.') && job.len() <= LONGEST_NAME;
    (is_job && job.bytes().all(plain)).then_some((job, rank))
}

/// One file, read as it grows.
#[derive(Debug)]
pub struct Steps {
    file: File,
    /// Where reading goes on.
    offset: u64,
    /// A line that has begun before and has no end yet.
    begun: Vec<u8>,
}

/// What was new in a file.
#[derive(Debug, Default, PartialEq)]
pub struct NewSteps {
    /// Times of the steps, seconds, in order.
    pub seconds: Vec<f64>,
    /// Invalid lines.
    pub bad_lines: usize,
}

impl Steps {
    /// Begins with the file's last [`MOST_BYTES`].
    pub fn new(dir: &Dir, name: &str) -> Self {
        let length = dir.length(name).unwrap_or_default();
        let offset = length.saturating_sub(MOST_BYTES);
        Self {
            file: dir.file(name),
            offset,
            // The line in whose middle reading begins is not counted as a bad one.
            begun: if offset > 0 { vec![b'#'] } else { Vec::new() },
        }
    }

    /// Reads what was written since, at most [`MOST_BYTES`]. A file that is shorter than before was begun
    /// again.
    ///
    /// # Errors
    /// The file is gone, or cannot be read.
    pub fn read(&mut self, length: u64) -> Result<NewSteps, Miss> {
        if length < self.offset {
            (self.offset, self.begun) = (0, Vec::new());
        }
        let mut new = NewSteps::default();
        if length == self.offset {
            return Ok(new);
        }
        let mut bytes = vec![0; (length - self.offset).min(MOST_BYTES) as usize];
        let read = self.file.bytes_at(self.offset, &mut bytes)?;
        self.offset += read as u64;
        let mut lines = bytes[..read].split(|byte| *byte == b'\n');
        // `split` gives at least one piece; the last one has no end yet.
        let last = lines.next_back().unwrap_or_default();
        for line in lines {
            self.begun.extend_from_slice(line);
            new.take(&self.begun);
            self.begun.clear();
        }
        // A line without an end must not grow without limit: a line longer than any step's line is invalid anyway.
        let room = 256_usize.saturating_sub(self.begun.len());
        self.begun.extend_from_slice(&last[..last.len().min(room)]);
        Ok(new)
    }
}

impl NewSteps {
    /// Reads a line: the time a step took in seconds, behind the time of its end where that is
    /// written, too. Empty lines and those that begin with `#` are none.
    fn take(&mut self, line: &[u8]) {
        let line = str::from_utf8(line).unwrap_or("?").trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let mut words = line.split_ascii_whitespace().map(str::parse::<f64>);
        let seconds = match (words.next(), words.next(), words.next()) {
            (Some(Ok(seconds)), None, None) => Some(seconds),
            (Some(Ok(_)), Some(Ok(seconds)), None) => Some(seconds),
            _ => None,
        };
        match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_STEP) {
            Some(seconds) => self.seconds.push(seconds),
            None => self.bad_lines += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    #[test]
    fn files_are_named_after_a_job_and_a_rank() {
        for (name, expected) in [
            ("4711", Some(("4711", 0))),
            ("4711.3", Some(("4711", 3))),
            ("4711_2.0", Some(("4711_2", 0))),
            ("ml/llama-70b.12", Some(("ml/llama-70b", 12))),
            ("llama3.1-8b", Some(("llama3.1-8b", 0))),
            (".4711.swp", None),
            ("has space.0", None),
            ("4711.99999999999", None),
            ("", None),
            (".0", None),
        ] {
            assert_eq!(job_and_rank(name), expected, "{name}");
        }
    }

    #[test]
    fn a_file_is_read_as_it_grows() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("4711.0");
        fs::write(
            &path,
            "1764000000.5 2.5\n# warm-up\n3\nx\n1 2 3\n-1\n1764000003 0.",
        )
        .expect("write");
        let dir = Root::new(temp.path()).open().expect("the root");
        let mut steps = Steps::new(&dir, "4711.0");
        let mut read = || steps.read(dir.length("4711.0")?);
        let expected = NewSteps {
            seconds: vec![2.5, 3.0],
            bad_lines: 3,
        };
        assert_eq!(read(), Ok(expected));
        assert_eq!(read(), Ok(NewSteps::default()));
        let mut file = OpenOptions::new().append(true).open(&path).expect("opens");
        file.write_all(b"25\n").expect("writes");
        let only = |seconds| NewSteps {
            seconds: vec![seconds],
            bad_lines: 0,
        };
        assert_eq!(read(), Ok(only(0.25)));
        fs::write(&path, "7\n").expect("write");
        assert_eq!(read(), Ok(only(7.0)));
    }

    #[test]
    fn of_a_long_file_the_last_part_is_read_and_an_endless_line_costs_nothing() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let line = "1764000000.123456 2.000000\n";
        fs::write(temp.path().join("1"), line.repeat(10_000)).expect("write");
        fs::write(temp.path().join("2"), "9".repeat(1 << 20)).expect("write");
        let dir = Root::new(temp.path()).open().expect("the root");
        let length = |name: &str| dir.length(name).expect("a file");
        let read = Steps::new(&dir, "1").read(length("1")).expect("readable");
        assert_eq!(read.bad_lines, 0);
        assert_eq!(read.seconds.len() as u64, MOST_BYTES / line.len() as u64);
        let mut endless = Steps::new(&dir, "2");
        assert_eq!(endless.read(length("2")), Ok(NewSteps::default()));
        assert!(endless.begun.len() <= 256);
    }
}

//! Cuts what was read of a kernel log into lines and binary fields, and puts records together from them.

use std::fmt;

use super::formats::{self, Format};
use super::journal::{self, Binary, Entry, Progress};
use super::{Batch, Record};

/// A longer line is given up. The kernel's own are at most 8192 bytes; entries of the journal as JSON are the longest.
const LONGEST_LINE: usize = 256 * 1024;
/// Text of a record that spans several lines.
const LONGEST_TEXT: usize = 8192;
/// Characters of an unreadable line that are shown.
const SHOWN: usize = 80;

/// A line that does not belong to a kernel log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its number, from 1.
    pub line: u64,
    /// Its beginning.
    pub text: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, text } = self;
        write!(f, "line {line}: not a kernel log line: {text:?}")
    }
}

/// The state between two readings.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Unix time in seconds.
    pub(super) now: u64,
    first_unreadable: Option<Unreadable>,
    /// The beginning of a line whose end was not there yet.
    rest: Vec<u8>,
    /// The next line feed ends a line that was given up, or counted unfinished.
    skips: bool,
    /// Lines that have begun.
    number: u64,
    /// The format of the last record.
    last: Option<Format>,
    /// An entry of a journal export, and the number of its first line.
    entry: Option<(Entry, u64)>,
    binary: Option<Binary>,
}

impl Lines {
    /// Removes complete lines from what was read.
    pub(super) fn take(&mut self, bytes: &[u8], batch: &mut Batch) {
        let mut held = std::mem::take(&mut self.rest);
        held.extend_from_slice(bytes);
        let mut input = held.as_slice();
        loop {
            if self.binary.is_some() {
                self.binary_field(&mut input, batch);
                if self.binary.is_some() {
                    return;
                }
            }
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                break;
            };
            let (line, after) = input.split_at(end);
            input = &after[1..];
            self.number += 1;
            if !std::mem::take(&mut self.skips) {
                let line = String::from_utf8_lossy(line);
                self.line(line.trim_end_matches(['\r', '\0']), batch);
            }
        }
        if self.skips {
            return;
        }
        if input.len() > LONGEST_LINE {
            let text = String::from_utf8_lossy(&input[..4 * SHOWN]);
            self.number += 1;
            self.unreadable(self.number, &text, batch);
            self.number -= 1;
            self.skips = true;
        } else {
            self.rest = input.to_vec();
        }
    }

    fn binary_field(&mut self, input: &mut &[u8], batch: &mut Batch) {
        let Some(mut binary) = self.binary.take() else {
            return;
        };
        let before = *input;
        let progress = binary.take(input);
        let taken = &before[..before.len() - input.len()];
        self.number += taken.iter().filter(|byte| **byte == b'\n').count() as u64;
        match progress {
            Progress::More => self.binary = Some(binary),
            Progress::Done => {
                if let Some((entry, _)) = &mut self.entry {
                    binary.end(entry);
                }
            }
            Progress::Damaged => {
                self.entry = None;
                self.unreadable(self.number, "a binary field without its length", batch);
            }
        }
    }

    fn line(&mut self, line: &str, batch: &mut Batch) {
        if line.is_empty() {
            return self.end_entry(batch);
        }
        if line.starts_with([' ', '\t']) {
            return self.continuation(line, batch);
        }
        if let Some((name, value)) = journal::field(line) {
            match (&mut self.entry, value) {
                (Some((entry, _)), Some(value)) => return entry.set(name, value),
                (Some(_), None) => {
                    self.binary = Some(Binary::new(name));
                    return;
                }
                (None, Some(value)) => {
                    let mut entry = Entry::default();
                    entry.set(name, value);
                    self.entry = Some((entry, self.number));
                    return;
                }
                (None, None) => {}
            }
        }
        // Something else begins in the middle of an entry.
        self.end_entry(batch);
        // What journalctl itself reports between records: `-- Boot 3f5c... --`.
        if line.starts_with("-- ") {
            return;
        }
        match formats::parse(line, self.now) {
            Some((format, record)) => {
                self.last = Some(format);
                batch.records.push(record);
            }
            None => self.unreadable(self.number, line, batch),
        }
    }

    /// A line that begins with a blank. Behind a record of `/dev/kmsg` it holds a key and a value that nothing here
    /// needs; elsewhere it is another line of the same message. Talos aligns its first words to the right.
    fn continuation(&mut self, line: &str, batch: &mut Batch) {
        if matches!(self.last, None | Some(Format::Talos))
            && let Some(record) = formats::talos(line.trim_start())
        {
            self.last = Some(Format::Talos);
            batch.records.push(record);
            return;
        }
        if matches!(self.last, None | Some(Format::Kmsg)) || self.entry.is_some() {
            return;
        }
        if let Some(last) = batch.records.last_mut()
            && last.text.len() + line.len() < LONGEST_TEXT
        {
            last.text.push(' ');
            last.text.push_str(line.trim());
        }
    }

    fn end_entry(&mut self, batch: &mut Batch) {
        if let Some((entry, line)) = self.entry.take() {
            match entry.record() {
                Some(record) => {
                    self.last = Some(Format::Journal);
                    batch.records.push(record);
                }
                None => self.unreadable(line, "a journal entry without a time", batch),
            }
        }
    }

    fn unreadable(&mut self, line: u64, text: &str, batch: &mut Batch) {
        batch.unparsed += 1;
        self.first_unreadable.get_or_insert_with(|| Unreadable {
            line,
            text: text.chars().take(SHOWN).collect(),
        });
    }

    /// Whether the log ends within a line or an entry.
    pub(super) fn has_beginning(&self) -> bool {
        !self.rest.is_empty() || self.entry.is_some()
    }

    pub(super) fn first_unreadable(&self) -> Option<Unreadable> {
        let first = self.first_unreadable.clone();
        first.or_else(|| {
            let text = String::from_utf8_lossy(&self.rest);
            (self.last.is_none() && !text.is_empty()).then(|| Unreadable {
                line: self.number + 1,
                text: text.chars().take(SHOWN).collect(),
            })
        })
    }

    /// The record that the last line would be if it ended here.
    pub(super) fn unfinished(&mut self) -> Option<Record> {
        if self.skips {
            return None;
        }
        if self.rest.is_empty() {
            // `accept_unfinished` takes the message out, so that it comes once.
            let (entry, _) = self.entry.as_ref()?;
            return entry
                .clone()
                .record()
                .filter(|record| !record.text.is_empty());
        }
        let line = String::from_utf8_lossy(&self.rest);
        // Half a number is another number: a truncated last field with a digit is not trusted.
        let word = line.chars().rev().take_while(char::is_ascii_alphanumeric);
        let end = line.len() - word.count();
        let is_doubtful = line[end..].contains(|char: char| char.is_ascii_digit());
        let line = if is_doubtful { &line[..end] } else { &*line };
        let (_, record) = formats::parse(line, self.now)?;
        Some(record)
    }

    /// The end of the unfinished line, once it comes, is part of a record that was counted.
    pub(super) fn accept_unfinished(&mut self) {
        if self.rest.is_empty() {
            if let Some((entry, _)) = &mut self.entry {
                entry.set("MESSAGE", "");
            }
            return;
        }
        self.rest.clear();
        self.skips = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::kmsg::Time;

    fn take(lines: &mut Lines, bytes: &[u8]) -> Batch {
        let mut batch = Batch::default();
        lines.take(bytes, &mut batch);
        batch
    }

    #[test]
    fn a_line_without_an_end_is_given_up_and_the_next_is_read() {
        let mut lines = Lines::default();
        let mut unparsed = 0;
        for _ in 0..128 {
            unparsed += take(&mut lines, &[b'x'; 8192]).unparsed;
        }
        assert_eq!(unparsed, 1, "a line of 1 MB is one line");
        assert!(lines.rest.len() <= LONGEST_LINE);
        let batch = take(&mut lines, b"xx\n[    1.5] text\n");
        assert_eq!((batch.records.len(), batch.unparsed), (1, 0));
        let first = lines.first_unreadable.expect("one");
        assert_eq!((first.line, first.text.len()), (1, SHOWN));
    }

    #[test]
    fn entries_of_a_journal_export_are_read_in_any_pieces() {
        let mut export =
            b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1740327858123456\n_TRANSPORT=kernel\nMESSAGE\n"
                .to_vec();
        export.extend_from_slice(&11_u64.to_le_bytes());
        export.extend_from_slice(b"two\nlines\xff!\nPRIORITY=3\n\n__CURSOR=s=2\nCOREDUMP\n");
        export.extend_from_slice(&300_000_u64.to_le_bytes());
        export.extend_from_slice(&vec![b'\n'; 300_001]);
        export.extend_from_slice(
            b"__REALTIME_TIMESTAMP=5\n_TRANSPORT=kernel\nSYSLOG_FACILITY=1\nMESSAGE=forged\n\n__CURSOR=s=3\n\n",
        );
        for size in [1, 7, 8192, 1 << 20] {
            let mut lines = Lines::default();
            let mut all = Batch::default();
            for piece in export.chunks(size) {
                lines.take(piece, &mut all);
            }
            let texts: Vec<_> = all
                .records
                .iter()
                .map(|record| (record.by_kernel, &*record.text))
                .collect();
            assert_eq!(
                texts,
                [(true, "two\nlines\u{fffd}!"), (false, "forged")],
                "{size}"
            );
            let time = all.records[0].time;
            assert_eq!(time, Some(Time::Unix(1_740_327_858_123_456)));
            assert_eq!(all.unparsed, 1);
            let first = lines.first_unreadable.expect("one").line;
            assert!(first > 300_000, "{first}");
        }
    }

    #[test]
    fn a_binary_field_with_a_senseless_length_costs_its_entry_only() {
        let mut lines = Lines::default();
        let batch = take(
            &mut lines,
            b"__REALTIME_TIMESTAMP=5\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff\n\n__REALTIME_TIMESTAMP=6\nMESSAGE=x\n\n",
        );
        assert_eq!((batch.records.len(), batch.unparsed), (1, 1));
    }

    #[test]
    fn a_last_line_without_its_end_loses_only_a_word_that_may_be_cut() {
        for (line, expected) in [
            (
                "[    1.5] NVRM: Xid (PCI:0000:9b:00): 7",
                "NVRM: Xid (PCI:0000:9b:00): ",
            ),
            ("[    1.5] ib0: link down", "ib0: link down"),
            ("[    1.5] x, pid=12, name=py", "x, pid=12, name=py"),
        ] {
            let mut lines = Lines::default();
            assert!(take(&mut lines, line.as_bytes()).records.is_empty());
            let unfinished = lines.unfinished().expect("a record");
            assert_eq!(unfinished.text, expected);
            lines.accept_unfinished();
            assert_eq!(lines.unfinished(), None);
            let batch = take(&mut lines, b" more\n[    2.5] next\n");
            assert_eq!((batch.records.len(), batch.unparsed), (1, 0), "{line}");
        }
    }
}

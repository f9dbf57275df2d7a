//! Entries of the systemd journal: `journalctl -o export` and `journalctl -o json`.
//!
//! The export format writes one field a line, `KEY=VALUE`, and an empty line between entries. A value with line breaks
//! or control characters is binary: `KEY`, a line break, its length in 8 bytes (little endian), the value, a line break.

use serde::Deserialize;

use super::Record;
use super::time::Time;

/// A binary field that claims to be longer is a damaged file; systemd's own limit of a field, `DATA_SIZE_MAX`.
const LONGEST_FIELD: u64 = 768 * 1024 * 1024;
/// Bytes that are kept of a binary message; the kernel's records are shorter.
const LONGEST_MESSAGE: usize = 8192;

/// The fields of one entry with time, sender and message.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    message: Option<String>,
    transport: Option<String>,
    facility: Option<String>,
    realtime: Option<u64>,
    monotonic: Option<u64>,
}

impl Entry {
    /// Stores a field; all others than those above are ignored.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        match name {
            "MESSAGE" => self.message = Some(value.to_owned()),
            "_TRANSPORT" => self.transport = Some(value.to_owned()),
            "SYSLOG_FACILITY" => self.facility = Some(value.to_owned()),
            "__REALTIME_TIMESTAMP" => self.realtime = value.parse().ok(),
            "_SOURCE_MONOTONIC_TIMESTAMP" => self.monotonic = value.parse().ok(),
            _ => {}
        }
    }

    /// The entry as a record; none if it has no time, which every entry has.
    pub(super) fn record(self) -> Option<Record> {
        let time = self.realtime.map(Time::Unix);
        let time = time.or(self.monotonic.map(Time::SinceBoot))?;
        // What a program wrote to /dev/kmsg comes by the same transport, and keeps the facility of the program.
        let facility = self.facility.as_deref().unwrap_or("0");
        let by_kernel = self.transport.as_deref() == Some("kernel") && facility == "0";
        Some(Record {
            by_kernel,
            time: Some(time),
            text: self.message.unwrap_or_default(),
        })
    }
}

/// `KEY=VALUE`, or `KEY` of a binary field.
pub(super) fn field(line: &str) -> Option<(&str, Option<&str>)> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (line, None),
    };
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| !byte.is_ascii_digit());
    // The journal's own limit of a name is 64 bytes.
    (begins && name.len() <= 64 && name.bytes().all(is_name)).then_some((name, value))
}

/// A binary field that is being read.
#[derive(Debug)]
pub(super) struct Binary {
    name: String,
    /// The eight bytes of its length, then those of the value that are kept.
    bytes: Vec<u8>,
    /// Bytes of the value and of the line break behind it that are still to come; none before the length is known.
    left: Option<u64>,
}

/// How far a binary field is.
pub(super) enum Progress {
    /// More bytes have to come.
    More,
    /// The field is read.
    Done,
    /// This is no length of a field.
    Damaged,
}

impl Binary {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            bytes: Vec::new(),
            left: None,
        }
    }

    /// Removes its bytes from the beginning of what was read.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Progress {
        if self.left.is_none() {
            let (length, rest) = input.split_at(input.len().min(8 - self.bytes.len()));
            self.bytes.extend_from_slice(length);
            *input = rest;
            let Ok(length) = <[u8; 8]>::try_from(self.bytes.as_slice()) else {
                return Progress::More;
            };
            let length = u64::from_le_bytes(length);
            if length > LONGEST_FIELD {
                return Progress::Damaged;
            }
            self.bytes.clear();
            self.left = Some(length + 1);
        }
        let left = self.left.unwrap_or_default();
        let here = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (value, rest) = input.split_at(here);
        let room = LONGEST_MESSAGE.saturating_sub(self.bytes.len());
        if self.name == "MESSAGE" {
            self.bytes.extend_from_slice(&value[..here.min(room)]);
        }
        *input = rest;
        self.left = Some(left - here as u64);
        if left == here as u64 {
            Progress::Done
        } else {
            Progress::More
        }
    }

    /// Puts the value, without the line break behind it, into an entry.
    pub(super) fn end(self, entry: &mut Entry) {
        let value = String::from_utf8_lossy(&self.bytes);
        entry.set(&self.name, value.trim_end_matches('\n'));
    }
}

#[derive(Deserialize)]
struct Json {
    #[serde(rename = "MESSAGE")]
    message: Option<serde_json::Value>,
    #[serde(rename = "_TRANSPORT")]
    transport: Option<serde_json::Value>,
    #[serde(rename = "SYSLOG_FACILITY")]
    facility: Option<serde_json::Value>,
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    realtime: Option<serde_json::Value>,
    #[serde(rename = "_SOURCE_MONOTONIC_TIMESTAMP")]
    monotonic: Option<serde_json::Value>,
}

/// One object of `journalctl -o json`.
pub(super) fn json(line: &str) -> Option<Record> {
    let json: Json = serde_json::from_str(line).ok()?;
    let mut entry = Entry::default();
    for (name, value) in [
        ("MESSAGE", json.message),
        ("_TRANSPORT", json.transport),
        ("SYSLOG_FACILITY", json.facility),
        ("__REALTIME_TIMESTAMP", json.realtime),
        ("_SOURCE_MONOTONIC_TIMESTAMP", json.monotonic),
    ] {
        if let Some(value) = value.as_ref().and_then(value_text) {
            entry.set(name, &value);
        }
    }
    entry.record()
}

/// Fields are strings, binary ones arrays of bytes; a field that is present twice is an array of
/// strings.
fn value_text(value: &serde_json::Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    if value.is_number() {
        return Some(value.to_string());
    }
    let values = value.as_array()?;
    if let Some(last) = values.last().and_then(serde_json::Value::as_str) {
        return Some(last.to_owned());
    }
    let byte = |value: &serde_json::Value| u8::try_from(value.as_u64()?).ok();
    let bytes: Option<Vec<u8>> = values.iter().map(byte).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

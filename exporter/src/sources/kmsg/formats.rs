//! One line of a kernel log, in every format that people have it in.

use std::borrow::Cow;

use super::time::{self, Time};
use super::{Record, journal};

/// Syslog facilities as dmesg, Talos and syslog daemons name them. `local0` to `local7` and `res0` on are known by
/// their first letters.
const FACILITIES: [&str; 12] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp",
];
const LEVELS: [&str; 11] = [
    "emerg", "alert", "crit", "err", "error", "warn", "warning", "notice", "info", "debug", "panic",
];

/// A family of formats whose records continue on further lines in the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Records of `/dev/kmsg`.
    Kmsg,
    /// dmesg in its styles.
    Dmesg,
    /// `talosctl dmesg`.
    Talos,
    /// Syslog files and the short styles of journalctl.
    Syslog,
    /// The journal's export format, and its JSON.
    Journal,
}

/// Reads a line; none if it is in no format. `now` is Unix time in seconds.
pub(super) fn parse(line: &str, now: u64) -> Option<(Format, Record)> {
    let line = without_colors(line);
    // journalctl -o json-seq begins each object with a record separator.
    let line = line.trim_start_matches('\u{1e}');
    if line.starts_with('{') {
        return Some((Format::Journal, journal::json(line)?));
    }
    if let Some(record) = kmsg(line) {
        return Some((Format::Kmsg, record));
    }
    if let Some(record) = talos(line) {
        return Some((Format::Talos, record));
    }
    let (by_kernel, line) = match priority(line).or_else(|| facility(line)) {
        Some((by_kernel, rest)) => (Some(by_kernel), rest),
        None => (None, line),
    };
    dmesg(line, by_kernel)
        .map(|record| (Format::Dmesg, record))
        .or_else(|| Some((Format::Syslog, syslog(line, by_kernel, now)?)))
}

/// `priority,sequence,microseconds,flags;text`: a record of `/dev/kmsg`.
fn kmsg(line: &str) -> Option<Record> {
    if !line.starts_with(|char: char| char.is_ascii_digit()) {
        return None;
    }
    let (prefix, text) = line.split_once(';')?;
    let mut fields = prefix.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let _sequence: u64 = fields.next()?.parse().ok()?;
    let microseconds = fields.next()?.parse().ok()?;
    Some(Record {
        // The lowest three bits are the level, the others the facility: 0 is the kernel.
        by_kernel: priority >> 3 == 0,
        time: Some(Time::SinceBoot(microseconds)),
        text: text.to_owned(),
    })
}

/// `172.20.0.2: kern:    info: [2021-11-10T10:18:55.6Z]: text`, with the node or without.
pub(super) fn talos(line: &str) -> Option<Record> {
    let (by_kernel, rest) = facility(line).or_else(|| {
        let (node, rest) = line.split_once(": ")?;
        (!node.contains(' ')).then(|| facility(rest.trim_start()))?
    })?;
    let (time, rest) = time::iso(rest.strip_prefix('[')?)?;
    let text = rest.strip_prefix("]:")?;
    Some(Record {
        by_kernel,
        time: Some(time),
        text: text.strip_prefix(' ').unwrap_or(text).to_owned(),
    })
}

/// dmesg: `[   12.345678] text`, `[Sun Feb 23 16:24:18 2025] text`, `2025-02-23T16:24:18,123456+00:00 text`. The writer of
/// a record is shown with `-x` only; otherwise it counts as the kernel's.
fn dmesg(line: &str, by_kernel: Option<bool>) -> Option<Record> {
    let (time, text) = match line.strip_prefix('[') {
        Some(rest) => {
            let (inner, text) = rest.split_once(']')?;
            (bracketed(inner.trim())?, text)
        }
        None => {
            let (time, text) = time::iso(line)?;
            // A comma is in no syslog daemon's times, and dmesg has no other sign.
            let is_dmesg = line[..line.len() - text.len()].contains(',');
            (
                (is_dmesg || by_kernel.is_some()).then_some(Some(time))?,
                text,
            )
        }
    };
    let text = without_caller(text.strip_prefix(' ').unwrap_or(text));
    // journalctl -o short-monotonic: `[   12.345678] host kernel: text`.
    let sender = text.split_once(' ');
    let rest = sender.and_then(|(_, rest)| rest.strip_prefix("kernel: "));
    Some(Record {
        by_kernel: by_kernel.unwrap_or(true),
        time,
        text: rest.unwrap_or(text).to_owned(),
    })
}

/// A time between brackets, which some styles write as that since the last record.
fn bracketed(inner: &str) -> Option<Option<Time>> {
    if let Some((micros, rest)) = time::seconds(inner) {
        // dmesg -d: `[   12.345678 <    0.000123>]`.
        let is_time = rest.is_empty() || rest.trim_start().starts_with('<');
        return is_time.then_some(Some(Time::SinceBoot(micros)));
    }
    if let Some((time, rest)) = time::ctime(inner).or_else(|| time::iso(inner)) {
        let is_time = rest.is_empty() || rest.trim_start().starts_with('<');
        return is_time.then_some(Some(time));
    }
    // dmesg -H: `[Feb23 16:24]`, then `[  +0.000123]`.
    let since_last = inner.strip_prefix('+').and_then(time::seconds);
    if since_last.is_some_and(|(_, rest)| rest.is_empty()) || time::is_short(inner) {
        return Some(None);
    }
    None
}

/// What syslog daemons and journalctl write: `Feb 23 16:24:18 host kernel: [   12.345678] text`, with ISO times and
/// others as well. Only what `kernel` sent is the kernel's.
fn syslog(line: &str, by_kernel: Option<bool>, now: u64) -> Option<Record> {
    // Cut out of such a log, without time and host.
    if let Some(text) = line.strip_prefix("kernel: ") {
        return Some(Record {
            by_kernel: by_kernel.unwrap_or(true),
            time: None,
            text: text.to_owned(),
        });
    }
    let (time, rest) = time::syslog(line, now)
        .or_else(|| time::iso(line))
        .or_else(|| time::ctime(line))
        .or_else(|| short_full(line))
        .or_else(|| short_unix(line))?;
    let rest = rest.strip_prefix(' ')?.trim_start();
    // A date before the kernel's own time is that of the collector of the line.
    let (by_kernel, text) = match own_time(rest) {
        Some(_) => (by_kernel.unwrap_or(true), rest),
        None => sender(rest, by_kernel)?,
    };
    // The kernel's own time precedes its text if the daemon does not remove it.
    let own = own_time(text).filter(|_| by_kernel);
    let text = own.map_or(text, without_caller);
    Some(Record {
        by_kernel,
        time: Some(time),
        text: text.to_owned(),
    })
}

/// What follows `[   12.345678] `.
fn own_time(text: &str) -> Option<&str> {
    let (inner, rest) = text.strip_prefix('[')?.split_once(']')?;
    let (_, after) = time::seconds(inner.trim())?;
    after
        .is_empty()
        .then(|| rest.strip_prefix(' ').unwrap_or(rest))
}

/// journalctl -o short-full: `Sun 2025-02-23 16:24:18 UTC`. The name of another zone reports nothing
/// here.
fn short_full(line: &str) -> Option<(Time, &str)> {
    let (time, rest) = time::iso(time::weekday(line)?)?;
    let (zone, _) = rest.strip_prefix(' ')?.split_once(' ')?;
    let is_zone = zone.len() <= 5 && zone.bytes().all(|byte| byte.is_ascii_uppercase());
    let zone = if is_zone { zone.len() + 1 } else { 0 };
    Some((time, &rest[zone..]))
}

/// journalctl -o short-unix: `1740327858.123456`.
fn short_unix(line: &str) -> Option<(Time, &str)> {
    let (micros, rest) = time::seconds(line)?;
    let (whole, _) = line.split_once('.')?;
    // Nine digits or more are after 1973, and no node is up for so long.
    (whole.len() >= 9).then_some((Time::Unix(micros), rest))
}

/// Reads `host kernel: text`, or `host program[7]: text`; the host, and a facility and level (`kern.err`) in its place or
/// after it, are optional. A line without a sender is not from a system log.
fn sender(text: &str, mut by_kernel: Option<bool>) -> Option<(bool, &str)> {
    let mut rest = text;
    // The host, and the facility.
    for place in 0..2 {
        let (word, after) = rest.split_once(' ')?;
        let named = word.split_once('.');
        let named =
            named.filter(|(facility, level)| is_facility(facility) && LEVELS.contains(level));
        if let Some((facility, _)) = named {
            by_kernel = Some(facility == "kern");
        } else if place > 0 || word.ends_with(':') || !word.bytes().all(is_of_host) {
            break;
        }
        rest = after.trim_start();
    }
    if let Some(text) = rest.strip_prefix("kernel:") {
        let text = text.strip_prefix(' ').unwrap_or(text);
        return Some((by_kernel.unwrap_or(true), text));
    }
    // What daemons write of themselves has no sender.
    let is_mark = rest.starts_with("last message repeated") || rest.starts_with("-- MARK --");
    let program = rest.split_once(':').map(|(program, _)| program);
    // Names of programs may hold blanks.
    let is_program = program.is_some_and(|name| name.len() <= 64 && name.split(' ').count() <= 3);
    let has_host = rest.len() < text.len();
    (has_host && (is_mark || is_program)).then_some((false, rest))
}

/// Characters of host names and addresses.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':')
}

/// `<6>`, the facility and level of a raw record: whether it is the kernel's, and what follows.
fn priority(line: &str) -> Option<(bool, &str)> {
    let (number, rest) = line.strip_prefix('<')?.split_once('>')?;
    let priority: u16 = number.parse().ok()?;
    Some((priority >> 3 == 0, rest))
}

/// `kern  :err   : `, the facility and level that dmesg -x and Talos write.
fn facility(line: &str) -> Option<(bool, &str)> {
    let (facility, rest) = line.split_once(':')?;
    let facility = facility.trim_end();
    is_facility(facility).then_some(())?;
    let (level, rest) = rest.split_once(':')?;
    LEVELS
        .contains(&level.trim())
        .then(|| (facility == "kern", rest.trim_start()))
}

fn is_facility(word: &str) -> bool {
    let numbered = word
        .strip_prefix("local")
        .or_else(|| word.strip_prefix("res"));
    let is_numbered =
        numbered.is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number < 16));
    is_numbered || FACILITIES.contains(&word)
}

/// Removes `[  T1234] ` or `[    C7] `: kernels with CONFIG_PRINTK_CALLER name the thread or CPU.
fn without_caller(text: &str) -> &str {
    let caller = text.trim_start().strip_prefix('[');
    let Some((caller, rest)) = caller.and_then(|rest| rest.split_once(']')) else {
        return text;
    };
    let number = caller.trim().strip_prefix(['T', 'C']);
    let is_caller =
        number.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()));
    if is_caller {
        rest.strip_prefix(' ').unwrap_or(rest)
    } else {
        text
    }
}

/// Removes the colors of a terminal (`dmesg --color=always`).
fn without_colors(line: &str) -> Cow<'_, str> {
    if !line.contains("\u{1b}[") {
        return Cow::Borrowed(line);
    }
    let mut pieces = line.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|char: char| !char.is_ascii_digit() && char != ';');
        // The letter that ends the sequence is one byte.
        let text = end.and_then(|end| piece.get(end + 1..));
        plain.push_str(text.unwrap_or_default());
    }
    Cow::Owned(plain)
}

#[cfg(test)]
#[path = "formats_tests.rs"]
mod tests;

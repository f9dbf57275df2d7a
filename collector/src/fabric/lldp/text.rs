//! Reads LLDP neighbors printed by a switch or a host, in all dialects: lldpd's two JSON forms, Arista EOS as text and JSON,
//! Cisco NX-OS, Junos as table and XML.
//!
//! An invalid neighbor is counted and reported with its line; an unrecognized text is an error.

mod blocks;
mod json;
mod junos;

use crate::fabric::Told;

/// The supported formats, for errors.
const EXPECTED: &str = "the output of \"lldpctl -f json0\", \"lldpctl -f json\", \"show lldp neighbors detail\" of Arista EOS (also with | json) or Cisco NX-OS, or \"show lldp neighbors\" of Junos (also with | display xml)";

/// Reads the LLDP neighbors printed by a switch or a host.
///
/// # Errors
/// What was found instead of a supported format, with line and column for invalid JSON; or the error of the first neighbor
/// if all are invalid.
pub fn parse_neighbours(text: &str) -> Result<Told, String> {
    let told = parse(text)?;
    // A redacted or truncated text has no valid neighbor.
    match told.wrong.first() {
        Some(wrong) if told.neighbours.is_empty() => Err(format!(
            "line {}: {}{}: expected {}",
            wrong.line,
            wrong.found,
            match told.wrong.len() {
                1 => String::new(),
                all => format!(", and {} more", all - 1),
            },
            wrong.expected
        )),
        _ => Ok(told),
    }
}

fn parse(text: &str) -> Result<Told, String> {
    let begun = text.trim_start();
    if begun.starts_with(['{', '[']) {
        return json::parse(begun).map_err(|found| format!("{found}: expected {EXPECTED}"));
    }
    blocks::parse_eos(text)
        .or_else(|| junos::parse_xml(text))
        .or_else(|| junos::parse_table(text))
        .or_else(|| blocks::parse_nxos(text))
        .ok_or_else(|| {
            let first = begun.lines().next().unwrap_or_default().trim();
            let found = match first {
                "" => String::from("no text"),
                first => format!("{:?}", first.chars().take(80).collect::<String>()),
            };
            format!("line 1: {found}: expected {EXPECTED}")
        })
}

/// Whether a text other than JSON is in one of the formats.
pub(crate) fn is_neighbours(text: &str) -> bool {
    text.contains("<lldp-neighbors-information")
        || text.lines().map(str::trim_start).any(|line| {
            line.starts_with("Local Port id:")
                || (line.contains(" detected ") && line.contains(" LLDP neighbor"))
                || junos::is_header(line)
        })
}

#[cfg(test)]
mod tests;

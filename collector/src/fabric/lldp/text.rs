//! Reads LLDP neighbors printed by a switch or a host, in all dialects: lldpd as text, key-value pairs and JSON (two forms),
//! Arista EOS and Cisco NX-OS as text and JSON, Cisco IOS-XR, Junos as table, XML and JSON.
//!
//! An invalid neighbor is counted and reported with its line; an unrecognized text is an error.

mod blocks;
mod json;
mod junos;
mod lldpd;

use crate::fabric::Told;

/// The supported formats, for errors.
const EXPECTED: &str = "the output of \"lldpctl\" (also with -f json0, json or keyvalue), \"show lldp neighbors detail\" of Arista EOS (also with | json) or Cisco NX-OS and IOS-XR, or \"show lldp neighbors\" of SONiC, Cumulus Linux or Junos (also with | display xml or json)";

/// Reads the LLDP neighbors printed by a switch or a host.
///
/// # Errors
/// What was found instead of a supported format, with line and column for invalid JSON; or the error of the first neighbor
/// if all are invalid.
pub fn parse_neighbors(text: &str) -> Result<Told, String> {
    let told = parse(text)?;
    // A redacted or truncated text has no valid neighbor.
    match told.wrong.first() {
        Some(wrong) if told.neighbors.is_empty() => Err(format!(
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
        .or_else(|| lldpd::parse_text(text))
        .or_else(|| lldpd::parse_key_value(text))
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
pub(crate) fn is_neighbors(text: &str) -> bool {
    text.contains("<lldp-neighbors-information")
        || is_lldpd(text)
        || text.lines().map(str::trim_start).any(|line| {
            line.starts_with("Local Port id:")
                || blocks::LOCAL_BEFORE.iter().any(|name| {
                    let rest = line.strip_prefix(name);
                    rest.is_some_and(|rest| rest.starts_with(':'))
                })
                || (line.contains(" detected ") && line.contains(" LLDP neighbor"))
                || junos::is_header(line)
        })
}

/// Whether a text other than JSON is from lldpd, which runs on hosts as well as on switches.
pub(crate) fn is_lldpd(text: &str) -> bool {
    let is_one = |line: &str| lldpd::is_interface(line) || lldpd::is_key_value(line);
    text.lines().any(is_one)
}

#[cfg(test)]
mod tests;

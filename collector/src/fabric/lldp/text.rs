//! What a switch or a host prints of its LLDP neighbours, every dialect: lldpd's two forms of JSON, Arista EOS as text and
//! JSON, Cisco NX-OS, Junos as table and XML.
//!
//! A neighbour that cannot be read is counted and said by its line; a text of none of these forms is an error.

mod blocks;
mod json;
mod junos;

use crate::fabric::Told;

/// Forms of text that are read, for errors.
const EXPECTED: &str = "the output of \"lldpctl -f json0\", \"lldpctl -f json\", \"show lldp neighbors detail\" of Arista EOS (also with | json) or Cisco NX-OS, or \"show lldp neighbors\" of Junos (also with | display xml)";

/// Reads what a switch or a host prints of its neighbours.
///
/// # Errors
/// What the text is instead of one of these forms, with line and column where it is broken JSON; what is wrong with its
/// first neighbour, where none can be read.
pub fn parse_neighbours(text: &str) -> Result<Told, String> {
    let told = parse(text)?;
    // A text that was blacked out or cut says nothing at all.
    match told.wrong.first() {
        Some(wrong) if told.neighbours.is_empty() => Err(format!(
            "line {}: {}{}: expected {}",
            wrong.line,
            wrong.found,
            match told.wrong.len() {
                1 => String::new(),
                all => format!(", and {} more like it", all - 1),
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

/// Whether a text that is no JSON looks like one of the forms.
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

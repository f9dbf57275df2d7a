//! What a switch prints of its LLDP neighbours, every dialect: lldpd's two forms of JSON, Arista EOS, Cisco NX-OS.
//!
//! A neighbour that cannot be read is counted; a text of none of these forms is an error.

mod blocks;
mod json;

use crate::fabric::Told;

/// Forms of text that are read, for errors.
const EXPECTED: &str = "the output of \"lldpctl -f json0\", \"lldpctl -f json\", or \"show lldp neighbors detail\" of Arista EOS or Cisco NX-OS";

/// Reads what a switch prints of its neighbours.
///
/// # Errors
/// What the text is instead of one of these forms, with line and column where it is broken JSON.
pub fn parse_neighbours(text: &str) -> Result<Told, String> {
    let begun = text.trim_start();
    if begun.starts_with('{') {
        return json::parse(begun).map_err(|found| format!("{found}: expected {EXPECTED}"));
    }
    blocks::parse_eos(text)
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

#[cfg(test)]
mod tests;

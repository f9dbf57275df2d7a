//! Reads `show lldp neighbors` of Junos: table, XML (`| display xml`) and JSON (`| display json`), also `detail`.

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

use super::blocks::forwards;
use crate::fabric::{Neighbor, Told};

/// Whether a line is the heading of the table, with any column width.
pub(super) fn is_header(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("Local Interface")
        && line.contains("Chassis Id")
        && line.contains("System Name")
}

/// Reads the table. `None` if no line is its heading.
pub(super) fn parse_table(text: &str) -> Option<Told> {
    let mut lines = (1..).zip(text.lines());
    let (_, header) = lines.find(|(_, line)| is_header(line))?;
    // Old releases have no column of aggregated interfaces.
    let before = if header.contains("Parent Interface") {
        2
    } else {
        1
    };
    let mut told = Told::default();
    for (line, row) in lines {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let Some(local) = cells
            .first()
            .filter(|name| name.starts_with(|sign: char| sign.is_ascii_alphabetic()))
        else {
            continue;
        };
        // A prompt, or the heading of another command, ends the table.
        if local.contains('@') || local.ends_with(['>', ':']) {
            break;
        }
        match cells.get(before..) {
            // The port field can have several words.
            Some([chassis, port @ .., system]) if !port.is_empty() => told.take(
                line,
                Neighbor {
                    local: whole(local).to_owned(),
                    chassis: (*chassis).to_owned(),
                    port: whole(&port.join(" ")).to_owned(),
                    system: (*system).to_owned(),
                    ..Neighbor::default()
                },
            ),
            _ => told.refuse(
                line,
                row.trim().to_owned(),
                "a local interface, a chassis id, a port and a system name",
            ),
        }
    }
    Some(told)
}

/// Reads the XML, alone or after a prompt. `None` if the text is not this XML.
pub(super) fn parse_xml(text: &str) -> Option<Told> {
    let begin = text
        .find("<rpc-reply")
        .or_else(|| text.find("<lldp-neighbors-information"))?;
    let above = text[..begin].matches('\n').count();
    let end = ["</rpc-reply>", "</lldp-neighbors-information>"]
        .iter()
        .find_map(|mark| text.rfind(mark).map(|at| at + mark.len()));
    let document = text
        .get(begin..end.unwrap_or(text.len()))
        .unwrap_or_default();
    let mut told = Told::default();
    let document = match Document::parse_with_options(document, ParsingOptions::default()) {
        Ok(document) => document,
        Err(error) => {
            let line = above + error.pos().row as usize;
            told.refuse(
                line,
                error.to_string(),
                "complete XML: the text is truncated",
            );
            return Some(told);
        }
    };
    let is_one = |node: &Node<'_, '_>| node.tag_name().name() == "lldp-neighbor-information";
    for node in document.descendants().filter(is_one) {
        let line = above + document.text_pos_at(node.range().start).row as usize;
        let word = |name: &str| {
            let child = node
                .children()
                .find(|child| child.tag_name().name() == name);
            child?.text().map(|text| text.trim().to_owned())
        };
        add(&mut told, line, word);
    }
    Some(told)
}

/// The members of a list, by its key in an object or in the first of a list.
fn below<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let first = value.as_array().and_then(|values| values.first());
    let found = first.unwrap_or(value).get(key).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// Reads the JSON, where every value is a list of objects with `data`: the neighbors below `lldp-neighbors-information`.
pub(super) fn parse_json(text: &str, information: &Value) -> Told {
    let mut told = Told::default();
    for neighbor in below(information, "lldp-neighbor-information") {
        let word = |name: &str| {
            let value = below(neighbor, name).first()?.get("data")?.as_str()?;
            Some(value.trim().to_owned())
        };
        let local = local(&word).unwrap_or_default();
        let at = text.find(&format!("\"{local}\""));
        let line = at.map_or(0, |at| text[..at].matches('\n').count() + 1);
        add(&mut told, line, word);
    }
    told
}

/// The local port; `detail` shows its name beside a number.
fn local(word: &impl Fn(&str) -> Option<String>) -> Option<String> {
    word("lldp-local-interface").or_else(|| word("lldp-local-port-id"))
}

/// Adds a neighbor by its fields.
fn add(told: &mut Told, line: usize, word: impl Fn(&str) -> Option<String>) {
    let description = word("lldp-remote-port-description");
    let port = word("lldp-remote-port-id").or_else(|| description.clone());
    let (Some(local), Some(port), Some(chassis)) =
        (local(&word), port, word("lldp-remote-chassis-id"))
    else {
        let expected = "a local port, a remote port and a remote chassis id";
        return told.refuse(line, "a neighbor".to_owned(), expected);
    };
    let capabilities = word("lldp-remote-system-capabilities-enabled");
    told.take(
        line,
        Neighbor {
            local: whole(&local).to_owned(),
            chassis,
            port: whole(&port).to_owned(),
            system: word("lldp-remote-system-name").unwrap_or_default(),
            description: description.unwrap_or_default(),
            forwards: capabilities.and_then(|enabled| forwards(&enabled)),
        },
    );
}

/// The physical port: Junos prints the logical interface `et-0/0/1.0` for the port `et-0/0/1`.
fn whole(port: &str) -> &str {
    match port.strip_suffix(".0") {
        Some(physical) if physical.contains('/') => physical,
        _ => port,
    }
}

//! Reads `lldpctl` as text, as SONiC and Cumulus Linux print it for `show lldp neighbors`, and `lldpctl -f keyvalue`.

use super::blocks::{Block, field, told};
use crate::fabric::Told;

/// Whether a line begins a neighbor in the text: `Interface:    swp1, via: LLDP, RID: 1, ...`.
pub(super) fn is_interface(line: &str) -> bool {
    interface(line).is_some()
}

fn interface(line: &str) -> Option<&str> {
    let (name, rest) = line
        .trim_start()
        .strip_prefix("Interface:")?
        .split_once(',')?;
    rest.trim_start().starts_with("via:").then(|| name.trim())
}

/// Whether a line is of the key-value form: `lldp.eno1.chassis.name=leaf-1`.
pub(super) fn is_key_value(line: &str) -> bool {
    key_value(line).is_some()
}

/// Interface, field and value of a line. Names of interfaces can contain dots.
fn key_value(line: &str) -> Option<(&str, &str, &str)> {
    let (key, value) = line.trim().split_once('=')?;
    let key = key.strip_prefix("lldp.")?;
    let marks = [".chassis.", ".port.", ".via", ".rid"];
    let at = marks.iter().filter_map(|mark| key.find(mark)).min()?;
    Some((&key[..at], &key[at + 1..], value.trim()))
}

/// Begins the neighbor of an interface at a line, and ends the one before it.
fn begin(block: &mut Option<Block>, (line, local): (usize, &str), result: &mut Told) {
    let begun = Block {
        line,
        local: told(local),
        ..Block::default()
    };
    if let Some(ended) = block.replace(begun) {
        ended.end(result);
    }
}

/// Reads the text, detailed or as a summary. `None` if no line begins a neighbor.
pub(super) fn parse_text(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut block: Option<Block> = None;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(local) = interface(content) {
            begin(&mut block, (line, local), &mut result);
            continue;
        }
        let (Some(block), Some((name, value))) = (&mut block, field(content)) else {
            continue;
        };
        // An id follows its type: `mac 7c:21:d8:00:00:0a`, `ifname swp1`.
        let (kind, id) = value.split_once(' ').unwrap_or(("", value));
        match name {
            "ChassisID" => {
                block.by_mac = kind == "mac";
                block.chassis = told(id.trim());
            }
            "SysName" => block.system = told(value).unwrap_or_default(),
            "PortID" => block.port = told(id.trim()),
            "PortDescr" => block.description = told(value).unwrap_or_default(),
            "Capability" => {
                let (kind, state) = value.split_once(',').unwrap_or((value, ""));
                block.capability(kind, state.trim() == "on");
            }
            _ => {}
        }
    }
    block?.end(&mut result);
    Some(result)
}

/// Reads the key-value form. `None` if no line is of it.
pub(super) fn parse_key_value(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut block: Option<Block> = None;
    for (line, content) in (1..).zip(text.lines()) {
        let Some((local, key, value)) = key_value(content) else {
            continue;
        };
        // Several neighbors of one interface follow each other; each begins with `via`.
        let same = |block: &Block| block.local.as_deref() == Some(local) && key != "via";
        if !block.as_ref().is_some_and(same) {
            begin(&mut block, (line, local), &mut result);
        }
        let Some(block) = &mut block else { continue };
        match key {
            "chassis.name" => block.system = told(value).unwrap_or_default(),
            "port.descr" => block.description = told(value).unwrap_or_default(),
            "chassis.Bridge.enabled" => block.capability("Bridge", value == "on"),
            "chassis.Router.enabled" => block.capability("Router", value == "on"),
            _ => {}
        }
        // The type of an id is the last part of its key.
        const TYPES: [&str; 6] = ["ifname", "mac", "local", "ip", "ifalias", "port"];
        match key.split_once('.') {
            Some(("chassis", kind)) if TYPES.contains(&kind) => {
                block.by_mac = kind == "mac";
                block.chassis = told(value);
            }
            Some(("port", kind)) if TYPES.contains(&kind) => block.port = told(value),
            _ => {}
        }
    }
    block?.end(&mut result);
    Some(result)
}

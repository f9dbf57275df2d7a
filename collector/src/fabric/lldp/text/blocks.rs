//! `show lldp neighbors detail` of Arista EOS and Cisco NX-OS: blocks of `name: value`, one for each neighbour.

use crate::fabric::{Neighbour, Told};

/// What switches print where a neighbour has told nothing.
const NOT_TOLD: [&str; 4] = ["", "not advertised", "null", "n/a"];

/// A neighbour while its block is read.
#[derive(Default)]
struct Block {
    local: Option<String>,
    chassis: Option<String>,
    port: Option<String>,
    system: String,
    description: String,
    forwards: Option<bool>,
}

impl Block {
    /// Ends the block.
    fn end(self, told: &mut Told) {
        match (self.local, self.chassis, self.port) {
            (Some(local), Some(chassis), Some(port)) => told.neighbours.push(Neighbour {
                local,
                chassis,
                port,
                system: self.system,
                description: self.description,
                forwards: self.forwards,
            }),
            _ => told.unparsed += 1,
        }
    }
}

/// `name : value`, the value without the quotes of EOS; none for a line of another form.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim().trim_start_matches("- ");
    let value = value.trim().trim_matches('"').trim();
    Some((name.trim(), value))
}

fn told(value: &str) -> Option<String> {
    let is_told = !NOT_TOLD.contains(&value.to_ascii_lowercase().as_str());
    is_told.then(|| value.to_owned())
}

/// Reads Arista's form: `Interface Ethernet1 detected 1 LLDP neighbors:`, then `Neighbor …` for each. None
/// if no line is of that kind.
pub(super) fn parse_eos(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut local: Option<&str> = None;
    let mut block: Option<Block> = None;
    for line in text.lines().map(str::trim) {
        if let Some(interface) = line
            .strip_prefix("Interface ")
            .filter(|rest| rest.contains(" detected ") && rest.contains("LLDP neighbor"))
        {
            block
                .take()
                .into_iter()
                .for_each(|block| block.end(&mut result));
            local = interface.split_whitespace().next();
        } else if local.is_some() && line.starts_with("Neighbor ") {
            block
                .take()
                .into_iter()
                .for_each(|block| block.end(&mut result));
            block = Some(Block {
                local: local.map(str::to_owned),
                ..Block::default()
            });
        } else if let (Some(block), Some((name, value))) = (&mut block, field(line)) {
            match name {
                // Once each: further on, other things have a port id too.
                "Chassis ID" if block.chassis.is_none() => block.chassis = told(value),
                "Port ID" if block.port.is_none() => block.port = told(value),
                "System Name" => block.system = told(value).unwrap_or_default(),
                "Port Description" => block.description = told(value).unwrap_or_default(),
                "Enabled Capabilities" => {
                    let forwards = value.contains("Bridge") || value.contains("Router");
                    block.forwards = Some(forwards);
                }
                _ => {}
            }
        }
    }
    block.into_iter().for_each(|block| block.end(&mut result));
    local.map(|_| result)
}

/// Reads Cisco's form: each neighbour begins with `Chassis id:`. None if no line is of that kind.
pub(super) fn parse_nxos(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut block: Option<Block> = None;
    let mut is_one = text.contains("Total entries displayed: 0");
    for line in text.lines() {
        let Some((name, value)) = field(line) else {
            continue;
        };
        if name == "Chassis id" {
            block
                .take()
                .into_iter()
                .for_each(|block| block.end(&mut result));
            is_one = true;
            block = Some(Block {
                chassis: told(value),
                ..Block::default()
            });
            continue;
        }
        let Some(block) = &mut block else { continue };
        match name {
            "Port id" => block.port = told(value),
            "Local Port id" => block.local = told(value).map(|port| whole_name(&port)),
            "Port Description" => block.description = told(value).unwrap_or_default(),
            "System Name" => block.system = told(value).unwrap_or_default(),
            "Enabled Capabilities" => {
                let mut letters = value.split(',').map(str::trim);
                block.forwards = Some(letters.any(|letter| matches!(letter, "B" | "R")));
            }
            _ => {}
        }
    }
    block.into_iter().for_each(|block| block.end(&mut result));
    is_one.then_some(result)
}

/// NX-OS shortens its own ports here and nowhere else: `Eth1/1` is `Ethernet1/1` to its neighbours.
fn whole_name(port: &str) -> String {
    match port.strip_prefix("Eth") {
        Some(rest) if rest.starts_with(|char: char| char.is_ascii_digit()) => {
            format!("Ethernet{rest}")
        }
        _ => port.to_owned(),
    }
}

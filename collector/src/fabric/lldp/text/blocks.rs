//! Reads `show lldp neighbors detail` of Arista EOS and Cisco NX-OS: blocks of `name: value`, one for each neighbor.

use crate::fabric::lldp::Mac;
use crate::fabric::{Neighbour, Told};

/// Values that switches print if a neighbor does not advertise a field.
const NOT_ADVERTISED: [&str; 4] = ["", "not advertised", "null", "n/a"];

/// A partially read neighbor.
#[derive(Default)]
struct Block {
    /// Line where it begins.
    line: usize,
    local: Option<String>,
    chassis: Option<String>,
    /// Whether the type of the chassis id is MAC address.
    by_mac: bool,
    port: Option<String>,
    system: String,
    description: String,
    forwards: Option<bool>,
}

impl Block {
    /// Ends the block.
    fn end(self, told: &mut Told) {
        // A system name can replace the chassis id.
        let named = (!self.system.is_empty()).then(String::new);
        let (Some(local), Some(chassis), Some(port)) =
            (&self.local, self.chassis.or(named), &self.port)
        else {
            let name = if self.system.is_empty() {
                "without a name"
            } else {
                &self.system
            };
            let expected = "a local port, a port id, and a chassis id or a system name";
            return told.refuse(self.line, format!("a neighbor {name}"), expected);
        };
        if self.by_mac && !chassis.is_empty() && Mac::read(&chassis).is_none() {
            return told.refuse(
                self.line,
                format!("chassis id {chassis}"),
                "a MAC address, according to its type",
            );
        }
        told.take(
            self.line,
            Neighbour {
                local: local.clone(),
                chassis,
                port: port.clone(),
                system: self.system,
                description: self.description,
                forwards: self.forwards,
            },
        );
    }
}

/// Whether the capabilities, as words or letters, include bridging or routing; `None` if not advertised.
fn forwards(value: &str) -> Option<bool> {
    let value = told(value)?;
    let mut words = value.split([',', ' ']).map(str::trim);
    Some(words.any(|word| matches!(word, "B" | "R" | "Bridge" | "Router")))
}

/// Parses `name : value`, without the quotes of EOS; `None` for any other line.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim().trim_start_matches("- ");
    let value = value.trim().trim_matches('"').trim();
    Some((name.trim(), value))
}

fn told(value: &str) -> Option<String> {
    let is_told = !NOT_ADVERTISED.contains(&value.to_ascii_lowercase().as_str());
    is_told.then(|| value.to_owned())
}

/// Reads Arista's form: `Interface Ethernet1 detected 1 LLDP neighbors:`, then `Neighbor …` for each. None
/// if no line is of that kind.
pub(super) fn parse_eos(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut local: Option<&str> = None;
    let mut block: Option<Block> = None;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
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
                line: number,
                local: local.map(str::to_owned),
                ..Block::default()
            });
        } else if let (Some(block), Some((name, value))) = (&mut block, field(line)) {
            match name {
                // First occurrence only: later sections also have a port id.
                "Chassis ID type" => block.by_mac = value.starts_with("MAC"),
                "Chassis ID" if block.chassis.is_none() => block.chassis = told(value),
                "Port ID" if block.port.is_none() => block.port = told(value),
                "System Name" => block.system = told(value).unwrap_or_default(),
                "Port Description" => block.description = told(value).unwrap_or_default(),
                // Enabled capabilities follow the supported ones.
                "System Capabilities" | "Enabled Capabilities" => {
                    block.forwards = forwards(value).or(block.forwards);
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
    for (number, line) in (1..).zip(text.lines()) {
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
                line: number,
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
            "System Capabilities" | "Enabled Capabilities" => {
                block.forwards = forwards(value).or(block.forwards);
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

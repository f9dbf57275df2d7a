//! Reads `show lldp neighbors detail` of Arista EOS and Cisco (NX-OS, IOS-XR, IOS): blocks of `name: value`, one for each
//! neighbor.

use crate::fabric::lldp::Mac;
use crate::fabric::{Neighbor, Told};

/// Values that switches print if a neighbor does not advertise a field.
const NOT_ADVERTISED: [&str; 4] = ["", "not advertised", "null", "n/a"];

/// Names of the local port in IOS and IOS-XR, where it is printed before the neighbor.
pub(super) const LOCAL_BEFORE: [&str; 2] = ["Local Intf", "Local Interface"];

/// A partially read neighbor.
#[derive(Default)]
pub(super) struct Block {
    /// Line where it begins.
    pub(super) line: usize,
    pub(super) local: Option<String>,
    pub(super) chassis: Option<String>,
    /// Whether the type of the chassis id is MAC address.
    pub(super) by_mac: bool,
    pub(super) port: Option<String>,
    pub(super) system: String,
    pub(super) description: String,
    pub(super) forwards: Option<bool>,
}

impl Block {
    /// Adds a capability by its name.
    pub(super) fn capability(&mut self, kind: &str, enabled: bool) {
        if matches!(kind, "Bridge" | "Router") {
            self.forwards = Some(self.forwards == Some(true) || enabled);
        }
    }

    /// Ends the block.
    pub(super) fn end(self, told: &mut Told) {
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
            Neighbor {
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
pub(super) fn forwards(value: &str) -> Option<bool> {
    let value = told(value)?;
    let mut words = value.split([',', ' ']).map(str::trim);
    Some(words.any(|word| matches!(word, "B" | "R" | "Bridge" | "Router")))
}

/// Parses `name : value`, without the quotes of EOS; `None` for any other line.
pub(super) fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim().trim_start_matches("- ");
    let value = value.trim().trim_matches('"').trim();
    Some((name.trim(), value))
}

pub(super) fn told(value: &str) -> Option<String> {
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

/// Reads Cisco's form: each neighbor begins with `Chassis id:`, before which IOS and IOS-XR print
/// the local port. None if no line is of that kind.
pub(super) fn parse_nxos(text: &str) -> Option<Told> {
    let mut result = Told::default();
    let mut block: Option<Block> = None;
    let mut before: Option<String> = None;
    let mut is_one = text.contains("Total entries displayed: 0");
    for (number, line) in (1..).zip(text.lines()) {
        let Some((name, value)) = field(line) else {
            continue;
        };
        if LOCAL_BEFORE.contains(&name) {
            before = told(value);
        } else if name == "Chassis id" {
            block
                .take()
                .into_iter()
                .for_each(|block| block.end(&mut result));
            is_one = true;
            block = Some(Block {
                line: number,
                local: before.take(),
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

/// NX-OS shortens its own ports here and nowhere else: `Eth1/1` is `Ethernet1/1` to its neighbors.
pub(super) fn whole_name(port: &str) -> String {
    match port.strip_prefix("Eth") {
        Some(rest) if rest.starts_with(|char: char| char.is_ascii_digit()) => {
            format!("Ethernet{rest}")
        }
        _ => port.to_owned(),
    }
}

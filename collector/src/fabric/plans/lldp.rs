//! LLDP neighbours as tools print them: `lldpctl -f json` of a host, `show lldp neighbors detail` of a switch.
//!
//! Neither text says whose it is: the device is called by the name of the file.

use railscope_model::plan::{PlanError, PlannedCable, WiringPlan};
use serde_json::Value;

use super::Source;
use super::cabling::{cable, socket};
use super::netq::json;

/// Reads `lldpctl -f json`, alone or as the value `lldp_status` of a larger object.
pub(super) fn read_json(source: &mut Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let value = json(source)?;
    let status = value.get("lldp_status").unwrap_or(&value);
    let interfaces = status.pointer("/lldp/interface").map(entries);
    let Some(interfaces) = interfaces else {
        let expected = "lldp.interface, as lldpctl -f json has it";
        return Err(vec![source.error(1, "lldp", "no interface", expected)]);
    };
    let host = source.stem();
    let mut plan = WiringPlan::default();
    for (interface, neighbour) in interfaces {
        let chassis = neighbour.get("chassis").map(entries).unwrap_or_default();
        let peer = chassis.first().filter(|(name, _)| *name != "id");
        let port = neighbour.pointer("/port/id/value").and_then(Value::as_str);
        let (Some((peer, chassis)), Some(port)) = (peer, port) else {
            let expected = "a chassis with a name and a port with an id";
            source.problem(0, interface, "a neighbour without them", expected);
            continue;
        };
        let ends = (
            socket(host, false, interface),
            socket(peer, forwards(chassis), port),
        );
        match ends {
            (Some(near), Some(far)) => plan.cables.push(cable([near, far])),
            _ => source.problem(0, interface, peer, "names without control characters"),
        }
    }
    Ok(plan)
}

/// lldpctl writes one thing as an object and several as an array of objects, each with the name as its key.
fn entries(value: &Value) -> Vec<(&str, &Value)> {
    match value {
        Value::Array(items) => items
            .iter()
            .filter_map(Value::as_object)
            .flat_map(|object| object.iter().map(|(name, value)| (name.as_str(), value)))
            .collect(),
        Value::Object(object) => object
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a chassis says that it is a bridge or a router.
fn forwards(chassis: &Value) -> bool {
    let capabilities = match chassis.get("capability") {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    capabilities.into_iter().any(|capability| {
        let kind = capability.get("type").and_then(Value::as_str);
        let enabled = capability.get("enabled").and_then(Value::as_bool);
        matches!(kind, Some("Bridge" | "Router")) && enabled == Some(true)
    })
}

/// One neighbour, while its lines are read.
#[derive(Debug, Default)]
struct Record<'a> {
    line: usize,
    local: Option<&'a str>,
    port: Option<&'a str>,
    name: Option<&'a str>,
    capabilities: Option<&'a str>,
}

/// Reads `show lldp neighbors detail` of Arista EOS or Cisco NX-OS.
pub(super) fn read_text(source: &mut Source<'_>) -> Result<WiringPlan, Vec<PlanError>> {
    let mut plan = WiringPlan::default();
    let mut record: Option<Record<'_>> = None;
    let mut local = None;
    for (line, text) in (1..).zip(source.text.lines()) {
        if let Some(interface) = text.strip_prefix("Interface ") {
            finish(source, record.take(), &mut plan);
            local = interface.split(" detected ").next();
            continue;
        }
        // EOS opens a neighbour with this word, NX-OS with the chassis.
        let opens = text.trim_start().starts_with("Neighbor ") || text.starts_with("Chassis id:");
        if opens {
            finish(source, record.take(), &mut plan);
            record = Some(Record {
                line,
                local,
                ..Record::default()
            });
        }
        if let (Some(record), Some((key, value))) = (&mut record, text.split_once(':')) {
            record.take(key.trim_start_matches(['-', ' ']).trim_end(), value.trim());
        }
    }
    finish(source, record.take(), &mut plan);
    if plan.cables.is_empty() && source.problems.is_empty() {
        let expected = "show lldp neighbors detail of EOS or NX-OS";
        return Err(vec![source.error(1, "text", "no neighbour", expected)]);
    }
    Ok(plan)
}

impl<'a> Record<'a> {
    fn take(&mut self, key: &str, value: &'a str) {
        let field = match key.to_ascii_lowercase().as_str() {
            "local port id" => &mut self.local,
            "port id" => &mut self.port,
            "system name" => &mut self.name,
            "system capabilities" => &mut self.capabilities,
            _ => return,
        };
        let value = value.trim_matches('"');
        // EOS names another "Port ID" further down, of its link aggregation.
        if field.is_none() && !value.is_empty() && value != "not advertised" {
            *field = Some(value);
        }
    }

    fn cable(&self, device: &str) -> Result<PlannedCable, &'static str> {
        let local = self.local.ok_or("a local port")?;
        let port = self.port.ok_or("a Port ID")?;
        let name = self.name.ok_or("a System Name")?;
        let mut capabilities = self
            .capabilities
            .ok_or("System Capabilities, which say whether it is a switch")?
            .split(',')
            .map(str::trim);
        let forwards = capabilities.any(|one| matches!(one, "B" | "R" | "Bridge" | "Router"));
        let near = socket(device, true, local);
        let far = socket(name, forwards, port);
        let both = near.zip(far).ok_or("names without control characters")?;
        Ok(cable([both.0, both.1]))
    }
}

fn finish(source: &mut Source<'_>, record: Option<Record<'_>>, plan: &mut WiringPlan) {
    let Some(record) = record else { return };
    match record.cable(source.stem()) {
        Ok(found) => plan.cables.push(found),
        Err(expected) => {
            let found = format!(
                "a neighbour ({}) without it",
                record.name.unwrap_or("unnamed")
            );
            source.problem(record.line, "neighbour", &found, expected);
        }
    }
}

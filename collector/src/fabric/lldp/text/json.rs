//! Reads `lldpctl -f json0`, where every value is a list, `-f json`, where single values are not, and the JSON of Arista EOS,
//! Cisco NX-OS and Junos.

use serde_json::Value;

use super::blocks::{told, whole_name};
use super::junos;

use crate::fabric::lldp::Mac;
use crate::fabric::{Neighbor, Told};

/// Reads either form, also inside of a larger object, under any key.
///
/// # Errors
/// What was found instead.
pub(super) fn parse(text: &str) -> Result<Told, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(interfaces) = find(&json, "lldpNeighbors") {
        return match interfaces {
            Value::Object(_) => Ok(eos(text, interfaces)),
            _ => Err("the short list of neighbors, without their kind".to_owned()),
        };
    }
    if let Some(information) = find(&json, "lldp-neighbors-information") {
        return Ok(junos::parse_json(text, information));
    }
    for (table, row) in NXOS_TABLES {
        if let Some(rows) = find(&json, table).and_then(|table| table.get(row)) {
            return Ok(nxos(text, rows));
        }
    }
    let lldp = find(&json, "lldp").ok_or("JSON without \"lldp\"")?;
    let mut told = Told::default();
    for part in many(lldp) {
        let Some(interfaces) = part.get("interface") else {
            continue; // no neighbors
        };
        for interface in many(interfaces) {
            for (name, interface) in named(interface) {
                let line = line_of(text, name.unwrap_or_default());
                let known = neighbor(name, interface);
                match known {
                    Ok(neighbor) => told.take(line, neighbor),
                    Err((found, expected)) => told.refuse(line, found, expected),
                }
            }
        }
    }
    Ok(told)
}

/// Line that has a name as a key, or else in quotes; 0 if there is none.
fn line_of(text: &str, name: &str) -> usize {
    let key = text.find(&format!("\"{name}\":"));
    let at = key.or_else(|| text.find(&format!("\"{name}\"")));
    at.map_or(0, |at| text[..at].matches('\n').count() + 1)
}

/// The value of a key at this level or the next: some tools combine the output of several commands in one object or list.
fn find<'a>(json: &'a Value, key: &str) -> Option<&'a Value> {
    json.get(key).or_else(|| match json {
        Value::Object(members) => members.values().find_map(|member| member.get(key)),
        Value::Array(members) => members.iter().find_map(|member| member.get(key)),
        _ => None,
    })
}

/// Reads `show lldp neighbors detail | json` of Arista EOS: a list of neighbors for each port.
fn eos(text: &str, interfaces: &Value) -> Told {
    let mut told = Told::default();
    for (local, neighbors) in interfaces.as_object().into_iter().flatten() {
        let all = neighbors.get("lldpNeighborInfo").and_then(Value::as_array);
        for one in all.into_iter().flatten() {
            let word = |of: &Value, key: &str| {
                of.get(key)?
                    .as_str()
                    .map(|word| word.trim_matches('"').to_owned())
            };
            let interface = one.get("neighborInterfaceInfo").unwrap_or(&Value::Null);
            let port = word(interface, "interfaceId_v2").or_else(|| word(interface, "interfaceId"));
            let line = line_of(text, local);
            let (Some(port), Some(chassis)) = (port, word(one, "chassisId")) else {
                told.refuse(
                    line,
                    format!("a neighbor of {local}"),
                    "chassisId and interfaceId",
                );
                continue;
            };
            let of = |key: &str| {
                one.get("systemCapabilities")
                    .and_then(|all| all.get(key)?.as_bool())
            };
            let forwards = [of("bridge"), of("router")].into_iter().flatten();
            told.take(
                line,
                Neighbor {
                    local: local.clone(),
                    chassis,
                    port,
                    system: word(one, "systemName").unwrap_or_default(),
                    description: word(interface, "interfaceDescription").unwrap_or_default(),
                    forwards: forwards.reduce(|any, one| any || one),
                },
            );
        }
    }
    told
}

/// Tables of Cisco NX-OS' JSON and the key of their rows.
const NXOS_TABLES: [(&str, &str); 2] = [
    ("TABLE_nbor_detail", "ROW_nbor_detail"),
    ("TABLE_nbor", "ROW_nbor"),
];

/// Reads `show lldp neighbors [detail] | json` of Cisco NX-OS: a row for each neighbor; a single one is not in a list.
fn nxos(text: &str, rows: &Value) -> Told {
    let mut result = Told::default();
    for row in many(rows) {
        let word = |key: &str| told(row.get(key)?.as_str()?.trim());
        let local = word("l_port_id").map(|port| whole_name(&port));
        let (Some(local), Some(port), Some(chassis)) = (local, word("port_id"), word("chassis_id"))
        else {
            let expected = "l_port_id, port_id and chassis_id";
            result.refuse(0, "a neighbor".to_owned(), expected);
            continue;
        };
        // The list without details has the name in place of the chassis id.
        let named = word("sys_name").or_else(|| {
            let is_name = row.get("sys_name").is_none() && Mac::read(&chassis).is_none();
            is_name.then(|| chassis.clone())
        });
        let capabilities = word("enabled_capability");
        result.take(
            line_of(text, row["l_port_id"].as_str().unwrap_or_default()),
            Neighbor {
                local,
                chassis,
                port,
                system: named.unwrap_or_default(),
                description: word("port_desc").unwrap_or_default(),
                // One letter for each, with or without commas.
                forwards: capabilities.map(|all| all.contains(['B', 'R'])),
            },
        );
    }
    result
}

/// The members of a list; of anything else, itself.
fn many(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        single => std::slice::from_ref(single),
    }
}

/// Things with their names: one that reports its `name`, or several by it. Chassis without a name
/// stand without one in either form.
fn named(value: &Value) -> Vec<(Option<&str>, &Value)> {
    let is_itself = ["name", "id", "port", "chassis"]
        .iter()
        .any(|key| value.get(key).is_some());
    match value {
        Value::Object(_) if is_itself => vec![(text(value, "name"), value)],
        Value::Object(by_name) => by_name
            .iter()
            .map(|(name, value)| (Some(name.as_str()), value))
            .collect(),
        _ => vec![(None, value)],
    }
}

fn neighbor(local: Option<&str>, interface: &Value) -> Result<Neighbor, (String, &'static str)> {
    let of = || format!("a neighbor of {}", local.unwrap_or("an unnamed port"));
    let part = |key: &str| many(interface.get(key)?).first();
    let both = part("chassis").zip(part("port")).zip(local);
    let ((chassis, port), name) = both.ok_or_else(|| {
        (
            of(),
            "a named port with a chassis and a port of the neighbor",
        )
    })?;
    let (system, chassis) = *named(chassis).first().ok_or_else(|| (of(), "a chassis"))?;
    let id = text(chassis, "id").or(system.map(|_| ""));
    let (id, port_id) = id
        .zip(text(port, "id"))
        .ok_or_else(|| (of(), "a port id, and a chassis id or a system name"))?;
    if is_mac(chassis) && !id.is_empty() && Mac::read(id).is_none() {
        return Err((
            format!("chassis id {id}"),
            "a MAC address, according to its type; it may be redacted",
        ));
    }
    Ok(Neighbor {
        local: name.to_owned(),
        chassis: id.to_owned(),
        port: port_id.to_owned(),
        // json0 has the name as a member, json as the key.
        system: system.unwrap_or_default().to_owned(),
        description: text(port, "descr").unwrap_or_default().to_owned(),
        forwards: forwards(chassis),
    })
}

/// Whether the type of a chassis id is MAC address.
fn is_mac(chassis: &Value) -> bool {
    let id = chassis.get("id").and_then(|id| many(id).first());
    id.and_then(|id| id.get("type")?.as_str()) == Some("mac")
}

/// The text of a member: itself, or the `value` of the first of a list.
fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    let first = many(of.get(key)?).first()?;
    first.as_str().or_else(|| first.get("value")?.as_str())
}

/// Whether the chassis bridges or routes; `None` if it advertises neither.
fn forwards(chassis: &Value) -> Option<bool> {
    let capabilities = many(chassis.get("capability")?).iter();
    let known = capabilities.filter(|one| {
        let kind = one.get("type").and_then(Value::as_str);
        matches!(kind, Some("Bridge" | "Router"))
    });
    let enabled = known.map(|one| one.get("enabled").and_then(Value::as_bool) == Some(true));
    enabled.reduce(|any, one| any || one)
}

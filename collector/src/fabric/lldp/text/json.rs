//! `lldpctl -f json0`, where everything is a list, and `-f json`, where what is single is not.

use serde_json::Value;

use crate::fabric::{Neighbour, Told};

/// Reads either form.
///
/// # Errors
/// What was found instead.
pub(super) fn parse(text: &str) -> Result<Told, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let lldp = json.get("lldp").ok_or("JSON without \"lldp\"")?;
    let mut told = Told::default();
    for part in many(lldp) {
        let Some(interfaces) = part.get("interface") else {
            continue; // nobody is heard
        };
        for interface in many(interfaces) {
            for (name, interface) in named(interface) {
                match neighbour(name, interface) {
                    Some(neighbour) => told.neighbours.push(neighbour),
                    None => told.unparsed += 1,
                }
            }
        }
    }
    Ok(told)
}

/// The members of a list; of anything else, itself.
fn many(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        single => std::slice::from_ref(single),
    }
}

/// Things with their names: one that says its `name`, or several by it. Chassis without a name stand
/// without one in either form.
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

fn neighbour(local: Option<&str>, interface: &Value) -> Option<Neighbour> {
    let chassis = many(interface.get("chassis")?).first()?;
    let (system, chassis) = *named(chassis).first()?;
    let port = many(interface.get("port")?).first()?;
    Some(Neighbour {
        local: local?.to_owned(),
        chassis: text(chassis, "id")?.to_owned(),
        port: text(port, "id")?.to_owned(),
        system: system.unwrap_or_default().to_owned(),
        description: text(port, "descr").unwrap_or_default().to_owned(),
        forwards: forwards(chassis),
    })
}

/// The text of a member: itself, or the `value` of the first of a list.
fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    let first = many(of.get(key)?).first()?;
    first.as_str().or_else(|| first.get("value")?.as_str())
}

/// Whether it bridges or routes; none where it says neither.
fn forwards(chassis: &Value) -> Option<bool> {
    let capabilities = many(chassis.get("capability")?).iter();
    let known = capabilities.filter(|one| {
        let kind = one.get("type").and_then(Value::as_str);
        matches!(kind, Some("Bridge" | "Router"))
    });
    let enabled = known.map(|one| one.get("enabled").and_then(Value::as_bool) == Some(true));
    enabled.reduce(|any, one| any || one)
}

//! JSON of NVIDIA NetQ: the topology graph with its cables, or the compute nodes of an NVLink domain.

use std::collections::{BTreeMap, HashMap};

use railscope_model::identity::NodeName;
use railscope_model::plan::{PlanError, Socket, WiringPlan};
use serde_json::Value;

use super::cabling::{cable, socket};
use super::{Block, Document, Placement, Source, Told};

/// Reads either of the two.
pub(super) fn read(source: &mut Source<'_>) -> Result<Document, Vec<PlanError>> {
    let value = json(source)?;
    let Some(items) = value.as_array() else {
        let expected = "an array, as NetQ answers";
        return Err(vec![source.error(1, "text", "no array", expected)]);
    };
    if items.iter().any(|item| item.get("GpuIDList").is_some()) {
        return Ok(Document::Placement(domains(source, items)));
    }
    let mut plan = WiringPlan::default();
    for graph in items {
        read_graph(source, graph, &mut plan);
    }
    if plan.cables.is_empty() {
        let expected = "links with compounded_links, as NetQ's topology graph has them";
        return Err(vec![source.error(1, "links", "no cable", expected)]);
    }
    Ok(Document::Cables(plan, Told::Whole))
}

/// A text as JSON.
pub(super) fn json(source: &Source<'_>) -> Result<Value, Vec<PlanError>> {
    serde_json::from_str(source.text)
        .map_err(|error| vec![source.error(error.line(), "text", &error.to_string(), "JSON")])
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Nodes of each NVLink domain.
fn domains(source: &mut Source<'_>, items: &[Value]) -> Placement {
    let mut blocks: BTreeMap<String, Vec<NodeName>> = BTreeMap::new();
    for item in items {
        let name = text(item, "Name").and_then(|name| name.parse().ok());
        match (name, text(item, "DomainUUID")) {
            (Some(name), Some(domain)) => blocks.entry(domain.to_owned()).or_default().push(name),
            _ => source.problem(0, "compute node", "no Name or no DomainUUID", "both"),
        }
    }
    let blocks = blocks
        .into_iter()
        .map(|(name, nodes)| Block { name, nodes });
    Placement {
        blocks: blocks.collect(),
        ..Placement::default()
    }
}

fn read_graph(source: &mut Source<'_>, graph: &Value, plan: &mut WiringPlan) {
    // Devices stand within their tiers.
    let tiers = list(graph, "nodes").iter();
    let devices = tiers.flat_map(|tier| list(tier, "compounded_nodes"));
    let devices: HashMap<&str, (&str, bool)> = devices
        .filter_map(|device| {
            let is_switch = text(device, "device_type") == Some("switch");
            Some((text(device, "id")?, (text(device, "name")?, is_switch)))
        })
        .collect();
    for link in list(graph, "links")
        .iter()
        .flat_map(|link| list(link, "compounded_links"))
    {
        let ends: Vec<_> = list(link, "interfaces")
            .iter()
            .filter_map(|end| {
                let (name, is_switch) = devices.get(text(end, "node")?)?;
                let port = text(end, "interface")?;
                socket(name, *is_switch, port)
            })
            .collect();
        match <[Socket; 2]>::try_from(ends) {
            Ok(ends) => plan.cables.push(cable(ends)),
            Err(_) => {
                let found = text(link, "id").unwrap_or("a link without id").to_owned();
                source.problem(0, "interfaces", &found, "two, of devices among the nodes");
            }
        }
    }
}

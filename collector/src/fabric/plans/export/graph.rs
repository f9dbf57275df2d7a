//! The fabric as a graph file: JSON, GraphML (yEd, Gephi, NetworkX), DOT (Graphviz draws it).

use std::fmt::Write as _;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId};
use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde_json::{Value, json};

use crate::fabric::{Tiers, tiers};

fn cables(fabric: &Fabric) -> impl Iterator<Item = (PartId, PartId, &Link)> {
    let cables = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    cables.map(|(_, a, b, link)| (a, b, link))
}

/// Every part and every link, with what is known of it.
pub fn json(fabric: &Fabric) -> Value {
    let tiers = tiers(fabric);
    let parts: Vec<Value> = fabric
        .vertices()
        .map(|(id, vertex)| {
            let mut part = json!({ "part": vertex.part.to_string(), "class": vertex.part.class() });
            match &vertex.equipment {
                Equipment::Nic { guid, pci, rail } => {
                    part["guid"] = json!(guid);
                    part["pci"] = json!(pci);
                    part["rail"] = json!(rail);
                }
                Equipment::Gpu { uuid, pci } => {
                    part["uuid"] = json!(uuid);
                    part["pci"] = json!(pci);
                }
                Equipment::Switch { guid, ports, .. } => {
                    part["guid"] = json!(guid);
                    part["ports"] = json!(ports);
                    part["tier"] = json!(tiers.of(id));
                }
                Equipment::Host | Equipment::PcieBridge => {}
            }
            part
        })
        .collect();
    let links: Vec<Value> = fabric
        .links()
        .map(|(_, a, b, link)| {
            let mut one = json!({
                "kind": link.kind,
                "from": fabric.vertex(a).part.to_string(),
                "to": fabric.vertex(b).part.to_string(),
            });
            if link.kind == LinkKind::Cable {
                one["from_port"] = json!(fabric.port_name(a, link.ports.0));
                one["to_port"] = json!(fabric.port_name(b, link.ports.1));
                one["speed"] = json!(link.speed.map(|speed| speed.to_string()));
                one["bytes_per_second"] = json!(link.speed.map(LinkSpeed::bytes_per_second));
            }
            one
        })
        .collect();
    json!({ "parts": parts, "links": links })
}

/// What a NIC's or switch's cable is connected to in a drawing of hosts and switches.
fn drawn(fabric: &Fabric, id: PartId) -> Part {
    match &fabric.vertex(id).part {
        Part::Nic(node, _) => Part::Host(node.clone()),
        other => other.clone(),
    }
}

fn tier(tiers: &Tiers, fabric: &Fabric, part: &Part) -> u8 {
    fabric.find(part).and_then(|id| tiers.of(id)).unwrap_or(0)
}

fn escaped(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Hosts and switches as nodes with their tier (hosts have 0), cables as edges with ports and speed.
pub fn graphml(fabric: &Fabric) -> String {
    let tiers = tiers(fabric);
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n\
         <key id=\"class\" for=\"node\" attr.name=\"class\" attr.type=\"string\"/>\n\
         <key id=\"tier\" for=\"node\" attr.name=\"tier\" attr.type=\"int\"/>\n\
         <key id=\"from_port\" for=\"edge\" attr.name=\"from_port\" attr.type=\"string\"/>\n\
         <key id=\"to_port\" for=\"edge\" attr.name=\"to_port\" attr.type=\"string\"/>\n\
         <key id=\"speed\" for=\"edge\" attr.name=\"speed\" attr.type=\"string\"/>\n\
         <graph id=\"fabric\" edgedefault=\"undirected\">\n",
    );
    for part in shown(fabric) {
        let (name, class, tier) = (
            escaped(&part.to_string()),
            part.class(),
            tier(&tiers, fabric, part),
        );
        // Writing to a string does not fail.
        writeln!(text, "<node id=\"{name}\"><data key=\"class\">{class}</data><data key=\"tier\">{tier}</data></node>").ok();
    }
    for (number, (a, b, link)) in cables(fabric).enumerate() {
        let end = |id| escaped(&drawn(fabric, id).to_string());
        let place = |id, number| {
            let port = fabric.port_name(id, number);
            escaped(&match &fabric.vertex(id).part {
                Part::Nic(_, device) => format!("{device}/{port}"),
                _ => port.to_string(),
            })
        };
        let speed = link
            .speed
            .map(|speed| format!("<data key=\"speed\">{speed}</data>"))
            .unwrap_or_default();
        writeln!(
            text,
            "<edge id=\"e{number}\" source=\"{}\" target=\"{}\"><data key=\"from_port\">{}</data><data key=\"to_port\">{}</data>{speed}</edge>",
            end(a), end(b), place(a, link.ports.0), place(b, link.ports.1)
        ).ok();
    }
    text + "</graph>\n</graphml>\n"
}

/// Hosts and switches of a fabric.
fn shown(fabric: &Fabric) -> impl Iterator<Item = &Part> {
    let parts = fabric.vertices().map(|(_, vertex)| &vertex.part);
    parts.filter(|part| matches!(part, Part::Host(_) | Part::Switch(_)))
}

/// Hosts and switches in layers, the cables between two of them as one line with their number.
pub fn dot(fabric: &Fabric) -> String {
    let tiers = tiers(fabric);
    let quoted = |part: &Part| {
        format!(
            "\"{}\"",
            part.to_string().replace('\\', "\\\\").replace('"', "\\\"")
        )
    };
    let mut text = String::from(
        "graph fabric {\n  rankdir=BT;\n  node [shape=box, fontname=\"sans-serif\"];\n",
    );
    let mut layers: std::collections::BTreeMap<u8, Vec<String>> = std::collections::BTreeMap::new();
    for part in shown(fabric) {
        layers
            .entry(tier(&tiers, fabric, part))
            .or_default()
            .push(quoted(part));
    }
    for layer in layers.values() {
        writeln!(text, "  {{ rank=same; {}; }}", layer.join("; ")).ok();
    }
    let mut lines: std::collections::BTreeMap<(Part, Part), usize> =
        std::collections::BTreeMap::new();
    for (a, b, _) in cables(fabric) {
        let (a, b) = (drawn(fabric, a), drawn(fabric, b));
        let lower_first = tier(&tiers, fabric, &a) <= tier(&tiers, fabric, &b);
        *lines
            .entry(if lower_first { (a, b) } else { (b, a) })
            .or_default() += 1;
    }
    for ((a, b), count) in lines {
        let label = if count > 1 {
            format!(" [label=\"{count}\"]")
        } else {
            String::new()
        };
        writeln!(text, "  {} -- {}{label};", quoted(&a), quoted(&b)).ok();
    }
    text + "}\n"
}

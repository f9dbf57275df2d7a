//! The faulty component of an event in a `truth.json`, in each form that generators of packs write.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, bail};
use railscope_collector::fabric::short_switch_name;
use serde::Deserialize;
use serde_json::Value;

/// By `NODE/PORT`, the port at the other end of its cable in the same form.
pub(super) type Peers = BTreeMap<String, String>;

/// A faulty component.
#[derive(Debug, PartialEq)]
pub(super) enum Component {
    /// A whole host of a packet-level simulation.
    Host(String),
    /// A cable of a packet-level simulation, by both ends; also a port of it.
    Cable([CableEnd; 2]),
    /// A switch, or its cables to some peers.
    Switch {
        /// Name, alias and GUID of the switch.
        names: Vec<String>,
        /// Names, aliases and GUIDs of the switches at the other end of the cables; empty for a fault of the switch itself.
        peers: Vec<Vec<String>>,
    },
    /// A node, or a GPU or NIC of it.
    Node(NodeComponent),
    /// A job.
    Job(String),
}

/// One end of a cable of a packet-level simulation.
#[derive(Debug, PartialEq)]
pub(super) struct CableEnd {
    /// Host or switch.
    pub(super) node: String,
    /// `p11` of a switch, `nic0` of a host.
    pub(super) port: String,
}

/// A node, or a GPU or NIC of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NodeComponent {
    /// Name of the node.
    pub(super) node: String,
    /// Names that are unique in the cluster: UUID, GUID.
    pub(super) unique: Vec<String>,
    /// Names that are unique in the node.
    pub(super) local: Vec<String>,
    /// The NIC whose cable was exchanged with that of this one: node and device.
    pub(super) swapped_with: Option<(String, String)>,
    /// Leaf switch and its port at the other end of the cable.
    pub(super) leaf: Option<(String, String)>,
    /// What a reader calls it in the node.
    label: String,
}

#[derive(Deserialize)]
struct RawSwitch {
    name: Option<String>,
    alias: Option<String>,
    guid: Option<String>,
}

impl RawSwitch {
    fn names(self) -> Vec<String> {
        let short = self.name.as_deref().map(short_switch_name);
        present([short.map(str::to_owned), self.name, self.alias, self.guid])
    }
}

#[derive(Deserialize)]
struct RawNic {
    node: String,
    device: String,
}

#[derive(Deserialize)]
struct RawNodeComponent {
    node: String,
    device: Option<String>,
    netdev: Option<String>,
    pci: Option<String>,
    guid: Option<String>,
    leaf: Option<String>,
    leaf_port: Option<PortLabel>,
    swapped_with: Option<RawNic>,
    gpu: Option<u32>,
    gpu_device: Option<String>,
    pci_bus_id: Option<String>,
    uuid: Option<String>,
}

/// A port of a switch, as it is written at its end: `33`, or `11s0` where it is split.
#[derive(Deserialize)]
#[serde(untagged)]
enum PortLabel {
    Number(u32),
    Text(String),
}

impl fmt::Display for PortLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

#[derive(Deserialize)]
struct RawPacket {
    kind: String,
    node: Option<String>,
    port: Option<String>,
    a: Option<String>,
    b: Option<String>,
}

#[derive(Deserialize)]
struct RawCables {
    switch: RawSwitch,
    peers: Option<Vec<RawSwitch>>,
}

fn present(names: impl IntoIterator<Item = Option<String>>) -> Vec<String> {
    let names = names.into_iter().flatten();
    names.filter(|name| !name.is_empty()).collect()
}

impl Component {
    /// Reads the field `culprit` of an event. Its keys decide which form it has.
    ///
    /// # Errors
    /// It has none of the known forms, or a field of its form is missing or invalid.
    pub(super) fn parse(raw: BTreeMap<String, Value>, peers: &Peers) -> anyhow::Result<Self> {
        let has = |key: &str| raw.contains_key(key);
        let is = [has("kind"), has("switch"), has("node"), has("job")];
        let raw = Value::Object(raw.into_iter().collect());
        match is {
            [true, ..] => packet(serde_json::from_value(raw)?, peers),
            [_, true, ..] => {
                let RawCables { switch, peers } = serde_json::from_value(raw)?;
                let names = switch.names();
                if names.is_empty() {
                    bail!("switch: expected a name, an alias or a guid");
                }
                let peers = peers.unwrap_or_default();
                Ok(Self::Switch {
                    names,
                    peers: peers.into_iter().map(RawSwitch::names).collect(),
                })
            }
            [_, _, true, _] => Ok(Self::Node(node_component(serde_json::from_value(raw)?))),
            [.., true] => match &raw["job"] {
                Value::String(job) => Ok(Self::Job(job.clone())),
                other => bail!("job: {other}: expected the name of a job"),
            },
            _ => bail!("expected an object with kind, switch, node or job"),
        }
    }
}

fn packet(raw: RawPacket, peers: &Peers) -> anyhow::Result<Component> {
    let field = |value: Option<String>, name: &str| {
        value.with_context(|| format!("{name}: missing; expected for kind {:?}", raw.kind))
    };
    match &*raw.kind {
        "host" => Ok(Component::Host(field(raw.node, "node")?)),
        "port" => {
            let near = CableEnd {
                node: field(raw.node, "node")?,
                port: field(raw.port, "port")?,
            };
            let key = format!("{}/{}", near.node, near.port);
            let far = peers.get(&key);
            let far = far.with_context(|| format!("port: expected {key:?} in peers"))?;
            let far = end(far, '/').with_context(|| format!("peers: {key}"))?;
            Ok(Component::Cable([near, far]))
        }
        "link" => {
            let a = end(&field(raw.a, "a")?, ':').context("a")?;
            let b = end(&field(raw.b, "b")?, ':').context("b")?;
            Ok(Component::Cable([a, b]))
        }
        other => bail!("kind: {other:?}: expected host, port or link"),
    }
}

fn end(text: &str, separator: char) -> anyhow::Result<CableEnd> {
    let Some((node, port)) = text.split_once(separator) else {
        bail!("{text:?}: expected a node and a port with {separator:?} between them");
    };
    Ok(CableEnd {
        node: node.to_owned(),
        port: port.to_owned(),
    })
}

fn node_component(raw: RawNodeComponent) -> NodeComponent {
    let node = raw.node;
    let gpu = raw.gpu.map(|gpu| format!("gpu{gpu}"));
    let label = [&raw.device, &raw.netdev, &gpu]
        .into_iter()
        .flatten()
        .next();
    let label = label.cloned().unwrap_or_default();
    let mut local = vec![raw.device, raw.netdev, raw.pci];
    if let Some(number) = raw.gpu {
        // NVML writes the PCI domain with eight digits, sysfs with four.
        let short = raw.pci_bus_id.as_ref().and_then(|bus| bus.get(4..));
        let short = short.map(str::to_owned);
        local.extend([raw.gpu_device, raw.pci_bus_id, short, gpu]);
        local.extend([format!("gpu={number}"), format!("{node}:{number}")].map(Some));
    }
    NodeComponent {
        unique: present([raw.uuid, raw.guid]),
        local: present(local),
        swapped_with: raw.swapped_with.map(|nic| (nic.node, nic.device)),
        leaf: raw
            .leaf
            .filter(|leaf| !leaf.is_empty())
            .zip(raw.leaf_port.map(|port| port.to_string())),
        node,
        label,
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |names: &[String]| names.first().cloned().unwrap_or_default();
        match self {
            Self::Host(node) => write!(f, "host {node}"),
            Self::Cable([a, b]) => write!(f, "link {}:{} - {}:{}", a.node, a.port, b.node, b.port),
            Self::Switch { names, peers } if peers.is_empty() => {
                write!(f, "switch {}", first(names))
            }
            Self::Switch { names, peers } => {
                let peers: Vec<_> = peers.iter().map(|peer| first(peer)).collect();
                write!(f, "links {} - {}", first(names), peers.join(", "))
            }
            Self::Node(NodeComponent { node, label, .. }) if label.is_empty() => {
                write!(f, "node {node}")
            }
            Self::Node(NodeComponent { node, label, .. }) => write!(f, "{label} of node {node}"),
            Self::Job(job) => write!(f, "job {job}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Component> {
        let peers = Peers::from([("leaf1/p11".to_owned(), "spine2/p2".to_owned())]);
        Component::parse(serde_json::from_str(text).expect("JSON"), &peers)
    }

    #[test]
    fn each_form_is_read() {
        for (text, name) in [
            (r#"{"kind": "host", "node": "h9"}"#, "host h9"),
            (
                r#"{"kind": "link", "a": "leaf1:p11", "b": "spine2:p2"}"#,
                "link leaf1:p11 - spine2:p2",
            ),
            (
                r#"{"kind": "port", "node": "leaf1", "port": "p11", "peer": "spine2"}"#,
                "link leaf1:p11 - spine2:p2",
            ),
            (
                r#"{"switch": {"name": "S-01", "alias": "", "guid": ""}}"#,
                "switch S-01",
            ),
            (
                r#"{"switch": {"name": "L-1"}, "peers": [{"name": "S-1"}, {"alias": "s2"}]}"#,
                "links L-1 - S-1, s2",
            ),
            (r#"{"node": "n1"}"#, "node n1"),
            (
                r#"{"node": "n1", "device": "mlx5_0", "netdev": "ib0", "leaf": "l1", "leaf_port": "11s0"}"#,
                "mlx5_0 of node n1",
            ),
            (
                r#"{"node": "n1", "gpu": 3, "uuid": "GPU-1", "pci_bus_id": "00000000:61:00.0"}"#,
                "gpu3 of node n1",
            ),
            (r#"{"job": "j1", "node": "n1"}"#, "node n1"),
            (r#"{"job": "j1"}"#, "job j1"),
        ] {
            assert_eq!(parse(text).expect(text).to_string(), name);
        }
    }

    #[test]
    fn an_unknown_form_or_a_missing_field_is_an_error() {
        for (text, expected) in [
            (
                r#"{"rack": "r1"}"#,
                "expected an object with kind, switch, node or job",
            ),
            (r#"{"job": 3}"#, "job: 3: expected the name of a job"),
            (
                r#"{"kind": "rack"}"#,
                r#"kind: "rack": expected host, port or link"#,
            ),
            (
                r#"{"kind": "host"}"#,
                r#"node: missing; expected for kind "host""#,
            ),
            (
                r#"{"kind": "port", "node": "leaf1", "port": "p1"}"#,
                r#"port: expected "leaf1/p1" in peers"#,
            ),
            (
                r#"{"kind": "link", "a": "leaf1", "b": "spine2:p2"}"#,
                r#"a: "leaf1": expected a node and a port"#,
            ),
            (
                r#"{"switch": {"name": ""}}"#,
                "switch: expected a name, an alias or a guid",
            ),
        ] {
            let error = format!("{:#}", parse(text).expect_err(text));
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! A sweep of the subnet merged into the fabric graph; where an exporter reports a NIC, its names
//! have precedence.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{Guid, NodeName, Part, RdmaDevice, SwitchName};

use super::names::{
    SwitchWords, host_and_device, host_name, host_name_by_guid, is_aggregation_node, switch_names,
};
use crate::fabric::subnet::{Gap, Node, NodeKind, Subnet};

/// How descriptions call devices that are only numbered.
const NUMBERED: &str = "HCA-";

/// A description that several nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateName {
    /// The description.
    pub description: String,
    /// How many nodes have it.
    pub nodes: usize,
}

/// A switch made of several ASICs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chassis {
    /// Its name.
    pub name: String,
    /// Its model, where it reports it.
    pub model: Option<String>,
    /// ASICs of it that were seen.
    pub asics: usize,
}

/// What a sweep brought into the fabric, and what of it is not in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubnetMerge {
    /// Switches now in the graph.
    pub switches: usize,
    /// NICs now in the graph.
    pub nics: usize,
    /// NICs among them that an exporter had already reported about.
    pub known_nics: usize,
    /// SHARP aggregation nodes, kept out of the graph.
    pub aggregation_nodes: usize,
    /// Routers, kept out of the graph.
    pub routers: usize,
    /// Cables now in the graph.
    pub cables: usize,
    /// Nodes that cannot be named, which no description that was ever seen leads to.
    pub unnameable: usize,
    /// Descriptions that several nodes have, those of most nodes first.
    pub duplicate_names: Vec<DuplicateName>,
    /// Switches of several ASICs.
    pub chassis: Vec<Chassis>,
    /// Everything in the sweep's text that could not be read.
    pub problems: usize,
    /// Why the sweep cannot be complete; empty if it can.
    pub gaps: Vec<Gap>,
}

/// Puts a sweep into the fabric: switches, hosts and NICs that are not there yet, and every cable, seen
/// `now`. Merging the same sweep again changes nothing but the time.
///
/// Exporters' readings go in first: a NIC whose node GUID they reported is that NIC, under their
/// names. Cables that an earlier sweep saw and this one does not stay, with their old time.
pub fn merge_subnet(fabric: &mut Fabric, subnet: &Subnet, now: Timestamp) -> SubnetMerge {
    let mut merge = SubnetMerge {
        problems: subnet.counts.problems,
        gaps: subnet.completeness.gaps().to_vec(),
        duplicate_names: duplicate_names(subnet),
        chassis: chassis(subnet),
        ..SubnetMerge::default()
    };
    let mut parts: HashMap<Guid, PartId, FixedState> =
        HashMap::with_capacity_and_hasher(subnet.nodes.len(), FixedState::default());
    add_switches(fabric, subnet, &mut parts, &mut merge);
    add_nics(fabric, subnet, now, &mut parts, &mut merge);
    for cable in &subnet.links {
        let [a, b] = cable.ends;
        // Ends that are aggregation nodes or routers have no part.
        if let (Some(a_part), Some(b_part)) = (parts.get(&a.guid), parts.get(&b.guid)) {
            let link = Link::cable((a.port, b.port), cable.speed, Witness::Subnet, now);
            fabric.connect(*a_part, *b_part, link);
            merge.cables += 1;
        }
    }
    merge
}

fn is_nic(node: &Node) -> bool {
    node.kind == NodeKind::Ca && !is_aggregation_node(node.device, &node.description)
}

fn add_switches(
    fabric: &mut Fabric,
    subnet: &Subnet,
    parts: &mut HashMap<Guid, PartId, FixedState>,
    merge: &mut SubnetMerge,
) {
    let is_switch = |node: &&Node| node.kind == NodeKind::Switch;
    let switches: Vec<&Node> = subnet.nodes.iter().filter(is_switch).collect();
    let labels: Vec<_> = switches
        .iter()
        .map(|node| (node.guid, node.description.as_str()))
        .collect();
    for (node, name) in switches.into_iter().zip(switch_names(&labels)) {
        // A switch that is there keeps its name, even if the name has become ambiguous since.
        let known = fabric
            .find_guid(node.guid)
            .map(|id| fabric.vertex(id).part.clone());
        let part = match (known, name) {
            (Some(part @ Part::Switch(_)), _) => part,
            (_, Some(name)) => free_switch_name(fabric, name, node.guid),
            (_, None) => {
                merge.unnameable += 1;
                continue;
            }
        };
        let equipment = Equipment::Switch {
            guid: Some(node.guid),
            ports: node.ports,
            description: node.description.clone(),
        };
        parts.insert(node.guid, fabric.upsert(part, equipment));
        merge.switches += 1;
    }
}

/// The name, or with the GUID if another switch has it already (from an earlier sweep).
fn free_switch_name(fabric: &Fabric, name: SwitchName, guid: Guid) -> Part {
    let part = Part::Switch(name);
    let taken = fabric.find(&part).is_some_and(|id| {
        matches!(&fabric.vertex(id).equipment,
            Equipment::Switch { guid: Some(other), .. } if *other != guid)
    });
    match &part {
        Part::Switch(name) if taken => format!("{name}@{:016x}", guid.0)
            .parse()
            .map_or(part.clone(), Part::Switch),
        _ => part,
    }
}

fn add_nics(
    fabric: &mut Fabric,
    subnet: &Subnet,
    now: Timestamp,
    parts: &mut HashMap<Guid, PartId, FixedState>,
    merge: &mut SubnetMerge,
) {
    let (ambiguous, numbers) = (ambiguous_hosts(subnet), highest_numbers(subnet));
    for node in &subnet.nodes {
        match node.kind {
            NodeKind::Switch => continue,
            NodeKind::Router => {
                merge.routers += 1;
                continue;
            }
            NodeKind::Ca if !is_nic(node) => {
                merge.aggregation_nodes += 1;
                continue;
            }
            NodeKind::Ca => {}
        }
        let known = fabric.find_guid(node.guid);
        if let Some(id) = known.filter(|id| matches!(fabric.vertex(*id).part, Part::Nic(..))) {
            parts.insert(node.guid, id);
            merge.known_nics += 1;
            merge.nics += 1;
            continue;
        }
        let Some((host, device)) = nic_names(node, (&ambiguous, &numbers), fabric) else {
            merge.unnameable += 1;
            continue;
        };
        parts.insert(node.guid, add_nic(fabric, node.guid, host, device, now));
        merge.nics += 1;
    }
}

fn add_nic(
    fabric: &mut Fabric,
    guid: Guid,
    host: NodeName,
    device: RdmaDevice,
    now: Timestamp,
) -> PartId {
    let host_part = Part::Host(host.clone());
    let host_id = fabric
        .find(&host_part)
        .unwrap_or_else(|| fabric.upsert(host_part, Equipment::Host));
    let nic_part = Part::Nic(host, device);
    // An exporter that reported no GUID may have reported where the NIC sits.
    let known = fabric
        .find(&nic_part)
        .map(|id| fabric.vertex(id).equipment.clone());
    let (pci, rail) = match known {
        Some(Equipment::Nic { pci, rail, .. }) => (pci, rail),
        _ => (None, None),
    };
    let nic_id = fabric.upsert(
        nic_part,
        Equipment::Nic {
            guid: Some(guid),
            pci,
            rail,
        },
    );
    let inside = Link::plain(LinkKind::Inside, Witness::Subnet, now);
    // Seen from the NIC, which has few neighbors.
    fabric.connect(nic_id, host_id, inside);
    nic_id
}

/// Host and device under which a NIC enters the graph.
fn nic_names(
    node: &Node,
    (ambiguous, numbers): (
        &HashMap<&str, bool, FixedState>,
        &HashMap<&str, usize, FixedState>,
    ),
    fabric: &Fabric,
) -> Option<(NodeName, RdmaDevice)> {
    let card = node.system_guid.unwrap_or(node.guid);
    let Some((host, device)) = host_and_device(&node.description) else {
        let host = host_name_by_guid(&node.description, card)?;
        return Some((host, node.guid.to_string().parse().ok()?));
    };
    let device: RdmaDevice = device.parse().ok()?;
    if !ambiguous.get(host).copied().unwrap_or(false) {
        let name = host_name(host)?;
        let numbered = numbered_device(fabric, &name, &device, numbers.get(host));
        let is_free = |device: &RdmaDevice| {
            let known = fabric.find(&Part::Nic(name.clone(), device.clone()));
            !known.is_some_and(|id| {
                matches!(&fabric.vertex(id).equipment,
                    Equipment::Nic { guid: Some(other), .. } if *other != node.guid)
            })
        };
        let mut devices = numbered.into_iter().chain([device.clone()]);
        if let Some(device) = devices.find(is_free) {
            return Some((name, device));
        }
    }
    let host = host_name_by_guid(host, card)?;
    // Two ports of one card may still report the same device.
    let part = Part::Nic(host.clone(), device.clone());
    match fabric.find(&part) {
        Some(_) => Some((host, node.guid.to_string().parse().ok()?)),
        None => Some((host, device)),
    }
}

/// The device that is `HCA-3` of its node's descriptions: the third that the node's exporters report, by name. The drivers'
/// boot script (`openibd` of MLNX_OFED) numbers the entries of `/sys/class/infiniband` in the shell's order, from 1.
///
/// None where the exporters report fewer devices than the `highest` number: those that are missing are not known.
fn numbered_device(
    fabric: &Fabric,
    host: &NodeName,
    device: &RdmaDevice,
    highest: Option<&usize>,
) -> Option<RdmaDevice> {
    let number = number_of(device.as_str())?;
    let host = fabric.find(&Part::Host(host.clone()))?;
    let devices = fabric
        .neighbors(host)
        .filter_map(|near| match &fabric.vertex(near.peer).part {
            Part::Nic(_, device) if !device.as_str().starts_with(NUMBERED) => Some(device),
            _ => None,
        });
    let devices: BTreeSet<_> = devices.collect();
    let are_all = highest.is_some_and(|highest| devices.len() >= *highest);
    let place = number.checked_sub(1).filter(|_| are_all)?;
    devices.into_iter().nth(place).cloned()
}

/// The number of a device that descriptions only number.
fn number_of(device: &str) -> Option<usize> {
    device.strip_prefix(NUMBERED)?.parse().ok()
}

/// The highest number of such devices by host.
fn highest_numbers(subnet: &Subnet) -> HashMap<&str, usize, FixedState> {
    let mut highest: HashMap<&str, usize, FixedState> = HashMap::default();
    for node in subnet.nodes.iter().filter(|node| is_nic(node)) {
        if let Some((host, device)) = host_and_device(&node.description)
            && let Some(number) = number_of(device)
        {
            let known = highest.entry(host).or_default();
            *known = number.max(*known);
        }
    }
    highest
}

/// Host names under which two NICs report the same device: several machines of one name, which only
/// the GUIDs of their cards distinguish.
fn ambiguous_hosts(subnet: &Subnet) -> HashMap<&str, bool, FixedState> {
    let mut devices: HashMap<(&str, &str), usize, FixedState> = HashMap::default();
    let mut hosts: HashMap<&str, bool, FixedState> = HashMap::default();
    for node in subnet.nodes.iter().filter(|node| is_nic(node)) {
        if let Some((host, device)) = host_and_device(&node.description) {
            let users = devices.entry((host, device)).or_default();
            *users += 1;
            if *users > 1 {
                hosts.insert(host, true);
            }
        }
    }
    hosts
}

fn duplicate_names(subnet: &Subnet) -> Vec<DuplicateName> {
    let mut users: HashMap<&str, usize, FixedState> = HashMap::default();
    for node in &subnet.nodes {
        if node.kind == NodeKind::Switch || is_nic(node) {
            *users.entry(node.description.as_str()).or_default() += 1;
        }
    }
    let mut duplicates: Vec<_> = users
        .into_iter()
        .filter(|(_, nodes)| *nodes > 1)
        .map(|(description, nodes)| DuplicateName {
            description: description.to_owned(),
            nodes,
        })
        .collect();
    duplicates.sort_by(|a, b| {
        b.nodes
            .cmp(&a.nodes)
            .then_with(|| a.description.cmp(&b.description))
    });
    duplicates
}

fn chassis(subnet: &Subnet) -> Vec<Chassis> {
    let mut chassis: BTreeMap<Guid, Chassis> = BTreeMap::new();
    for node in subnet
        .nodes
        .iter()
        .filter(|node| node.kind == NodeKind::Switch)
    {
        let Some(system) = node.system_guid else {
            continue;
        };
        let words = SwitchWords::of(&node.description);
        let entry = chassis.entry(system).or_insert_with(|| Chassis {
            name: words.name.to_owned(),
            model: words.model.map(str::to_owned),
            asics: 0,
        });
        entry.asics += 1;
    }
    chassis
        .into_values()
        .filter(|chassis| chassis.asics > 1)
        .collect()
}

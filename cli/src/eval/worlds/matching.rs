//! Compares the component of an incident with that of an event.

use super::component::{CableEnd, Component, NodeComponent};
use super::truth::{ComponentType, Event};

/// How close the component of an incident is to that of an event, the closest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// They have nothing in common.
    Unrelated,
    /// The incident names a victim of the event.
    Victim,
    /// The incident names the host of the component, or one end of a cable.
    Host,
    /// The incident names the component.
    Exact,
}

/// How close the component of an incident is to that of an event.
pub(super) fn level(event: &Event, incident: &str) -> Level {
    let text = incident.to_lowercase();
    let level = match &event.component {
        Component::Host(node) => exact_if(has(&text, node)),
        Component::Cable(ends) => of_cable(&text, ends),
        Component::Switch { names, peers } => {
            let is_near = has_any(&text, names);
            let is_far = peers.iter().any(|peer| has_any(&text, peer));
            match (is_near, is_far) {
                (true, true) => Level::Exact,
                (true, false) if peers.is_empty() => Level::Exact,
                (false, false) => Level::Unrelated,
                _ => Level::Host,
            }
        }
        Component::Node(component) => of_node(&text, component, event.component_type),
        Component::Job(job) => exact_if(has(&text, job)),
    };
    if level == Level::Unrelated && has_any(&text, &event.victims) {
        return Level::Victim;
    }
    level
}

fn exact_if(is_named: bool) -> Level {
    if is_named {
        Level::Exact
    } else {
        Level::Unrelated
    }
}

fn of_cable(text: &str, ends: &[CableEnd; 2]) -> Level {
    let named: Vec<_> = ends.iter().filter(|end| has(text, &end.node)).collect();
    let is_exact = named.len() == 2
        || named.iter().any(|end| match end.port.strip_prefix('p') {
            Some(number) => has(text, &format!("swp{number}")),
            // A host of these simulations has one NIC, so that its name identifies the cable.
            None => true,
        });
    match (is_exact, named.is_empty()) {
        (true, _) => Level::Exact,
        (_, false) => Level::Host,
        _ => Level::Unrelated,
    }
}

fn of_node(text: &str, component: &NodeComponent, of_type: ComponentType) -> Level {
    let is_node = has(text, &component.node);
    let is_swapped = component.swapped_with.as_ref();
    let is_swapped = is_swapped.is_some_and(|(node, nic)| has(text, node) && has(text, nic));
    let leaf = component.leaf.as_ref();
    let is_leaf_port = leaf.is_some_and(|(leaf, port)| has_port(text, leaf, port));
    let is_component =
        is_node && (of_type == ComponentType::Node || has_any(text, &component.local));
    if has_any(text, &component.unique) || is_swapped || is_leaf_port || is_component {
        Level::Exact
    } else if is_node {
        Level::Host
    } else {
        Level::Unrelated
    }
}

fn has_any(text: &str, names: &[String]) -> bool {
    names.iter().any(|name| has(text, name))
}

/// Whether a text in lower case contains a name as a whole token: `node1` is not in `node10`.
fn has(text: &str, name: &str) -> bool {
    ends_of(text, name).next().is_some()
}

/// What follows each place at which a text in lower case contains a name as a whole token.
fn ends_of<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let name = name.to_lowercase();
    let is_inside = |char: Option<char>| char.is_some_and(|char| char.is_ascii_alphanumeric());
    text.char_indices().filter_map(move |(index, _)| {
        let (before, here) = text.split_at(index);
        let rest = here.strip_prefix(&*name)?;
        let is_whole = !is_inside(before.chars().next_back()) && !is_inside(rest.chars().next());
        (is_whole && !name.is_empty()).then_some(rest)
    })
}

/// Longest text between the name of a switch and that of its port, such as `[Ethernet` or `:`.
const PORT_PREFIX_CHARS: usize = 13;

/// Whether a text in lower case names a port of a switch, as `leaf-03:33`, `leaf-03[swp33]` or `leaf-03[ethernet1/33]`.
fn has_port(text: &str, switch: &str, port: &str) -> bool {
    let port = port.to_lowercase();
    ends_of(text, switch).any(|rest| {
        let word = rest.split(' ').next().unwrap_or_default();
        let separators = word.char_indices().take(PORT_PREFIX_CHARS);
        let mut separators = separators.filter(|(_, char)| "[/:_p-".contains(*char));
        separators.any(|(index, char)| {
            let number = word[index + char.len_utf8()..].strip_prefix(&*port);
            number.is_some_and(|after| !after.starts_with(|char: char| char.is_ascii_digit()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::truth::Truth;
    use super::*;

    const NIC: &str = r#"{"node": "node1", "device": "mlx5_3", "netdev": "ib3", "guid": "00aa", "pci": "0000:4b:00.0",
                          "leaf": "leaf-1", "leaf_port": 7}"#;
    const GPU: &str = r#"{"node": "node1", "gpu": 3, "uuid": "GPU-7f", "gpu_device": "nvidia3",
                          "pci_bus_id": "00000000:61:00.0"}"#;

    fn check(culprit: &str, component_type: &str, cases: &[(&str, Level)]) {
        let text = format!(
            r#"{{"world": "w", "start": 0, "end": 900, "benign": [], "peers": {{"leaf1/p11": "spine2/p2"}},
                "faults": [{{"id": "f0", "kind": "ber", "culprit": {culprit}, "part_type": {component_type}, "start": 200,
                             "end": 400, "victims": ["node9"]}}]}}"#
        );
        let truth = Truth::parse(&text).expect(culprit);
        for (incident, expected) in cases {
            let found = level(&truth.events[0], incident);
            assert_eq!(found, *expected, "{culprit}: {incident}");
        }
    }

    #[test]
    fn a_nic_is_named_by_device_pci_address_guid_or_switch_port() {
        check(
            NIC,
            r#""nic""#,
            &[
                ("link/node1:mlx5_3/1", Level::Exact),
                ("nic/node1:mlx5_3", Level::Exact),
                ("pcie/node1:0000:4b:00.0", Level::Exact),
                ("switch/00AA", Level::Exact),
                ("link/leaf-1:7", Level::Exact),
                ("link/leaf-1[swp7]", Level::Exact),
                ("link/leaf-1[ethernet1/7]", Level::Exact),
                ("nic/node1:mlx5_4", Level::Host),
                ("host/node1", Level::Host),
                ("nic/node9:mlx5_3", Level::Victim),
                ("link/leaf-1:70", Level::Unrelated),
                ("link/leaf-10:7", Level::Unrelated),
                ("link/leaf-1:17", Level::Unrelated),
                ("link/node10:mlx5_3/1", Level::Unrelated),
                ("link/xnode1:mlx5_3/1", Level::Unrelated),
                ("nic/node99:mlx5_3", Level::Unrelated),
            ],
        );
    }

    #[test]
    fn a_switch_port_with_a_name_is_found_in_lower_case() {
        let nic =
            r#"{"node": "node1", "device": "mlx5_3", "leaf": "Tor04", "leaf_port": "Ethernet5/1"}"#;
        check(
            nic,
            r#""nic""#,
            &[
                ("link/tor04[ethernet5/1]", Level::Exact),
                ("link/tor04[ethernet5/10]", Level::Unrelated),
                ("link/tor04[ethernet15/1]", Level::Unrelated),
            ],
        );
    }

    #[test]
    fn a_gpu_is_named_by_number_bus_id_or_uuid() {
        check(
            GPU,
            r#""gpu""#,
            &[
                ("gpu/node1:3", Level::Exact),
                ("nvlink/node1:3/17", Level::Exact),
                ("pcie/node1:0000:61:00.0", Level::Exact),
                ("gpu/GPU-7F", Level::Exact),
                ("gpu/node1:30", Level::Host),
                ("gpu/node1:4", Level::Host),
                ("gpu/node10:3", Level::Unrelated),
            ],
        );
    }

    #[test]
    fn either_of_two_exchanged_cables_is_exact() {
        let nic = r#"{"node": "node1", "device": "mlx5_3", "swapped_with": {"node": "node2", "device": "mlx5_5"}}"#;
        check(
            nic,
            r#""nic""#,
            &[
                ("link/node1:mlx5_3/1", Level::Exact),
                ("link/node2:mlx5_5/1", Level::Exact),
                ("link/node2:mlx5_3/1", Level::Unrelated),
            ],
        );
    }

    #[test]
    fn a_node_is_exact_only_if_the_truth_states_that_type() {
        let node = r#"{"node": "node1"}"#;
        check(node, r#""node""#, &[("gpu/node1:3", Level::Exact)]);
        check(node, r#""job""#, &[("gpu/node1:3", Level::Host)]);
        let job = r#"{"job": "job1"}"#;
        check(job, r#""job""#, &[("job/job1", Level::Exact)]);
    }

    #[test]
    fn a_cable_between_switches_needs_both_ends() {
        let cable = r#"{"switch": {"name": "L-1", "alias": "leaf1"}, "peers": [{"name": "S-1"}, {"guid": "02"}]}"#;
        check(
            cable,
            r#""link""#,
            &[
                ("link/leaf1 - s-1", Level::Exact),
                ("link/L-1:9 02", Level::Exact),
                ("link/L-1:9", Level::Host),
                ("link/S-1:9", Level::Host),
                ("link/S-10:9", Level::Unrelated),
            ],
        );
        let described = r#"{"switch": {"name": "MF0;leaf-8:MQM9700/U1"}, "peers": [{"name": "MF0;spine-1:MQM9700/U1"}]}"#;
        let named = "link/leaf-8:7 spine-1:15";
        check(described, r#""link""#, &[(named, Level::Exact)]);
        let switch = r#"{"switch": {"name": "L-1", "alias": "", "guid": ""}}"#;
        check(switch, r#""switch""#, &[("link/L-1:9", Level::Exact)]);
    }

    #[test]
    fn packet_level_components_are_hosts_and_cables() {
        let host = r#"{"kind": "host", "node": "h9"}"#;
        check(
            host,
            "null",
            &[
                ("pcie/h9:0000:19:00.0", Level::Exact),
                ("host/h90", Level::Unrelated),
            ],
        );
        for cable in [
            r#"{"kind": "link", "a": "leaf1:p11", "b": "spine2:p2"}"#,
            r#"{"kind": "port", "node": "leaf1", "port": "p11"}"#,
        ] {
            check(
                cable,
                "null",
                &[
                    ("link/leaf1[swp11]", Level::Exact),
                    ("link/spine2[swp2]", Level::Exact),
                    ("link/leaf1 spine2", Level::Exact),
                    ("link/leaf1[swp2]", Level::Host),
                    ("switch/spine2", Level::Host),
                    ("switch/spine20", Level::Unrelated),
                ],
            );
        }
        let edge = r#"{"kind": "link", "a": "h9:nic0", "b": "leaf1:p2"}"#;
        check(
            edge,
            "null",
            &[
                ("link/h9:mlx5_0/1", Level::Exact),
                ("switch/leaf1", Level::Host),
            ],
        );
    }
}

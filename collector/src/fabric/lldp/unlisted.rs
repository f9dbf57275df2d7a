//! Hosts of which nothing is known but what switches receive from them: at sites whose switches alone are scraped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::identity::NodeName;

use super::mac::Mac;
use super::neighbors::Said;
use super::resolve::{find, is_management_port, is_name, is_representor, names};
use super::{End, Heard, SwitchWords};

/// How Linux and its drivers begin the names of network interfaces. Ports of switches are called `Ethernet1/1`, `swp1`, `et-0/0/1`, `port1`.
const NETDEV_STEMS: [&str; 6] = ["en", "ib", "mlx", "rdma", "ro", "gpu"];
/// The same, with a number directly behind.
const NUMBERED_STEMS: [&str; 2] = ["eth", "p"];
/// Longest name of a network interface: Linux's `IFNAMSIZ` less the zero behind it.
const LONGEST_NETDEV: usize = 15;

/// Hosts that switches have as neighbors, with the interfaces at the other ends of the cables of at least that speed in bytes per
/// second, or of unknown speed. A neighbor that forwards packets, or has a switch's port, is none; nor is an interface that two
/// switch ports have as neighbor, as clones with one name have.
pub fn unlisted_hosts<'a>(
    words: &SwitchWords<'a>,
    min_speed: f64,
) -> BTreeMap<NodeName, BTreeSet<&'a str>> {
    let speakers = words.ports.speakers();
    let speakers = names(speakers.map(|(switch, name)| (name.as_str(), switch)));
    let fast = words.heard.iter().filter(|heard| {
        let speed = heard.speed;
        speed.is_none_or(|speed| speed.bytes_per_second() >= min_speed)
    });
    // The port of a switch that has the interface as neighbor; none if several have.
    let mut ports: HashMap<(&str, &str), Option<End>, FixedState> = HashMap::default();
    for Heard { near, said, .. } in fast.copied() {
        let system = said.system().trim();
        let is_switch = said.forwards() == Some(true) || find(&speakers, system).is_some();
        if let Some(netdev) = netdev(said).filter(|_| !is_switch && is_name(system)) {
            let port = ports.entry((system, netdev)).or_insert(Some(near));
            *port = port.filter(|port| *port == near);
        }
    }
    let mut hosts: BTreeMap<NodeName, BTreeSet<&'a str>> = BTreeMap::new();
    for ((system, netdev), _) in ports.into_iter().filter(|(_, port)| port.is_some()) {
        if let Ok(host) = system.parse() {
            hosts.entry(host).or_default().insert(netdev);
        }
    }
    hosts
}

/// The interface of a host. Many daemons give its MAC address as port and its name as description.
fn netdev(said: Said<'_>) -> Option<&str> {
    let words = [said.port(), said.description()].into_iter();
    let mut words = words.filter(|word| Mac::read(word).is_none());
    words.find(|word| is_netdev(word))
}

/// Whether a host's interface may have this name, and is not one of management.
fn is_netdev(name: &str) -> bool {
    let is_numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let has_stem = || {
        let mut numbered = NUMBERED_STEMS
            .iter()
            .filter_map(|stem| name.strip_prefix(stem));
        NETDEV_STEMS.iter().any(|stem| name.starts_with(stem)) || numbered.any(is_numbered)
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    name.len() <= LONGEST_NETDEV
        && name.bytes().all(is_plain)
        && name.bytes().any(|byte| byte.is_ascii_digit())
        && has_stem()
        && !is_representor(name)
        && !is_management_port(name, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_hosts_are_told_from_ports_of_switches() {
        for netdev in [
            "ens37f0np0",
            "eth2",
            "enp65s0f0np0",
            "rdma3",
            "p2p1",
            "ibp24s0",
            "mlx5_0",
        ] {
            assert!(is_netdev(netdev), "{netdev}");
        }
        let ports = [
            "Ethernet1/1",
            "Ethernet48",
            "ethernet-1/1",
            "swp1s0",
            "et-0/0/1",
            "port 3",
            "",
            "eth1/1",
            "port1",
            "po10",
            "pf0hpf",
            "ethernet1",
            "0c:42:a1:00:00:01",
            "a much too long name 1",
        ];
        for port in ports {
            assert!(!is_netdev(port), "{port}");
        }
    }
}

//! Hosts of which nothing is known but what switches receive from them: at sites whose switches alone are scraped.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::NodeName;

use super::mac::Mac;
use super::neighbors::Said;
use super::resolve::{find, is_management_port, is_name, names};
use super::{Heard, SwitchWords};
use crate::assemble::netdev::MIN_SPEED;

/// How Linux and its drivers begin the names of network interfaces. Switches say `Ethernet1/1`, `swp1`, `et-0/0/1`.
const NETDEV_STEMS: [&str; 8] = ["en", "eth", "ib", "mlx", "p", "rdma", "ro", "gpu"];
/// Longest name of a network interface: Linux's `IFNAMSIZ` less the zero behind it.
const LONGEST_NETDEV: usize = 15;

/// Hosts that switches have as neighbors, with the interfaces at the other ends of the cables. A neighbor that forwards
/// packets, or has a switch's port, is none.
pub fn unlisted_hosts<'a>(words: &SwitchWords<'a>) -> BTreeMap<NodeName, BTreeSet<&'a str>> {
    let speakers = words.ports.speakers();
    let speakers = names(speakers.map(|(switch, name)| (name.as_str(), switch)));
    let mut hosts: BTreeMap<NodeName, BTreeSet<&'a str>> = BTreeMap::new();
    for heard in &words.heard {
        let said = heard.said;
        let is_switch =
            said.forwards() == Some(true) || find(&speakers, said.system().trim()).is_some();
        if is_switch || is_slow(heard) || !is_name(said.system().trim()) {
            continue;
        }
        if let (Ok(host), Some(netdev)) = (said.system().trim().parse(), netdev(said)) {
            hosts.entry(host).or_default().insert(netdev);
        }
    }
    hosts
}

/// Whether a port is too slow for training traffic.
fn is_slow(heard: &Heard<'_>) -> bool {
    let speed = heard.speed;
    speed.is_some_and(|speed| speed.bytes_per_second() < MIN_SPEED)
}

/// The interface of a host. Many daemons give its MAC address as port and its name as description.
fn netdev(said: Said<'_>) -> Option<&str> {
    let words = [said.port(), said.description()].into_iter();
    let mut words = words.filter(|word| Mac::read(word).is_none());
    words.find(|word| is_netdev(word))
}

/// Whether a host's interface may have this name, and is not one of management.
fn is_netdev(name: &str) -> bool {
    let has_stem = || NETDEV_STEMS.iter().any(|stem| name.starts_with(stem));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    name.len() <= LONGEST_NETDEV
        && name.bytes().all(is_plain)
        && name.bytes().any(|byte| byte.is_ascii_digit())
        && has_stem()
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
            "0c:42:a1:00:00:01",
            "a much too long name 1",
        ];
        for port in ports {
            assert!(!is_netdev(port), "{port}");
        }
    }
}

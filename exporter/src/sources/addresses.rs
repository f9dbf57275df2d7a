//! Which network interface an address of this node, or the route to another node, belongs to: from
//! `/proc/net`.
//!
//! procfs rather than a netlink socket, because from inside a container the routes of the host can be
//! read below a mounted `/proc`, but not requested.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::sysfs::{Dir, Miss};

/// Route flags of `include/uapi/linux/route.h` and `ipv6_route.h`.
const GATEWAY: u32 = 0x2;
const REJECT: u32 = 0x200;
const LOCAL: u32 = 0x8000_0000;

/// One row of a routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    network: IpAddr,
    prefix: u32,
    metric: u32,
    on_link: bool,
    netdev: String,
}

/// Routes and local addresses of this node, at one instant.
#[derive(Debug, Default)]
pub struct Addresses {
    routes: Vec<Route>,
    /// IPv6 addresses with their interface. IPv4 addresses stand nowhere beside theirs.
    local: Vec<(Ipv6Addr, String)>,
}

impl Addresses {
    /// Reads the tables of the first process's network, which in a container with the host's `/proc` is
    /// the host's; else those of our own.
    ///
    /// # Errors
    /// There is no IPv4 routing table, or a line of a table is not what it should be.
    pub fn read(procfs: &Dir) -> Result<Self, Miss> {
        let text = |name: &str| {
            let of_host = procfs.long_text(&format!("1/net/{name}"));
            of_host.or_else(|_| procfs.long_text(&format!("net/{name}")))
        };
        let mut routes = parse(&text("route")?, 1, route_v4)?;
        // A kernel without IPv6 has none of these.
        routes.extend(parse(&text("ipv6_route").unwrap_or_default(), 0, route_v6)?);
        let local = parse(&text("if_inet6").unwrap_or_default(), 0, local_v6)?;
        Ok(Self {
            routes: routes.into_iter().flatten().collect(),
            local,
        })
    }

    /// The interface that has this address; none if several may have it.
    pub fn of_local(&self, address: IpAddr) -> Option<&str> {
        if let IpAddr::V6(address) = address {
            let having = self.local.iter().filter(|(local, _)| *local == address);
            return only(having.map(|(_, netdev)| netdev.as_str()));
        }
        self.best(address, |route| route.on_link)
    }

    /// The interface by which this node reaches an address; none if several may be taken.
    pub fn towards(&self, address: IpAddr) -> Option<&str> {
        self.best(address, |_| true)
    }

    /// The interface of the most specific and then cheapest route that covers the address.
    fn best(&self, address: IpAddr, wanted: impl Fn(&Route) -> bool) -> Option<&str> {
        let covering = || {
            let routes = self.routes.iter();
            routes.filter(|route| wanted(route) && route.covers(address))
        };
        let rank = |route: &Route| (std::cmp::Reverse(route.prefix), route.metric);
        let best = covering().map(rank).min()?;
        let equal = covering().filter(|route| rank(route) == best);
        only(equal.map(|route| route.netdev.as_str()))
    }
}

impl Route {
    fn covers(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u32| {
            let apart = (a ^ b).checked_shr(bits - self.prefix);
            apart.unwrap_or_default() == 0
        };
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let (network, address) = (network.to_bits(), address.to_bits());
                same(network.into(), address.into(), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same(network.to_bits(), address.to_bits(), 128)
            }
            _ => false,
        }
    }
}

/// The name that all have; none if they differ.
fn only<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

fn parse<T>(text: &str, titles: usize, line: fn(&[&str]) -> Option<T>) -> Result<Vec<T>, Miss> {
    let rows = text
        .lines()
        .skip(titles)
        .filter(|row| !row.trim().is_empty());
    let read = rows.map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        line(&words).ok_or(Miss::Unparsed)
    });
    read.collect()
}

/// `eth0 0001A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0`: interface, network, gateway, flags, two counts,
/// metric, mask. Addresses are in network order, printed as one number of this machine.
fn route_v4(words: &[&str]) -> Option<Option<Route>> {
    let hex = |place: usize| u32::from_str_radix(words.get(place)?, 16).ok();
    let address = |bits: u32| Ipv4Addr::from(bits.to_ne_bytes());
    let (network, flags) = (address(hex(1)?), hex(3)?);
    let mask = address(hex(7)?).to_bits();
    let route = Route {
        network: network.into(),
        prefix: mask.leading_ones(),
        metric: words.get(6)?.parse().ok()?,
        on_link: flags & GATEWAY == 0,
        netdev: (*words.first()?).to_owned(),
    };
    Some((flags & REJECT == 0).then_some(route))
}

/// `<network> <prefix> <source> <prefix> <next hop> <metric> <users> <uses> <flags> eth0`, all hexadecimal.
fn route_v6(words: &[&str]) -> Option<Option<Route>> {
    let hex = |place: usize| u32::from_str_radix(words.get(place)?, 16).ok();
    let (prefix, flags) = (hex(1)?, hex(8)?);
    if prefix > 128 {
        return None;
    }
    let route = Route {
        network: address_v6(words.first()?)?.into(),
        prefix,
        metric: hex(5)?,
        on_link: flags & GATEWAY == 0,
        netdev: (*words.get(9)?).to_owned(),
    };
    // The kernel lists what it refuses and its own addresses as routes too.
    Some((flags & (REJECT | LOCAL) == 0).then_some(route))
}

/// `fe80…0001 02 40 20 80 eth0`: address, interface number, prefix, scope, flags, interface.
fn local_v6(words: &[&str]) -> Option<(Ipv6Addr, String)> {
    Some((address_v6(words.first()?)?, (*words.get(5)?).to_owned()))
}

/// 32 hexadecimal digits.
fn address_v6(digits: &str) -> Option<Ipv6Addr> {
    let bits = u128::from_str_radix(digits, 16).ok()?;
    (digits.len() == 32).then(|| Ipv6Addr::from(bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;

    const TITLE: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    /// Two storage rails with a subnet each, two that share one, and a default route.
    const ROUTES: &str = "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth0\t0000000A\t00000000\t0001\t0\t0\t100\t000000FF\t0\t0\t0\n\
        rail0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        rail1\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        twin0\t0003A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        twin1\t0003A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        rail1\t0009A8C0\t0102A8C0\t0003\t0\t0\t50\t00FFFFFF\t0\t0\t0\n\
        eth0\t0009A8C0\t0100000A\t0003\t0\t0\t90\t00FFFFFF\t0\t0\t0\n\
        *\t0008A8C0\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const ROUTES_V6: &str = "fd000000000000010000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 rail0\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000010000000000000001 00000400 00000001 00000000 00000003 eth0\n\
        fd000000000000010000000000000005 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000001 00000000 80200001 lo\n";
    const LOCAL_V6: &str = "fd000000000000010000000000000005 04 40 00 80 rail0\n\
        fe800000000000000000000000000001 02 40 20 80 eth0\n\
        fe800000000000000000000000000001 03 40 20 80 eth1\n";

    fn read(files: &[(&str, &str)]) -> Result<Addresses, Miss> {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in files {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }
        let procfs = Root::new(temp.path()).open().expect("the root");
        Addresses::read(&procfs)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_one_interface_or_none_is_said() {
        let table = format!("{TITLE}{ROUTES}");
        let addresses = read(&[
            ("net/route", &table),
            ("net/ipv6_route", ROUTES_V6),
            ("net/if_inet6", LOCAL_V6),
        ])
        .expect("tables");
        for (address, local, towards) in [
            ("192.168.1.7", Some("rail0"), Some("rail0")),
            ("192.168.2.7", Some("rail1"), Some("rail1")),
            ("192.168.3.7", None, None),
            ("192.168.9.7", None, Some("rail1")),
            ("192.168.8.7", None, Some("eth0")),
            ("10.1.2.3", Some("eth0"), Some("eth0")),
            ("8.8.8.8", None, Some("eth0")),
            ("fd00:0:0:1::5", Some("rail0"), Some("rail0")),
            ("fd00:0:0:1::9", None, Some("rail0")),
            ("fe80::1", None, Some("eth0")),
        ] {
            let address = ip(address);
            assert_eq!(addresses.of_local(address), local, "{address}");
            assert_eq!(addresses.towards(address), towards, "{address}");
        }
    }

    #[test]
    fn the_hosts_tables_come_before_those_of_a_container() {
        let ours = format!("{TITLE}veth0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n");
        let hosts = format!("{TITLE}{ROUTES}");
        let addresses = read(&[("net/route", &ours), ("1/net/route", &hosts)]).expect("tables");
        assert_eq!(addresses.towards(ip("192.168.1.7")), Some("rail0"));
        let addresses = read(&[("net/route", &ours)]).expect("tables");
        assert_eq!(addresses.towards(ip("192.168.1.7")), Some("veth0"));
        assert_eq!(addresses.towards(ip("fd00::1")), None);
    }

    #[test]
    fn broken_tables_are_said_to_be_so() {
        let good = format!("{TITLE}{ROUTES}");
        assert_eq!(read(&[]).err(), Some(Miss::Absent));
        for (file, text) in [
            ("net/route", format!("{good}eth0\tXYZ\t0\t0\t0\t0\t0\t0\n")),
            ("net/route", format!("{good}eth0\t00000000\n")),
            ("net/ipv6_route", ROUTES_V6.replace(" 40 ", " 81 ")),
            ("net/ipv6_route", "fd00 40\n".to_owned()),
            ("net/if_inet6", "fd00 04 40 00 80 rail0\n".to_owned()),
        ] {
            let read = read(&[("net/route", &good), (file, &text)]);
            assert_eq!(read.err(), Some(Miss::Unparsed), "{file} {text}");
        }
    }
}

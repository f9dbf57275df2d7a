//! The RDMA device of an interface where no exporter relates the two: by their names, numbers and places.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::PciAddress;
use railscope_model::label;
use railscope_model::metric::{NIC, NIC_MTU, NIC_SPEED, RDMA_PORT_SPEED};
use railscope_model::reading::Labels;

use super::devices;
use crate::store::NodeHistory;

/// Names of the RDMA devices that the kernel numbers, without the number, and the driver of their interfaces.
const NUMBERED_BY_PLACE: [(&str, &str); 3] = [
    ("mlx5_", "mlx5_core"),
    ("bnxt_re", "bnxt_en"),
    ("ionic_", "ionic"),
];

/// The RDMA device at this address: the one whose name reports it, or whose number is its place.
pub(super) fn device_at(history: &NodeHistory, pci: PciAddress) -> Option<&str> {
    let by_name = devices(history).find(|device| address_in(device) == Some(pci));
    by_name.or_else(|| numbered_by_place(history, pci))
}

/// The kernel numbers the devices of a driver, `mlx5_0` and so on, in the order in which it finds them, which is that of their
/// addresses. Numbers may be missing, such as those of devices for which no interface is reported either. Only where there are as
/// many devices as addresses with that driver, and none of a virtual function, which is numbered later; where no exporter reports
/// addresses, as [`places_in_names`].
fn numbered_by_place(history: &NodeHistory, pci: PciAddress) -> Option<&str> {
    let mut of_drivers = NUMBERED_BY_PLACE.into_iter();
    of_drivers.find_map(|driver| numbered_by_place_of(history, pci, driver))
}

fn numbered_by_place_of<'a>(
    history: &'a NodeHistory,
    pci: PciAddress,
    (prefix, driver): (&str, &str),
) -> Option<&'a str> {
    let number = |device: &str| device.strip_prefix(prefix)?.parse::<usize>().ok();
    let devices: BTreeMap<usize, &str> = devices(history)
        .filter_map(|device| Some((number(device)?, device)))
        .collect();
    let address = |labels: &Labels| labels.get(label!(NIC, "pci"))?.parse().ok();
    let nics = history.series(&NIC);
    // Of an interface of IP over InfiniBand the driver is `mlx5_core[ib_ipoib]`.
    let is_of_it = |name: &str| name.split('[').next() == Some(driver);
    let nics = nics.filter(|(labels, _)| labels.get(label!(NIC, "driver")).is_some_and(is_of_it));
    let places: BTreeSet<PciAddress> = match history.series(&NIC).next() {
        Some(_) => nics.filter_map(|(labels, _)| address(labels)).collect(),
        None => places_in_names(history)?,
    };
    let is_plain = places.iter().all(|place| place.function <= 1);
    let place = places.iter().position(|place| *place == pci)?;
    let all = (is_plain && devices.len() == places.len()).then_some(devices)?;
    all.into_values().nth(place)
}

/// The RDMA device of the same number, where the interfaces of one family, such as `rdma0` to `rdma7`, have the numbers of all RDMA
/// devices, those of no other family do, and where speeds are known, some at least, each has that of its device. Where no family
/// has, one that counts from 1 if the devices count from 0: the first of `benic1p1` to `benic8p1` is `mlx5_0`. Not by names of
/// the kernel, which numbers interfaces of all drivers, nor by those of systemd and biosdevname, whose last number is a slot, a
/// function or a port.
pub(super) fn numbered_alike<'a>(history: &'a NodeHistory, netdev: &str) -> Option<&'a str> {
    let (family, number) = numbered(netdev)
        .filter(|(family, _)| !["eth", "ib", "p"].contains(family) && !family.starts_with("en"))?;
    let mut families: BTreeMap<&str, BTreeMap<u32, &str>> = BTreeMap::new();
    for name in interfaces(history) {
        if let Some((of, number)) = numbered(name)
            && let Some(_) = families.entry(of).or_default().insert(number, name)
            && of == family
        {
            // Two ports of one card.
            return None;
        }
    }
    let named: BTreeSet<&str> = devices(history).collect();
    let all: Option<BTreeMap<u32, &str>> = named
        .iter()
        .map(|device| Some((numbered(device)?.1, *device)))
        .collect();
    let all = all.filter(|all| all.len() == named.len() && all.len() > 1)?;
    let has_numbers = |interfaces: &BTreeMap<u32, &str>, first: u32| {
        interfaces
            .keys()
            .copied()
            .eq(all.keys().map(|number| number + first))
    };
    let from = u32::from(!families.values().any(|of| has_numbers(of, 0)));
    if from == 1 && !all.contains_key(&0) {
        return None;
    }
    families.retain(|_, interfaces| has_numbers(interfaces, from));
    let interfaces = families.get(family).filter(|_| families.len() == 1)?;
    let as_fast = interfaces
        .values()
        .zip(all.values())
        .filter_map(|(interface, device)| {
            let of_interface = history.value(&NIC_SPEED, &[*interface])?;
            let of_device = history.value(&RDMA_PORT_SPEED, &[*device, "1"])?;
            Some(of_interface == of_device)
        });
    let is_alike = as_fast.reduce(|all, as_fast| all && as_fast)?;
    all.get(&number.checked_sub(from)?)
        .copied()
        .filter(|_| is_alike)
}

/// The only RDMA device of a node, where this is its only interface with a named port, and as fast.
pub(super) fn the_only_one<'a>(history: &'a NodeHistory, netdev: &str) -> Option<&'a str> {
    let named: BTreeSet<&str> = devices(history).collect();
    let device = named.first().filter(|device| device.starts_with("mlx5_"))?;
    let is_only = named.len() == 1 && interfaces_with_named_ports(history)?.eq([netdev]);
    let of_interface = history.value(&NIC_SPEED, &[netdev])?;
    let of_device = history.value(&RDMA_PORT_SPEED, &[*device, "1"])?;
    (is_only && of_interface == of_device).then_some(*device)
}

/// A name without the number at its end, and the number; that of a port, as in `benic1p1`, is not counted.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let is_digit = |char: char| char.is_ascii_digit();
    let of_card = name
        .trim_end_matches(is_digit)
        .strip_suffix('p')
        .filter(|card| card.ends_with(is_digit));
    let name = of_card.unwrap_or(name);
    let family = name.trim_end_matches(is_digit);
    Some((family, name[family.len()..].parse().ok()?))
}

/// The names of a node's network interfaces.
fn interfaces(history: &NodeHistory) -> impl Iterator<Item = &str> {
    let interfaces = history.series(&NIC_MTU);
    interfaces.filter_map(|(labels, _)| labels.values().next())
}

/// The PCI address in a name that rdma-core's `rdma_rename` gives by path: link type, then `P` and the domain unless it is 0,
/// `p` and the bus, `s` and the slot, `f` and the function unless it is the only one; in decimal. `rocep220s0` is 0000:dc:00.0.
pub(super) fn address_in(device: &str) -> Option<PciAddress> {
    let types = ["roce", "ib", "iw", "opa", "usnic"];
    let place = types.iter().find_map(|kind| device.strip_prefix(kind))?;
    address(place)
}

/// The PCI addresses in the names of a node's Ethernet interfaces with named ports.
fn places_in_names(history: &NodeHistory) -> Option<BTreeSet<PciAddress>> {
    let named = interfaces_with_named_ports(history)?;
    Some(named.filter_map(address_in_interface).collect())
}

/// A node's Ethernet interfaces with named ports, as mlx5 names its ports: `enp24s0np0`, `ens2f0np0`. None where interfaces of
/// InfiniBand may have some of its RDMA devices.
fn interfaces_with_named_ports(history: &NodeHistory) -> Option<impl Iterator<Item = &str>> {
    let has_others = interfaces(history).any(|name| name.starts_with("ib"));
    let is_named = |name: &&str| name.get(2..).is_some_and(|name| name.contains("np"));
    (!has_others).then(|| interfaces(history).filter(is_named))
}

/// The PCI address in systemd's name of an Ethernet interface, which may end with the name of its port: `enp220s0f1np1`. None of a VLAN,
/// a representor or a virtual function.
pub(super) fn address_in_interface(netdev: &str) -> Option<PciAddress> {
    let name = netdev.strip_prefix("en")?;
    let (place, port) = name.split_once("np").unwrap_or((name, "0"));
    port.parse::<u8>().ok()?;
    address(place)
}

/// The address of a place as in `p220s0f1`.
fn address(place: &str) -> Option<PciAddress> {
    let (domain, place) = match place.strip_prefix('P') {
        Some(place) => place.split_once('p')?,
        None => ("0", place.strip_prefix('p')?),
    };
    let (bus, place) = place.split_once('s')?;
    let (slot, function) = place.split_once('f').unwrap_or((place, "0"));
    Some(PciAddress {
        domain: domain.parse().ok()?,
        bus: bus.parse().ok()?,
        device: slot.parse().ok()?,
        function: function.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_by_path_says_its_address() {
        for (name, address) in [
            ("rocep220s0", Some("0000:dc:00.0")),
            ("ibp12s0f1", Some("0000:0c:00.1")),
            ("roceP1p1s0f0", Some("0001:01:00.0")),
            ("mlx5_0", None),
            ("rocep300s0", None),
            ("ibs3", None),
        ] {
            let expected = address.map(|address| address.parse().expect("an address"));
            assert_eq!(address_in(name), expected, "{name}");
        }
    }

    #[test]
    fn systemds_name_of_an_interface_says_its_address() {
        for (name, address) in [
            ("enp220s0np0", Some("0000:dc:00.0")),
            ("enp12s0f1", Some("0000:0c:00.1")),
            ("enP1p1s0f0np0", Some("0001:01:00.0")),
            ("enp3s0", Some("0000:03:00.0")),
            ("eno1", None),
            ("ens3f0", None),
            ("bond0", None),
            ("enp220s0np0.100", None),
            ("enp8s0f0npf0vf3", None),
            ("enp24s0f0v0", None),
            ("enp12s0d1", None),
        ] {
            let expected = address.map(|address| address.parse().expect("an address"));
            assert_eq!(address_in_interface(name), expected, "{name}");
        }
    }
}

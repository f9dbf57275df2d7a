//! Network interfaces and the RDMA ports that they belong to: on Ethernet the interface counts the errors of a cable.

mod bonds;
mod names;

use railscope_model::fabric::{Equipment, Fabric};
use railscope_model::identity::{NodeName, PciAddress, RdmaDevice, RdmaPort};
use railscope_model::label;
use railscope_model::metric::{GPU, NIC, NIC_PFC_FRAMES, NIC_SPEED, RDMA_PORT, RDMA_PORT_UP};
use railscope_model::reading::Labels;

pub(crate) use bonds::{is_bond, without_port_state};

use self::names::{address_in, address_in_interface, device_at, numbered_alike, the_only_one};
use crate::store::NodeHistory;

/// Labels of every RDMA port of a node that has a network interface, with the interface's name.
fn ports(history: &NodeHistory) -> impl Iterator<Item = (&Labels, &str)> {
    history.series(&RDMA_PORT).filter_map(|(labels, _)| {
        let netdev = labels.get(label!(RDMA_PORT, "netdev"))?;
        (!netdev.is_empty()).then_some((labels, netdev))
    })
}

/// Labels of the port of an interface, where an exporter reports both.
fn rdma_port<'a>(history: &'a NodeHistory, netdev: &str) -> Option<&'a Labels> {
    let (labels, _) = ports(history).find(|(_, name)| *name == netdev)?;
    Some(labels)
}

/// The port of an interface; none if it carries no RDMA. Where no exporter reports ports with their interfaces, it is the first
/// of the NIC that [`fabric_nic_of`] gives.
pub(crate) fn port_of(history: &NodeHistory, netdev: &str) -> Option<RdmaPort> {
    if ports(history).next().is_none() {
        let device = fabric_nic_of(history, netdev)?;
        return Some(RdmaPort { device, port: 1 });
    }
    let labels = rdma_port(history, netdev)?;
    port_named(
        labels.get(label!(RDMA_PORT, "device"))?,
        labels.get(label!(RDMA_PORT, "port"))?,
    )
}

/// Slowest interface that counts where no RDMA ports are known, bytes per second: 10 Gb/s. Slower ones are for management.
pub(crate) const MIN_SPEED: f64 = 1.25e9;

/// Whether no exporter reads `/sys/class/infiniband` of a node, or it has none.
pub(crate) fn has_no_rdma_port(history: &NodeHistory) -> bool {
    let has = |metric| history.series(metric).next().is_some();
    !(has(&RDMA_PORT) || has(&RDMA_PORT_UP))
}

/// Whether the fabric has a NIC of a node that is more than an interface: RDMA ports that the node does not report may only be unknown
/// for now.
pub(crate) fn has_rdma_nic(fabric: &Fabric, node: &NodeName) -> bool {
    fabric
        .nics(node)
        .any(|nic| match fabric.vertex(nic).equipment {
            Equipment::Nic { guid, pci, .. } => guid.is_some() || pci.is_some(),
            _ => false,
        })
}

/// Whether it is a node with GPUs, and no state of an RDMA port is known: an instance of a cloud, or a node of which no exporter
/// reads `/sys/class/infiniband`.
pub(crate) fn is_without_rdma(history: &NodeHistory) -> bool {
    has_gpus(history) && history.series(&RDMA_PORT_UP).next().is_none()
}

/// Whether a node reports GPUs.
pub(crate) fn has_gpus(history: &NodeHistory) -> bool {
    history.series(&GPU).next().is_some()
}

/// The port of a fast interface that [has no port state](without_port_state). The name of the interface takes the place of the device.
pub(crate) fn port_without_rdma(history: &NodeHistory, netdev: &str) -> Option<RdmaPort> {
    let speed = history.value(&NIC_SPEED, &[netdev])?;
    let device = netdev.parse().ok()?;
    let counts = without_port_state(history).is_some_and(|counts| counts(netdev));
    (speed >= MIN_SPEED && counts).then_some(RdmaPort { device, port: 1 })
}

/// The port that the labels `device` and `port` name.
pub(crate) fn port_named(device: &str, port: &str) -> Option<RdmaPort> {
    Some(RdmaPort {
        device: device.parse().ok()?,
        port: port.parse().ok()?,
    })
}

/// The interface of a port; none on InfiniBand.
pub(crate) fn of_port<'a>(history: &'a NodeHistory, port: [&str; 2]) -> Option<&'a str> {
    let mut ports = ports(history);
    let (_, name) = ports.find(|(labels, _)| labels.values().take(2).eq(port))?;
    Some(name)
}

/// PCI address and RDMA device of an interface. Some exporters know of no relation between the two:
/// then a device whose name reports the same address is it, or one that [`numbered_alike`] or [`the_only_one`] gives, else the
/// interface itself names the NIC.
pub(crate) fn nic_of(
    history: &NodeHistory,
    netdev: &str,
) -> Option<(Option<PciAddress>, RdmaDevice)> {
    let known = history.series(&NIC).find_map(|(labels, _)| {
        let mut labels = labels.values();
        let is_it = labels.next() == Some(netdev);
        is_it.then_some((labels.next(), labels.next()))
    });
    let (pci, device) = known.unwrap_or_default();
    let device = device.filter(|device| !device.is_empty());
    let port = || rdma_port(history, netdev);
    let pci = pci.or_else(|| port()?.get(label!(RDMA_PORT, "pci")));
    let pci = pci.and_then(|pci| pci.parse().ok());
    let pci = pci.or_else(|| address_in_interface(netdev));
    let device = device.or_else(|| port()?.get(label!(RDMA_PORT, "device")));
    let device = device.or_else(|| device_at(history, pci?));
    // An address that is known is at another device where names of devices show their places or their order.
    let is_placed = |device: &str| device.starts_with("mlx5_") || address_in(device).is_some();
    let is_elsewhere = || pci.is_some() && devices(history).any(is_placed);
    let by_names = || numbered_alike(history, netdev).or_else(|| the_only_one(history, netdev));
    let device = device.or_else(|| by_names().filter(|_| !is_elsewhere()));
    Some((pci, device.unwrap_or(netdev).parse().ok()?))
}

/// PCI address of an RDMA device, where an interface of it reports one.
pub(crate) fn address_of(history: &NodeHistory, device: &RdmaDevice) -> Option<PciAddress> {
    history.series(&NIC).find_map(|(labels, _)| {
        let (pci, nic) = nic_of(history, labels.values().next()?)?;
        pci.filter(|_| nic == *device)
    })
}

/// The RDMA devices of a node, once for each of their ports.
fn devices(history: &NodeHistory) -> impl Iterator<Item = &str> {
    let ports = history.series(&RDMA_PORT_UP);
    ports.filter_map(|(labels, _)| labels.values().next())
}

/// The NIC of an interface if that carries RDMA. Where no exporter relates an interface to an RDMA device, one that counts
/// pause by priority carries it, and one whose PCI address is that of an RDMA device.
pub(crate) fn fabric_nic_of(history: &NodeHistory, netdev: &str) -> Option<RdmaDevice> {
    let named = || {
        let nics = history.series(&NIC);
        nics.map(|(labels, _)| (labels.values().next(), labels.values().nth(2)))
    };
    let is_named = |device: Option<&str>| device.is_some_and(|device| !device.is_empty());
    if named().any(|(_, device)| is_named(device)) {
        let (_, device) = named().find(|(name, _)| *name == Some(netdev))?;
        return device.filter(|_| is_named(device))?.parse().ok();
    }
    if ports(history).next().is_some() {
        let device = rdma_port(history, netdev)?.get(label!(RDMA_PORT, "device"));
        return device?.parse().ok();
    }
    let mut pauses = history.series(&NIC_PFC_FRAMES);
    let has_priorities = pauses.any(|(labels, _)| labels.values().next() == Some(netdev));
    let (_, device) = nic_of(history, netdev)?;
    let carries_rdma = has_priorities || devices(history).any(|known| *known == *device.as_str());
    carries_rdma.then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The RDMA device of an interface of a node with this exposition.
    fn device_on(page: &str, netdev: &str) -> Option<String> {
        let mut history = crate::store::History::default();
        let history = history.node_mut(&"n1".parse().expect("a name"));
        let read = history.ingest(page, railscope_model::fabric::Timestamp(1_000));
        assert_eq!((read.unknown, read.errors), (0, vec![]));
        fabric_nic_of(history, netdev).map(|device| device.to_string())
    }

    /// What node_exporter reports without its collector of `ethtool` statistics.
    #[test]
    fn an_interface_has_the_device_of_the_place_in_its_name() {
        let device_of = |devices: &[&str], also: &str, netdev: &str| {
            let ports = devices.iter().map(|device| {
                format!("railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} 1\n")
            });
            let interfaces = ["enp220s0np0", "enp24s0np0", also]
                .map(|name| format!("railscope_nic_mtu_bytes{{netdev=\"{name}\"}} 9000\n"));
            let page: String = ports.chain(interfaces).collect();
            device_on(&page, netdev)
        };
        let two = ["mlx5_0", "mlx5_1"];
        let device_at = |bus, also| device_of(&two, also, &format!("enp{bus}s0np0"));
        for also in ["eno1", "enp1s0f0"] {
            assert_eq!(device_at(24, also).as_deref(), Some("mlx5_0"));
            assert_eq!(device_at(220, also).as_deref(), Some("mlx5_1"));
            assert_eq!(device_of(&two, also, also), None);
        }
        for also in ["ib0", "enp24s0f2np0", "enp9s0np0"] {
            assert_eq!(device_at(24, also), None, "{also}");
        }
        assert_eq!(device_of(&["mlx5_0"], "eno1", "enp24s0np0"), None);
    }

    /// What node_exporter reports where the site has named the interfaces.
    #[test]
    fn an_interface_has_the_device_of_its_number_if_all_have_one() {
        let device = |devices: &str, family: &str, also: &str| {
            let of = |number| {
                format!(
                    "railscope_rdma_port_up{{device=\"{devices}{number}\",port=\"1\"}} 1\n\
                     railscope_rdma_port_speed_bytes_per_second{{device=\"{devices}{number}\",port=\"1\"}} 50e9\n\
                     railscope_nic_mtu_bytes{{netdev=\"{family}{number}\"}} 9000\n"
                )
            };
            let page = format!("{}{}{also}", of(0), of(1));
            device_on(&page, &format!("{family}1"))
        };
        let device_of = |family: &str, also: &str| device("mlx5_", family, also);
        let interface = |name: &str| format!("railscope_nic_mtu_bytes{{netdev=\"{name}\"}} 1500\n");
        let speed = |of_it: &str| {
            format!("railscope_nic_speed_bytes_per_second{{netdev=\"rdma0\"}} {of_it}\n")
        };
        let fast = speed("50e9");
        let all = [&fast, &interface("eno1")].map(String::as_str).concat();
        assert_eq!(device_of("rdma", &all).as_deref(), Some("mlx5_1"));
        let elsewhere = "railscope_nic_info{netdev=\"rdma1\",pci=\"0000:18:00.0\",device=\"\",driver=\"bnxt_en\",numa_node=\"\"} 1\n";
        let at_address = fast.clone() + elsewhere;
        for also in [
            // One more, of the same family.
            fast.clone() + &interface("rdma2"),
            // Others of these numbers.
            fast.clone() + &interface("storage0") + &interface("storage1"),
            // One is another port, or all may be.
            speed("125e6"),
            String::new(),
            // An address at which there is no RDMA device.
            at_address.clone(),
        ] {
            assert_eq!(device_of("rdma", &also), None, "{also}");
        }
        // Names of devices that report no place.
        let named = device("rdma_r", "rdma", &at_address);
        assert_eq!(named.as_deref(), Some("rdma_r1"));
        let of_slot = fast.replace("rdma0", "ens5f0");
        assert_eq!(device("bnxt_re", "ens5f", &of_slot), None);
        // Counted from one, with the number of a port.
        let page = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n\
             railscope_rdma_port_up{device=\"mlx5_1\",port=\"1\"} 1\n\
             railscope_rdma_port_speed_bytes_per_second{device=\"mlx5_0\",port=\"1\"} 50e9\n\
             railscope_nic_speed_bytes_per_second{netdev=\"benic1p1\"} 50e9\n\
             railscope_nic_mtu_bytes{netdev=\"benic1p1\"} 9000\n\
             railscope_nic_mtu_bytes{netdev=\"benic2p1\"} 9000\n";
        assert_eq!(device_on(page, "benic2p1").as_deref(), Some("mlx5_1"));
        // Numbers of slots, and two ports of a card.
        let of_slots = page.replace("benic", "p");
        assert_eq!(device_on(&of_slots, "p2p1"), None);
        let of_ports = page.to_owned() + &interface("benic2p2");
        assert_eq!(device_on(&of_ports, "benic2p2"), None);
        // Those with equal numbers are preferred.
        let both = format!("{all}{}{}", interface("vlan1"), interface("vlan2"));
        assert_eq!(device_of("rdma", &both).as_deref(), Some("mlx5_1"));
        let of_kernel = fast.replace("rdma0", "eth0");
        assert_eq!(device_of("eth", &of_kernel), None);
    }

    /// What node_exporter reports of a server with one NIC for RDMA in a numbered slot.
    #[test]
    fn the_only_interface_with_a_named_port_has_the_only_device_if_it_is_as_fast() {
        let device_of = |devices: &[&str], interfaces: &[&str], speed: &str| {
            let mut page =
                format!("railscope_nic_speed_bytes_per_second{{netdev=\"ens2f0np0\"}} {speed}\n");
            for device in devices {
                page += &format!(
                    "railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} 1\n\
                     railscope_rdma_port_speed_bytes_per_second{{device=\"{device}\",port=\"1\"}} 12.5e9\n"
                );
            }
            for name in interfaces {
                page += &format!("railscope_nic_mtu_bytes{{netdev=\"{name}\"}} 9000\n");
            }
            device_on(&page, "ens2f0np0")
        };
        let one = ["mlx5_0"];
        let alone = ["bond0", "ens2f0np0"];
        assert_eq!(device_of(&one, &alone, "12.5e9").as_deref(), Some("mlx5_0"));
        assert_eq!(device_of(&one, &alone, "6.25e9"), None, "another speed");
        assert_eq!(device_of(&["mlx5_0", "mlx5_1"], &alone, "12.5e9"), None);
        for other in ["ens3f0np0", "ib0"] {
            assert_eq!(device_of(&one, &["ens2f0np0", other], "12.5e9"), None);
        }
    }

    /// What an exporter reports that lists RDMA ports, and no NICs.
    #[test]
    fn a_port_that_is_reported_with_its_interface_relates_the_two() {
        let page = "railscope_rdma_port_info{device=\"mlx5_3\",port=\"1\",pci=\"0000:18:00.0\",netdev=\"eth3\",\
            node_guid=\"\",port_guid=\"\",link_layer=\"Ethernet\",driver=\"mlx5_core\",numa_node=\"0\"} 1\n";
        let mut history = crate::store::History::default();
        let history = history.node_mut(&"n1".parse().expect("a name"));
        let read = history.ingest(page, railscope_model::fabric::Timestamp(1_000));
        assert_eq!((read.unknown, read.errors), (0, vec![]));
        let pci = "0000:18:00.0".parse().ok();
        let device: RdmaDevice = "mlx5_3".parse().expect("a device");
        assert_eq!(nic_of(history, "eth3"), Some((pci, device.clone())));
        assert_eq!(fabric_nic_of(history, "eth3"), Some(device));
        assert_eq!(fabric_nic_of(history, "eth4"), None);
        assert_eq!(of_port(history, ["mlx5_3", "1"]), Some("eth3"));
    }

    #[test]
    fn an_interface_has_the_device_of_its_place_where_nobody_says_more() {
        let port_at = |first: &str, devices: &[&str], netdev: &str| {
            let mut page = String::new();
            for device in devices {
                page += &format!("railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} 1\n");
            }
            for (name, place, driver) in [
                ("eth0", "40:00.0", "mlx5_core"),
                ("eth1", first, "mlx5_core[ib_ipoib]"),
                ("eno1", "05:00.0", "ixgbe"),
            ] {
                page += &format!(
                    "railscope_nic_info{{netdev=\"{name}\",pci=\"0000:{place}\",device=\"\",driver=\"{driver}\",numa_node=\"\"}} 1\n\
                     railscope_nic_pfc_frames_total{{netdev=\"{name}\",priority=\"3\",direction=\"receive\"}} 1\n"
                );
            }
            if devices.iter().any(|device| device.starts_with("bnxt")) {
                page = page.replace("mlx5_core", "bnxt_en");
            }
            let mut history = crate::store::History::default();
            let node = "n1".parse().expect("a name");
            let history = history.node_mut(&node);
            let read = history.ingest(&page, railscope_model::fabric::Timestamp(1_000));
            assert_eq!((read.unknown, read.errors), (0, vec![]));
            port_of(history, netdev).map(|port| port.to_string())
        };
        let port_of = |devices: &[&str], netdev: &str| port_at("18:00.0", devices, netdev);
        assert_eq!(
            port_of(&["bnxt_re0", "bnxt_re1"], "eth0").as_deref(),
            Some("bnxt_re1/1")
        );
        // Of another driver.
        assert_eq!(
            port_of(&["ionic_0", "ionic_1"], "eth0").as_deref(),
            Some("eth0/1")
        );
        assert_eq!(
            port_of(&["mlx5_0", "mlx5_1"], "eth1").as_deref(),
            Some("mlx5_0/1")
        );
        assert_eq!(
            port_of(&["mlx5_0", "mlx5_1"], "eth0").as_deref(),
            Some("mlx5_1/1")
        );
        assert_eq!(
            port_of(&["rocep64s0", "rocep24s0"], "eth0").as_deref(),
            Some("rocep64s0/1")
        );
        // Numbers are missing.
        assert_eq!(
            port_of(&["mlx5_3", "mlx5_9"], "eth0").as_deref(),
            Some("mlx5_9/1")
        );
        // One more device than interfaces: which it is, is unknown.
        assert_eq!(
            port_of(&["mlx5_0", "mlx5_1", "mlx5_2"], "eth0").as_deref(),
            Some("eth0/1")
        );
        // The kernel numbers virtual functions later, whatever their place.
        assert_eq!(
            port_at("18:00.2", &["mlx5_0", "mlx5_1"], "eth0").as_deref(),
            Some("eth0/1")
        );
    }
}

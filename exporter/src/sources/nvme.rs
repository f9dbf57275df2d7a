//! NVMe controllers, local and over fabrics, and the subsystems that they are paths to, from `/sys/class`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::rdma;
use super::sysfs::{Buffer, Dir, Miss};

/// Interfaces stacked on each other, VLAN on bond on port; deeper is a loop or not for us.
const DEEPEST_STACK: usize = 4;

/// A controller: one path to a subsystem.
#[derive(Debug, Clone)]
pub struct Controller {
    /// Its name, `nvme0`.
    pub name: String,
    /// Its own directory.
    pub dir: Dir,
    /// The subsystem that it belongs to, `nvme-subsys0`; none where the kernel does not report it.
    pub subsystem: Option<String>,
}

/// Every controller, by name, and every subsystem's directory.
///
/// # Errors
/// [`Miss::Absent`] on a machine without NVMe.
pub fn controllers(sysfs: &Dir) -> Result<(Vec<Controller>, BTreeMap<String, Dir>), Miss> {
    let class = sysfs.dir("class/nvme")?;
    let subsystems = sysfs
        .dir("class/nvme-subsystem")
        .map_or_else(|_| BTreeMap::new(), |dir| children(&dir));
    let controllers = children(&class).into_iter().map(|(name, dir)| {
        let of = subsystems.iter().find(|(_, dir)| dir.has(&name));
        Controller {
            subsystem: of.map(|(subsystem, _)| subsystem.clone()),
            name,
            dir,
        }
    });
    Ok((controllers.collect(), subsystems))
}

/// Directories below one. An entry that goes away while it is read is treated as absent.
fn children(dir: &Dir) -> BTreeMap<String, Dir> {
    let names = dir.names().unwrap_or_default().into_iter();
    names
        .filter_map(|name| Some((name.clone(), dir.dir(&name).ok()?)))
        .collect()
}

/// Where a fabrics controller leads and whence, as `address` reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FabricsAddress {
    /// Address of the target: IP, or for Fibre Channel node and port name.
    pub traddr: String,
    /// Local address: what the path was set up with or, where nothing was (TCP only), what the kernel took.
    pub host_traddr: String,
    /// Local interface that the path was set up with.
    pub host_iface: String,
}

impl FabricsAddress {
    /// Reads `traddr=10.0.0.5,trsvcid=4420,host_traddr=10.0.0.1,host_iface=eth1,src_addr=10.0.0.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut address = Self::default();
        let mut source = String::new();
        for field in text.split(',') {
            let (key, value) = field.trim().split_once('=')?;
            let value = value.to_owned();
            match key {
                "traddr" => address.traddr = value,
                "host_traddr" => address.host_traddr = value,
                "host_iface" => address.host_iface = value,
                "src_addr" => source = value,
                _ => {}
            }
        }
        if address.host_traddr.is_empty() {
            address.host_traddr = source;
        }
        (!address.traddr.is_empty()).then_some(address)
    }

    /// An address as a number; none for Fibre Channel. `fe80::1%eth0` names its interface behind it.
    pub fn ip(text: &str) -> Option<IpAddr> {
        let (address, _) = text.split_once('%').unwrap_or((text, ""));
        address.parse().ok()
    }
}

/// The RDMA device under an interface, through VLANs and bonds; none if there are several.
pub fn rdma_device(sysfs: &Dir, netdev: &str, buffer: &mut Buffer) -> Option<rdma::Device> {
    let mut stack = vec![netdev.to_owned()];
    let mut level = stack.clone();
    for _ in 1..DEEPEST_STACK {
        level = level
            .iter()
            .flat_map(|name| lower(sysfs, name))
            .filter(|name| !stack.contains(name))
            .collect();
        stack.extend(level.iter().cloned());
    }
    let mut found = rdma::devices(sysfs).ok()?.into_iter().filter(|device| {
        device.ports().iter().any(|(number, port)| {
            let own = port
                .dir("gid_attrs/ndevs")
                .and_then(|ndevs| ndevs.text("0", buffer))
                .ok();
            let netdev = own.or_else(|| device.netdev(*number, buffer));
            netdev.is_some_and(|netdev| stack.contains(&netdev))
        })
    });
    let device = found.next()?;
    found.next().is_none().then_some(device)
}

/// Interfaces right below one: the ports of a bond, what a VLAN rides on.
fn lower(sysfs: &Dir, netdev: &str) -> Vec<String> {
    let names = sysfs
        .dir("class/net")
        .and_then(|net| net.dir(netdev))
        .and_then(|dir| dir.names());
    let names = names.unwrap_or_default();
    names
        .iter()
        .filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_a_path_leads_and_whence() {
        let address = |traddr: &str, host_traddr: &str, host_iface: &str| {
            Some(FabricsAddress {
                traddr: traddr.to_owned(),
                host_traddr: host_traddr.to_owned(),
                host_iface: host_iface.to_owned(),
            })
        };
        for (text, expected) in [
            ("traddr=10.0.0.5,trsvcid=4420", address("10.0.0.5", "", "")),
            (
                "traddr=10.0.0.5,trsvcid=4420,host_traddr=10.0.0.1,src_addr=10.0.0.9",
                address("10.0.0.5", "10.0.0.1", ""),
            ),
            (
                "traddr=fd00::5,trsvcid=4420,host_iface=eth1,src_addr=fd00::1",
                address("fd00::5", "fd00::1", "eth1"),
            ),
            (
                "traddr=nn-0x20:pn-0x10,host_traddr=nn-0x21:pn-0x11",
                address("nn-0x20:pn-0x10", "nn-0x21:pn-0x11", ""),
            ),
            ("trsvcid=4420", None),
            ("traddr=", None),
            ("traddr", None),
            ("0000:e1:00.0", None),
            ("", None),
        ] {
            assert_eq!(FabricsAddress::parse(text), expected, "{text:?}");
        }
        assert_eq!(FabricsAddress::ip("nn-0x20:pn-0x10"), None);
        assert_eq!(FabricsAddress::ip("fe80::1%eth0"), "fe80::1".parse().ok());
    }
}

//! NICs that probes leave by and are answered at: RDMA device, interface, addresses.

use std::net::IpAddr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::sources::ethtool::{Nic, NicSource};
use crate::sources::rdma;
use crate::sources::sysfs::{Buffer, Dir, Miss, Root};

/// Drivers whose NICs report the time of departure in the completion of each packet. Others (igb, i40e, ice) keep the times of one
/// or a few packets at once: timestamps requested by probes would be missing for a PTP daemon.
const STAMP_ALL: &[&str] = &["mlx5_core"];

/// A NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNic {
    /// Its RDMA device, or the interface's name if it has none.
    pub device: String,
    /// Its own interface.
    pub netdev: String,
    /// The interface that has the addresses: its own, or the bond that it belongs to.
    pub interface: String,
    /// Whether that interface is a NIC that can timestamp every packet by its own clock.
    pub stamps_all: bool,
    /// By which others may reach it, in order; or why they are not known.
    pub addresses: Result<Vec<IpAddr>, Miss>,
}

impl LocalNic {
    /// An address of the same version as another node's.
    pub(super) fn towards(&self, peer: IpAddr) -> Result<IpAddr, Miss> {
        let addresses = self.addresses.as_ref().map_err(|miss| *miss)?;
        let mut same = addresses.iter();
        let found = same.find(|address| address.is_ipv4() == peer.is_ipv4());
        found.copied().ok_or(Miss::Absent)
    }
}

/// The NIC that each RDMA port with an interface is, by device and port.
///
/// # Errors
/// [`Miss::Absent`] on a machine without RDMA.
pub fn of_rdma(sysfs: &Root, network: &mut dyn NicSource) -> Result<Vec<LocalNic>, Miss> {
    let sysfs = sysfs.open()?;
    let mut buffer = [0; 4096];
    let mut nics = Vec::new();
    for device in rdma::devices(&sysfs)? {
        for (port, dir) in device.ports() {
            if let Some(netdev) = device.netdev_of_port(port, &dir, &mut buffer) {
                nics.push(nic(&sysfs, network, &device.name, netdev, &mut buffer));
            }
        }
    }
    Ok(nics)
}

/// The NIC of this name: an RDMA device, of which the first port with an interface counts, or an interface.
pub(super) fn named(
    known: &[LocalNic],
    sysfs: &Root,
    network: &mut dyn NicSource,
    name: &str,
) -> Result<LocalNic, Miss> {
    if let Some(nic) = known.iter().find(|nic| nic.device == name) {
        return Ok(nic.clone());
    }
    let sysfs = sysfs.open()?;
    Ok(nic(&sysfs, network, name, name.to_owned(), &mut [0; 4096]))
}

/// The name of the interface of this index in our network namespace.
pub fn interface_name(index: u32) -> Option<String> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
    netdevice::index_to_name(&socket, index).ok()
}

fn nic(
    sysfs: &Dir,
    network: &mut dyn NicSource,
    device: &str,
    netdev: String,
    buffer: &mut Buffer,
) -> LocalNic {
    let found = addresses(sysfs, network, &netdev, buffer);
    let (interface, addresses) = match found {
        Ok((interface, addresses)) => (interface, Ok(addresses)),
        Err(miss) => (netdev.clone(), Err(miss)),
    };
    LocalNic {
        device: device.to_owned(),
        netdev,
        stamps_all: stamps_all(sysfs, &interface),
        interface,
        addresses,
    }
}

/// Whether the driver of an interface is one of [`STAMP_ALL`]; a bond and other virtual ones have none.
fn stamps_all(sysfs: &Dir, interface: &str) -> bool {
    let hardware = sysfs
        .dir("class/net")
        .and_then(|class| class.dir(interface)?.dir("device"));
    let driver = hardware.ok().and_then(|device| device.link_name("driver"));
    driver.is_some_and(|driver| STAMP_ALL.contains(&driver.as_str()))
}

/// The interface's addresses, or if it has none those of its bond; and which of the two has them.
fn addresses(
    sysfs: &Dir,
    network: &mut dyn NicSource,
    netdev: &str,
    buffer: &mut Buffer,
) -> Result<(String, Vec<IpAddr>), Miss> {
    let class = sysfs.dir("class/net")?;
    let mut of = |name: &str| -> Result<(Vec<IpAddr>, Option<String>), Miss> {
        let dir = class.dir(name)?;
        let index = dir.text("ifindex", buffer).ok();
        let index = index.and_then(|index| index.parse().ok());
        let nic = Nic {
            name: name.to_owned(),
            index: index.filter(|_| dir.is_live()),
        };
        Ok((network.addresses(&nic)?, dir.link_name("master")))
    };
    match of(netdev)? {
        (none, Some(bond)) if none.is_empty() => {
            let (found, _) = of(&bond)?;
            Ok((bond, found))
        }
        (found, _) => Ok((netdev.to_owned(), found)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_interfaces_of_hardware_that_timestamps_every_packet_are_asked_to() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for (interface, driver) in [("eth0", "mlx5_core"), ("eth1", "ice")] {
            let device = temp.path().join("class/net").join(interface).join("device");
            std::fs::create_dir_all(&device).expect("a device");
            symlink(
                format!("../bus/pci/drivers/{driver}"),
                device.join("driver"),
            )
            .expect("a link");
        }
        std::fs::create_dir_all(temp.path().join("class/net/bond0")).expect("a bond");
        let sysfs = Root::new(temp.path()).open().expect("the root");
        let asked = ["eth0", "eth1", "bond0", "none"].map(|of| stamps_all(&sysfs, of));
        assert_eq!(asked, [true, false, false, false]);
    }
}

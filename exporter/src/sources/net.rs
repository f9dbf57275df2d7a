//! Network interfaces of hardware, from `/sys/class/net`.

use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;

use super::ethtool::Nic;
use super::pci::Function;
use super::sysfs::{Buffer, Dir, Miss};

/// `ARPHRD_ETHER`; IP over InfiniBand is 32 and has no Ethernet to count.
const ETHERNET: &str = "1";

/// One interface.
#[derive(Debug, Clone)]
pub struct Netdev {
    /// Name, and index where the kernel gave it.
    pub nic: Nic,
    /// Its own directory.
    pub dir: Dir,
    /// The hardware that it belongs to, where the tree shows it.
    pub hardware: Option<Dir>,
    /// The PCI function of that hardware.
    pub function: Option<Function>,
}

/// Every Ethernet interface of hardware, by name: no bond, bridge, VLAN, tunnel or other software, no IP
/// over InfiniBand, and no representor of a virtual function, which repeats its port's counters.
///
/// # Errors
/// [`Miss::Absent`] on a machine without a network.
pub fn ethernet(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Netdev>, Miss> {
    let is_ethernet = |dir: &Dir, buffer: &mut Buffer| {
        dir.text("type", buffer).is_ok_and(|kind| kind == ETHERNET)
    };
    of_hardware(sysfs, buffer, is_ethernet)
}

/// One interface of each port of each physical function that may have virtual ones, by name; IP over
/// InfiniBand among them.
///
/// # Errors
/// As [`ethernet`].
pub fn physical_functions(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Netdev>, Miss> {
    let can_be_split = |dir: &Dir, _: &mut Buffer| dir.has("device/sriov_numvfs");
    let mut found = of_hardware(sysfs, buffer, can_be_split)?;
    // An interface over another partition of a port comes after the port's own.
    let mut ports = Vec::new();
    found.retain(|netdev| {
        let function = netdev.function.as_ref().map(|function| function.address);
        let port = (function, netdev.dir.text("dev_port", buffer).ok());
        let is_new = !ports.contains(&port);
        ports.push(port);
        is_new
    });
    Ok(found)
}

/// Interfaces of hardware of which `is_wanted` holds, and that represent no other function.
fn of_hardware(
    sysfs: &Dir,
    buffer: &mut Buffer,
    is_wanted: impl Fn(&Dir, &mut Buffer) -> bool,
) -> Result<Vec<Netdev>, Miss> {
    let class = sysfs.dir("class/net")?;
    let mut found = Vec::new();
    for name in class.names()? {
        // An interface that goes away while it is read is treated as absent.
        let Ok(dir) = class.dir(&name) else {
            continue;
        };
        if !dir.has("device") || !is_wanted(&dir, buffer) {
            continue;
        }
        let port = dir.text("phys_port_name", buffer).unwrap_or_default();
        if is_representor(&port) {
            continue;
        }
        let index = dir.text("ifindex", buffer).ok();
        let index = index.and_then(|index| index.parse().ok());
        let hardware = dir.dir("device").ok();
        let function = hardware.as_ref().and_then(Function::of);
        found.push(Netdev {
            nic: Nic {
                name,
                index: index.filter(|_| dir.is_live()),
            },
            dir,
            hardware,
            function,
        });
    }
    Ok(found)
}

impl Netdev {
    /// The virtual functions of its hardware that are switched on, by number; with an address where the
    /// machine sees it.
    pub fn virtual_functions(&self) -> BTreeMap<u32, Option<PciAddress>> {
        let Some(hardware) = &self.hardware else {
            return BTreeMap::new();
        };
        let names = hardware.names().unwrap_or_default().into_iter();
        let numbered = names.filter_map(|name| {
            let number = name.strip_prefix("virtfn")?.parse().ok()?;
            let address = hardware.link_name(&name);
            Some((number, address.and_then(|address| address.parse().ok())))
        });
        numbered.collect()
    }

    /// The kernel driver of its hardware, `mlx5_core`.
    pub fn driver(&self) -> Option<String> {
        self.hardware.as_ref()?.link_name("driver")
    }

    /// The RDMA device of its hardware, `mlx5_0`; the first where there are several.
    pub fn rdma_device(&self) -> Option<String> {
        let devices = self.hardware.as_ref()?.dir("infiniband").ok()?;
        devices.names().ok()?.into_iter().next()
    }
}

/// `pf0vf3`, `c1pf0sf88`: a port of the NIC's switch that faces a virtual function. The port that faces
/// the cable is `p0`.
fn is_representor(port: &str) -> bool {
    let digits = |text: &str| {
        text.trim_start_matches(|char: char| char.is_ascii_digit())
            .len()
    };
    let port = match port.strip_prefix('c') {
        Some(rest) => &rest[rest.len() - digits(rest)..],
        None => port,
    };
    port.strip_prefix("pf")
        .is_some_and(|rest| digits(rest) < rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_representor_is_told_by_its_port() {
        for (port, expected) in [
            ("pf0vf3", true),
            ("pf1sf88", true),
            ("c1pf0vf0", true),
            ("pf0", true),
            ("p0", false),
            ("p1s2", false),
            ("", false),
            ("cpf", false),
            ("pfx", false),
            ("c\u{e9}", false),
        ] {
            assert_eq!(is_representor(port), expected, "{port:?}");
        }
    }
}

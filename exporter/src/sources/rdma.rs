//! RDMA devices and their ports, from `/sys/class/infiniband`.

use railscope_model::identity::PciAddress;

use super::pci::Function;
use super::sysfs::{Buffer, Dir, Miss};

const CLASS: &str = "class/infiniband";
const MELLANOX: &str = "0x15b3";
/// PCI class of an InfiniBand controller.
const INFINIBAND_CLASS: &str = "0x0207";
/// How the vital product data of a bridge function describes it.
const SWITCH_MANAGEMENT: &[u8] = b"SMDL=SW_MNG";

/// One RDMA device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name, `mlx5_0`.
    pub name: String,
    /// Its own directory.
    pub dir: Dir,
    /// The hardware that it belongs to; software devices (soft-RoCE) have none.
    pub hardware: Option<Dir>,
    /// The PCI function of that hardware, where the tree shows it.
    pub function: Option<Function>,
}

/// Names of the RDMA devices, sorted.
///
/// # Errors
/// As [`devices`].
pub fn names(sysfs: &Dir) -> Result<Vec<String>, Miss> {
    sysfs.dir(CLASS)?.names()
}

/// Every RDMA device, by name.
///
/// # Errors
/// [`Miss::Absent`] on a machine without RDMA.
pub fn devices(sysfs: &Dir) -> Result<Vec<Device>, Miss> {
    let class = sysfs.dir(CLASS)?;
    let devices = class.names()?.into_iter().filter_map(|name| {
        // A device that goes away while it is read is treated as absent.
        let dir = class.dir(&name).ok()?;
        let hardware = dir.dir("device").ok();
        let function = hardware.as_ref().and_then(Function::of);
        Some(Device {
            name,
            dir,
            hardware,
            function,
        })
    });
    Ok(devices.collect())
}

impl Device {
    /// Its ports, in order.
    pub fn ports(&self) -> Vec<(u8, Dir)> {
        let Ok(ports) = self.dir.dir("ports") else {
            return Vec::new();
        };
        let names = ports.names().unwrap_or_default();
        let mut found: Vec<_> = names
            .iter()
            .filter_map(|name| Some((name.parse().ok()?, ports.dir(name).ok()?)))
            .collect();
        found.sort_by_key(|(port, _)| *port);
        found
    }

    /// Whether it is a bridge to NVSwitches: a ConnectX function that belongs to NVIDIA's Fabric Manager
    /// (HGX B200, B300, GB200). Its firmware rejects reads of counters, and the driver writes each
    /// rejection into the kernel log. Its vital product data, which only root may read, reports it.
    pub fn is_switch_management(&self, buffer: &mut Buffer) -> bool {
        let Some(hardware) = &self.hardware else {
            return false;
        };
        let mut is = |file: &str, start: &str| {
            let text = hardware.text(file, buffer);
            text.is_ok_and(|text| text.starts_with(start))
        };
        // The data of other vendors' cards is not read: some respond slowly or not at all.
        if !is("vendor", MELLANOX) || !is("class", INFINIBAND_CLASS) || hardware.has("physfn") {
            return false;
        }
        let length = hardware.file("vpd").bytes_at(0, buffer).unwrap_or_default();
        let mut words = buffer[..length].windows(SWITCH_MANAGEMENT.len());
        words.any(|word| word == SWITCH_MANAGEMENT)
    }

    /// Whether it belongs to a part of a function (a subfunction on the auxiliary bus, `mlx5_core.sf.4`)
    /// and not to the function itself.
    pub fn is_subfunction(&self) -> bool {
        let Some((hardware, function)) = self.hardware.as_ref().zip(self.function.as_ref()) else {
            return false;
        };
        let own = hardware.components().last().copied().unwrap_or_default();
        own != function.address.to_string()
    }

    /// The kernel driver of its hardware, `mlx5_core`.
    pub fn driver(&self) -> Option<String> {
        self.hardware.as_ref()?.link_name("driver")
    }

    /// Where it is connected. A copied tree may have lost the links, but not what `uevent` reports.
    pub fn address(&self, buffer: &mut Buffer) -> Option<PciAddress> {
        if let Some(function) = &self.function {
            return Some(function.address);
        }
        let uevent = self.hardware.as_ref()?.text("uevent", buffer).ok()?;
        let slot = uevent
            .lines()
            .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
        slot.parse().ok()
    }

    /// The NUMA node of its hardware; none where the kernel does not report it (`-1`).
    pub fn numa_node(&self, buffer: &mut Buffer) -> Option<u32> {
        let text = self.hardware.as_ref()?.text("numa_node", buffer).ok()?;
        text.parse().ok()
    }

    /// The network interface of a port, whose directory this is: that of its address, which is entry 0 of its GIDs,
    /// else as [`Self::netdev`] reports it.
    pub fn netdev_of_port(&self, port: u8, dir: &Dir, buffer: &mut Buffer) -> Option<String> {
        let named = dir.dir("gid_attrs/ndevs");
        let named = named.and_then(|named| named.text("0", buffer)).ok();
        named.or_else(|| self.netdev(port, buffer))
    }

    /// The network interface of a port that has no address to identify it by: the one whose
    /// `dev_port` is the port's, the only one of the hardware, or a software device's parent.
    pub fn netdev(&self, port: u8, buffer: &mut Buffer) -> Option<String> {
        let Some(hardware) = &self.hardware else {
            return self.dir.text("parent", buffer).ok();
        };
        let net = hardware.dir("net").ok()?;
        let mut names = net.names().ok()?;
        if names.len() == 1 {
            return names.pop();
        }
        names.into_iter().find(|name| {
            let dev_port = net.dir(name).and_then(|dir| dir.text("dev_port", buffer));
            dev_port.is_ok_and(|text| text.parse() == Ok(port.saturating_sub(1)))
        })
    }
}

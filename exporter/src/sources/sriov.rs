//! Network and NVMe functions that take part in SR-IOV: physical ones, and virtual ones on the host or in a guest.

use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;

use super::pci::Function;
use super::sysfs::{Buffer, Dir, Miss};
use super::{nvme, rdma};

/// PCI classes: network controllers, with InfiniBand controllers (`0x0207`) among them, and NVMe.
const CLASSES: [(&str, Kind); 2] = [("0x02", Kind::Nic), ("0x0108", Kind::Nvme)];

/// Vendor and device ids that only virtual functions have, from the kernel's drivers (`mlx4_core`,
/// `mlx5_core`, `bnxt_en`, `iavf`, `mana`, `hns3`). A guest sees no link to the physical function, so this
/// is all that identifies it: that a guest runs there does not, since a physical function can be passed
/// through, nor that it has no SR-IOV capability, which a hypervisor may hide. ConnectX-6 Dx and later, on
/// either link layer, and BlueField-2 and later share 0x101e.
const VIRTUAL_IDS: &[(&str, &[&str])] = &[
    (
        "0x15b3",
        &[
            "0x1002", "0x1004", "0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c",
            "0x101e", "0xa2d3",
        ],
    ),
    (
        "0x14e4",
        &[
            "0x1606", "0x1607", "0x1608", "0x1609", "0x16bd", "0x16c1", "0x16c2", "0x16c3",
            "0x16c4", "0x16c5", "0x16cb", "0x16d3", "0x16dc", "0x16e1", "0x16e5", "0x16e6",
            "0x1806", "0x1807", "0x1808", "0x1809", "0x1819", "0x181b", "0xd800",
        ],
    ),
    ("0x8086", &["0x154c", "0x1571", "0x1889", "0x37cd"]),
    ("0x1414", &["0x00ba"]),
    ("0x19e5", &["0xa22e", "0xa22f"]),
];

/// Which end of SR-IOV a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It can have virtual functions.
    Physical {
        /// Switched on now.
        active: u32,
        /// At most.
        possible: u32,
    },
    /// It is a virtual function, of this one where the machine sees it.
    Virtual(Option<PciAddress>),
    /// It is a part of this function that has a device but no separate PCI address.
    Part(PciAddress),
}

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A network controller, InfiniBand or Ethernet.
    Nic,
    /// An NVMe controller.
    Nvme,
}

/// A function that takes part in SR-IOV, or a part of one.
#[derive(Debug, Clone)]
pub struct Participant {
    /// Its address, where it has a separate one.
    pub address: Option<PciAddress>,
    /// What it does.
    pub kind: Kind,
    /// The RDMA device or NVMe controller on it, if any; the first by name.
    pub device: Option<String>,
    /// Its role.
    pub role: Role,
}

/// Every network and NVMe function that takes part, by address, and behind them the parts of functions.
///
/// # Errors
/// The list of PCI devices cannot be read.
pub fn participants(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Participant>, Miss> {
    let mut names: BTreeMap<PciAddress, String> = BTreeMap::new();
    let mut parts = Vec::new();
    for device in rdma::devices(sysfs).unwrap_or_default() {
        let is_part = device.is_subfunction();
        let Some(function) = device.function else {
            continue;
        };
        if is_part {
            parts.push(Participant {
                address: None,
                kind: Kind::Nic,
                device: Some(device.name),
                role: Role::Part(function.address),
            });
        } else {
            names.entry(function.address).or_insert(device.name);
        }
    }
    let (controllers, _) = nvme::controllers(sysfs).unwrap_or_default();
    names.extend(
        controllers.into_iter().filter_map(|controller| {
            Some((Function::of(&controller.dir)?.address, controller.name))
        }),
    );
    let devices = sysfs.dir("bus/pci/devices")?;
    let mut found = Vec::new();
    for name in devices.names()? {
        // A function that goes away while it is read is treated as absent.
        let Ok(dir) = devices.dir(&name) else {
            continue;
        };
        let class = dir.text("class", buffer).unwrap_or_default();
        let kind = CLASSES.iter().find(|(start, _)| class.starts_with(start));
        let Some((function, (_, kind))) = Function::of(&dir).zip(kind) else {
            continue;
        };
        if let Some(role) = role(&dir, buffer) {
            found.push(Participant {
                address: Some(function.address),
                kind: *kind,
                device: names.remove(&function.address),
                role,
            });
        }
    }
    found.sort_by_key(|function| function.address);
    found.extend(parts);
    Ok(found)
}

fn role(dir: &Dir, buffer: &mut Buffer) -> Option<Role> {
    if let Some(physical) = dir.link_name("physfn") {
        return Some(Role::Virtual(physical.parse().ok()));
    }
    let vendor = dir.text("vendor", buffer).unwrap_or_default();
    let device = dir.text("device", buffer).unwrap_or_default();
    let is_virtual = VIRTUAL_IDS
        .iter()
        .any(|(of, devices)| *of == vendor && devices.contains(&device.as_str()));
    if is_virtual {
        return Some(Role::Virtual(None));
    }
    let mut count = |file| dir.text(file, buffer).ok()?.parse().ok();
    let possible = count("sriov_totalvfs").filter(|count| *count > 0)?;
    Some(Role::Physical {
        active: count("sriov_numvfs")?,
        possible,
    })
}

//! Network and NVMe functions that take part in SR-IOV: physical ones, and virtual ones on the host or in a guest.

use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;

use super::pci::Function;
use super::sysfs::{Buffer, Dir, Miss};
use super::{nvme, rdma};

/// PCI classes: network controllers, with InfiniBand controllers (`0x0207`) among them, and NVMe.
const CLASSES: [(&str, Kind); 2] = [("0x02", Kind::Nic), ("0x0108", Kind::Nvme)];

/// Vendor and device ids that only virtual functions have, from the kernel's drivers (`mlx4_core`,
/// `mlx5_core`, `bnxt_en`, `iavf`, `mana`). A guest sees no link to the physical function, so this is
/// all that tells it.
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
        &["0x16dc", "0x1806", "0x1807", "0x1808", "0x1809", "0x1819"],
    ),
    ("0x8086", &["0x1889"]),
    ("0x1414", &["0x00ba"]),
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
}

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A network controller, InfiniBand or Ethernet.
    Nic,
    /// An NVMe controller.
    Nvme,
}

/// A function that takes part in SR-IOV.
#[derive(Debug, Clone)]
pub struct Participant {
    /// Its address.
    pub address: PciAddress,
    /// What it does.
    pub kind: Kind,
    /// The RDMA device or NVMe controller on it, if any.
    pub device: Option<String>,
    /// Its role.
    pub role: Role,
}

/// Every network and NVMe function that takes part, by address.
///
/// # Errors
/// The list of PCI devices cannot be read.
pub fn participants(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Participant>, Miss> {
    let rdma = rdma::devices(sysfs).unwrap_or_default();
    let mut names: BTreeMap<PciAddress, String> = rdma
        .into_iter()
        .filter_map(|device| Some((device.function?.address, device.name)))
        .collect();
    let (controllers, _) = nvme::controllers(sysfs).unwrap_or_default();
    names.extend(
        controllers.into_iter().filter_map(|controller| {
            Some((Function::of(&controller.dir)?.address, controller.name))
        }),
    );
    let devices = sysfs.dir("bus/pci/devices")?;
    let mut found = Vec::new();
    for name in devices.names()? {
        // A function that goes away while it is looked at is just not there.
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
                address: function.address,
                kind: *kind,
                device: names.remove(&function.address),
                role,
            });
        }
    }
    found.sort_by_key(|function| function.address);
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

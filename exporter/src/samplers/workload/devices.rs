//! What a device id of a kubelet or batch system is on this node, and which GPU and NIC of a container belong together.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;

use crate::sources::nvidia_proc;
use crate::sources::pci::{self, Function};
use crate::sources::rdma;
use crate::sources::sysfs::{Buffer, Dir};

/// A device that a process holds.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) kind: Kind,
    /// Where it is connected, if known.
    place: Option<Function>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ordinal, none for a MIG instance that NVML did not list (yet); MIG instance, empty for a whole GPU.
    Gpu(Option<u16>, String),
    /// RDMA device, empty for a function that has none in this network namespace.
    Nic(String),
}

impl Device {
    pub(super) fn pci(&self) -> String {
        let place = self.place.as_ref();
        place
            .map(|place| place.address.to_string())
            .unwrap_or_default()
    }

    fn is_gpu(&self) -> bool {
        matches!(self.kind, Kind::Gpu(..))
    }

    /// Length of the path from the root that two devices share; more is nearer.
    fn closeness(&self, other: &Self) -> usize {
        let (Some(a), Some(b)) = (&self.place, &other.place) else {
            return 0;
        };
        if a.host_bridge != b.host_bridge {
            return 0;
        }
        let shared = a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| a == b);
        1 + shared.count()
    }
}

/// The devices of the node.
pub(super) struct Inventory {
    sysfs: Option<Dir>,
    gpus: Vec<Function>,
    by_uuid: BTreeMap<String, usize>,
    by_minor: BTreeMap<u32, usize>,
    /// GPU ordinals by the UUID of a MIG device.
    by_mig: BTreeMap<String, u16>,
    rdma: BTreeMap<PciAddress, String>,
}

impl Inventory {
    /// Reads the identities; what cannot be read has none.
    pub(super) fn read(
        sysfs: Option<Dir>,
        procfs: Option<&Dir>,
        by_mig: BTreeMap<String, u16>,
        buffer: &mut Buffer,
    ) -> Self {
        let gpus = sysfs
            .as_ref()
            .and_then(|sysfs| pci::gpus(sysfs, buffer).ok());
        let gpus = gpus.unwrap_or_default();
        let rdma = sysfs.as_ref().and_then(|sysfs| rdma::devices(sysfs).ok());
        let rdma = rdma.unwrap_or_default().into_iter();
        let rdma = rdma.filter_map(|device| Some((device.function?.address, device.name)));
        let (mut by_uuid, mut by_minor) = (BTreeMap::new(), BTreeMap::new());
        let driver = procfs.and_then(|procfs| nvidia_proc::gpus(procfs).ok());
        for known in driver.unwrap_or_default() {
            let ordinal = gpus.iter().position(|gpu| gpu.address == known.address);
            if let Some(ordinal) = ordinal {
                by_uuid.extend(known.uuid.map(|uuid| (uuid, ordinal)));
                by_minor.extend(known.minor.map(|minor| (minor, ordinal)));
            }
        }
        Self {
            rdma: rdma.collect(),
            sysfs,
            gpus,
            by_uuid,
            by_minor,
            by_mig,
        }
    }

    /// The GPU of this ordinal, or a MIG instance of it.
    pub(super) fn gpu(&self, ordinal: u16, mig: String) -> Option<Device> {
        let place = self.gpus.get(usize::from(ordinal))?.clone();
        Some(Device {
            kind: Kind::Gpu(Some(ordinal), mig),
            place: Some(place),
        })
    }

    /// What a device plugin's id is: a GPU or MIG UUID, a device file (`nvidia0`, GKE), a PCI address (SR-IOV)
    /// or an RDMA device. A replica of a shared GPU has `::` and its number behind the id.
    pub(super) fn identify(&self, id: &str) -> Option<Device> {
        let id = id.split_once("::").map_or(id, |(id, _)| id);
        if let Some(gpu) = self.by_mig.get(id) {
            // A GPU that only NVML shows has its ordinal all the same.
            return Some(self.gpu(*gpu, id.to_owned()).unwrap_or(Device {
                kind: Kind::Gpu(Some(*gpu), id.to_owned()),
                place: None,
            }));
        }
        if let Some(old_mig) = id.strip_prefix("MIG-GPU-") {
            let (uuid, _) = old_mig.split_once('/')?;
            return self.by_uuid(&format!("GPU-{uuid}"), id);
        }
        if id.starts_with("MIG-") {
            return Some(Device {
                kind: Kind::Gpu(None, id.to_owned()),
                place: None,
            });
        }
        if id.starts_with("GPU-") {
            return self.by_uuid(id, "");
        }
        if let Some(file) = id.strip_prefix("nvidia") {
            let (minor, instance) = file.split_once("/gi").unwrap_or((file, ""));
            let ordinal = *self.by_minor.get(&minor.parse().ok()?)?;
            let mig = instance.split('/').next().unwrap_or_default();
            return self.gpu(u16::try_from(ordinal).ok()?, mig.to_owned());
        }
        let by_name = self.rdma.iter().find(|(_, name)| *name == id);
        match by_name {
            Some((address, _)) => self.at(*address),
            None => self.at(function_address(id)?),
        }
    }

    fn by_uuid(&self, uuid: &str, mig: &str) -> Option<Device> {
        let ordinal = u16::try_from(*self.by_uuid.get(uuid)?).ok()?;
        self.gpu(ordinal, mig.to_owned())
    }

    /// The device at a PCI address, if the node has one there.
    fn at(&self, address: PciAddress) -> Option<Device> {
        let ordinal = self.gpus.iter().position(|gpu| gpu.address == address);
        if let Some(ordinal) = ordinal {
            return self.gpu(u16::try_from(ordinal).ok()?, String::new());
        }
        let dir = self
            .sysfs
            .as_ref()?
            .dir(&format!("bus/pci/devices/{address}"));
        Some(Device {
            kind: Kind::Nic(self.rdma.get(&address).cloned().unwrap_or_default()),
            place: Some(Function::of(&dir.ok()?)?),
        })
    }
}

/// A PCI address with its domain; drivers of Dynamic Resource Allocation write it with dashes
/// (`0000-3b-00-2`), as their names may hold neither colons nor points.
fn function_address(id: &str) -> Option<PciAddress> {
    let parts: Vec<&str> = id.split(['-', ':', '.']).collect();
    let [domain, bus, device, function] = parts[..] else {
        return None;
    };
    format!("{domain}:{bus}:{device}.{function}").parse().ok()
}

/// GPUs and NICs of one container as pairs, nearest first; what is left over stands alone.
pub(super) fn pair(devices: Vec<Device>) -> Vec<(Option<Device>, Option<Device>)> {
    let (gpus, nics): (Vec<_>, Vec<_>) = devices.into_iter().partition(Device::is_gpu);
    let mut candidates: Vec<(usize, usize)> = (0..gpus.len())
        .flat_map(|gpu| (0..nics.len()).map(move |nic| (gpu, nic)))
        .collect();
    candidates.sort_by_key(|(gpu, nic)| (Reverse(gpus[*gpu].closeness(&nics[*nic])), *gpu, *nic));
    let mut of_gpu = vec![None; gpus.len()];
    let mut taken = vec![false; nics.len()];
    for (gpu, nic) in candidates {
        if of_gpu[gpu].is_none() && !taken[nic] {
            of_gpu[gpu] = Some(nic);
            taken[nic] = true;
        }
    }
    let paired = of_gpu.iter().map(|nic| nic.map(|nic| nics[nic].clone()));
    let mut pairs: Vec<_> = gpus.into_iter().map(Some).zip(paired).collect();
    let alone = nics.into_iter().zip(taken).filter(|(_, taken)| !taken);
    pairs.extend(alone.map(|(nic, _)| (None, Some(nic))));
    pairs
}

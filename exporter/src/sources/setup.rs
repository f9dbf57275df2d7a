//! How a node is set up between GPU and NIC, where no counter shows it: what `railscope check` looks at.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::PciAddress;

use super::pci::{self, Function};
use super::pci_config::ConfigSpace;
use super::rdma;
use super::sysfs::{Buffer, Dir, Miss, Root};

/// The first kernel with dma-buf for RDMA devices.
const FIRST_DMA_BUF_KERNEL: (u32, u32) = (5, 12);

/// How the IOMMU treats a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iommu {
    /// No IOMMU, or the function is in none of its groups.
    Off,
    /// Addresses pass through as they are.
    Identity,
    /// Every address is translated.
    Translated,
}

/// How a NIC may reach GPU memory without the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerMemory {
    /// The module `nvidia_peermem` (or its forerunner) is loaded.
    Peermem,
    /// The driver's open kernel modules on a kernel that has dma-buf for RDMA.
    DmaBuf,
    /// Neither.
    Neither,
}

/// How the node is set up.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Whether a switch port above a GPU or NIC sends peer traffic up to the root.
    pub redirects_peers: BTreeMap<PciAddress, Result<bool, Miss>>,
    /// Largest read request of each RDMA device's function, bytes.
    pub max_read_request: BTreeMap<PciAddress, Result<u32, Miss>>,
    /// The IOMMU for each GPU and NIC.
    pub iommu: BTreeMap<PciAddress, Result<Iommu, Miss>>,
    /// None where no NVIDIA driver is loaded.
    pub peer_memory: Option<PeerMemory>,
    /// Largest frame of each network interface, bytes.
    pub mtu: BTreeMap<String, u32>,
}

impl Setup {
    /// Reads it all. What cannot be read is absent or says why.
    pub fn read(sysfs: &Root, procfs: &Root) -> Self {
        let mut setup = Self::default();
        let mut buffer = [0; 4096];
        let procfs = procfs.open().ok();
        let Ok(sysfs) = sysfs.open() else {
            return setup;
        };
        let gpus = pci::gpus(&sysfs, &mut buffer).unwrap_or_default();
        let devices = rdma::devices(&sysfs).unwrap_or_default();
        let nics: Vec<Function> = devices.into_iter().filter_map(|nic| nic.function).collect();
        for nic in &nics {
            let size = ConfigSpace::read(&nic.dir).and_then(|config| config.max_read_request());
            setup.max_read_request.insert(nic.address, size);
        }
        for end in gpus.iter().chain(&nics) {
            let iommu = iommu(&sysfs, end, &mut buffer);
            setup.iommu.insert(end.address, iommu);
        }
        for port in switch_ports(&gpus, &nics) {
            let redirects =
                ConfigSpace::read(&port.dir).and_then(|config| config.redirects_peers());
            setup.redirects_peers.insert(port.address, redirects);
        }
        setup.peer_memory = procfs.and_then(|procfs| peer_memory(&sysfs, &procfs, &mut buffer));
        setup.mtu = mtus(&sysfs, &mut buffer);
        setup
    }
}

/// Ports of PCIe switches above the GPUs and NICs that share a switch with the other kind: only there
/// can traffic between the two stay below the root.
fn switch_ports(gpus: &[Function], nics: &[Function]) -> Vec<Function> {
    // A root port is no switch: what lies below one alone has the root between itself and others.
    let shared = |ends: &[Function]| -> BTreeSet<PciAddress> {
        let switches = ends.iter().flat_map(|end| end.bridges.iter().skip(1));
        switches.copied().collect()
    };
    let shared: BTreeSet<_> = shared(gpus).intersection(&shared(nics)).copied().collect();
    let mut seen = BTreeSet::new();
    let mut ports = Vec::new();
    for end in gpus.iter().chain(nics) {
        if end.bridges.iter().any(|bridge| shared.contains(bridge)) {
            let below_root = end.hops().skip(1);
            ports.extend(below_root.filter(|port| seen.insert(port.address)));
        }
    }
    ports
}

fn iommu(sysfs: &Dir, function: &Function, buffer: &mut Buffer) -> Result<Iommu, Miss> {
    let Some(group) = function.dir.link_name("iommu_group") else {
        return Ok(Iommu::Off);
    };
    let group = sysfs.dir(&format!("kernel/iommu_groups/{group}"))?;
    match group.text("type", buffer)?.as_str() {
        "identity" => Ok(Iommu::Identity),
        "DMA" | "DMA-FQ" => Ok(Iommu::Translated),
        _ => Err(Miss::Unparsed),
    }
}

fn peer_memory(sysfs: &Dir, procfs: &Dir, buffer: &mut Buffer) -> Option<PeerMemory> {
    let driver = procfs.long_text("driver/nvidia/version").ok()?;
    let modules = ["module/nvidia_peermem", "module/nv_peer_mem"];
    if modules.iter().any(|module| sysfs.has(module)) {
        return Some(PeerMemory::Peermem);
    }
    let release = procfs
        .dir("sys/kernel")
        .ok()?
        .text("osrelease", buffer)
        .ok();
    let new_enough = release
        .and_then(|release| version(&release))
        .is_some_and(|version| version >= FIRST_DMA_BUF_KERNEL);
    if driver.contains("Open Kernel Module") && new_enough {
        return Some(PeerMemory::DmaBuf);
    }
    Some(PeerMemory::Neither)
}

/// `6.8.0-60-generic` -> 6, 8.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn mtus(sysfs: &Dir, buffer: &mut Buffer) -> BTreeMap<String, u32> {
    let Ok(net) = sysfs.dir("class/net") else {
        return BTreeMap::new();
    };
    let names = net.names().unwrap_or_default();
    let mtus = names.into_iter().filter_map(|name| {
        let mtu = net.dir(&name).ok()?.text("mtu", buffer).ok()?;
        Some((name, mtu.parse().ok()?))
    });
    mtus.collect()
}

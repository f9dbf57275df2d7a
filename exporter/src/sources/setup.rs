//! How a node is set up where no series shows it: GPUDirect and MTU, for `railscope check`.

use std::collections::BTreeMap;

use super::sysfs::{Buffer, Dir, Root};

/// The first kernel with dma-buf for RDMA devices.
const FIRST_DMA_BUF_KERNEL: (u32, u32) = (5, 12);

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
    /// None where no NVIDIA driver is loaded.
    pub peer_memory: Option<PeerMemory>,
    /// Largest frame of each network interface, bytes.
    pub mtu: BTreeMap<String, u32>,
}

impl Setup {
    /// Reads it all. What cannot be read is absent or reports why.
    pub fn read(sysfs: &Root, procfs: &Root) -> Self {
        let mut setup = Self::default();
        let mut buffer = [0; 4096];
        let procfs = procfs.open().ok();
        let Ok(sysfs) = sysfs.open() else {
            return setup;
        };
        setup.peer_memory = procfs.and_then(|procfs| peer_memory(&sysfs, &procfs, &mut buffer));
        setup.mtu = mtus(&sysfs, &mut buffer);
        setup
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

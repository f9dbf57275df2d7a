//! One node on disk: the `/sys` and `/proc` of an HGX H100 server with ConnectX-7 NICs, kept up to date.

use std::path::{Path, PathBuf};

use railscope_model::fabric::Timestamp;
use railscope_model::units::MICROS;

use crate::cluster::Node;
use crate::nvml::{self, InstallError, NodeGpus};
use crate::wiring::Nic;

mod ethernet;
mod files;
pub mod gpus;
pub mod layout;
mod pci;
mod rdma;

pub use files::TreeError;
pub(crate) use files::at;

use files::{LiveFile, Tree};
use layout::hgx_h100;

/// A node that could not be written or brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file of `/sys` or `/proc`, or the folder of everything.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The NVML library or its state.
    #[error(transparent)]
    Nvml(#[from] InstallError),
}

/// A node's trees.
#[derive(Debug)]
pub struct Machine {
    paths: NodePaths,
    ports: Vec<rdma::PortFiles>,
    netdevs: Vec<ethernet::NetdevFiles>,
    neighbors: Option<LiveFile>,
    links: Vec<pci::LinkFiles>,
    gpus: NodeGpus,
    stat: LiveFile,
    io_pressure: LiveFile,
    booted: Timestamp,
}

/// Where the parts of a node lie below its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePaths {
    /// The folder that holds all of the node.
    pub root: PathBuf,
}

impl NodePaths {
    /// What `/sys` is on the real node.
    pub fn sysfs(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// What `/proc` is on the real node.
    pub fn procfs(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// Recordings in place of what the node's network drivers and neighbours say; none on InfiniBand.
    pub fn network(&self) -> PathBuf {
        self.root.join("network")
    }

    /// The node's copy of the NVML library.
    pub fn nvml_library(&self) -> PathBuf {
        self.nvml().join(nvml::LIBRARY_FILE)
    }

    fn nvml(&self) -> PathBuf {
        self.root.join("nvml")
    }
}

impl Machine {
    /// Writes the trees of a node below a folder that does not exist yet. `nics` are its NICs by rail.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn create(
        root: &Path,
        node: &Node,
        nics: &[Nic],
        booted: Timestamp,
    ) -> Result<Self, MachineError> {
        let paths = NodePaths {
            root: root.to_owned(),
        };
        let sys = Tree::new(paths.sysfs());
        let adapters = nics.iter().filter(|nic| nic.plane == 0).count();
        let planes = nics.len() / adapters.max(1);
        let functions = hgx_h100(node.gpus.len() as u8, adapters as u8, planes as u8);
        let pci = pci::write(&sys, &functions)?;
        let network = Tree::new(paths.network());
        let (mut ports, mut netdevs) = (Vec::new(), Vec::new());
        for (index, (nic, port)) in nics.iter().zip(&node.ports).enumerate() {
            // Every NIC has a function in the layout; a NIC without one would have no folder.
            let Some(folder) = pci.folders.get(&nic.pci()) else {
                continue;
            };
            ports.push(rdma::write(&sys, folder, (nic, index), port)?);
            if let Some(netdev) = &port.netdev {
                let (trees, nic) = ((&sys, &network), (nic, index));
                netdevs.push(ethernet::write(trees, folder, nic, (port, netdev))?);
            }
        }
        let neighbors = (!netdevs.is_empty())
            .then(|| network.live("lldp.json0", &ethernet::neighbors(&node.ports)))
            .transpose()?;
        write_host(&sys)?;
        let proc = Tree::new(paths.procfs());
        let stat = write_proc(&proc, node, booted)?;
        let io_pressure = write_pressure(&proc)?;
        let ordinal = nics.first().map_or(0, |nic| nic.node);
        let mut gpus = gpus::fitted(ordinal, node.gpus.len());
        gpus::show(&mut gpus, &node.gpus);
        let nvml = paths.nvml();
        std::fs::create_dir_all(&nvml).map_err(at(&nvml))?;
        nvml::install(&nvml, &gpus)?;
        let mut machine = Self {
            paths,
            ports,
            netdevs,
            neighbors,
            links: pci.nic_links,
            gpus,
            stat,
            io_pressure,
            booted,
        };
        machine.update(node)?;
        Ok(machine)
    }

    /// Brings every file that changed up to date, in place: inodes stay.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn update(&mut self, node: &Node) -> Result<(), MachineError> {
        for (files, port) in self.ports.iter_mut().zip(&node.ports) {
            files.set(port)?;
        }
        for (files, port) in self.netdevs.iter_mut().zip(&node.ports) {
            files.set(port)?;
        }
        if let Some(file) = &mut self.neighbors {
            file.set(&ethernet::neighbors(&node.ports))?;
        }
        let links = node.nic_links.iter().zip(&node.nic_link_errors);
        for (files, (link, errors)) in self.links.iter_mut().zip(links) {
            files.set(*link, *errors)?;
        }
        self.stat.set(&stat(self.booted, stolen_ticks(node)))?;
        self.io_pressure.set(&pressure(storage_micros(node)))?;
        let before = self.gpus.clone();
        gpus::show(&mut self.gpus, &node.gpus);
        if self.gpus != before {
            nvml::update_state(&self.paths.nvml(), &self.gpus)?;
        }
        Ok(())
    }

    /// Where its files are.
    pub const fn paths(&self) -> &NodePaths {
        &self.paths
    }
}

/// CPUs of two sockets with 56 cores and two threads each.
const CPUS: usize = 224;

fn write_host(sys: &Tree) -> Result<(), TreeError> {
    let last = CPUS - 1;
    for (path, text) in [
        ("class/dmi/id/sys_vendor", "Railscope"),
        ("class/dmi/id/product_name", "Simulated HGX H100"),
        ("devices/system/node/online", "0-1"),
        ("devices/system/node/possible", "0-1"),
        ("devices/system/node/node0/cpulist", pci::CPU_LISTS[0]),
        ("devices/system/node/node1/cpulist", pci::CPU_LISTS[1]),
        ("devices/system/cpu/online", &format!("0-{last}")),
        ("devices/system/cpu/possible", &format!("0-{last}")),
    ] {
        sys.line(path, text)?;
    }
    Ok(())
}

/// A tick of `/proc/stat`: `USER_HZ` is 100 on every architecture that matters.
pub(crate) const TICK_SECONDS: f64 = 0.01;

/// Ticks that the hypervisor has taken from the processors of each NUMA node.
pub(crate) fn stolen_ticks(node: &Node) -> u64 {
    (node.stolen_seconds / TICK_SECONDS) as u64
}

/// `/proc/stat`, without its last line end. What is stolen, is stolen from the first CPU of each socket.
fn stat(booted: Timestamp, stolen: u64) -> String {
    let mut stat = format!("cpu  0 0 0 0 0 0 0 {} 0 0\n", 2 * stolen);
    for cpu in 0..CPUS {
        let stolen = if cpu == 0 || cpu == CPUS / 4 {
            stolen
        } else {
            0
        };
        stat.push_str(&format!("cpu{cpu} 0 0 0 0 0 0 0 {stolen} 0 0\n"));
    }
    stat.push_str(&format!(
        "intr 0\nctxt 0\nbtime {}\nprocesses 1\nprocs_running 1\nprocs_blocked 0",
        booted.0 / 1000
    ));
    stat
}

fn write_proc(proc: &Tree, node: &Node, booted: Timestamp) -> Result<LiveFile, TreeError> {
    let live = proc.live("stat", &stat(booted, stolen_ticks(node)))?;
    proc.line("sys/kernel/hostname", node.name.as_str())?;
    proc.line("sys/kernel/osrelease", "6.8.0-1030-nvidia")?;
    proc.line("sys/kernel/ostype", "Linux")?;
    Ok(live)
}

/// Time in which a node waited for its storage, in the microseconds of `/proc/pressure`.
pub(crate) fn storage_micros(node: &Node) -> u64 {
    (node.storage_seconds * MICROS) as u64
}

/// A file of `/proc/pressure`, without its last line end: nobody could go on while some waited.
fn pressure(micros: u64) -> String {
    let line = |kind| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={micros}");
    format!("{}\n{}", line("some"), line("full"))
}

fn write_pressure(proc: &Tree) -> Result<LiveFile, TreeError> {
    for resource in ["cpu", "memory"] {
        proc.line(&format!("pressure/{resource}"), &pressure(0))?;
    }
    proc.line(
        "pressure/irq",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    )?;
    proc.live("pressure/io", &pressure(0))
}

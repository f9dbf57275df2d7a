//! One node on disk: the `/sys` and `/proc` of a server of its shape, kept up to date.

use crate::spec::pci_layout;
use std::path::{Path, PathBuf};

use railscope_model::fabric::Timestamp;
use railscope_model::units::MICROS;

use crate::cluster::Node;
use crate::show::nvml;
use crate::show::nvml::{InstallError, NodeGpus};
use crate::spec::products::Host;
use crate::spec::shape::Shape;
use crate::wiring::Nic;

mod ethernet;
mod files;
pub mod gpus;
mod pci;
mod rdma;

pub use files::TreeError;
pub(crate) use files::at;

use files::{LiveFile, Tree};

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
    bridges: Vec<pci::config::Space>,
    gpus: NodeGpus,
    jobs: Vec<LiveFile>,
    shape: &'static Shape,
    stat: LiveFile,
    io_pressure: LiveFile,
    booted: Timestamp,
}

/// Paths of the parts of a node below its folder.
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

    /// Recordings that replace the node's network drivers and neighbors; only of
    /// RoCE.
    pub fn network(&self) -> PathBuf {
        self.root.join("network")
    }

    /// Where the prolog of a batch system reports whose work runs on each GPU: a file a GPU, a job a
    /// line.
    pub fn job_mapping(&self) -> PathBuf {
        self.root.join("jobs")
    }

    /// Where jobs write how long their steps took: where an exporter below the node's root looks.
    pub fn step_times(&self) -> PathBuf {
        self.root.join("run/railscope/steps")
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
        let shape = node.kind.shape();
        let counts = [node.gpus.len(), adapters, planes].map(|count| count as u8);
        let functions = pci_layout::functions(shape, counts[0], counts[1], counts[2]);
        let pci = pci::write(&sys, &functions, shape.host.cpu_lists)?;
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
        write_host(&sys, shape)?;
        let proc = Tree::new(paths.procfs());
        let stat = write_proc(&proc, node, booted)?;
        let io_pressure = write_pressure(&proc)?;
        let ordinal = nics.first().map_or(0, |nic| nic.node);
        let mut gpus = gpus::fitted(node, ordinal);
        gpus::show(&mut gpus, &node.gpus);
        let nvml = paths.nvml();
        std::fs::create_dir_all(&nvml).map_err(at(&nvml))?;
        nvml::install(&nvml, &gpus)?;
        let mapping = Tree::new(paths.job_mapping());
        let jobs = (0..node.gpus.len()).map(|gpu| mapping.live(&gpu.to_string(), ""));
        let jobs = jobs.collect::<Result<_, _>>()?;
        let mut machine = Self {
            paths,
            ports,
            netdevs,
            neighbors,
            links: pci.nic_links,
            bridges: pci.nic_bridges,
            gpus,
            jobs,
            shape,
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
        for (bridge, redirected) in self.bridges.iter_mut().zip(&node.nic_redirected) {
            bridge.redirect(*redirected)?;
        }
        for file in &mut self.jobs {
            file.set(node.job.as_deref().unwrap_or_default())?;
        }
        self.stat
            .set(&stat(&self.shape.host, self.booted, stolen_ticks(node)))?;
        self.io_pressure.set(&pressure(storage_micros(node)))?;
        let before = self.gpus.clone();
        gpus::show(&mut self.gpus, &node.gpus);
        if self.gpus != before {
            nvml::update_numbers(&self.paths.nvml(), &self.gpus)?;
        }
        Ok(())
    }

    /// Where its files are.
    pub const fn paths(&self) -> &NodePaths {
        &self.paths
    }
}

fn write_host(sys: &Tree, shape: &Shape) -> Result<(), TreeError> {
    let Host {
        cpus, cpu_lists, ..
    } = shape.host;
    let (nodes, cpus) = (range(cpu_lists.len()), range(cpus));
    for (path, text) in [
        ("class/dmi/id/sys_vendor", shape.vendor),
        ("class/dmi/id/product_name", shape.product),
        ("devices/system/node/online", &nodes),
        ("devices/system/node/possible", &nodes),
        ("devices/system/cpu/online", &cpus),
        ("devices/system/cpu/possible", &cpus),
    ] {
        sys.line(path, text)?;
    }
    for (node, list) in cpu_lists.iter().enumerate() {
        sys.line(&format!("devices/system/node/node{node}/cpulist"), list)?;
    }
    Ok(())
}

/// So many numbers as the kernel lists them: `0-7`.
fn range(count: usize) -> String {
    format!("0-{}", count.saturating_sub(1))
}

/// A tick of `/proc/stat`: `USER_HZ` is 100 on every architecture that matters.
pub(crate) const TICK_SECONDS: f64 = 0.01;

/// Ticks that the hypervisor has taken from the processors of each NUMA node.
pub(crate) fn stolen_ticks(node: &Node) -> u64 {
    (node.stolen_seconds / TICK_SECONDS) as u64
}

/// `/proc/stat`, without its last line end. What is stolen, is stolen from the first CPU of each NUMA node.
fn stat(host: &Host, booted: Timestamp, stolen: u64) -> String {
    let robbed: Vec<usize> = host.first_cpus().collect();
    let mut stat = format!("cpu  0 0 0 0 0 0 0 {} 0 0\n", robbed.len() as u64 * stolen);
    for cpu in 0..host.cpus {
        let stolen = if robbed.contains(&cpu) { stolen } else { 0 };
        stat.push_str(&format!("cpu{cpu} 0 0 0 0 0 0 0 {stolen} 0 0\n"));
    }
    stat.push_str(&format!(
        "intr 0\nctxt 0\nbtime {}\nprocesses 1\nprocs_running 1\nprocs_blocked 0",
        booted.0 / 1000
    ));
    stat
}

fn write_proc(proc: &Tree, node: &Node, booted: Timestamp) -> Result<LiveFile, TreeError> {
    let host = &node.kind.shape().host;
    let live = proc.live("stat", &stat(host, booted, stolen_ticks(node)))?;
    proc.line("sys/kernel/hostname", node.name.as_str())?;
    proc.line("sys/kernel/osrelease", host.kernel)?;
    proc.line("sys/kernel/arch", host.architecture)?;
    proc.line("sys/kernel/ostype", "Linux")?;
    Ok(live)
}

/// Time in which a node waited for its storage, in the microseconds of `/proc/pressure`.
pub(crate) fn storage_micros(node: &Node) -> u64 {
    (node.storage_seconds * MICROS) as u64
}

/// A file of `/proc/pressure`, without its last line end: no task was fully stalled while some
/// waited.
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

//! The path to storage: NVMe paths with the NIC they leave by, GPUDirect Storage, GPU memory for
//! NICs.

mod gds;

use std::time::Duration;

use railscope_model::metric::{
    GPUDIRECT_DMA_BUF, GPUDIRECT_MODULE, NVME_PATH, NVME_PATH_UP, NVME_SUBSYSTEM,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::{Misses, Schedule};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::addresses::Addresses;
use crate::sources::nvme::{self, Controller, FabricsAddress};
use crate::sources::pci::Function;
use crate::sources::sysfs::{Buffer, Dir, File, Miss, Root};

/// Source label.
const NAME: &str = "storage";
/// Kernel modules of GPUDirect: GPU memory for NICs (two generations) and for storage.
const MODULES: [&str; 3] = ["nvidia_peermem", "nv_peer_mem", "nvidia_fs"];
/// Linux since which a NIC driver can import a dma-buf (`ibv_reg_dmabuf_mr`); NVIDIA's open kernel
/// modules export GPU memory as one, the closed ones do not.
const DMA_BUF_SINCE: (u32, u32) = (5, 12);

struct Storage {
    sysfs: Root,
    procfs: Root,
    schedule: Schedule,
    subsystems: Vec<Labels>,
    paths: Vec<NvmePath>,
    /// What the last discovery could not read, by device.
    flaws: Vec<(String, Miss)>,
    misses: Misses,
}

/// One controller being watched.
struct NvmePath {
    name: String,
    about: Labels,
    state: File,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Storage {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        schedule: Schedule::default(),
        subsystems: Vec::new(),
        paths: Vec::new(),
        flaws: Vec::new(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Storage {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A lost path is retried for minutes (`ctrl_loss_tmo`), so none is overlooked.
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let begun = reading.samples().len();
        let (sysfs, procfs) = (self.sysfs.open(), self.procfs.open());
        if let Some(sysfs) = self.misses.keep(sysfs) {
            if self.schedule.is_due() {
                self.discover(&sysfs, procfs.as_ref().ok(), &mut buffer);
            }
            self.sample_paths(reading, &mut buffer);
            modules(&sysfs, reading);
        }
        if let Some(procfs) = self.misses.keep(procfs) {
            let stats = procfs.long_text("driver/nvidia-fs/stats");
            if let Some(stats) = self.misses.keep(stats) {
                gds::read(&stats, reading, &mut self.misses);
            }
            let possible = dma_buf_possible(&procfs);
            if let Some(possible) = self.misses.keep(possible) {
                reading.push(&GPUDIRECT_DMA_BUF, &Labels::default(), possible);
            }
            self.misses.end_device(reading, "gpudirect");
        }
        if reading.samples().len() == begun {
            self.misses.forget();
            return Ok(Presence::Absent(Status::Absent));
        }
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Storage {
    fn discover(&mut self, sysfs: &Dir, procfs: Option<&Dir>, buffer: &mut Buffer) {
        let (found, subsystems) = nvme::controllers(sysfs).unwrap_or_default();
        // Only a machine with paths over fabrics has its routes read.
        let mut addresses = None;
        self.paths.clear();
        self.flaws.clear();
        for controller in found {
            let mut text = |name| controller.dir.text(name, buffer).unwrap_or_default();
            let (transport, address) = (text("transport"), text("address"));
            let route = if transport == "pcie" {
                Route::local(&controller, buffer)
            } else {
                let addresses = addresses.get_or_insert_with(|| {
                    let read = procfs.map_or(Err(Miss::Absent), Addresses::read);
                    keep(&mut self.flaws, "routes", read)
                });
                // A loop to this very node has none.
                let parsed = match address.as_str() {
                    "" => Ok(FabricsAddress::default()),
                    address => FabricsAddress::parse(address).ok_or(Miss::Unparsed),
                };
                let address = keep(&mut self.flaws, &controller.name, parsed);
                Route::over_fabrics(address, addresses, sysfs, buffer)
            };
            self.paths.push(NvmePath {
                about: route.labels(&controller, &transport),
                state: controller.dir.file("state"),
                name: controller.name,
            });
        }
        self.subsystems.clear();
        for (name, dir) in subsystems {
            let mut text = |file| dir.text(file, buffer).unwrap_or_default();
            let about = [text("subsysnqn"), text("model"), text("iopolicy")];
            self.subsystems
                .push(Labels::new([name].into_iter().chain(about)));
        }
    }

    fn sample_paths(&mut self, reading: &mut NodeReading, buffer: &mut Buffer) {
        for about in &self.subsystems {
            reading.push(&NVME_SUBSYSTEM, about, true);
        }
        for (device, miss) in &self.flaws {
            self.misses.note(*miss);
            self.misses.end_device(reading, device);
        }
        for path in &mut self.paths {
            match path.state.read(buffer, |state| Some(state == "live")) {
                Err(Miss::Absent) => {
                    self.schedule.hurry();
                    continue;
                }
                Ok(live) => reading.push(&NVME_PATH_UP, &Labels::new([&path.name]), live),
                Err(miss) => self.misses.note(miss),
            }
            reading.push(&NVME_PATH, &path.about, true);
            self.misses.end_device(reading, &path.name);
        }
    }
}

/// The value, or an empty one and a flaw of the device.
fn keep<T: Default>(flaws: &mut Vec<(String, Miss)>, device: &str, read: Result<T, Miss>) -> T {
    read.unwrap_or_else(|miss| {
        flaws.push((device.to_owned(), miss));
        T::default()
    })
}

/// By what a path leaves the node; empty where no source reports.
#[derive(Default)]
struct Route {
    address: FabricsAddress,
    netdev: String,
    device: String,
    pci: String,
    numa_node: String,
    found_by: &'static str,
}

impl Route {
    /// A drive in this node.
    fn local(controller: &Controller, buffer: &mut Buffer) -> Self {
        let function = Function::of(&controller.dir);
        let numa_node = function.as_ref().and_then(|it| it.numa_node(buffer));
        Self {
            pci: function.map_or_else(String::new, |it| it.address.to_string()),
            numa_node: numa_node.map_or_else(String::new, |node| node.to_string()),
            ..Self::default()
        }
    }

    /// A path over a network: by its interface if it was set up with one, else by its local address,
    /// else by the route that the kernel uses to the target.
    fn over_fabrics(
        address: FabricsAddress,
        addresses: &Addresses,
        sysfs: &Dir,
        buffer: &mut Buffer,
    ) -> Self {
        let local = || addresses.of_local(FabricsAddress::ip(&address.host_traddr)?);
        let towards = || addresses.towards(FabricsAddress::ip(&address.traddr)?);
        let (netdev, found_by) = if !address.host_iface.is_empty() {
            (Some(address.host_iface.as_str()), "host_iface")
        } else if !address.host_traddr.is_empty() {
            (local(), "host_traddr")
        } else {
            (towards(), "route")
        };
        let Some(netdev) = netdev.map(str::to_owned) else {
            return Self {
                address,
                ..Self::default()
            };
        };
        // A bond or VLAN has no parent device; the RDMA device under it does.
        let device = nvme::rdma_device(sysfs, &netdev, buffer);
        let hardware = sysfs.dir("class/net").and_then(|net| net.dir(&netdev));
        let hardware = hardware.and_then(|dir| dir.dir("device")).ok();
        let function = hardware.as_ref().and_then(Function::of);
        let function = function.or_else(|| device.as_ref()?.function.clone());
        let numa_node = function.as_ref().and_then(|it| it.numa_node(buffer));
        Self {
            device: device.map_or_else(String::new, |device| device.name),
            pci: function.map_or_else(String::new, |it| it.address.to_string()),
            numa_node: numa_node.map_or_else(String::new, |node| node.to_string()),
            address,
            netdev,
            found_by,
        }
    }

    fn labels(&self, controller: &Controller, transport: &str) -> Labels {
        Labels::new([
            controller.name.as_str(),
            controller.subsystem.as_deref().unwrap_or_default(),
            transport,
            &self.address.traddr,
            &self.address.host_traddr,
            &self.netdev,
            &self.device,
            &self.pci,
            &self.numa_node,
            self.found_by,
        ])
    }
}

/// Which modules of GPUDirect are loaded; reports nothing where there is no NVIDIA driver to go with
/// them.
fn modules(sysfs: &Dir, reading: &mut NodeReading) {
    let Ok(modules) = sysfs.dir("module") else {
        return;
    };
    if modules.has("nvidia") {
        for module in MODULES {
            let loaded = modules.has(module);
            reading.push(&GPUDIRECT_MODULE, &Labels::new([module]), loaded);
        }
    }
}

/// Whether kernel and driver can share GPU memory as a dma-buf.
///
/// # Errors
/// [`Miss::Absent`] without an NVIDIA driver.
fn dma_buf_possible(procfs: &Dir) -> Result<bool, Miss> {
    let driver = procfs.long_text("driver/nvidia/version")?;
    let kernel = procfs.long_text("sys/kernel/osrelease")?;
    let kernel = kernel_version(&kernel).ok_or(Miss::Unparsed)?;
    Ok(kernel >= DMA_BUF_SINCE && driver.contains("Open Kernel Module"))
}

/// Major and minor of `6.8.0-60-generic`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let end = rest.find(|char: char| !char.is_ascii_digit());
    let minor = &rest[..end.unwrap_or(rest.len())];
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_begin_with_two_numbers() {
        for (release, expected) in [
            ("6.8.0-60-generic\n", Some((6, 8))),
            ("5.12-rc3", Some((5, 12))),
            ("5.4.0", Some((5, 4))),
            ("6", None),
            ("next.1", None),
            ("", None),
        ] {
            assert_eq!(kernel_version(release), expected, "{release:?}");
        }
    }
}

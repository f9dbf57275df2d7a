//! InfiniBand and RoCE ports: state, rate and counters from `/sys/class/infiniband` and netlink.

mod counters;
mod port;
mod switchdev;
mod tables;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use railscope_model::metric::{
    Profile, RDMA_DEVICE, RDMA_NOT_READ, RDMA_SWITCHDEV_PORT, SOURCE_EPOCH, SOURCE_RESETS,
    SOURCE_WRAPS,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use self::counters::{Falls, Group, Groups};
use self::port::{DeviceText, Port, optional};
use super::discovery::{Fleet, Known, Misses};
use super::host::boot_time;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::rdma::{self, Device};
use crate::sources::rdma_netlink::Nldev;
use crate::sources::sysfs::{Buffer, Dir, Miss, Root, Texts};

/// Source label.
const NAME: &str = "rdma";
/// Source label of the part that uses netlink.
const NETLINK: &str = "rdma_netlink";

struct Rdma {
    root: Root,
    procfs: Root,
    devices: Fleet<Watched>,
    misses: Misses,
    changes: Changes,
    netlink: Netlink,
}

/// Whether counters come by netlink.
enum Netlink {
    /// Opened at the first discovery of devices. Opening it earlier could load a module.
    Untried,
    Open(Nldev),
    /// Not to be had, for this reason.
    Closed(Miss),
    /// Of no concern: the tree is not the running kernel's.
    Elsewhere,
}

/// What one sweep over all devices reads with, and writes into.
struct Sweep<'a> {
    reading: &'a mut NodeReading,
    misses: &'a mut Misses,
    buffer: &'a mut Buffer,
    nldev: Option<&'a mut Nldev>,
    changes: &'a mut Changes,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Rdma::new(machine))
}

impl Sampler for Rdma {
    fn name(&self) -> &'static str {
        NAME
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let names = self.root.open().and_then(|sysfs| rdma::names(&sysfs));
        self.devices.call(names.unwrap_or_default());
        if let Some(miss) = self.look(&mut buffer) {
            return Ok(Presence::Absent(miss.into()));
        }
        let mut sweep = Sweep {
            reading,
            misses: &mut self.misses,
            buffer: &mut buffer,
            nldev: match &mut self.netlink {
                Netlink::Open(nldev) => Some(nldev),
                _ => None,
            },
            changes: &mut self.changes,
        };
        self.devices.sample(|device| device.sample(&mut sweep));
        match self.netlink {
            Netlink::Open(_) => reading.push_status(NETLINK, "", Status::Ok),
            Netlink::Closed(miss) => reading.push_status(NETLINK, "", miss.into()),
            Netlink::Untried | Netlink::Elsewhere => {}
        }
        self.changes.push(reading);
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Rdma {
    fn new(machine: &Machine) -> Self {
        Self {
            root: Root::new(&machine.sysfs),
            procfs: Root::new(&machine.procfs),
            devices: Fleet::default(),
            misses: Misses::new(NAME),
            changes: Changes::default(),
            netlink: Netlink::Untried,
        }
    }

    /// Searches for devices if it is due, and reads the description of all of them again. Counters are
    /// listed here without reading them: a blocked one must not hide the others' discovery.
    fn look(&mut self, buffer: &mut Buffer) -> Option<Miss> {
        let Self {
            root,
            procfs,
            changes,
            netlink,
            ..
        } = self;
        self.devices.look(|known| {
            let sysfs = root.open()?;
            let found = rdma::devices(&sysfs)?;
            if found.is_empty() {
                return Err(Miss::Absent);
            }
            let (mut nldev, numbered) = netlink.devices(&sysfs);
            let watched = found.into_iter().map(|device| {
                let mut watched = adopt(device, known, changes, buffer);
                watched.describe(nldev.as_deref_mut(), &numbered, buffer);
                watched
            });
            let watched = watched.collect();
            changes.begin(procfs);
            Ok(watched)
        })
    }
}

/// The device as it was known, or as a new one whose counters begin now.
fn adopt(
    device: Device,
    known: &mut Known<Watched>,
    changes: &mut Changes,
    buffer: &mut Buffer,
) -> Watched {
    let id = Identity::of(&device);
    known.take(|old| old.id == id).unwrap_or_else(|| {
        changes.device_came();
        Watched::new(device, id, buffer)
    })
}

impl Netlink {
    /// The netlink socket, and every device that it lists.
    fn devices(&mut self, sysfs: &Dir) -> (Option<&mut Nldev>, Vec<(u32, String)>) {
        if matches!(self, Self::Untried) {
            *self = match sysfs.is_live().then(Nldev::open) {
                Some(Ok(nldev)) => Self::Open(nldev),
                Some(Err(miss)) => Self::Closed(miss),
                None => Self::Elsewhere,
            };
        }
        let listed = match self {
            Self::Open(nldev) => nldev.devices(),
            _ => Ok(Vec::new()),
        };
        if let Err(miss) = listed {
            *self = Self::Closed(miss);
        }
        match self {
            Self::Open(nldev) => (Some(nldev), listed.unwrap_or_default()),
            _ => (None, Vec::new()),
        }
    }
}

/// What distinguishes a device from another one that later takes its name. A driver adds files while
/// it starts up, so a device found in the middle of that is a new one once it has them all.
#[derive(PartialEq, Eq)]
struct Identity {
    name: String,
    directory: Option<(u64, u64)>,
    files: Vec<(u8, Vec<String>)>,
}

impl Identity {
    fn of(device: &Device) -> Self {
        let files = |(number, port): (u8, Dir)| {
            let mut names = port.names().unwrap_or_default();
            for counters in ["counters", "hw_counters"] {
                let inner = port.dir(counters).and_then(|dir| dir.names());
                names.extend(inner.unwrap_or_default());
            }
            (number, names)
        };
        Self {
            name: device.name.clone(),
            directory: device.dir.id(),
            files: device.ports().into_iter().map(files).collect(),
        }
    }
}

/// One device being watched.
struct Watched {
    device: Device,
    id: Identity,
    texts: Texts,
    about: Option<Labels>,
    /// It reports which board or type it is.
    is_product: bool,
    switchdev_ports: Vec<Labels>,
    ports: Vec<Port>,
    counters: Group,
    /// It belongs to the Fabric Manager: nothing of it is read but its name.
    is_bridge: bool,
}

impl Watched {
    fn new(device: Device, id: Identity, buffer: &mut Buffer) -> Self {
        let is_bridge = device.is_switch_management(buffer);
        let driver = device.driver();
        let ports = if is_bridge {
            Vec::new()
        } else {
            device.ports()
        };
        Self {
            id,
            texts: Texts::new(device.dir.clone()),
            about: None,
            is_product: false,
            switchdev_ports: Vec::new(),
            ports: ports
                .into_iter()
                .map(|(port, dir)| Port::new(&device.name, port, dir, driver.as_deref()))
                .collect(),
            counters: Groups::of_device(&device.dir, &device.name, driver.as_deref()),
            is_bridge,
            device,
        }
    }

    /// Reads what changes seldom: names, addresses, firmware.
    fn describe(
        &mut self,
        nldev: Option<&mut Nldev>,
        known: &[(u32, String)],
        buffer: &mut Buffer,
    ) {
        if self.is_bridge {
            return;
        }
        let mut text = |name| self.texts.get(name, buffer).unwrap_or_default();
        let (board, firmware) = (text("board_id"), text("fw_ver"));
        let hca_type = text("hca_type");
        let node_guid = port::guid(&text("node_guid"));
        self.is_product = !(board.is_empty() && hca_type.is_empty());
        let named = [&board, &firmware, &hca_type];
        self.about = named
            .iter()
            .any(|word| !word.is_empty())
            .then(|| Labels::new([&self.device.name, &board, &firmware, &hca_type]));
        let device = DeviceText {
            pci: optional(self.device.address(buffer)),
            node_guid,
            driver: self.device.driver().unwrap_or_default(),
            numa_node: optional(self.device.numa_node(buffer)),
        };
        self.switchdev_ports = switchdev::ports(&self.device, buffer);
        let index = known.iter().find(|(_, name)| *name == self.device.name);
        let mut nldev = nldev.zip(index);
        for port in &mut self.ports {
            port.describe(&self.device, &device, buffer);
            let nldev = nldev.as_mut();
            port.describe_counters(nldev.map(|(nldev, (index, _))| (&mut **nldev, *index)));
        }
    }

    /// Reads every value once; false if the device is gone, and then its values are discarded.
    fn sample(&mut self, sweep: &mut Sweep<'_>) -> bool {
        for port in &mut self.ports {
            if !port.sample(sweep) {
                sweep.misses.forget();
                return false;
            }
        }
        let mut falls = Falls::default();
        if !self.is_bridge {
            let into = (&mut *sweep.reading, &mut *sweep.misses, &mut *sweep.buffer);
            self.counters.read(true, into, &mut falls, |_, _| ());
        }
        sweep.changes.take(falls);
        if let Some(about) = &self.about {
            // Firmware alone is of no use to most, and EFA's is no number.
            let profile = Profile::default_if(self.is_product);
            sweep.reading.push_in(profile, &RDMA_DEVICE, about, true);
        }
        for labels in &self.switchdev_ports {
            sweep.reading.push(&RDMA_SWITCHDEV_PORT, labels, true);
        }
        let refused = !self.ports.is_empty() && self.ports.iter().all(Port::is_refused);
        if self.is_bridge || refused {
            let reason = if self.is_bridge {
                "switch_management"
            } else {
                "refused"
            };
            let pci = optional(self.device.address(sweep.buffer));
            let labels = Labels::new([self.device.name.as_str(), &pci, reason]);
            sweep.reading.push(&RDMA_NOT_READ, &labels, true);
            sweep.misses.note(Miss::Unsupported);
        }
        sweep.misses.end_device(sweep.reading, &self.device.name);
        true
    }
}

/// When the counters began and how often they began again.
#[derive(Default)]
struct Changes {
    resets: u64,
    wraps: u64,
    /// Unix time in seconds. Nothing in sysfs reports when a driver was loaded: times of its
    /// directories are those of their first look-up. So this is the boot of the kernel until a restart
    /// is seen.
    epoch: Option<u64>,
    /// Devices have been searched for once: later ones are new.
    is_watching: bool,
}

impl Changes {
    /// Records the counters that decreased on one port in one sweep: a reset clears all of its
    /// counters at once.
    fn take(&mut self, falls: Falls) {
        if falls.resets > 0 {
            self.resets += 1;
            self.begin_anew();
        } else {
            self.wraps += falls.wraps;
        }
    }

    /// Uses the boot of the kernel as the start of the devices that the first search found.
    fn begin(&mut self, procfs: &Root) {
        if !self.is_watching {
            self.is_watching = true;
            let stat = procfs.open().and_then(|dir| dir.long_text("stat"));
            self.epoch = stat.ok().and_then(|stat| boot_time(&stat));
        }
    }

    fn device_came(&mut self) {
        if self.is_watching {
            self.begin_anew();
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the exporter is the edge at which the time of an event is taken"
    )]
    fn begin_anew(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.epoch = now.ok().map(|now| now.as_secs());
    }

    fn push(&self, reading: &mut NodeReading) {
        let labels = Labels::new([NAME]);
        reading.push(&SOURCE_RESETS, &labels, self.resets);
        reading.push(&SOURCE_WRAPS, &labels, self.wraps);
        if let Some(epoch) = self.epoch {
            reading.push(&SOURCE_EPOCH, &labels, epoch);
        }
    }
}

#[cfg(test)]
mod tests;

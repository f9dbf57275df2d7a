//! InfiniBand and RoCE ports: state, rate and counters from `/sys/class/infiniband`.

mod tables;

use std::time::Duration;

use railscope_model::identity::Guid;
use railscope_model::metric::{
    Metric, RDMA_COUNTER_SATURATED, RDMA_DEVICE, RDMA_PORT, RDMA_PORT_ADDRESS,
    RDMA_PORT_PHYSICAL_STATE, RDMA_PORT_SPEED, RDMA_PORT_STATE, RDMA_PORT_UP, RDMA_PORT_WIDTH,
};
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::{MILLI, PortRate};

use self::tables::{COUNTERS, DRIVERS, LIFESPAN, Row, Shown, Unit};
use super::discovery::{Misses, Schedule};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::rdma::{self, Device};
use crate::sources::sysfs::{Buffer, Dir, File, Miss, Root, Texts};

/// Source label.
const NAME: &str = "rdma";
/// Logical state in which a port carries traffic.
const ACTIVE: u64 = 4;

struct Rdma {
    root: Root,
    schedule: Schedule,
    devices: Vec<Watched>,
    absent: Option<Miss>,
    misses: Misses,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Rdma {
        root: Root::new(&machine.sysfs),
        schedule: Schedule::default(),
        devices: Vec::new(),
        absent: None,
        misses: Misses::new(NAME),
    })
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
        if self.schedule.is_due() {
            self.discover(&mut buffer);
        }
        if let Some(miss) = self.absent {
            return Ok(Presence::Absent(miss.into()));
        }
        let misses = &mut self.misses;
        let before = self.devices.len();
        self.devices
            .retain_mut(|device| device.sample(reading, misses, &mut buffer));
        if self.devices.len() < before {
            self.schedule.hurry();
        }
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Rdma {
    /// Takes up new devices, drops those that are gone and asks all of them anew what they are.
    /// Counters are listed here, not read: one that hangs must not hide the others' discovery.
    fn discover(&mut self, buffer: &mut Buffer) {
        let found = self.root.open().and_then(|sysfs| rdma::devices(&sysfs));
        let found = match found {
            Ok(found) if !found.is_empty() => found,
            other => {
                self.absent = Some(other.err().unwrap_or(Miss::Absent));
                self.devices.clear();
                return;
            }
        };
        self.absent = None;
        let mut known = std::mem::take(&mut self.devices);
        for device in found {
            let id = Identity::of(&device);
            let place = known.iter().position(|old| old.id == id);
            let mut watched = match place {
                // Kept with its open files, and with what its driver asked not to be asked again.
                Some(place) => known.swap_remove(place),
                None => Watched::new(device, id),
            };
            watched.describe(buffer);
            self.devices.push(watched);
        }
    }
}

/// What tells a device from another one that later takes its name. A driver adds files while it starts
/// up, so a device found in the middle of that is a new one once it has them all.
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
    ports: Vec<Port>,
}

impl Watched {
    fn new(device: Device, id: Identity) -> Self {
        let driver = device.driver();
        let ports = device.ports().into_iter();
        Self {
            id,
            texts: Texts::new(device.dir.clone()),
            about: None,
            ports: ports
                .map(|(port, dir)| Port::new(&device.name, port, dir, driver.as_deref()))
                .collect(),
            device,
        }
    }

    /// Reads what changes seldom: names, addresses, firmware.
    fn describe(&mut self, buffer: &mut Buffer) {
        let mut text = |name| self.texts.get(name, buffer).unwrap_or_default();
        let (board, firmware) = (text("board_id"), text("fw_ver"));
        let hca_type = text("hca_type");
        let node_guid = guid(&text("node_guid"));
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
        for port in &mut self.ports {
            port.describe(&self.device, &device, buffer);
        }
    }

    /// Reads every value once; false if the device is gone, and then its values are none of ours.
    fn sample(
        &mut self,
        reading: &mut NodeReading,
        misses: &mut Misses,
        buffer: &mut Buffer,
    ) -> bool {
        for port in &mut self.ports {
            if !port.sample(reading, misses, buffer) {
                misses.forget();
                return false;
            }
        }
        if let Some(about) = &self.about {
            reading.push(&RDMA_DEVICE, about, true);
        }
        misses.end_device(reading, &self.device.name);
        true
    }
}

/// What a device's ports have in common, as label values.
struct DeviceText {
    pci: String,
    node_guid: String,
    driver: String,
    numa_node: String,
}

/// One port being watched.
struct Port {
    number: u8,
    labels: Labels,
    texts: Texts,
    /// `gids` and `gid_attrs/ndevs`: entry 0 is the port's own address.
    gids: Option<Texts>,
    netdevs: Option<Texts>,
    about: Option<Labels>,
    address: Option<Labels>,
    ethernet: bool,
    /// The driver answers ACTIVE whatever the link does.
    pretends: bool,
    state: Option<File>,
    physical_state: Option<File>,
    rate: Option<File>,
    counters: Vec<Counter>,
}

impl Port {
    fn new(device: &str, number: u8, dir: Dir, driver: Option<&str>) -> Self {
        let labels = Labels::new([device, &number.to_string()]);
        let file = |name: &str| dir.has(name).then(|| dir.file(name));
        let texts = |path: &str| dir.dir(path).ok().map(Texts::new);
        Self {
            number,
            gids: texts("gids"),
            netdevs: texts("gid_attrs/ndevs"),
            about: None,
            address: None,
            ethernet: false,
            pretends: driver == Some("efa"),
            state: file("state"),
            physical_state: file("phys_state"),
            rate: file("rate"),
            counters: counters(&dir, &labels, device, driver),
            labels,
            texts: Texts::new(dir),
        }
    }

    fn describe(&mut self, device: &Device, common: &DeviceText, buffer: &mut Buffer) {
        let link_layer = self.texts.get("link_layer", buffer).unwrap_or_default();
        self.ethernet = link_layer != "InfiniBand";
        let first =
            |texts: &mut Option<Texts>, buffer: &mut Buffer| texts.as_mut()?.get("0", buffer).ok();
        let port_guid = first(&mut self.gids, buffer)
            .as_deref()
            .and_then(gid_guid)
            .unwrap_or_default();
        let netdev = first(&mut self.netdevs, buffer)
            .or_else(|| device.netdev(self.number, buffer))
            .unwrap_or_default();
        self.about = Some(Labels::new([
            device.name.as_str(),
            &self.number.to_string(),
            &common.pci,
            &netdev,
            &common.node_guid,
            &port_guid,
            &link_layer,
            &common.driver,
            &common.numa_node,
        ]));
        let mut lid = |name| lid(&self.texts.get(name, buffer).ok()?);
        self.address = match (self.ethernet, lid("lid"), lid("sm_lid")) {
            (true, _, _) | (_, None, None) => None,
            (false, lid, sm_lid) => Some(self.labels.with(optional(lid)).with(optional(sm_lid))),
        };
    }

    /// Reads every value once; false if the port is gone.
    fn sample(
        &mut self,
        reading: &mut NodeReading,
        misses: &mut Misses,
        buffer: &mut Buffer,
    ) -> bool {
        if let Some(file) = &mut self.state {
            match file.read(buffer, enumerator) {
                Err(Miss::Absent) => return false,
                // Absent beats wrong.
                Ok(_) if self.pretends => misses.note(Miss::Unsupported),
                Ok(state) => {
                    reading.push(&RDMA_PORT_UP, &self.labels, state == ACTIVE);
                    reading.push(&RDMA_PORT_STATE, &self.labels, state);
                }
                Err(miss) => misses.note(miss),
            }
        }
        if let Some(file) = self.physical_state.as_mut().filter(|_| !self.pretends)
            && let Some(state) = misses.keep(file.read(buffer, enumerator))
        {
            reading.push(&RDMA_PORT_PHYSICAL_STATE, &self.labels, state);
        }
        if let Some(file) = &mut self.rate
            && let Some(rate) = misses.keep(file.read(buffer, |text| text.parse::<PortRate>().ok()))
        {
            reading.push(&RDMA_PORT_SPEED, &self.labels, rate.bytes_per_second);
            if let Some(lanes) = rate.lanes {
                reading.push(&RDMA_PORT_WIDTH, &self.labels, u64::from(lanes));
            }
        }
        for counter in &mut self.counters {
            if let Some(count) = misses.keep(counter.file.count(buffer)) {
                counter.push(reading, count, self.ethernet);
            }
        }
        for (metric, labels) in [
            (&RDMA_PORT, &self.about),
            (&RDMA_PORT_ADDRESS, &self.address),
        ] {
            if let Some(labels) = labels {
                reading.push(metric, labels, true);
            }
        }
        true
    }
}

/// One counter file of one port.
struct Counter {
    row: &'static Row,
    file: File,
    labels: Labels,
    /// Labels of the series that says that it has stopped.
    stopped: Option<Labels>,
}

impl Counter {
    fn push(&self, reading: &mut NodeReading, count: u64, ethernet: bool) {
        let value = match self.row.unit {
            Unit::Times(times) => count
                .checked_mul(times)
                .map_or(Value::Float(count as f64 * times as f64), Value::Int),
            Unit::Milli => Value::Float(count as f64 * MILLI),
        };
        let full = match self.row.shown {
            Shown::Always => false,
            Shown::OnEthernet => !ethernet,
            Shown::InFull => true,
        };
        push(reading, full, self.row.metric, &self.labels, value);
        if let (Some(labels), Some(bits)) = (&self.stopped, self.row.stops_at_bits)
            && count == (1 << bits) - 1
        {
            reading.push(&RDMA_COUNTER_SATURATED, labels, true);
        }
    }
}

fn push(
    reading: &mut NodeReading,
    full: bool,
    metric: &'static Metric,
    labels: &Labels,
    value: Value,
) {
    if full {
        reading.push_full(metric, labels, value);
    } else {
        reading.push(metric, labels, value);
    }
}

/// The counter files that a port has and the tables know. Nothing is read.
fn counters(port: &Dir, labels: &Labels, device: &str, driver: Option<&str>) -> Vec<Counter> {
    let mut found: Vec<Counter> = Vec::new();
    let mut take = |dir: &Dir, row: &'static Row| {
        let labels_of = |words: &[&str]| {
            let all = labels.values().chain(words.iter().copied());
            Labels::new(all)
        };
        let series = labels_of(row.labels);
        // Two files may count the same thing (a PMA and a driver's byte counter): the first one stands.
        let known = |other: &Counter| other.row.metric == row.metric && other.labels == series;
        if !found.iter().any(known) {
            found.push(Counter {
                row,
                file: dir.file(row.file),
                labels: series,
                stopped: row.stops_at_bits.map(|_| labels_of(&[row.file])),
            });
        }
    };
    for (subdirectory, is_known) in [("counters", false), ("hw_counters", true)] {
        // Soft-RoCE, bnxt_re and EFA have no `counters`: that is no fault.
        let Ok(dir) = port.dir(subdirectory) else {
            continue;
        };
        for name in dir.names().unwrap_or_default() {
            let row = if is_known {
                hardware_row(&name, driver)
            } else {
                COUNTERS.iter().find(|row| row.file == name)
            };
            match row {
                Some(row) => take(&dir, row),
                None => tracing::debug!(device, file = name, "not in the table: not exported"),
            }
        }
    }
    found
}

/// The row of a file in `hw_counters`.
fn hardware_row(file: &str, driver: Option<&str>) -> Option<&'static Row> {
    if file == LIFESPAN.file {
        return Some(&LIFESPAN);
    }
    let known = |name: &str| DRIVERS.iter().any(|driver| driver.names.contains(&name));
    let driver = driver.filter(|name| known(name));
    DRIVERS
        .iter()
        .filter(|family| driver.is_none_or(|name| family.names.contains(&name)))
        .flat_map(|family| family.rows)
        .find(|row| row.file == file)
}

fn optional(value: Option<impl std::fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// `4: ACTIVE` is 4.
fn enumerator(text: &str) -> Option<u64> {
    text.split(':').next()?.trim().parse().ok()
}

/// A GUID in our spelling; empty where it is not one, or all zeros as of an unset one.
fn guid(text: &str) -> String {
    optional(text.parse().ok().filter(|guid: &Guid| *guid != Guid(0)))
}

/// The port GUID is the lower half of the port's first address, `fe80:0000:0000:0000:1c34:da03:0072:8866`.
fn gid_guid(gid: &str) -> Option<String> {
    let (prefix, _) = gid.match_indices(':').nth(3)?;
    Some(guid(&gid[prefix + 1..]))
}

/// `0x1f`, printed in decimal as subnet tools do.
fn lid(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

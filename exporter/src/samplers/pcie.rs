//! PCIe links and errors of GPUs, NICs, NVMe controllers and every bridge above them, from `/sys/devices`.

mod config;

use std::collections::BTreeMap;
use std::time::Duration;

use railscope_model::identity::PciAddress;
use railscope_model::metric::{
    Metric, PCIE_AER_ERRORS, PCIE_ERRORS, PCIE_LINK_SPEED, PCIE_LINK_SPEED_MAX, PCIE_LINK_WIDTH,
    PCIE_LINK_WIDTH_MAX, PCIE_PATH, Profile,
};
use railscope_model::reading::{Labels, NodeReading, Status, Value};
use railscope_model::units::pcie_transfers_per_second;

use self::config::Setup;
use super::discovery::{Fleet, Known, Misses};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::pci::{self, Function};
use crate::sources::rdma::{self, Device};
use crate::sources::sysfs::{Buffer, Dir, File, Miss, Root};
use crate::sources::{net, nvme};

/// Source label.
const NAME: &str = "pcie";

/// Kernel file -> metric, of what a link does now.
const LINK: &[(&str, &Metric, Parse)] = &[
    ("current_link_width", &PCIE_LINK_WIDTH, lanes),
    ("current_link_speed", &PCIE_LINK_SPEED, transfers),
];

/// Kernel file -> metric, of what a link is made for: read at discovery, and then closed.
const LINK_MAX: &[(&str, &Metric, Parse)] = &[
    ("max_link_width", &PCIE_LINK_WIDTH_MAX, lanes),
    ("max_link_speed", &PCIE_LINK_SPEED_MAX, transfers),
];

/// Kernel file -> severity.
const AER: &[(&str, &str)] = &[
    ("aer_dev_correctable", "correctable"),
    ("aer_dev_nonfatal", "nonfatal"),
    ("aer_dev_fatal", "fatal"),
];

/// A text's value; `Some(None)` where it reports that there is none.
type Parse = fn(&str) -> Option<Option<Value>>;

/// Lanes. 0 is what virtual functions and half-emulated ports print: no value. A link has one of these
/// widths, so 63 (all ones) is a device that no longer responds.
fn lanes(text: &str) -> Option<Option<Value>> {
    match text.parse::<u64>().ok()? {
        0 => Some(None),
        lanes @ (1 | 2 | 4 | 8 | 12 | 16 | 32) => Some(Some(lanes.into())),
        _ => None,
    }
}

fn transfers(text: &str) -> Option<Option<Value>> {
    let speed = pcie_transfers_per_second(text).ok()?;
    Some(speed.map(Value::Float))
}

struct Pcie {
    root: Root,
    functions: Fleet<Watched>,
    misses: Misses,
    /// Why configuration spaces could not be read.
    config_miss: Option<Miss>,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Pcie {
        root: Root::new(&machine.sysfs),
        functions: Fleet::default(),
        misses: Misses::new(NAME),
        config_miss: None,
    })
}

impl Sampler for Pcie {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A link that trained down stays down, and each read of it goes to the device's configuration
    /// space, under a lock that drivers also take: not more often than faults need.
    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let names = self.root.open().and_then(|sysfs| pci::names(&sysfs));
        self.functions.call(names.unwrap_or_default());
        let (root, config_miss) = (&self.root, &mut self.config_miss);
        let look = |known: &mut Known<_>| discover(root, known, config_miss, &mut buffer);
        if let Some(miss) = self.functions.look(look) {
            return Ok(Presence::Absent(miss.into()));
        }
        let misses = &mut self.misses;
        self.functions
            .sample(|function| function.sample(reading, misses, &mut buffer));
        if let Some(miss) = self.config_miss {
            // One for all: they differ by privilege, not by function.
            reading.push_status(NAME, "config", Status::from(miss));
        }
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

/// Every GPU and NIC that is there now, and the bridges above them; notes why configuration spaces could
/// not be read.
fn discover(
    root: &Root,
    known: &mut Known<Watched>,
    config_miss: &mut Option<Miss>,
    buffer: &mut Buffer,
) -> Result<Vec<Watched>, Miss> {
    let sysfs = root.open()?;
    *config_miss = None;
    let found = functions(&sysfs, buffer)?.into_iter();
    let watched = found.map(|(address, (function, kind, name))| {
        let id = function.dir.id();
        let kept = known.take(|old| old.address == address && old.id == id);
        let mut watched = kept.unwrap_or_else(|| Watched::new(&function, id));
        watched.describe(&function, kind, &name, buffer);
        let (setup, miss) = Setup::read(&function, matches!(kind, "gpu" | "nic"), &sysfs, buffer);
        watched.setup = setup;
        let miss = miss.filter(|miss| !matches!(miss, Miss::Absent | Miss::Unsupported));
        *config_miss = config_miss.or(miss);
        watched
    });
    Ok(watched.collect())
}

/// What is connected at an address: the function, its kind and its name.
type Endpoint = (Function, &'static str, String);

/// GPUs and NICs, and every bridge above them.
fn functions(sysfs: &Dir, buffer: &mut Buffer) -> Result<BTreeMap<PciAddress, Endpoint>, Miss> {
    let mut found: BTreeMap<PciAddress, Endpoint> = BTreeMap::new();
    // Either may be missing without the other: a machine with NICs only, or with GPUs only.
    let gpus = pci::gpus(sysfs, buffer);
    let nics = rdma::devices(sysfs);
    let miss = gpus.as_ref().err().or(nics.as_ref().err()).copied();
    for (ordinal, gpu) in gpus.unwrap_or_default().into_iter().enumerate() {
        found.insert(gpu.address, (gpu, "gpu", ordinal.to_string()));
    }
    let mut nics = nics.unwrap_or_default();
    // A part of a function names it only where the function has no RDMA device.
    nics.sort_by_key(Device::is_subfunction);
    for nic in nics {
        if let Some(function) = nic.function {
            // Two RDMA devices of one function: the first by name names it.
            let endpoint = (function, "nic", nic.name);
            found.entry(endpoint.0.address).or_insert(endpoint);
        }
    }
    for (function, kind, name) in others(sysfs, buffer) {
        let endpoint = (function, kind, name);
        found.entry(endpoint.0.address).or_insert(endpoint);
    }
    if found.is_empty() {
        return Err(miss.unwrap_or(Miss::Absent));
    }
    let hops: Vec<_> = found.values().flat_map(|(end, ..)| end.hops()).collect();
    for hop in hops {
        let bridge = (hop, "bridge", String::new());
        found.entry(bridge.0.address).or_insert(bridge);
    }
    Ok(found)
}

/// Endpoints that are no part of the compute fabric: local NVMe controllers, and Ethernet without RDMA. A
/// virtual function has no separate link.
fn others(sysfs: &Dir, buffer: &mut Buffer) -> Vec<Endpoint> {
    let mut found = Vec::new();
    let (controllers, _) = nvme::controllers(sysfs).unwrap_or_default();
    for controller in controllers {
        found.extend(Function::of(&controller.dir).map(|at| (at, "nvme", controller.name)));
    }
    for netdev in net::ethernet(sysfs, buffer).unwrap_or_default() {
        let name = netdev.nic.name;
        found.extend(netdev.function.map(|at| (at, "netdev", name)));
    }
    found.retain(|(function, ..)| !function.is_virtual());
    found
}

/// One function being watched.
struct Watched {
    address: PciAddress,
    dir: Dir,
    id: Option<(u64, u64)>,
    labels: Labels,
    about: Option<Labels>,
    setup: Setup,
    /// All but GPUs and RDMA NICs are in the full profile only.
    full: bool,
    link_max: Vec<(&'static Metric, Result<Option<Value>, Miss>)>,
    link: Vec<(&'static Metric, Parse, File)>,
    aer: Vec<(&'static str, File)>,
}

impl Watched {
    fn new(function: &Function, id: Option<(u64, u64)>) -> Self {
        let dir = &function.dir;
        let link = LINK.iter().filter(|(file, ..)| dir.has(file));
        let aer = AER.iter().filter(|(file, _)| dir.has(file));
        Self {
            address: function.address,
            dir: dir.clone(),
            id,
            labels: Labels::new([function.address]),
            about: None,
            setup: Setup::default(),
            full: false,
            link_max: Vec::new(),
            link: link
                .map(|(file, metric, parse)| (*metric, *parse, dir.file(file)))
                .collect(),
            aer: aer
                .map(|(file, severity)| (*severity, dir.file(file)))
                .collect(),
        }
    }

    fn describe(&mut self, function: &Function, kind: &str, name: &str, buffer: &mut Buffer) {
        let text = |address: Option<&PciAddress>| address.map(ToString::to_string);
        let numa_node = function.numa_node(buffer).map(|node| node.to_string());
        self.full = !matches!(kind, "gpu" | "nic");
        self.about = Some(Labels::new([
            function.address.to_string(),
            kind.to_owned(),
            name.to_owned(),
            text(function.bridges.last()).unwrap_or_default(),
            text(function.bridges.first()).unwrap_or_default(),
            numa_node.unwrap_or_default(),
        ]));
        let files = LINK_MAX.iter().filter(|(file, ..)| function.dir.has(file));
        let read = files
            .map(|(file, metric, parse)| (*metric, function.dir.file(file).read(buffer, *parse)));
        self.link_max = read.collect();
    }

    /// Reads every value once; false if the function is gone.
    fn sample(
        &mut self,
        reading: &mut NodeReading,
        misses: &mut Misses,
        buffer: &mut Buffer,
    ) -> bool {
        if self.id.is_none() || self.dir.id() != self.id {
            return false;
        }
        self.setup.push(reading);
        let full = self.full;
        let mut push = |full: bool, metric, labels: &Labels, value: Value| {
            reading.push_in(Profile::default_if(!full), metric, labels, value);
        };
        let most = self
            .link_max
            .iter()
            .find(|(max, _)| *max == &PCIE_LINK_WIDTH_MAX);
        let most = most.and_then(|(_, lanes)| lanes.as_ref().ok()?.as_ref());
        let mut lacks_lanes = false;
        for (metric, parse, file) in &mut self.link {
            if let Some(Some(value)) = misses.keep(file.read(buffer, *parse)) {
                let is_below = most.is_some_and(|most| value.as_f64() < most.as_f64());
                lacks_lanes |= *metric == &PCIE_LINK_WIDTH && is_below;
                push(full, metric, &self.labels, value);
            }
        }
        for (severity, file) in &mut self.aer {
            let Some((sum, errors)) = misses.keep(file.read(buffer, aer_table)) else {
                continue;
            };
            let labels = self.labels.with(severity);
            push(full, &PCIE_ERRORS, &labels, sum.into());
            for (error, count) in errors {
                push(full, &PCIE_AER_ERRORS, &labels.with(error), count.into());
            }
        }
        // A link's maximum and location are constant: by default exported only where an operator must check it.
        let full = full || !lacks_lanes;
        if let Some(about) = &self.about {
            push(full, &PCIE_PATH, about, true.into());
        }
        for (metric, value) in &self.link_max {
            if let Some(Some(value)) = misses.keep(value.clone()) {
                push(full, metric, &self.labels, value);
            }
        }
        misses.end_device(reading, &self.address.to_string());
        true
    }
}

/// An AER table, lines of `RxErr 0`: the sum over all names, and the names that have counted.
fn aer_table(text: &str) -> Option<(u64, Vec<(String, u64)>)> {
    let mut sum = 0_u64;
    let mut errors = Vec::new();
    for line in text.lines() {
        let (name, count) = line.trim().split_once(' ')?;
        let count: u64 = count.trim().parse().ok()?;
        if name.starts_with("TOTAL_") {
            continue;
        }
        sum = sum.checked_add(count)?;
        if count > 0 {
            errors.push((name.to_owned(), count));
        }
    }
    Some((sum, errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aer_table_is_its_rows_without_the_total() {
        let table = "RxErr 3\nBadTLP 0\nTimeout 2\nTOTAL_ERR_COR 5\n";
        let rows = vec![("RxErr".to_owned(), 3), ("Timeout".to_owned(), 2)];
        assert_eq!(aer_table(table), Some((5, rows)));
        assert_eq!(aer_table("RxErr 0\nTOTAL_ERR_COR 0"), Some((0, vec![])));
        for bad in ["RxErr", "RxErr many", "RxErr -1"] {
            assert_eq!(aer_table(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_width_that_no_link_has_is_no_width() {
        for (text, expected) in [
            ("16", Some(Some(Value::Int(16)))),
            ("0", Some(None)),
            ("63", None),
            ("255", None),
            ("x16", None),
        ] {
            assert_eq!(lanes(text), expected, "{text}");
        }
    }
}

//! Ethernet NICs: what their drivers count (PFC, discards, PHY, PCIe stalls) and how they are configured.

mod config;
mod peaks;
mod tables;

use std::time::{Duration, Instant};

use railscope_model::metric::{
    Metric, NIC_CARRIER, NIC_CARRIER_CHANGES, NIC_GLOBAL_PAUSE_SECONDS, NIC_PAUSE_SECONDS,
    NIC_PFC_PAUSE_SECONDS, Profile,
};
use railscope_model::reading::{Labels, NodeReading, Status, Value};

use self::peaks::Peaks;
use self::tables::{DRIVERS, Row};
use super::discovery::{Fleet, Known, Misses};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::ethtool::NicSource;
use crate::sources::net::{self, Netdev};
use crate::sources::sysfs::{Buffer, File, Miss, Root};

/// Source label.
const NAME: &str = "ethernet";
/// Directions of a link, as label values.
const DIRECTIONS: [&str; 2] = ["receive", "transmit"];

struct Ethernet {
    root: Root,
    network: Box<dyn NicSource>,
    nics: Fleet<Watched>,
    misses: Misses,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Ethernet {
        root: Root::new(&machine.sysfs),
        network: machine.network.nics(),
        nics: Fleet::default(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Ethernet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let root = &self.root;
        if let Some(miss) = self.nics.look(|known| discover(root, known, &mut buffer)) {
            return Ok(Presence::Absent(miss.into()));
        }
        let (network, misses) = (self.network.as_mut(), &mut self.misses);
        self.nics
            .sample(|nic| nic.sample(network, reading, misses, &mut buffer));
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

/// Every interface that is there now; all of them are described again.
fn discover(
    root: &Root,
    known: &mut Known<Watched>,
    buffer: &mut Buffer,
) -> Result<Vec<Watched>, Miss> {
    let found = net::ethernet(&root.open()?, buffer)?.into_iter();
    let watched = found.map(|netdev| {
        let id = netdev.dir.id();
        let kept = known.take(|old| old.netdev.nic == netdev.nic && old.id == id);
        let mut watched = kept.unwrap_or_else(|| Watched::new(netdev, id));
        watched.is_described = false;
        watched
    });
    Ok(watched.collect())
}

/// One interface being watched.
struct Watched {
    netdev: Netdev,
    id: Option<(u64, u64)>,
    labels: Labels,
    driver: Option<String>,
    /// It carries RDMA: then the default profile shows it.
    rdma: Option<String>,
    changes: File,
    /// State of the link when it was last described.
    seen: (Option<bool>, Option<u64>),
    is_described: bool,
    /// What changes seldom, and counters that cost a question each.
    about: Vec<(&'static Metric, Labels, Value)>,
    /// How many counters the driver had when their names were read; none if it has no names.
    named: Option<usize>,
    counters: Vec<Counter>,
    values: Vec<u64>,
    /// Outlives the counters, which are named again at every description.
    peaks: Peaks,
}

/// One series of the driver's counters, and where its values stand.
struct Counter {
    row: &'static Row,
    labels: Labels,
    places: Vec<usize>,
}

impl Watched {
    fn new(netdev: Netdev, id: Option<(u64, u64)>) -> Self {
        let labels = Labels::new([&netdev.nic.name]);
        Self {
            id,
            peaks: Peaks::new(&labels),
            labels,
            driver: netdev.driver(),
            rdma: netdev.rdma_device(),
            changes: netdev.dir.file("carrier_changes"),
            seen: (None, None),
            is_described: false,
            about: Vec::new(),
            named: None,
            counters: Vec::new(),
            values: Vec::new(),
            netdev,
        }
    }

    /// Reads every value once; false if the interface is gone.
    fn sample(
        &mut self,
        network: &mut dyn NicSource,
        reading: &mut NodeReading,
        misses: &mut Misses,
        buffer: &mut Buffer,
    ) -> bool {
        if self.id.is_none() || self.netdev.dir.id() != self.id {
            return false;
        }
        let carrier = self.carrier(misses, buffer);
        let changes = misses.keep(self.changes.count(buffer));
        if !self.is_described || self.seen != (carrier, changes) {
            self.seen = (carrier, changes);
            self.is_described = true;
            self.name_counters(network);
            self.about = config::about(self, network, misses, buffer);
        }
        if let Some(carrier) = carrier {
            reading.push(&NIC_CARRIER, &self.labels, carrier);
        }
        if let Some(changes) = changes {
            reading.push(&NIC_CARRIER_CHANGES, &self.labels, changes);
        }
        for (metric, labels, value) in &self.about {
            self.push(reading, false, metric, labels, value.clone());
        }
        if let Err(miss) = self.count(network, reading) {
            if miss == Miss::Absent {
                // Nothing to read: a recording without counters, or another network namespace than
                // ours.
                reading.push_status(NAME, &self.netdev.nic.name, Status::Absent);
            }
            misses.note(miss);
        }
        misses.end_device(reading, &self.netdev.nic.name);
        true
    }

    /// Whether the link is up; none while the interface is switched off (then the kernel reports
    /// `EINVAL`, which must not prevent further reads, so the file is opened again each time).
    fn carrier(&self, misses: &mut Misses, buffer: &mut Buffer) -> Option<bool> {
        match self.netdev.dir.text("carrier", buffer) {
            Ok(text) => match text.as_str() {
                "0" => Some(false),
                "1" => Some(true),
                _ => misses.keep(Err(Miss::Unparsed)),
            },
            Err(Miss::Unsupported) => None,
            Err(miss) => misses.keep(Err(miss)),
        }
    }

    /// Reads the names of the driver's counters and finds their rows. Counts change with channels and
    /// PFC; and as PFC may move from one priority to another and leave the number as it is, names are
    /// read at every description too.
    fn name_counters(&mut self, network: &mut dyn NicSource) {
        let names = network.names(&self.netdev.nic);
        self.named = names.as_ref().ok().map(Vec::len);
        self.counters = counters(
            &names.unwrap_or_default(),
            self.driver.as_deref(),
            &self.labels,
        );
    }

    /// Reads the driver's counters.
    fn count(
        &mut self,
        network: &mut dyn NicSource,
        reading: &mut NodeReading,
    ) -> Result<(), Miss> {
        network.values(&self.netdev.nic, &mut self.values)?;
        if self.named != Some(self.values.len()) {
            self.name_counters(network);
            network.values(&self.netdev.nic, &mut self.values)?;
            if self.named != Some(self.values.len()) {
                return Err(Miss::Failed);
            }
        }
        let now = Instant::now();
        let mut paused = [None::<u64>; 2];
        for counter in &self.counters {
            let places = counter.places.iter();
            let count = places
                .filter_map(|place| self.values.get(*place))
                .fold(0_u64, |sum, value| sum.saturating_add(*value));
            let value = counter.row.unit.value(count);
            self.peaks.observe(now, counter, count);
            self.push(
                reading,
                counter.row.full,
                counter.row.metric,
                &counter.labels,
                value,
            );
            let durations = [&NIC_PFC_PAUSE_SECONDS, &NIC_GLOBAL_PAUSE_SECONDS];
            if durations.contains(&counter.row.metric) {
                let of = |word: &&str| counter.row.labels.last() == Some(word);
                if let Some(place) = DIRECTIONS.iter().position(of) {
                    paused[place] = Some(paused[place].unwrap_or(0).saturating_add(count));
                }
            }
        }
        for (direction, micros) in DIRECTIONS.into_iter().zip(paused) {
            if let Some(micros) = micros {
                let value = tables::Unit::Micro.value(micros);
                let labels = self.labels.with(direction);
                self.push(reading, false, &NIC_PAUSE_SECONDS, &labels, value);
            }
        }
        self.peaks.each(now, |metric, labels, value, is_shortest| {
            self.push(reading, !is_shortest, metric, labels, value.into());
        });
        Ok(())
    }

    fn push(
        &self,
        reading: &mut NodeReading,
        full: bool,
        metric: &'static Metric,
        labels: &Labels,
        value: Value,
    ) {
        let profile = Profile::default_if(!full && self.rdma.is_some());
        reading.push_in(profile, metric, labels, value);
    }

    /// Whether the driver's own counters already contain this metric.
    fn counts(&self, metric: &Metric) -> bool {
        self.counters
            .iter()
            .any(|counter| counter.row.metric == metric)
    }
}

/// The series that a driver's counters become.
fn counters(names: &[String], driver: Option<&str>, nic: &Labels) -> Vec<Counter> {
    let rows = || {
        let drivers = DRIVERS.iter();
        let known = drivers.filter(|known| driver.is_none_or(|name| known.name == name));
        known.flat_map(|known| known.rows)
    };
    let mut found: Vec<Counter> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let mut rows = rows().filter_map(|row| Some((row, row.number(name)?)));
        // Two counters of one name are ambiguous: the first is used.
        let Some((row, number)) = rows.next().filter(|_| !names[..place].contains(name)) else {
            continue;
        };
        let words = row.labels.iter();
        let words = words.map(|word| if *word == "#" { number } else { word });
        let labels = Labels::new(nic.values().chain(words));
        let same = |other: &&mut Counter| other.row.metric == row.metric && other.labels == labels;
        match found.iter_mut().find(same) {
            Some(counter) => counter.places.push(place),
            None => found.push(Counter {
                row,
                labels,
                places: vec![place],
            }),
        }
    }
    found
}

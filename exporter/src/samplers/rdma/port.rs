//! One RDMA port: what it is, its state and rate, its counters and their peaks.

use std::time::Instant;

use railscope_model::identity::Guid;
use railscope_model::metric::{
    Metric, RDMA_CNP, RDMA_OPTIONAL_STATISTIC_ENABLED, RDMA_OPTIONAL_STATISTICS, RDMA_PORT,
    RDMA_PORT_ADDRESS, RDMA_PORT_PEAK_CNP, RDMA_PORT_PEAK_RECEIVE, RDMA_PORT_PEAK_TRANSMIT,
    RDMA_PORT_PEAK_WAIT, RDMA_PORT_PHYSICAL_STATE, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_SPEED,
    RDMA_PORT_STATE, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_WAIT, RDMA_PORT_UP,
    RDMA_PORT_WIDTH, RDMA_QP_STATISTICS_MODE, RDMA_STATISTICS_SOURCE,
};
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::PortRate;

use super::super::peaks::Peak;
use super::Sweep;
use super::counters::{Falls, Groups};
use super::tables::Row;
use crate::sources::rdma::Device;
use crate::sources::rdma_netlink::Nldev;
use crate::sources::sysfs::{Buffer, Dir, File, Miss, Texts};

/// Logical state in which a port carries traffic.
const ACTIVE: u64 = 4;
/// Optional counters of one port that are read; mlx5 has seven.
const MOST_OPTIONAL: usize = 64;

/// A counter whose highest rate is kept, reported by its row's metric and labels.
struct PeakRow {
    metric: &'static Metric,
    labels: &'static [&'static str],
    becomes: &'static Metric,
    becomes_labels: &'static [&'static str],
}

const fn peak(metric: &'static Metric, becomes: &'static Metric) -> PeakRow {
    PeakRow {
        metric,
        labels: &[],
        becomes,
        becomes_labels: &[],
    }
}

const fn peak_cnp(labels: &'static [&'static str], point: &'static [&'static str]) -> PeakRow {
    PeakRow {
        labels,
        becomes_labels: point,
        ..peak(&RDMA_CNP, &RDMA_PORT_PEAK_CNP)
    }
}

const PEAKS: &[PeakRow] = &[
    peak(&RDMA_PORT_TRANSMIT_BYTES, &RDMA_PORT_PEAK_TRANSMIT),
    peak(&RDMA_PORT_RECEIVE_BYTES, &RDMA_PORT_PEAK_RECEIVE),
    peak(&RDMA_PORT_TRANSMIT_WAIT, &RDMA_PORT_PEAK_WAIT),
    peak_cnp(&["rp", "handled"], &["rp"]),
    peak_cnp(&["np", "sent"], &["np"]),
];

/// What a device's ports have in common, as label values.
pub(super) struct DeviceText {
    pub(super) pci: String,
    pub(super) node_guid: String,
    pub(super) driver: String,
    pub(super) numa_node: String,
}

/// One port being watched.
pub(super) struct Port {
    number: u8,
    labels: Labels,
    texts: Texts,
    /// `gids` and `gid_attrs/ndevs`: entry 0 is the port's own address.
    gids: Option<Texts>,
    netdevs: Option<Texts>,
    about: Option<Labels>,
    address: Option<Labels>,
    ethernet: bool,
    /// The driver reports ACTIVE whatever the state of the link.
    pretends: bool,
    state: Option<File>,
    physical_state: Option<File>,
    rate: Option<File>,
    groups: Groups,
    netlink: Netlink,
    peaks: Vec<(&'static PeakRow, Peak)>,
}

impl Port {
    pub(super) fn new(device: &str, number: u8, dir: Dir, driver: Option<&str>) -> Self {
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
            groups: Groups::of_port(&dir, &labels, device, driver),
            netlink: Netlink::default(),
            peaks: PEAKS
                .iter()
                .map(|row| {
                    let all = labels.values().chain(row.becomes_labels.iter().copied());
                    (row, Peak::new(row.becomes, &Labels::new(all)))
                })
                .collect(),
            labels,
            texts: Texts::new(dir),
        }
    }

    /// Whether its driver refuses every counter that it lists.
    pub(super) fn is_refused(&self) -> bool {
        let mut asked = self
            .groups
            .asked()
            .into_iter()
            .filter(|group| !group.is_empty());
        let mut all = asked.by_ref().peekable();
        all.peek().is_some() && all.all(super::counters::Group::is_refused)
    }

    pub(super) fn describe(&mut self, device: &Device, common: &DeviceText, buffer: &mut Buffer) {
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

    /// Reads the port's counters by netlink, where that is available and lists the device.
    pub(super) fn describe_counters(&mut self, nldev: Option<(&mut Nldev, u32)>) {
        self.netlink.describe(nldev, self.number, &self.labels);
    }

    /// Reads every value once; false if the port is gone.
    pub(super) fn sample(&mut self, sweep: &mut Sweep<'_>) -> bool {
        if !self.sample_state(sweep) {
            return false;
        }
        self.sample_counters(sweep);
        for (metric, labels) in [
            (&RDMA_PORT, &self.about),
            (&RDMA_PORT_ADDRESS, &self.address),
        ] {
            if let Some(labels) = labels {
                sweep.reading.push(metric, labels, true);
            }
        }
        true
    }

    fn sample_state(&mut self, sweep: &mut Sweep<'_>) -> bool {
        let (reading, misses) = (&mut *sweep.reading, &mut *sweep.misses);
        let buffer = &mut *sweep.buffer;
        if let Some(file) = &mut self.state {
            match file.read(buffer, enumerator) {
                Err(Miss::Absent) => return false,
                // Absent beats wrong; and such a driver has no state that could be missed. Read it is, to see the port go.
                Ok(_) if self.pretends => {}
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
        true
    }

    fn sample_counters(&mut self, sweep: &mut Sweep<'_>) {
        let mut falls = Falls::default();
        let Self {
            groups,
            peaks,
            ethernet,
            labels,
            ..
        } = self;
        let mut see = |row: &'static Row, count: u64| {
            let is_of = |of: &PeakRow| of.metric == row.metric && of.labels == row.labels;
            if let Some((_, peak)) = peaks.iter_mut().find(|(of, _)| is_of(of)) {
                peak.observe(Instant::now(), labels, count);
            }
        };
        for group in [
            &mut groups.errors,
            &mut groups.traffic,
            &mut groups.settings,
        ] {
            let into = (&mut *sweep.reading, &mut *sweep.misses, &mut *sweep.buffer);
            group.read(*ethernet, into, &mut falls, &mut see);
        }
        let nldev = sweep.nldev.as_deref_mut();
        let answered = self
            .netlink
            .read(nldev, self.number, |name, count, optional| {
                let taken = groups
                    .hardware
                    .take(name, count, *ethernet, sweep.reading, &mut falls);
                match taken {
                    Some((row, Some(base))) => see(row, base),
                    Some(_) => {}
                    None => {
                        if let Some(labels) = optional {
                            sweep.reading.push(&RDMA_OPTIONAL_STATISTICS, labels, count);
                        }
                    }
                }
            });
        if !answered {
            let into = (&mut *sweep.reading, &mut *sweep.misses, &mut *sweep.buffer);
            groups.hardware.read(*ethernet, into, &mut falls, &mut see);
        }
        if !groups.hardware.is_empty() {
            let source = if answered { "netlink" } else { "sysfs" };
            sweep
                .reading
                .push(&RDMA_STATISTICS_SOURCE, &self.labels.with(source), true);
        }
        self.netlink.push(sweep.reading);
        let now = Instant::now();
        for (_, peak) in &self.peaks {
            for (labels, rate, _) in peak.rates(now) {
                sweep.reading.push(peak.becomes, labels, rate);
            }
        }
        sweep.changes.take(falls);
    }
}

/// What netlink reports about one port's counters.
#[derive(Default)]
struct Netlink {
    /// The device's index, if netlink lists it and has replied so far.
    index: Option<u32>,
    refused: bool,
    mode: Option<Labels>,
    /// Optional counters by name, and whether they are switched on.
    optional: Vec<(String, Labels, bool)>,
}

impl Netlink {
    fn describe(&mut self, nldev: Option<(&mut Nldev, u32)>, port: u8, labels: &Labels) {
        self.index = None;
        self.mode = None;
        self.optional.clear();
        let Some((nldev, index)) = nldev.filter(|_| !self.refused) else {
            return;
        };
        self.index = Some(index);
        self.mode = nldev
            .counter_mode(index, port)
            .ok()
            .map(|mode| labels.with(mode));
        // A kernel before 5.16 has no optional counters and does not know the question.
        let mut optional = nldev.optional_counters(index, port).unwrap_or_default();
        optional.truncate(MOST_OPTIONAL);
        let known = |(name, on): (String, bool)| {
            let labels = labels.with(&name);
            (name, labels, on)
        };
        self.optional = optional.into_iter().map(known).collect();
    }

    /// Reads every counter; false if files have to be read instead.
    fn read(
        &mut self,
        nldev: Option<&mut Nldev>,
        port: u8,
        mut each: impl FnMut(&str, u64, Option<&Labels>),
    ) -> bool {
        let Some((nldev, index)) = nldev.zip(self.index) else {
            return false;
        };
        let optional = &self.optional;
        // Read completely or not at all: after a partial reply, the files would be read as well.
        let mut counts = Vec::with_capacity(64);
        let read = nldev.counters(index, port, |name, count| {
            counts.push((name.to_owned(), count));
        });
        if let Err(miss) = read {
            tracing::info!(
                index,
                port,
                ?miss,
                "netlink gives no counters: files are read instead"
            );
            self.refused = true;
            self.index = None;
            return false;
        }
        for (name, count) in counts {
            let known = optional.iter().find(|(other, ..)| *other == name);
            each(&name, count, known.map(|(_, labels, _)| labels));
        }
        true
    }

    fn push(&self, reading: &mut NodeReading) {
        if let Some(labels) = &self.mode {
            reading.push(&RDMA_QP_STATISTICS_MODE, labels, true);
        }
        for (_, labels, on) in &self.optional {
            reading.push(&RDMA_OPTIONAL_STATISTIC_ENABLED, labels, *on);
        }
    }
}

pub(super) fn optional(value: Option<impl std::fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// `4: ACTIVE` is 4.
fn enumerator(text: &str) -> Option<u64> {
    text.split(':').next()?.trim().parse().ok()
}

/// A GUID in our spelling; empty where it is not one, or all zeros as of an unset one.
pub(super) fn guid(text: &str) -> String {
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

//! XIDs of GPUs, SXids of NVSwitches and hardware events from the kernel log: what NVML misses, and what was before it
//! loaded.

mod events;
mod faults;
mod recent;
mod recording;

pub use recording::{Occurrence, Recording, What};

use std::collections::BTreeMap;
use std::time::Duration;

use railscope_model::identity::PciAddress;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading, Status};
use railscope_model::units::MICROS;

use super::discovery::Misses;
use super::host::boot_time;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::kmsg::{Batch, KernelLog, Record, Time};
use crate::sources::pci;
use crate::sources::sysfs::{Miss, Root};
use events::{Event, Mode};
use faults::Fault;
use recent::Recent;

/// Source label.
const NAME: &str = "kernel_log";
/// Device label of the status of lines that are not records of a kernel log.
const LINES: &str = "lines";
/// The `source` of these XIDs.
const SOURCE: &str = "kmsg";
/// Series of each family that are distinguished; a node that had more distinct faults has one
/// fault.
const MOST_SERIES: usize = 128;
/// Represents all XIDs, SXids and devices beyond.
const OTHERS: &str = "other";
/// Readings of a file in one sample, each of as many lines as [`KernelLog::read`] reads: 100 million lines.
const MOST_READINGS: usize = 1000;

struct Log {
    sysfs: Root,
    procfs: Root,
    log: Option<KernelLog>,
    /// Whether `/dev/kmsg` was read to its end once: only what comes after is counted. Of a file all is.
    caught_up: bool,
    /// Whether the log holds any record.
    is_readable: bool,
    /// Whether it ends within a line of which nothing can be read so far.
    is_broken_off: bool,
    unparsed: u64,
    gpus: Vec<PciAddress>,
    /// Whether GPUs are named by their address: a log of another node does not report their
    /// ordinals.
    by_address: bool,
    /// When the kernel booted, Unix time in seconds; read with the last fault.
    boot: Option<u64>,
    /// By labels.
    xids: BTreeMap<Labels, Seen>,
    sxids: BTreeMap<Labels, Seen>,
    events: BTreeMap<Labels, Seen>,
    recent: Recent,
    misses: Misses,
}

/// How often a fault came, and when last, Unix time in seconds.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    count: u64,
    at: Option<f64>,
}

/// What a record reports.
enum Report {
    Fault(Fault),
    Event(Event),
}

impl Report {
    fn parse(text: &str) -> Option<Self> {
        let fault = Fault::parse(text).map(Self::Fault);
        fault.or_else(|| events::parse(text).map(Self::Event))
    }

    fn event(&mut self) -> Option<&mut Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::Fault(_) => None,
        }
    }
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Log::new(machine))
}

impl Sampler for Log {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A quiet log costs one system call.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        if self.log.is_none() {
            return Ok(Presence::Absent(Status::Absent));
        }
        if let Err(miss) = self.read() {
            // It is opened again and begins with what was counted already.
            self.caught_up = false;
            return Ok(Presence::Absent(miss.into()));
        }
        self.report(reading);
        // Lost records are counted; that the log was read stays true.
        self.misses.forget();
        self.misses.end_source(reading);
        if !self.is_readable && (self.unparsed > 0 || self.is_broken_off) {
            return Ok(Presence::Absent(Status::Unparsed));
        }
        if self.unparsed > 0 {
            reading.push_status(NAME, LINES, Status::Unparsed);
        }
        Ok(Presence::Present)
    }
}

impl Log {
    fn new(machine: &Machine) -> Self {
        Self {
            sysfs: Root::new(&machine.sysfs),
            procfs: Root::new(&machine.procfs),
            log: machine.kmsg.as_deref().map(KernelLog::new),
            caught_up: false,
            is_readable: false,
            is_broken_off: false,
            unparsed: 0,
            gpus: Vec::new(),
            by_address: false,
            boot: None,
            xids: BTreeMap::new(),
            sxids: BTreeMap::new(),
            events: BTreeMap::new(),
            recent: Recent::default(),
            misses: Misses::new(NAME),
        }
    }

    /// Reads what came since the last sample: of `/dev/kmsg` one reading, of a file all up to its end.
    fn read(&mut self) -> Result<(), Miss> {
        for _ in 0..MOST_READINGS {
            let Some(log) = &mut self.log else {
                break;
            };
            let batch = log.read()?;
            let is_device = log.is_device();
            if batch.is_new_file {
                self.begin_file();
            }
            self.take_batch(&batch, !is_device || self.caught_up);
            self.caught_up |= batch.at_end;
            if batch.at_end || is_device {
                break;
            }
        }
        Ok(())
    }

    /// A file is what it holds: of one that took the place of another, nothing of the other counts.
    fn begin_file(&mut self) {
        self.xids.clear();
        self.sxids.clear();
        self.events.clear();
        self.recent = Recent::default();
        self.is_readable = false;
        self.unparsed = 0;
    }

    fn take_batch(&mut self, batch: &Batch, counts: bool) {
        for _ in 0..batch.overrun {
            self.misses.note(Miss::Failed);
        }
        for _ in 0..batch.unparsed {
            self.misses.note(Miss::Unparsed);
        }
        if self.unparsed == 0
            && batch.unparsed > 0
            // A reader of a recording reports its lines itself.
            && !self.by_address
            && let Some(first) = self.log.as_ref().and_then(KernelLog::first_unreadable)
        {
            tracing::warn!(source = NAME, "{first}");
        }
        self.unparsed += batch.unparsed;
        self.is_readable |= !batch.records.is_empty() || batch.unfinished.is_some();
        self.is_broken_off = batch.is_broken_off;
        let unfinished = batch
            .unfinished
            .as_ref()
            .filter(|record| record.by_kernel && Report::parse(&record.text).is_some());
        if unfinished.is_some()
            && let Some(log) = &mut self.log
        {
            log.accept_unfinished();
        }
        let records = batch.records.iter().chain(unfinished);
        let by_kernel = records.filter(|record| record.by_kernel);
        let reports: Vec<_> = by_kernel
            .filter_map(|record| {
                let mut report = Report::parse(&record.text);
                let event = report.as_mut().and_then(Report::event);
                self.recent.name_gpu(&record.text, record.time, event);
                Some((report?, record))
            })
            .collect();
        if !reports.is_empty() {
            self.look_around(&reports);
        }
        for (report, record) in reports {
            match report {
                Report::Fault(fault) => self.take_fault(fault, record.time, counts),
                Report::Event(event) => {
                    if self.recent.is_new(&event, record.time) {
                        self.take_event(&event, record.time, counts);
                    }
                }
            }
        }
        if let Some(time) = self.recent.end_summary() {
            let event = Event {
                name: "machine_check_corrected",
                device: String::new(),
                count: 1,
                mode: Mode::Summary,
            };
            self.take_event(&event, time, counts);
        }
    }

    fn take_event(&mut self, event: &Event, time: Option<Time>, counts: bool) {
        let labels = |device: &str| Labels::new([device, event.name]);
        let (known, others) = (labels(&event.device), labels(OTHERS));
        let at = self.unix(time);
        let family = &mut self.events;
        bounded(family, known, others).add(if counts { event.count } else { 0 }, at);
    }

    fn take_fault(&mut self, fault: Fault, time: Option<Time>, counts: bool) {
        let at = self.unix(time);
        let seen = match fault {
            Fault::Xid { pci, code } => {
                self.recent.see_xid(pci.to_string(), code, time);
                let gpu = self.ordinal(pci);
                let labels = |code: &str| Labels::new([&gpu, code, SOURCE]);
                let (known, others) = (labels(&code.to_string()), labels(OTHERS));
                bounded(&mut self.xids, known, others)
            }
            Fault::Sxid {
                pci,
                code,
                severity,
            } => {
                let pci = pci.to_string();
                let labels = |code: &str| Labels::new([&pci, code, severity]);
                let (known, others) = (labels(&code.to_string()), labels(OTHERS));
                bounded(&mut self.sxids, known, others)
            }
        };
        seen.add(counts.into(), at);
    }

    /// Unix time in seconds, if it is known when the kernel booted.
    fn unix(&self, time: Option<Time>) -> Option<f64> {
        match time? {
            Time::Unix(micros) => Some(micros as f64 / MICROS),
            Time::SinceBoot(micros) => self.boot.map(|boot| boot as f64 + micros as f64 / MICROS),
        }
    }

    /// Reads the data needed to place faults in time and space, once for all of them.
    fn look_around(&mut self, reports: &[(Report, &Record)]) {
        let stat = self.procfs.open();
        let stat = stat.and_then(|procfs| procfs.long_text("stat"));
        self.boot = stat.ok().and_then(|stat| boot_time(&stat)).or(self.boot);
        let stranger = reports.iter().any(|(report, _)| {
            matches!(report, Report::Fault(Fault::Xid { pci, .. }) if !self.gpus.contains(pci))
        });
        if !stranger {
            return;
        }
        let sysfs = self.sysfs.open();
        let found = sysfs.and_then(|sysfs| pci::gpus(&sysfs, &mut [0; 4096]));
        let found: Vec<_> = found.iter().flatten().map(|gpu| gpu.address).collect();
        // A GPU that fell off the bus reports it by an XID: one that was seen keeps its ordinal.
        if self.gpus.iter().all(|gpu| found.contains(gpu)) {
            self.gpus = found;
        }
    }

    /// The ordinal of the GPU at this address; empty if the node does not show it.
    fn ordinal(&self, pci: PciAddress) -> String {
        if self.by_address {
            return pci.to_string();
        }
        let place = self.gpus.iter().position(|gpu| *gpu == pci);
        place.map_or_else(String::new, |place| place.to_string())
    }

    fn report(&self, reading: &mut NodeReading) {
        let families: [(_, &Metric, &Metric); 3] = [
            (&self.xids, &m::GPU_XID_EVENTS, &m::GPU_XID_TIMESTAMP),
            (
                &self.sxids,
                &m::NVSWITCH_SXID_EVENTS,
                &m::NVSWITCH_SXID_TIMESTAMP,
            ),
            (
                &self.events,
                &m::KERNEL_HARDWARE_EVENTS,
                &m::KERNEL_HARDWARE_EVENT_TIMESTAMP,
            ),
        ];
        for (family, events, timestamp) in families {
            for (labels, seen) in family {
                reading.push(events, labels, seen.count);
                if let Some(at) = seen.at {
                    reading.push(timestamp, labels, at);
                }
            }
        }
    }
}

impl Seen {
    fn add(&mut self, count: u64, at: Option<f64>) {
        self.count = self.count.saturating_add(count);
        self.at = match (self.at, at) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
}

/// What was seen under the labels, or under those of the rest once there is no room for more.
fn bounded(family: &mut BTreeMap<Labels, Seen>, labels: Labels, others: Labels) -> &mut Seen {
    let room = family.len() < MOST_SERIES || family.contains_key(&labels);
    family
        .entry(if room { labels } else { others })
        .or_default()
}

#[cfg(test)]
#[path = "kernel_log/tests.rs"]
mod tests;

//! XIDs of GPUs and SXids of NVSwitches from the kernel log: what NVML misses, and what was before it loaded.

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
use crate::sources::kmsg::{KernelLog, Record};
use crate::sources::pci;
use crate::sources::sysfs::{Miss, Root};

/// Source label.
const NAME: &str = "kernel_log";
/// The `source` of these XIDs.
const SOURCE: &str = "kmsg";
/// Series of each family that are told apart; a node that had more distinct faults has one fault.
const MOST_SERIES: usize = 128;
/// Stands for all XIDs and SXids beyond.
const OTHERS: &str = "other";

struct Log {
    sysfs: Root,
    procfs: Root,
    log: Option<KernelLog>,
    /// Whether the log was read to its end once: only what comes after is counted.
    caught_up: bool,
    gpus: Vec<PciAddress>,
    /// When the kernel booted, Unix time in seconds; read with the last fault.
    boot: Option<u64>,
    /// By labels.
    xids: BTreeMap<Labels, Seen>,
    sxids: BTreeMap<Labels, Seen>,
    misses: Misses,
}

/// How often a fault came since the log was caught up with, and when last, microseconds since boot.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    count: u64,
    microseconds: u64,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Log {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        log: machine.kmsg.as_deref().map(KernelLog::new),
        caught_up: false,
        gpus: Vec::new(),
        boot: None,
        xids: BTreeMap::new(),
        sxids: BTreeMap::new(),
        misses: Misses::new(NAME),
    })
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
        let Some(log) = &mut self.log else {
            return Ok(Presence::Absent(Status::Absent));
        };
        let batch = match log.read() {
            Ok(batch) => batch,
            Err(miss) => {
                // It is opened anew and begins with what was counted already.
                self.caught_up = false;
                return Ok(Presence::Absent(miss.into()));
            }
        };
        for _ in 0..batch.overrun {
            self.misses.note(Miss::Failed);
        }
        for _ in 0..batch.unparsed {
            self.misses.note(Miss::Unparsed);
        }
        let faults: Vec<_> = batch
            .records
            .iter()
            .filter(|record| record.by_kernel)
            .filter_map(|record| Some((Fault::parse(&record.text)?, record)))
            .collect();
        if !faults.is_empty() {
            self.look_around(&faults);
        }
        for (fault, record) in faults {
            self.take(fault, record);
        }
        self.caught_up |= batch.at_end;
        self.report(reading);
        // Lost and broken records are counted; that the log was read stays true.
        self.misses.forget();
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Log {
    fn take(&mut self, fault: Fault, record: &Record) {
        let (family, labels) = match fault {
            Fault::Xid { pci, code } => {
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
        let seen = family.entry(labels).or_default();
        seen.count += u64::from(self.caught_up);
        seen.microseconds = seen.microseconds.max(record.microseconds);
    }

    /// Reads what it takes to place faults in time and space, once for all of them.
    fn look_around(&mut self, faults: &[(Fault, &Record)]) {
        let stat = self.procfs.open();
        let stat = stat.and_then(|procfs| procfs.long_text("stat"));
        self.boot = stat.ok().and_then(|stat| boot_time(&stat)).or(self.boot);
        let stranger = faults
            .iter()
            .any(|(fault, _)| matches!(fault, Fault::Xid { pci, .. } if !self.gpus.contains(pci)));
        if !stranger {
            return;
        }
        let sysfs = self.sysfs.open();
        let found = sysfs.and_then(|sysfs| pci::gpus(&sysfs, &mut [0; 4096]));
        let found: Vec<_> = found.iter().flatten().map(|gpu| gpu.address).collect();
        // A GPU that fell off the bus tells so by an XID: one that was seen keeps its ordinal.
        if self.gpus.iter().all(|gpu| found.contains(gpu)) {
            self.gpus = found;
        }
    }

    /// The ordinal of the GPU at this address; empty if the node does not show it.
    fn ordinal(&self, pci: PciAddress) -> String {
        let place = self.gpus.iter().position(|gpu| *gpu == pci);
        place.map_or_else(String::new, |place| place.to_string())
    }

    fn report(&self, reading: &mut NodeReading) {
        let families: [(_, &Metric, &Metric); 2] = [
            (&self.xids, &m::GPU_XID_EVENTS, &m::GPU_XID_TIMESTAMP),
            (
                &self.sxids,
                &m::NVSWITCH_SXID_EVENTS,
                &m::NVSWITCH_SXID_TIMESTAMP,
            ),
        ];
        for (family, events, timestamp) in families {
            for (labels, seen) in family {
                reading.push(events, labels, seen.count);
                if let Some(boot) = self.boot {
                    let at = boot as f64 + seen.microseconds as f64 / MICROS;
                    reading.push(timestamp, labels, at);
                }
            }
        }
    }
}

/// The labels, or those of the rest once there is no room for more.
fn bounded(
    family: &mut BTreeMap<Labels, Seen>,
    labels: Labels,
    others: Labels,
) -> (&mut BTreeMap<Labels, Seen>, Labels) {
    let room = family.len() < MOST_SERIES || family.contains_key(&labels);
    (family, if room { labels } else { others })
}

/// A fault that the driver wrote into the kernel log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Of a GPU: `NVRM: Xid (PCI:0000:3b:00): 119, pid=...`.
    Xid { pci: PciAddress, code: u32 },
    /// Of an NVSwitch: `nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 ...`.
    Sxid {
        pci: PciAddress,
        code: u32,
        severity: &'static str,
    },
}

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("NVRM: Xid (") {
            let (pci, code, _) = address_and_code(rest)?;
            return Some(Self::Xid { pci, code });
        }
        let (driver, rest) = text.split_once(": SXid (")?;
        let (pci, code, rest) = address_and_code(rest)?;
        let severity = match rest.split(',').next().unwrap_or_default().trim() {
            "Fatal" => "fatal",
            "Non-fatal" => "nonfatal",
            // The second and third line about the same fault.
            more if more.starts_with("Severity") || more.starts_with("Data") => return None,
            _ => "",
        };
        driver.starts_with("nvidia-nvswitch").then_some(Self::Sxid {
            pci,
            code,
            severity,
        })
    }
}

/// Reads `PCI:0000:3b:00): 119, ...`; older drivers leave `PCI:` out, and most the function.
fn address_and_code(text: &str) -> Option<(PciAddress, u32, &str)> {
    let (address, rest) = text.split_once("): ")?;
    let address = address.strip_prefix("PCI:").unwrap_or(address);
    let address = if address.contains('.') {
        address.parse()
    } else {
        format!("{address}.0").parse()
    };
    let digits = rest.find(|char: char| !char.is_ascii_digit());
    let (code, rest) = rest.split_at(digits.unwrap_or(rest.len()));
    let rest = rest.trim_start_matches([',', ' ']);
    Some((address.ok()?, code.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_in_every_spelling_and_nothing_else_is_one() {
        let xid = |pci: &str, code| {
            let pci = pci.parse().expect("an address");
            Some(Fault::Xid { pci, code })
        };
        let sxid = |code, severity| {
            let pci = "0000:c3:00.0".parse().expect("an address");
            Some(Fault::Sxid {
                pci,
                code,
                severity,
            })
        };
        for (text, expected) in [
            (
                "NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=x, Timeout",
                xid("0000:3b:00.0", 119),
            ),
            (
                "NVRM: Xid (PCI:0000:3B:00.0): 79, GPU has fallen off the bus.",
                xid("0000:3b:00.0", 79),
            ),
            ("NVRM: Xid (0008:01:00): 31", xid("0008:01:00.0", 31)),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX",
                sxid(20009, "nonfatal"),
            ),
            (
                "nvidia-nvswitch12: SXid (PCI:0000:c3:00.0): 00123, Fatal, Link 46",
                sxid(123, "fatal"),
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 11001",
                sxid(11001, ""),
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 28006, Severity 0 Engine instance 46",
                None,
            ),
            (
                "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 28006, Data {0x00140004}",
                None,
            ),
            ("NVRM: Xid (PCI:0000:3b:00): fell, off", None),
            ("NVRM: Xid (PCI:nowhere): 79", None),
            ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad", None),
            ("audit: comm=\"NVRM: Xid (PCI:0000:3b:00): 79\"", None),
            ("x: SXid (PCI:0000:c3:00.0): 20009, Fatal", None),
        ] {
            assert_eq!(Fault::parse(text), expected, "{text}");
        }
    }
}

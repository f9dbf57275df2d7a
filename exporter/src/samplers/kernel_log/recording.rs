//! A recorded kernel log on its own: what it reports without the node that it is from.

use std::path::{Path, PathBuf};

use super::{Log, Seen};
use crate::sampler::Machine;

/// What a recorded kernel log reports.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    /// Faults and events, by kind and device.
    pub occurrences: Vec<Occurrence>,
    /// Whether any line is a record of a kernel log.
    pub is_readable: bool,
    /// Invalid lines.
    pub unparsed: u64,
}

/// A fault or event of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    /// What happened.
    pub what: What,
    /// The device: its PCI address, interface or name; empty if the log does not report it.
    pub device: String,
    /// How often.
    pub count: u64,
    /// When last, Unix time in seconds, if the log reports it.
    pub last: Option<f64>,
}

/// Kind of a fault or event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An XID of a GPU; `other` beyond the limit of kinds.
    Xid(String),
    /// An SXid of an NVSwitch, and its severity.
    Sxid(String, String),
    /// A hardware event, as in `railscope_kernel_hardware_events_total`.
    Event(String),
}

impl Recording {
    /// Reads a file. `None` if it cannot be read.
    pub fn of(path: &Path) -> Option<Self> {
        // Nothing stands below this root: the log refers to another node.
        let mut machine = Machine::below(Path::new("/dev/null"));
        machine.kmsg = Some(PathBuf::from(path));
        let mut log = Log::new(&machine);
        log.by_address = true;
        log.read().ok()?;
        let one = |what: What, device: &str, seen: &Seen| Occurrence {
            what,
            device: device.to_owned(),
            count: seen.count,
            last: seen.at,
        };
        let mut occurrences = Vec::new();
        for (labels, seen) in &log.xids {
            if let [gpu, code, _] = labels.values().collect::<Vec<_>>()[..] {
                occurrences.push(one(What::Xid(code.to_owned()), gpu, seen));
            }
        }
        for (labels, seen) in &log.sxids {
            if let [switch, code, severity] = labels.values().collect::<Vec<_>>()[..] {
                let what = What::Sxid(code.to_owned(), severity.to_owned());
                occurrences.push(one(what, switch, seen));
            }
        }
        for (labels, seen) in &log.events {
            if let [device, event] = labels.values().collect::<Vec<_>>()[..] {
                occurrences.push(one(What::Event(event.to_owned()), device, seen));
            }
        }
        Some(Self {
            occurrences,
            is_readable: log.is_readable,
            unparsed: log.unparsed,
        })
    }
}

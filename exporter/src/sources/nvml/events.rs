//! XIDs and other events of GPUs. A thread waits for those of each GPU, so that a blocked GPU still reports why;
//! the device in an event, not the thread that received it, determines the GPU of an event.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::HashMap;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use railscope_model::identity::GpuIndex;
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading, Status};

use super::structs::{Event, EventSet, handle_address};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 0x8;
/// Other event types that report about a fault, by NVML's numbers. Omitted are single corrected errors,
/// clock and power events: counters report those better.
const OTHERS: [(u64, &str); 8] = [
    (0x2, "double_bit_ecc"),
    (0x200, "ecc_storm"),
    (0x400, "dram_retirement"),
    (0x800, "dram_retirement_failure"),
    (0x1000, "poison"),
    (0x2000, "fatal_poison"),
    (0x4000, "unavailable"),
    (0x8000, "recovery_action"),
];
/// Distinct XIDs that are distinguished; NVIDIA lists about 170, and a GPU that had more than these has one
/// fault.
const MOST_XIDS: usize = 32;
/// Represents all further XIDs.
const OTHER_XIDS: &str = "other";
/// The `source` of these XIDs.
const SOURCE: &str = "nvml";
/// How long to wait for an event before the GPU is checked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a wait that failed: a lost GPU fails at once, over and over.
const PAUSE: Duration = Duration::from_secs(5);

/// The events of all GPUs.
#[derive(Debug, Default)]
pub(super) struct EventLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// GPUs by the addresses of their handles: an event names its GPU by one.
    handles: HashMap<usize, GpuIndex>,
    /// The status is that of the GPU's event set, none before it was made.
    gpus: BTreeMap<GpuIndex, (Option<Status>, Events)>,
}

/// The events of one GPU.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// By XID, or [`OTHER_XIDS`].
    xids: BTreeMap<String, Seen>,
    others: BTreeMap<&'static str, Seen>,
}

/// How often an event came, and when last, Unix time in seconds.
#[derive(Debug, Default)]
struct Seen {
    count: u64,
    last: f64,
}

impl Seen {
    fn again(&mut self, now: f64) {
        self.count += 1;
        self.last = now;
    }
}

impl EventLog {
    /// Adds a handle of a GPU, if NVML has one. To be called for all GPUs before the first event.
    pub(super) fn add_handle(&self, nvml: &'static Nvml, nvml_index: u32, gpu: GpuIndex) {
        if let Ok(device) = nvml.device_by_index(nvml_index) {
            self.add_address(handle_address(&device), gpu);
        }
    }

    fn add_address(&self, handle: usize, gpu: GpuIndex) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.handles.insert(handle, gpu);
    }

    /// Waits for events by an event set of this GPU until it cannot report any or `say` fails. Calls `say`
    /// with all events of a GPU so far at the beginning, after each event of that GPU, and when the GPU stops or
    /// starts to report them.
    ///
    /// # Errors
    /// What `say` returns.
    pub(super) fn listen<E>(
        &self,
        nvml: &'static Nvml,
        nvml_index: u32,
        gpu: GpuIndex,
        mut say: impl FnMut(GpuIndex, &Events, Status) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = OTHERS.iter().fold(XID, |types, (kind, _)| types | kind);
        loop {
            let device = nvml.device_by_index(nvml_index);
            let set = device.and_then(|device| {
                self.add_address(handle_address(&device), gpu);
                EventSet::new(&device, wanted)
            });
            let error = match set {
                Ok(set) => {
                    self.set_status(gpu, Status::Ok, &mut say)?;
                    loop {
                        match set.wait(PATIENCE) {
                            Ok(Some(event)) => self.hear(event, gpu, unix_time(), &mut say)?,
                            Ok(None) => {}
                            Err(error) => break error,
                        }
                    }
                }
                Err(error) => error,
            };
            let (status, forever) = match error {
                NvmlError::NotSupported
                | NvmlError::FunctionNotFound
                | NvmlError::FailedToLoadSymbol(_) => (Status::Unsupported, true),
                NvmlError::NoPermission => (Status::Denied, true),
                _ => (Status::Failed, false),
            };
            self.set_status(gpu, status, &mut say)?;
            if forever {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Calls `say` if the status has changed. The log stays locked meanwhile, so that what is reported
    /// later is never older.
    fn set_status<E>(
        &self,
        gpu: GpuIndex,
        status: Status,
        say: &mut impl FnMut(GpuIndex, &Events, Status) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, events) = log.gpus.entry(gpu).or_default();
        if known.replace(status) == Some(status) {
            return Ok(());
        }
        say(gpu, events, status)
    }

    /// Counts an event for the GPU whose handle it has, or for the one whose set received it if the handle is
    /// unknown.
    fn hear<E>(
        &self,
        event: Event,
        receiver: GpuIndex,
        now: f64,
        say: &mut impl FnMut(GpuIndex, &Events, Status) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gpu = log.handles.get(&event.device).copied();
        let gpu = gpu.unwrap_or(receiver);
        let (status, events) = log.gpus.entry(gpu).or_default();
        events.hear(event, now);
        say(gpu, events, status.unwrap_or(Status::Ok))
    }
}

impl Events {
    fn hear(&mut self, event: Event, now: f64) {
        if event.kind & XID != 0 {
            let xid = event.data.to_string();
            let room = self.xids.len() < MOST_XIDS || self.xids.contains_key(&xid);
            let name = if room { xid } else { OTHER_XIDS.to_owned() };
            self.xids.entry(name).or_default().again(now);
        }
        for (kind, name) in OTHERS {
            if event.kind & kind != 0 {
                self.others.entry(name).or_default().again(now);
            }
        }
    }

    /// Adds what was received so far.
    pub(super) fn report(&self, gpu: &Labels, reading: &mut NodeReading) {
        for (xid, seen) in &self.xids {
            let labels = gpu.with(xid).with(SOURCE);
            reading.push(&m::GPU_XID_EVENTS, &labels, seen.count);
            reading.push(&m::GPU_XID_TIMESTAMP, &labels, seen.last);
        }
        for (event, seen) in &self.others {
            reading.push(&m::GPU_EVENTS, &gpu.with(event), seen.count);
        }
    }
}

fn unix_time() -> f64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "the edge: NVML does not report when an event happened"
    )]
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: &Events) -> Vec<String> {
        let mut reading = NodeReading::default();
        events.report(&Labels::new(["3"]), &mut reading);
        let samples = reading.samples().iter();
        samples
            .map(|sample| {
                let labels: Vec<_> = sample.labels.values().collect();
                format!("{} {}", labels.join(" "), sample.value.as_f64())
            })
            .collect()
    }

    #[test]
    fn each_xid_is_counted_with_its_last_time() {
        let mut events = Events::default();
        for (kind, data, now) in [
            (8, 79, 10.0),
            (8, 119, 11.0),
            (8, 79, 12.5),
            (0x4000, 0, 13.0),
        ] {
            events.hear(
                Event {
                    kind,
                    data,
                    device: 0,
                },
                now,
            );
        }
        let expected = [
            "3 119 nvml 1",
            "3 119 nvml 11",
            "3 79 nvml 2",
            "3 79 nvml 12.5",
            "3 unavailable 1",
        ];
        assert_eq!(told(&events), expected);
    }

    fn xid(data: u64, device: usize) -> Event {
        let kind = XID;
        Event { kind, data, device }
    }

    /// NVIDIA's mock of NVML delivers an event of any GPU to any event set.
    #[test]
    fn the_device_in_an_event_decides_whose_it_is() {
        let log = EventLog::default();
        let (first, second, third) = (GpuIndex(0), GpuIndex(1), GpuIndex(2));
        log.add_address(0x10, first);
        log.add_address(0x20, second);
        let mut said = Vec::new();
        let mut say = |gpu: GpuIndex, events: &Events, status: Status| {
            said.push((gpu, events.xids.keys().cloned().collect::<Vec<_>>(), status));
            Ok::<(), ()>(())
        };
        log.set_status(second, Status::Failed, &mut say)
            .expect("no error");
        log.hear(xid(79, 0x20), first, 1.0, &mut say)
            .expect("no error");
        log.hear(xid(31, 0x10), third, 2.0, &mut say)
            .expect("no error");
        log.hear(xid(48, 0x30), third, 3.0, &mut say)
            .expect("no error");
        log.set_status(second, Status::Failed, &mut say)
            .expect("no error");
        let xids = |xid: &str| vec![xid.to_owned()];
        assert_eq!(
            said,
            [
                (second, Vec::new(), Status::Failed),
                (second, xids("79"), Status::Failed),
                (first, xids("31"), Status::Ok),
                (third, xids("48"), Status::Ok),
            ]
        );
    }

    #[test]
    fn a_flood_of_different_xids_stays_bounded_and_counted() {
        let mut events = Events::default();
        for data in 0..1000 {
            events.hear(xid(data, 0), 1.0);
        }
        let told = told(&events);
        assert_eq!(told.len(), 2 * (MOST_XIDS + 1));
        assert!(told.contains(&format!("3 other nvml {}", 1000 - MOST_XIDS)));
    }
}

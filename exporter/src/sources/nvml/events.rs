//! XIDs and other events of one GPU, waited for on a thread of their own: a GPU that hangs still tells why.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use railscope_model::metric as m;
use railscope_model::reading::{Labels, NodeReading, Status};

use super::structs::{Event, EventSet};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 0x8;
/// Other event types that tell of a fault, by NVML's numbers. Left out are single corrected errors, clock and
/// power events: counters tell those better.
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
/// Distinct XIDs that are told apart; NVIDIA lists about 170, and a GPU that had more than these has one fault.
const MOST_XIDS: usize = 32;
/// Stands for all XIDs beyond.
const OTHER_XIDS: &str = "other";
/// The `source` of these XIDs.
const SOURCE: &str = "nvml";
/// How long to wait for an event before the GPU is looked at anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a wait that failed: a lost GPU fails at once, over and over.
const PAUSE: Duration = Duration::from_secs(5);

/// What was heard of one GPU.
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

impl Events {
    /// Waits for events of this GPU until it cannot tell any or `say` fails, and says all that was heard so
    /// far at the beginning, after each event, and when the GPU stops or starts to tell them.
    ///
    /// # Errors
    /// What `say` says.
    pub(super) fn listen<E>(
        mut self,
        nvml: &'static Nvml,
        nvml_index: u32,
        mut say: impl FnMut(&Self, Status) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = OTHERS.iter().fold(XID, |types, (kind, _)| types | kind);
        let mut said = None;
        loop {
            let device = nvml.device_by_index(nvml_index);
            let set = device.and_then(|device| EventSet::new(&device, wanted));
            let error = match set {
                Ok(set) => {
                    if said.replace(Status::Ok) != Some(Status::Ok) {
                        say(&self, Status::Ok)?;
                    }
                    loop {
                        match set.wait(PATIENCE) {
                            Ok(Some(event)) => self.hear(event, unix_time()),
                            Ok(None) => continue,
                            Err(error) => break error,
                        }
                        say(&self, Status::Ok)?;
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
            if said.replace(status) != Some(status) {
                say(&self, status)?;
            }
            if forever {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }

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

    /// Adds what was heard so far.
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
        reason = "the edge: NVML does not say when an event happened"
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
            events.hear(Event { kind, data }, now);
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

    #[test]
    fn a_flood_of_different_xids_stays_bounded_and_counted() {
        let mut events = Events::default();
        for data in 0..1000 {
            events.hear(Event { kind: 8, data }, 1.0);
        }
        let told = told(&events);
        assert_eq!(told.len(), 2 * (MOST_XIDS + 1));
        assert!(told.contains(&format!("3 other nvml {}", 1000 - MOST_XIDS)));
    }
}

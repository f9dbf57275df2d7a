//! Which messages of the last seconds were about the same thing: several lines about one event count once.

use super::events::{Event, Mode};
use crate::sources::kmsg::Time;

/// The kernel prints the lines about one error together; logs with whole seconds may part them.
const TOGETHER: u64 = 2;
/// A driver's reset, and its report of a GPU after its XID 79, take some seconds.
const EPISODE: u64 = 10;
/// Notes that are kept; the oldest is dropped first.
const MOST_NOTES: usize = 256;
/// XID "GPU has fallen off the bus".
const OFF_THE_BUS: u32 = 79;
const MACHINE_CHECK: &str = "machine_check";
const GPU_LOST: &str = "gpu_lost";

#[derive(Debug)]
struct Note {
    event: &'static str,
    device: String,
    time: Option<Time>,
}

/// Other possible subjects of the next messages.
#[derive(Debug, Default)]
pub(super) struct Recent {
    notes: Vec<Note>,
    /// Machine checks were logged then, and no message has reported which.
    summary: Option<Option<Time>>,
    /// The GPU that NVIDIA's driver began a message of several lines about.
    named: Option<(String, Option<Time>)>,
}

/// Whether two records are at most so many seconds apart; where a format has no times, they are.
fn are_close(a: Option<Time>, b: Option<Time>, seconds: u64) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a
            .seconds_between(b)
            .is_some_and(|between| between <= seconds),
        _ => false,
    }
}

impl Recent {
    /// Sets the address of a GPU that fell off the bus, if that was in a separate line.
    pub(super) fn name_gpu(&mut self, text: &str, time: Option<Time>, event: Option<&mut Event>) {
        if let Some(rest) = text.strip_prefix("NVRM: The NVIDIA GPU ") {
            let address = rest.split([' ', '\\', '#', '\n']).next();
            self.named = address.map(|address| (address.to_owned(), time));
        }
        if let Some(event) = event
            && event.name == GPU_LOST
            && event.device.is_empty()
            && let Some((named, at)) = &self.named
            && are_close(*at, time, TOGETHER)
        {
            event.device.clone_from(named);
        }
    }

    /// A GPU's XID.
    pub(super) fn see_xid(&mut self, device: String, code: u32, time: Option<Time>) {
        if code == OFF_THE_BUS {
            self.note(GPU_LOST, device, time);
        }
    }

    /// Whether the event is a new one.
    pub(super) fn is_new(&mut self, event: &Event, time: Option<Time>) -> bool {
        let (name, device) = (event.name, &event.device);
        match event.mode {
            Mode::Each => {
                if name.starts_with(MACHINE_CHECK) {
                    self.summary = self
                        .summary
                        .filter(|summary| !are_close(*summary, time, TOGETHER));
                    self.note(MACHINE_CHECK, device.clone(), time);
                }
                true
            }
            Mode::First => {
                self.note(name, device.clone(), time);
                true
            }
            Mode::Detail => !self.has(name, None, time, TOGETHER),
            Mode::OnePerDevice => {
                let is_new = !self.has(name, Some(device), time, EPISODE);
                if is_new {
                    self.note(name, device.clone(), time);
                }
                is_new
            }
            Mode::UnlessXid => !self.has(GPU_LOST, Some(device), time, EPISODE),
            Mode::Summary => {
                if self.has(MACHINE_CHECK, None, time, TOGETHER) {
                    return false;
                }
                // The one before, if any, was of errors that nothing has reported more of.
                self.summary.replace(time).is_some()
            }
        }
    }

    /// Machine checks that were logged, and that no message up to here has reported more of: their
    /// time.
    pub(super) fn end_summary(&mut self) -> Option<Option<Time>> {
        self.summary.take()
    }

    fn has(
        &self,
        event: &'static str,
        device: Option<&String>,
        time: Option<Time>,
        seconds: u64,
    ) -> bool {
        self.notes.iter().any(|note| {
            note.event == event
                && device.is_none_or(|device| note.device == *device)
                && are_close(note.time, time, seconds)
        })
    }

    fn note(&mut self, event: &'static str, device: String, time: Option<Time>) {
        self.notes
            .retain(|note| (note.event, &note.device) != (event, &device));
        if self.notes.len() == MOST_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(Note {
            event,
            device,
            time,
        });
    }
}

//! Shared by all device samplers: when to search for devices, which are the same, why values are missing.

use std::time::{Duration, Instant};

use railscope_model::metric::SOURCE_ERRORS;
use railscope_model::reading::{Labels, NodeReading};

use crate::sources::sysfs::Miss;

/// How often to describe devices again. Added and removed devices trigger a search at once.
pub(super) const REDISCOVER: Duration = Duration::from_secs(30);

/// When to search for devices again.
#[derive(Debug, Default)]
pub(super) struct Schedule(Option<Instant>);

impl Schedule {
    /// Whether it is time; if so, the next time is [`REDISCOVER`] from now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.0.is_none_or(|next| now >= next);
        if due {
            self.0 = Some(now + REDISCOVER);
        }
        due
    }

    /// Searches again at the next sample.
    pub(super) fn hurry(&mut self) {
        self.0 = None;
    }
}

/// The names of the devices at the last sample.
#[derive(Debug, Default)]
struct Roll {
    names: Option<Vec<String>>,
    changed: bool,
}

impl Roll {
    /// Whether a device was added or removed at this or the previous sample: a new one may still
    /// be creating files. Not at the first sample, which searches for all of them anyway.
    fn has_changed(&mut self, names: Vec<String>) -> bool {
        let changed_before = self.changed;
        let names = Some(names);
        self.changed = self.names.is_some() && self.names != names;
        self.names = names;
        self.changed || changed_before
    }
}

/// Devices being watched: searched for periodically, and at once after one was added or removed.
#[derive(Debug)]
pub(super) struct Fleet<D> {
    schedule: Schedule,
    roll: Roll,
    devices: Vec<D>,
    absent: Option<Miss>,
}

impl<D> Default for Fleet<D> {
    fn default() -> Self {
        Self {
            schedule: Schedule::default(),
            roll: Roll::default(),
            devices: Vec::new(),
            absent: None,
        }
    }
}

impl<D> Fleet<D> {
    /// Sets the names of all current devices: if they have changed, a search is due.
    pub(super) fn call(&mut self, names: Vec<String>) {
        if self.roll.has_changed(names) {
            self.schedule.hurry();
        }
    }

    /// Searches for devices if it is due: `find` gets those that are known and returns all current ones,
    /// of which none is [`Miss::Absent`]. Returns why there are none.
    pub(super) fn look(
        &mut self,
        find: impl FnOnce(&mut Known<D>) -> Result<Vec<D>, Miss>,
    ) -> Option<Miss> {
        if self.schedule.is_due() {
            let mut known = Known(std::mem::take(&mut self.devices));
            let found = find(&mut known);
            self.absent = found.as_ref().err().copied();
            self.devices = found.unwrap_or_default();
            if self.absent.is_none() && self.devices.is_empty() {
                self.absent = Some(Miss::Absent);
            }
        }
        self.absent
    }

    /// Samples every device; of one that is gone `sample` reports false.
    pub(super) fn sample(&mut self, sample: impl FnMut(&mut D) -> bool) {
        let before = self.devices.len();
        self.devices.retain_mut(sample);
        if self.devices.len() < before {
            self.schedule.hurry();
        }
    }
}

/// Devices that were known before a search.
#[derive(Debug)]
pub(super) struct Known<D>(Vec<D>);

impl<D> Known<D> {
    /// The device that is still the same, with its open files and with the requests that its driver refused
    /// before.
    pub(super) fn take(&mut self, is_same: impl Fn(&D) -> bool) -> Option<D> {
        let place = self.0.iter().position(is_same)?;
        Some(self.0.swap_remove(place))
    }
}

/// Why values are missing: for the device being read, and how many since the start.
#[derive(Debug)]
pub(super) struct Misses {
    source: &'static str,
    of_device: Vec<Miss>,
    errors: u64,
}

impl Misses {
    /// No error of this source yet.
    pub(super) fn new(source: &'static str) -> Self {
        Self {
            source,
            of_device: Vec::new(),
            errors: 0,
        }
    }

    /// Remembers a miss. An absent file is no news: it is simply not reported.
    pub(super) fn note(&mut self, miss: Miss) {
        if miss == Miss::Absent {
            return;
        }
        self.errors += u64::from(matches!(miss, Miss::Unparsed | Miss::Failed));
        if !self.of_device.contains(&miss) {
            self.of_device.push(miss);
        }
    }

    /// The value, or none after recording the error.
    pub(super) fn keep<T>(&mut self, read: Result<T, Miss>) -> Option<T> {
        read.map_err(|miss| self.note(miss)).ok()
    }

    /// Forgets the device being read: it is gone.
    pub(super) fn forget(&mut self) {
        self.of_device.clear();
    }

    /// Writes one status for each kind of miss of the device that was read.
    pub(super) fn end_device(&mut self, reading: &mut NodeReading, device: &str) {
        for miss in self.of_device.drain(..) {
            reading.push_status(self.source, device, miss.into());
        }
    }

    /// Writes how many reads of single values have failed since the start.
    pub(super) fn end_source(&self, reading: &mut NodeReading) {
        reading.push(&SOURCE_ERRORS, &Labels::new([self.source]), self.errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_comes_or_goes_is_looked_at_twice() {
        let mut roll = Roll::default();
        for (names, expected) in [
            ("a", false),
            ("a", false),
            ("a b", true),
            ("b", true),
            ("b", true),
            ("b", false),
        ] {
            let names = names.split_whitespace().map(str::to_owned).collect();
            assert_eq!(roll.has_changed(names), expected);
        }
    }
}

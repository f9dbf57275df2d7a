//! Results of probes, by NIC and by class of paths.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::path_class::PathClass;
use railscope_model::reading::Latencies;

use super::tally::{QUANTILES, Recent, Sketched, Times};
use crate::sources::sysfs::Miss;

/// What became of the probes of one of our NICs.
#[derive(Debug, Clone)]
pub struct DeviceReport {
    /// As the list names it.
    pub device: String,
    /// Answered or given up.
    pub sent: u64,
    /// Not answered in time.
    pub lost: u64,
    /// Longest round trip of the last minute, nanoseconds; none without one.
    pub longest_nanos: Option<u64>,
    /// All round trips.
    pub round_trips: Times,
    /// Why some of its probes cannot be sent.
    pub misses: BTreeSet<Miss>,
}

/// What became of the probes of all paths of one class.
#[derive(Debug, Clone)]
pub struct ClassReport {
    /// Which.
    pub path_class: PathClass,
    /// Not answered in time.
    pub lost: u64,
    /// All round trips.
    pub round_trips: Latencies,
    /// Quantiles of the round trips of the last five minutes, nanoseconds, in the order of [`QUANTILES`]; none without any.
    pub quantiles_nanos: Option<[u64; QUANTILES.len()]>,
}

/// Counts of all probes of one prober.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    devices: BTreeMap<String, Device>,
    classes: BTreeMap<PathClass, OfClass>,
}

/// One of our NICs.
#[derive(Debug, Default)]
struct Device {
    sent: u64,
    lost: u64,
    recent: Recent,
    round_trips: Times,
}

/// All paths of one class.
#[derive(Debug, Default)]
struct OfClass {
    lost: u64,
    round_trips: Latencies,
    sketched: Sketched,
}

impl Accounts {
    /// Keeps these NICs, and no others.
    pub(super) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        let mut kept = BTreeMap::new();
        for name in names {
            let known = self.devices.remove(name).unwrap_or_default();
            kept.insert(name.clone(), known);
        }
        self.devices = kept;
    }

    /// Adds the results of probes of a NIC over a class of paths: how many were lost, and the round trips of the others,
    /// nanoseconds, where they are known.
    pub(super) fn take(
        &mut self,
        (device, class): (&str, PathClass),
        now: u64,
        lost: u64,
        answered: &[Option<u64>],
    ) {
        if lost == 0 && answered.is_empty() {
            return;
        }
        let of_class = self.classes.entry(class).or_default();
        of_class.lost += lost;
        for nanos in answered.iter().flatten() {
            of_class.round_trips.note(*nanos);
            of_class.sketched.note(now, *nanos);
        }
        if let Some(device) = self.devices.get_mut(device) {
            device.sent += lost + answered.len() as u64;
            device.lost += lost;
            for nanos in answered.iter().flatten() {
                device.round_trips.note(*nanos);
                device.recent.note(now, *nanos);
            }
        }
    }

    /// All of it; the caller adds why probes of a NIC could not be sent.
    pub(super) fn reports(
        &mut self,
        now: u64,
        misses: impl Fn(&str) -> BTreeSet<Miss>,
    ) -> (Vec<DeviceReport>, Vec<ClassReport>) {
        let devices = self.devices.iter_mut().map(|(name, device)| DeviceReport {
            device: name.clone(),
            misses: misses(name),
            sent: device.sent,
            lost: device.lost,
            longest_nanos: device.recent.longest(now),
            round_trips: device.round_trips,
        });
        let classes = self
            .classes
            .iter_mut()
            .map(|(class, of_class)| ClassReport {
                path_class: *class,
                lost: of_class.lost,
                round_trips: of_class.round_trips.clone(),
                quantiles_nanos: of_class.sketched.quantiles(now),
            });
        (devices.collect(), classes.collect())
    }
}

//! Virtual functions from the host: what each sends and receives, and what its physical function allows it.

use std::time::Duration;

use railscope_model::metric::{
    Metric, VF, VF_CAST_PACKETS, VF_DISCARDS, VF_MAX_TRANSMIT, VF_RECEIVE_BYTES,
    VF_RECEIVE_PACKETS, VF_TRANSMIT_BYTES, VF_TRANSMIT_PACKETS,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::{Fleet, Known, Misses};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::ethtool::{self, Counts, NicSource, VirtualFunction};
use crate::sources::net::{self, Netdev};
use crate::sources::sysfs::{Buffer, Miss, Root};

/// Source label.
const NAME: &str = "vf";

/// Name of a counter in drivers' files -> metric and its labels behind the function's.
const COUNTS: &[(&str, &Metric, &[&str])] = &[
    ("rx_bytes", &VF_RECEIVE_BYTES, &[]),
    ("tx_bytes", &VF_TRANSMIT_BYTES, &[]),
    ("rx_packets", &VF_RECEIVE_PACKETS, &[]),
    ("tx_packets", &VF_TRANSMIT_PACKETS, &[]),
    ("rx_broadcast", &VF_CAST_PACKETS, &["broadcast", "receive"]),
    ("rx_multicast", &VF_CAST_PACKETS, &["multicast", "receive"]),
    ("tx_broadcast", &VF_CAST_PACKETS, &["broadcast", "transmit"]),
    ("tx_multicast", &VF_CAST_PACKETS, &["multicast", "transmit"]),
    ("rx_dropped", &VF_DISCARDS, &["receive"]),
    ("tx_dropped", &VF_DISCARDS, &["transmit"]),
];

struct Vf {
    root: Root,
    network: Box<dyn NicSource>,
    physical: Fleet<Netdev>,
    misses: Misses,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Vf {
        root: Root::new(&machine.sysfs),
        network: machine.network.nics(),
        physical: Fleet::default(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Vf {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The driver sends its firmware a request for each function, all of them under the lock
    /// that every change of the network waits for.
    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let root = &self.root;
        let look = |_: &mut Known<_>| net::physical_functions(&root.open()?, &mut buffer);
        if let Some(miss) = self.physical.look(look) {
            return Ok(Presence::Absent(miss.into()));
        }
        let (network, misses) = (self.network.as_mut(), &mut self.misses);
        self.physical
            .sample(|physical| sample(physical, network, reading, misses, &mut buffer));
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

/// Reads the functions that there are now; false if the physical one is gone.
fn sample(
    physical: &mut Netdev,
    network: &mut dyn NicSource,
    reading: &mut NodeReading,
    misses: &mut Misses,
    buffer: &mut Buffer,
) -> bool {
    if !physical.dir.has("device") {
        return false;
    }
    let addresses = physical.virtual_functions();
    if addresses.is_empty() {
        return true;
    }
    let name = &physical.nic.name;
    let told = network.virtual_functions(&physical.nic);
    if told == Err(Miss::Absent) {
        // Nothing to read: a tree without a recording, or another network namespace than ours.
        reading.push_status(NAME, name, Status::Absent);
    }
    let told = misses.keep(told).unwrap_or_default();
    // A kernel writes zeros for a driver that counts nothing.
    let counts = |function: &VirtualFunction| function.counts.iter().any(|(_, count)| *count > 0);
    let driver_counts = told.iter().any(counts);
    for (number, address) in addresses {
        let labels = Labels::new([name.as_str(), &number.to_string(), &text(address)]);
        let function = told.iter().find(|function| function.number == number);
        if let Some(function) = function {
            push_settings(function, &labels, reading);
        }
        let in_answer = function.filter(|_| driver_counts);
        let in_answer = in_answer.map(|function| function.counts.clone());
        let in_files = physical.hardware.as_ref().map_or(Err(Miss::Absent), |dir| {
            ethtool::counted(dir, number, buffer)
        });
        if let Some(counts) = misses.keep(in_files).or(in_answer) {
            push_counts(&counts, &labels, reading);
        }
    }
    misses.end_device(reading, name);
    true
}

fn push_settings(function: &VirtualFunction, labels: &Labels, reading: &mut NodeReading) {
    let switch = |on: Option<bool>| match on {
        Some(true) => "on",
        Some(false) => "off",
        None => "",
    };
    let about = labels
        .with(switch(function.trust))
        .with(switch(function.spoof_check))
        .with(function.link_state.unwrap_or_default())
        .with(text(function.vlan.filter(|vlan| *vlan > 0)))
        .with(text(function.port_guid));
    reading.push(&VF, &about, true);
    let limit = function.max_transmit_bytes_per_second;
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        reading.push(&VF_MAX_TRANSMIT, labels, limit);
    }
}

fn push_counts(counts: &Counts, labels: &Labels, reading: &mut NodeReading) {
    for (name, metric, words) in COUNTS {
        if let Some((_, count)) = counts.iter().find(|(other, _)| other == name) {
            let all = labels.values().chain(words.iter().copied());
            reading.push(metric, &Labels::new(all), *count);
        }
    }
}

fn text(value: Option<impl std::fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

//! Replies to other nodes' probes: how long they took here, and at which addresses they are sent. Only if the
//! exporter is configured to respond.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use railscope_model::metric::{NETDEV_ADDRESS, PROBE_RESPONDER};
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::{Misses, Schedule};
use super::prober::histogram;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::ethtool::NicSource;
use crate::sources::probe::{
    Answered, LocalNic, RdmaAccess, Responder, Times, interface_name, of_rdma,
};
use crate::sources::sysfs::{Miss, Root};

/// Source label.
const NAME: &str = "responder";
/// Transport of the probes that it responds to: the label `transport`.
const TRANSPORT: &str = "udp";

struct ResponderSampler {
    listen: Vec<SocketAddr>,
    rdma: Option<RdmaAccess>,
    sysfs: Root,
    network: Box<dyn NicSource>,
    responder: Option<Responder>,
    schedule: Schedule,
    nics: Vec<LocalNic>,
    /// Names of interfaces by index, since they were last read.
    names: BTreeMap<u32, String>,
    before: Answered,
    misses: Misses,
}

/// Builds the sampler if the exporter responds to probes.
pub fn build(machine: &Machine) -> Option<Box<dyn Sampler>> {
    let listen = machine.probes.listen.clone();
    if listen.is_empty() {
        return None;
    }
    Some(Box::new(ResponderSampler {
        listen,
        rdma: machine.probes.rdma.clone(),
        sysfs: Root::new(&machine.sysfs),
        network: machine.network.nics(),
        responder: None,
        schedule: Schedule::default(),
        nics: Vec::new(),
        names: BTreeMap::new(),
        before: Answered::default(),
        misses: Misses::new(NAME),
    }))
}

impl Sampler for ResponderSampler {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The responder runs by itself; this only reads its counts.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let responder = match self.responder.take() {
            Some(responder) => responder,
            None => Responder::start(&self.listen, self.rdma.clone())
                .map_err(|error| self.cannot_listen(error))?,
        };
        let answered = self.responder.insert(responder).answered();
        if self.schedule.is_due() {
            self.names.clear();
            self.nics = match of_rdma(&self.sysfs, self.network.as_mut()) {
                // No RDMA: then interfaces go by their own names.
                Err(Miss::Absent) => Vec::new(),
                found => self.misses.keep(found).unwrap_or_default(),
            };
        }
        self.push_addresses(reading);
        self.push_times(reading, &answered);
        self.push_dropped(reading, answered);
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl ResponderSampler {
    fn cannot_listen(&self, error: io::Error) -> SampleError {
        let addresses = self.listen.iter().map(ToString::to_string);
        SampleError {
            what: format!("listen on {}", addresses.collect::<Vec<_>>().join(", ")),
            cause: error,
        }
    }

    fn push_addresses(&mut self, reading: &mut NodeReading) {
        for nic in &self.nics {
            for address in self.misses.keep(nic.addresses.clone()).unwrap_or_default() {
                let labels = Labels::new([nic.netdev.clone(), address.to_string()]);
                reading.push(&NETDEV_ADDRESS, &labels, true);
            }
            self.misses.end_device(reading, &nic.device);
        }
    }

    fn push_times(&mut self, reading: &mut NodeReading, answered: &Answered) {
        let mut by_device: BTreeMap<String, Times> = BTreeMap::new();
        for (index, times) in &answered.by_interface {
            let device = self.device(*index);
            by_device.entry(device).or_default().add(times);
        }
        for (device, times) in &by_device {
            let times = histogram(times).map_err(|_| Miss::Failed);
            if let Some(times) = self.misses.keep(times) {
                reading.push(
                    &PROBE_RESPONDER,
                    &Labels::new([&**device, TRANSPORT]),
                    times,
                );
            }
        }
    }

    /// The NIC that an interface belongs to, by the name that it has in other series.
    fn device(&mut self, index: u32) -> String {
        let name = self
            .names
            .entry(index)
            .or_insert_with(|| interface_name(index).unwrap_or_default());
        let of = |nic: &&LocalNic| nic.netdev == *name || nic.interface == *name;
        let nic = self.nics.iter().find(of);
        nic.map_or(&*name, |nic| &nic.device).clone()
    }

    /// Reports requests that were not answered since the last sample.
    fn push_dropped(&mut self, reading: &mut NodeReading, answered: Answered) {
        let before = std::mem::replace(&mut self.before, answered);
        let now = &self.before;
        for (device, miss, from, to) in [
            ("packets", Miss::Unparsed, before.unparsed, now.unparsed),
            ("limit", Miss::Failed, before.limited, now.limited),
            ("answers", Miss::Failed, before.failed, now.failed),
        ] {
            for _ in from..to {
                self.misses.note(miss);
            }
            self.misses.end_device(reading, device);
        }
    }
}

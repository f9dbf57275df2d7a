//! The counters of every port that is cabled, from the performance management agent of its device.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::identity::Guid;

use super::discover::{Discovery, Found};
use super::flight::{Failure, Job, Queue, Work};
use super::mad::{ALL_PORTS, Attribute, Bytes, Capabilities, Destination, Field};
use crate::fabric::subnet::NodeKind;
use crate::fabric::subnet::counters::{COUNTERS, DeviceReading, PortCounters, PortReading};

/// Where each of the [`PortCounters`] stands (InfiniBand Architecture Specification, volume 1, 16.1.3.5 and 16.1.4.11).
pub(super) const FIELDS: [Field; COUNTERS] = [
    field(192, 32, 8),   // PortXmitData
    field(224, 32, 16),  // PortRcvData
    field(256, 32, 24),  // PortXmitPkts
    field(288, 32, 32),  // PortRcvPkts
    field(32, 16, 72),   // SymbolErrorCounter
    field(48, 8, 80),    // LinkErrorRecoveryCounter
    field(56, 8, 88),    // LinkDownedCounter
    field(64, 16, 96),   // PortRcvErrors
    field(80, 16, 104),  // PortRcvRemotePhysicalErrors
    field(96, 16, 112),  // PortRcvSwitchRelayErrors
    field(112, 16, 120), // PortXmitDiscards
    field(128, 8, 128),  // PortXmitConstraintErrors
    field(136, 8, 136),  // PortRcvConstraintErrors
    field(152, 4, 144),  // LocalLinkIntegrityErrors
    field(156, 4, 152),  // ExcessiveBufferOverrunErrors
    field(176, 16, 160), // VL15Dropped
    field(320, 32, 168), // PortXmitWait
];
/// Bytes and packets: the first of [`FIELDS`].
const TRAFFIC: usize = 4;
/// The place of PortXmitWait, which not every agent has.
const TRANSMIT_WAIT: usize = COUNTERS - 1;

const fn field(bit: usize, bits: u32, wide: usize) -> Field {
    Field {
        narrow: (bit, bits),
        wide,
    }
}

/// What the agents of known devices can count. It does not change while they run, so it is requested once.
pub(super) type KnownAgents = HashMap<Guid, Capabilities, FixedState>;

#[derive(Debug, Clone, Default)]
struct Device {
    capabilities: Capabilities,
    /// Ports with a cable, and what they have counted.
    ports: Vec<(u8, Option<PortCounters>)>,
    silent: bool,
}

/// The count.
pub(super) struct Count<'a> {
    discovery: &'a Discovery,
    known: &'a mut KnownAgents,
    devices: Vec<Device>,
    /// Ports of devices that have no LID, which cannot be read.
    pub(super) without_lid: usize,
}

impl<'a> Count<'a> {
    /// Requests the counters of every device.
    pub(super) fn begin(
        discovery: &'a Discovery,
        known: &'a mut KnownAgents,
        queue: &mut Queue,
    ) -> Self {
        let mut count = Self {
            discovery,
            known,
            devices: Vec::with_capacity(discovery.nodes.len()),
            without_lid: 0,
        };
        for (node, found) in (0..).zip(&discovery.nodes) {
            let up = |port: &u8| {
                found.ports[usize::from(*port)]
                    .info
                    .is_some_and(|info| info.link_up())
            };
            let (ports, without): (Vec<u8>, Vec<u8>) = (1..=found.info.ports)
                .filter(up)
                .partition(|port| found.lid(*port).is_some());
            count.without_lid += without.len();
            let first = ports.first().copied();
            count.devices.push(Device {
                ports: ports.into_iter().map(|port| (port, None)).collect(),
                ..Device::default()
            });
            match (first, count.known.get(&found.info.guid).copied()) {
                (None, _) => {}
                (Some(_), Some(capabilities)) => count.ask(node, capabilities, queue),
                (Some(port), None) => {
                    queue.push(Job::new(node, node, port, Attribute::ClassPortInfo));
                }
            }
        }
        count
    }

    fn ask(&mut self, node: u32, capabilities: Capabilities, queue: &mut Queue) {
        let device = &mut self.devices[node as usize];
        device.capabilities = capabilities;
        let sums = capabilities.all_ports && device.ports.len() > 1;
        if sums && capabilities.extended && !capabilities.extended_errors {
            // A switch on which no port has an error reports it with one MAD.
            let port = device.ports[0].0;
            queue.push(Job::new(
                node,
                node,
                port,
                Attribute::PortCounters(ALL_PORTS),
            ));
        } else if !capabilities.extended_errors {
            self.ask_each(node, Attribute::PortCounters, queue);
        }
        if capabilities.extended {
            self.ask_each(node, Attribute::PortCountersExtended, queue);
        }
    }

    fn ask_each(&self, node: u32, attribute: fn(u8) -> Attribute, queue: &mut Queue) {
        for (port, _) in &self.devices[node as usize].ports {
            queue.push(Job::new(node, node, *port, attribute(*port)));
        }
    }

    /// Notes the counters of a port that one MAD holds.
    fn note(&mut self, node: u32, port: u8, places: std::ops::Range<usize>, read: &Read<'_>) {
        let device = &mut self.devices[node as usize];
        let has_wait = device.capabilities.transmit_wait || device.capabilities.extended_errors;
        let of_port = device.ports.iter_mut().find(|(known, _)| *known == port);
        let Some((_, counters)) = of_port else { return };
        let counters = counters.get_or_insert_default();
        for place in places.filter(|place| has_wait || *place != TRANSMIT_WAIT) {
            let field = &FIELDS[place];
            match read {
                Read::Narrow(mad) => counters.set(place, field.narrow(mad), field.narrow.1),
                Read::Wide(mad) => counters.set(place, field.wide(mad), u64::BITS),
                Read::Zero => counters.set(place, 0, field.narrow.1),
            }
        }
    }

    /// What is known of every port now.
    pub(super) fn readings(self) -> Vec<DeviceReading> {
        let devices = self.discovery.nodes.iter().zip(&self.devices);
        devices
            .filter(|(found, _)| found.info.kind != NodeKind::Router)
            .map(|(found, device)| reading(found, device))
            .collect()
    }
}

/// How counters are read.
enum Read<'a> {
    Narrow(&'a Bytes),
    Wide(&'a Bytes),
    /// The sum over all ports is zero.
    Zero,
}

fn reading(found: &Found, device: &Device) -> DeviceReading {
    let ports = (1..=found.info.ports).filter_map(|port| {
        let info = found.ports[usize::from(port)].info?;
        let counted = device.ports.iter().find(|(known, _)| *known == port);
        Some(PortReading {
            port,
            active: info.active(),
            speed: found.speed(port),
            counters: counted.and_then(|(_, counters)| *counters),
        })
    });
    DeviceReading {
        guid: found.info.guid,
        kind: found.info.kind,
        vendor: found.info.vendor,
        device: found.info.device,
        ports: ports.collect(),
    }
}

/// Whether the sum over all ports is zero for every counter that only PortCounters has.
fn no_port_has_errors(mad: &Bytes) -> bool {
    FIELDS[TRAFFIC..].iter().all(|field| field.narrow(mad) == 0)
}

impl Work for Count<'_> {
    fn destination(&self, job: &Job) -> Option<Destination> {
        let device = self.devices.get(job.node as usize)?;
        let found = self.discovery.nodes.get(job.node as usize)?;
        let lid = found.lid(job.port)?;
        (!device.silent).then_some(Destination::Lid(lid))
    }

    fn answered(&mut self, job: &Job, mad: &Bytes, queue: &mut Queue) {
        let node = job.node;
        let capabilities = self.devices[node as usize].capabilities;
        let traffic_elsewhere = capabilities.extended;
        let narrow = if traffic_elsewhere { TRAFFIC } else { 0 }..COUNTERS;
        match job.attribute {
            Attribute::ClassPortInfo => {
                let capabilities = Capabilities::read(mad);
                let guid = self.discovery.nodes[node as usize].info.guid;
                self.known.insert(guid, capabilities);
                self.ask(node, capabilities, queue);
            }
            Attribute::PortCounters(ALL_PORTS) if no_port_has_errors(mad) => {
                let ports = self.devices[node as usize].ports.clone();
                for (port, _) in ports {
                    self.note(node, port, narrow.clone(), &Read::Zero);
                }
            }
            Attribute::PortCounters(ALL_PORTS) => {
                self.ask_each(node, Attribute::PortCounters, queue);
            }
            Attribute::PortCounters(port) => self.note(node, port, narrow, &Read::Narrow(mad)),
            Attribute::PortCountersExtended(port) => {
                let wide = if capabilities.extended_errors {
                    COUNTERS
                } else {
                    TRAFFIC
                };
                self.note(node, port, 0..wide, &Read::Wide(mad));
            }
            _ => {}
        }
    }

    fn failed(&mut self, job: &Job, why: Failure, _: &mut Queue) {
        // An agent that leaves one request unanswered will not reply to the others of this sweep.
        self.devices[job.node as usize].silent |= why == Failure::Silent;
        if why == Failure::Refused {
            // Its firmware may have changed since its capabilities were read.
            let guid = self.discovery.nodes[job.node as usize].info.guid;
            self.known.remove(&guid);
        }
    }
}

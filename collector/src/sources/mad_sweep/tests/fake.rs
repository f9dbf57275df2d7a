//! A fabric in memory that replies to MADs: it drops them, does not reply or returns wrong data as a test requires.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::mad::{ALL_PORTS, Bytes, Destination};
use super::super::transport::{Received, Transport};

const DATA: usize = 64;

/// One device. Ports begin at 1; place 0 is unused.
#[derive(Clone, Default)]
pub(super) struct Device {
    pub(super) switch: bool,
    pub(super) guid: u64,
    pub(super) name: String,
    pub(super) lid: u16,
    /// Device and port at the other end.
    pub(super) cables: Vec<Option<(usize, u8)>>,
    /// Ports that report they are down, whatever is plugged in.
    pub(super) down: HashSet<u8>,
    /// Attributes that it does not reply to, and those that it refuses.
    pub(super) mute: HashSet<u16>,
    pub(super) refuses: HashSet<u16>,
    /// ClassPortInfo: both capability masks.
    pub(super) capabilities: (u16, u32),
    /// PortCounters and PortCountersExtended by port: bytes at a place of the attribute.
    pub(super) narrow: HashMap<u8, Vec<(usize, Vec<u8>)>>,
    pub(super) wide: HashMap<u8, Vec<(usize, Vec<u8>)>>,
    /// SwitchInfo: entries of the linear table, its highest LID, and whether a port has changed.
    pub(super) linear: (u16, u16, bool),
    /// The port of each LID.
    pub(super) forwards: HashMap<u16, u8>,
}

/// What the transport saw.
#[derive(Default, Clone)]
pub(super) struct Seen {
    /// Most requests in flight at a time: in all, and at one switch or agent.
    pub(super) most: usize,
    pub(super) most_at_one: usize,
    /// Attribute ids of performance questions, with how often each came.
    pub(super) performance: HashMap<u16, usize>,
    /// The same of subnet management questions.
    pub(super) management: HashMap<u16, usize>,
}

pub(super) struct Fake {
    pub(super) devices: Vec<Device>,
    /// Every so many-th request is lost: silently, or with a time-out.
    pub(super) lose_each: Option<(usize, bool)>,
    sent: usize,
    flying: VecDeque<(usize, Option<Bytes>, Bytes)>,
    at: HashMap<usize, usize>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl Fake {
    pub(super) fn new(devices: Vec<Device>) -> Self {
        Self {
            devices,
            lose_each: None,
            sent: 0,
            flying: VecDeque::new(),
            at: HashMap::new(),
            seen: Arc::default(),
        }
    }

    /// Device at the end of a route, the port by which it is reached, and the last switch that passes a question on.
    fn walk(&self, path: &[u8]) -> Option<(usize, u8, usize)> {
        let (mut device, mut port, mut busy) = (0, 1, 0);
        for (hop, out) in path.iter().enumerate() {
            let here = &self.devices[device];
            // Adapters forward nothing, but the first one sends.
            if hop > 0 && !here.switch || here.down.contains(out) {
                return None;
            }
            let next = *here.cables.get(usize::from(*out))?.as_ref()?;
            if here.switch {
                busy = device;
            }
            (device, port) = next;
        }
        Some((device, port, busy))
    }

    fn answer(&self, to: &Destination, question: &Bytes) -> (usize, Option<Bytes>) {
        let found = match to {
            Destination::Directed(path) => self.walk(path.ports()),
            Destination::Lid(lid) => {
                let place = self.devices.iter().position(|device| device.lid == *lid);
                place.map(|place| (place, 1, 1000 + place))
            }
        };
        let Some((place, port, busy)) = found else {
            return (usize::MAX, None);
        };
        let device = &self.devices[place];
        let attribute = u16::from_be_bytes([question[16], question[17]]);
        // A client that requests NodeInfo does not know yet that it is a switch.
        let busy = if device.switch && busy < 1000 && attribute != 0x11 {
            place
        } else {
            busy
        };
        if device.mute.contains(&attribute) {
            return (busy, None);
        }
        let mut mad = *question;
        mad[3] = 0x81;
        if device.refuses.contains(&attribute) {
            mad[5] = 0x0c; // attribute not supported
            return (busy, Some(mad));
        }
        match (attribute, to) {
            (0x01, _) => {
                let (first, second) = device.capabilities;
                mad[DATA + 2..][..2].copy_from_slice(&first.to_be_bytes());
                mad[DATA + 4..][..4].copy_from_slice(&(second << 5).to_be_bytes());
            }
            (0x10, _) => mad[DATA..][..device.name.len()].copy_from_slice(device.name.as_bytes()),
            (0x11, _) => node_info(device, port, &mut mad),
            (0x12, Destination::Directed(_)) => {
                let (cap, top, changed) = device.linear;
                mad[DATA..][..2].copy_from_slice(&cap.to_be_bytes());
                mad[DATA + 6..][..2].copy_from_slice(&top.to_be_bytes());
                mad[DATA + 11] = u8::from(changed) << 2 | 0x90;
            }
            (0x19, _) => {
                let first = u16::from_be_bytes([question[22], question[23]]) * 64;
                for (lid, port) in (first..).zip(&mut mad[DATA..DATA + 64]) {
                    *port = device.forwards.get(&lid).copied().unwrap_or(255);
                }
            }
            (0x12, _) => counters(&device.narrow, question[DATA + 1], &mut mad),
            (0x15, _) => port_info(device, question[23], &mut mad),
            _ => counters(&device.wide, question[DATA + 1], &mut mad),
        }
        (busy, Some(mad))
    }
}

fn node_info(device: &Device, port: u8, mad: &mut Bytes) {
    mad[DATA + 2] = if device.switch { 2 } else { 1 };
    mad[DATA + 3] = device.cables.len() as u8 - 1;
    mad[DATA + 4..][..8].copy_from_slice(&device.guid.to_be_bytes());
    mad[DATA + 12..][..8].copy_from_slice(&device.guid.to_be_bytes());
    mad[DATA + 36..][..4].copy_from_slice(&[port, 0, 2, 0xc9]);
}

/// 4xHDR on every port that has a cable.
fn port_info(device: &Device, port: u8, mad: &mut Bytes) {
    let cable = device.cables.get(usize::from(port)).copied().flatten();
    let up = cable.is_some() && !device.down.contains(&port);
    let lid = if !device.switch || port == 0 {
        device.lid
    } else {
        0
    };
    mad[DATA + 16..][..2].copy_from_slice(&lid.to_be_bytes());
    mad[DATA + 22] = 0x40;
    mad[DATA + 31] = 2;
    mad[DATA + 32] = if up { 4 } else { 1 };
    mad[DATA + 33] = if up { 0x52 } else { 0x22 };
    mad[DATA + 35] = 0x40;
    mad[DATA + 62] = 0x40;
}

fn counters(values: &HashMap<u8, Vec<(usize, Vec<u8>)>>, port: u8, mad: &mut Bytes) {
    for (selected, cells) in values {
        for (at, bytes) in cells {
            for (offset, byte) in bytes.iter().enumerate() {
                // Sums here need no carry.
                if *selected == port || port == ALL_PORTS {
                    mad[DATA + at + offset] += byte;
                }
            }
        }
    }
}

impl Transport for Fake {
    fn send(&mut self, to: &Destination, mad: &Bytes) -> io::Result<()> {
        self.sent += 1;
        let (busy, mut answer) = self.answer(to, mad);
        let lost = self
            .lose_each
            .filter(|(each, _)| self.sent.is_multiple_of(*each));
        if lost.is_some() {
            answer = None;
        }
        let mut seen = self.seen.lock().expect("one thread");
        let attribute = u16::from_be_bytes([mad[16], mad[17]]);
        let asked = match to {
            Destination::Lid(_) => &mut seen.performance,
            Destination::Directed(_) => &mut seen.management,
        };
        *asked.entry(attribute).or_default() += 1;
        // A request that was dropped silently never completes.
        if answer.is_some() || lost.is_some_and(|(_, said)| said) {
            self.flying.push_back((busy, answer, *mad));
            let at = self.at.entry(busy).or_default();
            *at += 1;
            seen.most_at_one = seen.most_at_one.max(*at);
            seen.most = seen.most.max(self.flying.len());
        }
        Ok(())
    }

    fn receive(&mut self, mad: &mut Bytes, _: Duration) -> io::Result<Received> {
        let Some((busy, answer, question)) = self.flying.pop_front() else {
            std::thread::sleep(Duration::from_micros(200));
            return Ok(Received::Nothing);
        };
        *self.at.entry(busy).or_default() -= 1;
        *mad = answer.unwrap_or(question);
        Ok(match answer {
            Some(_) => Received::Answer,
            None => Received::TimedOut,
        })
    }
}

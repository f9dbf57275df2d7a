//! What stands at the other end of each Ethernet cable, by LLDP.

use std::time::Duration;

use railscope_model::metric::LLDP_NEIGHBOR;
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::{Misses, Schedule};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::ethtool::Nic;
use crate::sources::lldp::NeighborSource;
use crate::sources::net;
use crate::sources::sysfs::{Dir, Miss, Root};

/// Source label.
const NAME: &str = "lldp";

struct Lldp {
    root: Root,
    source: NeighborSource,
    schedule: Schedule,
    nics: Vec<Nic>,
    /// The tree is the kernel's own; else this machine's neighbors are not those of the tree.
    is_this_machine: bool,
    misses: Misses,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Lldp {
        root: Root::new(&machine.sysfs),
        source: NeighborSource::new(&machine.network),
        schedule: Schedule::default(),
        nics: Vec::new(),
        is_this_machine: false,
        misses: Misses::new(NAME),
    })
}

impl Sampler for Lldp {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Neighbors announce themselves every 30 s (IEEE 802.1AB) and cables move less often. Between two
    /// samples frames wait in sockets.
    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        if self.schedule.is_due() {
            self.discover();
        }
        let found = match (&self.source, self.is_this_machine) {
            (NeighborSource::Kernel { .. }, false) => Err(Miss::Absent),
            _ => self.source.neighbors(&self.nics),
        };
        let found = match found {
            Ok(found) => found,
            Err(miss) => return Ok(Presence::Absent(miss.into())),
        };
        for neighbor in &found.found {
            let labels = Labels::new([
                &neighbor.netdev,
                &neighbor.chassis,
                &neighbor.port,
                &neighbor.system,
                &neighbor.description,
            ]);
            reading.push(&LLDP_NEIGHBOR, &labels, true);
        }
        if let Some(miss) = found.without_lldpd {
            reading.push_status(NAME, "lldpctl", miss.into());
        }
        for _ in 0..found.unparsed {
            self.misses.note(Miss::Unparsed);
        }
        for _ in 0..found.dropped {
            self.misses.note(Miss::Failed);
        }
        self.misses.end_device(reading, "frames");
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Lldp {
    fn discover(&mut self) {
        let mut buffer = [0; 4096];
        let sysfs = self.root.open();
        self.is_this_machine = sysfs.as_ref().is_ok_and(Dir::is_live);
        let found = sysfs.and_then(|sysfs| net::ethernet(&sysfs, &mut buffer));
        let found = found.unwrap_or_default().into_iter();
        self.nics = found.map(|netdev| netdev.nic).collect();
    }
}

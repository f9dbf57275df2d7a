//! What happens to counters while nothing is broken: drivers and exporters begin again, registers
//! wrap.

use super::Cluster;
use crate::noise::Noise;
use crate::parts::port::{AtLimit, COUNTERS, Counter};

/// Most that a counter which only errors move has left before it wraps.
const ERRORS_LEFT: u64 = 100;
/// The same for one that traffic moves: RDMA writes of half an hour at full speed.
const TRAFFIC_LEFT: u64 = 1 << 26;

impl Cluster {
    /// Reloads the driver of a NIC, by its place in the plan: all counters of its port begin at zero.
    pub fn reload_driver(&mut self, nic: usize) {
        self.port_mut(nic).reset();
    }

    /// Lets the 32-bit counters of a NIC's port stand shortly before their end, as after years.
    pub fn age_counters(&mut self, nic: usize, noise: Noise) {
        for (draw, counter) in (0..).zip(Counter::ALL) {
            let file = &COUNTERS[*counter as usize];
            if (file.bits, file.at_limit) == (32, AtLimit::Wraps) {
                let most = if counter.is_traffic() {
                    TRAFFIC_LEFT
                } else {
                    ERRORS_LEFT
                };
                self.port_mut(nic)
                    .leave(*counter, 1 + noise.bits(draw) % most);
            }
        }
    }

    /// Restarts the exporter of a node: what it has counted itself, rather than read, begins at zero.
    pub fn restart_exporter(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.stalls = [0; 3];
            node.exporter_restarts += 1;
            node.gpus.iter_mut().for_each(|gpu| gpu.xids.clear());
        }
    }
}

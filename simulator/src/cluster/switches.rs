//! What the ports of switches count: bytes by direction, waits for credit, pause, packets that they drop,
//! and those that never arrive.

use super::Cluster;
use super::stretch::WAIT_TICKS_PER_SECOND;
use crate::traffic::router::Lane;
use crate::wiring::Device;
use crate::work::workload::PACKET_BYTES;

/// Traffic in one direction of one cable since the start of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LaneCount {
    /// Bytes, noise apart.
    pub bytes: f64,
    /// Ticks in which the end that sends had data and no credit: of `PortXmitWait`.
    pub wait_ticks: f64,
    /// Packets that the end that sends has dropped.
    pub discards: f64,
    /// Packets that one end has sent and the other never saw.
    pub vanished: f64,
    /// Time for which the end that receives has paused the other.
    pub paused_seconds: f64,
}

impl LaneCount {
    /// Packets that one end has sent.
    pub fn packets(&self) -> f64 {
        self.bytes / PACKET_BYTES
    }

    /// Those that the other has received.
    pub fn packets_arrived(&self) -> f64 {
        self.packets() - self.vanished
    }

    /// Bytes that the other has received.
    pub fn bytes_arrived(&self) -> f64 {
        self.bytes - self.vanished * PACKET_BYTES
    }
}

/// A port of a switch and its cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchPort {
    /// Number, from 1.
    pub port: u16,
    /// The cable as an index into [`crate::wiring::Wiring::cables`].
    pub cable: usize,
    /// What the switch sends.
    pub sends: Lane,
}

impl SwitchPort {
    /// What the switch receives.
    pub fn receives(self) -> Lane {
        self.sends.back()
    }
}

impl Cluster {
    /// Traffic in one direction of a cable.
    pub fn lane_count(&self, lane: Lane) -> LaneCount {
        self.lane_counts[lane.index()]
    }

    /// By switch, in the order of the plan: its cabled ports, by the wiring of now.
    pub fn switch_ports(&self) -> Vec<Vec<SwitchPort>> {
        let mut ports = vec![Vec::new(); self.plan.switches.len()];
        for (cable, link) in self.conditions.wiring.cables.iter().enumerate() {
            let sends = [Lane::up(cable), Lane::down(cable)];
            for ((device, port), sends) in link.ends.into_iter().zip(sends) {
                if let Device::Switch(switch) = device {
                    ports[switch].push(SwitchPort { port, cable, sends });
                }
            }
        }
        ports
    }

    /// The cabled ports of one switch, by its place in the plan and the wiring of now.
    pub fn ports_of_switch(&self, switch: usize) -> impl Iterator<Item = SwitchPort> + '_ {
        let cables = self.conditions.wiring.cables.iter().enumerate();
        cables.flat_map(move |(cable, link)| {
            let sends = [Lane::up(cable), Lane::down(cable)];
            let ends = link.ends.into_iter().zip(sends);
            ends.filter(move |((device, _), _)| *device == Device::Switch(switch))
                .map(move |((_, port), sends)| SwitchPort { port, cable, sends })
        })
    }

    /// Counts what a stretch has moved.
    pub(super) fn count_lanes(&mut self, seconds: f64) {
        for (count, bytes) in self.lane_counts.iter_mut().zip(&self.stretch_bytes) {
            count.bytes += bytes;
        }
        for nic in 0..self.plan.nics.len() {
            let neighbor = self.conditions.neighbor_of(nic) * seconds;
            if neighbor > 0.0 {
                for lane in [Lane::up(nic), Lane::down(nic)] {
                    self.lane_counts[lane.index()].bytes += neighbor;
                }
            }
        }
        for (lane, loss) in &self.conditions.discards {
            let packets = self.stretch_bytes[lane.index()] / PACKET_BYTES;
            self.lane_counts[lane.index()].discards += packets * loss;
        }
        for (cable, loss) in &self.conditions.vanishing {
            for lane in [Lane::up(*cable), Lane::down(*cable)] {
                let packets = self.stretch_bytes[lane.index()] / PACKET_BYTES;
                self.lane_counts[lane.index()].vanished += packets * loss;
            }
        }
    }

    /// Counts that the switch before a NIC could not send to it for a time.
    pub(super) fn count_wait(&mut self, nic: usize, seconds: f64) {
        let lane = Lane::down(nic).index();
        self.lane_counts[lane].wait_ticks += seconds * WAIT_TICKS_PER_SECOND;
    }
}

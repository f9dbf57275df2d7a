//! What Ethernet ports count in a stretch of time: pause, marks, storms, frames that are too long.

use std::collections::BTreeMap;

use super::{Cluster, STORMS, STRAINS};
use crate::conditions::Receive;
use crate::noise::Noise;
use crate::parts::ethernet::EthernetCounter as To;
use crate::parts::port::Port;
use crate::spec::Transport;
use crate::traffic::pfc::{Strain, frames};
use crate::traffic::router::Lane;
use crate::work::job::Progress;

/// A NIC warns of a storm each time that it has paused its switch for so long without a break.
const STORM_SECONDS: f64 = 0.1;
/// Share of a second in stalled PCIe writes from which on the driver counts the second.
const STALLED_SECOND: f64 = 0.3;
/// Packets that a sender has in flight to one receiver: one RDMA write of 512 KiB for each of 8 slots.
const PACKETS_UNDER_WAY: f64 = 1024.0;

impl Cluster {
    /// What congestion makes the ports of a job count. `seconds` is the length of the stretch.
    pub(super) fn count_strains(&mut self, job: usize, progress: &Progress, seconds: f64) {
        let own = &self.jobs[job];
        let times = seconds_in(progress, own.pace.collectives());
        let strains: Vec<(usize, Strain, f64)> = own
            .strains
            .iter()
            .zip(times)
            .flat_map(|(strains, time)| strains.nics.iter().map(move |(nic, s)| (*nic, *s, time)))
            .collect();
        for nic in self.nics_of(job) {
            if let Some(netdev) = &mut self.port_mut(nic).netdev {
                netdev.set(To::OutboundPciStalledWr, 0);
            }
        }
        for (number, (nic, strain, time)) in (0..).zip(strains) {
            let noise = self.noise.part(STRAINS).part(number);
            let draws = self.stretches * 16;
            strain.count(self.port_mut(nic), (time, seconds), (noise, draws));
        }
    }

    /// For how long the far end of each lane has paused it: what a job does to a lane at the time of another's
    /// collectives, both see, so that the longer counts.
    pub(super) fn count_pause(&mut self, done: &[Progress], seconds: f64) {
        if self.spec.transport != Transport::Roce {
            return;
        }
        let mut paused: BTreeMap<Lane, f64> = BTreeMap::new();
        for (job, progress) in self.jobs.iter().zip(done) {
            let mut own: BTreeMap<Lane, f64> = BTreeMap::new();
            let times = seconds_in(progress, job.pace.collectives());
            for (strains, time) in job.strains.iter().zip(times) {
                let at_nics = strains.nics.iter().flat_map(|(nic, strain)| {
                    [
                        (Lane::up(*nic), strain.is_paused),
                        (Lane::down(*nic), strain.sends_pause),
                    ]
                });
                let between = strains.paused.iter().map(|(lane, share)| (*lane, *share));
                for (lane, share) in at_nics.chain(between) {
                    *own.entry(lane).or_default() += share * time;
                }
            }
            for (lane, time) in own {
                let longest = paused.entry(lane).or_default();
                *longest = longest.max(time);
            }
        }
        for lane in &self.conditions.deadlocked {
            paused.insert(*lane, seconds);
        }
        let ports = self.conditions.ports.iter().enumerate();
        let stuck = ports.filter(|(_, port)| port.receive == Receive::Stuck);
        paused.extend(stuck.map(|(nic, _)| (Lane::down(nic), seconds)));
        for (lane, time) in paused {
            self.lane_counts[lane.index()].paused_seconds += time.min(seconds);
        }
    }

    /// What stuck and misconfigured receivers count for any sender.
    pub(super) fn count_storms(&mut self, seconds: f64) {
        for nic in 0..self.plan.nics.len() {
            let receive = self.conditions.ports[nic].receive;
            if receive == Receive::Works {
                continue;
            }
            let senders = self.senders_to(nic).len() as f64;
            let noise = self.noise.part(STORMS).part(nic as u64);
            let draws = self.stretches * 4;
            let port = self.port_mut(nic);
            let wire = port.speed.bytes_per_second();
            let Some(netdev) = port.netdev.as_mut().filter(|netdev| netdev.carrier) else {
                continue;
            };
            let count = |rate: f64, draw: u64| {
                (rate * seconds + noise.uniform(draws + draw)).floor() as u64
            };
            match receive {
                Receive::Stuck => {
                    netdev.add(To::TxPrio3PauseDuration, (seconds * 1e6) as u64);
                    netdev.add(To::TxPrio3Pause, count(frames(1.0, wire).0, 0));
                    let warnings = count(1.0 / STORM_SECONDS, 1);
                    netdev.add(To::TxPauseStormWarningEvents, warnings);
                }
                _ => {
                    // What is in flight is sent again after each time-out.
                    let packets =
                        senders * PACKETS_UNDER_WAY / crate::traffic::pfc::ACK_TIMEOUT_SECONDS;
                    netdev.add(To::RxOversizePktsPhy, count(packets, 0));
                }
            }
        }
    }
}

/// Time spent in each collective, given its length. The one that does not end has what is left.
fn seconds_in(progress: &Progress, lengths: &[f64]) -> Vec<f64> {
    let done = progress.collectives.iter().zip(lengths);
    let finite = |(times, length): (&f64, &f64)| {
        if length.is_finite() {
            times * length
        } else {
            0.0
        }
    };
    let mut seconds: Vec<f64> = done.map(finite).collect();
    let left = progress.moving_seconds() - seconds.iter().sum::<f64>();
    if let Some(endless) = lengths.iter().position(|length| length.is_infinite()) {
        seconds[endless] = left.max(0.0);
    }
    seconds
}

impl Strain {
    /// Counts `time` seconds in the collective, of a stretch of so many `seconds`.
    fn count(self, port: &mut Port, (time, seconds): (f64, f64), (noise, draws): (Noise, u64)) {
        let wire = port.speed.bytes_per_second();
        // Rounds up or down at random, so that slow rates do not vanish in short ticks.
        let count =
            |rate: f64, draw: u64| (rate * time + noise.uniform(draws + draw)).floor() as u64;
        port.time_out(count(self.time_outs, 10));
        let Some(netdev) = &mut port.netdev else {
            return;
        };
        let (sent, turns) = frames(self.sends_pause, wire);
        netdev.add(To::TxPrio3Pause, count(sent, 0));
        netdev.add(To::TxPrio3PauseDuration, count(self.sends_pause * 1e6, 1));
        netdev.add(To::RxBufferPassedThresPhy, count(turns, 2));
        let (received, began) = frames(self.is_paused, wire);
        netdev.add(To::RxPrio3Pause, count(received, 3));
        netdev.add(To::RxPrio3PauseDuration, count(self.is_paused * 1e6, 4));
        netdev.add(To::RxPrio3PauseTransition, count(began, 5));
        netdev.add(To::NpEcnMarkedRocePackets, count(self.marked, 6));
        netdev.add(To::NpCnpSent, count(self.notifies, 7));
        netdev.add(To::RpCnpHandled, count(self.notified, 8));
        // What makes a NIC pause its switch is that it cannot write to memory.
        let stalled = self.sends_pause * time / seconds.max(f64::MIN_POSITIVE);
        let percent = (stalled * 100.0).round() as u64;
        netdev.set(
            To::OutboundPciStalledWr,
            netdev.get(To::OutboundPciStalledWr).max(percent),
        );
        if stalled > STALLED_SECOND {
            let whole = (seconds + noise.uniform(draws + 9)).floor() as u64;
            netdev.add(To::OutboundPciStalledWrEvents, whole);
        }
    }
}

//! Probes: the loss and delay of a small packet between two NICs, or of one that bounces off a switch, and how long
//! the messages of a collective take between two NICs.
//!
//! ```text
//! Prober (current paths) -> Way  -> lost of so many, six timestamps
//!                      -> Talk -> seconds of one message
//! ```
//!
//! Probes change nothing in the cluster: they are too small to delay other traffic.

mod late;

use crate::cluster::Cluster;
use crate::conditions::{Conditions, Receive};
use crate::faults::link::{RECOVERY_SECONDS, RETRANSMISSION_SECONDS};
use crate::noise::Noise;
use crate::spec::Transport;
use crate::traffic::router::{Lane, Path, Router};
use crate::wiring::{Device, Tier, Wiring};
use crate::work::workload::{PACKET_BYTES, Towards};

/// Time in a NIC in one direction (an engineering estimate: two NICs back to back take a little more than 1 us).
const NIC_SECONDS: f64 = 0.6e-6;
/// Time in a switch, with the cable behind it (engineering estimates near what data sheets promise: cut-through
/// InfiniBand, and Ethernet).
const INFINIBAND_HOP_SECONDS: f64 = 0.3e-6;
/// See [`INFINIBAND_HOP_SECONDS`].
const ETHERNET_HOP_SECONDS: f64 = 1.0e-6;
/// Time in the software of a node for each side of a probe: a poll of its completion queue (an engineering estimate).
const SOFTWARE_SECONDS: f64 = 5e-6;
/// Most that stands before a packet on a lane in use: where switches begin to mark at 400 Gb/s (HPCC, SIGCOMM 2019).
const QUEUE_BYTES: f64 = 160e3;
/// Share of probes that get lost on a healthy fabric: the better end of 1e-4 to 1e-5 of Pingmesh (SIGCOMM 2015).
const HEALTHY_LOSS: f64 = 1e-5;
/// Variation of the time of messages of the same length (standard deviation as a share; an engineering estimate).
const MESSAGE_NOISE: f64 = 0.01;
/// Most that the clock of a NIC is off that of another.
const CLOCK_SECONDS: f64 = 1.0;

/// Sends probes through a fabric as it is lit now.
#[derive(Debug)]
pub struct Prober {
    router: Router,
    wiring: Wiring,
    polarized: Vec<(usize, usize)>,
    launches: Vec<u64>,
}

/// There and back again.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    from: usize,
    /// None for one that only bounces off a switch.
    to: Option<usize>,
    out: Path,
    back: Path,
    /// Distinguishes its noise from that of others.
    flow: u64,
}

/// The six timestamps of a probe, in seconds: the third and fourth by the responder's clock, the others by the
/// prober's (R-Pingmesh, SIGCOMM 2024).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// The prober's software sends.
    pub posted: f64,
    /// The prober's NIC has sent.
    pub sent: f64,
    /// The responder's NIC has received.
    pub received: f64,
    /// The responder's NIC has sent the reply.
    pub answered: f64,
    /// The prober's NIC has received it.
    pub returned: f64,
    /// The prober's software has seen it.
    pub seen: f64,
}

impl Times {
    /// Round trip without what the nodes added: (T5 - T2) - (T4 - T3). Seconds.
    pub fn network_seconds(&self) -> f64 {
        (self.returned - self.sent) - self.responder_seconds()
    }

    /// Time in the responder's node: T4 - T3. Seconds.
    pub fn responder_seconds(&self) -> f64 {
        self.answered - self.received
    }

    /// Time in the prober's node: (T6 - T1) - (T5 - T2). Seconds.
    pub fn prober_seconds(&self) -> f64 {
        (self.seen - self.posted) - (self.returned - self.sent)
    }
}

/// What one NIC sends to another in a collective.
#[derive(Debug, Clone, PartialEq)]
pub struct Talk {
    /// Sender, by index into [`Wiring::nics`].
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Number of the collective in its job.
    pub collective: usize,
    bytes: f64,
    /// From memory to memory; none if there is no path.
    path: Option<Path>,
}

impl Prober {
    /// A prober in a cluster as it is now.
    pub fn new(cluster: &Cluster) -> Self {
        let now = cluster.conditions();
        Self {
            router: cluster.router(now),
            wiring: now.wiring.clone(),
            polarized: now.polarized.clone(),
            launches: cluster.launches().collect(),
        }
    }

    /// Reads the cluster again: to be called each time it has advanced. Returns whether paths may have changed, so that
    /// those found before are old.
    pub fn follow(&mut self, cluster: &Cluster) -> bool {
        let now = cluster.conditions();
        let same = self.wiring == now.wiring
            && self.polarized == now.polarized
            && cluster.launches().eq(self.launches.iter().copied());
        if !same {
            *self = Self::new(cluster);
        }
        !same
    }

    /// The path of a probe from one NIC to another and back; `flow` is its flow label. None if there is none.
    pub fn way(&self, from: usize, to: usize, flow: u64) -> Option<Way> {
        Some(Way {
            from,
            to: Some(to),
            out: self.router.path(from, to, flow)?,
            back: self.router.path(to, from, flow)?,
            flow,
        })
    }

    /// The path of a probe from a NIC to a switch and back over the same cables, as its header reports it
    /// (NetBouncer, NSDI 2019, by IP in IP; on InfiniBand a directed route). None if there is none.
    pub fn bounce(&self, nic: usize, switch: usize, flow: u64) -> Option<Way> {
        let lanes = self.router.path_to_switch(nic, switch, flow)?;
        let certain = |lane| (lane, 1.0);
        Some(Way {
            from: nic,
            to: None,
            back: lanes.iter().rev().map(|l| certain(l.back())).collect(),
            out: lanes.into_iter().map(certain).collect(),
            flow: Noise::new(flow).bits(switch as u64),
        })
    }

    /// Switches, by index, at which a probe of a NIC that turns round has seen most of the fabric: those of the
    /// highest tier that it reaches.
    pub fn ceiling(&self, nic: usize) -> Vec<usize> {
        let height = |switch: &usize| match self.wiring.switches[*switch].tier {
            Tier::Leaf { .. } | Tier::Router { .. } => 0,
            Tier::Spine => 1,
            Tier::Core => 2,
        };
        let all = 0..self.wiring.switches.len();
        let reached = all.filter(|switch| self.router.path_to_switch(nic, *switch, 0).is_some());
        let reached: Vec<usize> = reached.collect();
        let highest = reached.iter().map(height).max();
        let highest = |switch: &usize| Some(height(switch)) == highest;
        reached.into_iter().filter(highest).collect()
    }

    /// How many of so many probes get no reply. `index` distinguishes the measurements.
    pub fn lost(&self, cluster: &Cluster, way: &Way, sent: u32, index: u64) -> u32 {
        let now = cluster.conditions();
        let lanes = way.out.iter().chain(&way.back);
        let passes = |(lane, share): &(Lane, f64)| 1.0 - share * loss_on(now, *lane);
        let answered: f64 = lanes.map(passes).product::<f64>() * (1.0 - HEALTHY_LOSS);
        binomial(sent, 1.0 - answered, way.noise(cluster).part(index))
    }

    /// How many of so many probes with a reply come back later than after so many seconds, without the processing
    /// time. Queues in switches are too short for that. `index` distinguishes the measurements.
    pub fn slow(
        &self,
        cluster: &Cluster,
        way: &Way,
        (answered, seconds): (u32, f64),
        index: u64,
    ) -> u32 {
        let now = cluster.conditions();
        let beyond = |longest: f64| (1.0 - seconds / longest).max(0.0);
        let held_up = |(lane, share): &(Lane, f64)| {
            let delays = now.delays.iter();
            let delays =
                delays.filter(|(cable, _, delay)| *cable == lane.cable() && *delay > seconds);
            let delayed: f64 = delays.map(|(_, share, _)| share).sum();
            share * (delayed + retraining(now, *lane) * beyond(RECOVERY_SECONDS)).min(1.0)
        };
        let on_the_way = way.out.iter().chain(&way.back);
        let in_time: f64 = on_the_way.map(|lane| 1.0 - held_up(lane)).product();
        let host = usize::from(self.wiring.nics[way.from].node);
        let standstills = now.hosts[host].standstills.iter();
        let awake: f64 = standstills
            .map(|one| 1.0 - one.per_second * one.seconds * beyond(one.seconds))
            .product();
        let noise = way.noise(cluster).part(index).part(2);
        binomial(answered, 1.0 - in_time * awake.max(0.0), noise)
    }

    /// The timestamps of one probe that is answered. `index` distinguishes the times of asking.
    pub fn times(&self, cluster: &Cluster, way: &Way, index: u64) -> Times {
        let noise = way.noise(cluster).part(index).part(1);
        let now = cluster.conditions();
        let out = self.one_way(cluster, &way.out, (Some(way.from), way.to), noise.part(0));
        let back = self.one_way(cluster, &way.back, (way.to, Some(way.from)), noise.part(1));
        let software = |nic: usize, part: u64| {
            let host = usize::from(self.wiring.nics[nic].node);
            SOFTWARE_SECONDS + standstill(now, host, noise.part(part))
        };
        let offset = way.to.map_or(0.0, |nic| {
            let noise = cluster.probe_noise().part(nic as u64);
            CLOCK_SECONDS * (2.0 * noise.uniform(0) - 1.0)
        });
        let posted = cluster.seconds();
        let sent = posted + software(way.from, 2);
        let received = sent + out + offset;
        let answered = received + way.to.map_or(0.0, |nic| software(nic, 3));
        let returned = answered - offset + back;
        Times {
            posted,
            sent,
            received,
            answered,
            returned,
            seen: returned + software(way.from, 4),
        }
    }

    /// Time from NIC to NIC, or to or from a switch.
    fn one_way(
        &self,
        cluster: &Cluster,
        path: &Path,
        (from, to): (Option<usize>, Option<usize>),
        noise: Noise,
    ) -> f64 {
        let now = cluster.conditions();
        let hop = match cluster.spec().transport {
            Transport::Infiniband => INFINIBAND_HOP_SECONDS,
            // Behind EFA is Ethernet, according to public information.
            Transport::Roce | Transport::Efa => ETHERNET_HOP_SECONDS,
        };
        let nics = from.iter().chain(&to).count() as f64;
        // Each lane ends in a switch or in the receiving NIC.
        let lanes: f64 = path.iter().map(|(_, share)| share).sum();
        let switches = lanes - f64::from(u8::from(to.is_some()));
        let slots = from.map(|nic| self.wiring.pcie_lane(nic, Towards::Fabric));
        let slots = slots
            .into_iter()
            .chain(to.map(|nic| self.wiring.pcie_lane(nic, Towards::Host)));
        let all = path.iter().copied().chain(slots.map(|lane| (lane, 1.0)));
        let waits = (0..).zip(all).map(|(draw, (lane, share))| {
            share * self.wait_on(cluster, now, lane, noise.part(draw))
        });
        nics * NIC_SECONDS + switches * hop + waits.sum::<f64>()
    }

    /// Time for which a packet waits to get onto a lane.
    fn wait_on(&self, cluster: &Cluster, now: &Conditions, lane: Lane, noise: Noise) -> f64 {
        let capacity = now.capacity[lane.index()];
        let used = cluster.lane_pace(lane.index()) / capacity;
        let mut seconds = 0.0;
        // In steps a lane is full or empty: its use is the probability to find it full.
        if used.is_finite() && noise.uniform(0) < used {
            seconds += noise.uniform(1) * QUEUE_BYTES / capacity;
        }
        if noise.uniform(2) < retraining(now, lane) {
            seconds += noise.uniform(3) * RECOVERY_SECONDS;
        }
        let delays = (4..).zip(
            now.delays
                .iter()
                .filter(|(cable, ..)| *cable == lane.cable()),
        );
        for (draw, (_, share, delay)) in delays {
            seconds += if noise.uniform(draw) < *share {
                *delay
            } else {
                0.0
            };
        }
        seconds
    }

    /// Senders and receivers in the collectives of a job, by its number.
    pub fn talks(&self, cluster: &Cluster, job: usize) -> Vec<Talk> {
        let Some(spec) = cluster.jobs().nth(job) else {
            return Vec::new();
        };
        let (workload, seed) = (&spec.workload, cluster.flow_seed(job));
        let mut talks = Vec::new();
        for (number, collective) in workload.collectives.iter().enumerate() {
            let groups = workload.groups(collective.pattern, spec.nodes.len());
            for (from, to, share) in groups.into_iter().flatten() {
                for slot in self.wiring.common_slots(&spec.nodes) {
                    let nic = |place: usize| self.wiring.nic_index(spec.nodes[place], slot);
                    let (from, to) = (nic(from), nic(to));
                    let path = self.router.paths(from, to, seed, workload.flows);
                    talks.push(Talk {
                        from,
                        to,
                        collective: number,
                        bytes: collective.bytes * share,
                        path: path.map(|path| self.with_slots(from, to, path)),
                    });
                }
            }
        }
        talks
    }

    fn with_slots(&self, from: usize, to: usize, mut path: Path) -> Path {
        path.push((self.wiring.pcie_lane(from, Towards::Fabric), 1.0));
        path.push((self.wiring.pcie_lane(to, Towards::Host), 1.0));
        path
    }
}

impl Way {
    /// Switches on the path out, by index, with the port by which each is entered; none if switches spray packets, so
    /// that they cannot be determined.
    pub(crate) fn routers(&self, wiring: &Wiring) -> Option<Vec<(usize, u16)>> {
        if self.out.iter().any(|(_, share)| *share < 0.999) {
            return None;
        }
        let entered = self.out.iter().map(|(lane, _)| {
            let (device, port) = wiring.cables[lane.cable()].ends[lane.far_end()];
            match device {
                Device::Switch(switch) => Some((switch, port)),
                Device::Nic(_) => None,
            }
        });
        Some(entered.flatten().collect())
    }

    /// Cables that it crosses there and back, in order of their numbers; none if switches spray packets, so that
    /// they cannot be determined.
    pub fn cables(&self) -> Option<Vec<usize>> {
        let lanes = self.out.iter().chain(&self.back);
        let known = |(lane, share): &(Lane, f64)| (*share > 0.999).then(|| lane.cable());
        let mut cables = lanes.map(known).collect::<Option<Vec<usize>>>()?;
        cables.sort_unstable();
        cables.dedup();
        Some(cables)
    }

    fn noise(&self, cluster: &Cluster) -> Noise {
        let ends = (self.from as u64) << 32 | self.to.map_or(u64::from(u32::MAX), |to| to as u64);
        cluster.probe_noise().part(ends).part(self.flow)
    }
}

impl Talk {
    /// How long the message takes at the rate that these two could reach if no other node sent, and with the times
    /// in which their nodes stall. Infinite where it cannot arrive. `index` distinguishes the measurements.
    pub fn seconds(&self, cluster: &Cluster, index: u64) -> f64 {
        let now = cluster.conditions();
        let Some(path) = &self.path else {
            return f64::INFINITY;
        };
        let rates = path
            .iter()
            .map(|(lane, share)| now.capacity[lane.index()] / share);
        let rate = rates.fold(f64::INFINITY, f64::min);
        let of = |(lane, share): &(Lane, f64)| share * silent_loss(now, *lane);
        let lost = if now.losses.is_empty() {
            0.0
        } else {
            path.iter().map(of).sum()
        };
        let lost_per_byte: f64 = lost / PACKET_BYTES;
        let again = self.bytes * lost_per_byte * RETRANSMISSION_SECONDS;
        let awake = [self.from, self.to].map(|nic| {
            let host = usize::from(now.wiring.nics[nic].node);
            now.hosts[host].awake()
        });
        let ends = (self.from as u64) << 32 | self.to as u64;
        let noise = cluster.probe_noise().part(ends).part(2);
        let seconds = (self.bytes / rate + again) / awake[0].min(awake[1]);
        seconds * (1.0 + MESSAGE_NOISE * noise.part(self.collective as u64).normal(index))
    }
}

/// Share of the time in which a lane trains again.
fn retraining(now: &Conditions, lane: Lane) -> f64 {
    let errors = now.ports.get(lane.cable()).and_then(|port| port.errors);
    errors.map_or(0.0, |errors| errors.recoveries * RECOVERY_SECONDS)
}

/// Share of the packets that a cable loses silently.
fn silent_loss(now: &Conditions, lane: Lane) -> f64 {
    let cable = now.losses.iter().find(|(cable, _)| *cable == lane.cable());
    cable.map_or(0.0, |(_, loss)| *loss)
}

/// Share of small packets that a lane loses.
fn loss_on(now: &Conditions, lane: Lane) -> f64 {
    let capacity = now.capacity[lane.index()];
    let port = now.ports.get(lane.cable());
    if capacity <= 0.0 {
        // A small MTU drops large packets, and probes are small.
        let short = port.is_some_and(|port| matches!(port.receive, Receive::TooLong(_)));
        return if short { 0.0 } else { 1.0 };
    }
    let errors = port.and_then(|port| port.errors);
    let corrupted = errors.map_or(0.0, |errors| {
        // Seen at full rate; as many of the packets at any other.
        errors.receive_errors / (capacity / PACKET_BYTES)
    });
    (silent_loss(now, lane) + corrupted).min(1.0)
}

/// Remaining stall of a node when something should run.
fn standstill(now: &Conditions, host: usize, noise: Noise) -> f64 {
    let all = (0..).zip(&now.hosts[host].standstills);
    let left = all.map(|(number, standstill): (u64, _)| {
        let noise = noise.part(number);
        let within = noise.uniform(0) < standstill.per_second * standstill.seconds;
        if within {
            noise.uniform(1) * standstill.seconds
        } else {
            0.0
        }
    });
    left.sum()
}

/// How many of so many trials hit.
fn binomial(trials: u32, chance: f64, noise: Noise) -> u32 {
    /// So few that a half to their power is a number.
    const AT_ONCE: u32 = 512;
    let hits = |from: u32| {
        let (trials, draw) = (AT_ONCE.min(trials - from), noise.uniform(from.into()));
        if chance > 0.5 {
            trials - hits_of(trials, 1.0 - chance, draw)
        } else {
            hits_of(trials, chance, draw)
        }
    };
    (0..trials).step_by(AT_ONCE as usize).map(hits).sum()
}

/// The same of few trials and a probability of at most 0.5, by inversion of a draw that is even in `0.0..1.0`.
/// Without logarithms, which differ between C libraries.
fn hits_of(trials: u32, chance: f64, draw: f64) -> u32 {
    let none: f64 = (0..trials).map(|_| 1.0 - chance).product();
    let (mut hits, mut term, mut sum) = (0, none, none);
    while sum <= draw && hits < trials {
        term *= f64::from(trials - hits) / f64::from(hits + 1) * chance / (1.0 - chance);
        hits += 1;
        sum += term;
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_hit_as_often_as_they_should_up_to_always() {
        for (trials, chance, expected) in [
            (0, 0.5, 0),
            (100, 0.0, 0),
            (100, 1.0, 100),
            (100_000, 0.01, 1_000),
            (100_000, 0.5, 50_000),
            (100_000, 0.999, 99_900),
        ] {
            let hits = binomial(trials, chance, Noise::new(1));
            // Five standard deviations.
            let spread = 5.0 * (f64::from(trials) * chance * (1.0 - chance)).sqrt();
            let off = f64::from(hits.abs_diff(expected));
            assert!(off <= spread, "{trials} at {chance}: {hits}");
        }
    }
}

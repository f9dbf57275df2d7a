//! What a lossless Ethernet does where data comes faster than it goes: pause, marks and notifications, as rates.
//!
//! Nothing has packets here. A receiver that drains less than arrives pauses its switch for the rest of the time;
//! the switch's queue pauses those that fill it, hop by hop up to the senders; congestion control shortens that to
//! the time that it needs to slow the senders down.

use std::collections::BTreeMap;

use crate::conditions::{Conditions, Receive, WIRE_EFFICIENCY};
use crate::fairness::max_min;
use crate::route::{Lane, Path};
use crate::workload::{Carrier, Collective, JobSpec, PACKET_BYTES, Towards};

/// Longest pause that a frame can ask for, bits: 65,535 quanta of 512 (IEEE 802.3, annex 31B). 84 us at 400 Gb/s.
const LONGEST_PAUSE_BITS: f64 = 65_535.0 * 512.0;
/// Bytes between the level at which a buffer asks for pause and that at which it lets go (an engineering estimate:
/// a slow NIC then pauses some 20 to 50 times a millisecond, as packet simulations show).
const HYSTERESIS_BYTES: f64 = 262_144.0;
/// A receiver sends a flow at most one notification in this time (DCQCN: Zhu et al., SIGCOMM 2015).
const CNP_SECONDS: f64 = 50e-6;
/// Time in which congestion control brings senders from the full rate to their share: the long end of the 0.05
/// to 1.5 ms that its rates need to recover.
const CONVERGENCE_SECONDS: f64 = 1.5e-3;
/// Share of packets that a queue marks while congestion control holds it between its two thresholds (an
/// engineering estimate: the usual configurations mark up to 1 to 20 % at the upper one).
const MARKED: f64 = 0.01;
/// 4.096 us * 2^20: how long a queue pair waits for an answer at NCCL_IB_TIMEOUT=20.
pub(crate) const ACK_TIMEOUT_SECONDS: f64 = 4.3;
/// Two polls of 100 ms, after which a switch takes an endless pause for a storm and throws packets away instead.
const WATCHDOG_SECONDS: f64 = 0.2;

/// What one port shows while a collective runs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Strain {
    /// Share of the time for which it pauses its switch.
    pub(crate) sends_pause: f64,
    /// Share of the time for which its switch pauses it.
    pub(crate) is_paused: f64,
    /// Packets with a mark that it receives, per second.
    pub(crate) marked: f64,
    /// Notifications that it sends for them, per second.
    pub(crate) notifies: f64,
    /// Notifications that it receives, per second.
    pub(crate) notified: f64,
    /// Answers that it waits for in vain, per second.
    pub(crate) time_outs: f64,
}

/// By NIC: what it shows.
pub(crate) type Strains = BTreeMap<usize, Strain>;

/// Pause frames of a second, and how often pause begins in it, at a share of the time in pause.
pub(crate) fn frames(share: f64, wire_bytes_per_second: f64) -> (f64, f64) {
    // A buffer that fills at the excess and empties at the drain asks for pause once in each turn.
    let turns = wire_bytes_per_second * share * (1.0 - share) / HYSTERESIS_BYTES;
    // A pause that lasts is asked for again in good time: at half of the longest.
    let again = share * 2.0 * wire_bytes_per_second * 8.0 / LONGEST_PAUSE_BITS;
    // Each turn has a frame that pauses and one that lets go.
    ((2.0 * turns).max(again), turns)
}

/// What goes from one NIC to another in a collective.
struct Flow {
    from: usize,
    to: usize,
    /// From the sender's cable to the receiver's.
    path: Path,
    /// Bytes per second that it makes, and that its sender could.
    rate: f64,
    greedy: f64,
    /// Share of the collective in which it flows.
    busy: f64,
}

/// What the ports show in a collective of a job, given the bytes per second of each of its streams.
pub(crate) fn strains(
    job: &JobSpec,
    collective: &Collective,
    streams: &[crate::fairness::Stream],
    conditions: &Conditions,
    carrier: &Carrier<'_>,
    dcqcn: bool,
) -> Strains {
    let rates = max_min(&conditions.capacity, streams);
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let flows = flows(job, collective, &rates, slowest, conditions, carrier);
    let lanes = Lanes::of(&flows, conditions);
    let controlled = if dcqcn {
        (CONVERGENCE_SECONDS * slowest / collective.bytes).min(1.0)
    } else {
        1.0
    };
    let mut strains = Strains::new();
    // By lane between switches: share of the time in pause.
    let mut paused: BTreeMap<Lane, f64> = BTreeMap::new();
    for flow in &flows {
        let Some(queue) = lanes.last_queue(flow) else {
            continue;
        };
        let sender = strains.entry(flow.from).or_default();
        if flow.rate == 0.0 {
            sender.time_outs += 1.0 / ACK_TIMEOUT_SECONDS;
        }
        let escapes = match conditions.ports[flow.to].receive {
            Receive::Works if flow.rate > 0.0 => controlled * flow.busy,
            // Nothing moves that could be marked.
            Receive::Works => 1.0,
            // What was under way fills the buffers anew after each time-out, until the watchdog empties them.
            Receive::Stuck => WATCHDOG_SECONDS / ACK_TIMEOUT_SECONDS,
            // What is thrown away holds nobody up.
            Receive::TooLong(_) => continue,
        };
        let share = lanes.blocked(flow.path[0].0) * escapes;
        sender.is_paused = sender.is_paused.max(share);
        for (lane, _) in &flow.path[1..queue] {
            let pause = paused.entry(*lane).or_default();
            *pause = pause.max(lanes.blocked(*lane) * escapes);
        }
        if flow.rate == 0.0 {
            continue;
        }
        if dcqcn {
            let marked = flow.rate * flow.busy / PACKET_BYTES * MARKED;
            // At most one in so long a time: each makes the receiver deaf for it.
            let notified = marked / (1.0 + marked * CNP_SECONDS);
            sender.notified += notified;
            let receiver = strains.entry(flow.to).or_default();
            receiver.marked += marked;
            receiver.notifies += notified;
        }
        if lanes.drains_slowly(flow.to) {
            let share = lanes.blocked(Lane::down(flow.to)) * flow.busy;
            let receiver = strains.entry(flow.to).or_default();
            receiver.sends_pause = receiver.sends_pause.max(share);
        }
    }
    hold_bystanders(&flows, &lanes, &paused, &mut strains);
    strains
}

/// Flows that are not held up themselves wait behind those that are, where they share a cable that is paused.
fn hold_bystanders(
    flows: &[Flow],
    lanes: &Lanes<'_>,
    paused: &BTreeMap<Lane, f64>,
    strains: &mut Strains,
) {
    if paused.is_empty() {
        return;
    }
    for flow in flows.iter().filter(|flow| lanes.last_queue(flow).is_none()) {
        let shares = flow
            .path
            .iter()
            .filter_map(|(lane, part)| Some(part * paused.get(lane)?));
        let share = shares.fold(0.0, f64::max);
        if share > 0.0 {
            let sender = strains.entry(flow.from).or_default();
            sender.is_paused = sender.is_paused.max(share);
        }
    }
}

fn flows(
    job: &JobSpec,
    collective: &Collective,
    rates: &[f64],
    slowest: f64,
    conditions: &Conditions,
    carrier: &Carrier<'_>,
) -> Vec<Flow> {
    let wiring = carrier.wiring;
    let slots = wiring.ports_per_node();
    let mut flows = Vec::new();
    let groups = job.workload.groups(collective.pattern, job.nodes.len());
    for (group, pairs) in groups.iter().enumerate() {
        for slot in 0..slots {
            // As streams are numbered.
            let rate = rates[group * slots + slot];
            for (from, to, share) in pairs {
                let [from, to] = [from, to].map(|place| wiring.nic_index(job.nodes[*place], slot));
                let Some(path) = carrier.router.path(from, to, carrier.seed) else {
                    continue;
                };
                flows.push(Flow {
                    from,
                    to,
                    path,
                    rate: rate * share,
                    greedy: conditions.sends(from) * share,
                    busy: if rate > 0.0 { slowest / rate } else { 1.0 },
                });
            }
        }
    }
    flows
}

/// What the flows of a collective do to each lane.
struct Lanes<'a> {
    conditions: &'a Conditions,
    /// Bytes per second that cross each lane.
    load: Vec<f64>,
    /// Bytes per second that would, were senders not held up.
    offered: Vec<f64>,
}

impl<'a> Lanes<'a> {
    fn of(flows: &[Flow], conditions: &'a Conditions) -> Self {
        let count = conditions.capacity.len();
        let (mut load, mut offered) = (vec![0.0; count], vec![0.0; count]);
        for flow in flows {
            let host = conditions.wiring.pcie_lane(flow.to, Towards::Host);
            for (lane, part) in flow.path.iter().chain([&(host, 1.0)]) {
                load[lane.index()] += flow.rate * part;
                offered[lane.index()] += flow.greedy * part;
            }
        }
        Self {
            conditions,
            load,
            offered,
        }
    }

    /// Bytes per second that a lane carries while it is not paused. Cables at hosts are taken without their
    /// errors: what is sent again crosses them too, and makes no queue.
    fn speed(&self, lane: Lane) -> f64 {
        let wiring = &self.conditions.wiring;
        if lane.cable() < wiring.nics.len() {
            wiring.cables[lane.cable()].speed.bytes_per_second() * WIRE_EFFICIENCY
        } else {
            self.conditions.capacity[lane.index()]
        }
    }

    /// Whether more wants to cross a lane than can. A thousandth is far above rounding.
    fn is_full(&self, lane: Lane, speed: f64) -> bool {
        let (load, offered) = (self.load[lane.index()], self.offered[lane.index()]);
        load >= 0.999 * speed && offered > 1.001 * load
    }

    /// Whether a host takes less off its NIC than comes.
    fn drains_slowly(&self, nic: usize) -> bool {
        if self.conditions.ports[nic].receive != Receive::Works {
            return true;
        }
        let host = self.conditions.wiring.pcie_lane(nic, Towards::Host);
        self.is_full(host, self.conditions.capacity[host.index()])
    }

    /// Place in a flow's path of the last lane before which a queue stands. The sender's own cable has none:
    /// what waits there waits in its memory.
    fn last_queue(&self, flow: &Flow) -> Option<usize> {
        let last = flow.path.len() - 1;
        if self.drains_slowly(flow.to) {
            return Some(last);
        }
        let full = |place: &usize| {
            let lane = flow.path[*place].0;
            self.is_full(lane, self.speed(lane))
        };
        (1..=last).rev().find(full)
    }

    /// Share of the time for which a lane must not send, if what it feeds is held up: what it would bring less
    /// what goes.
    fn blocked(&self, lane: Lane) -> f64 {
        let arrives = self.offered[lane.index()].min(self.speed(lane));
        if arrives > 0.0 {
            (1.0 - self.load[lane.index()] / arrives).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

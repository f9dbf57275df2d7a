//! A lossless Ethernet where data arrives faster than it leaves: pause, marks and notifications, as rates.
//!
//! Nothing has packets here. A receiver that drains less than arrives pauses its switch for the rest of the time;
//! the switch's queue pauses those that fill it, hop by hop up to the senders; congestion control shortens that to
//! the time that it needs to slow the senders down.

use std::collections::BTreeMap;

use crate::conditions::{Conditions, Receive, WIRE_EFFICIENCY};
use crate::traffic::contention::Traffic;
use crate::traffic::fairness::{Stream, max_min};
use crate::traffic::router::{Lane, Path, Router};
use crate::work::job::Pace;
use crate::work::workload::{Collective, JobSpec, PACKET_BYTES, Towards};

/// Longest pause that a frame can request, bits: 65,535 quanta of 512 (IEEE 802.3, annex 31B). 84 us at 400 Gb/s.
const LONGEST_PAUSE_BITS: f64 = 65_535.0 * 512.0;
/// Bytes between the XOFF and XON thresholds of a buffer (an engineering estimate:
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
/// 4.096 us * 2^20: how long a queue pair waits for a reply at NCCL_IB_TIMEOUT=20.
pub(crate) const ACK_TIMEOUT_SECONDS: f64 = 4.3;
/// Two polls of 100 ms, after which a switch takes an endless pause for a storm and discards packets instead.
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
    /// Replies that it waits for in vain, per second.
    pub(crate) time_outs: f64,
}

/// What a fabric shows while a collective runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Strains {
    /// By NIC.
    pub(crate) nics: BTreeMap<usize, Strain>,
    /// By lane between switches: share of the time for which the far end pauses it.
    pub(crate) paused: BTreeMap<Lane, f64>,
}

/// Pause frames of a second, and how often pause begins in it, at a share of the time in pause.
pub(crate) fn frames(share: f64, wire_bytes_per_second: f64) -> (f64, f64) {
    // A buffer that fills at the excess and empties at the drain requests pause once in each cycle.
    let turns = wire_bytes_per_second * share * (1.0 - share) / HYSTERESIS_BYTES;
    // A lasting pause is requested again in time: at half of the longest.
    let again = share * 2.0 * wire_bytes_per_second * 8.0 / LONGEST_PAUSE_BITS;
    // Each cycle has a frame that pauses and one that resumes.
    ((2.0 * turns).max(again), turns)
}

/// Traffic from one NIC to another in a collective.
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
    /// Share of the collective in which it flows and congestion control has not slowed it down.
    uncontrolled: f64,
}

/// A fabric with its traffic at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) conditions: &'a Conditions,
    pub(crate) router: &'a Router,
    pub(crate) dcqcn: bool,
}

/// A job with its flows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Employer<'a> {
    pub(crate) job: &'a JobSpec,
    pub(crate) traffic: &'a Traffic,
    pub(crate) pace: &'a Pace,
    /// Distinguishes its flows from those of others.
    pub(crate) seed: u64,
}

/// A collective while it runs.
#[derive(Debug, Clone, Copy)]
struct Running<'a> {
    job: &'a JobSpec,
    collective: &'a Collective,
    streams: &'a [Stream],
    seed: u64,
}

impl<'a> Employer<'a> {
    fn running(&self, number: usize) -> Running<'a> {
        Running {
            job: self.job,
            collective: &self.job.workload.collectives[number],
            streams: &self.traffic.streams[number],
            seed: self.seed,
        }
    }
}

/// What ports show of each collective of each job: alone for as long as no other job communicates, and with the
/// longest collectives of all for as long as others do.
pub(crate) fn strain(jobs: &[Employer<'_>], ground: Ground<'_>) -> Vec<Vec<Strains>> {
    let alone = |job: &Employer<'_>| {
        let all = 0..job.job.workload.collectives.len();
        all.map(|number| strains(&[job.running(number)], ground))
            .collect()
    };
    let mut of_jobs: Vec<Vec<Strains>> = jobs.iter().map(alone).collect();
    if jobs.len() < 2 {
        return of_jobs;
    }
    let longest: Vec<Option<usize>> = jobs.iter().map(|job| longest(job.pace)).collect();
    let meeting = jobs.iter().zip(&longest);
    let meeting = meeting.filter_map(|(job, number)| Some(job.running((*number)?)));
    let together = strains(&meeting.collect::<Vec<_>>(), ground);
    let nics = &ground.conditions.wiring.nics;
    for (number, own) in of_jobs.iter_mut().enumerate() {
        let others = jobs
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        let undisturbed: f64 = others
            .map(|(_, job)| 1.0 - communicating(job.pace))
            .product();
        let Some(strains) = longest[number].and_then(|longest| own.get_mut(longest)) else {
            continue;
        };
        for strain in strains.nics.values_mut() {
            *strain = strain.times(undisturbed);
        }
        for (nic, strain) in &together.nics {
            if jobs[number].job.nodes.contains(&nics[*nic].node) {
                let own = strains.nics.entry(*nic).or_default();
                *own = own.and(strain.times(1.0 - undisturbed));
            }
        }
        for share in strains.paused.values_mut() {
            *share *= undisturbed;
        }
        for (lane, share) in &together.paused {
            *strains.paused.entry(*lane).or_default() += share * (1.0 - undisturbed);
        }
    }
    of_jobs
}

/// The collective that takes longest; one that does not end before all others.
fn longest(pace: &Pace) -> Option<usize> {
    let seconds = pace.collectives();
    let moving = (0..seconds.len()).filter(|number| seconds[*number] > 0.0);
    moving.max_by(|a, b| seconds[*a].total_cmp(&seconds[*b]))
}

/// Share of the time that a job spends in collectives.
fn communicating(pace: &Pace) -> f64 {
    let seconds: f64 = pace.collectives().iter().sum();
    if seconds.is_infinite() {
        1.0
    } else {
        seconds / (seconds + pace.compute_seconds()).max(f64::MIN_POSITIVE)
    }
}

impl Strain {
    /// The same for a share of the time.
    fn times(self, share: f64) -> Self {
        Self {
            sends_pause: self.sends_pause * share,
            is_paused: self.is_paused * share,
            marked: self.marked * share,
            notifies: self.notifies * share,
            notified: self.notified * share,
            time_outs: self.time_outs * share,
        }
    }

    /// This and, for another share of the time, that.
    fn and(self, other: Self) -> Self {
        Self {
            sends_pause: self.sends_pause + other.sends_pause,
            is_paused: self.is_paused + other.is_paused,
            marked: self.marked + other.marked,
            notifies: self.notifies + other.notifies,
            notified: self.notified + other.notified,
            time_outs: self.time_outs + other.time_outs,
        }
    }
}

/// What the ports show while these collectives run at the same time.
fn strains(running: &[Running<'_>], ground: Ground<'_>) -> Strains {
    let Ground {
        conditions, dcqcn, ..
    } = ground;
    let streams: Vec<Stream> = running
        .iter()
        .flat_map(|running| running.streams)
        .cloned()
        .collect();
    let rates = max_min(&conditions.capacity, &streams);
    let mut rates = rates.as_slice();
    let mut flows = Vec::new();
    for running in running {
        let (own, others) = rates.split_at(running.streams.len());
        rates = others;
        add_flows(&mut flows, running, own, ground);
    }
    let lanes = Lanes::of(&flows, conditions);
    let mut strains: BTreeMap<usize, Strain> = BTreeMap::new();
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
            Receive::Works if flow.rate > 0.0 => flow.uncontrolled,
            // Nothing moves that could be marked.
            Receive::Works => 1.0,
            // What was in flight fills the buffers again after each time-out, until the watchdog empties
            // them.
            Receive::Stuck => WATCHDOG_SECONDS / ACK_TIMEOUT_SECONDS,
            // Discarded packets delay no sender.
            Receive::TooLong(_) => continue,
        };
        for (place, (lane, _)) in flow.path[..queue].iter().enumerate() {
            let share = match conditions.ports[flow.to].receive {
                Receive::Stuck => escapes,
                _ => lanes.blocked(*lane) * escapes,
            };
            let pause = if place == 0 {
                &mut sender.is_paused
            } else {
                paused.entry(*lane).or_default()
            };
            *pause = pause.max(share);
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
    hold_bystanders(&flows, &paused, &mut strains);
    Strains {
        nics: strains,
        paused,
    }
}

/// Flows wait behind others that are delayed, where they share a cable that is paused. The bytes that this costs
/// them are omitted: the fair shares of the cable have them.
fn hold_bystanders(
    flows: &[Flow],
    paused: &BTreeMap<Lane, f64>,
    strains: &mut BTreeMap<usize, Strain>,
) {
    if paused.is_empty() {
        return;
    }
    for flow in flows.iter().filter(|flow| flow.greedy > 0.0) {
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

/// Adds the flows of a collective, given the bytes per second of each of its streams.
fn add_flows(flows: &mut Vec<Flow>, running: &Running<'_>, rates: &[f64], ground: Ground<'_>) {
    let Running {
        job, collective, ..
    } = running;
    let wiring = &ground.conditions.wiring;
    let slots = wiring.common_slots(&job.nodes);
    let capacity = &ground.conditions.capacity;
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let controlled = if ground.dcqcn {
        (CONVERGENCE_SECONDS * slowest / collective.bytes).min(1.0)
    } else {
        1.0
    };
    let groups = job.workload.groups(collective.pattern, job.nodes.len());
    for (group, pairs) in groups.iter().enumerate() {
        for (place, slot) in slots.clone().enumerate() {
            // As streams are numbered.
            let rate = rates[group * slots.len() + place];
            let busy = if rate > 0.0 { slowest / rate } else { 1.0 };
            for (from, to, share) in pairs {
                let [from, to] = [from, to].map(|place| wiring.nic_index(job.nodes[*place], slot));
                let ways = ground
                    .router
                    .ways(from, to, running.seed, job.workload.flows);
                let share = share / ways.len() as f64;
                for path in ways {
                    // In a stalled collective only the blocked flows have anything to send.
                    let is_dead = |(lane, _): &(Lane, f64)| capacity[lane.index()] == 0.0;
                    let waits = rate == 0.0 && !path.iter().any(is_dead);
                    let could = if waits {
                        0.0
                    } else {
                        ground.conditions.sends(from)
                    };
                    flows.push(Flow {
                        from,
                        to,
                        path,
                        rate: rate * share,
                        greedy: could * share,
                        busy,
                        uncontrolled: busy * controlled,
                    });
                }
            }
        }
    }
}

/// What the flows of a collective do to each lane.
struct Lanes<'a> {
    conditions: &'a Conditions,
    /// Bytes per second that cross each lane.
    load: Vec<f64>,
    /// Bytes per second without back-pressure on the senders.
    offered: Vec<f64>,
}

impl<'a> Lanes<'a> {
    fn of(flows: &[Flow], conditions: &'a Conditions) -> Self {
        let count = conditions.capacity.len();
        let (mut load, mut offered) = (vec![0.0; count], vec![0.0; count]);
        // What is not accepted is sent in bursts, one after each timeout.
        let takes = |flow: &&Flow| conditions.ports[flow.to].receive == Receive::Works;
        for flow in flows.iter().filter(takes) {
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
            let wire = wiring.cables[lane.cable()].speed.bytes_per_second() * WIRE_EFFICIENCY;
            wire * (1.0 - self.conditions.ports[lane.cable()].neighbor)
        } else {
            self.conditions.capacity[lane.index()]
        }
    }

    /// Whether demand on a lane exceeds its capacity. 0.1 % is far above rounding.
    fn is_full(&self, lane: Lane, speed: f64) -> bool {
        let (load, offered) = (self.load[lane.index()], self.offered[lane.index()]);
        load >= 0.999 * speed && offered > 1.001 * load
    }

    /// Whether a host drains its NIC slower than data arrives.
    fn drains_slowly(&self, nic: usize) -> bool {
        if self.conditions.ports[nic].receive != Receive::Works {
            return true;
        }
        let host = self.conditions.wiring.pcie_lane(nic, Towards::Host);
        self.is_full(host, self.conditions.capacity[host.index()])
    }

    /// Place in a flow's path of the last lane with a queue before it. The sender's own cable has none:
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

    /// Share of the time for which a lane must not send, if its receiver is delayed: its traffic minus
    /// what the receiver forwards.
    fn blocked(&self, lane: Lane) -> f64 {
        let arrives = self.offered[lane.index()].min(self.speed(lane));
        if arrives > 0.0 {
            (1.0 - self.load[lane.index()] / arrives).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

//! Measurements of active rules in each tick: probes between NICs, probes that bounce off switches, and the
//! messages of collectives. A bounded number of each, over fixed lists, as their agents keep them.
//!
//! Replies are independent of scrapes: agents of such tools report over another network.

use std::collections::{BTreeMap, VecDeque};

use railscope_simulator::cluster::Cluster;
use railscope_simulator::show::probe::{Prober, Talk, Way};
use railscope_simulator::wiring::{Device, Wiring};

/// Probes that each NIC sends per second on each list (R-Pingmesh, SIGCOMM 2024: 10 in the mesh of a leaf).
const PER_SECOND: f64 = 10.0;
/// Others that a NIC probes on each list: neighbors on its leaf, flow labels, bounces.
const EACH: usize = 4;
/// NICs that probe, at most; beyond, every second or third and so on does.
const PROBERS: usize = 256;
/// Messages of collectives that are timed, at most.
const MESSAGES: usize = 2048;
/// Time over which rules that count rare losses add them up (an engineering choice).
const SPAN_SECONDS: f64 = 60.0;

/// The results of the probes from one NIC on one path.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Answer {
    /// The prober, by index into the NICs.
    pub(super) from: usize,
    /// The responder; none for a bounced probe.
    pub(super) to: Option<usize>,
    /// Cables of the path, by index; none where switches spray packets.
    pub(super) cables: Option<Vec<usize>>,
    /// Probes.
    pub(super) sent: u32,
    /// Those without a reply.
    pub(super) lost: u32,
}

/// How long a message of a collective took.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// Number of the job, and of the collective in it.
    pub(super) collective: (usize, usize),
    /// Sender, by index into the NICs.
    pub(super) from: usize,
    /// Receiver.
    pub(super) to: usize,
    /// Infinite if it does not arrive.
    pub(super) seconds: f64,
}

/// All measurements of one tick.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Probes {
    /// Between NICs of one leaf.
    pub(super) mesh: Vec<Answer>,
    /// Between NICs of different leaves.
    pub(super) far: Vec<Answer>,
    /// Off the highest switches.
    pub(super) bounces: Vec<Answer>,
    /// Between neighbors of collectives.
    pub(super) messages: Vec<Message>,
}

/// One entry of a list.
#[derive(Debug, Clone, Copy)]
struct Ask {
    from: usize,
    to: Target,
    flow: u64,
}

#[derive(Debug, Clone, Copy)]
enum Target {
    Nic(usize),
    Switch(usize),
}

/// Sends the probes of a run.
pub(super) struct Pinger {
    prober: Prober,
    /// Mesh, far, bounces.
    lists: [Vec<(Ask, Option<Way>)>; 3],
    talks: Vec<(usize, Talk)>,
    /// Whether the results lack these paths yet.
    fresh: bool,
    /// Time of the last tick.
    seconds: f64,
    ticks: u64,
}

impl Pinger {
    /// Makes the lists from the plan, and finds their paths.
    pub(super) fn new(cluster: &Cluster) -> Self {
        let prober = Prober::new(cluster);
        let leaves = leaves(cluster.plan());
        let nics = cluster.plan().nics.len();
        let stride = nics.div_ceil(PROBERS).max(1);
        let probing = |nic: &usize| nic.is_multiple_of(stride);
        let asks = [
            mesh(&leaves),
            far(&leaves, &prober),
            bounces(nics, &prober, probing),
        ];
        let lists = asks.map(|asks| {
            let asks = asks.into_iter().filter(|ask| probing(&ask.from));
            asks.map(|ask| (ask, None)).collect()
        });
        let mut pinger = Self {
            prober,
            lists,
            talks: Vec::new(),
            fresh: true,
            seconds: 0.0,
            ticks: 0,
        };
        pinger.find_ways(cluster);
        pinger
    }

    fn find_ways(&mut self, cluster: &Cluster) {
        for (ask, way) in self.lists.iter_mut().flatten() {
            *way = match ask.to {
                Target::Nic(to) => self.prober.way(ask.from, to, ask.flow),
                Target::Switch(switch) => self.prober.bounce(ask.from, switch, ask.flow),
            };
        }
        let jobs = 0..cluster.jobs().count();
        let talks = jobs.flat_map(|job| {
            let talks = self.prober.talks(cluster, job).into_iter();
            talks.map(move |talk| (job, talk))
        });
        self.talks = talks.take(MESSAGES).collect();
    }

    /// Makes all measurements once, for the time since the last tick, and records the results.
    pub(super) fn ask(&mut self, cluster: &Cluster, seconds: f64, into: &mut Probes) {
        if self.prober.follow(cluster) {
            self.find_ways(cluster);
            self.fresh = true;
        }
        let sent = (PER_SECOND * (seconds - self.seconds) / EACH as f64).round() as u32;
        self.seconds = seconds;
        self.ticks += 1;
        let answers = [&mut into.mesh, &mut into.far, &mut into.bounces];
        for (list, answers) in self.lists.iter().zip(answers) {
            answers.resize_with(list.len(), Answer::default);
            for ((ask, way), answer) in list.iter().zip(answers) {
                answer.from = ask.from;
                answer.to = match ask.to {
                    Target::Nic(to) => Some(to),
                    Target::Switch(_) => None,
                };
                // A node that is switched off sends no probes.
                let sent = if cluster.is_away(ask.from) { 0 } else { sent };
                answer.sent = sent;
                answer.lost = match way {
                    Some(way) => {
                        if self.fresh {
                            answer.cables = way.cables();
                        }
                        self.prober.lost(cluster, way, sent, self.ticks)
                    }
                    // Where there is no path any more, the previous one is suspected.
                    None => sent,
                };
            }
        }
        self.fresh = false;
        into.messages.clear();
        into.messages
            .extend(self.talks.iter().map(|(job, talk)| Message {
                collective: (*job, talk.collective),
                from: talk.from,
                to: talk.to,
                seconds: talk.seconds(cluster, self.ticks),
            }));
    }
}

/// NICs of each leaf, in order.
fn leaves(plan: &Wiring) -> Vec<Vec<usize>> {
    let mut leaves: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for nic in 0..plan.nics.len() {
        if let Some((Device::Switch(leaf), _)) = plan.cable_of(nic).map(|cable| cable.ends[1]) {
            leaves.entry(leaf).or_default().push(nic);
        }
    }
    leaves.into_values().collect()
}

/// Each NIC to the next ones on its leaf.
fn mesh(leaves: &[Vec<usize>]) -> Vec<Ask> {
    let of_leaf = |nics: &Vec<usize>| {
        let ring = nics.clone();
        let pairs = (0..ring.len())
            .flat_map(|at| (1..ring.len().min(EACH + 1)).map(move |step| (at, step)));
        let asks = pairs.map(|(at, step)| Ask {
            from: ring[at],
            to: Target::Nic(ring[(at + step) % ring.len()]),
            flow: 0,
        });
        asks.collect::<Vec<_>>()
    };
    leaves.iter().flat_map(of_leaf).collect()
}

/// Each NIC to its counterpart on the next leaf that it reaches, with several flow labels.
fn far(leaves: &[Vec<usize>], prober: &Prober) -> Vec<Ask> {
    let mut asks = Vec::new();
    for (number, nics) in leaves.iter().enumerate() {
        let others = (1..leaves.len()).map(|step| &leaves[(number + step) % leaves.len()]);
        let reached = |other: &&Vec<usize>| prober.way(nics[0], other[0], 0).is_some();
        let Some(next) = others.clone().find(reached) else {
            continue;
        };
        for (at, from) in nics.iter().enumerate() {
            let to = Target::Nic(next[at % next.len()]);
            asks.extend((0..EACH as u64).map(|flow| Ask {
                from: *from,
                to,
                flow,
            }));
        }
    }
    asks
}

/// Each NIC off some of the highest switches, each continuing where the one before it ended.
fn bounces(nics: usize, prober: &Prober, probing: impl Fn(&usize) -> bool) -> Vec<Ask> {
    let mut asks = Vec::new();
    for nic in (0..nics).filter(probing) {
        let switches = prober.ceiling(nic);
        for at in 0..switches.len().min(EACH) {
            let turn = nic * EACH + at;
            asks.push(Ask {
                from: nic,
                to: Target::Switch(switches[turn % switches.len()]),
                // Another cable to the same switch, once all switches were probed.
                flow: (turn / switches.len()) as u64,
            });
        }
    }
    asks
}

/// Sent and lost probes of each path over some time.
#[derive(Debug, Default)]
pub(super) struct Window {
    ticks: VecDeque<(f64, Vec<[u32; 2]>)>,
    sums: Vec<[u32; 2]>,
}

impl Window {
    /// Ingests a tick and forgets what is too old.
    pub(super) fn push(&mut self, seconds: f64, answers: &[Answer]) {
        let counts = answers.iter().map(|answer| [answer.sent, answer.lost]);
        let counts: Vec<[u32; 2]> = counts.collect();
        self.sums.resize(counts.len(), [0; 2]);
        for (sum, count) in self.sums.iter_mut().zip(&counts) {
            *sum = [sum[0] + count[0], sum[1] + count[1]];
        }
        self.ticks.push_back((seconds, counts));
        let is_old = |(at, _): &(f64, _)| seconds - *at >= SPAN_SECONDS;
        while self.ticks.front().is_some_and(is_old) {
            let Some((_, old)) = self.ticks.pop_front() else {
                break;
            };
            for (sum, count) in self.sums.iter_mut().zip(&old) {
                *sum = [sum[0] - count[0], sum[1] - count[1]];
            }
        }
    }

    /// Sent and lost, by path.
    pub(super) fn sums(&self) -> &[[u32; 2]] {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_what_is_older_than_its_span() {
        let mut window = Window::default();
        for tick in 0..10_u32 {
            let answer = Answer {
                sent: 10,
                lost: u32::from(tick == 3),
                ..Answer::default()
            };
            window.push(10.0 * f64::from(tick), &[answer]);
            let lost = u32::from((3..9).contains(&tick));
            assert_eq!(window.sums(), [[10 * (tick + 1).min(6), lost]], "{tick}");
        }
    }
}

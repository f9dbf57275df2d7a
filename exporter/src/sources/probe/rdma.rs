//! Probes by RDMA: the same list as the UDP prober's, run by a separate process that links libibverbs.
//!
//! ```text
//! list, NICs -> Resolver: where is the prober of each peer?  -> Plan -> railscope-rdma-probe
//!                 (UDP, answered by the peer's responder)              <- Report
//! ```
//!
//! A probe without a reply is held until its peer's exporter has reported whether the prober
//! there ran: only then it is lost. If that was stopped or restarted, the network is not the cause.

mod access;
mod child;
mod resolver;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use railscope_model::path_class::PathClass;
use railscope_model::rdma_probe::{Endpoint, Plan, PlannedFlow, Problem};

pub use self::access::RdmaAccess;
use self::child::{Heard, Program};
use self::resolver::{Known, Peer, Resolver};
use super::accounts::Accounts;
use super::clock;
use super::endpoint::Availability;
use super::flow::Counts;
use super::list::{ListAccess, Target};
use super::planner::{self, Planner, Shared};
use super::port::hash;
use super::prober::{FlowReport, Report};
use super::tally::Times;
use super::way::FlowKey;
use crate::sources::clock::SECOND;
use crate::sources::ethtool::NetworkAccess;
use crate::sources::sysfs::{Miss, Root};

/// Maximum time between two steps.
const STEP: Duration = Duration::from_millis(50);
/// How often to report what became of the probes.
const REPORT_EVERY: u64 = SECOND;
/// How long after another plan the last report that knew none of it may come, nanoseconds.
const RENEWAL: u64 = SECOND;

/// The RDMA prober: its threads and its process end with it.
#[derive(Debug)]
pub struct RdmaProber {
    shared: Arc<Shared>,
    report: Arc<ArcSwap<Report>>,
    thread: Option<JoinHandle<()>>,
}

impl RdmaProber {
    /// Starts responding, and probing the targets of the list, if there is one.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        access: RdmaAccess,
        list: Option<ListAccess>,
        sysfs: Root,
        network: &NetworkAccess,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let report = Arc::new(ArcSwap::from_pointee(Report::empty()));
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        if let Some(list) = list {
            let planner = Planner {
                list,
                sysfs,
                network: network.nics(),
                shared: Arc::clone(&shared),
            };
            named("rdma-list").spawn(move || planner.run())?;
        }
        let worker = Worker::new(access, Arc::clone(&shared), Arc::clone(&report));
        let thread = named("rdma-probe").spawn(move || worker.run())?;
        Ok(Self {
            shared,
            report,
            thread: Some(thread),
        })
    }

    /// What became of the probes, as of about a second ago.
    pub fn report(&self) -> Arc<Report> {
        self.report.load_full()
    }
}

impl Drop for RdmaProber {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but the clock. That it panicked has been reported on stderr.
            thread.join().ok();
        }
    }
}

/// One flow of the list.
#[derive(Debug)]
struct Flow {
    key: Arc<FlowKey>,
    path_class: PathClass,
    peer: Option<Peer>,
    counts: Counts,
    /// Probes without a reply, until it is known whether their peer's prober ran.
    held: u64,
    /// Endpoint in the last plan that was sent.
    told: Option<Endpoint>,
    /// Until when a probe that is given up may have gone to where its peer's prober was before.
    renewed_until: u64,
}

struct Worker {
    access: RdmaAccess,
    shared: Arc<Shared>,
    report: Arc<ArcSwap<Report>>,
    generation: u64,
    plan: Arc<planner::Plan>,
    program: Program,
    resolver: Resolver,
    /// By the number under which the process has them.
    flows: BTreeMap<u32, Flow>,
    numbers: u32,
    accounts: Accounts,
    responded: BTreeMap<String, Times>,
    problems: BTreeMap<String, Problem>,
    told: Option<Plan>,
    /// Whether it may need another plan.
    has_changed: bool,
    unparsed: u64,
    unanswerable: u64,
    /// Whether the NIC takes the timestamps; none before the first report.
    timestamps: Option<bool>,
}

impl Worker {
    fn new(access: RdmaAccess, shared: Arc<Shared>, report: Arc<ArcSwap<Report>>) -> Self {
        Self {
            program: Program::new(&access.program),
            access,
            shared,
            report,
            generation: 0,
            plan: Arc::default(),
            // The standard library's only source of random numbers.
            resolver: Resolver::new(RandomState::new().build_hasher().finish()),
            flows: BTreeMap::new(),
            numbers: 0,
            accounts: Accounts::default(),
            responded: BTreeMap::new(),
            problems: BTreeMap::new(),
            told: None,
            has_changed: true,
            unparsed: 0,
            unanswerable: 0,
            timestamps: None,
        }
    }

    fn run(mut self) {
        let mut report_at = 0;
        while !self.shared.is_stopped() {
            match self.program.listen(STEP) {
                Heard::Report(report) => self.take(report),
                Heard::Started => {
                    self.told = None;
                    self.has_changed = true;
                }
                Heard::Ended => self.access.ended(),
                Heard::Nothing => {}
            }
            if let Some(plan) = self.shared.newer(&mut self.generation) {
                self.follow(plan);
            }
            let now = clock::now().steady;
            for peer in self.resolver.step(now) {
                self.settle(&peer);
                self.has_changed = true;
            }
            if self.has_changed {
                self.has_changed = !self.tell();
            }
            if now >= report_at {
                self.say(now);
                report_at = now + REPORT_EVERY;
            }
        }
    }

    /// Applies another list. Flows that stay keep their counts.
    fn follow(&mut self, plan: Arc<planner::Plan>) {
        let flows = std::mem::take(&mut self.flows).into_iter();
        let mut before: BTreeMap<Arc<FlowKey>, (u32, Flow)> = flows
            .map(|(number, flow)| (Arc::clone(&flow.key), (number, flow)))
            .collect();
        for target in plan.list.iter().flat_map(|list| &list.targets) {
            let peer = peer(&plan, target);
            for number in 0..target.flows {
                let key = FlowKey {
                    device: target.device.clone(),
                    peer_node: target.peer_node.clone(),
                    peer_device: target.peer_device.clone(),
                    flow: number,
                };
                let (number, mut flow) = before.remove(&key).unwrap_or_else(|| {
                    self.numbers = self.numbers.wrapping_add(1);
                    let flow = Flow {
                        key: Arc::new(key),
                        path_class: target.path_class,
                        peer: None,
                        counts: Counts::default(),
                        held: 0,
                        told: None,
                        renewed_until: 0,
                    };
                    (self.numbers, flow)
                });
                flow.path_class = target.path_class;
                flow.peer = peer.clone();
                self.flows.insert(number, flow);
            }
        }
        let peers: BTreeSet<Peer> = self
            .flows
            .values()
            .filter_map(|flow| flow.peer.clone())
            .collect();
        self.resolver.follow(peers.into_iter(), clock::now().steady);
        let devices: BTreeSet<&String> = self.flows.values().map(|flow| &flow.key.device).collect();
        self.accounts.keep(devices.into_iter());
        self.plan = plan;
        self.has_changed = true;
    }

    /// Sends the process its plan if that has changed; false if its queue is full.
    fn tell(&mut self) -> bool {
        let plan = self.wanted();
        if self.told.as_ref() == Some(&plan) {
            return true;
        }
        let told = self.program.tell(&plan);
        if told {
            let until = clock::now().steady + plan.timeout_nanos + RENEWAL;
            for planned in &plan.flows {
                if let Some(flow) = self.flows.get_mut(&planned.id)
                    && flow.told.replace(planned.peer) != Some(planned.peer)
                {
                    flow.renewed_until = until;
                }
            }
            self.told = Some(plan);
        }
        told
    }

    fn wanted(&self) -> Plan {
        let Some(list) = self.plan.list.as_deref() else {
            return Plan::default();
        };
        let flows = self.flows.iter().filter_map(|(number, flow)| {
            let peer = match self.resolver.known(flow.peer.as_ref()?)? {
                Known::Said(Availability::Ready(endpoint)) => endpoint,
                // Probed as before: it may run again at any time, and probes without a reply are held.
                _ => flow.told?,
            };
            Some(PlannedFlow {
                id: *number,
                device: flow.key.device.clone(),
                flow_label: label(&flow.key),
                peer,
            })
        });
        Plan {
            interval_nanos: nanos(list.interval),
            timeout_nanos: nanos(list.timeout),
            traffic_class: list.dscp << 2,
            service_level: list.service_level,
            flows: flows.collect(),
        }
    }

    /// Processes a report of the process.
    fn take(&mut self, report: railscope_model::rdma_probe::Report) {
        let now = clock::now().steady;
        self.access.heard(report.endpoints, Instant::now());
        self.problems = report.problems;
        self.unparsed += report.unparsed;
        if self.timestamps.replace(report.hardware_timestamps) != Some(report.hardware_timestamps) {
            let clock = if report.hardware_timestamps {
                "NIC"
            } else {
                "host"
            };
            tracing::info!(clock, "clock of the times of RDMA probes");
        }
        for (device, times) in report.responded {
            let all = self.responded.entry(device).or_default();
            times.into_iter().for_each(|nanos| all.note(nanos));
        }
        let slow = self
            .plan
            .list
            .as_deref()
            .map_or(u64::MAX, |list| nanos(list.slow));
        for (number, took) in report.answered {
            if let Some(flow) = self.flows.get_mut(&number) {
                flow.counts.sent += 1;
                flow.counts.slow += u64::from(took.is_some_and(|nanos| nanos > slow));
                let account = (flow.key.device.as_str(), flow.path_class);
                self.accounts.take(account, now, 0, &[took]);
            }
        }
        for number in report.lost {
            if let Some(flow) = self.flows.get_mut(&number) {
                if now < flow.renewed_until {
                    self.unanswerable += 1;
                    continue;
                }
                flow.held += 1;
                if let Some(peer) = &flow.peer {
                    self.resolver.hurry(peer, now);
                }
            }
        }
    }

    /// A peer has answered, or does not: the held probes of its flows are lost, or its prober did not run.
    fn settle(&mut self, peer: &Peer) {
        let now = clock::now().steady;
        let known = self.resolver.known(peer);
        for flow in self.flows.values_mut() {
            if flow.peer.as_ref() != Some(peer) || flow.held == 0 {
                continue;
            }
            let held = std::mem::take(&mut flow.held);
            let is_lost = match known {
                Some(Known::Said(Availability::Ready(endpoint))) => flow.told == Some(endpoint),
                Some(Known::Said(Availability::Absent | Availability::Stopped)) => false,
                // Its node does not reply at all: as for UDP, that is a loss.
                Some(Known::Silent) => true,
                None => false,
            };
            if is_lost {
                flow.counts.sent += held;
                flow.counts.lost += held;
                let account = (flow.key.device.as_str(), flow.path_class);
                self.accounts.take(account, now, held, &[]);
            } else {
                self.unanswerable += held;
            }
        }
    }

    fn say(&mut self, now: u64) {
        let misses = |name: &str| -> BTreeSet<Miss> {
            let flows = self.flows.values().filter(|flow| flow.key.device == name);
            let problem = self.problems.get(name).map(|problem| miss(*problem));
            let unknown = flows.filter_map(|flow| missing(&self.resolver, flow));
            unknown.chain(problem).collect()
        };
        let (devices, classes) = self.accounts.reports(now, misses);
        let none: Arc<[(u8, std::net::IpAddr)]> = Arc::default();
        let flows = self.flows.values().map(|flow| FlowReport {
            key: Arc::clone(&flow.key),
            counts: flow.counts,
            hops: Arc::clone(&none),
        });
        self.report.store(Arc::new(Report {
            at: Instant::now(),
            has_list: self.plan.list.is_some(),
            list_miss: self.plan.miss,
            program: self.program.problem().map(|kind| match kind {
                io::ErrorKind::NotFound => Miss::Absent,
                io::ErrorKind::PermissionDenied => Miss::Denied,
                _ => Miss::Failed,
            }),
            devices,
            classes,
            flows: flows.collect(),
            responded: self.responded.clone().into_iter().collect(),
            unanswerable: self.unanswerable,
            unparsed: self.unparsed + self.resolver.unparsed,
        }));
    }
}

/// Why a flow is not probed.
fn missing(resolver: &Resolver, flow: &Flow) -> Option<Miss> {
    match flow.peer.as_ref().and_then(|peer| resolver.known(peer)) {
        Some(Known::Said(Availability::Ready(_))) => None,
        // Not known yet, or no local address to send from.
        None if flow.peer.is_some() => None,
        None | Some(Known::Said(Availability::Absent)) => Some(Miss::Absent),
        Some(Known::Said(Availability::Stopped) | Known::Silent) => Some(Miss::Failed),
    }
}

/// Where to request the prober of a target, and from which local address.
fn peer(plan: &planner::Plan, target: &Target) -> Option<Peer> {
    let nic = plan.nics.get(&target.device)?.as_ref().ok()?;
    Some(Peer {
        address: target.address,
        device: target.peer_device.clone(),
        from: nic.towards(target.address.ip()).ok()?,
    })
}

/// The flow label of a flow, 20 bits: always the same, so that its path is.
fn label(key: &FlowKey) -> u32 {
    let words = [
        &key.device,
        &key.peer_node,
        &key.peer_device,
        &key.flow.to_string(),
    ];
    (hash(&words.map(String::as_str)) & 0xf_ffff) as u32
}

fn miss(problem: Problem) -> Miss {
    match problem {
        Problem::Absent => Miss::Absent,
        Problem::Denied => Miss::Denied,
        Problem::Failed => Miss::Failed,
    }
}

/// Of at most a minute.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

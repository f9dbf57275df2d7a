//! Probes the NICs of a list, on a separate thread, and reports every second what became of it.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use railscope_model::rate_limit::Bucket;

use super::accounts::{Accounts, ClassReport, DeviceReport};
use super::clock;
use super::flow::{Counts, Limits};
use super::list::{ListAccess, ProbeList};
use super::planner::{Plan, Planner, Shared};
use super::socket::Inbox;
use super::tally::Times;
use super::way::{Common, Ends, FlowKey, Wanted, Way};
use crate::sources::clock::SECOND;
use crate::sources::ethtool::NetworkAccess;
use crate::sources::sysfs::{Miss, Root};

/// Shortest and longest sleep, nanoseconds; between them half an interval of the flows. What falls due meanwhile is done
/// in one go: a wake-up costs as much as several probes (100 us in a virtual machine), and as the kernel timestamps what
/// arrives, a late read does not make the measurement worse.
const SLEEP: (u64, u64) = (20_000_000, 200_000_000);
/// How often to report what became of the probes.
const REPORT_EVERY: u64 = SECOND;
/// Packets per second of the whole node that trace hops: routers reply to them by their slow path, and limit that.
const HOPS_PER_SECOND: u64 = 20;

/// What became of the probes so far.
#[derive(Debug, Clone)]
pub struct Report {
    /// When it was reported.
    pub at: Instant,
    /// Whether there is a list.
    pub has_list: bool,
    /// Why the newest list could not be read.
    pub list_miss: Option<Miss>,
    /// Why the program that probes does not run; UDP needs none.
    pub program: Option<Miss>,
    /// Our NICs that are on the list, by name.
    pub devices: Vec<DeviceReport>,
    /// Classes of paths that were probed.
    pub classes: Vec<ClassReport>,
    /// Every flow of the list.
    pub flows: Vec<FlowReport>,
    /// By RDMA device: how long probes of others spent in the program. UDP's responder has that itself.
    pub responded: Vec<(String, Times)>,
    /// Probes without a reply because the program of their peer did not run, since the start.
    pub unanswerable: u64,
    /// Datagrams received on a probing socket that are not replies, since the start.
    pub unparsed: u64,
}

impl Report {
    /// Of a prober that has just begun.
    pub(crate) fn empty() -> Self {
        Self {
            at: Instant::now(),
            has_list: false,
            list_miss: None,
            program: None,
            devices: Vec::new(),
            classes: Vec::new(),
            flows: Vec::new(),
            responded: Vec::new(),
            unanswerable: 0,
            unparsed: 0,
        }
    }
}

/// What became of the probes of one flow.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// Which.
    pub key: Arc<FlowKey>,
    /// How many.
    pub counts: Counts,
    /// Routers on its path that reply, by hop.
    pub hops: Arc<[(u8, IpAddr)]>,
}

/// The prober: its threads end with it.
#[derive(Debug)]
pub struct Prober {
    shared: Arc<Shared>,
    report: Arc<ArcSwap<Report>>,
    thread: Option<JoinHandle<()>>,
}

impl Prober {
    /// Begins to probe the targets of the list, from the NICs below a sysfs.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(list: ListAccess, sysfs: Root, network: &NetworkAccess) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let report = Arc::new(ArcSwap::from_pointee(Report::empty()));
        let planner = Planner {
            list,
            sysfs,
            network: network.nics(),
            shared: Arc::clone(&shared),
        };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("probe-list").spawn(move || planner.run())?;
        let worker = Worker::new(Arc::clone(&shared), Arc::clone(&report));
        let thread = named("probe").spawn(move || worker.run())?;
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

impl Drop for Prober {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It waits for nothing but the clock. That it panicked has been reported on stderr.
            thread.join().ok();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    report: Arc<ArcSwap<Report>>,
    generation: u64,
    plan: Arc<Plan>,
    ways: Vec<Way>,
    accounts: Accounts,
    ports: BTreeSet<u16>,
    token: u64,
    dice: u64,
    hops: Bucket,
    unparsed: u64,
}

impl Worker {
    fn new(shared: Arc<Shared>, report: Arc<ArcSwap<Report>>) -> Self {
        // The standard library's only source of unpredictable numbers.
        let token = RandomState::new().build_hasher().finish();
        Self {
            shared,
            report,
            generation: 0,
            plan: Arc::default(),
            ways: Vec::new(),
            accounts: Accounts::default(),
            ports: BTreeSet::new(),
            token,
            dice: token | 1,
            hops: Bucket::new(HOPS_PER_SECOND, clock::now().steady),
            unparsed: 0,
        }
    }

    fn run(mut self) {
        let mut inbox = Inbox::new();
        let mut report_at = 0;
        while !self.shared.is_stopped() {
            if let Some(plan) = self.shared.newer(&mut self.generation) {
                self.follow(plan);
            }
            self.visit_all(&mut inbox);
            let now = clock::now().steady;
            if now >= report_at {
                self.say(now);
                report_at = now + REPORT_EVERY;
            }
            let wakes = self.ways.iter().map(|way| way.wake);
            let wake = wakes.fold(report_at, u64::min);
            let sleep = Duration::from_nanos(wake.saturating_sub(now));
            thread::park_timeout(sleep.max(self.shortest_sleep()));
        }
    }

    fn shortest_sleep(&self) -> Duration {
        let list = self.plan.list.as_ref();
        let half = list.map_or(u64::MAX, |list| nanos(list.interval) / 2);
        Duration::from_nanos(half.clamp(SLEEP.0, SLEEP.1))
    }

    fn visit_all(&mut self, inbox: &mut Inbox) {
        let Some(list) = self.plan.list.clone() else {
            return;
        };
        let limits = Limits {
            timeout_nanos: nanos(list.timeout),
            slow_nanos: nanos(list.slow),
        };
        let interval = nanos(list.interval);
        let begun = clock::now().steady;
        for place in 0..self.ways.len() {
            if self.ways[place].wake > begun {
                continue;
            }
            let random = self.roll();
            let way = &mut self.ways[place];
            let mut common = Common {
                now: clock::now(),
                token: self.token,
                limits,
                interval,
                random,
                inbox: &mut *inbox,
                hops: &mut self.hops,
                ports: &mut self.ports,
            };
            let visit = way.visit(&mut common);
            let now = common.now.steady;
            self.unparsed += visit.unparsed;
            let account = (way.key.device.as_str(), way.path_class);
            self.accounts
                .take(account, now, visit.lost, &visit.answered);
        }
    }

    /// Adopts another plan. Flows that stay keep their counts, and their sockets unless their ends are
    /// others.
    fn follow(&mut self, plan: Arc<Plan>) {
        let now = clock::now().steady;
        let mut before: BTreeMap<Arc<FlowKey>, Way> = BTreeMap::new();
        for way in self.ways.drain(..) {
            before.insert(Arc::clone(&way.key), way);
        }
        if let Some(list) = &plan.list {
            for wanted in wanted(list, &plan) {
                let way = match before.remove(&wanted.key) {
                    Some(mut way) => {
                        way.path_class = wanted.path_class;
                        way.join(wanted.ends, now);
                        way
                    }
                    None => Way::new(wanted, now, nanos(list.interval)),
                };
                self.ways.push(way);
            }
        }
        for mut gone in before.into_values() {
            gone.leave(&mut self.ports);
        }
        self.accounts.keep(plan.nics.keys());
        self.plan = plan;
    }

    fn say(&mut self, now: u64) {
        let misses = |name: &str| {
            let ways = self.ways.iter().filter(|way| way.key.device == name);
            ways.filter_map(|way| way.miss).collect()
        };
        let (devices, classes) = self.accounts.reports(now, misses);
        let flows = self.ways.iter().map(|way| FlowReport {
            key: Arc::clone(&way.key),
            counts: way.counts(),
            hops: Arc::clone(&way.hops),
        });
        self.report.store(Arc::new(Report {
            has_list: self.plan.list.is_some(),
            list_miss: self.plan.miss,
            devices,
            classes,
            flows: flows.collect(),
            unparsed: self.unparsed,
            ..Report::empty()
        }));
    }

    /// A number between 0 and 1: xorshift64.
    fn roll(&mut self) -> f64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The flows of a list, with source and destination of each.
fn wanted(list: &ProbeList, plan: &Plan) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for target in &list.targets {
        let nic = plan.nics.get(&target.device);
        let nic = nic.map_or(Err(Miss::Absent), |nic| nic.as_ref().map_err(|miss| *miss));
        let ends = nic.and_then(|nic| {
            Ok(Ends {
                interface: nic.interface.clone(),
                stamps_all: nic.stamps_all,
                local: nic.towards(target.address.ip())?,
                peer: target.address,
                dscp: list.dscp,
            })
        });
        for flow in 0..target.flows {
            let key = FlowKey {
                device: target.device.clone(),
                peer_node: target.peer_node.clone(),
                peer_device: target.peer_device.clone(),
                flow,
            };
            wanted.push(Wanted {
                key,
                path_class: target.path_class,
                ends: ends.clone(),
            });
        }
    }
    wanted
}

/// Of at most a minute.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

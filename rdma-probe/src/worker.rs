//! One device on a separate thread: opens its port, probes and answers by it, and opens it again when the device has come back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use railscope_model::rdma_probe::{Endpoint, Plan, Problem};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::addresses::{Gids, Source};
use crate::prober::{Moment, Outcomes, Prober};
use crate::resolver::{Addresses, Lookup};
use crate::responder::{Counts, Reply, Responder};
use crate::verbs::{Address, Completion, Port, PortState, Role};
use crate::wake::{Clocks, Wake};
use crate::wire::Packet;

const SECOND: u64 = 1_000_000_000;
/// Longest sleep, so that another plan and the end are noticed soon.
const LONGEST_SLEEP: u64 = SECOND / 10;
/// How often to look at port and GIDs if no event says that they have changed.
const REFRESH_EVERY: u64 = SECOND;
/// How often to read the table of GIDs again.
const READ_GIDS_EVERY: u64 = 10 * SECOND;
/// How long to wait before a device that could not be used is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(2);
/// Most probes a second of one device: as in the exporter, of all.
const MOST_PROBES: u64 = 2_560;
/// Most answers a second of one device.
const MOST_ANSWERS: u64 = 20_000;
/// Bits of a packet and its answer's time in one direction: twice 64 bytes, with the headers of RoCE v2 over IPv4 (Ethernet with
/// preamble and gap 38, IP 20, UDP 8, BTH 12, DETH 8, checksum 4).
const BITS_A_PROBE: u64 = 2 * 8 * (64 + 38 + 20 + 8 + 12 + 8 + 4);
/// Probes and answers may each take one part in so many of the port's rate: 0.1 % together.
const SHARE_OF_RATE: u64 = 2_000;
/// Questions that wait for the address of their asker.
const MOST_HELD: usize = 1_024;
/// How long they do: then the asker has given them up.
const HELD_FOR: u64 = SECOND;
/// Batches of completions at one wake-up, so that a flood of packets does not delay its probes.
const MOST_BATCHES: usize = 16;

/// What a device's thread and the rest of the process share.
#[derive(Debug, Default)]
pub struct Shared {
    plan: Mutex<Arc<Plan>>,
    generation: AtomicU64,
    said: Mutex<Said>,
    /// When the thread was last seen at work, by the host's clock.
    beat: AtomicU64,
}

/// What a device's thread has to say.
#[derive(Debug, Default)]
pub struct Said {
    /// Where it answers.
    pub endpoint: Option<Endpoint>,
    /// Why it does not.
    pub problem: Option<Problem>,
    /// What became of its probes since this was last taken.
    pub outcomes: Outcomes,
    /// What it has answered.
    pub counts: Counts,
    /// Whether its NIC takes timestamps.
    pub hardware_timestamps: bool,
}

impl Shared {
    /// Hands the thread another plan.
    pub fn follow(&self, plan: Arc<Plan>) {
        *lock(&self.plan) = plan;
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Takes what it has said; endpoint and problem stay.
    pub fn take(&self) -> Said {
        let mut said = lock(&self.said);
        Said {
            outcomes: std::mem::take(&mut said.outcomes),
            counts: std::mem::take(&mut said.counts),
            ..*said
        }
    }

    /// When the thread was last seen at work.
    pub fn beat_nanos(&self) -> u64 {
        self.beat.load(Ordering::Relaxed)
    }

    fn fail(&self, problem: Problem) {
        let mut said = lock(&self.said);
        said.endpoint = None;
        said.problem = Some(problem);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host's steady clock, nanoseconds.
pub fn now_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * SECOND + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// The clocks of this thread.
fn clocks() -> Clocks {
    Clocks {
        host: now_nanos(),
        worked: nanos(ClockId::ThreadCPUTime),
        waited: waited_nanos(),
    }
}

/// Which device a thread is for.
#[derive(Debug, Clone)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its character device, by name. When the kernel removes the device, it waits for the processes that have that open.
    pub node: String,
    /// Token and queue keys: random numbers.
    pub secrets: [u64; 3],
}

/// Probes and answers by a device until it is gone.
pub fn run(device: &Device, shared: &Shared) {
    let is_there = || {
        Path::new("/sys/class/infiniband_verbs")
            .join(&device.node)
            .exists()
    };
    while is_there() {
        shared.beat.store(now_nanos(), Ordering::Relaxed);
        let ended = Session::open(device, shared).and_then(|mut session| session.run(&is_there));
        if let Err(error) = ended {
            shared.fail(match error.kind() {
                io::ErrorKind::NotFound => Problem::Absent,
                io::ErrorKind::PermissionDenied => Problem::Denied,
                _ => Problem::Failed,
            });
            // By its standard error the exporter's log has it.
            eprintln!("railscope-rdma-probe: {}: {error}", device.name);
        }
        thread::sleep(REOPEN_AFTER);
    }
}

/// A packet to the answering queue pair.
struct Question {
    bytes: Vec<u8>,
    source: Source,
    moment: Moment,
    delay_nanos: u64,
}

/// A port that is open, and what is known while it is.
struct Session<'a> {
    shared: &'a Shared,
    generation: u64,
    device: &'a str,
    port: Port,
    state: PortState,
    table: PathBuf,
    gids: Gids,
    gids_read_at: u64,
    plan: Arc<Plan>,
    addresses: Addresses<Address>,
    prober: Prober,
    responder: Responder<(Address, u32)>,
    held: Vec<Question>,
    completions: Vec<Completion>,
    unparsed: u64,
}

impl<'a> Session<'a> {
    fn open(device: &'a Device, shared: &'a Shared) -> io::Result<Self> {
        let [token, first, second] = device.secrets;
        // Keys whose highest bit is set are for privileged processes.
        let queue_keys = [first, second].map(|secret| secret as u32 & 0x7fff_ffff);
        let port = Port::open(&device.name, queue_keys)?;
        let state = port.state()?;
        let maker = port.addresses();
        let addresses = Addresses::new(move |route| maker.make(route))?;
        let now = now_nanos();
        let of_rate = match state.bits_per_second {
            0 => u64::MAX,
            bits => (bits / SHARE_OF_RATE / BITS_A_PROBE).max(10),
        };
        let folder = format!(
            "/sys/class/infiniband/{}/ports/{}",
            device.name,
            port.number()
        );
        Ok(Self {
            shared,
            generation: u64::MAX,
            device: &device.name,
            state,
            table: folder.into(),
            gids: Gids::default(),
            gids_read_at: 0,
            plan: Arc::default(),
            addresses,
            prober: Prober::new(token, MOST_PROBES.min(of_rate), now),
            responder: Responder::new(MOST_ANSWERS.min(of_rate), now),
            held: Vec::new(),
            completions: Vec::new(),
            unparsed: 0,
            port,
        })
    }

    fn run(&mut self, is_there: &impl Fn() -> bool) -> io::Result<()> {
        let (mut refresh_at, mut woke) = (0, clocks());
        loop {
            let now = now_nanos();
            self.shared.beat.store(now, Ordering::Relaxed);
            if now >= refresh_at {
                if !is_there() {
                    return Err(io::ErrorKind::NotFound.into());
                }
                self.refresh(now)?;
                refresh_at = now + REFRESH_EVERY;
            }
            self.take_plan(now);
            if self.addresses.collect(now) {
                self.take_held();
            }
            let wake_at = self.prober.wake_nanos().clamp(now, now + LONGEST_SLEEP);
            let (before, slept) = (woke, clocks());
            let [completed, changed] = self.sleep(wake_at.saturating_sub(slept.host))?;
            woke = clocks();
            let wake = Wake::of(before, slept, wake_at, woke);
            if changed {
                if self.port.take_event()? {
                    return Err(io::Error::other("the device says that it failed"));
                }
                (refresh_at, self.gids_read_at) = (0, 0);
            }
            if completed {
                self.port.take_notice()?;
                self.port.arm()?;
            }
            self.take_completions(wake)?;
            self.prober.give_up(now_nanos(), wake.was_held_up());
            self.ask();
            self.say();
        }
    }

    /// Sleeps until there are completions, events of the device or addresses, or for this long.
    fn sleep(&self, nanos: u64) -> io::Result<[bool; 2]> {
        let [completions, events] = self.port.descriptors();
        let mut of = [completions, events, self.addresses.descriptor()]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(nanos).unwrap_or(0),
        };
        match poll(&mut of, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [completed, changed, _] = of.map(|fd| !fd.revents().is_empty());
        Ok([completed, changed])
    }

    /// Looks at the port and its addresses.
    fn refresh(&mut self, now: u64) -> io::Result<()> {
        self.state = self.port.state()?;
        if now >= self.gids_read_at {
            let gids = Gids::read(&self.table, self.state.gids, self.state.ethernet)?;
            self.gids_read_at = now + READ_GIDS_EVERY;
            if gids != self.gids {
                self.gids = gids;
                self.addresses.forget();
            }
        }
        let (queue_pair, queue_key) = self.port.queue_pair(Role::Answers);
        let own = self.gids.own().filter(|_| self.state.active);
        let mut said = lock(&self.shared.said);
        said.endpoint = own.map(|own| Endpoint {
            gid: own.gid,
            lid: self.state.lid,
            queue_pair,
            queue_key,
        });
        said.problem = own.is_none().then_some(Problem::Absent);
        said.hardware_timestamps = self.port.has_timestamps();
        Ok(())
    }

    fn take_plan(&mut self, now: u64) {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.plan = Arc::clone(&lock(&self.shared.plan));
            self.prober.follow(&self.plan, self.device, now);
            let (plan, device) = (Arc::clone(&self.plan), self.device);
            for flow in plan.flows.iter().filter(|flow| flow.device == device) {
                // So that it is there before the first probe.
                self.address(&flow.peer, flow.flow_label, now);
            }
        }
    }

    /// The address of the other end of a flow, if there is one already.
    fn address(&mut self, peer: &Endpoint, flow_label: u32, now: u64) -> Option<Address> {
        let class = (self.plan.traffic_class, self.plan.service_level);
        let ethernet = self.state.ethernet;
        let route = self.gids.route(peer, flow_label, class, ethernet)?;
        match self.addresses.get(&route, now) {
            Lookup::Ready(address) => Some(address),
            Lookup::Pending | Lookup::Absent(_) => None,
        }
    }

    fn take_completions(&mut self, wake: Wake) -> io::Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        for _ in 0..MOST_BATCHES {
            self.port.poll(&mut completions)?;
            if completions.is_empty() {
                break;
            }
            for completion in completions.drain(..) {
                self.take(completion, wake);
            }
        }
        self.completions = completions;
        Ok(())
    }

    fn take(&mut self, completion: Completion, wake: Wake) {
        match completion {
            Completion::Sent {
                role,
                bytes,
                nic_nanos,
            } => match (role, Packet::read(&bytes)) {
                (Role::Asks, Some(Packet::Question(id, _))) => {
                    if let Some(nanos) = nic_nanos {
                        self.prober.left(id.sequence, nanos);
                    }
                }
                (Role::Answers, Some(Packet::Answer(id, _))) => {
                    if let Some(time) = self.responder.left(id, nic_nanos) {
                        self.answer(&time);
                    }
                }
                _ => {}
            },
            Completion::Received {
                role,
                bytes,
                source,
                nic_nanos,
            } => {
                let moment = Moment {
                    host_nanos: wake.ready_nanos,
                    nic_nanos,
                    delayed: wake.was_stopped(),
                };
                match role {
                    Role::Asks => match Packet::read(&bytes) {
                        Some(packet) => self.prober.arrived(packet, source.queue_pair, moment),
                        None => self.unparsed += 1,
                    },
                    Role::Answers => self.take_question(Question {
                        bytes,
                        source,
                        moment,
                        delay_nanos: wake.delay_nanos(),
                    }),
                }
            }
        }
    }

    /// Answers a question, or holds it until the address of its asker was made.
    fn take_question(&mut self, question: Question) {
        let now = now_nanos();
        let is_one = matches!(Packet::read(&question.bytes), Some(Packet::Question(..)));
        let route = self.gids.back(&question.source, self.state.ethernet);
        let address = route
            .filter(|_| is_one)
            .map(|route| self.addresses.get(&route, now));
        match address {
            Some(Lookup::Ready(address)) => {
                let to = (address, question.source.queue_pair);
                let (moment, times) = (question.moment, (now, question.delay_nanos));
                if let Some(answer) = self.responder.answer(&question.bytes, to, moment, times) {
                    self.answer(&answer);
                }
            }
            Some(Lookup::Pending) if self.held.len() < MOST_HELD => self.held.push(question),
            _ => self.unparsed += 1,
        }
    }

    /// Takes the questions that were held again, but for those that are too old.
    fn take_held(&mut self) {
        let now = now_nanos();
        for question in std::mem::take(&mut self.held) {
            if now.saturating_sub(question.moment.host_nanos) < HELD_FOR {
                self.take_question(question);
            } else {
                self.unparsed += 1;
            }
        }
    }

    /// Sends an answer. One that cannot be sent is one that its asker does not get.
    fn answer(&mut self, reply: &Reply<(Address, u32)>) {
        let (address, queue_pair) = &reply.to;
        let to = (address, *queue_pair, reply.queue_key);
        let sent = self.port.send(Role::Answers, to, &reply.packet.write());
        self.unparsed += u64::from(sent.is_err());
    }

    /// Sends the questions that are due.
    fn ask(&mut self) {
        let (_, own_key) = self.port.queue_pair(Role::Asks);
        for due in self.prober.due(now_nanos()) {
            let now = now_nanos();
            let Some(address) = self.address(&due.peer, due.flow_label, now) else {
                self.prober.not_sent();
                continue;
            };
            let to = (&address, due.peer.queue_pair, due.peer.queue_key);
            match self
                .port
                .send(Role::Asks, to, &Packet::Question(due.id, own_key).write())
            {
                Ok(()) => self.prober.sent(&due, now),
                Err(_) => self.prober.not_sent(),
            }
        }
    }

    fn say(&mut self) {
        let (outcomes, counts) = (self.prober.outcomes(), self.responder.counts());
        let mut said = lock(&self.shared.said);
        said.outcomes.answered.extend(outcomes.answered);
        said.outcomes.lost.extend(outcomes.lost);
        said.outcomes.unexpected += outcomes.unexpected;
        said.outcomes.limited += outcomes.limited;
        said.counts.responded.extend(counts.responded);
        said.counts.unparsed += counts.unparsed + std::mem::take(&mut self.unparsed);
        said.counts.limited += counts.limited;
    }
}

/// How long this thread has waited for a CPU so far, nanoseconds: the second number of `schedstat`. 0 where the kernel does not
/// count it.
fn waited_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text
        .split(' ')
        .nth(1)
        .and_then(|number| number.parse().ok());
    waited.unwrap_or(0)
}

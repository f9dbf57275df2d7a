//! Hosts and slots that drain slower than the fabric delivers: the root of back-pressure.
//!
//! On a lossless fabric a receiver that drains less than arrives back-pressures its switch: on InfiniBand the
//! switch port before it has data and no credit, on Ethernet its NIC sends pause. Its senders wait too,
//! but only the root back-pressures its own switch: a host that sends pause is the root.

mod by_byte;
mod credits;
mod onsets;
mod own_past;
mod pause_frames;
mod paused_ports;
pub(super) mod pauses;
mod pausing_nics;
mod slots;
mod stalls;
mod whole_nodes;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Equipment, PartId};
use railscope_model::identity::{NodeName, Part, PciAddress, RdmaDevice};
use railscope_model::metric::Metric;

use credits::Credits;
use own_past::{NEW, OwnPast, PAUSE_UNEXPLAINED, Storms};
use pauses::{LASTING, NOTHING, OF_IDLE, SETTLED_SECONDS, UNSTALLED};
use slots::of_slot;
use stalls::stalling;

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, NUMA_AFFINITY, PCIE_REDIRECTED, PFC_STORM, SLOW_RECEIVER};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::pause_graph::PauseGraph;
use crate::detect::peers::{self, MAJORITY, MIN_PEERS};
use crate::detect::registry::{Rule, SHARE_IN_PAUSE, Threshold};
use crate::stages::Step;

/// The detector's name.
pub(crate) const NAME: &str = "slow-receiver";

/// The window over which holding back is counted: three sweeps at 10 s.
pub(crate) const WINDOW_SECONDS: f64 = 30.0;
/// What every port does is the load: a port must stand out by this factor.
const ABOVE_PEERS: f64 = 10.0;
/// InfiniBand: bytes that a port sends, compared with the one in question, from which their waits are comparable.
const BUSY: f64 = 0.1;
/// Such ports that are enough for a median.
const SAMPLE: usize = 64;
/// Bytes that a NIC receives, compared with the median NIC of its job, of its node where no job over several nodes is known,
/// above which it has senders outside the job: a slow receiver drains at most what its job sends.
const FROM_OTHERS: f64 = 1.5;
/// The same, compared with what it received before its switch began to wait.
const MORE: f64 = 1.2;
/// What it and the NICs beside it receive, compared with that, where their job runs no slower: much more is another phase of it.
const FASTER: [f64; 2] = [1.05, 1.5];
/// What a NIC of a node makes its switch wait, compared with the median of the node's NICs, from which it is that NIC.
const ABOVE_NODE: f64 = 3.0;
/// Share of a job's nodes, at least two, whose NICs all make their switches wait, from which that is how the job sends.
const ALIKE: f64 = 0.1;
/// Share of the time in pause from which a NIC is a slow receiver.
const MIN_PAUSE: f64 = 0.01;
/// Share of the seconds in which a NIC lacked credits of its PCIe link from which it is slow. Of more than a thousand healthy
/// NICs in simulated clusters of three other authors none has 0.02 over half a minute.
const MIN_STALLED: f64 = 0.2;
/// Share of the time in pause from which nothing gets through, and the window in which it is measured.
const STORM: f64 = 0.9;
const STORM_SECONDS: f64 = 10.0;
/// Fewest ticks of waiting in a second that are evaluated. A tick is no fixed time; the slowest counters known tick at
/// some ten million a second, of which this is 8 %. In simulated clusters of nine other authors 29 slow receivers make their port
/// wait for 1,200,000 ticks or more, and ports in a burn-in of idle nodes for 760,000 at most.
const MIN_TICKS: f64 = 800_000.0;

/// A NIC that receives no more than this, bytes a second, receives nothing: management and health checks.
const NO_TRAFFIC: f64 = 1e7;
/// Fewest ticks of waiting in a second of a port that could send nothing for lack of credits: 30 % of the tick rate of the
/// slowest known counters.
const MOST_TICKS: f64 = 3e6;

/// Time for which a switch must have waited: by then its node's own scrapes report whether the PCIe link or a memory
/// is the cause; they come later than the switch's where they are scraped more slowly than evaluated.
const HEARD_SECONDS: f64 = 8.0;

/// Share of its port's speed from which a NIC drains what its cable carries. With PCIe at half its lanes it gets 64 % of it at
/// most: eight of generation 5, 32 GB/s, before a port of 400 Gb/s.
const FULL: f64 = 0.7;
/// Time over which that is measured, at least.
const SPAN_SECONDS: f64 = 4.5;

struct SlowReceiver {
    credits: Credits,
    storms: Storms,
    /// Ethernet, by counters of NICs.
    past_by_nic: OwnPast,
    /// Ethernet, by counters of switches.
    past_by_switch: OwnPast,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(SlowReceiver {
        credits: Credits::new(),
        storms: Storms::default(),
        past_by_nic: OwnPast::default(),
        past_by_switch: OwnPast::default(),
    })
}

/// A NIC that back-pressures its switch.
struct Holds<'a> {
    node: &'a NodeName,
    device: RdmaDevice,
    pci: Option<PciAddress>,
    signal: &'static Metric,
    /// Share of the time, where it is known.
    share: Option<f64>,
    /// What the switch waits on InfiniBand, ticks a second; else zero.
    ticks: f64,
    /// Whether its receive pipe is stuck.
    storm: bool,
    /// What was seen, as the beginning of a sentence.
    words: String,
}

impl Detector for SlowReceiver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut by_node: BTreeMap<&NodeName, Vec<Holds<'_>>> = BTreeMap::new();
        self.credits.refresh(view);
        self.storms.forget(view.now);
        let sources = [
            pausing_nics::pausing(view, &mut self.past_by_nic, &mut self.storms),
            paused_ports::pausing(view, &mut self.past_by_switch, &mut self.storms),
            self.credits.lacking(view),
            stalling(view),
            pause_frames::pausing(view, &mut self.storms),
        ];
        for holds in sources.into_iter().flatten() {
            let of_node = by_node.entry(holds.node).or_default();
            // The switch's counter and the NIC's own may show the same.
            if of_node.iter().all(|known| known.device != holds.device) {
                of_node.push(holds);
            }
        }
        let graph = PauseGraph::of(view);
        let first = out.len();
        let mut whole = Vec::new();
        for (node, holding) in by_node {
            let (stuck, slow): (Vec<_>, Vec<_>) = holding.into_iter().partition(|h| h.storm);
            out.extend(stuck.iter().map(|holds| storm(view, holds)));
            let nics = cabled_nics(view, node);
            let host_can_be = !view.left_out.has(Step::HostComponent);
            let most = slow.len() >= MIN_PEERS && slow.len() as f64 >= MAJORITY * nics as f64;
            if host_can_be && most {
                whole.push((slow, nics));
            } else {
                out.extend(slow.iter().map(|holds| of_slot(view, holds)));
            }
        }
        out.extend(whole_nodes::findings(view, &whole));
        out[first..]
            .iter_mut()
            .for_each(|own| add_held(view, &graph, own));
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        Explanation {
            check: if class == &PFC_STORM {
                "A NIC pauses its switch most of the time, its driver counts a pause storm, or it sends enough pause frames to pause it all of the time."
            } else {
                "A NIC back-pressures its switch: the switch port connected to it has data but no credits, the NIC sends pause, or its PCIe link stalls."
            },
            threshold: format!(
                "{ABOVE_PEERS} times the median port (InfiniBand: also of the ports of the NIC's job, and for each byte of the ports that send {:.0} % of its bytes), and {:.0} % of the time in pause ({:.0} % if nothing else shows that its PCIe link is slow), {MIN_TICKS} wait ticks per second or {:.0} % of the seconds with a stalled PCIe link, over {WINDOW_SECONDS:.0} s, and {NEW} times the port's own past for each byte, in which an InfiniBand NIC never receives more than {:.0} % of its port's speed, pause for at least {SETTLED_SECONDS:.0} s; from {:.0} % over {STORM_SECONDS:.0} s, {:.0} % if that lasts, {:.0} % if it counts stalls of its PCIe link and has hardly any, or {:.0} % if the NIC receives less than {:.0} % of its port's speed or next to nothing for some of the time, it is a storm; if {:.0} % of a node's NICs do so, the node is reported",
                100.0 * BUSY,
                100.0 * MIN_PAUSE,
                100.0 * PAUSE_UNEXPLAINED,
                100.0 * MIN_STALLED,
                100.0 * FULL,
                100.0 * STORM,
                100.0 * LASTING,
                100.0 * UNSTALLED,
                100.0 * OF_IDLE,
                100.0 * NOTHING,
                100.0 * MAJORITY
            ),
            clears: "The NIC accepts its traffic without back-pressure.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let peers = || {
            let own = Threshold::new(
                "above the median port",
                ABOVE_PEERS,
                "times",
                "the load affects every port (a choice)",
            );
            peers::thresholds().into_iter().chain([own])
        };
        let slow = || {
            let own = numbers().into_iter().chain(pauses::numbers());
            let own = own.chain(own_past::numbers()).chain(onsets::numbers());
            let own = own.chain(pause_frames::numbers());
            peers().chain(own).chain(numbers_of_jobs()).collect()
        };
        let stuck = [
            Threshold::new(
                SHARE_IN_PAUSE,
                STORM,
                "ratio",
                "no traffic passes (a choice)",
            ),
            Threshold::new(
                "observed time",
                STORM_SECONDS,
                "s",
                "two scrapes at 5 s (a choice)",
            ),
        ];
        let slow = [&SLOW_RECEIVER, &PCIE_REDIRECTED, &NUMA_AFFINITY]
            .into_iter()
            .map(|class| Rule::new(class, slow()));
        let stuck = stuck.into_iter().chain(pauses::numbers_of_storms());
        let stuck = stuck.chain(pause_frames::numbers());
        let storm = Rule::new(&PFC_STORM, peers().chain(stuck).collect());
        slow.chain([storm]).collect()
    }
}

/// The numbers of a slow receiver, beside those of its peers.
fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new(SHARE_IN_PAUSE, MIN_PAUSE, "ratio", "a choice"),
        Threshold::new(
            "share of the seconds in which the NIC lacked credits of its PCIe link for more than 30 % of the second",
            MIN_STALLED,
            "ratio",
            "of more than 1,000 healthy NICs in simulated clusters of three other authors none has 0.02",
        ),
        Threshold::new(
            "wait ticks of the switch port, InfiniBand",
            MIN_TICKS,
            "1/s",
            "8 % of the tick rate of the slowest known counters; in simulated clusters of nine other authors 29 slow receivers cause 1,200,000 or more, a burn-in of idle nodes 760,000 at most",
        ),
        Threshold::new(
            "bytes that a port sends, compared with this one, to compare waits per byte, InfiniBand",
            BUSY,
            "ratio",
            "an idle port waits for nothing (a choice)",
        ),
        Threshold::new(
            "ports of these whose median is taken, InfiniBand",
            SAMPLE as f64,
            "ports",
            "more change the median little (a choice)",
        ),
        Threshold::new(
            "bytes that a NIC receives, up to which it receives nothing",
            NO_TRAFFIC,
            "B/s",
            "management and health checks (a choice)",
        ),
        Threshold::new(
            "wait ticks of the switch port of a NIC that receives nothing, InfiniBand",
            MOST_TICKS,
            "1/s",
            "30 % of the tick rate of the slowest known counters: without credit the port waits most of the time",
        ),
        Threshold::new("window", WINDOW_SECONDS, "s", "three sweeps at 10 s"),
        Threshold::new(
            "minimum wait of the switch port, InfiniBand",
            HEARD_SECONDS,
            "s",
            "until the node's own scrapes have arrived (a choice)",
        ),
        Threshold::new(
            "share of its port's speed from which a NIC receives as fast as its cable carries, InfiniBand",
            FULL,
            "ratio",
            "a PCIe link with half of its lanes allows 64 %; above, many senders share the port (a choice)",
        ),
        Threshold::new(
            "time over which that is measured, at least",
            SPAN_SECONDS,
            "s",
            "the usual interval of scrapes; shorter ones are not exact enough (a choice)",
        ),
    ]
}

/// The numbers of what a job does to its own NICs, InfiniBand.
fn numbers_of_jobs() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "bytes that a NIC receives, compared with its job's median NIC, at most, InfiniBand",
            FROM_OTHERS,
            "times",
            "a slow receiver takes at most what its job sends; above, others send to it too (a choice)",
        ),
        Threshold::new(
            "the same, compared with before its switch waited",
            MORE,
            "times",
            "a slow receiver takes less than before; in a pipeline some always take more than others (a choice)",
        ),
        Threshold::new(
            "the same of it and of the NICs beside it where their job runs no slower, InfiniBand: at least",
            FASTER[0],
            "times",
            "a slow receiver slows its job (a choice)",
        ),
        Threshold::new(
            "and at most",
            FASTER[1],
            "times",
            "much more is another phase of the job (a choice)",
        ),
        Threshold::new(
            "wait above the median NIC of a node whose NICs all wait by the shape of the job, InfiniBand",
            ABOVE_NODE,
            "times",
            "the job sends alike on all rails (a choice)",
        ),
        Threshold::new(
            "share of a job's nodes whose NICs all wait, at least two, that is the shape of the job, InfiniBand",
            ALIKE,
            "ratio",
            "in a pipeline these are the nodes next to its ends (a choice)",
        ),
    ]
}

/// NICs of a node that a switch is cabled to.
fn cabled_nics(view: &View<'_>, node: &NodeName) -> usize {
    let is_cabled = |nic: &PartId| view.fabric.cables(*nic).next().is_some();
    view.fabric.nics(node).filter(is_cabled).count()
}

fn evidence(
    view: &View<'_>,
    part: Part,
    class: &'static Class,
    holds: &Holds<'_>,
    statement: String,
) -> Evidence {
    Evidence {
        detector: NAME,
        signal: holds.signal.name,
        class,
        effect: holds.share.unwrap_or(0.0),
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

/// Hosts whose pause leads to a node's NICs are its victims, and not separate faults.
fn add_held(view: &View<'_>, graph: &PauseGraph<'_>, own: &mut Evidence) {
    let Some(host) = own.part.node().cloned() else {
        return;
    };
    let host = Part::Host(host);
    let inside = view.fabric.find(&host).into_iter();
    let inside = inside.flat_map(|id| view.fabric.neighbors(id).map(|near| near.peer));
    let held: BTreeSet<PartId> = inside.flat_map(|nic| graph.held_by(nic)).collect();
    let hosts = held
        .into_iter()
        .filter_map(|nic| view.fabric.vertex(nic).part.node());
    let hosts: BTreeSet<Part> = hosts.map(|node| Part::Host(node.clone())).collect();
    for held in hosts.into_iter().filter(|held| *held != host) {
        own.victims.extend(gpus_behind(view.fabric, &held));
        own.victims.push(held);
    }
}

fn storm(view: &View<'_>, holds: &Holds<'_>) -> Evidence {
    let part = Part::Nic(holds.node.clone(), holds.device.clone());
    let statement = format!("{}.", holds.words);
    evidence(view, part, &PFC_STORM, holds, statement)
}

/// The lowest function of the card that a function is of: they share one link, named by it.
fn card(view: &View<'_>, node: &NodeName, pci: PciAddress) -> PciAddress {
    let inside = view.fabric.devices(node);
    let functions = inside.filter_map(|id| match view.fabric.vertex(id).equipment {
        Equipment::Nic { pci, .. } => pci,
        _ => None,
    });
    let slot = |pci: &PciAddress| (pci.domain, pci.bus, pci.device);
    functions
        .filter(|other| slot(other) == slot(&pci))
        .min()
        .unwrap_or(pci)
}

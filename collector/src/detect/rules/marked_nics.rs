//! NICs at which much of what arrives is marked for congestion, although less arrives than before: the link from their switch
//! passes less than its speed.
//!
//! A switch marks packets that wait in the queue of a port. If many send to one NIC at once, more arrives at it than before. If a
//! link between switches is the bottleneck, packets to NICs of many nodes are marked. If the NIC is too slow, it pauses its
//! switch ([`slow_receiver`](super::slow_receiver)). There remains the link itself, or a shaper before it.

mod arrivals;

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::RDMA_ECN_MARKED;

use self::arrivals::{Arrivals, Known, ports, usual};
use super::fabric_loss::leaf_of;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PATH_SLOW};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::ecn_marks::packet_size;
use crate::detect::peers::{self, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::Window;

/// The time in which packets are counted.
const WINDOW_SECONDS: f64 = 60.0;
/// The newest part of it. The condition must hold in both parts: a short queue is no slow link.
const NEWEST_SECONDS: f64 = 20.0;
/// Least share of the packets that is marked.
const MIN_MARKED: f64 = 6.5e-3;
/// The same share, in times the median of NICs that receive as much.
const ABOVE_PEERS: f64 = 10.0;
/// Bytes a second that a NIC receives, from which it is evaluated: at [`MIN_MARKED`], some 9,000 packets of it are marked in the window.
const MIN_BYTES: f64 = 1e8;
/// Bytes that a NIC receives, compared with the mean of all, from which it is evaluated, and compared with the one in question, from
/// which it is a peer.
const BUSY: f64 = 0.1;
/// Share of what is marked at a NIC, from which another one of its job or at its leaf stands out as it does: something that they have in
/// common is the bottleneck.
const ALIKE: f64 = 0.2;
/// The same share, in times that of the same NIC before, from which it may be such another: at some NICs much is always marked.
const RAISED: f64 = 1.5;
/// The same, from which a NIC is reported.
const NEW: f64 = 3.0;
/// Most bytes that it receives, compared with before.
const LESS: f64 = 0.9;
/// Most bytes that it receives, compared with the median of its node's other NICs.
const MAX_OF_NODE: f64 = 1.01;
/// Share of [`MIN_MARKED`], [`ABOVE_PEERS`] and [`NEW`], and of the lack of bytes by [`LESS`], from which a reported NIC stays
/// reported.
const STILL: f64 = 0.5;
/// Least age of the time before that is compared.
const AGO_SECONDS: f64 = 75.0;
/// Least length of that time.
const SPAN_SECONDS: f64 = 30.0;
/// Share of the time in pause from which the NIC is the cause.
const MAX_PAUSE: f64 = 0.01;
/// How long is remembered what arrived at a reported NIC before.
const REMEMBERED_SECONDS: f64 = 3600.0;
/// The same of a NIC at which only more is marked: others near it may stop to be.
const RAISED_SECONDS: f64 = 600.0;

/// Name of the detector.
pub const NAME: &str = "marked-nics";

type Port = (NodeName, RdmaPort);

#[derive(Default)]
struct MarkedNics {
    known: BTreeMap<Port, Past>,
}

/// What is known of a port at which more was marked than before.
struct Past {
    /// What arrived before.
    before: Arrivals,
    /// The job that it arrived for.
    job: Option<Box<str>>,
    /// Since when more is marked.
    since: Timestamp,
    /// When it was last reported.
    reported: Option<Timestamp>,
}

impl Past {
    fn was_reported(&self, now: Timestamp, seconds: f64) -> bool {
        let reported = self.reported;
        reported.is_some_and(|at| now.seconds_since(at) <= seconds)
    }
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<MarkedNics>::default()
}

/// The job whose traffic a NIC has, if it is known.
fn job_of<'a>(view: &View<'a>, (node, port): &Port) -> Option<&'a str> {
    let job = view.jobs.of_nic(node, &port.device);
    job.map(|job| &*job.name)
}

fn leaf(view: &View<'_>, (node, port): &Port) -> Option<SwitchName> {
    leaf_of(view.fabric, &Part::Nic(node.clone(), port.device.clone()))
}

/// Whether more arrives than at the other NICs of its node, or than at those of its job where it has no other: then others than
/// those of its job send to it.
fn has_more(view: &View<'_>, ports: &[Known<'_>], own: &Marked<'_, '_>) -> bool {
    let (node, port) = (own.own.node, own.own.port);
    let others = || {
        let is_own = move |other: &&Known<'_>| (other.node, other.port) == (node, port);
        ports.iter().filter(move |other| !is_own(other))
    };
    let bytes = |other: &Known<'_>| other.arrivals.bytes;
    let is_of_job = |other: &&Known<'_>| {
        let named = other.named();
        named.is_some_and(|named| job_of(view, &named) == own.job)
    };
    let of_node = median(others().filter(|other| other.node == node).map(bytes));
    let usual = of_node.or_else(|| median(others().filter(is_of_job).map(bytes)));
    usual.is_some_and(|usual| bytes(own.own) > MAX_OF_NODE * usual)
}

/// A port at which more is marked than before.
struct Marked<'a, 'b> {
    own: &'b Known<'a>,
    named: Port,
    job: Option<&'a str>,
    /// What arrived before. If that is not known, it may have been less.
    before: Option<Arrivals>,
    /// What is enough of each limit.
    share: f64,
}

impl Marked<'_, '_> {
    fn marked(&self) -> f64 {
        self.own.arrivals.marked
    }

    /// What arrived before, and what is usual, if the link to the port is slow. What looks at all ports comes last: a bottleneck of
    /// thousands of NICs marks at all of them.
    fn is_slow(
        &self,
        view: &View<'_>,
        ports: &[Known<'_>],
        all: &[Self],
    ) -> Option<(Arrivals, f64)> {
        let before = self.before?;
        let parts = Arrivals::in_parts(self.own.windows)?;
        let most = 1.0 - self.share * (1.0 - LESS);
        let has_at_least = |marked| parts.iter().all(|now| now.marked >= self.share * marked);
        let has_less = parts.iter().all(|now| now.bytes <= most * before.bytes);
        let pauses = || self.own.sent_pause().is_some_and(|share| share > MAX_PAUSE);
        if !has_less
            || !has_at_least(MIN_MARKED.max(NEW * before.marked))
            || !self.is_alone(view, all)
            || pauses()
            || has_more(view, ports, self)
        {
            return None;
        }
        let usual = usual(ports, self.own)?;
        has_at_least(ABOVE_PEERS * usual).then_some((before, usual))
    }

    /// Whether none of the others that stand out as it does has a job or a leaf in common with it. Those of no known job may be of
    /// one.
    fn is_alone(&self, view: &View<'_>, all: &[Self]) -> bool {
        let own = leaf(view, &self.named);
        all.iter().all(|other| {
            let is_alike = other.marked() >= ALIKE * self.marked();
            let is_other = !is_alike || other.named == self.named;
            is_other || other.job != self.job && (own.is_none() || leaf(view, &other.named) != own)
        })
    }
}

impl MarkedNics {
    /// Drops what is over, and what another job did.
    fn forget(&mut self, view: &View<'_>) {
        self.known.retain(|port, past| {
            let lately = view.now.seconds_since(past.since) <= RAISED_SECONDS;
            let is_kept = lately || past.was_reported(view.now, REMEMBERED_SECONDS);
            is_kept && past.job.as_deref() == job_of(view, port)
        });
    }

    /// A port, if more is marked at it than before, which is then remembered.
    fn marked<'a, 'b>(&mut self, view: &View<'a>, own: &'b Known<'a>) -> Option<Marked<'a, 'b>> {
        if own.arrivals.marked < ALIKE * STILL * MIN_MARKED {
            return None;
        }
        let (named, now) = (own.named()?, view.now);
        let past = self.known.get(&named);
        let lately = past.is_some_and(|past| past.was_reported(now, WINDOW_SECONDS));
        let share = if lately { STILL } else { 1.0 };
        let ago = || {
            let until = now.plus_seconds(-AGO_SECONDS);
            let rate = |window: Window<'_>| window.rate_until(until, SPAN_SECONDS);
            let [marks, bytes] = own.windows.map(rate);
            Arrivals::of(marks, bytes)
        };
        let before = past.map(|past| past.before).or_else(ago);
        let job = job_of(view, &named);
        let usual = before.map_or(0.0, |before| before.marked);
        if own.arrivals.marked < RAISED * usual {
            return None;
        }
        if let (None, Some(before)) = (past, before) {
            let past = Past {
                before,
                job: job.map(Box::from),
                since: now,
                reported: None,
            };
            self.known.insert(named.clone(), past);
        }
        Some(Marked {
            own,
            named,
            job,
            before,
            share,
        })
    }
}

impl Detector for MarkedNics {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.forget(view);
        let mut nodes = view.history.fresh_nodes(view.now);
        if !nodes.any(|(_, history)| history.moving(&RDMA_ECN_MARKED).next().is_some()) {
            return;
        }
        let ports = ports(view);
        let marked = ports.iter().filter_map(|own| self.marked(view, own));
        let marked: Vec<_> = marked.collect();
        for port in &marked {
            if let Some(past) = port.is_slow(view, &ports, &marked) {
                out.push(evidence(view, port.own, &port.named, past));
                if let Some(known) = self.known.get_mut(&port.named) {
                    known.reported = Some(view.now);
                }
            }
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "Much of what arrives at a NIC is marked for congestion, although less arrives than before and, where that is counted, the NIC sends no pause.",
            threshold: format!(
                "{:.2} % of the packets over the newest {NEWEST_SECONDS:.0} s and over the rest of {WINDOW_SECONDS:.0} s, {ABOVE_PEERS} times the median NIC that receives {:.0} % as much, {NEW} times the share before, at most {:.0} % of the bytes before and {MAX_OF_NODE} times those of the node's other NICs, at one NIC of a job and of a leaf",
                100.0 * MIN_MARKED,
                100.0 * BUSY,
                100.0 * LESS
            ),
            clears: "As many packets are marked as at other NICs, or as much arrives as before.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let own = numbers().into_iter().chain(numbers_of_before());
        vec![Rule::new(
            &PATH_SLOW,
            peers::thresholds().into_iter().chain(own).collect(),
        )]
    }
}

fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new("window", WINDOW_SECONDS, "s", "several scrapes (a choice)"),
        Threshold::new(
            "newest part of it; the condition must hold there and in the rest",
            NEWEST_SECONDS,
            "s",
            "the queue still exists, and is no short one (a choice)",
        ),
        packet_size(),
        Threshold::new(
            "share of packets that are marked",
            MIN_MARKED,
            "ratio",
            "in simulated clusters of four other authors 0.0069 or more are marked before slow links, and 0.0064 or fewer at victims of other NICs",
        ),
        Threshold::new(
            "the same, compared with the median NIC",
            ABOVE_PEERS,
            "times",
            "the load affects every NIC (a choice)",
        ),
        Threshold::new(
            "bytes that a NIC receives, from which it is evaluated",
            MIN_BYTES,
            "B/s",
            "about 9,000 marked packets in the window: one marked packet is a large share of a few (a choice)",
        ),
        Threshold::new(
            "bytes that a NIC receives, compared with the mean of all, from which it is evaluated, and compared with this one, from which it is a peer",
            BUSY,
            "ratio",
            "nothing is marked at an idle NIC (a choice)",
        ),
        Threshold::new(
            "share of what is marked at the NIC, from which another one of its job or at its leaf stands out as well",
            ALIKE,
            "ratio",
            "several have something in common that is the bottleneck (a choice)",
        ),
        Threshold::new(
            "share of the time in which the NIC sends pause, at most",
            MAX_PAUSE,
            "ratio",
            "otherwise the NIC is slow; where pause is not counted, the evidence reports that (a choice)",
        ),
    ]
}

fn numbers_of_before() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of packets that are marked, compared with the same NIC before, from which it may be such another",
            RAISED,
            "times",
            "at some NICs much is always marked (a choice)",
        ),
        Threshold::new(
            "the same, from which it is reported",
            NEW,
            "times",
            "uneven jobs always mark more at some NICs (a choice)",
        ),
        Threshold::new(
            "bytes that the NIC receives, compared with before, at most",
            LESS,
            "times",
            "if many send to one NIC, it receives more (a choice)",
        ),
        Threshold::new(
            "the same, compared with the median of its node's other NICs, or of those of its job where it has no other",
            MAX_OF_NODE,
            "times",
            "a job sends as much on each rail (a choice)",
        ),
        Threshold::new(
            "share of these limits, and of the lack of bytes, that is enough to stay",
            STILL,
            "ratio",
            "a queue near its limit is one incident (a choice)",
        ),
        Threshold::new(
            "time for which what arrived before is remembered, at most while the job is the same",
            REMEMBERED_SECONDS,
            "s",
            "jobs pause and begin again (a choice)",
        ),
        Threshold::new(
            "the same of a NIC at which only more is marked",
            RAISED_SECONDS,
            "s",
            "others near it may stop to be, and it is then alone (a choice)",
        ),
        Threshold::new(
            "age of what was before, at least",
            AGO_SECONDS,
            "s",
            "longer than the window (a choice)",
        ),
        Threshold::new(
            "length of that time, at least",
            SPAN_SECONDS,
            "s",
            "several scrapes (a choice)",
        ),
    ]
}

fn evidence(
    view: &View<'_>,
    own: &Known<'_>,
    (node, port): &Port,
    (before, usual): (Arrivals, f64),
) -> Evidence {
    let part = Part::HostLink(node.clone(), port.clone());
    let cause = match own.sent_pause() {
        Some(_) => {
            ", and the NIC sends no pause: the link from its switch passes less than its speed"
        }
        None => {
            ": the link from its switch passes less than its speed, or the NIC, whose pause is not counted, accepts less"
        }
    };
    Evidence {
        detector: NAME,
        signal: RDMA_ECN_MARKED.name,
        class: &PATH_SLOW,
        effect: (1.0 - own.arrivals.bytes / before.bytes).clamp(0.0, 1.0),
        statement: format!(
            "About {:.2} % of the packets that arrive at {port} of {node} are marked for congestion (before: {:.2} %; median NIC: {:.2} %), although {:.1} GB/s arrive and before {:.1} GB/s{cause}.",
            100.0 * own.arrivals.marked,
            100.0 * before.marked,
            100.0 * usual,
            own.arrivals.bytes * 1e-9,
            before.bytes * 1e-9
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

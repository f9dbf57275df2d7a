//! Standing queues at a port below its full speed: a cable or a shaper lets less through than the port's speed.
//!
//! A port with packets in its queue sends at its full speed unless the other end pauses it. One that marks packets for
//! congestion, is not paused and sends far less is limited by something that no counter shows. A burst fills a queue for a
//! short time, and its port is busy then. Flows that share a port by chance do the same with every step of a job; their port
//! sends more than the switch's others, and a limited one does not, or less than before. Bursts of small jobs fill all queues equally; a limited port
//! marks more than the others. Where many ports mark at once, only one that sends much less than its switch's others is limited. A job may
//! send so that a queue always stands, and less on average while it writes a checkpoint; a port that is limited marks far
//! more than before.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_ECN_MARKED, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES,
};

use super::past::{self, Lane, NEW, Pasts, before, sends_less, sent_before};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::ecn_marks::{marked_share, packet_size};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

/// The time in which packets are counted, and the newest part of it in which the condition must hold as well.
const QUEUE_SECONDS: [f64; 2] = [60.0, 20.0];
/// Least share of the packets that is marked, and the same of a port that sends less than before.
const MIN_MARKED: f64 = 0.01;
const MIN_MARKED_OF_LESS: f64 = 0.005;
/// Most of its speed that a port sends.
const MAX_SENT: f64 = 0.3;
/// The same of one that marks [`MUCH`], far more than others and than itself before: a link with half of its lanes sends no more.
const HALF: f64 = 0.5;
/// See [`HALF`]: share of the packets, and how many times the others' and its own before.
const MUCH: (f64, f64) = (0.1, 10.0);
/// Most of the time for which it is paused.
const MAX_PAUSED: f64 = 0.01;
/// Most that it sends, compared with the median of the switch's other cables to switches that send.
const MAX_OF_OTHERS: f64 = 1.2;
/// Least that one of these sends, compared with it.
const SENDS: f64 = 0.1;
/// How many times the median share of packets that is marked at ports between switches.
const ABOVE_USUAL: f64 = 5.0;
/// Most cables with such a queue at once, in a small fabric and as a share of busy ports between switches; where there are
/// more, bursts of the job fill them.
const MOST_AT_ONCE: usize = 2;
/// See [`MOST_AT_ONCE`].
const MOST_SHARE: f64 = 0.01;
/// Where there are more, or where it is not known what was before, the most that a limited port sends, compared with the median of the switch's other cables to switches.
const FEWER_THAN_OTHERS: f64 = 0.5;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "the port marks {:.0} % of its packets over {:.0} s while it sends at less than {:.0} % of its speed, or {:.0} % if it marks {:.0} % and these comparisons give {:.0} times, and at most {MAX_OF_OTHERS} times the median of the switch's other cables to switches (or, from {:.1} % on, less than before although more is marked), and is paused for less than {:.0} % of the time; it marks {ABOVE_USUAL:.0} times the median share of busy ports between switches, and {NEW:.0} times its own share before; if more than {MOST_AT_ONCE} cables, and {:.0} % of busy ports between switches, have such a queue, or where what was before is not known, it sends at most {FEWER_THAN_OTHERS} times that median",
        100.0 * MIN_MARKED,
        QUEUE_SECONDS[0],
        100.0 * MAX_SENT,
        100.0 * HALF,
        100.0 * MUCH.0,
        MUCH.1,
        100.0 * MIN_MARKED_OF_LESS,
        100.0 * MAX_PAUSED,
        100.0 * MOST_SHARE
    )
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let choice = "bursts and busy ports also cause queues (a choice)";
    let thresholds = vec![
        Threshold::new(
            "share of packets that are marked",
            MIN_MARKED,
            "ratio",
            choice,
        ),
        Threshold::new(
            "the same of a port that sends less than before",
            MIN_MARKED_OF_LESS,
            "ratio",
            choice,
        ),
        Threshold::new(
            "over",
            QUEUE_SECONDS[0],
            "s",
            "several readings of every switch (a choice)",
        ),
        Threshold::new(
            "and also over the newest",
            QUEUE_SECONDS[1],
            "s",
            "the queue still exists (a choice)",
        ),
        packet_size(),
        Threshold::new(
            "share of its speed that a port sends, at most",
            MAX_SENT,
            "ratio",
            choice,
        ),
        Threshold::new(
            "the same of a port that marks much",
            HALF,
            "ratio",
            "a link with half of its lanes sends no more",
        ),
        Threshold::new("which is, of its packets", MUCH.0, "ratio", choice),
        Threshold::new(
            "and, compared with others and with the same port before",
            MUCH.1,
            "times",
            choice,
        ),
    ];
    let thresholds = thresholds.into_iter().chain(against_others());
    let thresholds = thresholds.chain(past::numbers());
    let thresholds = thresholds.chain(past::numbers_of_less());
    let thresholds = thresholds.chain(where_many_stand());
    Rule::new(&PATH_SLOW, thresholds.collect())
}

/// The numbers of what others do.
fn against_others() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of the time in pause, at most",
            MAX_PAUSED,
            "ratio",
            "a paused port has a queue for another reason (a choice)",
        ),
        Threshold::new(
            "bytes sent, compared with the median of the switch's other cables to switches, at most",
            MAX_OF_OTHERS,
            "times",
            "a port that several flows share by chance sends more (a choice)",
        ),
        Threshold::new(
            "bytes sent from which one of these counts, compared with it",
            SENDS,
            "ratio",
            "idle cables are no measure (a choice)",
        ),
        Threshold::new(
            "share of packets that are marked, compared with the median of busy ports between switches",
            ABOVE_USUAL,
            "times",
            "bursts fill all queues alike (a choice)",
        ),
    ]
}

/// The numbers that apply where many queues stand at once.
fn where_many_stand() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "cables with such a queue at once, at most",
            MOST_AT_ONCE as f64,
            "cables",
            "an uneven job fills many queues (a choice)",
        ),
        Threshold::new(
            "or, in a large fabric, as a share of busy ports between switches",
            MOST_SHARE,
            "ratio",
            "queues of different jobs are independent (a choice)",
        ),
        Threshold::new(
            "if there are more, or what was before is not known: bytes sent, compared with the median of the switch's other cables to switches, at most",
            FEWER_THAN_OTHERS,
            "times",
            "a limited port slows the flows through it (a choice)",
        ),
    ]
}

/// What ports did before packets stood in their queues.
#[derive(Default)]
pub(super) struct Queues {
    marked: Pasts,
    sent: Pasts,
}

impl Queues {
    /// How many times its own share before a port marks; `None` where that is not known.
    fn times_before(
        &mut self,
        lane: &Lane,
        history: &NodeHistory,
        queue: &Queue,
        now: Timestamp,
    ) -> Option<f64> {
        let (_, port, priority) = lane;
        let rate = |metric, labels: &[&str]| before(history.window(metric, labels)?, now);
        let share = || {
            let sent = rate(&SWITCH_PORT_TRANSMIT_BYTES, &[port])?;
            let marked = rate(&SWITCH_PORT_ECN_MARKED, &[port, priority])?;
            // What a port that was idle marked is no measure.
            let was_idle = sent < SENDS * queue.sent;
            Some(if was_idle {
                0.0
            } else {
                marked_share(marked, sent)
            })
        };
        self.marked
            .times_before(lane, now, queue.marked_share(), share)
    }

    /// How many times as much as before a port sends; `None` where that is not known.
    fn times_sent(
        &mut self,
        lane: &Lane,
        history: &NodeHistory,
        queue: &Queue,
        now: Timestamp,
    ) -> Option<f64> {
        let sent = || {
            sent_before(
                history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[&lane.1])?,
                now,
            )
        };
        self.sent.times_before(lane, now, queue.sent, sent)
    }

    /// Cables between switches with such a queue at one end.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.marked.forget(view.now);
        self.sent.forget(view.now);
        let mut usual_of: BTreeMap<String, Busy> = BTreeMap::new();
        // With what the port sends, compared with its switch's others; infinite where there are none.
        let mut standing: Vec<(Evidence, f64)> = Vec::new();
        for (switch, history) in view.history.fresh_switches(view.now) {
            for (labels, _) in history.moving(&SWITCH_PORT_ECN_MARKED) {
                let labels: Vec<_> = labels.values().collect();
                let [port, priority] = labels[..] else {
                    continue;
                };
                let Some((found, queue)) = stands(view, (switch, history), (port, priority)) else {
                    continue;
                };
                // What other queues did is not remembered.
                if !queue.sends_little() && queue.marked_share() < MUCH.0 {
                    continue;
                }
                let lane = (switch.clone(), port.to_owned(), priority.to_owned());
                let times = self.times_before(&lane, history, &queue, view.now);
                // Evaluated only where one stands at a cable between switches.
                let of_others = of_others(view, (switch, history), port, queue.sent);
                let most = if times.is_none() {
                    FEWER_THAN_OTHERS
                } else {
                    MAX_OF_OTHERS
                };
                let is_alone = of_others.is_none_or(|share| share <= most);
                let sent = self.times_sent(&lane, history, &queue, view.now);
                let is_explained = !is_alone || queue.marked_share() < MIN_MARKED;
                if times.is_some_and(|times| times < NEW)
                    || is_explained && !sends_less(times, sent)
                {
                    continue;
                }
                let busy = usual_of.entry(priority.to_owned());
                let busy = busy.or_insert_with(|| Busy::of(view, priority));
                let above = |by: f64| queue.marked_share() >= by * busy.marked_share;
                let (share, far) = MUCH;
                let is_far = above(far) && times.is_some_and(|times| times >= far);
                let is_much = is_far && queue.marked_share() >= share;
                if above(ABOVE_USUAL) && (is_much || queue.sends_little()) {
                    standing.push((found, of_others.unwrap_or(f64::INFINITY)));
                }
            }
        }
        let ports = usual_of.values().map(|busy| busy.ports).max();
        out.extend(of_few(standing, ports.unwrap_or(0)));
    }
}

/// A queue that stands at a cable between switches, as evidence.
fn stands(
    view: &View<'_>,
    (switch, history): (&SwitchName, &NodeHistory),
    (port, priority): (&str, &str),
) -> Option<(Evidence, Queue)> {
    let [queue, newest] = QUEUE_SECONDS.map(|seconds| Queue::of(history, port, priority, seconds));
    let queue = queue.filter(Queue::stands)?;
    newest.filter(Queue::stands)?;
    Some((evidence(view, (switch, port), &queue)?, queue))
}

/// What is found, where only one that sends much less than others counts if many stand at once.
fn of_few(mut standing: Vec<(Evidence, f64)>, ports: usize) -> impl Iterator<Item = Evidence> {
    let parts = standing.iter().map(|(found, _)| &found.part);
    let cables = parts.collect::<BTreeSet<_>>().len();
    if cables > MOST_AT_ONCE && cables as f64 > MOST_SHARE * ports as f64 {
        standing.retain(|(_, of_others)| *of_others <= FEWER_THAN_OTHERS);
    }
    standing.into_iter().map(|(found, _)| found)
}

/// What a port does with the packets of a priority.
struct Queue {
    /// Bytes a second, of all priorities.
    sent: f64,
    /// Packets a second.
    marked: f64,
    /// Bytes a second that it could send.
    speed: f64,
    /// Share of the time.
    paused: f64,
}

impl Queue {
    /// `None` where one of these is not known.
    fn of(history: &NodeHistory, port: &str, priority: &str, seconds: f64) -> Option<Self> {
        let rate = |metric, labels: &[&str]| {
            let window = history.window(metric, labels)?;
            window.increase(seconds).map(Increase::rate)
        };
        Some(Self {
            sent: rate(&SWITCH_PORT_TRANSMIT_BYTES, &[port])?,
            marked: rate(&SWITCH_PORT_ECN_MARKED, &[port, priority])?,
            speed: history.value(&SWITCH_PORT_SPEED, &[port])?,
            paused: rate(&SWITCH_PORT_PFC_PAUSE_SECONDS, &[port, priority, "receive"])?,
        })
    }

    fn marked_share(&self) -> f64 {
        marked_share(self.marked, self.sent)
    }

    fn stands(&self) -> bool {
        self.sent > 0.0
            && self.marked_share() >= MIN_MARKED_OF_LESS
            && self.sent <= HALF * self.speed
            && self.paused <= MAX_PAUSED
    }

    fn sends_little(&self) -> bool {
        self.sent <= MAX_SENT * self.speed
    }
}

/// What busy ports between switches do with the packets of a priority.
struct Busy {
    ports: usize,
    /// Median share of the packets that is marked; 0 of too few ports. Idle ports mark none.
    marked_share: f64,
}

impl Busy {
    fn of(view: &View<'_>, priority: &str) -> Self {
        let switches = view.history.fresh_switches(view.now);
        let shares = switches.flat_map(|(switch, history)| {
            let ports = history.moving(&SWITCH_PORT_TRANSMIT_BYTES);
            ports.filter_map(move |(labels, _)| {
                let port = labels.values().next()?;
                let is_between = is_to_switch(view, switch, port)?;
                let queue = Queue::of(history, port, priority, QUEUE_SECONDS[0])?;
                let is_busy = queue.sent >= SENDS * MAX_SENT * queue.speed;
                (is_between && is_busy).then(|| queue.marked_share())
            })
        });
        let shares: Vec<_> = shares.collect();
        let ports = shares.len();
        let usual = (ports >= MIN_PEERS).then(|| median(shares)).flatten();
        Self {
            ports,
            marked_share: usual.unwrap_or(0.0),
        }
    }
}

/// Whether a port's other end is a switch; none where that is not known.
pub(super) fn is_to_switch(view: &View<'_>, switch: &SwitchName, port: &str) -> Option<bool> {
    let cable = cable_at(view.fabric, switch, port)?;
    Some(matches!(
        view.fabric.vertex(cable.peer).part,
        Part::Switch(_)
    ))
}

/// What a port sends, compared with the median of the switch's other cables to switches; none where no other sends.
pub(super) fn of_others(
    view: &View<'_>,
    (switch, history): (&SwitchName, &NodeHistory),
    port: &str,
    sent: f64,
) -> Option<f64> {
    let others = history
        .moving(&SWITCH_PORT_TRANSMIT_BYTES)
        .filter_map(|(labels, window)| {
            let other = labels.values().next().filter(|other| *other != port)?;
            let is_between = is_to_switch(view, switch, other)?;
            let rate = window.increase(QUEUE_SECONDS[0]).map(Increase::rate);
            rate.filter(|rate| is_between && *rate >= SENDS * sent)
        });
    median(others).map(|usual| sent / usual)
}

fn evidence(
    view: &View<'_>,
    (switch, port): (&SwitchName, &str),
    queue: &Queue,
) -> Option<Evidence> {
    let cable = cable_at(view.fabric, switch, port)?;
    // At a host's port the cause is the host, which drains too slowly, or many senders at once.
    let peer = &view.fabric.vertex(cable.peer).part;
    let Part::Switch(_) = peer else { return None };
    let part = view.fabric.cable_part(cable.id)?;
    Some(Evidence {
        detector: "switch-ports",
        signal: SWITCH_PORT_ECN_MARKED.name,
        class: &PATH_SLOW,
        // What flows lose depends on what else they wait for.
        effect: 0.0,
        statement: format!(
            "Port {port} of {switch} to {peer} has a standing queue: about {:.1} % of its packets are marked, although it sends {:.1} of {:.1} GB/s and is not paused.",
            100.0 * queue.marked_share(),
            queue.sent * 1e-9,
            queue.speed * 1e-9
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

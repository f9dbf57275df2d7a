//! InfiniBand: a port between switches that waits for credits, although the next switch waits for none itself.
//!
//! A link that lets less through than it should returns credits late, and the port before it waits more for each byte than before
//! and than other ports between switches. A slow receiver makes every switch on the way to it wait: there the next switch waits as
//! well, or it sends at its full speed to where too many send at once. Flows that share a port by chance wait, too; their port
//! sends more than the switch's others, and not less than before.

use railscope_model::fabric::{Link, LinkId, PartId};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_SATURATED, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};
use railscope_model::units::LinkSpeed;

use super::past::{self, NEW, Pasts, before, sends_less, sent_before};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::port_series::PortSeries;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, Window};

/// The time over which ports are compared, and the newest part of it in which the port must wait as well.
pub(super) const WAIT_SECONDS: [f64; 2] = [60.0, 20.0];
/// Fewest ticks of waiting in a second that are evaluated: 10 % of the time where counters tick slowest.
pub(super) const MIN_TICKS: f64 = 1e6;
/// How many times the median wait for each byte of busy ports between switches.
const ABOVE_USUAL: f64 = 3.0;
/// A port that sends less is not busy, bytes a second.
const MIN_SENT: f64 = 1e7;
/// Most that it sends, compared with the median of the switch's other busy cables to switches.
const MAX_OF_OTHERS: f64 = 1.2;
/// Most that any other port of the next switch waits, compared with it.
const PASSED_ON: f64 = 0.3;
/// Share of its speed from which a port of the next switch is full: it back-pressures its senders without waiting itself.
pub(super) const FULL: f64 = 0.7;
/// Least that the port sent before, compared with now: what an idle port waited is no measure. Also least that another port sends now,
/// compared with before: one that sends less leaves its traffic to the others.
const SENT_BEFORE: f64 = 0.1;
/// How many times as long as before another port waits that waits for the same reason.
const SOMEWHAT_NEW: f64 = 1.5;
/// Most cables at once: where there are more, the traffic has changed.
const MOST_AT_ONCE: usize = 2;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "the port waits {ABOVE_USUAL:.0} times as long for each byte as the median busy port between switches, and {NEW:.0} times as long as itself before, over {:.0} s and over the newest {:.0} s; none of its switch's other cables to switches waits a third as long for each byte, and it sends at most {MAX_OF_OTHERS} times the median of these, or less than before although more waits; no other switch's port to the next switch that waits {ABOVE_USUAL:.0} times as long as the median and {SOMEWHAT_NEW} times as long as before waits a third as long for each byte, unless the cable's other end does; no other port of the next switch waits {:.0} % as long or sends at {:.0} % of its speed; each of its switch's other cables to switches still sends {:.0} % of what it sent before; at most {MOST_AT_ONCE} cables at once",
        WAIT_SECONDS[0],
        WAIT_SECONDS[1],
        100.0 * PASSED_ON,
        100.0 * FULL,
        100.0 * SENT_BEFORE
    )
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let thresholds = of_ports().into_iter().chain(of_others());
    let thresholds = thresholds.chain(past::numbers());
    let thresholds = thresholds.chain(past::numbers_of_less());
    Rule {
        signal: SWITCH_PORT_TRANSMIT_WAIT.name,
        ..Rule::new(&PATH_SLOW, thresholds.collect())
    }
}

/// The numbers of a port by itself.
fn of_ports() -> Vec<Threshold> {
    let choice = "bursts and busy ports wait, too (a choice)";
    vec![
        Threshold::new(
            "over",
            WAIT_SECONDS[0],
            "s",
            "several readings of every switch (a choice)",
        ),
        Threshold::new(
            "and also over the newest",
            WAIT_SECONDS[1],
            "s",
            "the port still waits (a choice)",
        ),
        Threshold::new(
            "fewest ticks of waiting",
            MIN_TICKS,
            "1/s",
            "10 % of the time of the slowest counters known (a choice)",
        ),
        Threshold::new(
            "wait for each byte, compared with the median busy port between switches",
            ABOVE_USUAL,
            "times",
            choice,
        ),
        Threshold::new(
            "the same, compared with any other cable of its switch to a switch",
            ABOVE_USUAL,
            "times",
            "parallel cables to a busy switch wait alike (a choice)",
        ),
        Threshold::new("bytes that a busy port sends", MIN_SENT, "B/s", choice),
        Threshold::new(
            "bytes sent before, compared with now, at least",
            SENT_BEFORE,
            "ratio",
            "what an idle port waited is no measure (a choice)",
        ),
    ]
}

/// The numbers of a port beside others.
fn of_others() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "bytes that each other cable of the switch to a switch sends, compared with before, at least",
            SENT_BEFORE,
            "ratio",
            "one that is down leaves its traffic to the others (a choice)",
        ),
        Threshold::new(
            "bytes sent, compared with the median of the switch's other cables to switches, at most",
            MAX_OF_OTHERS,
            "times",
            "a port that several flows share by chance sends more (a choice)",
        ),
        Threshold::new(
            "wait for each byte, compared with any port of another switch to the same next switch that waits longer than the median",
            ABOVE_USUAL,
            "times",
            "back-pressure spreads to all switches before it (a choice)",
        ),
        Threshold::new(
            "wait of such a port, compared with itself before",
            SOMEWHAT_NEW,
            "times",
            "what always waits has another reason (a choice)",
        ),
        Threshold::new(
            "wait of any other port of the next switch, at most",
            PASSED_ON,
            "ratio",
            "a slow receiver makes every switch on the way wait (a choice)",
        ),
        Threshold::new(
            "share of its speed that any other port of the next switch sends, at most",
            FULL,
            "ratio",
            "senders wait for a port that is full (a choice)",
        ),
        Threshold::new(
            "cables at once, at most",
            MOST_AT_ONCE as f64,
            "cables",
            "a change of the traffic lets many wait (a choice)",
        ),
    ]
}

/// What ports wait and send, how fast they are, and whether the counter of what they wait has stopped at its largest value.
type Counts = PortSeries<4>;

/// Cables between switches, as the fabric shows them, and what their ports count.
pub(super) struct Waiting {
    counts: Counts,
    epoch: Option<u64>,
    switches: Vec<(SwitchName, Vec<Cable>)>,
    pasts: Pasts,
    /// Bytes that ports sent before.
    sent: Pasts,
}

/// A cable at a port of a switch, and the switch at its other end.
struct Cable {
    port: u16,
    link: LinkId,
    peer: PartId,
}

/// A busy port between switches.
struct Port<'a> {
    switch: &'a SwitchName,
    cable: &'a Cable,
    /// Ticks a second that it waits.
    ticks: f64,
    /// Bytes a second that it sends.
    sent: f64,
    wait: Window<'a>,
    bytes: Window<'a>,
}

impl Port<'_> {
    fn by_byte(&self) -> f64 {
        self.ticks / self.sent
    }

    /// The same of the newest part of the time.
    fn by_byte_lately(&self) -> Option<f64> {
        let [wait, bytes] = [self.wait, self.bytes].map(|counter| rate(counter, WAIT_SECONDS[1]));
        let by_byte = wait? / bytes?;
        by_byte.is_finite().then_some(by_byte)
    }

    fn by_byte_before(&self, view: &View<'_>) -> Option<f64> {
        let least = MIN_SENT.max(SENT_BEFORE * self.sent);
        let sent = before(self.bytes, view.now).filter(|sent| *sent >= least)?;
        Some(before(self.wait, view.now)? / sent)
    }
}

/// Rate of a counter in the newest seconds.
pub(super) fn rate(counter: Window<'_>, seconds: f64) -> Option<f64> {
    counter.newest_increase(seconds).map(Increase::rate)
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            counts: PortSeries::new([
                (&SWITCH_PORT_TRANSMIT_WAIT, None),
                (&SWITCH_PORT_TRANSMIT_BYTES, None),
                (&SWITCH_PORT_SPEED, None),
                (&SWITCH_PORT_SATURATED, Some("port_xmit_wait")),
            ]),
            epoch: None,
            switches: Vec::new(),
            pasts: Pasts::default(),
            sent: Pasts::default(),
        }
    }
}

impl Waiting {
    /// Cables of which one end waits.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.counts.refresh(view);
        if self.epoch.replace(view.epoch) != Some(view.epoch) {
            self.switches = between(view);
        }
        self.pasts.forget(view.now);
        self.sent.forget(view.now);
        let ports = busy(view, &self.switches, &self.counts);
        if ports.len() < MIN_PEERS {
            return;
        }
        let usual = median(ports.iter().map(Port::by_byte)).unwrap_or(0.0);
        let above = |by_byte: f64| by_byte >= ABOVE_USUAL * usual;
        let stands_out = |own: &Port<'_>| {
            let waits = own.ticks > MIN_TICKS && above(own.by_byte());
            waits && own.by_byte_lately().is_some_and(above)
        };
        let (mut standing, mut more) = (Vec::new(), Vec::new());
        for of_switch in ports.chunk_by(|a, b| a.switch == b.switch) {
            for own in of_switch.iter().filter(|own| stands_out(own)) {
                standing.push(own);
                let lane = (
                    own.switch.clone(),
                    own.cable.port.to_string(),
                    String::new(),
                );
                let waited = || own.by_byte_before(view);
                let level = own.by_byte();
                let times = self.pasts.times_before(&lane, view.now, level, waited);
                let sent = || sent_before(own.bytes, view.now);
                let sent = self.sent.times_before(&lane, view.now, own.sent, sent);
                if let Some(times) = times.filter(|times| *times >= SOMEWHAT_NEW) {
                    more.push((own, of_switch, times, sends_less(Some(times), sent)));
                }
            }
        }
        let waiting: Vec<_> = more.iter().map(|(own, ..)| *own).collect();
        let mut found = Vec::new();
        for (own, of_switch, times, sends_less) in more {
            if times >= NEW
                && !is_of_traffic(own, of_switch, sends_less)
                && !others_wait_there(own, &waiting, &standing)
                && !is_passed_on(view, own, &self.counts)
                && !self.takes_over(view, own)
            {
                found.extend(evidence(view, own, usual));
            }
        }
        let mut parts: Vec<&Part> = found.iter().map(|found| &found.part).collect();
        parts.sort();
        parts.dedup();
        if parts.len() <= MOST_AT_ONCE {
            out.extend(found);
        }
    }
}

impl Waiting {
    /// Whether another cable of the switch to a switch no longer sends what it sent: its traffic is on the others now.
    fn takes_over(&self, view: &View<'_>, own: &Port<'_>) -> bool {
        let mut switches = self.switches.iter();
        let cables = switches.find_map(|(switch, cables)| (switch == own.switch).then_some(cables));
        let Some((cables, series)) = cables.zip(self.counts.of(view, own.switch)) else {
            return false;
        };
        cables.iter().any(|cable| {
            let [_, bytes, ..] = series.of(cable.port);
            let sent = bytes.and_then(|bytes| before(bytes, view.now));
            let sends = bytes.and_then(|bytes| rate(bytes, WAIT_SECONDS[1]));
            sent.zip(sends)
                .is_some_and(|(sent, sends)| sent >= MIN_SENT && sends < SENT_BEFORE * sent)
        })
    }
}

/// The cables between switches, by switch.
fn between(view: &View<'_>) -> Vec<(SwitchName, Vec<Cable>)> {
    let all = view.fabric.vertices().filter_map(|(id, vertex)| {
        let Part::Switch(switch) = &vertex.part else {
            return None;
        };
        let cables = view.fabric.cables(id);
        let is_switch = |peer| matches!(view.fabric.vertex(peer).part, Part::Switch(_));
        let cables = cables
            .filter(|near| is_switch(near.peer))
            .map(|near| Cable {
                port: near.port,
                link: near.id,
                peer: near.peer,
            });
        Some((switch.clone(), cables.collect()))
    });
    all.filter(|(_, cables): &(_, Vec<_>)| !cables.is_empty())
        .collect()
}

/// The ports between switches that send and count what they wait.
fn busy<'a>(
    view: &View<'a>,
    switches: &'a [(SwitchName, Vec<Cable>)],
    counts: &'a Counts,
) -> Vec<Port<'a>> {
    let of_switch = |(switch, cables): &'a (SwitchName, Vec<Cable>)| {
        let series = counts.of(view, switch);
        let port = move |cable: &'a Cable| {
            let [wait, bytes, _, stopped] = series?.of(cable.port);
            let (wait, bytes) = wait.filter(|_| !has_stopped(stopped)).zip(bytes)?;
            let sent = rate(bytes, WAIT_SECONDS[0]).filter(|sent| *sent >= MIN_SENT)?;
            Some(Port {
                switch,
                cable,
                ticks: rate(wait, WAIT_SECONDS[0])?,
                sent,
                wait,
                bytes,
            })
        };
        cables.iter().filter_map(port)
    };
    switches.iter().flat_map(of_switch).collect()
}

/// Whether the traffic explains the wait: the port sends more than its switch's other cables to switches, and not less than before,
/// or another of these waits, too, as parallel cables to a busy switch do.
fn is_of_traffic(own: &Port<'_>, of_switch: &[Port<'_>], sends_less: bool) -> bool {
    let others = of_switch
        .iter()
        .filter(|other| other.cable.port != own.cable.port);
    let usual = median(others.clone().map(|other| other.sent));
    let sends_more = usual.is_some_and(|usual| own.sent > MAX_OF_OTHERS * usual);
    let waits_too = |other: &Port<'_>| ABOVE_USUAL * other.by_byte() > own.by_byte();
    sends_more && !sends_less || others.into_iter().any(waits_too)
}

/// Whether another switch waits longer than before for the same next switch, too: it, or one behind it, back-pressures all that send to it.
/// If the other end of the cable waits as well, the cable is what both wait for. `waiting` are ports that do so anew, `standing` all.
fn others_wait_there(own: &Port<'_>, waiting: &[&Port<'_>], standing: &[&Port<'_>]) -> bool {
    let is_beside = |other: &&Port<'_>| {
        let is_there = other.switch != own.switch && other.cable.peer == own.cable.peer;
        is_there && ABOVE_USUAL * other.by_byte() > own.by_byte()
    };
    let is_other_end =
        |other: &&Port<'_>| other.switch != own.switch && other.cable.link == own.cable.link;
    waiting.iter().any(is_beside) && !standing.iter().any(is_other_end)
}

/// Whether a counter has stopped at its largest value.
pub(super) fn has_stopped(stopped: Option<Window<'_>>) -> bool {
    stopped.and_then(|stopped| stopped.value()) == Some(1.0)
}

/// Whether a port that sends so many bytes a second is full, by the speed that its switch reports, or else that of its cable. A port
/// without a link has no speed, and sends nothing.
pub(super) fn is_full(sent: f64, speed: Option<f64>, cable: &Link) -> bool {
    let of_cable = || cable.speed.map(LinkSpeed::bytes_per_second);
    sent > FULL * speed.or_else(of_cable).unwrap_or(0.0)
}

/// Whether the next switch back-pressures what comes to it, or may do so unseen: any port but those that lead back waits, or is full.
fn is_passed_on(view: &View<'_>, own: &Port<'_>, counts: &Counts) -> bool {
    let Part::Switch(next) = &view.fabric.vertex(own.cable.peer).part else {
        return false;
    };
    let Some(series) = counts.of(view, next) else {
        return true;
    };
    let back = view.fabric.find(&Part::Switch(own.switch.clone()));
    let mut onward = view
        .fabric
        .cables(own.cable.peer)
        .filter(|near| Some(near.peer) != back);
    onward.any(|near| {
        let [wait, bytes, speed, stopped] = series.of(near.port);
        let has_stopped = has_stopped(stopped);
        let wait = wait.filter(|_| !has_stopped);
        let wait = wait.and_then(|wait| rate(wait, WAIT_SECONDS[0]));
        let sent = bytes.and_then(|bytes| rate(bytes, WAIT_SECONDS[0]));
        let speed = speed.and_then(|speed| speed.value());
        let waits = wait.map_or(has_stopped || sent.is_some_and(|sent| sent > 0.0), |wait| {
            wait > PASSED_ON * own.ticks
        });
        waits || sent.is_some_and(|sent| is_full(sent, speed, near.link))
    })
}

fn evidence(view: &View<'_>, own: &Port<'_>, usual: f64) -> Option<Evidence> {
    let part = view.fabric.cable_part(own.cable.link)?;
    let id = view.fabric.find(&Part::Switch(own.switch.clone()))?;
    let times = match usual > 0.0 {
        true => format!("{:.0} times as long", own.by_byte() / usual),
        false => String::from("far longer"),
    };
    Some(Evidence {
        detector: "switch-ports",
        signal: SWITCH_PORT_TRANSMIT_WAIT.name,
        class: &PATH_SLOW,
        // What flows lose depends on what else they wait for.
        effect: 0.0,
        statement: format!(
            "Port {} of {} to {} waits {times} for each byte as the median busy port between switches, and {NEW:.0} times as long as before; it sends {:.1} GB/s, and no other port of the next switch waits or is full.",
            view.fabric.port_name(id, own.cable.port),
            own.switch,
            view.fabric.vertex(own.cable.peer).part,
            own.sent * 1e-9,
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

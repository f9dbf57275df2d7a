//! Switches that pause others permanently: in a cyclic buffer dependency, or by a stuck port.

pub(super) mod frames;
mod halted_nics;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::LinkId;
use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_ECN_MARKED, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PFC_DEADLOCK, PFC_STORM};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::ecn_marks::marked_share;
use crate::detect::pause_graph::{
    DEAD, DEAD_SECONDS, MIN_PAUSE, MOST_CARRIED, PauseGraph, WINDOW_SECONDS, share_in_pause, stands,
};
use crate::detect::peers::MIN_PEERS;
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, SHARE_IN_PAUSE, Threshold};
use crate::stages::Step;
use crate::store::{Increase, NodeHistory, Window};

struct PauseCircle;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(PauseCircle)
}

const NAME: &str = "pause-circle";
/// Share of the time in pause from which a switch halts a NIC, or another switch, and nothing else explains that.
const HALTED: f64 = 0.5;
/// Most pause elsewhere, as a share of that of the only one that is halted.
const OF_HALTED: f64 = 0.1;
/// How many times as long as anything pauses the switch it must pause that one: a switch that is paused holds its senders back for
/// no longer.
const BEYOND_PAUSED: f64 = 3.0;
/// Share of its speed that a port sends while it is full, so that pause toward its senders is congestion.
const FULL: f64 = 0.8;
/// Share of a port's packets that are marked from which it has a queue.
const MARKS: f64 = 0.01;

impl Detector for PauseCircle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let graph = PauseGraph::of(view);
        let stuck = graph.stuck(view.fabric).into_iter();
        out.extend(stuck.filter_map(|cable| of_stuck_port(view, cable)));
        if !view.left_out.has(Step::PauseWalk) {
            stuck_at_edge(view, out);
            let switches = view.history.fresh_switches(view.now);
            out.extend(
                switches.filter_map(|(switch, history)| frames::alone(view, switch, history)),
            );
            out.extend(halted_nics::find(view));
        }
        for circle in graph.circles(view.fabric) {
            let parts = circle
                .into_iter()
                .map(|id| view.fabric.vertex(id).part.clone());
            let mut parts: Vec<Part> = parts.collect();
            // None of them is the single cause: the first by name represents all, in every tick.
            parts.sort();
            let names: Vec<String> = parts.iter().map(ToString::to_string).collect();
            let behind = parts.iter().flat_map(|part| gpus_behind(view.fabric, part));
            let victims = behind.collect();
            let others = parts.split_off(1);
            let Some(part) = parts.pop() else { continue };
            out.push(Evidence {
                detector: NAME,
                signal: SWITCH_PORT_PFC_PAUSE_SECONDS.name,
                part,
                class: &PFC_DEADLOCK,
                effect: 1.0,
                statement: format!(
                    "{} pause each other in a cycle: for {DEAD_SECONDS:.0} s their ports to each other were paused more than {:.0} % of the time and carried almost no traffic.",
                    names.join(", "),
                    100.0 * DEAD
                ),
                victims,
                related: others,
                alike: Vec::new(),
            });
        }
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        if class == &PFC_STORM {
            return Explanation {
                check: "A switch permanently pauses another switch, or a port whose cable is not known, or most of the time one NIC or switch alone, although nothing pauses it nearly as long.",
                threshold: format!(
                    "more than {:.0} % of {DEAD_SECONDS:.0} s in pause at less than {:.0} % of the port's speed, and no port of the switch that sends the pause is paused; {:.0} % of {WINDOW_SECONDS:.0} s, if no other port sends pause {:.0} % as long, nothing pauses the switch for a third of that, no port carries {:.0} % of what its speed allows in that time and, toward another switch, where marked packets are counted, none marks {:.0} %; where frames are counted and no time, as many as that takes at least; by the NIC's own counter, if no other NIC of the switch is paused {:.0} % as long, and no NIC pauses its switch for a third of that",
                    100.0 * DEAD,
                    100.0 * MOST_CARRIED,
                    100.0 * HALTED,
                    100.0 * OF_HALTED,
                    100.0 * FULL,
                    100.0 * MARKS,
                    100.0 * OF_HALTED
                ),
                clears: "The port carries traffic again, or the switch no longer pauses the other end.",
            };
        }
        Explanation {
            check: "Ports between switches are blocked, each by the next, and the last by the first (PFC deadlock).",
            threshold: format!(
                "more than {:.0} % of {DEAD_SECONDS:.0} s in pause at less than {:.0} % of the port's speed, along shortest paths; if the cycle also waits for a NIC, the NIC is the cause",
                100.0 * DEAD,
                100.0 * MOST_CARRIED
            ),
            clears: "A port of the cycle carries traffic again.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let source = "a choice";
        let thresholds = vec![
            Threshold::new(SHARE_IN_PAUSE, DEAD, "ratio", source),
            Threshold::new(
                "observed time",
                DEAD_SECONDS,
                "s",
                "two analysis cycles at 10 s (a choice)",
            ),
            Threshold::new(
                "traffic as a share of the port's speed",
                MOST_CARRIED,
                "ratio",
                source,
            ),
        ];
        let alone = [
            Threshold::new(
                "share of the time in pause, by the only port that sends it",
                HALTED,
                "ratio",
                source,
            ),
            Threshold::new(
                "most pause of others",
                OF_HALTED,
                "ratio of its share",
                "congestion pauses several senders (a choice)",
            ),
            Threshold::new(
                "as long as a NIC or a switch pauses that switch",
                BEYOND_PAUSED,
                "times",
                "one that is paused pauses its senders for no longer; three, for both are measured with a delay (a choice)",
            ),
            Threshold::new(
                "share of its speed, in the time of the pause, that no port of that switch carries",
                FULL,
                "ratio",
                source,
            ),
            Threshold::new(
                "share of its packets that no port marks if the other end is a switch; only where that is counted",
                MARKS,
                "ratio",
                "one sender may fill the queue of a port that is slower than its speed (a choice)",
            ),
            frames::threshold(),
        ];
        vec![
            Rule::new(&PFC_DEADLOCK, thresholds.clone()),
            Rule::new(&PFC_STORM, thresholds.into_iter().chain(alone).collect()),
        ]
    }
}

/// A port of a switch that sends pause.
struct Sends<'a> {
    port: &'a str,
    priority: &'a str,
    /// Shares of [`DEAD_SECONDS`] and of [`WINDOW_SECONDS`].
    lately: f64,
    share: f64,
}

/// The only port of a switch, and ports of which no cable is known, on which a switch sends pause although nothing pauses the switch.
fn stuck_at_edge(view: &View<'_>, out: &mut Vec<Evidence>) {
    for (switch, history) in view.history.fresh_switches(view.now) {
        let mut sends = Vec::new();
        let mut paused: BTreeMap<&str, f64> = BTreeMap::new();
        for (labels, window) in history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS) {
            let labels: Vec<&str> = labels.values().collect();
            let share = |seconds| window.newest_increase(seconds).map_or(0.0, Increase::rate);
            match labels[..] {
                [_, priority, "receive"] if share(WINDOW_SECONDS) > MIN_PAUSE => {
                    let most = paused.entry(priority).or_default();
                    *most = most.max(share(WINDOW_SECONDS));
                }
                [port, priority, "transmit"] => sends.push(Sends {
                    port,
                    priority,
                    lately: share(DEAD_SECONDS),
                    share: share(WINDOW_SECONDS),
                }),
                _ => {}
            }
        }
        let of_it = |priority| paused.get(priority).copied().unwrap_or(0.0);
        sends.retain(|sends| BEYOND_PAUSED * of_it(sends.priority) <= sends.share);
        let most = paused.values().copied().fold(0.0, f64::max);
        let tells = || {
            let mut series = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
            series.any(|(labels, _)| labels.values().nth(2) == Some("receive"))
        };
        let halts = |sends: &Sends<'_>| sends.share > HALTED || sends.lately > DEAD;
        if sends.iter().any(halts) && tells() {
            let without = sends.iter().filter(|sends| sends.lately > DEAD);
            out.extend(without.filter_map(|sends| without_cable(view, switch, history, sends)));
            out.extend(alone(view, switch, history, &sends, most));
        }
    }
}

/// A port of which no cable is known, and where nothing arrives. Whatever is at the other end, the switch is the root
/// cause.
fn without_cable(
    view: &View<'_>,
    switch: &SwitchName,
    history: &NodeHistory,
    sends: &Sends<'_>,
) -> Option<Evidence> {
    let (port, priority) = (sends.port, sends.priority);
    let stands = stands(history, port, &SWITCH_PORT_RECEIVE_BYTES);
    if !stands || cable_at(view.fabric, switch, port).is_some() {
        return None;
    }
    let part = Part::SwitchLink(switch.clone(), port.parse::<PortName>().ok()?);
    let statement = format!(
        "Port {port} of {switch} has sent pause on priority {priority} for more than {:.0} % of the last {DEAD_SECONDS:.0} s, and nothing pauses the switch a third as long.",
        100.0 * DEAD
    );
    Some(storm(view, part, statement))
}

/// The only port of a switch that sends pause, while no port of the switch is full: congestion pauses several senders, or fills
/// the port that they send to. Toward another switch no port may mark packets either: one sender may fill the queue of a port that
/// is slower than its speed.
fn alone(
    view: &View<'_>,
    switch: &SwitchName,
    history: &NodeHistory,
    sends: &[Sends<'_>],
    paused: f64,
) -> Option<Evidence> {
    let by_share = |a: &&Sends<'_>, b: &&Sends<'_>| a.share.total_cmp(&b.share);
    let first = sends.iter().max_by(by_share)?;
    let others = sends.iter().filter(|other| other.port != first.port);
    let told = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
    let ports: BTreeSet<&str> = told
        .filter_map(|(labels, _)| labels.values().next())
        .collect();
    let (port, priority, share) = (first.port, first.priority, first.share);
    let most = others.map(|other| other.share).fold(0.0, f64::max);
    let is_alone = most <= OF_HALTED * share && BEYOND_PAUSED * paused <= share;
    let near = cable_at(view.fabric, switch, port)?;
    let leads_to_switch = matches!(view.fabric.vertex(near.peer).part, Part::Switch(_));
    if !(is_alone && share > HALTED && ports.len() >= MIN_PEERS)
        || any_port_is_full(history, share)?
        || (leads_to_switch && any_port_marks(history)?)
    {
        return None;
    }
    let statement = format!(
        "Port {port} of {switch} has sent pause on priority {priority} for {:.0} % of the last {WINDOW_SECONDS:.0} s, no other of the switch's {} ports for more than {:.1} %; none is paused for more than {:.1} %, and none is full.",
        100.0 * share,
        ports.len(),
        100.0 * most,
        100.0 * paused
    );
    Some(storm(view, view.fabric.cable_part(near.id)?, statement))
}

/// Whether a port sends as much as explains that its switch pauses a sender for this share of the time: it is at its full speed
/// meanwhile, but for pause that it gets itself. None if too few ports report, or the speed of one that sends is unknown.
fn any_port_is_full(history: &NodeHistory, share: f64) -> Option<bool> {
    if history.series(&SWITCH_PORT_TRANSMIT_BYTES).count() < MIN_PEERS {
        return None;
    }
    let mut full = false;
    for (labels, window) in history.moving(&SWITCH_PORT_TRANSMIT_BYTES) {
        let port = labels.values().next()?;
        let speed = history.value(&SWITCH_PORT_SPEED, &[port])?;
        let rate = window
            .newest_increase(WINDOW_SECONDS)
            .map_or(0.0, Increase::rate);
        let free = 1.0 - share_in_pause(history, port, WINDOW_SECONDS);
        full |= rate > FULL * share * free * speed;
    }
    Some(full)
}

/// Whether a port marks packets for congestion; none if that is not counted.
fn any_port_marks(history: &NodeHistory) -> Option<bool> {
    history.series(&SWITCH_PORT_ECN_MARKED).next()?;
    let rate = |window: Window<'_>| Some(window.newest_increase(WINDOW_SECONDS)?.rate());
    let mut by_port: BTreeMap<&str, f64> = BTreeMap::new();
    for (labels, window) in history.moving(&SWITCH_PORT_ECN_MARKED) {
        if let Some((port, marked)) = labels.values().next().zip(rate(window)) {
            *by_port.entry(port).or_default() += marked;
        }
    }
    let marks = |(port, marked): (&str, f64)| {
        let sent = rate(history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[port])?)?;
        Some(sent > 0.0 && marked_share(marked, sent) > MARKS)
    };
    Some(by_port.into_iter().any(|port| marks(port) == Some(true)))
}

fn of_stuck_port(view: &View<'_>, cable: LinkId) -> Option<Evidence> {
    let part = view.fabric.cable_part(cable)?;
    let statement = format!(
        "A switch at one end of {part} has paused the other for more than {:.0} % of the last {DEAD_SECONDS:.0} s, and none of its ports is paused.",
        100.0 * DEAD
    );
    Some(storm(view, part, statement))
}

fn storm(view: &View<'_>, part: Part, statement: String) -> Evidence {
    Evidence {
        detector: NAME,
        signal: SWITCH_PORT_PFC_PAUSE_SECONDS.name,
        class: &PFC_STORM,
        effect: 1.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

//! Switches that pause others permanently: in a cyclic buffer dependency, or by a stuck port.

use std::collections::BTreeSet;

use railscope_model::fabric::LinkId;
use railscope_model::identity::{Part, PortName};
use railscope_model::metric::{SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_RECEIVE_BYTES};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PFC_DEADLOCK, PFC_STORM};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::pause_graph::{
    DEAD, DEAD_SECONDS, MIN_PAUSE, MOST_CARRIED, PauseGraph, WINDOW_SECONDS, stands,
};
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, SHARE_IN_PAUSE, Threshold};
use crate::stages::Step;
use crate::store::Increase;

struct PauseCircle;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(PauseCircle)
}

const NAME: &str = "pause-circle";

impl Detector for PauseCircle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let graph = PauseGraph::of(view);
        let stuck = graph.stuck(view.fabric).into_iter();
        out.extend(stuck.filter_map(|cable| of_stuck_port(view, cable)));
        if !view.left_out.has(Step::PauseWalk) {
            stuck_without_cable(view, out);
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
                check: "A switch permanently pauses another switch, or a port whose cable is not known, although nothing pauses it.",
                threshold: format!(
                    "more than {:.0} % of {DEAD_SECONDS:.0} s in pause at less than {:.0} % of the port's speed, and no port of the switch that sends the pause is paused",
                    100.0 * DEAD,
                    100.0 * MOST_CARRIED
                ),
                clears: "The port carries traffic again.",
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
        vec![
            Rule::new(&PFC_DEADLOCK, thresholds.clone()),
            Rule::new(&PFC_STORM, thresholds),
        ]
    }
}

/// Ports of which no cable is known: a switch sends pause there all of the time, nothing arrives,
/// and none of its ports is paused. Whatever is at the other end, the switch is the root cause.
fn stuck_without_cable(view: &View<'_>, out: &mut Vec<Evidence>) {
    for (switch, history) in view.history.fresh_switches(view.now) {
        let mut stuck = Vec::new();
        let mut paused = BTreeSet::new();
        for (labels, window) in history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS) {
            let labels: Vec<&str> = labels.values().collect();
            let share = |seconds| window.increase(seconds).map_or(0.0, Increase::rate);
            match labels[..] {
                [_, priority, "receive"] if share(WINDOW_SECONDS) > MIN_PAUSE => {
                    paused.insert(priority);
                }
                [port, priority, "transmit"] if share(DEAD_SECONDS) > DEAD => {
                    stuck.push((port, priority));
                }
                _ => {}
            }
        }
        let tells = || {
            let mut series = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
            series.any(|(labels, _)| labels.values().nth(2) == Some("receive"))
        };
        if stuck.is_empty() || !tells() {
            continue;
        }
        for (port, priority) in stuck {
            let is_root =
                !paused.contains(priority) && stands(history, port, &SWITCH_PORT_RECEIVE_BYTES);
            let (true, None, Ok(name)) = (
                is_root,
                cable_at(view.fabric, switch, port),
                port.parse::<PortName>(),
            ) else {
                continue;
            };
            let part = Part::SwitchLink(switch.clone(), name);
            let statement = format!(
                "Port {port} of {switch} has sent pause on priority {priority} for more than {:.0} % of the last {DEAD_SECONDS:.0} s, and none of the switch's ports is paused.",
                100.0 * DEAD
            );
            out.push(storm(view, part, statement));
        }
    }
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

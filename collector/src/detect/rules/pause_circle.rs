//! Switches that pause others permanently: in a cyclic buffer dependency, or by a stuck port.

use railscope_model::fabric::LinkId;
use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_PFC_PAUSE_SECONDS;

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PFC_DEADLOCK, PFC_STORM};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::pause_graph::{DEAD, DEAD_SECONDS, MOST_CARRIED, PauseGraph};
use crate::detect::registry::{Rule, SHARE_IN_PAUSE, Threshold};

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
        for circle in graph.circles(view.fabric) {
            let parts = circle
                .into_iter()
                .map(|id| view.fabric.vertex(id).part.clone());
            let mut parts: Vec<Part> = parts.collect();
            // None of them is more to blame: the first by name stands for all, in every tick.
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
                    "{} pause each other in a circle: for {DEAD_SECONDS:.0} s their ports to each other were paused more than {:.0} % of the time and carried next to nothing.",
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
                check: "A switch permanently pauses another switch, although nothing pauses it.",
                threshold: format!(
                    "more than {:.0} % of {DEAD_SECONDS:.0} s in pause at less than {:.0} % of the port's speed (detection method, section 3.6), and no port of the switch that sends the pause is paused",
                    100.0 * DEAD,
                    100.0 * MOST_CARRIED
                ),
                clears: "The port carries traffic again.",
            };
        }
        Explanation {
            check: "Ports between switches are blocked, each by the next, and the last by the first (PFC deadlock).",
            threshold: format!(
                "more than {:.0} % of {DEAD_SECONDS:.0} s in pause at less than {:.0} % of the port's speed (detection method, section 3.6), along shortest paths; if the cycle also waits for a NIC, the NIC is the cause",
                100.0 * DEAD,
                100.0 * MOST_CARRIED
            ),
            clears: "A port of the cycle carries traffic again.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let source = "detection method, section 3.6";
        let thresholds = vec![
            Threshold::new(SHARE_IN_PAUSE, DEAD, "ratio", source),
            Threshold::new(
                "observed time",
                DEAD_SECONDS,
                "s",
                "two analysis cycles at 10 s (detection method, section 3.6)",
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

fn of_stuck_port(view: &View<'_>, cable: LinkId) -> Option<Evidence> {
    let part = view.fabric.cable_part(cable)?;
    Some(Evidence {
        detector: NAME,
        signal: SWITCH_PORT_PFC_PAUSE_SECONDS.name,
        class: &PFC_STORM,
        effect: 1.0,
        statement: format!(
            "A switch at one end of {part} has paused the other for more than {:.0} % of the last {DEAD_SECONDS:.0} s, and none of its ports is paused.",
            100.0 * DEAD
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

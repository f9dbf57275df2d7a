//! Ports that lose their link again and again.

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{NIC_PHY_LINK_DOWN, RDMA_PORT_ERRORS, RDMA_PORT_UP};

use super::netdev;
use crate::core::classes::{Class, PORT_FLAPPING};
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::history::{NodeHistory, WINDOW_PAGES, Window};
use crate::core::inventory::gpus_behind;
use crate::core::rules::{Rule, Threshold};

/// Losses that make a port flap: one is a cable that was moved or a node that was restarted.
const MIN_LOSSES: usize = 2;

struct FlappingPort;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(FlappingPort)
}

impl Detector for FlappingPort {
    fn name(&self) -> &'static str {
        "flapping-port"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        for (node, history) in view.history.fresh_nodes(view.now) {
            // Where nothing has moved for the whole window, no link was lost.
            let moves = |metric| history.moving(metric).next().is_some();
            if ![&RDMA_PORT_UP, &RDMA_PORT_ERRORS, &NIC_PHY_LINK_DOWN]
                .into_iter()
                .any(moves)
            {
                continue;
            }
            for (labels, up) in history.series(&RDMA_PORT_UP) {
                let mut labels = labels.values();
                let (Some(device), Some(port)) = (labels.next(), labels.next()) else {
                    continue;
                };
                let losses = losses(history, up, [device, port]);
                let name = (device.parse(), port.parse());
                if let (true, (Ok(device), Ok(port))) = (losses >= MIN_LOSSES, name) {
                    out.push(evidence(view, node, RdmaPort { device, port }, losses));
                }
            }
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A port has lost its link several times within minutes, by its own counter or by what scrapes saw of it.",
            threshold: format!(
                "{MIN_LOSSES} losses in {WINDOW_PAGES} scrapes: one is a cable that was moved, or a restart"
            ),
            clears: "The link has held for the whole window.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "losses of the link",
                MIN_LOSSES as f64,
                "losses",
                "one is a cable that was moved or a node that was restarted",
            ),
            Threshold::new(
                "window",
                f64::from(WINDOW_PAGES),
                "scrapes",
                "as long as the history reaches",
            ),
        ];
        vec![Rule::new(&PORT_FLAPPING, thresholds)]
    }
}

/// How often a port has lost its link: as it counts itself, and as scrapes have seen it, whichever is more. What
/// it counts between two scrapes is one loss: a cable that is plugged in may bounce.
fn losses(history: &NodeHistory, up: Window<'_>, [device, port]: [&str; 2]) -> usize {
    let counter = history.window(&RDMA_PORT_ERRORS, &[device, port, "link_downed"]);
    let interface = netdev::of_port(history, [device, port]);
    let of_interface = interface.and_then(|name| history.window(&NIC_PHY_LINK_DOWN, &[name]));
    let counters = [counter, of_interface].into_iter().flatten();
    let counted = counters.map(|rises| rises.values().filter(|rise| *rise > 0.0).count());
    let seen: Vec<f64> = up.values().collect();
    let seen = seen.windows(2).filter(|pair| pair[0] > pair[1]).count();
    counted.max().unwrap_or(0).max(seen)
}

fn evidence(view: &View<'_>, node: &NodeName, port: RdmaPort, losses: usize) -> Evidence {
    let statement = format!(
        "Port {port} of {node} has lost its link {losses} times within {WINDOW_PAGES} scrapes."
    );
    let part = Part::HostLink(node.clone(), port);
    Evidence {
        detector: "flapping-port",
        signal: RDMA_PORT_UP.name,
        class: &PORT_FLAPPING,
        // Each loss costs the job a stall or its life, whatever share of the time it takes.
        effect: 1.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

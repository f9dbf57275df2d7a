//! Ports whose links flap, and ports that are down and have counted it themselves.

use std::collections::BTreeSet;

use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{Metric, NIC_PHY_LINK_DOWN, RDMA_PORT_ERRORS, RDMA_PORT_UP};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PORT_DOWN, PORT_FLAPPING};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::netdev;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{NodeHistory, WINDOW_PAGES, Window};

/// Losses that make a port flap: one is a cable that was moved or a node that was restarted.
const MIN_LOSSES: usize = 2;

#[derive(Default)]
struct FlappingPort {
    /// Ports that flapped at the last tick.
    flapping: BTreeSet<(NodeName, RdmaPort)>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<FlappingPort>::default()
}

impl Detector for FlappingPort {
    fn name(&self) -> &'static str {
        "flapping-port"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut flapping_now = BTreeSet::new();
        for (node, history) in view.history.fresh_nodes(view.now) {
            // If all counters were constant for the whole window, no link went down.
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
                let losses = Losses::of(history, up, [device, port]);
                let (Ok(device), Ok(port)) = (device.parse(), port.parse()) else {
                    continue;
                };
                let port = RdmaPort { device, port };
                // Two losses make it flap, and then it does until the window holds none.
                let named = (node.clone(), port.clone());
                let flaps = self.flapping.contains(&named);
                if losses.all() >= if flaps { 1 } else { MIN_LOSSES } {
                    flapping_now.insert(named);
                    out.push(flapping(view, node, port, losses.all()));
                } else if let (Some(counter), Some(0.0)) = (losses.both(), up.value()) {
                    out.push(down(view, node, port, counter));
                }
            }
        }
        self.flapping = flapping_now;
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        if class == &PORT_DOWN {
            return Explanation {
                check: "A port that was up is down, and its own counter reports a link failure.",
                threshold:
                    "any: two values of one scrape agree, and neither is an instantaneous reading"
                        .to_owned(),
                clears: "The port is ACTIVE again.",
            };
        }
        Explanation {
            check: "The link of a port went down several times within minutes, by the port's own counter or by its state in scrapes.",
            threshold: format!(
                "{MIN_LOSSES} link failures in {WINDOW_PAGES} scrapes: a single one is a moved cable or a restart"
            ),
            clears: "The link stays up for the whole window.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "link failures",
                MIN_LOSSES as f64,
                "failures",
                "one is a moved cable or a restarted node",
            ),
            Threshold::new(
                "window",
                f64::from(WINDOW_PAGES),
                "scrapes",
                "length of the stored history",
            ),
        ];
        vec![
            Rule::new(&PORT_FLAPPING, thresholds),
            Rule::new(&PORT_DOWN, Vec::new()),
        ]
    }
}

/// How often the link of a port went down within the window.
struct Losses {
    /// As it counts itself, and by which metric. What it counts between two scrapes is one loss: a cable that is plugged
    /// in may bounce.
    counted: Option<(usize, &'static Metric)>,
    /// As scrapes have seen it.
    seen: usize,
}

impl Losses {
    fn of(history: &NodeHistory, up: Window<'_>, [device, port]: [&str; 2]) -> Self {
        let counter = history.window(&RDMA_PORT_ERRORS, &[device, port, "link_downed"]);
        let interface = netdev::of_port(history, [device, port]);
        let of_interface = interface.and_then(|name| history.window(&NIC_PHY_LINK_DOWN, &[name]));
        let counters = [
            (counter, &RDMA_PORT_ERRORS),
            (of_interface, &NIC_PHY_LINK_DOWN),
        ];
        let counted = counters.into_iter().filter_map(|(rises, metric)| {
            let losses = rises?.values().filter(|rise| *rise > 0.0).count();
            (losses > 0).then_some((losses, metric))
        });
        let seen: Vec<f64> = up.values().collect();
        Self {
            counted: counted.max_by_key(|(losses, _)| *losses),
            seen: seen.windows(2).filter(|pair| pair[0] > pair[1]).count(),
        }
    }

    /// Whichever is more.
    fn all(&self) -> usize {
        self.counted
            .map_or(self.seen, |(losses, _)| losses.max(self.seen))
    }

    /// The metric that has counted what scrapes have seen, too.
    fn both(&self) -> Option<&'static Metric> {
        let (_, metric) = self.counted.filter(|_| self.seen > 0)?;
        Some(metric)
    }
}

fn flapping(view: &View<'_>, node: &NodeName, port: RdmaPort, losses: usize) -> Evidence {
    let statement = format!(
        "The link of port {port} of {node} went down {losses} times within {WINDOW_PAGES} scrapes."
    );
    evidence(
        view,
        Part::HostLink(node.clone(), port),
        (&PORT_FLAPPING, &RDMA_PORT_UP),
        statement,
    )
}

fn down(view: &View<'_>, node: &NodeName, port: RdmaPort, counter: &'static Metric) -> Evidence {
    let statement = format!(
        "Port {port} of {node} is down, and its counter reports a link failure ({}).",
        counter.name
    );
    evidence(
        view,
        Part::HostLink(node.clone(), port),
        (&PORT_DOWN, counter),
        statement,
    )
}

fn evidence(
    view: &View<'_>,
    part: Part,
    (class, metric): (&'static Class, &'static Metric),
    statement: String,
) -> Evidence {
    Evidence {
        detector: "flapping-port",
        signal: metric.name,
        class,
        // Each loss stalls or ends the job, however short it is.
        effect: 1.0,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

//! Ports whose links flap, of hosts and between switches, and ports that are down and have counted it themselves.

mod interfaces;
mod moves;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{
    Metric, NIC_CARRIER, NIC_CARRIER_CHANGES, NIC_PHY_LINK_DOWN, NODE_BOOT_TIME, RDMA_PORT_ERRORS,
    RDMA_PORT_UP, SWITCH_PORT_CARRIER_CHANGES, SWITCH_PORT_LINK_DOWNED, SWITCH_PORT_UP,
};

use moves::{Moves, changes_of_speed};

use crate::assemble::netdev;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, PORT_DOWN, PORT_FLAPPING};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::port_series::cable_at;
use crate::detect::registry::{Rule, Threshold};
use crate::store::{NodeHistory, WINDOW_PAGES, Window};

/// Losses that make a port flap: one is a cable that was moved or a node that was restarted.
const MIN_LOSSES: usize = 2;

/// The time in which losses of a host's cable count that its switch sees: as long as the host's own window, which shows whether the port
/// changed its speed.
const HOST_SECONDS: f64 = 150.0;

/// Counts losses since then.
type Count = fn(Window<'_>, Timestamp) -> usize;

#[derive(Default)]
struct FlappingPort {
    /// Links that flapped at the last tick.
    flapping: BTreeSet<Part>,
    moves: Moves,
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
        self.moves.refresh(view);
        for (node, history) in view.history.fresh_nodes(view.now) {
            // If all counters were constant for the whole window, no link went down.
            let moves = |metric| history.moving(metric).next().is_some();
            if [&NIC_CARRIER, &NIC_CARRIER_CHANGES].into_iter().any(moves) {
                for (netdev, port, losses) in self.lost_interfaces(view, (node, history)) {
                    let link = Part::HostLink(node.clone(), port);
                    if self.flaps(&link, losses) && flapping_now.insert(link.clone()) {
                        let interface = format!("interface {netdev} of {node}");
                        out.push(flapping(view, link, (&interface, &NIC_CARRIER), losses));
                    }
                }
            }
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
                let of = [device, port];
                let (Ok(device), Ok(port)) = (device.parse(), port.parse()) else {
                    continue;
                };
                let port = RdmaPort { device, port };
                let link = Part::HostLink(node.clone(), port.clone());
                if self.flaps(&link, losses.all())
                    && self.flaps(
                        &link,
                        up.told().last().map_or(0, |(oldest, _)| {
                            self.unexplained((node, history), (oldest, of), losses.all())
                        }),
                    )
                {
                    flapping_now.insert(link.clone());
                    let port = format!("port {port} of {node}");
                    out.push(flapping(view, link, (&port, &RDMA_PORT_UP), losses.all()));
                } else if let (Some(counter), Some(0.0)) = (losses.both(), up.value()) {
                    out.push(down(view, node, port, counter));
                }
            }
        }
        for (switch, history) in view.history.fresh_switches(view.now) {
            for (link, (port, losses)) in self.at_switch(view, switch, history) {
                if self.flaps(&link, losses) && flapping_now.insert(link.clone()) {
                    let port = format!("port {port} of {switch}");
                    out.push(flapping(view, link, (&port, &SWITCH_PORT_UP), losses));
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
            check: "The link of a port went down several times within minutes, by its own counter or its state in scrapes, of its node or its switch.",
            threshold: format!(
                "{MIN_LOSSES} link failures in {WINDOW_PAGES} scrapes: a single one is a moved cable or a restart; what its switch sees of a host's cable, and interfaces without RDMA ports (of nodes with GPUs, of {:.0} Gb/s or more), count only if the node reports that it started before that; two changes of a carrier are one failure",
                8e-9 * netdev::MIN_SPEED
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
            Threshold::new(
                "time in which a switch's view of a host's cable counts, at most",
                HOST_SECONDS,
                "s",
                "as long as the stored history of the host at 5 s scrapes",
            ),
        ];
        let thresholds = thresholds.into_iter().chain(moves::numbers()).collect();
        vec![
            Rule::new(&PORT_FLAPPING, thresholds),
            Rule::new(&PORT_DOWN, Vec::new()),
        ]
    }
}

impl FlappingPort {
    /// Losses of a port's link since then that neither a moved cable nor another speed explains.
    fn unexplained(
        &self,
        (node, history): (&NodeName, &NodeHistory),
        (oldest, port): (Timestamp, [&str; 2]),
        losses: usize,
    ) -> usize {
        let [device, number] = port;
        let nic = device.parse().ok();
        let nic = nic
            .map(|device| Part::Nic(node.clone(), device))
            .zip(number.parse().ok());
        let moves = nic.map_or(0, |(nic, number)| self.moves.since((&nic, number), oldest));
        let up = history.window(&RDMA_PORT_UP, &port);
        let speeds = up.map_or(0, |up| changes_of_speed(history, up, port));
        // A cable that is moved may train to another speed.
        losses.saturating_sub(moves.max(speeds))
    }

    /// Cables of a switch that were lost within the window, each with the port and how often: as its counter reports, or as scrapes have
    /// seen it. Of hosts, those that ran all the time.
    fn at_switch<'a>(
        &self,
        view: &View<'_>,
        switch: &SwitchName,
        history: &'a NodeHistory,
    ) -> BTreeMap<Part, (&'a str, usize)> {
        let metrics: [(_, Count); 3] = [
            (&SWITCH_PORT_LINK_DOWNED, rises),
            (&SWITCH_PORT_UP, falls),
            (&SWITCH_PORT_CARRIER_CHANGES, down_and_up),
        ];
        let moving = metrics.into_iter().flat_map(|(metric, count)| {
            let moving = history.moving(metric);
            moving.map(move |(labels, window)| (labels, window, count))
        });
        let mut lost = BTreeMap::new();
        for (labels, window, count) in moving {
            let port = labels.values().next();
            let near = port.and_then(|port| Some((port, cable_at(view.fabric, switch, port)?)));
            let Some(((port, near), (oldest, _))) = near.zip(window.told().last()) else {
                continue;
            };
            let losses = match &view.fabric.vertex(near.peer).part {
                Part::Switch(_) => count(window, oldest),
                Part::Nic(node, device) => {
                    let since = oldest.max(view.now.plus_seconds(-HOST_SECONDS));
                    let number = near.peer_port.to_string();
                    let port = [device.as_str(), number.as_str()];
                    let host = view.history.node(node).map(|history| (node, history));
                    host.filter(|_| runs_since(view, node, since))
                        .map_or(0, |host| {
                            self.unexplained(host, (since, port), count(window, since))
                        })
                }
                _ => 0,
            };
            if losses == 0 {
                continue;
            }
            if let Some(link) = view.fabric.cable_part(near.id) {
                let (_, most) = lost.entry(link).or_insert((port, 0));
                *most = losses.max(*most);
            }
        }
        lost
    }

    /// Two losses make a link flap, and then it does until the window holds none.
    fn flaps(&self, link: &Part, losses: usize) -> bool {
        losses
            >= if self.flapping.contains(link) {
                1
            } else {
                MIN_LOSSES
            }
    }
}

/// Whether a node answers, and started before then: while it starts, its links go down several times.
fn runs_since(view: &View<'_>, node: &NodeName, then: Timestamp) -> bool {
    let history = view
        .history
        .node(node)
        .filter(|history| history.is_fresh(view.now));
    let boot = history.and_then(|history| history.value(&NODE_BOOT_TIME, &[]));
    boot.is_some_and(|boot| boot > 0.0 && 1e3 * boot < then.0 as f64)
}

/// Between how many scrapes a counter has risen since then. What it counts between two is one loss: a cable that is plugged in may bounce.
fn rises(counter: Window<'_>, since: Timestamp) -> usize {
    let counts = counter.counts().filter(|count| count.at >= since);
    counts.filter(|count| count.rise > 0.0).count()
}

/// How often a link went down by a counter of changes. What it counts between two scrapes is at most one loss, as of [`rises`].
fn down_and_up(changes: Window<'_>, since: Timestamp) -> usize {
    let counts = changes.counts().filter(|count| count.at >= since);
    counts.map(|count| count.rise.clamp(0.0, 2.0)).sum::<f64>() as usize / 2
}

/// How often scrapes have seen a link go down.
fn falls(up: Window<'_>, since: Timestamp) -> usize {
    let newest_first: Vec<_> = up.told().take_while(|(at, _)| *at >= since).collect();
    newest_first
        .windows(2)
        .filter(|pair| pair[1].1 > pair[0].1)
        .count()
}

/// How often the link of a port went down within the window.
struct Losses {
    /// As it counts itself, and by which metric.
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
        let counted = counters.into_iter().filter_map(|(counter, metric)| {
            let losses = rises(counter?, Timestamp(0));
            (losses > 0).then_some((losses, metric))
        });
        Self {
            counted: counted.max_by_key(|(losses, _)| *losses),
            seen: falls(up, Timestamp(0)),
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

fn flapping(
    view: &View<'_>,
    link: Part,
    (port, metric): (&str, &'static Metric),
    losses: usize,
) -> Evidence {
    let statement =
        format!("The link of {port} went down {losses} times within {WINDOW_PAGES} scrapes.");
    evidence(view, link, (&PORT_FLAPPING, metric), statement)
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

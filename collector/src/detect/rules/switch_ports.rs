//! What ports of switches report about the switch: packets that it drops, uplinks of which it uses
//! only some or one less than the others, queues that stand, a port that drops alone, ports that wait for credits, a leaf that back-pressures its hosts.

mod congested_leaf;
mod drops;
mod host_drops;
mod lone_drops;
mod past;
mod standing_queue;
mod uneven_spray;
mod waiting_cable;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_TRANSMIT_BYTES,
    SWITCH_PORT_TRANSMIT_WAIT,
};

use self::congested_leaf::{CongestedLeaf, Means};
use self::host_drops::HostDrops;
use self::lone_drops::Drops;
use self::standing_queue::Queues;
use self::uneven_spray::Spray;
use self::waiting_cable::Waiting;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, ECMP_POLARIZED, EDGE_LOSSY, PATH_SLOW, SWITCH_QOS, UPLINK_LOSSY};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::port_series::PortSeries;
use crate::detect::registry::{Rule, Threshold};
use crate::store::Window;

/// The window over which ports are compared.
const WINDOW_SECONDS: f64 = 60.0;
/// An uplink with less than this of the mean of its switch's uplinks is not used.
const UNUSED: f64 = 0.05;
/// Share of a switch's uplinks that are not used from which its hash is at fault, and most of its peers' that
/// may be.
const MIN_UNUSED: f64 = 0.5;
/// Fewest uplinks that a hash chooses among.
const MIN_UPLINKS: usize = 4;
/// A leaf that sends less upwards than this share of the median leaf has fewer flows than its peers: few large
/// flows leave uplinks unused by chance, which is not a fault.
const MIN_UPWARDS: f64 = 0.5;
/// What an uplink sends in a second, in bytes, below which nothing waits for it.
const MIN_SENT: f64 = 2.5e8;

/// How far more uplinks must be unused than a fair hash of as many flows leaves, in standard deviations.
const ABOVE_CHANCE: f64 = 3.0;

struct SwitchPorts {
    bytes: PortSeries<2>,
    leaves: Leaves,
    spray: Spray,
    queues: Queues,
    drops: Drops,
    host_drops: HostDrops,
    waiting: Waiting,
    congested: [CongestedLeaf; 2],
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(SwitchPorts {
        bytes: PortSeries::new([
            (&SWITCH_PORT_TRANSMIT_BYTES, None),
            (&SWITCH_PORT_RECEIVE_BYTES, None),
        ]),
        leaves: Leaves::default(),
        spray: Spray::default(),
        queues: Queues::default(),
        drops: Drops::default(),
        host_drops: HostDrops::default(),
        waiting: Waiting::default(),
        congested: [Means::Pause, Means::Credits].map(CongestedLeaf::new),
    })
}

impl Detector for SwitchPorts {
    fn name(&self) -> &'static str {
        "switch-ports"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        drops::find(view, out);
        self.bytes.refresh(view);
        self.leaves.refresh(view);
        polarized(view, &self.leaves, &self.bytes, out);
        self.spray.find(view, (&self.leaves, &self.bytes), out);
        self.queues.find(view, out);
        self.drops.find(view, out);
        self.host_drops.find(view, out);
        self.waiting.find(view, out);
        for leaf in &mut self.congested {
            leaf.find(view, out);
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, class: &Class, signal: &str) -> Explanation {
        if [&SWITCH_QOS, &UPLINK_LOSSY].contains(&class) {
            drops::explain(class)
        } else if signal == SWITCH_PORT_TRANSMIT_WAIT.name {
            Explanation {
                check: "A port between switches waits for credits, although the next switch waits for none itself.",
                threshold: waiting_cable::words(),
                clears: "The port waits no longer than others for each byte.",
            }
        } else if class == &EDGE_LOSSY {
            Explanation {
                check: "A port to a host drops packets, although it could send more and is not paused.",
                threshold: host_drops::words(),
                clears: "The port drops no packets.",
            }
        } else if signal == SWITCH_PORT_DISCARDS.name {
            Explanation {
                check: "A port between switches drops packets alone, although it could send more and is not paused.",
                threshold: lone_drops::words(),
                clears: "The port drops no packets.",
            }
        } else if [Means::Pause, Means::Credits]
            .map(|means| means.signal().name)
            .contains(&signal)
        {
            Explanation {
                check: "A leaf back-pressures its hosts, although it waits for none of them.",
                threshold: congested_leaf::words(),
                clears: "They wait no longer than hosts of other leaves.",
            }
        } else if class == &PATH_SLOW && signal == SWITCH_PORT_TRANSMIT_BYTES.name {
            Explanation {
                check: "A leaf spreads its packets evenly over its uplinks, and one of them carries less.",
                threshold: uneven_spray::words(),
                clears: "The uplink carries as much as the others.",
            }
        } else if class == &PATH_SLOW {
            Explanation {
                check: "A port between switches has a standing queue, although it could send more and is not paused.",
                threshold: standing_queue::words(),
                clears: "The port marks no packets, or sends at its full speed.",
            }
        } else {
            Explanation {
                check: "A leaf sends over some of its uplinks only, while other leaves use theirs.",
                threshold: format!(
                    "{:.0} % of at least {MIN_UPLINKS} uplinks carry less than {:.0} % of the mean over {WINDOW_SECONDS:.0} s, the median leaf has fewer than half as many such uplinks, the leaf sends at least {:.0} % of the median leaf's bytes over its uplinks, and a fair hash of as many flows, each as large as the busiest host port, would leave fewer by {ABOVE_CHANCE} standard deviations",
                    100.0 * MIN_UNUSED,
                    100.0 * UNUSED,
                    100.0 * MIN_UPWARDS
                ),
                clears: "It uses its uplinks as other leaves do.",
            }
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let uplinks = hashing().into_iter().chain([window()]).collect();
        let [qos, lossy] = drops::rules();
        let [by_pause, by_credits] = congested_leaf::rules();
        vec![
            qos,
            lossy,
            Rule::new(&ECMP_POLARIZED, uplinks),
            uneven_spray::rule(),
            standing_queue::rule(),
            lone_drops::rule(),
            host_drops::rule(),
            waiting_cable::rule(),
            by_pause,
            by_credits,
        ]
    }
}

/// The window as a threshold.
fn window() -> Threshold {
    Threshold::new(
        "window",
        WINDOW_SECONDS,
        "s",
        "several readings of every switch (a choice)",
    )
}

/// The numbers of uplinks that are not used, beside the window.
fn hashing() -> Vec<Threshold> {
    let hash = "a few large flows leave uplinks unused by chance (a choice)";
    vec![
        Threshold::new(
            "share of the mean below which an uplink is unused",
            UNUSED,
            "ratio",
            hash,
        ),
        Threshold::new("share of unused uplinks", MIN_UNUSED, "ratio", hash),
        Threshold::new(
            "minimum number of uplinks",
            MIN_UPLINKS as f64,
            "uplinks",
            hash,
        ),
        Threshold::new(
            "bytes sent over uplinks, as a share of the median leaf's",
            MIN_UPWARDS,
            "ratio",
            hash,
        ),
        Threshold::new(
            "bytes that the busiest uplink sends, at least",
            MIN_SENT,
            "B/s",
            "2 Gb/s: below, nothing waits for an uplink (a choice)",
        ),
        Threshold::new(
            "unused uplinks above those that a fair hash leaves",
            ABOVE_CHANCE,
            "standard deviations",
            "empty bins of as many flows as the busiest host port makes of these bytes",
        ),
    ]
}

fn evidence(
    view: &View<'_>,
    switch: &SwitchName,
    class: &'static Class,
    signal: &'static Metric,
    effect: f64,
    statement: String,
) -> Evidence {
    let part = Part::Switch(switch.clone());
    Evidence {
        detector: "switch-ports",
        signal: signal.name,
        class,
        effect,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

/// Leaves that leave most of their uplinks unused while others use theirs.
fn polarized(view: &View<'_>, all: &Leaves, series: &PortSeries<2>, out: &mut Vec<Evidence>) {
    let mut leaves = Vec::new();
    for (switch, ports) in &all.ports {
        let Some(series) = series.of(view, switch) else {
            continue;
        };
        let amount = |window: Option<Window<'_>>| Some(window?.increase(WINDOW_SECONDS)?.amount);
        let sent = ports
            .up
            .iter()
            .filter_map(|port| amount(series.of(*port)[0]));
        let sent: Vec<f64> = sent.collect();
        let bytes: f64 = sent.iter().sum();
        let mean = bytes / sent.len().max(1) as f64;
        if sent.len() >= MIN_UPLINKS && mean > 0.0 {
            let unused = sent.iter().filter(|bytes| **bytes < UNUSED * mean).count();
            // No flow has more than a host sends.
            let flows = move || {
                let from_hosts = ports.down.iter();
                let from_hosts = from_hosts.filter_map(|port| amount(series.of(*port)[1]));
                from_hosts.reduce(f64::max).map(|most| bytes / most)
            };
            let is_loaded = sent.iter().any(|bytes| *bytes >= MIN_SENT * WINDOW_SECONDS);
            leaves.push((switch, (unused, sent.len()), (bytes, is_loaded), flows));
        }
    }
    if leaves.len() < MIN_PEERS {
        return;
    }
    let share = |unused: usize, all: usize| unused as f64 / all as f64;
    let shares = leaves
        .iter()
        .map(|(_, (unused, all), ..)| share(*unused, *all));
    let usual = median(shares).unwrap_or(1.0);
    let upwards = median(leaves.iter().map(|(.., (bytes, _), _)| *bytes)).unwrap_or(0.0);
    for (switch, (unused, all), (bytes, is_loaded), flows) in leaves {
        let of_it = share(unused, all);
        let has_flows = is_loaded && bytes >= MIN_UPWARDS * upwards;
        let is_chance = || flows().is_some_and(|flows| is_chance(unused, all, flows));
        if of_it >= MIN_UNUSED && of_it >= 2.0 * usual && has_flows && !is_chance() {
            let statement = format!(
                "{switch} sends nothing over {unused} of its {all} uplinks; the median leaf leaves {:.0} % of its uplinks unused.",
                100.0 * usual
            );
            out.push(evidence(
                view,
                switch,
                &ECMP_POLARIZED,
                &SWITCH_PORT_TRANSMIT_BYTES,
                of_it,
                statement,
            ));
        }
    }
}

/// Whether a fair hash may leave so many of the uplinks unused. The number of empty bins of `n`, for `k` balls, has the mean
/// n (1 - 1/n)^k, and the mean number of ordered pairs of empty bins is n (n - 1) (1 - 2/n)^k.
fn is_chance(unused: usize, uplinks: usize, flows: f64) -> bool {
    let n = uplinks as f64;
    let mean = n * (1.0 - 1.0 / n).powf(flows);
    let pairs = n * (n - 1.0) * (1.0 - 2.0 / n).powf(flows);
    let variance = (pairs + mean - mean * mean).max(0.0);
    // Half a bin: counts are whole.
    unused as f64 - 0.5 <= mean + ABOVE_CHANCE * variance.sqrt()
}

/// Ports of a leaf.
#[derive(Debug)]
struct LeafPorts {
    /// Those that lead to other switches.
    up: Vec<u16>,
    /// Those that lead to hosts.
    down: Vec<u16>,
}

/// Switches that have ports towards hosts and towards other switches, by name, as the fabric shows them.
#[derive(Debug, Default)]
struct Leaves {
    epoch: Option<u64>,
    ports: BTreeMap<SwitchName, LeafPorts>,
}

impl Leaves {
    fn refresh(&mut self, view: &View<'_>) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        self.ports.clear();
        let fabric = view.fabric;
        let cables = |id| fabric.cables(id);
        let is_switch = |id| matches!(fabric.vertex(id).part, Part::Switch(_));
        let hosts = |id| cables(id).filter(|near| !is_switch(near.peer)).count();
        for (id, vertex) in fabric.vertices() {
            let Part::Switch(switch) = &vertex.part else {
                continue;
            };
            let (mut up, down): (Vec<_>, Vec<_>) =
                cables(id).partition(|near| is_switch(near.peer));
            // A cable to a switch of the same rank, as in a dragonfly, is no uplink: its traffic is for that switch.
            up.retain(|near| 2 * hosts(near.peer) < down.len());
            if !up.is_empty() && !down.is_empty() {
                let [up, down] = [up, down].map(|cables| {
                    let ports: BTreeSet<u16> = cables.iter().map(|near| near.port).collect();
                    ports.into_iter().collect()
                });
                self.ports.insert(switch.clone(), LeafPorts { up, down });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_chance;

    #[test]
    fn few_flows_leave_uplinks_unused_by_chance_and_many_do_not() {
        for (unused, uplinks, flows, expected) in [
            // Of eight flows on six uplinks, 1.4 are left, give or take 0.8.
            (3, 6, 8.0, true),
            (5, 6, 8.0, false),
            (4, 8, 16.0, false),
            (16, 32, 32.0, true),
            (16, 32, 64.0, false),
        ] {
            let found = is_chance(unused, uplinks, flows);
            assert_eq!(found, expected, "{unused} of {uplinks}, {flows} flows");
        }
    }
}

//! Hardware faults that a node reports: fans, power supplies, temperatures, memory, throttled processors.
//!
//! A failed fan is a fault of the cooling: a ticket as long as no GPU is slower for it.

use std::collections::BTreeMap;
use std::ops::Add as _;

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{
    CPU_FREQUENCY, CPU_THROTTLES, GPU_UTILIZATION, MEMORY_ERRORS, Metric, SENSOR, SENSOR_ALARM,
};

use crate::classes::{Class, HOST_COOLING, HOST_HARDWARE};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus;
use crate::detect::peers;
use crate::detect::peers::{MIN_PEERS, is_by_chance, mean_events, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory};

/// The state of a sensor that is critical; 1 is a warning, 0 nominal.
const CRITICAL: f64 = 2.0;
/// The kind of a sensor that is part of a node's cooling.
const FAN: &str = "fan";
/// For how long the state must hold, and the window over which errors are counted.
const HELD_SECONDS: f64 = 30.0;
/// See [`HELD_SECONDS`].
const WINDOW_SECONDS: f64 = 120.0;
/// Share of the nodes with the same sensor in the same state from which the state is how such boards are.
const USUAL_SHARE: f64 = 0.3;
/// Share of the highest frequency on the median node that the fastest CPU of a node must reach: a site may have two models of hosts.
const MIN_FREQUENCY: f64 = 0.62;
/// What rises on all nodes is their load or the air of the room: a node must stand out by this factor.
const ABOVE_PEERS: f64 = 5.0;

/// A counter of which a node may count so many an hour.
struct Limit {
    metric: &'static Metric,
    /// The last label.
    kind: &'static str,
    per_hour: f64,
    at_least: f64,
    what: &'static str,
    source: &'static str,
}

const LIMITS: &[Limit] = &[
    Limit {
        metric: &MEMORY_ERRORS,
        kind: "uncorrected",
        per_hour: 0.0,
        at_least: 1.0,
        what: "uncorrected memory errors",
        source: "any: data was lost (Linux, Documentation/driver-api/edac.rst)",
    },
    Limit {
        metric: &MEMORY_ERRORS,
        kind: "corrected",
        per_hour: 300.0,
        at_least: 10.0,
        what: "corrected memory errors",
        source: "10 in 2 minutes: each interrupts a CPU (a choice)",
    },
    Limit {
        metric: &CPU_THROTTLES,
        kind: "package",
        per_hour: 300.0,
        at_least: 10.0,
        what: "thermal throttling events of a CPU",
        source: "10 in 2 minutes: each package counts a short heat peak once, and a CPU without cooling throttles many times a minute (a choice)",
    },
];

struct NodeHardware;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(NodeHardware)
}

impl Detector for NodeHardware {
    fn name(&self) -> &'static str {
        "node-hardware"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        alarms(view, out);
        for limit in LIMITS {
            counted(view, limit, out);
        }
        slow_processors(view, out);
    }

    fn explain(&self, _: &Class, signal: &str) -> Explanation {
        let (check, threshold, clears) = match signal {
            _ if signal == SENSOR_ALARM.name => (
                "The board or BMC reports a critical state of a fan, a power supply, a temperature, memory or a drive of the node.",
                format!(
                    "state {CRITICAL} for {HELD_SECONDS:.0} s, and the same state of this sensor on less than {:.0} % of the nodes",
                    100.0 * USUAL_SHARE
                ),
                "The board reports the nominal state.",
            ),
            _ if signal == CPU_FREQUENCY.name => (
                "The fastest CPU of a node is slower than those of other nodes. Only the time in which half of its GPUs are busy counts.",
                format!(
                    "for {HELD_SECONDS:.0} s less than {:.0} % of the value of the median node",
                    100.0 * MIN_FREQUENCY
                ),
                "It is as fast as the CPUs of other nodes.",
            ),
            _ => (
                "The node counts memory errors, or throttling of its CPUs.",
                LIMITS
                    .iter()
                    .filter(|limit| limit.metric.name == signal)
                    .map(|limit| {
                        format!(
                            "{}: {} per hour, {}",
                            limit.what, limit.per_hour, limit.source
                        )
                    })
                    .collect::<Vec<_>>()
                    .join("; ")
                    + &format!("; and {ABOVE_PEERS} times the median node"),
                "The count stays below its limit for 2 minutes.",
            ),
        };
        Explanation {
            check,
            threshold,
            clears,
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let of = |metric: &'static Metric, thresholds| Rule {
            class: &HOST_HARDWARE,
            signal: metric.name,
            thresholds,
        };
        let fan = Rule {
            class: &HOST_COOLING,
            ..of(&SENSOR_ALARM, alarm_thresholds())
        };
        let counter = |metric: &'static Metric| {
            let limits = LIMITS.iter().filter(|limit| limit.metric == metric);
            let mut thresholds: Vec<_> = limits
                .flat_map(|limit| {
                    [
                        Threshold::new(limit.what, limit.per_hour, "1/h", limit.source),
                        Threshold::new(
                            "minimum in the window",
                            limit.at_least,
                            "errors",
                            limit.source,
                        ),
                    ]
                })
                .collect();
            thresholds.extend([
                Threshold::new(
                    "window",
                    WINDOW_SECONDS,
                    "s",
                    "length of the stored history at 5 s scrapes",
                ),
                Threshold::new(
                    "above the median node",
                    ABOVE_PEERS,
                    "times",
                    "load or room temperature causes an increase on all nodes (a choice)",
                ),
                peers::chance(),
            ]);
            of(metric, thresholds)
        };
        let mut frequency = peers::thresholds();
        frequency.truncate(1);
        frequency.extend([
            Threshold::new(
                "share of the median node's highest frequency",
                MIN_FREQUENCY,
                "ratio",
                "in simulated clusters of seven other authors 12 slow CPUs ran at 0.59 of it or less; base and boost frequency of two models differ by less",
            ),
            Threshold::new(
                "share of its GPUs that are busy",
                0.5,
                "ratio",
                "CPUs with little to do run slowly to save power (a choice)",
            ),
            gpus::busy_node(),
            held(),
        ]);
        vec![
            fan,
            of(&SENSOR_ALARM, alarm_thresholds()),
            counter(&MEMORY_ERRORS),
            counter(&CPU_THROTTLES),
            of(&CPU_FREQUENCY, frequency),
        ]
    }
}

/// For how long a state holds.
fn held() -> Threshold {
    Threshold::new("for", HELD_SECONDS, "s", "several scrapes (a choice)")
}

fn alarm_thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "state",
            CRITICAL,
            "of 2",
            "IPMI 2.0: critical; hwmon: a fan alarm or fault, a critical limit",
        ),
        held(),
        Threshold::new(
            "share of the nodes with the same sensor in the same state, less than",
            USUAL_SHARE,
            "of all",
            "a header without a fan alarms on every board (a choice)",
        ),
    ]
}

/// Sensors in a critical state, one finding a node and kind.
fn alarms(view: &View<'_>, out: &mut Vec<Evidence>) {
    let mut all: BTreeMap<[&str; 3], (usize, Vec<&NodeName>)> = BTreeMap::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        for (labels, window) in history.series(&SENSOR_ALARM) {
            let labels: Vec<_> = labels.values().collect();
            let [chip, sensor, kind] = labels[..] else {
                continue;
            };
            let (count, critical) = all.entry([chip, sensor, kind]).or_default();
            *count += 1;
            let mut lately = window.told_within(view.now, HELD_SECONDS);
            if lately.next().is_some_and(|(_, state)| state >= CRITICAL)
                && lately.all(|(_, state)| state >= CRITICAL)
            {
                critical.push(node);
            }
        }
    }
    let mut by_node: BTreeMap<(&NodeName, &str), Vec<[&str; 2]>> = BTreeMap::new();
    for ([chip, sensor, kind], (count, critical)) in all {
        let is_usual = count >= MIN_PEERS && critical.len() as f64 >= USUAL_SHARE * count as f64;
        for node in critical.into_iter().filter(|_| !is_usual) {
            by_node
                .entry((node, kind))
                .or_default()
                .push([chip, sensor]);
        }
    }
    for ((node, kind), sensors) in by_node {
        let history = view.history.node(node);
        let names = sensors.iter().map(|sensor| named(history, *sensor));
        let names: Vec<_> = names.collect();
        let statement = format!(
            "The hardware of {node} reports a critical state of {}: {}.",
            match kind {
                "power" => "a power supply",
                FAN => "a fan",
                "temperature" => "a temperature",
                other => other,
            },
            names.join(", ")
        );
        let class = match kind {
            FAN => &HOST_COOLING,
            _ => &HOST_HARDWARE,
        };
        out.push(Evidence {
            class,
            ..evidence(node, &SENSOR_ALARM, statement)
        });
    }
}

/// What the maker calls a sensor, or its names in the kernel.
fn named(history: Option<&NodeHistory>, [chip, sensor]: [&str; 2]) -> String {
    let infos = history
        .into_iter()
        .flat_map(|history| history.series(&SENSOR));
    let mut label = infos.filter_map(|(labels, _)| {
        let labels: Vec<_> = labels.values().collect();
        let is_it = labels.get(..2) == Some(&[chip, sensor][..]);
        labels
            .get(3)
            .copied()
            .filter(|label| is_it && !label.is_empty())
    });
    label
        .next()
        .map_or_else(|| format!("{sensor} of {chip}"), str::to_owned)
}

/// Nodes that count more of something than they may and than others do.
fn counted(view: &View<'_>, limit: &Limit, out: &mut Vec<Evidence>) {
    let nodes = view.history.fresh_nodes(view.now);
    let rises = nodes.filter_map(|(node, history)| {
        let of_kind = history.series(limit.metric);
        let of_kind = of_kind.filter(|(labels, _)| labels.values().last() == Some(limit.kind));
        let rises = of_kind.filter_map(|(_, window)| window.increase(WINDOW_SECONDS));
        Some((node, rises.reduce(Increase::add)?))
    });
    let rises: Vec<_> = rises.collect();
    let per_hour = |amount: f64| 3600.0 * amount / WINDOW_SECONDS;
    let usual = median(rises.iter().map(|(_, rise)| per_hour(rise.amount))).unwrap_or(0.0);
    let some = rises.iter().filter(|(_, rise)| rise.amount >= 1.0).count();
    let mean = mean_events(some.saturating_sub(1), rises.len());
    let nodes = rises.len();
    for (node, rise) in rises {
        let rate = per_hour(rise.amount);
        let is_fatal = limit.per_hour == 0.0;
        let stands_out =
            rate > ABOVE_PEERS * usual && (is_fatal || !is_by_chance(rise.amount, mean, nodes));
        if rise.amount >= limit.at_least && rate >= limit.per_hour && stands_out {
            let statement = format!(
                "{node} counted {:.0} {} in {:.0} s.",
                rise.amount, limit.what, rise.seconds
            );
            out.push(evidence(node, limit.metric, statement));
        }
    }
}

/// Nodes of which even the fastest CPU is slow while half of its GPUs are busy: idle CPUs run slowly to save
/// power, and so do those of a node with one notebook on it.
fn slow_processors(view: &View<'_>, out: &mut Vec<Evidence>) {
    let nodes = view.history.fresh_nodes(view.now);
    let fastest = nodes.filter_map(|(node, history)| {
        let window = history.window(&CPU_FREQUENCY, &["max"])?;
        let has_gpus = history.series(&GPU_UTILIZATION).next().is_some();
        let (since, until) = if has_gpus {
            gpus::busy_span(history, view.now)?
        } else {
            // Its GPUs may be reported later than its CPUs.
            let begun = window.told().last().map(|(at, _)| at)?;
            (begun, view.now)
        };
        if until.seconds_since(since) < HELD_SECONDS {
            return None;
        }
        let lately = window.told_within(until, HELD_SECONDS);
        let while_busy = lately.filter(|(at, _)| (since..=until).contains(at));
        let highest = while_busy.map(|(_, hertz)| hertz).reduce(f64::max)?;
        Some((node, highest))
    });
    let fastest: Vec<_> = fastest.collect();
    let Some(usual) = median(fastest.iter().map(|(_, hertz)| *hertz)) else {
        return;
    };
    if fastest.len() < MIN_PEERS {
        return;
    }
    for (node, hertz) in fastest {
        if hertz < MIN_FREQUENCY * usual {
            let statement = format!(
                "The fastest CPU of {node} runs at {:.2} GHz, that of the median node at {:.2} GHz.",
                hertz * 1e-9,
                usual * 1e-9
            );
            out.push(evidence(node, &CPU_FREQUENCY, statement));
        }
    }
}

fn evidence(node: &NodeName, signal: &'static Metric, statement: String) -> Evidence {
    let part = Part::Host(node.clone());
    Evidence {
        detector: "node-hardware",
        signal: signal.name,
        class: &HOST_HARDWARE,
        // Its cost is covered by the detectors of GPUs and ports.
        effect: 0.0,
        statement,
        victims: Vec::new(),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

//! Nodes whose processors stall: by themselves, because of hypervisor steal, or because of other processes.

mod pressure;

use std::collections::BTreeSet;
use std::ops::Add as _;

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{CPU_STEAL, HOST_STALLS, HOST_TIMER_DELAY, Metric, NODE_CPUS};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, HOST_STALLS as STALLS, HOST_STEAL as STEAL};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus;
use crate::detect::peers;
use crate::detect::peers::{MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, sign_above};

/// The window over which stalls and steal are counted.
const WINDOW_SECONDS: f64 = 60.0;
/// What rises on all nodes is how such machines are: a node must stand out by this factor.
const ABOVE_PEERS: f64 = 5.0;

/// A rate of a node that should be almost nothing; stolen time first, as it explains stalls.
struct Limit {
    metric: &'static Metric,
    /// Value of the second label; none sums all series of the metric.
    threshold: Option<&'static str>,
    /// The rate that must be passed, in the metric's unit per second.
    per_second: f64,
    class: &'static Class,
    what: &'static str,
    source: &'static str,
}

const LIMITS: &[Limit] = &[
    Limit {
        metric: &CPU_STEAL,
        threshold: None,
        per_second: 0.02,
        class: &STEAL,
        what: "seconds of steal per second and CPU",
        source: "twice the 1 % that a quiet virtual CPU loses (measured)",
    },
    Limit {
        metric: &HOST_STALLS,
        threshold: Some("1000us"),
        per_second: 0.1,
        class: &STALLS,
        what: "stalls above 1 ms per second seen by the probe",
        source: "a quiet virtual CPU shows 0.7 above 0.5 ms per second to a continuous probe; this probe observes 1 % of the time",
    },
    Limit {
        metric: &HOST_STALLS,
        threshold: Some("200us"),
        per_second: 0.5,
        class: &STALLS,
        what: "stalls above 200 us per second seen by the probe",
        source: "as for 1 ms, with 3.7 above 131 us",
    },
];

/// Fewest stalls that are evidence: as many as the 1 ms limit allows in the window. A single one in the first seconds
/// of a collector is no rate.
const MIN_STALLS: f64 = 6.0;

/// Steal that explains the stalls of a node, but is too little to be reported by itself: 10 % of
/// its limit (a choice).
const EXPLAINS_STALLS: f64 = 1e-3;

struct HostHealth;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(HostHealth)
}

impl Detector for HostHealth {
    fn name(&self) -> &'static str {
        "host-health"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut stolen: BTreeSet<&NodeName> = BTreeSet::new();
        for limit in LIMITS {
            let rates: Vec<_> = view
                .history
                .fresh_nodes(view.now)
                .filter_map(|(node, history)| {
                    let counted = counted(history, limit)?;
                    Some((node, rate(history, limit, counted), counted.amount))
                })
                .collect();
            if rates.len() < MIN_PEERS {
                continue;
            }
            let usual = median(rates.iter().map(|(_, rate, _)| *rate)).unwrap_or(0.0);
            let few = |amount| limit.class == &STALLS && amount < MIN_STALLS;
            let far = rates
                .into_iter()
                .filter(|(_, rate, amount)| *rate > ABOVE_PEERS * usual && !few(*amount));
            for (node, rate, _) in far {
                if limit.class == &STEAL && rate > EXPLAINS_STALLS {
                    stolen.insert(node);
                }
                if rate > limit.per_second {
                    let class = if stolen.contains(node) {
                        &STEAL
                    } else {
                        limit.class
                    };
                    if class == &STEAL && has_no_work(view, node) {
                        continue;
                    }
                    out.push(evidence(view, node, (limit, class), (rate, usual)));
                }
            }
        }
        pressure::find(view, out);
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        let of_class = |limit: &&Limit| limit.class == class;
        let limits: Vec<_> = LIMITS
            .iter()
            .filter(of_class)
            .map(|limit| {
                format!(
                    "more than {} {} ({})",
                    limit.per_second, limit.what, limit.source
                )
            })
            .collect();
        Explanation {
            check: if class == &STALLS {
                "The CPUs of a node stall more often than those of other nodes, or its processes wait longer for a CPU or for memory than those on the other nodes of its job."
            } else {
                "The CPUs of a node stall more often than those of other nodes."
            },
            threshold: format!(
                "{}{}, over {WINDOW_SECONDS:.0} s, and more than {ABOVE_PEERS} times the median node; the hypervisor causes the stalls if steal exceeds {EXPLAINS_STALLS} seconds per second and CPU{}",
                limits.join(", or "),
                if class == &STALLS {
                    format!(" (at least {MIN_STALLS} of them){}", pressure::limits())
                } else {
                    String::new()
                },
                if class == &STEAL {
                    format!(
                        "; a node of which no GPU worked in the last {:.0} s is not reported",
                        gpus::IDLE_SECONDS
                    )
                } else {
                    String::new()
                }
            ),
            clears: "The rate stays below its limit for the whole window.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let of = |class: &'static Class| {
            let limits = LIMITS.iter().filter(|limit| limit.class == class);
            let limits = limits
                .map(|limit| Threshold::new(limit.what, limit.per_second, "1/s", limit.source));
            let peers = [
                Threshold::new(
                    "above the median node",
                    ABOVE_PEERS,
                    "times",
                    "an increase on all nodes is typical of such machines (a choice)",
                ),
                Threshold::new(
                    "window",
                    WINDOW_SECONDS,
                    "s",
                    "several scrapes, so that a single burst has little weight (a choice)",
                ),
            ];
            let fewest = peers::thresholds().into_iter().take(1);
            let explains = Threshold::new(
                "seconds of steal per second that explain stalls",
                EXPLAINS_STALLS,
                "1/s",
                "10 % of the limit: the hypervisor reports the steal itself (a choice)",
            );
            let mut all: Vec<_> = limits
                .chain(peers)
                .chain(fewest)
                .chain([explains])
                .collect();
            if class == &STEAL {
                all.push(Threshold::new(
                    "time without work of any of its GPUs after which a node is not reported",
                    gpus::IDLE_SECONDS,
                    "s",
                    "nothing waits for its CPUs; longer than the pause of a checkpoint (a choice)",
                ));
            }
            if class == &STALLS {
                all.push(Threshold::new(
                    "minimum number of stalls",
                    MIN_STALLS,
                    "stalls",
                    "as many as the limit for 1 ms gives in the window; fewer are chance",
                ));
                all.extend(pressure::thresholds());
            }
            Rule::new(class, all)
        };
        vec![of(&STALLS), of(&STEAL)]
    }
}

/// Whether a node's GPUs have been idle for so long that nothing waits for its CPUs.
fn has_no_work(view: &View<'_>, node: &NodeName) -> bool {
    let history = view.history.node(node);
    history.is_some_and(|history| gpus::are_all_idle(history, view.now))
}

/// A node's count over all of its NUMA nodes; none while it is not known.
fn counted(history: &NodeHistory, limit: &Limit) -> Option<Increase> {
    let series = history.by_numa_node(limit.metric).filter(|(labels, _)| {
        limit
            .threshold
            .is_none_or(|threshold| labels.values().nth(1) == Some(threshold))
    });
    let rises = series.filter_map(|(_, window)| window.increase(WINDOW_SECONDS));
    // The default scrape has only the histogram.
    let of_timers = || timers_later_than(history, limit.threshold?);
    rises.reduce(Increase::add).or_else(of_timers)
}

/// A node's rate; of stolen time per processor, for a thread is delayed by the share of time that its processor loses,
/// however many processors there are.
fn rate(history: &NodeHistory, limit: &Limit, counted: Increase) -> f64 {
    let of_processors = limit.class == &STEAL;
    let processors = || history.value(&NODE_CPUS, &[]).unwrap_or(1.0).max(1.0);
    counted.rate() / if of_processors { processors() } else { 1.0 }
}

/// Timers of a node that fire more than 200 us late, per second, over all of its NUMA nodes; none where it watches no timers.
pub(crate) fn timer_stalls(history: &NodeHistory) -> Option<f64> {
    let limit = LIMITS
        .iter()
        .find(|limit| limit.threshold == Some("200us"))?;
    counted(history, limit).map(Increase::rate)
}

/// Timers that fire later than a threshold such as `200us`, by the histogram of how late they fire.
fn timers_later_than(history: &NodeHistory, threshold: &str) -> Option<Increase> {
    let micros: f64 = threshold.strip_suffix("us")?.parse().ok()?;
    let rises = history
        .series(&HOST_TIMER_DELAY)
        .filter_map(|(labels, window)| {
            let rise = window.increase(WINDOW_SECONDS)?;
            // To parse a bound is slow, and a series that did not rise adds only its time.
            let sign = match rise.amount {
                0.0 => 0.0,
                _ => sign_above(labels, micros / 1e6)?,
            };
            Some(Increase {
                amount: sign * rise.amount,
                ..rise
            })
        });
    rises.reduce(Increase::add)
}

fn evidence(
    view: &View<'_>,
    node: &NodeName,
    (limit, class): (&Limit, &'static Class),
    (rate, usual): (f64, f64),
) -> Evidence {
    let part = Part::Host(node.clone());
    let by_whom = if class == limit.class {
        ""
    } else {
        " Its hypervisor took CPU time from it in that period."
    };
    Evidence {
        detector: "host-health",
        signal: limit.metric.name,
        class,
        // A probe only samples it; the share of time lost is reported by steal alone.
        effect: if limit.class == &STEAL {
            rate.min(1.0)
        } else {
            0.0
        },
        statement: format!(
            "{node} has {rate:.2} {}; the median node has {usual:.2}.{by_whom}",
            limit.what
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

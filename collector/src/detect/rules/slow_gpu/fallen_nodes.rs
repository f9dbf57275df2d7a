//! Nodes whose GPUs all fell to a far lower clock and power while they worked, and no exporter reports why: the node has got a
//! lower power limit. Many exporters report neither limits nor reasons.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{GPU_CLOCK, GPU_POWER, GPU_POWER_LIMIT, GPU_TEMPERATURE, Metric};

use super::hot_nodes::{OfModel, of_node};
use super::power::LOWER_LIMIT;
use super::unexplained::Usual;
use super::{NAME, SLOW_COMPUTE, has_reason};
use crate::classes::POWER_LIMIT;
use crate::detect::detector::Evidence;
use crate::detect::gpus::Listed;
use crate::detect::peers::MAJORITY;
use crate::detect::registry::Threshold;

/// Samples of a busy GPU at the usual clock, just before it fell.
const BEFORE_SAMPLES: usize = 2;
/// Longest time from the last of them to the first at the low clock: beyond, other work may have begun.
const FALL_SECONDS: f64 = 45.0;
/// Nodes that fall within this time of each other have got a limit of the site.
const TOGETHER_SECONDS: f64 = 120.0;
/// How long a node that cannot be compared is remembered.
const REMEMBERED_SECONDS: f64 = 600.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 4] {
    [
        Threshold::new(
            "where no reason is reported: samples at the usual clock and higher power just before, at least",
            BEFORE_SAMPLES as f64,
            "samples",
            "a node that begins with a low clock may do other work (a choice)",
        ),
        Threshold::new(
            "time from the last of these to the first at the low clock, at most",
            FALL_SECONDS,
            "s",
            "beyond, other work may have begun (a choice)",
        ),
        Threshold::new(
            "time within which nodes that fall have got a limit of the site",
            TOGETHER_SECONDS,
            "s",
            "a site lowers the limits of a rack or more (a choice)",
        ),
        Threshold::new(
            "remembered while it cannot be compared",
            REMEMBERED_SECONDS,
            "s",
            "a job that pauses (a choice)",
        ),
    ]
}

/// A node that fell.
struct Fall {
    since: Timestamp,
    /// When it was last seen at the low clock.
    last: Timestamp,
    /// Whether others fell with it.
    is_shared: bool,
}

/// Nodes that fell.
#[derive(Default)]
pub(super) struct Fallen {
    nodes: BTreeMap<NodeName, Fall>,
}

impl Fallen {
    /// Those of the nodes with a low clock that fell to it alone.
    pub(super) fn find(&mut self, now: Timestamp, by_model: &[OfModel<'_>]) -> Vec<Evidence> {
        let mut low = Vec::new();
        for of_model in by_model.iter().filter(|of_model| agree(of_model)) {
            let usual = of_model.usual(None);
            for node in of_model.low() {
                if most(node, |gpu| usual.is_low(now, gpu) && !has_reason(gpu)) {
                    self.note(now, node, &usual);
                }
                low.push((node, of_model.usual(None)));
            }
        }
        self.forget(
            now,
            by_model,
            &low.iter().map(|(node, _)| node[0].node).collect(),
        );
        let alone = low.iter().filter(|(node, _)| {
            let fall = self.nodes.get(node[0].node);
            fall.is_some_and(|fall| fall.last == now && !fall.is_shared)
        });
        alone
            .filter_map(|(node, usual)| evidence(node, usual))
            .collect()
    }

    /// Notes that a node is at a low clock, if it fell to it.
    fn note(&mut self, now: Timestamp, node: &[Listed<'_>], usual: &Usual) {
        let name = node[0].node;
        if let Some(fall) = self.nodes.get_mut(name) {
            fall.last = now;
            return;
        }
        if !most(node, |gpu| fell(gpu, usual)) {
            return;
        }
        let mut is_shared = false;
        for other in self.nodes.values_mut() {
            if now.seconds_since(other.since) <= TOGETHER_SECONDS {
                other.is_shared = true;
                is_shared = true;
            }
        }
        let fall = Fall {
            since: now,
            last: now,
            is_shared,
        };
        self.nodes.insert(name.clone(), fall);
    }

    /// Forgets the nodes whose clock is no longer low, and those that were not compared for long.
    fn forget(&mut self, now: Timestamp, by_model: &[OfModel<'_>], low: &BTreeSet<&NodeName>) {
        if self.nodes.is_empty() {
            return;
        }
        let compared = by_model.iter().flat_map(|of_model| &of_model.nodes);
        let compared: BTreeSet<_> = compared.map(|(_, node)| node[0].node).collect();
        self.nodes.retain(|name, fall| {
            let is_up = compared.contains(name) && !low.contains(name);
            !is_up && now.seconds_since(fall.last) <= REMEMBERED_SECONDS
        });
    }
}

/// Whether the nodes of a model run at one clock.
fn agree(of_model: &OfModel<'_>) -> bool {
    let usual = of_model.clock_hertz;
    let is_alike = |(clock, _): &&(f64, _)| (*clock / usual - 1.0).abs() <= SLOW_COMPUTE;
    let alike = of_model.nodes.iter().filter(is_alike).count();
    alike as f64 >= MAJORITY * of_model.nodes.len() as f64
}

fn most(node: &[Listed<'_>], is_so: impl Fn(&Listed<'_>) -> bool) -> bool {
    let count = node.iter().filter(|gpu| is_so(gpu)).count();
    count as f64 >= MAJORITY * node.len() as f64
}

/// Whether a GPU worked at the usual clock just before, and drew more power then; and was no cooler and had a higher limit, where
/// these are known.
fn fell(gpu: &Listed<'_>, usual: &Usual) -> bool {
    let Some(clock) = gpu.clock() else {
        return false;
    };
    let up = (1.0 - SLOW_COMPUTE) * usual.clock_hertz;
    let is_busy_at = |at: Timestamp| {
        let mut busy = gpu.busy_within(f64::INFINITY);
        busy.find(|(then, _)| *then <= at)
            .is_some_and(|(_, busy)| busy)
    };
    let mut down = None;
    let mut before = Vec::new();
    for (at, hertz) in clock.told() {
        if !before.is_empty() || hertz >= up {
            if hertz < up || !is_busy_at(at) {
                return false;
            }
            before.push(at);
            if before.len() == BEFORE_SAMPLES {
                break;
            }
        } else if is_busy_at(at) {
            down = Some(at);
        }
    }
    let (Some(down), [at, ..]) = (down, &before[..]) else {
        return false;
    };
    if before.len() < BEFORE_SAMPLES || down.seconds_since(*at) > FALL_SECONDS {
        return false;
    }
    let now_and_then = |metric: &'static Metric| {
        let window = gpu.window(metric)?;
        let (_, then) = window.told().find(|(told, _)| told <= at)?;
        Some((window.value()?, then))
    };
    now_and_then(&GPU_POWER).is_some_and(|(now, then)| now <= (1.0 - LOWER_LIMIT) * then)
        && now_and_then(&GPU_TEMPERATURE).is_none_or(|(now, then)| now <= then)
        && now_and_then(&GPU_POWER_LIMIT).is_none_or(|(now, then)| now < then)
}

fn evidence(node: &[Listed<'_>], usual: &Usual) -> Option<Evidence> {
    let name = node[0].node;
    let clock = of_node(node, &GPU_CLOCK)?;
    let watts = of_node(node, &GPU_POWER)?;
    let drop = 1.0 - clock / usual.clock_hertz;
    Some(Evidence {
        detector: NAME,
        signal: GPU_CLOCK.name,
        class: &POWER_LIMIT,
        effect: drop,
        statement: format!(
            "The {} busy GPUs of {name} fell at work to {:.0} MHz, {:.0} % below the median {:.0} MHz of {} nodes with the same model, and to {watts:.0} W each; no reason is reported.",
            node.len(),
            clock * 1e-6,
            100.0 * drop,
            usual.clock_hertz * 1e-6,
            usual.gpus,
        ),
        victims: node.iter().map(Listed::part).collect(),
        related: Vec::new(),
        alike: Vec::new(),
        part: Part::Host(name.clone()),
    })
}

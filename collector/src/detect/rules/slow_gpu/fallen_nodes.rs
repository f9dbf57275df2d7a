//! Nodes whose GPUs all fell to a far lower clock and power while they worked, and no exporter reports why: the node has got a
//! lower power limit. Many exporters report neither limits nor reasons.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{GPU_CLOCK, GPU_POWER, GPU_TEMPERATURE, Metric};

use super::hot_nodes::{LowNodes, of_node};
use super::power::LOWER_LIMIT;
use super::unexplained::{Clock, Usual};
use super::{NAME, SLOW_COMPUTE};
use crate::classes::POWER_LIMIT;
use crate::detect::detector::Evidence;
use crate::detect::gpus::Listed;
use crate::detect::peers::MAJORITY;
use crate::detect::registry::Threshold;

/// Samples of a busy GPU at the usual clock, just before it fell.
const BEFORE_SAMPLES: usize = 2;
/// Share of the nodes of a model above which several that fell are a limit of the site.
const SHARED: f64 = 0.02;
/// How long a node that has no work is remembered.
const REMEMBERED_SECONDS: f64 = 600.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 3] {
    [
        Threshold::new(
            "where no reason is reported: samples at the usual clock and higher power just before, at least",
            BEFORE_SAMPLES as f64,
            "samples",
            "a node that begins with a low clock may do other work (a choice)",
        ),
        Threshold::new(
            "share of the nodes of its model, more than one, above which several that fell so are a limit of the site",
            SHARED,
            "ratio",
            "a site lowers the limits of a rack or more (a choice)",
        ),
        Threshold::new(
            "remembered while its GPUs have no work",
            REMEMBERED_SECONDS,
            "s",
            "a job that pauses (a choice)",
        ),
    ]
}

/// Nodes that fell, and when they were last seen so.
#[derive(Default)]
pub(super) struct Fallen {
    nodes: BTreeMap<NodeName, Timestamp>,
}

impl Fallen {
    /// Those of the nodes with a low clock that fell to it. `is_busy` is whether a node has busy GPUs.
    pub(super) fn find(
        &mut self,
        now: Timestamp,
        by_model: &[LowNodes<'_>],
        is_busy: impl Fn(&NodeName) -> bool,
    ) -> Vec<Evidence> {
        let mut found = Vec::new();
        let mut low = Vec::new();
        for of_model in by_model.iter().filter(|of_model| agree(of_model)) {
            let usual = Usual {
                clock: Clock::Sm,
                clock_hertz: of_model.clock_hertz,
                power_watts: None,
                gpus: of_model.clocks.len(),
            };
            let mut fallen = Vec::new();
            for node in &of_model.low {
                let name = node[0].node;
                low.push(name);
                let is_known = self.nodes.contains_key(name);
                if most(node, |gpu| usual.is_low(now, gpu))
                    && (is_known || most(node, |gpu| fell(gpu, &usual)))
                {
                    self.nodes.insert(name.clone(), now);
                    fallen.extend(evidence(node, &usual));
                }
            }
            let most = (SHARED * of_model.clocks.len() as f64).max(1.0);
            if fallen.len() as f64 <= most {
                found.append(&mut fallen);
            }
        }
        self.nodes.retain(|name, seen| {
            let is_up = is_busy(name) && !low.contains(&name);
            !is_up && now.seconds_since(*seen) <= REMEMBERED_SECONDS
        });
        found
    }
}

/// Whether the nodes of a model run at one clock.
fn agree(of_model: &LowNodes<'_>) -> bool {
    let usual = of_model.clock_hertz;
    let is_alike = |clock: &&f64| (*clock / usual - 1.0).abs() <= SLOW_COMPUTE;
    let alike = of_model.clocks.iter().filter(is_alike).count();
    alike as f64 >= MAJORITY * of_model.clocks.len() as f64
}

fn most(node: &[Listed<'_>], is_so: impl Fn(&Listed<'_>) -> bool) -> bool {
    let count = node.iter().filter(|gpu| is_so(gpu)).count();
    count as f64 >= MAJORITY * node.len() as f64
}

/// Whether a GPU worked at the usual clock just before, drew more then, and was no cooler.
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
    let before: Vec<_> = clock
        .told()
        .skip_while(|(_, hertz)| *hertz < up)
        .take(BEFORE_SAMPLES)
        .filter(|(at, hertz)| *hertz >= up && is_busy_at(*at))
        .collect();
    let Some((at, _)) = before.first().filter(|_| before.len() == BEFORE_SAMPLES) else {
        return false;
    };
    let now_and_then = |metric: &'static Metric| {
        let window = gpu.window(metric)?;
        let (_, then) = window.told().find(|(told, _)| told <= at)?;
        Some((window.value()?, then))
    };
    now_and_then(&GPU_POWER).is_some_and(|(now, then)| now <= (1.0 - LOWER_LIMIT) * then)
        && now_and_then(&GPU_TEMPERATURE).is_none_or(|(now, then)| now <= then)
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

//! Nodes that cool their GPUs too little where no exporter reports why a clock is low: all of a node's GPUs are far slower and
//! hotter than those of equal nodes, and draw no more power.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::metric::{GPU_CLOCK, GPU_POWER, GPU_TEMPERATURE, Metric};

use super::unexplained::{Clock, MIN_DROP, Usual};
use crate::classes::HOST_COOLING;
use crate::detect::detector::Evidence;
use crate::detect::gpus::Listed;
use crate::detect::peers::{MAJORITY, MIN_PEERS, median};
use crate::detect::registry::Threshold;

/// How far the median GPU of such a node is above that of the median node. GPUs of one rack differ by less under the same load.
const HOTTER_CELSIUS: f64 = 10.0;

/// What nodes that cool their GPUs too little are found by, with a reported reason and without.
pub(super) const CHECK: &str = "The SM clocks of most busy GPUs of a node are below those of equal busy GPUs, for one reason; or, without one, far below those of equal nodes at a higher temperature and no more power.";

/// The number.
pub(super) fn threshold() -> Threshold {
    Threshold::new(
        "where no reason is reported: degrees by which a node's GPUs are hotter than those of the median node with the same model, at a clock far below theirs and no more power",
        HOTTER_CELSIUS,
        "celsius",
        "lighter work, lower limits and locked clocks make GPUs cooler; warm places differ by less (a choice)",
    )
}

/// Nodes of one model with a clock far below that of the median node, and what is usual.
pub(super) struct LowNodes<'a> {
    pub(super) low: Vec<&'a [Listed<'a>]>,
    /// Clocks of the nodes of this model, hertz, and their median.
    pub(super) clocks: Vec<f64>,
    pub(super) clock_hertz: f64,
    power_watts: Option<f64>,
    celsius: Option<f64>,
}

/// Those among nodes of busy GPUs.
pub(super) fn low_nodes<'a>(nodes: impl Iterator<Item = &'a [Listed<'a>]>) -> Vec<LowNodes<'a>> {
    let mut by_model: BTreeMap<&str, Vec<(f64, &[Listed<'_>])>> = BTreeMap::new();
    for node in nodes.filter(|node| node.len() >= MIN_PEERS) {
        let model = node[0].product;
        let is_one_model = node.iter().all(|gpu| gpu.product == model);
        if let Some(clock) = of_node(node, &GPU_CLOCK).filter(|_| is_one_model) {
            by_model.entry(model).or_default().push((clock, node));
        }
    }
    let mut found = Vec::new();
    for nodes in by_model
        .into_values()
        .filter(|nodes| nodes.len() >= MIN_PEERS)
    {
        let clocks: Vec<f64> = nodes.iter().map(|(clock, _)| *clock).collect();
        let Some(clock_hertz) = median(clocks.iter().copied()) else {
            continue;
        };
        let is_low = |(clock, _): &&(f64, _)| *clock <= (1.0 - MIN_DROP) * clock_hertz;
        let low: Vec<_> = nodes.iter().filter(is_low).map(|(_, node)| *node).collect();
        if low.is_empty() {
            continue;
        }
        let usual = |metric| median(nodes.iter().filter_map(|(_, node)| of_node(node, metric)));
        found.push(LowNodes {
            low,
            clocks,
            clock_hertz,
            power_watts: usual(&GPU_POWER),
            celsius: usual(&GPU_TEMPERATURE),
        });
    }
    found
}

/// Those of them that are hot.
pub(super) fn find(now: Timestamp, of_model: &LowNodes<'_>) -> Vec<Evidence> {
    let (Some(power), Some(celsius)) = (of_model.power_watts, of_model.celsius) else {
        return Vec::new();
    };
    let usual = Usual {
        clock: Clock::Sm,
        clock_hertz: of_model.clock_hertz,
        power_watts: Some(power),
        gpus: of_model.clocks.len(),
    };
    let low = of_model.low.iter();
    low.filter_map(|node| hot(now, node, &usual, celsius))
        .collect()
}

/// The median of what a node's GPUs report.
pub(super) fn of_node(node: &[Listed<'_>], metric: &'static Metric) -> Option<f64> {
    median(node.iter().filter_map(|gpu| gpu.window(metric)?.value()))
}

/// A node whose GPUs have been far slower for long enough, and are hotter.
fn hot(now: Timestamp, node: &[Listed<'_>], usual: &Usual, celsius: f64) -> Option<Evidence> {
    let own = of_node(node, &GPU_TEMPERATURE)?;
    let low = node.iter().filter(|gpu| usual.is_low(now, gpu)).count();
    if own < celsius + HOTTER_CELSIUS || (low as f64) < MAJORITY * node.len() as f64 {
        return None;
    }
    let clock = of_node(node, &GPU_CLOCK)?;
    let drop = 1.0 - clock / usual.clock_hertz;
    let name = node[0].node;
    let part = Part::Host(name.clone());
    Some(Evidence {
        detector: super::NAME,
        signal: GPU_CLOCK.name,
        class: &HOST_COOLING,
        effect: drop,
        statement: format!(
            "{low} of {} busy GPUs of {name} run at {:.0} MHz, {:.0} % below the median {:.0} MHz of {} nodes with the same model, are at {own:.0} degrees Celsius, {:.0} more than theirs, and draw no more power; no reason is reported.",
            node.len(),
            clock * 1e-6,
            100.0 * drop,
            usual.clock_hertz * 1e-6,
            usual.gpus,
            own - celsius,
        ),
        victims: node.iter().map(Listed::part).collect(),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    })
}

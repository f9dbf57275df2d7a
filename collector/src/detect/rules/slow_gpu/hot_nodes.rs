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

/// Nodes of busy GPUs of one model.
pub(super) struct OfModel<'a> {
    /// With the clock of each, hertz.
    pub(super) nodes: Vec<(f64, &'a [Listed<'a>])>,
    /// The median of these.
    pub(super) clock_hertz: f64,
}

impl<'a> OfModel<'a> {
    /// Those whose clock is far below that of the median node.
    pub(super) fn low(&self) -> impl Iterator<Item = &'a [Listed<'a>]> {
        let limit = (1.0 - MIN_DROP) * self.clock_hertz;
        let low = self.nodes.iter().filter(move |(clock, _)| *clock <= limit);
        low.map(|(_, node)| *node)
    }

    /// The usual clock, and power where that counts.
    pub(super) fn usual(&self, power_watts: Option<f64>) -> Usual {
        Usual {
            clock: Clock::Sm,
            clock_hertz: self.clock_hertz,
            power_watts,
            gpus: self.nodes.len(),
        }
    }
}

/// Those of each model of which there are enough.
pub(super) fn by_model<'a>(nodes: impl Iterator<Item = &'a [Listed<'a>]>) -> Vec<OfModel<'a>> {
    let mut by_model: BTreeMap<&str, Vec<(f64, &[Listed<'_>])>> = BTreeMap::new();
    for node in nodes.filter(|node| node.len() >= MIN_PEERS) {
        let model = node[0].product;
        let is_one_model = node.iter().all(|gpu| gpu.product == model);
        if let Some(clock) = of_node(node, &GPU_CLOCK).filter(|_| is_one_model) {
            by_model.entry(model).or_default().push((clock, node));
        }
    }
    let nodes = by_model
        .into_values()
        .filter(|nodes| nodes.len() >= MIN_PEERS);
    let of_model = |nodes: Vec<(f64, _)>| {
        let clock_hertz = median(nodes.iter().map(|(clock, _)| *clock))?;
        Some(OfModel { nodes, clock_hertz })
    };
    nodes.filter_map(of_model).collect()
}

/// Those of them that are hot.
pub(super) fn find(now: Timestamp, of_model: &OfModel<'_>) -> Vec<Evidence> {
    let mut low = of_model.low().peekable();
    if low.peek().is_none() {
        return Vec::new();
    }
    let nodes = of_model.nodes.iter();
    let usual = |metric| median(nodes.clone().filter_map(|(_, node)| of_node(node, metric)));
    let (Some(power), Some(celsius)) = (usual(&GPU_POWER), usual(&GPU_TEMPERATURE)) else {
        return Vec::new();
    };
    let usual = of_model.usual(Some(power));
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

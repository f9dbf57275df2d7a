//! Minder-like: the machine that is farthest from all others in one metric, for long enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Frame, Layout};
use super::Baseline;
use super::zscore::moments;

/// How long one machine must be the odd one (Minder, NSDI 2025, from memory).
const CONTINUITY_SECONDS: f64 = 240.0;
/// Standard deviations that the odd machine's distance must be above the mean distance. Not published:
/// the usual outlier rule.
const ODD: f64 = 3.0;
/// The metrics in Minder's order of priority, those that are simulated: flow control, duty and power,
/// then traffic. It also reads CPU, tensor duty and NVLink.
const METRICS: &[Column] = &[
    Column::SendWait,
    Column::GpuClock,
    Column::GpuPower,
    Column::GpuTemperature,
    Column::GpuUtilization,
    Column::SentBytes,
    Column::ReceivedBytes,
];

/// Minder-like. Denoising by an auto-encoder is omitted: values of a tick are used directly.
pub(super) struct MinderLike {
    layout: Arc<Layout>,
    /// By metric: the odd machine and since when.
    odd: BTreeMap<usize, (usize, f64)>,
}

impl MinderLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            odd: BTreeMap::new(),
        }
    }

    /// Mean of a metric over each machine with a job.
    fn machines(&self, frame: &Frame, column: Column) -> Vec<(usize, f64)> {
        let values = frame.column(column);
        let nodes = self.layout.by_node(column.signal().entity);
        let nodes = nodes.map(|range| &values[range]).enumerate();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        nodes
            .filter(|(node, _)| self.layout.job_of_node[*node].is_some())
            .map(|(node, values)| (node, mean(values)))
            .filter(|(_, value)| !value.is_nan())
            .collect()
    }
}

/// Sum of the distances of each value to all others, in the time of a sort.
fn distances(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let total: f64 = values.iter().sum();
    let (mut below, mut distances) = (0.0, vec![0.0; values.len()]);
    for (rank, index) in order.into_iter().enumerate() {
        let value = values[index];
        let above = total - below - value;
        let higher = (values.len() - rank - 1) as f64;
        distances[index] = value * rank as f64 - below + above - value * higher;
        below += value;
    }
    distances
}

impl Baseline for MinderLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let mut named = Vec::new();
        for (priority, column) in METRICS.iter().enumerate() {
            let machines = self.machines(frame, *column);
            let values: Vec<f64> = machines.iter().map(|(_, value)| *value).collect();
            let far = distances(&values);
            let odd = moments(&far).and_then(|(mean, deviation)| {
                let farthest = (0..far.len()).max_by(|a, b| far[*a].total_cmp(&far[*b]))?;
                let z = (far[farthest] - mean) / deviation;
                (z > ODD).then_some((machines[farthest].0, z))
            });
            let Some((node, z)) = odd else {
                self.odd.remove(&priority);
                continue;
            };
            let since = self.odd.entry(priority).or_insert((node, frame.seconds));
            if since.0 != node {
                *since = (node, frame.seconds);
            }
            if frame.seconds - since.1 >= CONTINUITY_SECONDS {
                named.push(Naming::page(self.layout.hosts[node].clone(), z));
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_all_pairs() {
        let values = [3.0, 1.0, 10.0, 1.0];
        let slow: Vec<f64> = values
            .iter()
            .map(|a| values.iter().map(|b| f64::abs(a - b)).sum())
            .collect();
        assert_eq!(distances(&values), slow);
    }
}

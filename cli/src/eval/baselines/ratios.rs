//! Ratios to the best or to the median: NVRx's straggler scores and MegaScale's machine comparison.

use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Entity, Frame, Layout};
use super::Baseline;

/// NVRx flags a score below this (its code).
const NVRX_SCORE: f64 = 0.75;
/// MegaScale calls machines that are about so much slower than their peers stragglers (NSDI 2024, from memory).
const MEGASCALE_DROP: f64 = 0.10;

/// NVRx-like: the time of a rank's kernels against the best rank's and against its own best. Kernels of
/// the simulated job are bound by compute, so that their speed is the SM clock; NCCL's kernels are left
/// out, as NVRx does.
pub(super) struct NvrxLike {
    layout: Arc<Layout>,
    own_best: Vec<f64>,
}

impl NvrxLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        let own_best = vec![f64::NAN; layout.parts(Entity::Gpu).len()];
        Self { layout, own_best }
    }
}

impl Baseline for NvrxLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let clocks = frame.column(Column::GpuClock);
        let jobs = self.layout.job_of_node.iter().flatten().max();
        let mut best_of_job = vec![f64::NAN; jobs.map_or(0, |last| last + 1)];
        let job_of = |gpu| self.layout.job_of_node[self.layout.node_of(Entity::Gpu, gpu)];
        for (gpu, clock) in clocks.iter().enumerate() {
            if let Some(job) = job_of(gpu) {
                best_of_job[job] = best_of_job[job].max(*clock);
            }
        }
        let mut named = Vec::new();
        for (gpu, part) in self.layout.parts(Entity::Gpu).iter().enumerate() {
            let Some(job) = job_of(gpu) else { continue };
            let own = &mut self.own_best[gpu];
            *own = own.max(clocks[gpu]);
            let score = (clocks[gpu] / best_of_job[job]).min(clocks[gpu] / *own);
            if score < NVRX_SCORE {
                named.push(Naming::page(part.clone(), 1.0 - score));
            }
        }
        named
    }
}

/// MegaScale-like: a machine whose sum of RDMA rates, or whose slowest GPU's clock, is 10 % below that of
/// the median machine with a job.
pub(super) struct MegaScaleLike {
    layout: Arc<Layout>,
}

impl MegaScaleLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self { layout }
    }

    /// Machines with a job, each with a figure from its values.
    fn machines(
        &self,
        frame: &Frame,
        column: Column,
        figure: fn(&[f64]) -> f64,
    ) -> Vec<(usize, f64)> {
        let values = frame.column(column);
        let nodes = self.layout.by_node(column.signal().entity);
        let nodes = nodes.map(|range| &values[range]).enumerate();
        nodes
            .filter(|(node, _)| self.layout.job_of_node[*node].is_some())
            .map(|(node, values)| (node, figure(values)))
            .filter(|(_, value)| !value.is_nan())
            .collect()
    }
}

impl Baseline for MegaScaleLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let sum: fn(&[f64]) -> f64 = |values| values.iter().sum();
        let least: fn(&[f64]) -> f64 = |values| values.iter().copied().fold(f64::NAN, f64::min);
        let mut named = Vec::new();
        for (column, figure) in [
            (Column::SentBytes, sum),
            (Column::ReceivedBytes, sum),
            (Column::GpuClock, least),
        ] {
            let machines = self.machines(frame, column, figure);
            let mut values: Vec<f64> = machines.iter().map(|(_, value)| *value).collect();
            let Some(median) = median(&mut values) else {
                continue;
            };
            for (node, value) in machines {
                let drop = 1.0 - value / median;
                if drop > MEGASCALE_DROP {
                    named.push(Naming::page(self.layout.hosts[node].clone(), drop));
                }
            }
        }
        named
    }
}

/// The middle value; none of nothing.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

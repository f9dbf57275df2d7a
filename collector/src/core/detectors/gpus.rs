//! GPUs as their exporters show them: what the detectors of GPUs begin with.

use std::collections::BTreeMap;

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::{GPU, GPU_CLOCK, GPU_UTILIZATION, Metric};

use crate::core::detector::View;
use crate::core::history::NodeHistory;
use crate::core::jobs::{Job, JobName};
use crate::core::rules::Threshold;

/// Utilisation from which a GPU counts as running a job: an idle GPU's clock is low by design.
const BUSY_UTILIZATION: f64 = 0.5;

/// From when on a GPU is judged.
pub(super) fn busy() -> Threshold {
    Threshold::new(
        "utilisation from which a GPU is judged",
        BUSY_UTILIZATION,
        "ratio",
        "an idle GPU's clock is low by design (a choice)",
    )
}

/// A GPU that its node's driver lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) node: &'a NodeName,
    pub(super) history: &'a NodeHistory,
    /// Its number as label value and as identity.
    pub(super) label: &'a str,
    pub(super) index: GpuIndex,
    /// Product name: only equal chips are peers.
    pub(super) product: &'a str,
    /// Who runs on it.
    pub(super) job: Option<&'a Job>,
}

impl Listed<'_> {
    /// The newest value of a series that has no label but the GPU.
    pub(super) fn value(&self, metric: &'static Metric) -> Option<f64> {
        self.history.value(metric, &[self.label])
    }

    /// Whether it runs a job.
    pub(super) fn is_busy(&self) -> bool {
        self.value(&GPU_UTILIZATION)
            .is_some_and(|utilization| utilization >= BUSY_UTILIZATION)
    }

    /// The clock of its SMs, Hz.
    pub(super) fn clock_hertz(&self) -> Option<f64> {
        self.history.value(&GPU_CLOCK, &[self.label, "sm"])
    }

    pub(super) fn part(&self) -> Part {
        Part::Gpu(self.node.clone(), self.index)
    }
}

/// Every GPU of every node that was heard lately, by node.
pub(super) fn listed<'a>(view: &View<'a>) -> Vec<Listed<'a>> {
    let name = GPU.labels.iter().position(|label| *label == "name");
    let mut gpus = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let job_of = view.jobs.on(node);
        for (labels, _) in history.series(&GPU) {
            let label = labels.values().next().unwrap_or_default();
            let product = name.and_then(|name| labels.values().nth(name));
            if let Ok(index) = label.parse() {
                gpus.push(Listed {
                    node,
                    history,
                    label,
                    index,
                    product: product.unwrap_or_default(),
                    job: job_of(index),
                });
            }
        }
    }
    gpus
}

/// Runs of GPUs of one node.
pub(super) fn by_node<'a, 'b>(gpus: &'b [Listed<'a>]) -> impl Iterator<Item = &'b [Listed<'a>]> {
    gpus.chunk_by(|a, b| a.node == b.node)
}

/// The GPUs of one node, by job: several may share a node.
pub(super) fn by_job<'a>(node: &[Listed<'a>]) -> Vec<Vec<Listed<'a>>> {
    let mut jobs: BTreeMap<Option<&JobName>, Vec<Listed<'a>>> = BTreeMap::new();
    for gpu in node {
        let name = gpu.job.map(|job| &job.name);
        jobs.entry(name).or_default().push(*gpu);
    }
    jobs.into_values().collect()
}

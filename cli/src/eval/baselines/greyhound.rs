//! Greyhound-like: a change of the step time, then a look for the GPU behind it.

use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Entity, Frame, Layout};
use super::Baseline;
use super::ratios::median;

/// A change must last so many steps, and be so large (Greyhound's code; detection method, section 1).
const STEPS: f64 = 10.0;
/// See [`STEPS`].
const CHANGE: f64 = 0.10;
/// A GPU whose GEMM takes this many times the median's is the culprit (Greyhound's code).
const GEMM_RATIO: f64 = 1.1;

/// What is known of a job.
#[derive(Debug, Clone, Copy, Default)]
struct JobState {
    /// The shortest step that it has had for long enough.
    usual: Option<f64>,
    /// Since when the step is longer than usual.
    slow_since: Option<f64>,
}

/// Greyhound-like. The length of a step comes from the job itself, where Greyhound finds it by the period
/// of NCCL calls; the test GEMM of a GPU takes as long as its clock is low. Its test of links by transfers
/// between pairs is not simulated, so that faults of links stay without a name.
pub(super) struct GreyhoundLike {
    layout: Arc<Layout>,
    jobs: Vec<JobState>,
}

impl GreyhoundLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        let jobs = layout.job_of_node.iter().flatten().max();
        let jobs = vec![JobState::default(); jobs.map_or(0, |last| last + 1)];
        Self { layout, jobs }
    }

    /// GPUs of a job whose test takes too long, each with its ratio to the median.
    fn slow_gpus(&self, frame: &Frame, job: usize) -> Vec<Naming> {
        let clocks = frame.column(Column::GpuClock);
        let of_job = |gpu: &usize| {
            let node = self.layout.node_of(Entity::Gpu, *gpu);
            self.layout.job_of_node[node] == Some(job) && !clocks[*gpu].is_nan()
        };
        let gpus: Vec<usize> = (0..clocks.len()).filter(of_job).collect();
        let mut times: Vec<f64> = gpus.iter().map(|gpu| 1.0 / clocks[*gpu]).collect();
        let Some(median) = median(&mut times) else {
            return Vec::new();
        };
        let parts = self.layout.parts(Entity::Gpu);
        gpus.into_iter()
            .map(|gpu| (gpu, 1.0 / clocks[gpu] / median))
            .filter(|(_, ratio)| *ratio > GEMM_RATIO)
            .map(|(gpu, ratio)| Naming::page(parts[gpu].clone(), ratio))
            .collect()
    }
}

impl Baseline for GreyhoundLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let mut named = Vec::new();
        for (job, step) in frame.step_seconds.iter().enumerate() {
            // A job that stands still has no step to compare.
            let Some(step) = *step else { continue };
            let state = &mut self.jobs[job];
            let usual = *state.usual.get_or_insert(step);
            if step <= usual * (1.0 + CHANGE) {
                state.usual = Some(usual.min(step));
                state.slow_since = None;
                continue;
            }
            let since = *state.slow_since.get_or_insert(frame.seconds);
            if frame.seconds - since >= STEPS * step {
                named.extend(self.slow_gpus(frame, job));
            }
        }
        named
    }
}

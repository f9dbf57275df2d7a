//! How far the jobs are, and what they have moved.

use super::{Cluster, Job};

impl Cluster {
    /// Steps that the first job has finished since the start of the simulation.
    pub fn steps(&self) -> u64 {
        self.jobs.first().map_or(0, |job| job.steps)
    }

    /// Length of a step of the first job at the current speed; none if it is stalled.
    pub fn step_seconds(&self) -> Option<f64> {
        self.jobs.first()?.pace.step_seconds()
    }

    /// Length of a step of each job, in the order in which they were given; none of one that is stalled or has
    /// no nodes.
    pub fn steps_seconds(&self) -> impl Iterator<Item = Option<f64>> {
        let running = |job: &Job| (!job.stopped).then(|| job.pace.step_seconds())?;
        self.jobs.iter().map(running)
    }

    /// Number of the step that each job is in, in the order in which they were given.
    pub fn current_steps(&self) -> impl Iterator<Item = u64> {
        self.jobs.iter().map(|job| job.clockwork.step())
    }

    /// How long the steps took that the last advance finished, seconds: by job, with its name and its first node.
    pub fn finished_steps(&self) -> impl Iterator<Item = (&str, usize, &[f64])> {
        self.jobs.iter().filter_map(|job| {
            let first = usize::from(*job.spec.nodes.first()?);
            let name = self.nodes.get(first)?.job.as_deref()?;
            Some((name, first, job.finished.as_slice()))
        })
    }

    /// Bytes that have crossed each lane since the move before the last, noise apart.
    pub fn lane_bytes(&self) -> &[f64] {
        &self.lane_bytes
    }

    /// Bytes a second that have crossed a lane since the move before the last, noise apart.
    pub(crate) fn lane_pace(&self, lane: usize) -> f64 {
        self.lane_bytes[lane] / self.lane_seconds
    }

    /// How often each job has been launched again: switches that hash flows use other paths each time.
    pub(crate) fn launches(&self) -> impl Iterator<Item = u64> {
        self.jobs.iter().map(|job| job.launches)
    }
}

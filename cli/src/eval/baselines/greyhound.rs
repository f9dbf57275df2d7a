//! Greyhound-like: a change of the step time, then a search for the GPU or the link that causes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Column, Entity, Frame, Layout};
use super::super::probes::Message;
use super::Baseline;
use super::delays::{Suspect, slow_cells, suspects};
use super::ratios::median;

/// A change must last so many steps, and be so large (Greyhound's code).
const STEPS: f64 = 10.0;
/// See [`STEPS`].
const CHANGE: f64 = 0.10;
/// A GPU whose GEMM takes this multiple of the median is the root cause (Greyhound's code).
const GEMM_RATIO: f64 = 1.1;
/// Communication is the reason if the slowest transfer takes this multiple of the median (Greyhound's code,
/// `find_slow_reason`).
const TRANSFER_RATIO: f64 = 1.1;

/// What is known of a job.
#[derive(Debug, Clone, Copy, Default)]
struct JobState {
    /// The shortest step that it has had for long enough.
    usual: Option<f64>,
    /// Since when the step is longer than usual.
    slow_since: Option<f64>,
}

/// Greyhound-like. The length of a step comes from the job itself, where Greyhound finds it by the period
/// of NCCL calls; the test GEMM's time is inverse to the GPU's clock.
///
/// The job is paused then, and each two neighbors of its rings send to each other in a few passes in which no other
/// does. The code validates every data-parallel communicator so, and of the others those 1.2 times as slow as their
/// peers; here all pairs of the job's collectives are timed. The code goes on to mitigation without a name for the link:
/// that a NIC is accused if all of its transfers are slow, and else both ends of a slow one, is ours.
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

/// What is between the pairs of a job whose transfer takes too long.
fn slow_links(messages: &[Message], job: usize) -> BTreeSet<Suspect> {
    let mut found = BTreeSet::new();
    for of_one in messages.chunk_by(|a, b| a.collective == b.collective) {
        if of_one[0].collective.0 == job {
            let pairs: Vec<_> = of_one.iter().map(|m| (m.from, m.to)).collect();
            found.extend(suspects(&pairs, &slow_cells(of_one, TRANSFER_RATIO)));
        }
    }
    found
}

impl Baseline for GreyhoundLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let mut named = Vec::new();
        for (job, step) in frame.step_seconds.iter().enumerate() {
            // A stalled job has no step to compare.
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
                let suspects = slow_links(&frame.probes().messages, job);
                let links = self.layout.parts(Entity::Link);
                // Below any GPU: compute is evaluated first.
                let nics = suspects.into_iter().flat_map(|suspect| match suspect {
                    Suspect::Nic(nic) => vec![(nic, 1.0)],
                    Suspect::Between(from, to) => vec![(from, 0.5), (to, 0.5)],
                });
                named.extend(nics.map(|(nic, score)| Naming::page(links[nic].clone(), score)));
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use railscope_simulator::cluster::Cluster;
    use railscope_simulator::examples;
    use railscope_simulator::show::readings::Exporters;
    use railscope_simulator::spec::ClusterSpec;

    use super::*;

    /// What it names of a cluster with this fault after three minutes of it, best first.
    fn named(cause: Option<&str>) -> (Option<String>, Vec<String>) {
        let spec = ClusterSpec::demo(6).expect("a spec");
        let mut cluster = Cluster::new(spec, 1).expect("a cluster");
        let fault = cause.map(|cause| examples::fault(&cluster, cause, 7, 60.0).expect(cause));
        let culprit = fault.map(|fault| cluster.inject(fault).expect("a fault").part.to_string());
        let layout = Arc::new(Layout::of(&cluster));
        let exporters = Exporters::of(&cluster);
        let read = |cluster: &Cluster| -> Vec<_> {
            let readings = exporters.read(cluster);
            readings.map(|(_, reading)| reading).collect()
        };
        let mut frame = Frame::new(&layout, &cluster, &read(&cluster));
        let mut rule = GreyhoundLike::new(layout);
        let mut named = Vec::new();
        for tick in 0..24_u32 {
            let seconds = 10.0 * f64::from(tick);
            cluster.advance(Duration::from_secs_f64(seconds));
            frame.begin(seconds);
            for (node, reading) in read(&cluster).iter().enumerate() {
                frame.take(node, reading, seconds);
            }
            frame.finish(&cluster);
            named = rule.observe(&frame);
        }
        named.sort_by(|a, b| b.score.total_cmp(&a.score));
        let parts = named.into_iter().map(|naming| naming.part.to_string());
        (culprit, parts.collect())
    }

    #[test]
    fn a_slow_link_is_named_by_its_transfers_and_a_slow_gpu_by_its_kernels() {
        for cause in ["port-degraded", "gpu-thermal"] {
            let (culprit, named) = named(Some(cause));
            assert_eq!(named.first(), culprit.as_ref(), "{cause}: {named:?}");
        }
        assert_eq!(named(None), (None, Vec::new()));
    }
}

//! XIDs that applications cause. They concern the hardware only if they follow one GPU through several jobs.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::GPU_LAST_XID;

use crate::classes::GPU_ERROR;
use crate::detect::detector::{Evidence, View};
use crate::detect::registry::Threshold;
use crate::jobs::job::JobName;

/// Different jobs that an XID must follow one GPU through: an error of rank 0 alone may hit one GPU twice.
const MIN_JOBS: usize = 3;
/// Time within which they must have run.
const REMEMBERED_SECONDS: f64 = 24.0 * 3600.0;

/// XIDs after which NVIDIA recommends to restart the application (Xid catalog).
pub(super) const RESTART_APPLICATION: &[u16] = &[
    8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86,
    88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133,
    134, 135, 139,
];

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "different jobs on several GPUs in which one GPU alone reports an application's XID",
            MIN_JOBS as f64,
            "jobs",
            "an error of one rank of a program can hit one GPU twice (a choice)",
        ),
        Threshold::new(
            "time within which they ran",
            REMEMBERED_SECONDS,
            "s",
            "a day (a choice)",
        ),
    ]
}

/// The jobs in which each GPU reported an application's XID, and when it last did.
#[derive(Default)]
pub(super) struct Applications(BTreeMap<(NodeName, GpuIndex), BTreeMap<JobName, Timestamp>>);

impl Applications {
    /// Notes an XID, if an application causes it and the GPU's job runs on other GPUs, too.
    pub(super) fn note(
        &mut self,
        view: &View<'_>,
        (node, gpu): (&NodeName, GpuIndex),
        xid: f64,
        at: Timestamp,
    ) {
        if !RESTART_APPLICATION
            .iter()
            .any(|known| f64::from(*known) == xid)
        {
            return;
        }
        let job = view.jobs.on(node)(gpu).filter(|job| job.gpus() > 1);
        if let Some(job) = job {
            let of_gpu = self.0.entry((node.clone(), gpu)).or_default();
            let last = of_gpu.entry(job.name.clone()).or_insert(at);
            *last = at.max(*last);
        }
    }

    /// GPUs that an XID followed through several jobs, for so many seconds after the last one.
    pub(super) fn followed(&mut self, view: &View<'_>, held_seconds: f64) -> Vec<Evidence> {
        let age = |at: &Timestamp| view.now.seconds_since(*at);
        self.0.retain(|_, jobs| {
            jobs.retain(|_, at| age(at) <= REMEMBERED_SECONDS);
            !jobs.is_empty()
        });
        let mut reporting: BTreeMap<&JobName, usize> = BTreeMap::new();
        for job in self.0.values().flat_map(BTreeMap::keys) {
            *reporting.entry(job).or_default() += 1;
        }
        let is_alone = |job: &&JobName| reporting.get(*job) == Some(&1);
        let followed = self.0.iter().filter_map(|((node, gpu), jobs)| {
            let is_new = jobs.values().any(|at| age(at) <= held_seconds);
            let alone: Vec<_> = jobs.keys().filter(is_alone).collect();
            if !is_new || alone.len() < MIN_JOBS {
                return None;
            }
            let part = Part::Gpu(node.clone(), *gpu);
            let jobs: Vec<&str> = alone.iter().map(|job| &***job).collect();
            Some(Evidence {
                detector: super::NAME,
                signal: GPU_LAST_XID.name,
                class: &GPU_ERROR,
                effect: 0.0,
                statement: format!(
                    "{part} reported an XID of applications in {} jobs ({}), and no other GPU of these jobs did: run the field diagnostic.",
                    jobs.len(),
                    jobs.join(", ")
                ),
                victims: Vec::new(),
                related: Vec::new(),
                alike: Vec::new(),
                part,
            })
        });
        followed.collect()
    }
}

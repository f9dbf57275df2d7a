//! Series of jobs: what they hold, their throughput, their stragglers, and what they have lost.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use railscope_model::metric::{
    INCIDENT_JOB, JOB_GPUS, JOB_LOST, JOB_RANK_EXCESS, JOB_SPEED, JOB_STEP_EXPLAINED, JOB_WAITING,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::analyzer::ClusterView;
use crate::jobs::job::Job;
use crate::jobs::step_tails::StepTail;

/// Jobs that have series: ids of jobs come and go, and each leaves series behind in Prometheus.
const MOST_JOBS: usize = 1_000;

pub(super) fn push(reading: &mut NodeReading, view: &ClusterView) {
    let mut jobs: Vec<&Job> = view.jobs.iter().collect();
    jobs.sort_by_key(|job| Reverse(job.gpus()));
    jobs.truncate(MOST_JOBS);
    let shown: BTreeSet<&str> = jobs.iter().map(|job| &*job.name).collect();
    for job in jobs {
        let name = Labels::new([&*job.name]);
        reading.push(&JOB_GPUS, &name, job.gpus() as u64);
        if let Some(speed) = view.costs.speeds.get(&job.name) {
            reading.push(&JOB_SPEED, &name, *speed);
        }
    }
    for tail in view.step_tails.iter().take(MOST_JOBS) {
        push_step_tail(reading, tail);
    }
    for waiting in view.waiting.iter() {
        let Some(job) = waiting.job.as_deref().filter(|job| shown.contains(job)) else {
            continue;
        };
        let answer = [job, waiting.answer.as_str(), waiting.basis.as_str()];
        reading.push(&JOB_WAITING, &Labels::new(answer), true);
        for rank in &waiting.ranking {
            // Two ranks of which only the host is known are one series.
            if let Some(part) = &rank.part
                && !matches!(part, railscope_model::identity::Part::Host(_))
            {
                let labels = Labels::new([job, &part.to_string()]);
                reading.push(&JOB_RANK_EXCESS, &labels, rank.excess);
            }
        }
    }
    // What a job has lost is still reported for a while after its end.
    for lost in view.costs.lost.iter().take(10 * MOST_JOBS) {
        let labels = Labels::new([&*lost.job, &lost.fault_domain, lost.class]);
        reading.push(&JOB_LOST, &labels, lost.gpu_seconds);
    }
    for incident in &view.incidents {
        for job in incident.jobs.iter().filter(|job| shown.contains(&***job)) {
            let labels = Labels::new([&incident.root.to_string(), &incident.id, &**job]);
            reading.push(&INCIDENT_JOB, &labels, true);
        }
    }
}

fn push_step_tail(reading: &mut NodeReading, tail: &StepTail) {
    let explained = tail.explained;
    let causes = [
        ("fabric", explained.and_then(|of| of.fabric)),
        ("hosts", explained.and_then(|of| of.hosts)),
    ];
    for (cause, share) in causes {
        let Some(share) = share else { continue };
        for (estimate, ratio) in [
            ("value", share.value),
            ("at_least", share.at_least),
            ("at_most", share.at_most),
        ] {
            let labels = Labels::new([&*tail.job, cause, estimate]);
            reading.push(&JOB_STEP_EXPLAINED, &labels, ratio);
        }
    }
}

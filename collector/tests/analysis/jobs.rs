//! Jobs: a fault delays all jobs on the part, and parts are compared with those of their own job.

use railscope_collector::analyzer::ClusterView;

use super::cluster::{NODES, RAILS};
use super::run;

/// Lines of an exposition with the job on each GPU of a node.
pub(super) fn held(page: String, job: &str) -> String {
    let lines = (0..RAILS).map(|gpu| {
        format!(
            "railscope_workload_info{{gpu=\"{gpu}\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"{job}\"}} 1\n"
        )
    });
    lines.fold(page, |page, line| page + &line)
}

/// Each incident with the GPUs that wait, those behind its part, and jobs.
fn waiting(view: &ClusterView) -> Vec<String> {
    let line = |incident: &railscope_collector::diagnose::incident::Incident| {
        format!(
            "{} {} of {} wait for {}: {}",
            incident.root,
            incident.jobs.join(" "),
            incident.gpus_affected,
            incident.gpus_behind().count(),
            incident.class.name
        )
    };
    view.incidents.iter().map(line).collect()
}

/// Nodes 0 to 4 run one job, 5 and 6 another, the last none.
fn job_of(node: usize) -> Option<&'static str> {
    match node {
        0..=4 => Some("large"),
        5 | 6 => Some("small"),
        _ => None,
    }
}

/// The cluster in which one GPU of each of these nodes is hot.
fn with_hot_gpu(nodes: &'static [usize]) -> ClusterView {
    run(&move |index, seconds, page| {
        let page = match job_of(index) {
            Some(job) => held(page, job),
            None => page,
        };
        if !nodes.contains(&index) {
            return page;
        }
        let hot = format!("reason=\"hw_thermal\"}} {seconds}");
        page.replacen("clock=\"sm\"} 1.98e9", "clock=\"sm\"} 1.2e9", 1)
            .replacen(
                "reason=\"hw_thermal\"} 0\n",
                "reason=\"hw_thermal\"} 1\n",
                1,
            )
            .replacen(
                "seconds_total{gpu=\"0\",reason=\"hw_thermal\"} 0",
                &format!("seconds_total{{gpu=\"0\",{hot}"),
                1,
            )
    })
}

#[test]
fn one_gpu_holds_up_all_of_its_job_and_nobody_else() {
    let view = with_hot_gpu(&[1, 5, NODES - 1]);
    assert_eq!(
        waiting(&view),
        [
            "gpu/n1:0 large of 20 wait for 1: gpu-slow",
            "gpu/n5:0 small of 8 wait for 1: gpu-slow",
            "gpu/n7:0  of 1 wait for 1: gpu-slow",
        ]
    );
}

#[test]
fn a_job_that_a_fault_has_ended_has_waited_all_the_same() {
    let view = run(&|index, seconds, page| {
        // The job is gone half a minute after its node has lost a link.
        let page = match job_of(index).filter(|job| *job != "small" || seconds < 90) {
            Some(job) => held(page, job),
            None => page,
        };
        if index != 5 {
            return page;
        }
        page.replacen(
            "link_width_lanes{pci=\"0000:10:00.0\"} 16",
            "link_width_lanes{pci=\"0000:10:00.0\"} 4",
            1,
        )
    });
    assert!(view.jobs.get("small").is_none_or(|job| job.gpus() == 0));
    assert_eq!(
        waiting(&view),
        ["pcie/n5:0000:10:00.0 small of 9 wait for 1: pcie-degraded"]
    );
}

//! The parts of a step's time on each rank: one step for all, and the straggler waits least.

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_simulator::cluster::{Cluster, RankTimes};
use railscope_simulator::examples;
use railscope_simulator::faults::Truth;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::work::workload::JobSpec;

const GPUS: usize = 8;
const MOMENTS: u64 = 100;

fn healthy() -> Cluster {
    Cluster::new(ClusterSpec::demo(8).expect("a spec"), 1).expect("a cluster")
}

/// A cluster that a fault holds back from its first second on.
fn with(cause: &str) -> (Cluster, Truth) {
    let mut cluster = healthy();
    let fault = examples::fault(&cluster, cause, 7, 1.0).expect(cause);
    let truth = cluster.inject(fault).expect(cause);
    (cluster, truth)
}

fn now(cluster: &Cluster) -> Vec<RankTimes> {
    let times = cluster.rank_times();
    times
        .map(|times| times.expect("a job that moves"))
        .collect()
}

/// Mean of a part of the time over many samples, by GPU.
fn mean(cluster: &mut Cluster, part: fn(&RankTimes) -> f64) -> Vec<f64> {
    let mut sums = Vec::new();
    for second in 2..2 + MOMENTS {
        cluster.advance(Duration::from_secs(second));
        let times = now(cluster);
        sums.resize(times.len(), 0.0);
        for (sum, times) in sums.iter_mut().zip(&times) {
            *sum += part(times) / MOMENTS as f64;
        }
    }
    sums
}

fn least(values: &[f64]) -> usize {
    let least = (0..values.len()).min_by(|a, b| values[*a].total_cmp(&values[*b]));
    least.expect("values")
}

fn number(cluster: &Cluster, part: &Part) -> usize {
    let node = cluster
        .nodes()
        .iter()
        .position(|node| Some(&node.name) == part.node());
    let gpu = if let Part::Gpu(_, gpu) = part {
        usize::from(gpu.0)
    } else {
        0
    };
    node.expect("a node") * GPUS + gpu
}

#[test]
fn all_ranks_share_one_step_time_and_their_parts_add_up_to_it() {
    for cause in [
        "gpu-slow",
        "host-stalls",
        "pcie-degraded",
        "nvlink-down",
        "gpu-memory",
    ] {
        let (mut cluster, _) = with(cause);
        for second in 1..20 {
            cluster.advance(Duration::from_secs(second));
            let times = now(&cluster);
            let step = times[0].step_seconds;
            for times in &times {
                assert_eq!(times.step_seconds, step, "{cause}");
                let parts = [
                    times.compute_seconds,
                    times.communication_seconds,
                    times.wait_seconds,
                    times.host_seconds,
                ];
                assert!(parts.iter().all(|part| *part >= 0.0), "{cause}: {times:?}");
                let sum: f64 = parts.iter().sum();
                assert!((sum / step - 1.0).abs() < 1e-9, "{cause}: {times:?}");
            }
            // One rank does not wait at all: it determines the length of the step.
            let waits = times.iter().map(|times| times.wait_seconds);
            assert!(waits.fold(f64::INFINITY, f64::min) < 1e-9, "{cause}");
        }
    }
}

#[test]
fn the_culprit_waits_least_and_computes_most() {
    for cause in ["gpu-thermal", "gpu-slow", "gpu-power-cap"] {
        let (mut cluster, truth) = with(cause);
        let culprit = number(&cluster, &truth.part);
        let mut other = cluster.clone();
        let waits = mean(&mut cluster, |times| times.wait_seconds);
        assert_eq!(least(&waits), culprit, "{cause}");
        let compute = mean(&mut other, |times| -times.compute_seconds);
        assert_eq!(least(&compute), culprit, "{cause}");
    }
}

#[test]
fn what_moves_inside_the_node_is_the_missing_wait_of_lost_nvlinks() {
    let (mut cluster, truth) = with("nvlink-down");
    let culprit = number(&cluster, &truth.part);
    let mut other = cluster.clone();
    assert_eq!(
        least(&mean(&mut cluster, |times| times.wait_seconds)),
        culprit
    );
    let moving = mean(&mut other, |times| -times.communication_seconds);
    assert_eq!(least(&moving), culprit);
}

#[test]
fn the_missing_wait_of_a_node_that_stands_still_is_neither_wait_nor_compute() {
    for cause in ["host-stalls", "host-steal"] {
        let (mut cluster, truth) = with(cause);
        let node = number(&cluster, &truth.part) / GPUS;
        let mut other = cluster.clone();
        let waits = mean(&mut cluster, |times| times.wait_seconds);
        assert_eq!(least(&waits) / GPUS, node, "{cause}");
        for (gpu, host) in mean(&mut other, |times| times.host_seconds)
            .into_iter()
            .enumerate()
        {
            assert_eq!(
                host > 1e-3,
                gpu / GPUS == node,
                "{cause}: GPU {gpu}: {host}"
            );
        }
    }
}

#[test]
fn in_a_healthy_job_the_slowest_is_seldom_the_same() {
    let mut cluster = healthy();
    let mut slowest = vec![0; 8];
    for second in 1..=200 {
        cluster.advance(Duration::from_secs(second));
        let waits: Vec<f64> = now(&cluster)
            .iter()
            .map(|times| times.wait_seconds)
            .collect();
        slowest[least(&waits) / GPUS] += 1;
    }
    assert!(
        slowest.iter().filter(|times| **times > 0).count() >= 3,
        "{slowest:?}"
    );
}

#[test]
fn who_has_no_job_or_stands_still_has_no_times() {
    let spec = ClusterSpec::demo(8).expect("a spec");
    let jobs = vec![JobSpec::on_first(4)];
    let cluster = Cluster::with_jobs(spec, jobs, 1).expect("a cluster");
    let times: Vec<_> = cluster.rank_times().collect();
    assert_eq!(times.len(), 8 * GPUS);
    assert!(times[..4 * GPUS].iter().all(Option::is_some));
    assert!(times[4 * GPUS..].iter().all(Option::is_none));
    let (mut cluster, _) = with("port-down");
    cluster.advance(Duration::from_secs(5));
    assert!(cluster.rank_times().all(|times| times.is_none()));
}

//! One job on two nodes, of which the first reports step times and the second probes.

use super::*;
use crate::jobs::job::JobTable;

const START: u64 = 1_764_000_000_000;

fn node(name: &str) -> NodeName {
    name.parse().expect(name)
}

/// Windows since the start in which the fabric was slow, in which the host of `n1` was, and in which the job waited for
/// its storage.
fn bursts(window: u64) -> [u64; 3] {
    let before = |every: u64, phase: u64| (window + every - phase) / every;
    [before(6, 1), before(9, 5), before(13, 8)]
}

/// Job 4711 runs on both nodes. The first reports its step times, the second probes; each burst costs it a second.
fn pages(seconds: u64) -> [(NodeName, String); 2] {
    let [fabric, host, storage] = bursts(seconds / WINDOW_SECONDS as u64);
    let held = "railscope_workload_info{gpu=\"0\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"4711\"} 1\n";
    let histogram = |name: &str, labels: &str, fast: u64, slow: u64| {
        let all = fast + slow;
        format!(
            "{name}_bucket{{le=\"0.0002\"{labels}}} {fast}\n{name}_bucket{{le=\"+Inf\"{labels}}} {all}\n\
             {name}_sum{{{labels}}} 0\n{name}_count{{{labels}}} {all}\n"
        )
        .replace("{,", "{")
    };
    let first = format!(
        "{held}railscope_job_steps_total{{hpc_job=\"4711\"}} {steps}\n\
         railscope_job_step_excess_seconds_total{{hpc_job=\"4711\"}} {excess}\n\
         railscope_job_step_quantile_seconds{{hpc_job=\"4711\",q=\"0.5\"}} 2\n\
         railscope_job_step_quantile_seconds{{hpc_job=\"4711\",q=\"0.99\"}} 3\n{timers}",
        steps = seconds / 2,
        excess = fabric + host + storage,
        timers = histogram(
            "railscope_host_timer_delay_seconds",
            ",numa_node=\"0\"",
            1000 * seconds,
            500 * host
        ),
    );
    let second = format!(
        "{held}railscope_probe_path_lost_total{{path_class=\"same-leaf\",transport=\"udp\"}} 0\n{}",
        histogram(
            "railscope_probe_path_rtt_seconds",
            ",path_class=\"same-leaf\",transport=\"udp\"",
            10 * seconds,
            20 * fabric
        )
    );
    [(node("n1"), first), (node("n2"), second)]
}

/// What is known of the job after so many minutes.
fn after(minutes: u64) -> Arc<Vec<StepTail>> {
    let (mut history, mut jobs, mut tails) = (
        History::default(),
        JobTable::default(),
        StepTails::default(),
    );
    let mut known = Arc::default();
    for scrape in 0..=4 * minutes {
        let seconds = 15 * scrape;
        // Nodes are scraped at different times.
        for (lag, (name, page)) in (0_u64..).zip(pages(seconds)) {
            let at = Timestamp(START + 1000 * seconds + 700 * lag);
            let result = history.node_mut(&name).ingest(&page, at);
            assert_eq!((result.unknown, result.errors), (0, vec![]));
        }
        let now = Timestamp(START + 1000 * seconds + 2000);
        let jobs = jobs.refresh(&history, now);
        known = tails.tick(&history, &jobs, now);
    }
    known
}

#[test]
fn the_excess_of_a_job_is_shared_out_to_what_its_own_nodes_measured() {
    let tails = after(60);
    let [tail] = &tails[..] else {
        panic!("one job: {tails:?}");
    };
    assert_eq!((&*tail.job, tail.quantiles["0.99"]), ("4711", 3.0));
    let watched = tail.watched_seconds;
    assert!((watched / 2.0 - tail.steps).abs() < 20.0, "{tail:?}");
    let bursts = bursts((watched / WINDOW_SECONDS) as u64);
    let excess: u64 = bursts.iter().sum();
    assert!(
        (tail.excess_seconds - excess as f64).abs() < 3.0,
        "{tail:?}"
    );
    let explained = tail.explained.expect("an hour");
    for (share, bursts) in [explained.fabric, explained.hosts].into_iter().zip(bursts) {
        let (share, truth) = (share.expect("is measured"), bursts as f64 / excess as f64);
        assert!((share.value - truth).abs() < 0.1, "{truth}: {explained:?}");
        assert!(
            share.at_least <= truth && truth <= share.at_most,
            "{truth}: {explained:?}"
        );
    }
}

#[test]
fn nothing_is_explained_before_ten_minutes() {
    assert_eq!(after(0).len(), 0);
    assert_eq!(after(9)[0].explained, None);
}

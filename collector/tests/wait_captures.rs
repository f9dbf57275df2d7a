//! Stragglers in public traces of real jobs, where the recordings are at hand.
mod archive;
mod bytedance;
mod zhejiang;

use std::collections::BTreeMap;
use std::path::PathBuf;

use railscope_collector::jobs::straggler::{
    ALARM, Cause, Conclusion, Pair, Rank, Side, Unevenness, WaitWatch, judge_pairs, late_ranks,
};
use railscope_collector::sources::collectives::flight_recorder::{
    Dump, parse_dump, rank_of_file, rank_states,
};
use railscope_collector::sources::collectives::nccl_tests::parse_log;
use railscope_collector::store::NodeHistory;
use railscope_model::fabric::Timestamp;
use railscope_model::metric::SWITCH_PORT_TRANSMIT_BYTES;
use railscope_model::reading::{Labels, NodeReading};

/// A file or folder of the recordings; reports if there is none.
fn capture(test: &str, path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/captures"
    ))
    .join(path);
    if !path.exists() {
        eprintln!("SKIPPED: {test}: no capture {}", path.display());
        return None;
    }
    Some(path)
}

fn of_cause(watch: &WaitWatch, ranks: &[Rank], cause: Cause) -> Vec<(u32, u64)> {
    let culprits = watch.culprits().into_iter();
    let culprits = culprits.filter(|culprit| culprit.cause == cause);
    culprits
        .map(|culprit| (ranks[culprit.index].number, culprit.since_step))
        .collect()
}

#[test]
fn the_slowed_worker_of_a_real_job_is_named_and_nobody_else() {
    let test = "the_slowed_worker_of_a_real_job_is_named_and_nobody_else";
    let Some(path) = capture(test, "traces/bytedance-AR/trace-AR.parquet") else {
        return;
    };
    let job = bytedance::read(&path).expect("a trace");
    assert_eq!((job.ranks.len(), job.steps.len()), (16, 44));
    let mut watch = WaitWatch::new(job.ranks.clone(), ALARM);
    for step in &job.steps {
        watch.observe(step);
    }
    eprintln!("{:?}", watch.conclude());
    assert_eq!(of_cause(&watch, &job.ranks, Cause::Gpu), [(0, 23)]);
    assert_eq!(of_cause(&watch, &job.ranks, Cause::HostHint), []);
}

#[test]
fn a_long_last_stage_of_a_real_job_names_no_rank() {
    let test = "a_long_last_stage_of_a_real_job_names_no_rank";
    let Some(path) = capture(test, "traces/bytedance-ST/trace-ST.parquet") else {
        return;
    };
    let job = bytedance::read(&path).expect("a trace");
    assert_eq!(job.ranks.len(), 8);
    let mut watch = WaitWatch::new(job.ranks.clone(), ALARM);
    let mut mixed = WaitWatch::with_cohorts(job.ranks.clone(), vec![(0..8).collect()], ALARM);
    for step in &job.steps {
        watch.observe(step);
        mixed.observe(step);
    }
    eprintln!(
        "{:?}; over all stages {:?}",
        watch.conclude(),
        mixed.culprits()
    );
    assert_eq!(watch.culprits(), []);
    assert!(matches!(
        watch.conclude(),
        Conclusion::UnevenStages { stage: 3, .. }
    ));
}

/// The ranks that are late in the dumps of a job, in their order.
fn late(test: &str, job: &str) -> Option<Vec<(u32, Side)>> {
    let folder = capture(test, &format!("flight_recorder/{job}/json"))?;
    let dumps = (0..16).map(|rank| {
        let file = format!("{}/_dump_{rank}.json", folder.display());
        let bytes = std::fs::read(&file).expect("a dump");
        let rank = rank_of_file(&file).expect("a rank");
        parse_dump(&file, rank, &bytes).expect("a dump")
    });
    let dumps: Vec<Dump> = dumps.collect();
    let late = late_ranks(&rank_states(&dumps));
    eprintln!("{job}: {late:#?}");
    Some(late.iter().map(|late| (late.rank, late.side)).collect())
}

#[test]
fn injected_gpu_errors_are_two_gpus() {
    let Some(late) = late("injected_gpu_errors_are_two_gpus", "gpu_error_1st") else {
        return;
    };
    assert_eq!(late, [(12, Side::Gpu), (14, Side::Gpu)]);
}

#[test]
fn held_interpreter_locks_are_two_hosts() {
    let Some(late) = late("held_interpreter_locks_are_two_hosts", "lock_gil_1st") else {
        return;
    };
    assert_eq!(late, [(9, Side::Host), (14, Side::Host)]);
}

/// The result of each test and number of GPUs a node.
fn matrices(test: &str, cluster: &str) -> Option<BTreeMap<(String, usize), Unevenness>> {
    let path = capture(test, &format!("nccl_logs/{cluster}/pairwise-logs.tar.gz"))?;
    let mut pairs: BTreeMap<(String, usize), Vec<Pair>> = BTreeMap::new();
    for (file, text) in archive::files(&path).expect("an archive") {
        let log = parse_log(&file, &text).expect("a log");
        assert_eq!((log.runs.is_empty(), log.unfinished), (false, 0), "{file}");
        for run in log.runs {
            let nodes: Vec<String> = run.nodes.into_iter().collect();
            let nodes: [String; 2] = nodes.try_into().expect("two nodes");
            let key = (run.test.expect("a test"), run.ranks / 2);
            pairs.entry(key).or_default().push(Pair {
                nodes,
                bandwidth: run.bandwidth,
            });
        }
    }
    Some(
        pairs
            .into_iter()
            .map(|(key, pairs)| (key, judge_pairs(&pairs)))
            .collect(),
    )
}

#[test]
fn a_healthy_cluster_has_no_slow_pair() {
    let Some(matrices) = matrices("a_healthy_cluster_has_no_slow_pair", "h100-10node-healthy")
    else {
        return;
    };
    assert!(
        matrices.len() >= 8
            && matrices
                .values()
                .all(|verdict| *verdict == Unevenness::Even)
    );
}

#[test]
fn contention_between_two_groups_names_no_node() {
    let Some(matrices) = matrices(
        "contention_between_two_groups_names_no_node",
        "h100-8node-degraded-a",
    ) else {
        return;
    };
    let name = |number: &u8| format!("cnode4-{number:03}");
    let groups = [[5u8, 6, 7, 8, 13].as_slice(), &[9, 11, 12]];
    let between = Unevenness::Between(
        groups
            .iter()
            .map(|group| group.iter().map(name).collect())
            .collect(),
    );
    assert_eq!(matrices[&("alltoall_perf".to_owned(), 8)], between);
    let clean = |gpus| &matrices[&("alltoall_perf".to_owned(), gpus)];
    assert_eq!([clean(1), clean(2), clean(4)], [&Unevenness::Even; 3]);
    let blames_a_node = |verdict: &Unevenness| matches!(verdict, Unevenness::Nodes(_));
    assert!(!matrices.values().any(blames_a_node));
}

#[test]
fn holes_in_the_sampling_of_real_ports_are_no_spike_and_no_silence() {
    let test = "holes_in_the_sampling_of_real_ports_are_no_spike_and_no_silence";
    let Some(path) = capture(
        test,
        "traces/zhejiang/leaf_ports_pod1_t0-1500/Leaf-1.csv.gz",
    ) else {
        return;
    };
    let (mut samples, mut holes, mut spikes) = (0, 0, 0);
    for (port, readings) in zhejiang::ports(&path).expect("a recording") {
        let wire = zhejiang::wire_bytes_per_second(&port);
        let mut history = NodeHistory::default();
        let (mut total, mut before) = (0.0, None);
        for (milliseconds, sent) in readings {
            total += sent;
            let mut reading = NodeReading::default();
            reading.push_full(&SWITCH_PORT_TRANSMIT_BYTES, &Labels::new([&port]), total);
            let at = Timestamp(milliseconds);
            history.ingest_reading(&reading, at);
            let window = history
                .window(&SWITCH_PORT_TRANSMIT_BYTES, &[&port])
                .expect("a window");
            let gap = before.map_or(0.0, |before| at.seconds_since(before));
            // Bytes sent during a gap, reported in the first reading after it: above the wire at the usual interval.
            spikes += usize::from(sent / 0.55 > wire);
            if gap > 10.0 {
                holes += 1;
                assert_eq!(window.increase(10.0), None, "{port}: no rate of a hole");
            }
            if let Some(increase) = window.increase(10.0) {
                samples += 1;
                assert!(
                    increase.rate() <= wire,
                    "{port}: {} over the wire",
                    increase.rate()
                );
                assert!(
                    increase.rate() > 0.0 || sent == 0.0,
                    "{port}: zero while bytes flow"
                );
            }
            before = Some(at);
        }
    }
    eprintln!(
        "{samples} rates, {holes} holes, {spikes} readings above the wire if taken at the usual interval"
    );
    assert!(samples > 50_000 && holes > 0 && spikes > 0);
}

//! What `railscope collectives` prints of files of each kind.

use super::*;

fn output(files: &[(&str, String)]) -> String {
    let mut read = Read::default();
    for (name, text) in files {
        read.take(Path::new(name), text.as_bytes());
    }
    let mut text = String::new();
    write_report(&mut text, &read.report(None)).expect("a report");
    text
}

/// A minute of collectives of one process, a second each.
fn dump(rank: u64) -> String {
    let line = |second: u64| {
        let waited = if rank == 5 {
            200_000
        } else {
            400_000 + 1000 * ((second * 7 + rank) % 5)
        };
        format!(
            "{{\"header\":{{\"id\":\"0x1\",\"rank\":{rank},\"n_ranks\":8,\"nnodes\":1}},\"metadata\":{{\"dump_timestamp_us\":{second}000000,\"hostname\":\"n1\",\"pid\":{}}},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_sn\":{second},\"coll_msg_size_bytes\":1,\"coll_exec_time_us\":{waited}}}}}\n",
            100 + rank
        )
    };
    (1..300).map(line).collect()
}

#[test]
fn dumps_of_the_inspector_name_the_straggler_and_the_missing_distinction() {
    let files: Vec<_> = (0..8).map(|rank| ("f.log", dump(rank))).collect();
    let text = output(&files);
    for expected in [
        "Job of 8 processes",
        "straggler",
        "n1 process 105 waits 20 % of a step less",
        "the cause is the GPU or the host",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn operations_that_the_inspector_dropped_are_reported() {
    let marker = |dropped: u64| {
        format!(
            "{{\"header\":{{\"id\":\"0x1\",\"rank\":0,\"n_ranks\":8,\"nnodes\":1}},\"metadata\":{{\"dump_timestamp_us\":1,\"hostname\":\"n1\",\"pid\":1}},\"dump_stats\":{{\"coll_dropped_since_last_dump\":{dropped}}}}}\n"
        )
    };
    let expected = "NCCL's Inspector dropped 10 operations";
    let text = output(&[("a.log", marker(3)), ("b.log", marker(7))]);
    assert!(text.contains(expected), "{text}");
    let text = output(&[("a.log", marker(0))]);
    assert!(!text.contains("dropped"), "{text}");
}

#[test]
fn timeouts_behind_an_output_of_ncclras_are_reported_too() {
    let file = "Communicators... (0.00s)\n=============\n\n[rank3]:[E P.cpp:6] [Rank 3] Watchdog caught collective operation timeout: \
                WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=1) ran for 2 milliseconds before timing out.\n";
    let text = output(&[("job.log", file.to_owned())]);
    assert!(
        text.contains("ALLREDUCE number 9 timed out on rank 3"),
        "{text}"
    );
}

#[test]
fn a_log_over_pairs_of_nodes_names_the_slow_node_and_counts_unreadable_files() {
    let run = |a: u8, b: u8| {
        let bandwidth = if a == 2 || b == 2 { 20 } else { 40 };
        format!(
            "# Collective test starting: alltoall_perf\n#  Rank  0 Pid 1 on n{a} device 0\n#  Rank  1 Pid 1 on n{b} device 0\n# Avg bus bandwidth : {bandwidth}\n"
        )
    };
    let log = (0..5).flat_map(|a| (a + 1..5).map(move |b| run(a, b)));
    let text = output(&[
        ("log", log.collect()),
        ("notes", "nothing\n".to_owned()),
        ("dump_x.json", "{\"pg_config\"".to_owned()),
    ]);
    for expected in [
        "alltoall_perf on 2 GPUs, 10 pairs of nodes: slow with nearly all other nodes: n2",
        "1 unreadable lines or files, 1 files of other formats",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

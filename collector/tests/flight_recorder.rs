//! Dumps of PyTorch 2.11 (NCCL 2.28) on an H100, of one rank that trained with `DistributedDataParallel`:
//! as PyTorch's C++ code pickled it, and as JSON of the same time (`_dump_nccl_trace`,
//! `_dump_nccl_trace_json`; the last 48 entries).

use std::fs;
use std::path::PathBuf;

use railscope_collector::jobs::straggler::RankState;
use railscope_collector::sources::collectives::flight_recorder::{
    is_flight_recorder, parse_dump, rank_of_file, rank_states,
};

fn states(name: &str) -> Vec<RankState> {
    let file = dump(name);
    let bytes = fs::read(&file).expect("a dump");
    // As much as the watcher reads to detect a file's format.
    assert!(is_flight_recorder(&bytes[..4096]));
    let rank = rank_of_file(name).expect("a rank");
    let dump = parse_dump(name, rank, &bytes).unwrap_or_else(|error| panic!("{error}"));
    rank_states(&[dump])
}

fn dump(name: &str) -> PathBuf {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/collectives/pytorch-2.11"
    );
    PathBuf::from(folder).join(name)
}

#[test]
fn pickle_and_json_of_pytorch_say_the_same() {
    for name in ["nccl_trace_rank_0", "nccl_trace_rank_0.json"] {
        let states = states(name);
        let [state] = &states[..] else {
            panic!("one rank: {states:?}");
        };
        let group = &state.groups["0"];
        assert_eq!(group.description.as_deref(), Some("default_pg"), "{name}");
        // The status is read before the entries: 48 collectives ended between the two.
        assert_eq!(group.last_enqueued, Some(12_945), "{name}");
        assert_eq!(group.last_completed, Some(12_897), "{name}");
        assert_eq!(group.oldest_pending, None, "{name}");
    }
}

//! Several sources for one node: which one has precedence, for how long, and what becomes of the
//! others.

use super::super::*;
use crate::store::source_id::Speaker;
use railscope_model::metric::{GPU, GPU_ENERGY, GPU_POWER};
use railscope_model::reading::{Labels, NodeReading};

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn speaker(precedence: u8, name: &str) -> Speaker {
    Speaker {
        precedence,
        name: name.into(),
    }
}

/// Power and energy of GPU 0.
fn values(power: f64, energy: f64) -> NodeReading {
    let mut reading = NodeReading::default();
    reading.push(&GPU_POWER, &Labels::new(["0"]), power);
    reading.push(&GPU_ENERGY, &Labels::new(["0"]), energy);
    reading
}

fn about(serial: &str) -> NodeReading {
    let mut reading = NodeReading::default();
    let labels = ["0", "GPU-1", "", "H100", serial, "", "", "", ""];
    reading.push(&GPU, &Labels::new(labels), true);
    reading
}

#[test]
fn of_each_series_the_speaker_with_precedence_is_believed_whoever_came_first() {
    let mut node = NodeHistory::default();
    let (ours, theirs) = (Speaker::default(), speaker(10, "a"));
    let first = node.ingest_from(&theirs, &values(1.0, 100.0), at(0));
    assert_eq!((first.kept, first.overruled), (2, 0));
    node.ingest_from(&theirs, &values(2.0, 200.0), at(5));
    let mut only_power = NodeReading::default();
    only_power.push(&GPU_POWER, &Labels::new(["0"]), 9.0);
    node.ingest_from(&ours, &only_power, at(6));
    let again = node.ingest_from(&theirs, &values(3.0, 300.0), at(10));
    assert_eq!((again.kept, again.overruled), (1, 1));
    assert_eq!(node.value(&GPU_POWER, &["0"]), Some(9.0), "ours");
    assert_eq!(
        node.value(&GPU_ENERGY, &["0"]),
        Some(300.0),
        "what ours does not tell"
    );
    assert_eq!(node.heard(), Some(at(10)));
}

#[test]
fn a_counter_is_never_continued_with_another_speaker_s() {
    let mut node = NodeHistory::default();
    let (ours, theirs) = (Speaker::default(), speaker(10, "a"));
    for second in [0, 5] {
        node.ingest_from(&theirs, &values(1.0, 1000.0 + second as f64), at(second));
    }
    node.ingest_from(&ours, &values(1.0, 5_000_000.0), at(6));
    let window = node.window(&GPU_ENERGY, &["0"]).expect("a series");
    assert_eq!(
        window.increase(60.0),
        None,
        "one point, and a new beginning"
    );
}

#[test]
fn a_node_that_is_scraped_once_a_minute_is_fresh_until_the_next_scrape() {
    let mut node = NodeHistory::default();
    for second in [0, 60, 121, 180] {
        node.ingest_from(&Speaker::default(), &values(9.0, 1.0), at(second));
    }
    assert!(node.is_fresh(at(262)));
    assert!(!node.is_fresh(at(275)));
}

#[test]
fn a_speaker_that_falls_silent_is_believed_for_as_long_as_a_node_may_be_silent() {
    let mut node = NodeHistory::default();
    let (ours, theirs) = (Speaker::default(), speaker(10, "a"));
    node.ingest_from(&ours, &values(9.0, 1.0), at(0));
    for second in (5..=60).step_by(5) {
        node.ingest_from(&theirs, &values(2.0, 2.0), at(second));
        assert_eq!(node.value(&GPU_POWER, &["0"]), Some(9.0), "at {second} s");
    }
    node.ingest_from(&theirs, &values(2.0, 2.0), at(65));
    node.ingest_from(&theirs, &values(3.0, 3.0), at(70));
    assert_eq!(
        node.value(&GPU_POWER, &["0"]),
        Some(3.0),
        "ours is forgotten"
    );
    assert!(node.is_fresh(at(120)));
    assert!(!node.is_fresh(at(131)));
}

#[test]
fn what_a_thing_is_one_speaker_says_alone() {
    let mut node = NodeHistory::default();
    let (near, far) = (speaker(10, "a"), speaker(20, "b"));
    let serials = |node: &NodeHistory| -> Vec<String> {
        let series = node.series(&GPU);
        series
            .filter_map(|(labels, _)| labels.values().nth(4).map(str::to_owned))
            .collect()
    };
    node.ingest_from(&far, &about(""), at(0));
    assert_eq!(serials(&node), [""]);
    node.ingest_from(&near, &about("1234"), at(1));
    node.ingest_from(&far, &about(""), at(5));
    assert_eq!(serials(&node), ["1234"], "not twice with different labels");
    // Two of one kind: the order of their names decides, not their order of arrival.
    let mut node = NodeHistory::default();
    node.ingest_from(&speaker(10, "b"), &about("b"), at(0));
    node.ingest_from(&speaker(10, "a"), &about("a"), at(1));
    assert_eq!(serials(&node), ["a"]);
}

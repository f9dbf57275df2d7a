//! Results cached between ticks: valid as long as the numbers are the same.

use std::collections::BTreeMap;

use super::super::*;
use crate::store::source_id::Speaker;
use proptest::prelude::*;
use railscope_model::metric::{GPU, GPU_POWER};
use railscope_model::reading::{Labels, NodeReading};

/// What a node reports about three GPUs, if anything: watts by label.
type Said = [Option<f64>; 3];

/// Seconds since the scrape before, by which of two sources, and what.
fn pages() -> impl Strategy<Value = Vec<(f64, bool, Said)>> {
    let value = prop_oneof![
        2 => Just(None),
        4 => Just(Some(100.0)),
        1 => Just(Some(200.0)),
        1 => Just(Some(f64::NAN)),
    ];
    let after = prop_oneof![Just(0.0), Just(0.4), Just(10.0), Just(10.0), Just(45.0)];
    let said = [value.clone(), value.clone(), value];
    proptest::collection::vec((after, prop::bool::weighted(0.2), said), 1..40)
}

/// Values by label, as bits: what is no number is equal to itself.
fn values(node: &NodeHistory) -> BTreeMap<String, Option<u64>> {
    let series = node.series(&GPU_POWER);
    let text = |labels: &Labels| labels.values().collect::<String>();
    series
        .map(|(labels, window)| (text(labels), window.value().map(f64::to_bits)))
        .collect()
}

fn rows(node: &NodeHistory) -> Vec<String> {
    let labels = node.rows(&GPU_POWER).into_iter().flat_map(Rows::labels);
    labels.map(|labels| labels.values().collect()).collect()
}

proptest! {
    #[test]
    fn nothing_is_new_while_its_number_is_the_same_and_nothing_else_stands_still(pages in pages()) {
        let mut node = NodeHistory::default();
        let mut now = Timestamp::default();
        let mut before = (0, 0, 0);
        let mut known = (BTreeMap::new(), Vec::new());
        for (after, other, said) in pages {
            now = now.plus_seconds(after);
            let mut reading = NodeReading::default();
            for (gpu, watts) in said.iter().enumerate() {
                if let Some(watts) = watts {
                    reading.push(&GPU_POWER, &Labels::new([gpu]), *watts);
                }
            }
            let name = if other { "other" } else { "" };
            let speaker = Speaker { precedence: u8::from(other), name: name.into() };
            node.ingest_from(&speaker, &reading, now);
            let (values, rows) = (values(&node), rows(&node));
            let numbers = (
                node.values_since(&GPU_POWER),
                node.presence_since(&GPU_POWER),
                node.rows_since(&GPU_POWER),
            );
            if numbers.0 == before.0 {
                prop_assert_eq!(&values, &known.0);
            }
            if numbers.1 == before.1 {
                let told = |of: &BTreeMap<String, Option<u64>>| -> Vec<(String, bool)> {
                    of.iter().map(|(gpu, watts)| (gpu.clone(), watts.is_some())).collect()
                };
                prop_assert_eq!(told(&values), told(&known.0));
            }
            if numbers.2 == before.2 {
                prop_assert_eq!(&rows, &known.1);
            }
            (before, known) = (numbers, (values, rows));
            stands_still(&node)?;
        }
    }
}

/// Each row's window is its series', and those that do not move have reported one value alone.
fn stands_still(node: &NodeHistory) -> Result<(), TestCaseError> {
    let all = node.rows(&GPU_POWER);
    let windows = all
        .into_iter()
        .flat_map(|rows| (0..).map(move |row| rows.window(row)));
    let count = all.map_or(0, |rows| rows.labels().count());
    let by_row = windows.take(count).flatten().map(|window| window.latest());
    let series: Vec<_> = node
        .series(&GPU_POWER)
        .map(|(_, window)| window.latest())
        .collect();
    prop_assert_eq!(by_row.collect::<Vec<_>>(), series);
    let moving: Vec<&Labels> = node.moving(&GPU_POWER).map(|(labels, _)| labels).collect();
    for (labels, window) in node.series(&GPU_POWER).filter(|(l, _)| !moving.contains(l)) {
        let told: Vec<f64> = window.values().collect();
        prop_assert!(
            told.windows(2).all(|pair| pair[0] == pair[1]),
            "{labels:?} {told:?}"
        );
    }
    Ok(())
}

#[test]
fn a_place_is_good_though_other_metrics_came_before_it() {
    let mut node = NodeHistory::default();
    let mut reading = NodeReading::default();
    let labels = ["0", "1"].map(|gpu| Labels::new([gpu]));
    for (labels, watts) in labels.iter().zip([300.0, 400.0]) {
        reading.push(&GPU_POWER, labels, watts);
    }
    node.ingest_reading(&reading, Timestamp(1));
    let place = node.place(&GPU_POWER, &["1"]).expect("a series");
    assert!(GPU.index < GPU_POWER.index);
    reading.push(&GPU, &Labels::new(GPU.labels), 1.0);
    node.ingest_reading(&reading, Timestamp(2));
    let window = node.window_at(&GPU_POWER, place).expect("a series");
    assert_eq!(window.latest(), Some((Timestamp(2), 400.0)));
    assert!(node.place(&GPU_POWER, &["2"]).is_none());
}

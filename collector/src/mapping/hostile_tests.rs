//! Hostile scrape bodies of third-party exporters: the memory that they can use is bounded.

use super::*;
use railscope_model::fabric::Timestamp;

use crate::store::NODE_SERIES_LIMIT;
use crate::store::source_id::Subject;

fn translator() -> Translator {
    let mappings = Mappings::default();
    let mapping = mappings.by_kind("dcgm-exporter").expect("built in");
    let node = Subject::Node("n1".parse().expect("a name"));
    Translator::new(Arc::clone(mapping), Some(node))
}

fn samples(read: &Translation) -> usize {
    let readings = read.readings.iter();
    readings.map(|(_, reading)| reading.samples().len()).sum()
}

fn page(series: usize) -> String {
    let line = |gpu| format!("DCGM_FI_DEV_GPU_TEMP{{gpu=\"{gpu}\"}} 30\n");
    (0..series).map(line).collect()
}

#[test]
fn distinct_series_are_read_up_to_the_limit_of_a_node() {
    let mut translator = translator();
    let read = translator.translate(&page(100_000), Timestamp(1_000));
    assert!(read.counts.over_limit >= 60_000, "{:?}", read.counts);
    // Temperature and info series of each GPU.
    assert!(
        samples(&read) <= 4 * NODE_SERIES_LIMIT,
        "{}",
        samples(&read)
    );
    let honest = translator.translate(&page(8), Timestamp(2_000));
    assert_eq!((honest.counts.over_limit, samples(&honest)), (0, 16));
}

#[test]
fn the_number_of_stored_unknown_names_is_bounded() {
    let mut translator = translator();
    let names: String = (0..50_000).map(|name| format!("n{name} 1\n")).collect();
    let read = translator.translate(&(names + &page(1)), Timestamp(1_000));
    assert_eq!((read.counts.unknown, samples(&read)), (50_001, 0));
    // The next scrape body is read normally.
    assert_eq!(
        samples(&translator.translate(&page(1), Timestamp(2_000))),
        2
    );
}

#[test]
fn an_exporter_is_recognized_by_its_first_names_only() {
    let mappings = Mappings::default();
    let known = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 30\n";
    for (names, is_known) in [(1_000, true), (100_000, false)] {
        let names: String = (0..names).map(|name| format!("n{name} 1\n")).collect();
        let exporter = mappings.recognize(&(names + known));
        assert_eq!(exporter.is_some(), is_known);
    }
}

//! Hostile scrape bodies; the tests count work instead of time.

use super::*;
use crate::store::node::NODE_SERIES_LIMIT;

fn distinct(series: usize, from: usize) -> String {
    let line = |number| {
        format!(
            "{}{{device=\"d{number}\",port=\"1\"}} 1\n",
            RDMA_PORT_UP.name
        )
    };
    (from..from + series).map(line).collect()
}

#[test]
fn distinct_series_have_constant_cost_each_and_none_above_the_limit() {
    let mut node = NodeHistory::default();
    let mut before = 0;
    // The second scrape body has no series of the first; the third has those of the second in another order.
    let mut third: Vec<_> = distinct(60_000, 240_000)
        .lines()
        .map(str::to_owned)
        .collect();
    third.reverse();
    for (second, page) in [
        (1, distinct(240_000, 0)),
        (2, distinct(60_000, 240_000)),
        (3, third.join("\n")),
    ] {
        let result = node.ingest(&page, at(second));
        let counted = result.kept + result.over_limit;
        assert!(counted >= page.lines().count() - 1, "{result:?}");
        assert!(node.series <= NODE_SERIES_LIMIT);
        let work = node.work() - before;
        assert!(work < 20 * NODE_SERIES_LIMIT, "page {second}: {work}");
        before = node.work();
    }
    // Rejected series use no memory, and the next valid scrape body is stored.
    let valid = distinct(3, 0);
    assert_eq!(node.ingest(&valid, at(4)).kept, 3);
    assert_eq!(node.ingest(&valid, at(100)).kept, 3);
    assert_eq!(node.series, 3);
}

#[test]
fn a_scrape_in_order_needs_no_search() {
    let mut node = NodeHistory::default();
    let page = distinct(2_000, 0);
    node.ingest(&page, at(1));
    let first = node.work();
    assert!(first < 20 * 2_000, "{first}");
    node.ingest(&page, at(2));
    assert_eq!(node.work(), first);
}

#[test]
fn series_with_too_long_labels_are_rejected_and_use_no_memory() {
    let mut node = NodeHistory::default();
    let page = format!(
        "{}{{device=\"{}\",port=\"1\"}} 1\n{}",
        RDMA_PORT_UP.name,
        "d".repeat(1 << 20),
        distinct(1, 0)
    );
    let result = node.ingest(&page, at(1));
    assert_eq!((result.kept, result.over_limit, node.series), (1, 1, 1));
}

#[test]
fn ingestion_stops_after_many_invalid_lines_and_stores_few_errors() {
    let mut node = NodeHistory::default();
    let result = node.ingest(&"x\n".repeat(1 << 20), at(1));
    assert_eq!(result.malformed, BAD_LINES_LIMIT);
    assert!(result.errors.len() < 100, "{}", result.errors.len());
    assert_eq!(result.over_limit, (1 << 20) - result.malformed);
}

//! Pages that are made to cost: work is counted, not timed.

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
fn a_page_of_distinct_series_costs_a_constant_for_each_and_nothing_beyond_the_limit() {
    let mut node = NodeHistory::default();
    let mut before = 0;
    // The second page has no series of the first, the third those of the second in another order.
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
        let told = result.kept + result.over_limit;
        assert!(told >= page.lines().count() - 1, "{result:?}");
        assert!(node.series <= NODE_SERIES_LIMIT);
        let work = node.work() - before;
        assert!(work < 20 * NODE_SERIES_LIMIT, "page {second}: {work}");
        before = node.work();
    }
    // What was refused is forgotten, and the node speaks again as soon as its page is one.
    let honest = distinct(3, 0);
    assert_eq!(node.ingest(&honest, at(4)).kept, 3);
    assert_eq!(node.ingest(&honest, at(100)).kept, 3);
    assert_eq!(node.series, 3);
}

#[test]
fn a_page_in_order_compares_no_row_in_vain() {
    let mut node = NodeHistory::default();
    let page = distinct(2_000, 0);
    node.ingest(&page, at(1));
    let first = node.work();
    assert!(first < 20 * 2_000, "{first}");
    node.ingest(&page, at(2));
    assert_eq!(node.work(), first);
}

#[test]
fn series_with_endless_labels_are_refused_and_keep_no_memory() {
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
fn a_page_of_bad_lines_is_left_and_few_of_them_are_kept() {
    let mut node = NodeHistory::default();
    let result = node.ingest(&"x\n".repeat(1 << 20), at(1));
    assert_eq!(result.malformed, BAD_LINES_LIMIT);
    assert!(result.errors.len() < 100, "{}", result.errors.len());
    assert_eq!(result.over_limit, (1 << 20) - result.malformed);
}

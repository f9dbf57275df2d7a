//! Cables that are missing from partial sweeps of the subnet.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{Cabling, as_planned, at, subnet};
use super::incidents;

#[test]
fn a_cable_is_missing_though_no_sweep_has_the_node_that_it_started_from() {
    let swept = |start: &str, cabling: &Cabling| {
        let head = format!("# Initiated from node {start} port {start}\n");
        parse_ibnetdiscover(&(head + &subnet(cabling)))
    };
    let cut = |node, rail| (node != 5 || rail != 2).then_some(rail);
    let found = |starts: [&str; 2], sweeps: u64| {
        let mut analyzer = Analyzer::default();
        analyzer.take_subnet(swept(starts[0], &as_planned), at(0));
        let mut view = analyzer.tick(at(0));
        for sweep in 0..sweeps {
            let seconds = 60 + 10 * sweep;
            analyzer.take_subnet(swept(starts[1], &cut), at(seconds));
            analyzer.tick(at(seconds));
            view = analyzer.tick(at(seconds + 5));
        }
        incidents(&view)
    };
    let lost = ["port-down link/n5:mlx5_2/1 gpus=0 []"];
    const OUTSIDE: &str = "00a088c20300aa00";
    assert_eq!(found([OUTSIDE, OUTSIDE], 2), lost);
    // The node at which both start is missing from the second: it was cut, unless that is so every time.
    const MISSING: &str = "0000000000001052";
    assert_eq!(found([MISSING, MISSING], 2), [""; 0]);
    assert_eq!(found([MISSING, MISSING], 3), lost);
}

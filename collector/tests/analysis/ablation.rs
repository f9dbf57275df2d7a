//! A step that is left out is out: what it does, nobody does.

use railscope_collector::core::ablation::Step;
use railscope_collector::core::analyzer::Analyzer;
use railscope_collector::subnet::parse_ibnetdiscover;

use crate::cluster::{NODES, RAILS, as_planned, at, node, page, subnet_of};
use crate::incidents;

/// All ports of a leaf lose their light at tick 11. Incidents `ticks` later, without a step.
fn check(without: Option<Step>, ticks: u64, expected: usize) {
    let mut analyzer = Analyzer::default();
    analyzer.leave_out(without.into_iter().collect());
    let subnet = parse_ibnetdiscover(&subnet_of(NODES, 24, &as_planned));
    for tick in 1..=10 + ticks {
        for index in 0..NODES {
            let mut text = page(index, 5 * tick);
            if tick > 10 {
                let up = "railscope_rdma_port_up{device=\"mlx5_1\",port=\"1\"}";
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            analyzer.ingest(&node(index), &text, at(5 * tick));
        }
        analyzer.take_subnet(subnet.clone(), at(5 * tick));
        let found = incidents(&analyzer.tick(at(5 * tick)));
        if tick == 10 + ticks {
            assert_eq!(found.len(), expected, "without {without:?}: {found:?}");
        }
    }
}

#[test]
fn a_dead_leaf_is_one_incident_and_without_parents_one_for_each_cable() {
    const { assert!(RAILS > 1) };
    check(None, 3, 1);
    check(Some(Step::Parents), 3, NODES);
}

#[test]
fn one_tick_opens_nothing_unless_nobody_waits_for_a_second() {
    check(None, 1, 0);
    check(Some(Step::Persistence), 1, 1);
}

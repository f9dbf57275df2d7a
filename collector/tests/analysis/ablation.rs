//! A step that is left out is out: what it does, nobody does.

use railscope_collector::core::ablation::Step;
use railscope_collector::core::analyzer::Analyzer;
use railscope_collector::subnet::parse_ibnetdiscover;

use crate::cluster::{NODES, RAILS, as_planned, at, node, page, subnet, subnet_of};
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

/// The NIC of rail 1 on n2 pauses its switch two fifths of the time, and that on n5 is paused a fifth of it. Parts with
/// an incident, without a step.
fn paused(without: Option<Step>) -> Vec<String> {
    let mut analyzer = Analyzer::default();
    analyzer.leave_out(without.into_iter().collect());
    analyzer.take_subnet(parse_ibnetdiscover(&subnet(&as_planned)), at(0));
    for tick in 1..=20 {
        let seconds = 5 * tick;
        for index in 0..NODES {
            let mut text = page(index, seconds);
            for rail in 0..RAILS {
                let pci = format!("0000:{:02x}:00.0", 0x10 + rail);
                text += &format!(
                    "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"{pci}\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n"
                );
                for direction in ["transmit", "receive"] {
                    let share = match (index, rail, direction) {
                        (2, 1, "transmit") => 0.4,
                        (5, 1, "receive") => 0.2,
                        _ => 0.0,
                    };
                    text += &format!(
                        "railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"{direction}\"}} {}\n",
                        share * seconds as f64
                    );
                }
            }
            let said = analyzer.ingest(&node(index), &text, at(seconds));
            assert_eq!((said.unknown, said.errors), (0, vec![]));
        }
        analyzer.tick(at(seconds));
    }
    let view = analyzer.tick(at(100));
    let parts = view.incidents.iter();
    parts.map(|incident| incident.root.to_string()).collect()
}

#[test]
fn pause_is_blamed_on_who_sends_it_and_without_the_walk_where_it_is_seen() {
    let root = "pcie/n2:0000:11:00.0";
    let victim = "pcie/n5:0000:11:00.0";
    assert_eq!(paused(None), [root]);
    let mut seen = paused(Some(Step::PauseWalk));
    seen.sort();
    assert_eq!(seen, [root, victim]);
}

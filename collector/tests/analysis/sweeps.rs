//! Cables that are missing from sweeps of the subnet, partial ones and those of hosts that start again.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;

use super::cluster::{Cabling, NODES, as_planned, at, node, page, subnet, switch_end, switch_head};
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

/// What is found at the end if node 5 is idle for the last `idle` seconds before 200 s, when it and its cables disappear.
fn after_restart(idle: u64, until: u64) -> Vec<String> {
    const GONE: u64 = 200;
    let cut = |node, rail| (node != 5).then_some(rail);
    let of_idle = |line: &str| match line.strip_suffix("} 1") {
        Some(series) if series.contains("utilization") => format!("{series}}} 0\n"),
        _ => format!("{line}\n"),
    };
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let mut found = Vec::new();
    for seconds in (0..=until).step_by(10) {
        let is_gone = seconds >= GONE;
        let cabling: &Cabling = if is_gone { &cut } else { &as_planned };
        analyzer.take_subnet(parse_ibnetdiscover(&subnet(cabling)), at(seconds));
        for index in 0..NODES {
            let is_idle = index == 5 && seconds + idle >= GONE;
            let page = page(index, seconds);
            let page: String = if is_idle {
                page.lines().map(of_idle).collect()
            } else {
                page
            };
            if index != 5 || !is_gone {
                analyzer.ingest(&node(index), &page, at(seconds));
            }
        }
        found = incidents(&analyzer.tick(at(seconds)));
    }
    found
}

#[test]
fn a_host_that_was_drained_before_it_disappeared_is_down_only_if_it_stays_so() {
    const DOWN: &str = "host-down host/n5 gpus=4 [gpu/n5:0 gpu/n5:1 gpu/n5:2 gpu/n5:3]";
    assert_eq!(after_restart(80, 500), [""; 0]);
    assert_eq!(after_restart(80, 1_200), [DOWN]);
    assert_eq!(after_restart(20, 500), [DOWN], "the job failed with it");
}

/// Four groups of four switches, all connected to each other at NDR; the cables between groups at another rate, and one within
/// the first.
fn dragonfly(between_groups: &str, of_one: &str) -> String {
    let name = |switch: usize| format!("MF0;g{}-{}:MQM9790/U1", switch / 4, switch % 4);
    let rate = |one: usize, other: usize| match (one.min(other), one.max(other)) {
        (0, 1) => of_one,
        (one, other) if one / 4 == other / 4 => "NDR",
        _ => between_groups,
    };
    let mut text = String::from("#\n# Topology file: generated on Thu Nov 19 10:00:00 2026\n#\n");
    for switch in 0..16 {
        text += &switch_head(0xa000 + switch, &name(switch), 10 + switch);
        // Each switch has a cable to one other group, and in groups it is connected to all.
        let across = 4 * (switch % 4) + switch / 4;
        let others = (0..16).filter(|other| switch / 4 == other / 4 || across == *other);
        for other in others.filter(|other| switch != *other) {
            let far = format!("S-{:016x}", 0xa000 + other);
            let end = switch_end(other + 1, &far, switch + 1, &name(other), 10 + other);
            text += &end.replace("NDR", rate(switch, other));
        }
    }
    text
}

#[test]
fn cables_between_the_groups_of_a_dragonfly_may_be_slower_than_those_within() {
    let found = |between_groups, of_one| {
        let mut analyzer = Analyzer::default();
        for seconds in [0, 10, 20] {
            let subnet = parse_ibnetdiscover(&dragonfly(between_groups, of_one));
            analyzer.take_subnet(subnet, at(seconds));
            analyzer.tick(at(seconds));
        }
        incidents(&analyzer.tick(at(25)))
    };
    assert_eq!(found("NDR", "NDR"), [""; 0]);
    assert_eq!(found("HDR", "NDR"), [""; 0]);
    let slow = ["port-degraded link/MF0;g0-0:MQM9790/U1:2 gpus=0 []"];
    assert_eq!(found("NDR", "EDR"), slow);
    assert_eq!(found("HDR", "EDR"), slow);
}

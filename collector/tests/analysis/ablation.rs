//! A disabled step has no effect, and no other step replaces it.

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::stages::Step;

use super::cluster::{NODES, RAILS, as_planned, at, node, page, subnet, subnet_of};
use super::{Fault, incidents};

/// A cluster that is well for ten ticks, and has a fault from then on. Incidents `ticks` later, without a step.
fn run(fault: &Fault, without: Option<Step>, ticks: u64) -> Vec<String> {
    let mut analyzer = Analyzer::default();
    analyzer.leave_out(without.into_iter().collect());
    let subnet = parse_ibnetdiscover(&subnet_of(NODES, 24, &as_planned));
    for tick in 1..=10 + ticks {
        for index in 0..NODES {
            let mut text = page(index, 5 * tick);
            if tick > 10 {
                text = fault(index, 5 * tick, text);
            }
            analyzer.ingest(&node(index), &text, at(5 * tick));
        }
        analyzer.take_subnet(subnet.clone(), at(5 * tick));
        let view = analyzer.tick(at(5 * tick));
        if tick == 10 + ticks {
            return incidents(&view);
        }
    }
    Vec::new()
}

/// Ports of a rail that lose their link, by node and rail.
fn dark(is_dark: fn(usize, usize) -> bool) -> Box<Fault> {
    Box::new(move |node, _, mut text| {
        for rail in (0..RAILS).filter(|rail| is_dark(node, *rail)) {
            let up = format!("railscope_rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}}");
            text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
        }
        text
    })
}

#[test]
fn a_dead_leaf_is_one_incident_and_without_parents_one_for_each_cable() {
    const { assert!(RAILS > 1) };
    let leaf = dark(|_, rail| rail == 1);
    for (without, expected) in [(None, 1), (Some(Step::Parents), NODES)] {
        let found = run(&leaf, without, 3);
        assert_eq!(found.len(), expected, "without {without:?}: {found:?}");
    }
}

#[test]
fn one_tick_opens_nothing_unless_it_is_proof_or_nobody_waits_for_a_second() {
    let port = dark(|node, rail| (node, rail) == (2, 1));
    let leaf = dark(|_, rail| rail == 1);
    // Other hosts have a link: only some of its cables are down.
    let half = dark(|node, rail| rail == 1 && node < NODES / 2);
    let two = dark(|_, rail| rail <= 1);
    let gpu = |tells: bool| -> Box<Fault> {
        Box::new(move |node, _, text| {
            let is_of_it = |line: &&str| {
                let line = line.trim_start_matches("railscope_gpu_");
                let told = ["utilization_ratio", "clock_hertz", "clock_event"];
                node == 3
                    && line.contains("gpu=\"2\"")
                    && told.iter().any(|name| line.starts_with(name))
            };
            let left = text.lines().filter(|line| !is_of_it(line));
            let mut text: String = left.map(|line| format!("{line}\n")).collect();
            if node == 3 && tells {
                text += "railscope_gpu_xid_events_total{gpu=\"2\",xid=\"79\",source=\"nvml\"} 1\n";
            }
            text
        })
    };
    let without = Some(Step::Proof);
    for (what, fault, without, first, second) in [
        ("a port", &port, None, 0, 1),
        ("a port", &port, Some(Step::Persistence), 1, 1),
        ("a leaf", &leaf, None, 1, 1),
        ("a leaf", &leaf, without, 0, 1),
        ("half of a leaf", &half, None, 0, NODES / 2),
        ("two leaves", &two, None, 0, 2),
        ("a GPU with its XID", &gpu(true), None, 1, 1),
        ("a GPU with its XID", &gpu(true), without, 0, 1),
        ("a GPU", &gpu(false), None, 0, 1),
    ] {
        for (ticks, expected) in [(1, first), (2, second)] {
            let found = run(fault, without, ticks);
            assert_eq!(
                found.len(),
                expected,
                "{what}, tick {ticks}, without {without:?}: {found:?}"
            );
        }
    }
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

//! What is really lost where many cables are: the switch, or the hosts, whichever sweep or exporter says so first.

use std::collections::BTreeSet;

use railscope_collector::core::analyzer::Analyzer;
use railscope_collector::subnet::parse_ibnetdiscover;

use crate::cluster::{Cabling, NODES, RAILS, as_planned, at, node, page, subnet_of};
use crate::incidents;

/// Enough for the cables of hosts to be less than 30 % of a leaf's.
const MANY: usize = 24;

/// All rails of a node on one leaf, two nodes on each.
fn by_rack(node: usize, _: usize) -> Option<usize> {
    Some(node / 2)
}

/// Ports that lose their light, of which no sweep tells yet, and nodes that say nothing any more, whose cables
/// the sweep misses. Incidents 25 and 50 s later.
fn check(
    cabling: &'static Cabling,
    spines: usize,
    dark: impl Fn(usize, usize) -> bool + Copy + 'static,
    silent: &'static [usize],
    expected: &[&str],
) {
    let mut analyzer = Analyzer::default();
    for tick in 1..=20 {
        let seconds = 5 * tick;
        for index in (0..NODES).filter(|index| tick <= 10 || !silent.contains(index)) {
            let mut text = page(index, seconds);
            for rail in (0..RAILS).filter(|rail| tick > 10 && dark(index, *rail)) {
                let up = format!("railscope_rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}}");
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let seen = move |node: usize, rail: usize| {
            let gone = tick > 10 && silent.contains(&node);
            cabling(node, rail).filter(|_| !gone)
        };
        analyzer.take_subnet(
            parse_ibnetdiscover(&subnet_of(NODES, spines, &seen)),
            at(seconds),
        );
        let view = analyzer.tick(at(seconds));
        if tick == 15 || tick == 20 {
            let found = incidents(&view);
            let words = |text: &String| text.split(' ').take(2).collect::<Vec<_>>().join(" ");
            let found: Vec<_> = found.iter().map(words).collect();
            assert_eq!(found, expected, "at {seconds} s");
        }
    }
}

#[test]
fn a_leaf_of_few_hosts_is_down_once_all_of_them_say_so_before_any_sweep() {
    let of_leaf_1 = |_: usize, rail: usize| rail == 1;
    check(
        &as_planned,
        MANY,
        of_leaf_1,
        &[],
        &["switch-down switch/leaf-1"],
    );
}

#[test]
fn a_leaf_that_took_whole_hosts_with_it_is_one_fault() {
    let of_leaf_1 = |node: usize, _: usize| node / 2 == 1;
    for spines in [2, MANY] {
        check(
            &by_rack,
            spines,
            of_leaf_1,
            &[],
            &["switch-down switch/leaf-1"],
        );
    }
}

#[test]
fn hosts_that_are_read_one_after_another_are_no_incidents_before_their_leaf_is() {
    let mut analyzer = Analyzer::default();
    let mut seen: Vec<String> = Vec::new();
    for second in 1..=70 {
        // One node of each leaf is read each second.
        for index in (0..NODES).filter(|index| second <= 50 || index % 4 == second % 4) {
            let text = page(index, second as u64);
            let is_dark = second > 50 && index / 4 == 0;
            let text = if is_dark {
                text.replace("port=\"1\"} 1\n", "port=\"1\"} 0\n")
            } else {
                text
            };
            analyzer.ingest(&node(index), &text, at(second as u64));
        }
        let cabling: &Cabling = &|node, _| Some(node / 4);
        let subnet = parse_ibnetdiscover(&subnet_of(NODES, MANY, cabling));
        analyzer.take_subnet(subnet, at(second as u64));
        for incident in incidents(&analyzer.tick(at(second as u64))) {
            let words = incident.split(' ').take(2).collect::<Vec<_>>().join(" ");
            if !seen.contains(&words) {
                seen.push(words);
            }
        }
    }
    assert_eq!(seen, ["switch-down switch/leaf-0"]);
}

#[test]
fn one_host_without_light_is_that_host() {
    let of_n2 = |node: usize, _: usize| node == 2;
    check(&by_rack, MANY, of_n2, &[], &["host-down host/n2"]);
}

#[test]
fn hosts_that_are_gone_themselves_do_not_make_their_leaf_guilty() {
    let both = &["host-down host/n2", "host-down host/n3"];
    check(&by_rack, MANY, |_, _| false, &[2, 3], both);
}

/// Every node is read once in [`NODES`] ticks, one after another. All incidents that were ever open after such
/// ports went dark.
fn ever_open_with_slow_scrapes(dark: impl Fn(usize) -> bool) -> BTreeSet<String> {
    let (mut analyzer, mut ever) = (Analyzer::default(), BTreeSet::new());
    for tick in 1..=8 * NODES as u64 {
        let seconds = 5 * tick;
        for index in 0..NODES {
            if tick > NODES as u64 && tick as usize % NODES != index {
                continue;
            }
            let mut text = page(index, seconds);
            if tick > 3 * NODES as u64 && dark(index) {
                let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#;
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        if tick == 1 {
            let text = subnet_of(NODES, MANY, &as_planned);
            analyzer.take_subnet(parse_ibnetdiscover(&text), at(seconds));
        }
        let view = analyzer.tick(at(seconds));
        let named = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        ever.extend(incidents(&view).into_iter().map(named));
    }
    ever
}

#[test]
fn what_the_first_hosts_say_of_a_dead_leaf_waits_for_the_others() {
    let all = ever_open_with_slow_scrapes(|_| true);
    assert_eq!(
        all,
        BTreeSet::from(["switch-down switch/leaf-1".to_owned()])
    );
    let one = ever_open_with_slow_scrapes(|node| node == 2);
    assert_eq!(
        one,
        BTreeSet::from(["port-down link/n2:mlx5_1/1".to_owned()])
    );
}

/// Rounds of scrapes, with a tick at the end of each, until there is an incident about ports of rail 1 that go dark at these
/// hosts, which are read at the beginning of a round or at its end, and count the loss themselves or do not.
fn rounds_to_an_incident(
    dark: &[usize],
    read_last: bool,
    counts: bool,
) -> (usize, BTreeSet<String>) {
    const HEALTHY: usize = 4;
    let mut analyzer = Analyzer::default();
    let text = subnet_of(NODES, MANY, &as_planned);
    analyzer.take_subnet(parse_ibnetdiscover(&text), at(0));
    let others = (0..NODES).filter(|node| !dark.contains(node));
    let order: Vec<usize> = match read_last {
        false => dark.iter().copied().chain(others).collect(),
        true => others.chain(dark.iter().copied()).collect(),
    };
    for round in 0..HEALTHY + 4 {
        let end = 20 * (round as u64 + 1);
        for (turn, index) in order.iter().copied().enumerate() {
            let seconds = end - NODES as u64 + turn as u64;
            let is_dark = round >= HEALTHY && dark.contains(&index);
            let mut text = page(index, seconds);
            if is_dark {
                let up = r#"railscope_rdma_port_up{device="mlx5_1",port="1"}"#;
                text = text.replace(&format!("{up} 1"), &format!("{up} 0"));
            }
            if counts {
                let labels = r#"{device="mlx5_1",port="1",kind="link_downed"}"#;
                let losses = u32::from(is_dark);
                text += &format!("railscope_rdma_port_errors_total{labels} {losses}\n");
            }
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let open = incidents(&analyzer.tick(at(end)));
        let named = |line: String| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let open: BTreeSet<String> = open.into_iter().map(named).collect();
        if !open.is_empty() {
            return (round + 1 - HEALTHY, open);
        }
    }
    (usize::MAX, BTreeSet::new())
}

#[test]
fn a_port_that_has_counted_its_loss_waits_for_a_second_look_too() {
    let port = BTreeSet::from(["port-down link/n2:mlx5_1/1".to_owned()]);
    // Pages are as old as the last sample: that others are up was perhaps true before the loss.
    for (read_last, counts) in [(false, true), (true, true), (false, false)] {
        let found = rounds_to_an_incident(&[2], read_last, counts);
        assert_eq!(found, (2, port.clone()), "{read_last} {counts}");
    }
    let all: Vec<usize> = (0..NODES).collect();
    for counts in [false, true] {
        let (_, named) = rounds_to_an_incident(&all, false, counts);
        let leaf = BTreeSet::from(["switch-down switch/leaf-1".to_owned()]);
        assert_eq!(named, leaf, "{counts}");
    }
}
